//! The engine's own form of an input: what an admission's payload holds.

use serde::{Deserialize, Serialize};

use crate::image::InputImage;

/// One input of a user. The payload of an admission is its JSON; fields that a newer program wrote are kept out of the
/// way, never an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// What the user wrote, byte for byte.
    pub text: String,
    /// Pictures, behind the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<InputImage>,
    /// Where the user writes, in one word (`telegram`, `terminal`); `None` says nothing of it. The prompt of a session does
    /// not change with it: a change is told the model once, behind the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// What a child may do; only in inputs that the engine makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) child: Option<crate::delegate::ChildTask>,
}

impl Input {
    /// An input of plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), images: Vec::new(), platform: None, child: None }
    }

    /// The same with these pictures.
    #[must_use]
    pub fn with_images(mut self, images: Vec<InputImage>) -> Self {
        self.images = images;
        self
    }

    /// The same, written at this place.
    #[must_use]
    pub fn from_platform(mut self, platform: impl Into<String>) -> Self {
        self.platform = Some(platform.into());
        self
    }

    pub(crate) fn to_payload(&self) -> String {
        // A struct with one string cannot fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn from_payload(payload: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_reads_back_and_unknown_fields_are_no_error() {
        let input = Input::text("a \"b\" \n \u{0} 👩");
        assert_eq!(Input::from_payload(&input.to_payload()).unwrap(), input);
        assert_eq!(Input::from_payload("{\"text\":\"x\",\"later\":1}").unwrap(), Input::text("x"));
    }
}
