//! What may be changed in a refused request so that it passes: read from structure first, then from words.

use super::body::ErrorBody;
use super::tables::contains_any;
use crate::error::{ErrorClass, Remedy};

/// Codes and types that say of `param` that it may not be there, lower case.
const FIELD_CODES: &[&str] =
    &["unsupported_parameter", "unknown_parameter", "unrecognized_parameter", "unsupported_value"];
/// The name of a field that may not be there follows one of these (lower case).
const FIELD_AFTER: &[&str] = &[
    "unrecognized request argument supplied: ",
    "unrecognized request arguments supplied: ",
    "unrecognized request argument: ",
    "unrecognized parameter: ",
    "unrecognized field: ",
    "unknown parameter: ",
    "unknown parameter ",
    "unknown field: ",
    "unknown field ",
    "unknown name ",
    "unsupported parameter: ",
    "unsupported parameter ",
    "unsupported value: ",
    "unexpected keyword argument ",
    "does not support parameters: ",
    "additional properties are not allowed (",
];
/// The name of a field that may not be there stands before one of these (lower case).
const FIELD_BEFORE: &[&str] =
    &[": extra inputs are not permitted", " is deprecated for this model", " is not supported with this model"];
/// Longest name of a field, with those around it.
const MAX_FIELD_BYTES: usize = 96;

/// Codes of pictures that cannot be used.
const IMAGE_CODES: &[&str] = &[
    "image_too_large",
    "image_too_small",
    "image_file_too_large",
    "image_parse_error",
    "invalid_image",
    "invalid_image_format",
    "invalid_image_mode",
    "invalid_base64_image",
    "unsupported_image_media_type",
    "empty_image_file",
];
/// With the word `image`: pictures in results of tools are not taken.
const TOOL_IMAGE: &[&str] =
    &["tool message", "tool result", "tool content", "tool_result", "role tool", "role 'tool'", "role `tool`"];
/// A picture that cannot be used, or a model that sees none.
const IMAGE: &[&str] = &[
    "image exceeds",
    "images exceed",
    "image is too large",
    "image too large",
    "image dimensions",
    "image size",
    "could not process image",
    "unable to process input image",
    "failed to decode image",
    "cannot decode image",
    "invalid image",
    "unsupported image",
    "image media type",
    "does not support image",
    "not support image",
    "support image input",
    "image input is not supported",
    "image_url is only supported",
    "unknown variant `image_url`",
    "is not a multimodal model",
];
/// A grammar cannot be made of the schemas.
const GRAMMAR: &[&str] = &[
    "parse grammar",
    "grammar parsing",
    "json schema conversion failed",
    "error resolving ref",
    "unsupported pattern",
    "pattern must start with",
    "'pattern' is not supported",
    "'format' is not supported",
];
/// Reasoning cannot be turned off.
const MANDATORY: &[&str] = &["reasoning is mandatory", "reasoning cannot be disabled", "thinking cannot be disabled"];
/// Neighbours may not have the same role.
const ALTERNATION: &[&str] = &["roles must alternate", "must alternate between", "role alternation"];

/// The remedy for an answer of this class. `words` is lower case.
pub(super) fn read(class: ErrorClass, body: &ErrorBody, words: &str) -> Option<Remedy> {
    let coded = |codes: &[&str]| body.codes().any(|code| codes.contains(&code.to_ascii_lowercase().as_str()));
    let says = |phrases: &[&str]| contains_any(words, phrases);
    let pictures = || {
        let shown = coded(IMAGE_CODES) || (words.contains("image") && (says(IMAGE) || says(TOOL_IMAGE)));
        shown.then(|| if says(TOOL_IMAGE) { Remedy::DropToolImages } else { Remedy::DropImages })
    };
    match class {
        // AWS has a permission of its own for streams.
        ErrorClass::Auth if words.contains("invokemodelwithresponsestream") => Some(Remedy::WholeAnswer),
        ErrorClass::ModelNotFound | ErrorClass::PayloadTooLarge => pictures(),
        ErrorClass::BadRequest => {
            if says(GRAMMAR) {
                Some(Remedy::PlainSchemas)
            } else if says(MANDATORY) {
                Some(Remedy::LeastReasoning)
            } else if says(ALTERNATION) {
                Some(Remedy::MergeRoles)
            } else {
                pictures().or_else(|| field(body, words))
            }
        }
        _ => None,
    }
}

