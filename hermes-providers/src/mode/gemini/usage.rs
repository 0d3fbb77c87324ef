//! Token counts of `usageMetadata` to the normal form.

use serde_json::Value;

use crate::chat::Usage;

/// The newest count of each kind. Chunks report running totals, not all of them in every chunk.
#[derive(Debug, Default)]
pub(super) struct Counts {
    prompt: Option<u64>,
    tool_prompt: Option<u64>,
    cached: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    total: Option<u64>,
}

impl Counts {
    /// Takes what a chunk reports.
    pub(super) fn take(&mut self, value: &Value) {
        for (key, count) in [
            ("promptTokenCount", &mut self.prompt),
            ("toolUsePromptTokenCount", &mut self.tool_prompt),
            ("cachedContentTokenCount", &mut self.cached),
            ("candidatesTokenCount", &mut self.candidates),
            ("thoughtsTokenCount", &mut self.thoughts),
            ("totalTokenCount", &mut self.total),
        ] {
            if let Some(new) = value.get(key).and_then(number) {
                *count = Some(new);
            }
        }
    }

    /// The normal form. `promptTokenCount` holds the cached tokens, `candidatesTokenCount` does not hold the thoughts.
    pub(super) fn usage(&self) -> Option<Usage> {
        let input = sum(self.prompt, self.tool_prompt);
        // A count of nought is left out on this wire; the total tells it from an unknown one.
        let rest = || Some(self.total?.saturating_sub(input?));
        let usage = Usage {
            input_uncached: input.map(|all| all.saturating_sub(self.cached.unwrap_or(0))),
            cache_read: self.cached,
            cache_write: None,
            output: sum(self.candidates, self.thoughts).or_else(rest),
            reasoning: self.thoughts,
        };
        (usage != Usage::default()).then_some(usage)
    }
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

/// JSON of this maker may write 64-bit integers as strings.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chunks: &[&str], expect: [Option<u64>; 4]) {
        let mut counts = Counts::default();
        for chunk in chunks {
            counts.take(&serde_json::from_str(chunk).unwrap());
        }
        let [input_uncached, cache_read, output, reasoning] = expect;
        let expect = Usage { input_uncached, cache_read, cache_write: None, output, reasoning };
        assert_eq!(counts.usage().unwrap_or_default(), expect, "{chunks:?}");
    }

    #[test]
    fn counts_have_one_normal_form() {
        check(
            &[r#"{"promptTokenCount":100,"candidatesTokenCount":7,"totalTokenCount":107}"#],
            [Some(100), None, Some(7), None],
        );
        check(
            &[r#"{"promptTokenCount":100,"toolUsePromptTokenCount":20,"cachedContentTokenCount":80,
                "candidatesTokenCount":7,"thoughtsTokenCount":30,"totalTokenCount":157}"#],
            [Some(40), Some(80), Some(37), Some(30)],
        );
        check(&[r#"{"promptTokenCount":"9","totalTokenCount":9}"#], [Some(9), None, Some(0), None]);
        check(&[r#"{"promptTokenCount":9}"#], [Some(9), None, None, None]);
        check(&[r#"{"trafficType":"ON_DEMAND"}"#], [None; 4]);
        check(&["null"], [None; 4]);
    }

    #[test]
    fn every_chunk_counts_and_the_newest_number_wins() {
        check(
            &[
                r#"{"promptTokenCount":9,"thoughtsTokenCount":5}"#,
                r#"{"promptTokenCount":9,"candidatesTokenCount":1}"#,
                r#"{"candidatesTokenCount":4}"#,
            ],
            [Some(9), None, Some(9), Some(5)],
        );
    }
}
