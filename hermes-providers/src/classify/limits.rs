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
    "maximum context length:",
    "maximum context window is",
    "maximum context window of",
    "maximum prompt length is",
    "context length of only",
    "available context size (",
    "maximum number of tokens allowed (",
    "maximum allowed input length of",
    "maximum input length of",
    "maximum number of input tokens (",
    "range of input length should be [1,",
    "context window of",
    "context length of",
    "context size of",
    "context size (",
    "context length is",
    "context limit is",
    "model token limit:",
    "in the prompt cannot exceed",
    "must be <=",
    "max_num_tokens (",
    "max_model_len",
    "n_ctx_slot =",
    "n_ctx =",
];
/// The window's number stands before one of these.
const WINDOW_BEFORE: &[&str] = &[" maximum", " token limit", " tokens maximum"];
/// The input's number follows one of these.
const INPUT_AFTER: &[&str] = &[
    "your request has",
    "prompt contains",
    "request contains",
    "your messages resulted in",
    "input token count (",
    "prompt is too long:",
    "sum of prompt length (",
    "request (",
    "- received ",
];
/// The input's number follows this without anything in between.
const INPUT_RIGHT_AFTER: &str = "input length ";
/// The input's number stands before one of these.
const INPUT_BEFORE: &[&str] = &[
    " in the messages",
    " of text input",
    " tokens from the input",
    " input tokens",
    " `inputs` tokens",
    " in your prompt",
];
/// A part of the input beside its text stands before this.
const MORE_INPUT_BEFORE: &str = " of tool input";
/// The wanted output's number stands before one of these.
const OUTPUT_BEFORE: &[&str] = &[
    " in the completion",
    " for the completion",
    " in the output",
    " output tokens",
    " `max_new_tokens`",
    " of output",
];
/// The wanted output's number follows one of these.
const OUTPUT_AFTER: &[&str] = &["max_tokens=", "max_completion_tokens=", "is too large:"];
/// The cap itself follows one of these.
const CAP_AFTER: &[&str] = &[
    "supports at most",
    "can only afford",
    "range of max_tokens should be [1,",
    "range of max_tokens is [1,",
    "max_tokens` must be less than or equal to",
    "max_completion_tokens` must be less than or equal to",
    "tokens you requested exceeds the model limit of",
];
/// A cap stands before one of these.
const CAP_BEFORE: &[&str] = &[", which is the maximum allowed number of output tokens"];
/// Fields of the body that hold the window.
const WINDOW_FIELDS: &[&str] = &["n_ctx", "max_model_len", "max_context_length"];
/// Fields of the body that hold the size of the input.
const INPUT_FIELDS: &[&str] = &["n_prompt_tokens", "prompt_tokens", "input_tokens"];
/// What of a window is asked for when the wanted output alone is larger than all of it and the input's size is unknown.
const OUTPUT_OF_WINDOW: u64 = 2;

/// What was found, in tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// The window.
    pub(super) context: Option<u64>,
    /// The size of the input.
    pub(super) input: Option<u64>,
    /// The output that would fit; only when asking for less output helps.
    pub(super) output: Option<u64>,
}