/// A field that the server does not take, under this name.
fn field(body: &ErrorBody, words: &str) -> Option<Remedy> {
    let is_about_param = body.codes().any(|code| FIELD_CODES.contains(&code.to_ascii_lowercase().as_str()));
    let by_param = body.param.clone().filter(|_| is_about_param || body.param_is_extra);
    let name = by_param.or_else(|| in_words(&body.message)).or_else(|| in_words(&body.nested))?;
    Some(match name.as_str() {
        "max_tokens" if words.contains("max_completion_tokens") => {
            Remedy::RenameField { from: name, to: "max_completion_tokens".to_owned() }
        }
        "max_completion_tokens" => Remedy::RenameField { from: name, to: "max_tokens".to_owned() },
        _ => Remedy::DropField(name),
    })
}

fn in_words(text: &str) -> Option<String> {
    // Of the same length as the text, so that a place in one is a place in the other; names keep their case.
    let lower = text.to_ascii_lowercase();
    let behind = |phrase: &&str| {
        let rest = &text[lower.find(phrase)? + phrase.len()..];
        let rest = rest.trim_start_matches(|c: char| !is_name(c));
        name(&rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())])
    };
    let ahead = |phrase: &&str| {
        let head = text[..lower.find(phrase)?].trim_end_matches(['`', '\'', '"']);
        let start =
            head.rfind(|c| !is_name(c)).map_or(0, |at| at + head[at..].chars().next().map_or(1, char::len_utf8));
        name(&head[start..])
    };
    FIELD_AFTER.iter().find_map(behind).or_else(|| FIELD_BEFORE.iter().find_map(ahead))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

fn name(text: &str) -> Option<String> {
    let text = text.trim_matches('.');
    let is_name =
        text.len() >= 2 && text.len() <= MAX_FIELD_BYTES && text.starts_with(|c: char| c.is_ascii_alphabetic());
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Remedy::{DropImages, DropToolImages, LeastReasoning, MergeRoles, PlainSchemas};

    #[allow(clippy::needless_pass_by_value, reason = "a table reads better without references")]
    fn check(text: &str, expect: Option<Remedy>) {
        let body = ErrorBody::parse(text.as_bytes());
        assert_eq!(read(ErrorClass::BadRequest, &body, &body.words()), expect, "{text}");
    }

    fn field(name: &str) -> Option<Remedy> {
        Some(Remedy::DropField(name.to_owned()))
    }

    #[test]
    fn b41_a_field_is_named_by_structure_or_in_words() {
        check("unrecognized request argument: prompt_cache_key", field("prompt_cache_key"));
        check("Unrecognized request argument supplied: stream_options", field("stream_options"));
        check(
            r#"{"error":{"message":"x","code":"unsupported_parameter","param":"reasoning.effort"}}"#,
            field("reasoning.effort"),
        );
        check(r#"{"error":{"message":"Unknown parameter: 'store'.","code":"unknown_parameter"}}"#, field("store"));
        check(
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.7 with this model.","param":"temperature","code":"unsupported_value"}}"#,
            field("temperature"),
        );
        check(r#"{"detail":[{"loc":["body","seed"],"msg":"x","type":"extra_forbidden"}]}"#, field("seed"));
        check(r#"{"detail":[{"loc":["body","messages"],"msg":"field required","type":"missing"}]}"#, None);
        check("output_config.effort: Extra inputs are not permitted", field("output_config.effort"));
        check("`temperature` is deprecated for this model.", field("temperature"));
        check(
            r#"{"error":{"message":"Invalid JSON payload received. Unknown name \"thinkingConfig\" at 'generation_config': Cannot find field."}}"#,
            field("thinkingConfig"),
        );
        check("Additional properties are not allowed ('cache_control' was unexpected)", field("cache_control"));
        check("Invalid value for max_tokens", None);
        check("Bad request", None);
    }

    #[test]
    fn the_cap_of_the_output_gets_its_other_name() {
        let renamed = |from: &str, to: &str| Some(Remedy::RenameField { from: from.to_owned(), to: to.to_owned() });
        check(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            renamed("max_tokens", "max_completion_tokens"),
        );
        check("unknown field `max_completion_tokens`", renamed("max_completion_tokens", "max_tokens"));
    }

    #[test]
    fn other_refusals_have_their_one_remedy() {
        check("messages.0.content.1.image.source: image exceeds 5 MB maximum", Some(DropImages));
        check(r#"{"error":{"code":"invalid_image_format","message":"x"}}"#, Some(DropImages));
        check("images are not supported in tool messages", Some(DropToolImages));
        check("Failed to parse grammar", Some(PlainSchemas));
        check("Reasoning is mandatory for this endpoint and cannot be disabled.", Some(LeastReasoning));
        check("Conversation roles must alternate user/assistant/user/assistant/...", Some(MergeRoles));
        let body = ErrorBody::parse(b"No endpoints found that support image input");
        assert_eq!(read(ErrorClass::ModelNotFound, &body, &body.words()), Some(DropImages));
        assert_eq!(read(ErrorClass::Auth, &body, &body.words()), None);
    }
}
