//! Pictures that a model cannot see become words, for all wires in one place.
//!
//! What is said depends on the picture alone, so a message has the same bytes in every request (I18).

use std::borrow::Cow;

use crate::chat::{ChatMessage, ChatRequest, Image};
use crate::mode::WireOptions;
use crate::profile::ApiMode;

/// Kinds of pictures that most makers name.
const COMMON: &[&str] = &["image/png", "image/jpeg", "image/webp", "image/gif"];
/// Those of Google ("Image understanding").
const GOOGLE: &[&str] = &["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

impl WireOptions {
    /// Whether the model can see.
    #[must_use]
    pub fn sees_images(&self) -> bool {
        let quirks = &self.quirks;
        let is_named = quirks.blind_models.iter().any(|start| self.model.starts_with(start.as_str()));
        !quirks.is_blind && !is_named
    }
}

/// The request with words in place of each picture that this model, or this place of this wire, cannot carry.
pub(super) fn readable<'a>(mode: ApiMode, request: &'a ChatRequest, options: &WireOptions) -> Cow<'a, ChatRequest> {
    let sees = options.sees_images();
    let kinds = if mode == ApiMode::Gemini { GOOGLE } else { COMMON };
    let is_seen = |image: &Image| sees && kinds.contains(&&*image.media_type);
    // A tool's message is a text on this wire.
    let in_results = mode != ApiMode::ChatCompletions;
    let is_carried = |message: &ChatMessage| match message {
        ChatMessage::User { images, .. } => images.iter().all(is_seen),
        ChatMessage::Tool { images, .. } => images.is_empty() || (in_results && images.iter().all(is_seen)),
        ChatMessage::Assistant { .. } => true,
    };
    if request.messages.iter().all(is_carried) {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    for message in &mut request.messages {
        match message {
            ChatMessage::User { text, images } => say(text, images, is_seen),
            ChatMessage::Tool { content, images, .. } => say(content, images, |image| in_results && is_seen(image)),
            ChatMessage::Assistant { .. } => {}
        }
    }
    Cow::Owned(request)
}

/// Moves what is not carried from the pictures into the text.
fn say(text: &mut String, images: &mut Vec<Image>, is_carried: impl Fn(&Image) -> bool) {
    images.retain(|image| {
        let stays = is_carried(image);
        if !stays {
            text.push_str(if text.is_empty() { "" } else { "\n\n" });
            text.push_str(&format!("[A picture ({}) was here; this model cannot see it.]", image.media_type));
        }
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Quirks;

    fn image(kind: &str) -> Image {
        Image { media_type: kind.into(), data: bytes::Bytes::from_static(b"PIX") }
    }

    fn request(kind: &str) -> ChatRequest {
        let result = ChatMessage::Tool {
            call_id: "a".into(),
            name: "t".into(),
            content: String::new(),
            is_error: false,
            images: vec![image(kind)],
        };
        let user = ChatMessage::User { text: "look".into(), images: vec![image(kind), image("image/png")] };
        ChatRequest::new(vec![user, result])
    }

    /// Per message: pictures that stay, and whether words were said.
    fn check(mode: ApiMode, kind: &str, quirks: Quirks, expect: [(usize, bool); 2]) {
        let options = WireOptions { model: "m-1".into(), issuer: "me".into(), quirks };
        let request = request(kind);
        let of = |message: &ChatMessage| match message {
            ChatMessage::User { text, images } | ChatMessage::Tool { content: text, images, .. } => {
                (images.len(), text.contains("cannot see"))
            }
            ChatMessage::Assistant { .. } => panic!("there is none"),
        };
        let got: Vec<_> = readable(mode, &request, &options).messages.iter().map(of).collect();
        assert_eq!(got, expect, "{mode:?} {kind}");
    }

    #[test]
    fn a_picture_that_cannot_be_seen_becomes_words_on_every_wire() {
        let seeing = Quirks::default;
        for mode in [ApiMode::AnthropicMessages, ApiMode::Gemini, ApiMode::BedrockConverse] {
            check(mode, "image/jpeg", seeing(), [(2, false), (1, false)]);
            check(mode, "image/tiff", seeing(), [(1, true), (0, true)]);
            check(mode, "image/png", Quirks { blind_models: vec!["m-".into()], ..seeing() }, [(0, true), (0, true)]);
            check(mode, "image/png", Quirks { blind_models: vec!["x".into()], ..seeing() }, [(2, false), (1, false)]);
            check(mode, "image/png", Quirks { is_blind: true, ..seeing() }, [(0, true), (0, true)]);
        }
        check(ApiMode::Gemini, "image/gif", seeing(), [(1, true), (0, true)]);
        check(ApiMode::AnthropicMessages, "image/heic", seeing(), [(1, true), (0, true)]);
        check(ApiMode::ChatCompletions, "image/png", seeing(), [(2, false), (0, true)]);
    }

    #[test]
    fn a_request_without_such_pictures_is_not_copied() {
        let options = WireOptions { model: "m".into(), issuer: "me".into(), quirks: Quirks::default() };
        let request = request("image/png");
        assert!(matches!(readable(ApiMode::Gemini, &request, &options), Cow::Borrowed(_)));
    }
}
