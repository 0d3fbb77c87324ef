//! Replaces a file so that a crash at any step leaves the old one or the new one, readable for its owner only (B51).

use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

/// A file of the user's and of nobody else.
pub(super) const PRIVATE_MODE: u32 = 0o600;

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Create,
    Write,
    Sync,
    Rename,
    SyncDir,
}

/// Replaces the file. `step` is told what comes next, and its error is a failure of that step.
pub(super) fn replace(path: &Path, bytes: &[u8], step: &mut dyn FnMut(Step) -> io::Result<()>) -> io::Result<()> {
    // A link is followed: the file behind it is the one that people mean.
    let target = match std::fs::canonicalize(path) {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    step(Step::Create)?;
    // Begins with mode 0600, and keeps it, whatever the old file had.
    let mut file = tempfile::Builder::new().prefix(".auth-").tempfile_in(dir)?;
    step(Step::Write)?;
    file.write_all(bytes)?;
    step(Step::Sync)?;
    file.as_file().sync_all()?;
    step(Step::Rename)?;
    file.persist(&target).map_err(|error| error.error)?;
    step(Step::SyncDir)?;
    // The rename itself lives in the directory.
    #[cfg(unix)]
    std::fs::File::open(dir)?.sync_all()?;
    Ok(())
}
