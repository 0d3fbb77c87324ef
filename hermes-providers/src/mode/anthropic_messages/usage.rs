//! Token counts, which this wire tells several times, each time for the whole answer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::Usage;
use crate::json::{Raw, read};

#[derive(Debug, Default, Deserialize)]
struct Counts<'a> {
    #[serde(borrow, default)]
    input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    cache_read_input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    cache_creation_input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    output_tokens: Raw<'a>,
    #[serde(borrow, default)]
    output_tokens_details: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    thinking_tokens: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_tokens: Raw<'a>,
}

/// Takes what a usage object reports; what it does not report, and null (MiniMax), stays as it was. Every count is of
/// the whole answer so far, so a new one takes the place of the old one and is never added (B27). Only a zero takes
/// nothing's place: some servers fill their last report with zeros. Input tokens do not contain those of the cache.
pub(super) fn overwrite(usage: &mut Option<Usage>, raw: Raw<'_>) {
    let counts: Counts<'_> = read(raw);
    let details: Details<'_> = read(counts.output_tokens_details);
    let mut all = usage.unwrap_or_default();
    put(&mut all.input_uncached, counts.input_tokens);
    put(&mut all.cache_read, counts.cache_read_input_tokens);
    put(&mut all.cache_write, counts.cache_creation_input_tokens);
    put(&mut all.output, counts.output_tokens);
    put(&mut all.reasoning, details.thinking_tokens.or(details.reasoning_tokens));
    if all != Usage::default() {
        *usage = Some(all);
    }
}

fn put(count: &mut Option<u64>, raw: Raw<'_>) {
    match (raw.and_then(number), *count) {
        (Some(0), Some(_)) | (None, _) => {}
        (new, _) => *count = new,
    }
}

/// Some servers write counts as floats.
fn number(raw: &RawValue) -> Option<u64> {
    let text = raw.get();
    text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(|count| *count >= 0.0).map(|count| count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reports: &[&str], expect: [Option<u64>; 5]) {
        let mut usage = None;
        for report in reports {
            let raw: Box<RawValue> = serde_json::from_str(report).unwrap();
            overwrite(&mut usage, Some(&raw));
        }
        let [input_uncached, cache_read, cache_write, output, reasoning] = expect;
        let expect = Usage { input_uncached, cache_read, cache_write, output, reasoning };
        assert_eq!(usage.unwrap_or_default(), expect, "{reports:?}");
    }

    #[test]
    fn b27_a_later_count_takes_the_place_of_the_one_before() {
        check(&[r#"{"output_tokens":5}"#, r#"{"output_tokens":12}"#], [None, None, None, Some(12), None]);
        check(
            &[
                r#"{"input_tokens":7,"cache_read_input_tokens":90,"cache_creation_input_tokens":3,"output_tokens":1}"#,
                r#"{"output_tokens":40,"output_tokens_details":{"thinking_tokens":30}}"#,
            ],
            [Some(7), Some(90), Some(3), Some(40), Some(30)],
        );
        check(
            &[r#"{"input_tokens":7}"#, r#"{"input_tokens":0,"output_tokens":2.0}"#],
            [Some(7), None, None, Some(2), None],
        );
        check(&[r#"{"input_tokens":0}"#, r#"{"input_tokens":9}"#], [Some(9), None, None, None, None]);
    }

    #[test]
    fn what_is_not_reported_is_unknown() {
        for report in ["null", "{}", "[]", "\"x\"", r#"{"input_tokens":null,"output_tokens":"x"}"#] {
            let mut usage = None;
            overwrite(&mut usage, Some(&serde_json::from_str::<Box<RawValue>>(report).unwrap()));
            assert_eq!(usage, None, "{report}");
        }
    }
}
