//! Pictures of an input: what is accepted, how they stand in an admission's payload, how a row keeps them.
//!
//! A row keeps its pictures beside its text, as bytes that are replayed as they are (I18): the row's opaque part, under an
//! issuer that is no provider's. They are what was accepted; nothing scales or converts them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hermes_providers::Image;
use hermes_store::{Role, Sidecar, StoredMessage};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::EngineError;
use crate::limits::{IMAGES_MAX, IMAGES_TOTAL_MAX_BYTES};

/// Who a row's pictures are of, among the issuers of opaque parts.
const ISSUER: &str = "hermes/images";

/// The beginnings of files that models take, with their types.
const KINDS: [(&[u8], &str); 4] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
];

/// A picture of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputImage {
    /// The file's bytes: PNG, JPEG, GIF or WebP.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub data: Bytes,
}

impl InputImage {
    /// A picture of these bytes.
    #[must_use]
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self { data: data.into() }
    }

    /// The pictures of a stored row, in their order.
    #[must_use]
    pub fn of_row(row: &StoredMessage) -> Vec<Self> {
        of_sidecar(row.sidecar.as_ref()).into_iter().map(|image| Self { data: image.data }).collect()
    }

    /// What kind of file it is, by its first bytes; `None` for what no model takes.
    #[must_use]
    pub fn media_type(&self) -> Option<&'static str> {
        if self.data.starts_with(b"RIFF") && self.data.get(8..12) == Some(b"WEBP") {
            return Some("image/webp");
        }
        KINDS.iter().find(|(begin, _)| self.data.starts_with(begin)).map(|(_, kind)| *kind)
    }
}

fn to_base64<S: Serializer>(data: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(data))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text.trim()).map(Bytes::from).map_err(serde::de::Error::custom)
}

/// Refuses pictures that cannot be sent.
pub(crate) fn check(images: &[InputImage]) -> Result<(), EngineError> {
    let bytes: usize = images.iter().map(|image| image.data.len()).sum();
    if images.len() > IMAGES_MAX || bytes > IMAGES_TOTAL_MAX_BYTES {
        return Err(EngineError::TooManyImages { count: images.len(), bytes });
    }
    match images.iter().position(|image| image.media_type().is_none()) {
        Some(at) => Err(EngineError::NotAnImage { number: at + 1 }),
        None => Ok(()),
    }
}

/// Pictures as a row keeps them: for each its type, its length and its bytes.
pub(crate) fn to_row(images: &[InputImage]) -> Option<Sidecar> {
    let mut bytes = Vec::with_capacity(images.iter().map(|image| image.data.len() + 32).sum());
    for image in images {
        let kind = image.media_type()?;
        bytes.extend_from_slice(format!("{kind} {}\n", image.data.len()).as_bytes());
        bytes.extend_from_slice(&image.data);
    }
    (!bytes.is_empty()).then(|| Sidecar { issuer: ISSUER.to_owned(), bytes: bytes.into() })
}

/// The pictures of a row. Their bytes are shared with the row's.
pub(crate) fn of_sidecar(sidecar: Option<&Sidecar>) -> Vec<Image> {
    let Some(sidecar) = sidecar.filter(|sidecar| sidecar.issuer == ISSUER) else { return Vec::new() };
    let mut images = Vec::new();
    let mut rest = sidecar.bytes.clone();
    while let Some((media_type, begin, end)) = head(&rest) {
        images.push(Image { media_type, data: rest.slice(begin..end) });
        rest = rest.slice(end..);
    }
    images
}

/// How many pictures the model is shown with a row.
pub(crate) fn count(row: &StoredMessage) -> usize {
    if row.role == Role::User { of_sidecar(row.sidecar.as_ref()).len() } else { 0 }
}

/// Type, beginning and end of the first picture.
fn head(bytes: &[u8]) -> Option<(Arc<str>, usize, usize)> {
    let line = bytes.iter().position(|byte| *byte == b'\n')?;
    let (kind, length) = std::str::from_utf8(&bytes[..line]).ok()?.split_once(' ')?;
    let end = (line + 1).checked_add(length.parse().ok()?)?;
    (end <= bytes.len()).then(|| (Arc::from(kind), line + 1, end))
}

/// What is said in place of a row's pictures when they are taken out of the model's view.
pub(crate) fn without(text: &str, count: usize) -> String {
    let what = if count == 1 { "A picture was".to_owned() } else { format!("{count} pictures were") };
    let joint = if text.is_empty() { "" } else { "\n\n" };
    format!("{text}{joint}[{what} here; what it showed is no longer in view. Ask for it again if it is needed.]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nx";

    #[test]
    fn pictures_are_known_by_their_bytes() {
        let kind = |bytes: &'static [u8]| InputImage::new(bytes).media_type();
        assert_eq!(kind(PNG), Some("image/png"));
        assert_eq!(kind(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        assert_eq!(kind(b"GIF89a.."), Some("image/gif"));
        assert_eq!(kind(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        assert_eq!(kind(b"RIFF\0\0\0\0WAVE"), None);
        assert_eq!(kind(b"<svg>"), None);
        assert_eq!(kind(b""), None);
    }

    #[test]
    fn a_row_gives_back_what_it_was_given() {
        let images = [InputImage::new(PNG), InputImage::new(b"GIF87a\n5\n".as_slice()), InputImage::new(PNG)];
        let sidecar = to_row(&images).unwrap();
        let back = of_sidecar(Some(&sidecar));
        assert_eq!(back.iter().map(|image| image.data.clone()).collect::<Vec<_>>(), images.clone().map(|i| i.data));
        assert_eq!(
            back.iter().map(|image| &*image.media_type).collect::<Vec<_>>(),
            ["image/png", "image/gif", "image/png"]
        );
        assert_eq!(to_row(&[]), None);
        let cut = Sidecar { bytes: sidecar.bytes.slice(..sidecar.bytes.len() - 1), ..sidecar.clone() };
        assert_eq!(of_sidecar(Some(&cut)).len(), 2);
        assert!(of_sidecar(Some(&Sidecar { issuer: "a".into(), ..sidecar })).is_empty());
    }

    #[test]
    fn too_many_too_large_and_no_pictures_are_refused() {
        assert!(check(&vec![InputImage::new(PNG); IMAGES_MAX]).is_ok());
        assert!(matches!(check(&vec![InputImage::new(PNG); IMAGES_MAX + 1]), Err(EngineError::TooManyImages { .. })));
        let mut large = PNG.to_vec();
        large.resize(IMAGES_TOTAL_MAX_BYTES + 1, 0);
        assert!(matches!(check(&[InputImage::new(large)]), Err(EngineError::TooManyImages { count: 1, .. })));
        let wrong = [InputImage::new(PNG), InputImage::new(b"text".as_slice())];
        assert!(matches!(check(&wrong), Err(EngineError::NotAnImage { number: 2 })));
    }
}
