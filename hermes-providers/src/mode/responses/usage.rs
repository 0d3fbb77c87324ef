//! Token counts of this wire to the one normal form.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat::Usage;

/// Reads a usage object. `None` when it reports nothing. Here `input_tokens` counts cached tokens too.
pub(super) fn read(raw: &RawValue) -> Option<Usage> {
    let value: Value = serde_json::from_str(raw.get()).ok()?;
    let at = |path: &str| value.pointer(path).and_then(count);
    let cache_read = at("/input_tokens_details/cached_tokens").or_else(|| at("/prompt_tokens_details/cached_tokens"));
    let cache_write =
        at("/input_tokens_details/cache_write_tokens").or_else(|| at("/input_tokens_details/cache_creation_tokens"));
    let cached = cache_read.unwrap_or(0).saturating_add(cache_write.unwrap_or(0));
    let usage = Usage {
        input_uncached: at("/input_tokens").or_else(|| at("/prompt_tokens")).map(|all| all.saturating_sub(cached)),
        cache_read,
        cache_write,
        output: at("/output_tokens").or_else(|| at("/completion_tokens")),
        reasoning: at("/output_tokens_details/reasoning_tokens")
            .or_else(|| at("/completion_tokens_details/reasoning_tokens")),
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
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        let expect = Usage { input_uncached, cache_read, cache_write, output, reasoning };
        assert_eq!(read(&raw).unwrap_or_default(), expect, "{json}");
    }

    #[test]
    fn cached_tokens_are_taken_out_of_the_input() {
        check(r#"{"input_tokens":100,"output_tokens":5}"#, [Some(100), None, None, Some(5), None]);
        check(
            r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":64},"output_tokens":9,
               "output_tokens_details":{"reasoning_tokens":4},"total_tokens":109}"#,
            [Some(36), Some(64), None, Some(9), Some(4)],
        );
        check(
            r#"{"input_tokens":10,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":7}}"#,
            [Some(0), Some(8), Some(7), None, None],
        );
        check(r#"{"prompt_tokens":3.0,"completion_tokens":2}"#, [Some(3), None, None, Some(2), None]);
        for nothing in ["null", "{}", "[]", r#"{"input_tokens":null,"output_tokens":-1}"#] {
            check(nothing, [None; 5]);
        }
    }
}
