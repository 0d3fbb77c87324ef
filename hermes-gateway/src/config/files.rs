//! Reading a file of the home, and replacing it so that a crash leaves the old or the new one.

use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use super::ConfigError;

fn unreadable(path: &Path, reason: &impl ToString) -> ConfigError {
    ConfigError::Unreadable { path: path.to_owned(), reason: reason.to_string() }
}

fn unwritable(path: &Path, reason: &impl ToString) -> ConfigError {
    ConfigError::Unwritable { path: path.to_owned(), reason: reason.to_string() }
}

/// The bytes of a file; nothing when there is none.
///
/// # Errors
/// [`ConfigError::Unreadable`], also above `max_bytes`.
pub(super) fn read(path: &Path, max_bytes: usize) -> Result<Option<Vec<u8>>, ConfigError> {
    // Opening a pipe that nobody writes would wait for ever.
    let file = match std::fs::metadata(path) {
        Ok(about) if !about.is_file() => return Err(unreadable(path, &"it is not a file")),
        Ok(_) => std::fs::File::open(path),
        Err(error) => Err(error),
    };
    let file = match file {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() > max_bytes {
        return Err(unreadable(path, &format!("it is larger than {max_bytes} bytes")));
    }
    Ok(Some(bytes))
}

/// Replaces a file: a new file in the same directory, synced, renamed over the old one. A link is followed, the mode
/// is kept; a new file is readable for its owner only.
///
/// # Errors
/// [`ConfigError::Unwritable`]; the old file is then untouched.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), ConfigError> {
    let target = match std::fs::canonicalize(path) {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(unwritable(path, &error)),
    };
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    write_over(dir, &target, text).map_err(|error| unwritable(path, &error))
}

fn write_over(dir: &Path, target: &Path, text: &str) -> std::io::Result<()> {
    // A temporary file of this crate begins with mode 0600.
    let mut file = tempfile::Builder::new().prefix(".hermes-").tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    match std::fs::metadata(target) {
        Ok(old) => file.as_file().set_permissions(old.permissions())?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    // The rename itself lives in the directory.
    #[cfg(unix)]
    std::fs::File::open(dir)?.sync_all()?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn i27_a_pipe_or_a_directory_in_place_of_a_file_is_told_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("config.yaml");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(&pipe, 10), Err(ConfigError::Unreadable { .. })));
        assert!(matches!(read(dir.path(), 10), Err(ConfigError::Unreadable { .. })));
        assert!(matches!(read(&dir.path().join("none"), 10), Ok(None)));
    }

    #[test]
    fn a_link_is_followed_and_the_mode_kept() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::write(&real, "old").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        replace(&link, "new").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        let fresh = dir.path().join("fresh");
        replace(&fresh, "x").unwrap();
        assert_eq!(std::fs::metadata(&fresh).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "no temporary file is left");
    }
}
