//! Reads windows and caps out of error texts.
//!
//! Two cases must be told apart: the input alone is too large (compress), or input and wanted output together are (ask
//! for less output). Structured fields are read before prose.

use super::body::ErrorBody;

/// A smaller number is no window but something else in the text.
const MIN_TOKENS: u64 = 256;
/// A larger one neither.
const MAX_TOKENS: u64 = 20_000_000;
/// How far behind its phrase a number may stand.
const MAX_GAP_BYTES: usize = 24;

/// The window's number follows one of these.
const WINDOW_AFTER: &[&str] = &[
    "maximum context length is",
    "maximum context length of",
    "maximum context window is",
    "maximum context window of",
    "context length of only",
    "available context size (",
    "maximum number of tokens allowed (",
    "maximum allowed input length of",
    "maximum input length of",
    "maximum number of input tokens (",
    "context window of",
    "context length of",
    "context size of",
    "context size (",
    "context length is",
    "context limit is",
    "max_model_len",
    "n_ctx_slot =",
    "n_ctx =",
];
/// The window's number stands before one of these.
const WINDOW_BEFORE: &[&str] = &[" maximum", " token limit", " tokens maximum"];
/// The input's number follows one of these.
const INPUT_AFTER: &[&str] = &[
    "your request has",
    "your prompt contains",
    "your messages resulted in",
    "input token count (",
    "prompt is too long:",
];
/// The input's number stands before one of these.
const INPUT_BEFORE: &[&str] =
    &[" in the messages", " of text input", " tokens from the input", " input tokens", " in your prompt"];
/// The wanted output's number stands before one of these.
const OUTPUT_BEFORE: &[&str] = &[" in the completion", " for the completion", " output tokens", " of output"];
/// The cap itself follows one of these.
const CAP_AFTER: &[&str] = &["supports at most", "can only afford"];
/// A cap stands before one of these.
const CAP_BEFORE: &[&str] = &[", which is the maximum allowed number of output tokens"];

/// What was found, in tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// The window.
    pub(super) context: Option<u64>,
    /// The output that would fit; only when asking for less output helps.
    pub(super) output: Option<u64>,
}

/// Reads `words` (lower case).
pub(super) fn read(words: &str, body: &ErrorBody) -> Limits {
    let field = |key| body.field(key).and_then(serde_json::Value::as_u64);
    if let Some(cap) = CAP_AFTER.iter().find_map(|phrase| after(words, phrase)) {
        return Limits { context: None, output: Some(cap) };
    }
    if let Some(cap) = CAP_BEFORE.iter().find_map(|phrase| before(words, phrase)) {
        return Limits { context: None, output: Some(cap) };
    }
    if let Some((input, output, window)) = sum(words) {
        return Limits { context: Some(window), output: room(window, input, Some(output)) };
    }
    let window = field("n_ctx")
        .or_else(|| WINDOW_AFTER.iter().find_map(|phrase| after(words, phrase)))
        .or_else(|| WINDOW_BEFORE.iter().find_map(|phrase| before(words, phrase)))
        .filter(|window| (MIN_TOKENS..=MAX_TOKENS).contains(window));
    let input = field("n_prompt_tokens")
        .or_else(|| INPUT_BEFORE.iter().find_map(|phrase| before(words, phrase)))
        .or_else(|| INPUT_AFTER.iter().find_map(|phrase| after(words, phrase)));
    let output = OUTPUT_BEFORE.iter().find_map(|phrase| before(words, phrase));
    let asks_output = output.is_some() || words.contains("max_tokens") || words.contains("max_completion_tokens");
    let room = window.zip(input).filter(|_| asks_output).and_then(|(window, input)| room(window, input, output));
    Limits { context: window, output: room }
}

/// What is left for the output, when the input alone fits.
fn room(window: u64, input: u64, output: Option<u64>) -> Option<u64> {
    let room = window.checked_sub(input).filter(|room| *room > 0)?;
    output.is_none_or(|output| output > room).then_some(room)
}

/// `INPUT + OUTPUT > WINDOW`.
fn sum(words: &str) -> Option<(u64, u64, u64)> {
    words.match_indices(" + ").find_map(|(at, sign)| {
        let input = number_at_end(&words[..at])?;
        let (output, rest) = number_at_start(&words[at + sign.len()..])?;
        let (window, _) = number_at_start(rest.trim_start().strip_prefix('>')?.trim_start())?;
        Some((input, output, window))
    })
}

/// The number close behind the phrase.
fn after(words: &str, phrase: &str) -> Option<u64> {
    words.match_indices(phrase).find_map(|(at, _)| {
        let rest = &words[at + phrase.len()..];
        let start = rest.find(|c: char| c.is_ascii_digit()).filter(|start| *start <= MAX_GAP_BYTES)?;
        number_at_start(&rest[start..]).map(|(number, _)| number)
    })
}

/// The number right before the phrase; the word `tokens` may stand in between.
fn before(words: &str, phrase: &str) -> Option<u64> {
    words.match_indices(phrase).find_map(|(at, _)| {
        let head = words[..at].trim_end();
        let head = head.strip_suffix("tokens").unwrap_or(head);
        number_at_end(head.trim_end())
    })
}

fn number_at_start(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, ',' | '_'))).unwrap_or(text.len());
    parse(&text[..end]).map(|number| (number, &text[end..]))
}

fn number_at_end(text: &str) -> Option<u64> {
    let start = text
        .rfind(|c: char| !(c.is_ascii_digit() || matches!(c, ',' | '_')))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    parse(&text[start..])
}

fn parse(digits: &str) -> Option<u64> {
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, context: Option<u64>, output: Option<u64>) {
        let body = ErrorBody::parse(text.as_bytes());
        assert_eq!(read(&body.words(), &body), Limits { context, output }, "{text}");
    }

    #[test]
    fn b37_every_wording_gives_its_numbers() {
        check(
            "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease",
            Some(200_000),
            Some(5000),
        );
        check(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            Some(1_048_576),
            None,
        );
        check(
            "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
            Some(8192),
            None,
        );
        check("This model's maximum context length is 131,072 tokens. Please reduce", Some(131_072), None);
        check("Input length 131393 exceeds the maximum allowed input length of 131040 tokens", Some(131_040), None);
        check("prompt is too long: 208310 tokens > 200000 maximum", Some(200_000), None);
        check(
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (7000 in the messages, \
             2000 in the completion).",
            Some(8192),
            Some(1192),
        );
        check(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 99999 tokens.",
            Some(8192),
            None,
        );
        check(
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 tokens \
             and your request has 100 input tokens (8192 > 8192 - 100).",
            Some(8192),
            Some(8092),
        );
        check(
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
            None,
            Some(16_384),
        );
        check(
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model",
            None,
            Some(64_000),
        );
        check("You requested up to 8192 tokens, but can only afford 1200.", None, Some(1200));
        check("the model is loaded with context length of only 4096 tokens", Some(4096), None);
        check(r#"{"error":{"message":"too long","n_ctx":2048,"n_prompt_tokens":5000}}"#, Some(2048), None);
        check("Something else with 8192 in it", None, None);
        check("上下文长度 超过", None, None);
    }
}
