//! Small text files that other programs keep.

use std::io;
use std::path::Path;

use tokio::io::AsyncReadExt as _;

/// The text of a file; `None` when it is not there. Reads no pipe and no device: those could keep the reader for ever.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(crate) async fn read_text(file: &Path, max_bytes: u64) -> Result<Option<String>, String> {
    let read = async {
        if !tokio::fs::metadata(file).await?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let mut bytes = Vec::new();
        tokio::fs::File::open(file).await?.take(max_bytes + 1).read_to_end(&mut bytes).await?;
        Ok(bytes)
    };
    match read.await {
        Ok(bytes) if bytes.len() as u64 > max_bytes => Err(format!("it is larger than {max_bytes} bytes")),
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "it is no text".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
