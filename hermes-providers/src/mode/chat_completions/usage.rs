//! Token counts in their many spellings to the one normal form.

use serde_json::Value;

use crate::chat::Usage;

/// Reads a usage object. `None` when it reports nothing.
///
/// OpenAI and its kin count cached tokens inside `prompt_tokens`; those that say `input_tokens` count them apart.
pub(super) fn read(value: &Value) -> Option<Usage> {
    let at = |path: &str| value.pointer(path).and_then(count);
    let first = |paths: &[&str]| paths.iter().find_map(|path| at(path));
    let cache_read = first(&[
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
        "/cache_read_input_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
    ]);
    let cache_write = first(&[
        "/prompt_tokens_details/cache_write_tokens",
        "/cache_write_tokens",
        "/cache_creation_input_tokens",
        "/prompt_tokens_details/cache_creation_tokens",
    ]);
    let cached = cache_read.unwrap_or(0).saturating_add(cache_write.unwrap_or(0));
    let usage = Usage {
        input_uncached: at("/prompt_tokens").map(|all| all.saturating_sub(cached)).or_else(|| at("/input_tokens")),
        cache_read,
        cache_write,
        output: first(&["/completion_tokens", "/output_tokens"]),
        reasoning: first(&[
            "/completion_tokens_details/reasoning_tokens",
            "/output_tokens_details/reasoning_tokens",
            "/reasoning_tokens",
        ]),
    };
    (usage != Usage::default()).then_some(usage)
}

/// Some servers write counts as floats.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|count| *count >= 0.0).map(|count| count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expect: [Option<u64>; 5]) {
        let [input_uncached, cache_read, cache_write, output, reasoning] = expect;
        let usage = read(&serde_json::from_str(json).unwrap());
        let expect = Usage { input_uncached, cache_read, cache_write, output, reasoning };
        assert_eq!(usage.unwrap_or_default(), expect, "{json}");
    }

    #[test]
    fn every_spelling_has_one_normal_form() {
        check(r#"{"prompt_tokens":100,"completion_tokens":5}"#, [Some(100), None, None, Some(5), None]);
        check(
            r#"{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":80},"completion_tokens":5,
               "completion_tokens_details":{"reasoning_tokens":3}}"#,
            [Some(20), Some(80), None, Some(5), Some(3)],
        );
        check(r#"{"prompt_tokens":100,"prompt_cache_hit_tokens":64}"#, [Some(36), Some(64), None, None, None]);
        check(
            r#"{"input_tokens":7,"cache_read_input_tokens":90,"cache_creation_input_tokens":3,"output_tokens":2}"#,
            [Some(7), Some(90), Some(3), Some(2), None],
        );
        check(
            r#"{"prompt_tokens":1,"cached_tokens":5,"completion_tokens":2.0}"#,
            [Some(0), Some(5), None, Some(2), None],
        );
        check(r#"{"prompt_tokens":null,"prompt_tokens_details":null}"#, [None; 5]);
        check("null", [None; 5]);
    }
}