/// Reads `words` (lower case).
pub(super) fn read(words: &str, body: &ErrorBody) -> Limits {
    let field = |keys: &[&str]| keys.iter().find_map(|key| body.field(key)?.as_u64());
    let cap = || {
        let after = CAP_AFTER.iter().find_map(|phrase| after(words, phrase));
        after.or_else(|| CAP_BEFORE.iter().find_map(|phrase| before(words, phrase)))
    };
    // Other things have a highest number too.
    if let Some(cap) = Some(words).filter(|words| words.contains("token")).and_then(|_| cap()) {
        return Limits { output: Some(cap), ..Limits::default() };
    }
    if let Some((input, output, window)) = sum(words) {
        return Limits { context: Some(window), input: Some(input), output: room(window, input, Some(output)) };
    }
    let window = field(WINDOW_FIELDS)
        .or_else(|| WINDOW_AFTER.iter().find_map(|phrase| after(words, phrase)))
        .or_else(|| WINDOW_BEFORE.iter().find_map(|phrase| before(words, phrase)))
        .filter(|window| (MIN_TOKENS..=MAX_TOKENS).contains(window));
    let more = before(words, MORE_INPUT_BEFORE).unwrap_or(0);
    let input = field(INPUT_FIELDS)
        .or_else(|| INPUT_BEFORE.iter().find_map(|phrase| before(words, phrase)))
        .or_else(|| INPUT_AFTER.iter().find_map(|phrase| after(words, phrase)))
        .or_else(|| number_at_start(words.split_once(INPUT_RIGHT_AFTER)?.1).map(|(number, _)| number))
        .map(|input| input.saturating_add(more))
        .filter(|input| (1..=MAX_TOKENS).contains(input));
    let output = OUTPUT_BEFORE.iter().find_map(|phrase| before(words, phrase));
    let output = output.or_else(|| OUTPUT_AFTER.iter().find_map(|phrase| after(words, phrase)));
    let asks_output = output.is_some() || words.contains("max_tokens") || words.contains("max_completion_tokens");
    let room = match (window, input) {
        (Some(window), Some(input)) if asks_output => room(window, input, output),
        // Whatever the input is, this output never fits; the history has no part in it.
        (Some(window), None) if output.is_some_and(|output| output >= window) => Some(window / OUTPUT_OF_WINDOW),
        _ => None,
    };
    Limits { context: window, input: input.filter(|_| window.is_some()), output: room }
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

    fn check(text: &str, context: Option<u64>, input: Option<u64>, output: Option<u64>) {
        let body = ErrorBody::parse(text.as_bytes());
        assert_eq!(read(&body.words(), &body), Limits { context, input, output }, "{text}");
    }

    #[test]
    fn b37_every_wording_of_the_list_gives_its_numbers() {
        check(
            "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease",
            Some(200_000),
            Some(195_000),
            Some(5000),
        );
        check(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            Some(1_048_576),
            Some(1_200_000),
            None,
        );
        check(
            "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
            Some(8192),
            Some(9000),
            None,
        );
        check("This model's maximum context length is 131,072 tokens. Please reduce", Some(131_072), None, None);
        check(
            "Input length 131393 exceeds the maximum allowed input length of 131040 tokens",
            Some(131_040),
            Some(131_393),
            None,
        );
        check(r#"{"error":{"message":"too long","n_ctx":2048,"n_prompt_tokens":5000}}"#, Some(2048), Some(5000), None);
    }

    #[test]
    fn b37_an_input_that_is_too_large() {
        check("prompt is too long: 208310 tokens > 200000 maximum", Some(200_000), Some(208_310), None);
        check(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 99999 tokens.",
            Some(8192),
            Some(99_999),
            None,
        );
        check("the model is loaded with context length of only 4096 tokens", Some(4096), None, None);
        check(
            "You passed 100001 input tokens and requested 0 output tokens. However, the model's context length is only \
             100000 tokens",
            Some(100_000),
            Some(100_001),
            None,
        );
        check(
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            Some(32_768),
            Some(40_000),
            None,
        );
        check(
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            Some(131_072),
            Some(537_812),
            None,
        );
        check(
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.",
            Some(4081),
            Some(4292),
            None,
        );
        check("Your request exceeded model token limit: 262144", Some(262_144), None, None);
        check("Range of input length should be [1, 30720]", Some(30_720), None, None);
        check(
            "The prompt is too long: 140000, model maximum context length: 131071",
            Some(131_071),
            Some(140_000),
            None,
        );
        check(
            "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)",
            Some(8192),
            Some(9000),
            None,
        );
    }

    #[test]
    fn b37_an_output_that_does_not_fit_beside_the_input() {
        check(
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (7000 in the messages, \
             2000 in the completion).",
            Some(8192),
            Some(7000),
            Some(1192),
        );
        check(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (120000 \
             of text input, 3000 of tool input, 17000 in the output).",
            Some(131_072),
            Some(123_000),
            Some(8072),
        );
        check(
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 tokens \
             and your request has 100 input tokens (8192 > 8192 - 100).",
            Some(8192),
            Some(100),
            Some(8092),
        );
        check(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and 512 \
             `max_new_tokens`",
            Some(4097),
            Some(4000),
            Some(97),
        );
        check(
            "max_tokens=300000 cannot be greater than max_model_len=262144. Please request fewer output tokens.",
            Some(262_144),
            None,
            Some(131_072),
        );
    }

    #[test]
    fn b37_a_cap_of_the_output_alone() {
        for (text, cap) in [
            ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens", 16_384),
            ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model", 64_000),
            ("You requested up to 8192 tokens, but can only afford 1200.", 1200),
            ("Range of max_tokens should be [1, 8192]", 8192),
            ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
            ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is", 8192),
            ("The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower value.", 4096),
        ] {
            check(text, None, None, Some(cap));
        }
    }

    #[test]
    fn b37_other_numbers_are_none_of_these() {
        for text in [
            "Something else with 8192 in it",
            "上下文长度 超过",
            "This model supports at most 4 images",
            "temperature must be less than or equal to 2",
            "Rate limit reached for tokens per minute: Limit 30000, Used 29000, Requested 5000",
            "",
        ] {
            check(text, None, None, None);
        }
    }
}
