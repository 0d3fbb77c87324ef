//! What came back against what was meant, field by field.
//!
//! What a server is known to do otherwise stands in a table with the reason. It is told and does not fail the judge; a line
//! of the table that nothing needs any more does, so that the tables stay true.

use anyhow::{Result, bail};
use serde_json::Value;

use super::script::{Answer, Finish, Script};
use super::talk::{Answered, CHAT, Failed, Outcome, Talk, Wire};

/// Which counts a server can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// Every kind.
    All,
    /// Those of the whole prompt and of the whole answer.
    Totals,
}

/// One thing that a server does otherwise, and why that is not a fault of ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The wire.
    pub(super) wire: Wire,
    /// Only as a stream, only whole, or both.
    pub(super) stream: Option<bool>,
    /// Only for this question, or for all.
    pub(super) asked: Option<&'static str>,
    /// The field, as differences name it.
    pub(super) field: &'static str,
    /// For people.
    pub(super) why: &'static str,
}

impl Known {
    fn covers(&self, talk: &Talk, field: &str) -> bool {
        self.wire == talk.wire
            && self.field == field
            && self.stream.is_none_or(|stream| stream == talk.stream)
            && self.asked.is_none_or(|asked| asked == talk.asked)
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    field: &'static str,
    came: String,
    meant: String,
}

/// Compares all conversations and says what was found.
///
/// # Errors
/// Something differs that is not known, or something known did not happen.
pub(super) fn judge(
    script: &Script,
    talks: &[Talk],
    outcomes: &[Vec<Outcome>],
    counts: Counts,
    known: &[Known],
) -> Result<()> {
    let mut used = vec![0; known.len()];
    let mut unknown = Vec::new();
    let mut fields = 0;
    for (talk, outcomes) in talks.iter().zip(outcomes) {
        let answers = script.get(&talk.asked).map(Vec::as_slice).unwrap_or_default();
        let mut comparison = Comparison { counts, fields: 0, found: Vec::new() };
        comparison.conversation(talk, outcomes, answers);
        fields += comparison.fields;
        for difference in comparison.found {
            match known.iter().position(|known| known.covers(talk, difference.field)) {
                Some(at) => used[at] += 1,
                None => unknown.push((talk, difference)),
            }
        }
    }
    let answers: usize = outcomes.iter().map(Vec::len).sum();
    println!("  {} conversations, {answers} answers, {fields} fields compared", talks.len());
    for (known, count) in known.iter().zip(&used) {
        println!("  known, {count} times: {}, {}: {}", known.wire.mode, known.field, known.why);
    }
    for (talk, Difference { field, came, meant }) in &unknown {
        let way = if talk.stream { "stream" } else { "whole" };
        println!("  {}, {way}, {:?}: {field} is {came}, meant is {meant}", talk.wire.mode, talk.asked);
    }
    if !unknown.is_empty() {
        bail!("{} differences", unknown.len());
    }
    if let Some((stale, _)) = known.iter().zip(&used).find(|(_, count)| **count == 0) {
        bail!("this no longer happens, take it out of the table: {}, {}", stale.wire.mode, stale.why);
    }
    Ok(())
}

struct Comparison {
    counts: Counts,
    /// How many fields were looked at.
    fields: usize,
    found: Vec<Difference>,
}

impl Comparison {
    fn same<T: PartialEq + std::fmt::Debug + ?Sized>(&mut self, field: &'static str, came: &T, meant: &T) {
        self.fields += 1;
        if came != meant {
            self.found.push(Difference { field, came: format!("{came:?}"), meant: format!("{meant:?}") });
        }
    }

    fn conversation(&mut self, talk: &Talk, outcomes: &[Outcome], answers: &[Answer]) {
        for (outcome, meant) in outcomes.iter().zip(answers) {
            match (outcome, &meant.error) {
                (Outcome::Answered(came), None) => self.answer(talk, came, meant),
                (Outcome::Failed { error }, Some(_)) => self.error(talk, error, meant),
                (Outcome::Failed { error }, None) => {
                    self.same("answer", format!("{}: {}", error.class, error.message).as_str(), "no error");
                }
                (Outcome::Answered(came), Some(error)) => {
                    self.same("answer", came.text.as_str(), format!("the error {:?}", error.message).as_str());
                }
            }
        }
        self.same("number of answers", &outcomes.len(), &answers.len());
    }

    fn answer(&mut self, talk: &Talk, came: &Answered, meant: &Answer) {
        let reasoning = came.reasoning.as_deref().unwrap_or_default();
        self.same("text", &came.text, &meant.text);
        self.same("reasoning", reasoning, meant.reasoning.as_str());
        if talk.stream {
            self.same("streamed text", &came.streamed_text, &came.text);
            self.same("streamed reasoning", came.streamed_reasoning.as_str(), reasoning);
        }
        let ids: Vec<Option<&str>> = came.calls.iter().map(|call| call.id.as_deref()).collect();
        self.same("ids of calls", &ids, &meant.calls.iter().map(|call| Some(call.id.as_str())).collect());
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let calls: Vec<(&str, Value, bool)> =
            came.calls.iter().map(|call| (call.name.as_str(), value(&call.arguments), call.whole)).collect();
        let all = meant.calls.iter().map(|call| (call.name.as_str(), value(&call.arguments), true)).collect();
        self.same("calls", &calls, &all);
        let finish = match meant.finish {
            Finish::Whole if meant.calls.is_empty() => "Stop",
            Finish::Whole => "ToolCalls",
            Finish::Length => "Length",
            Finish::Filtered => "ContentFilter",
        };
        self.same("finish", &came.finish, &Value::from(finish));
        // Chat completions have no such thing.
        if !meant.proof.is_empty() && talk.wire != CHAT {
            let kept = came.sidecar.as_deref().unwrap_or_default();
            self.same("proof", &kept.contains(&meant.proof), &true);
        }
        let usage = came.usage.unwrap_or_default();
        self.same("prompt tokens", &usage.prompt(), &meant.usage.prompt());
        self.same("output tokens", &usage.output, &meant.usage.output);
        if self.counts == Counts::All {
            let of = |count: Option<u64>| count.unwrap_or(0);
            self.same("cached tokens", &of(usage.cache_read), &of(meant.usage.cache_read));
            self.same("reasoning tokens", &of(usage.reasoning), &of(meant.usage.reasoning));
        }
    }

    fn error(&mut self, talk: &Talk, came: &Failed, meant: &Answer) {
        let Some(error) = &meant.error else { return };
        self.same("class", came.class.as_str(), error.kind.status_and_class().1);
        self.same("message", &came.message.contains(&error.message), &true);
        self.same("wait", &came.retry_after_ms, &error.retry_after_s.map(|seconds| seconds * 1000));
        let shown = if talk.stream { meant.text.as_str() } else { "" };
        self.same("text before the error", came.streamed_text.as_str(), shown);
    }
}

#[cfg(test)]
mod tests {
    use super::super::talk::GEMINI;
    use super::*;

    fn script() -> Script {
        let text = r#"{"q": [{"text": "a", "usage": {"input_uncached": 3, "cache_read": 2, "output": 1}}],
            "e": [{"error": {"kind": "rate_limited", "message": "slow", "retry_after_s": 2}}]}"#;
        serde_json::from_str(text).unwrap()
    }

    fn talk(asked: &str) -> Talk {
        Talk { wire: CHAT, asked: asked.to_owned(), stream: true, caches: true }
    }

    fn outcome(text: &str) -> Outcome {
        serde_json::from_str(text).unwrap()
    }

    const GOOD: &str = r#"{"text": "a", "reasoning": null, "calls": [], "finish": "Stop", "sidecar": null,
        "usage": {"input_uncached": 3, "cache_read": 2, "cache_write": null, "output": 1, "reasoning": null},
        "streamed_text": "a", "streamed_reasoning": ""}"#;
    const SLOW: &str =
        r#"{"error": {"class": "rate_limit", "message": "p: slow", "retry_after_ms": 2000, "streamed_text": ""}}"#;

    fn verdict(pairs: &[(&str, &str)], known: &[Known]) -> Result<()> {
        let talks: Vec<Talk> = pairs.iter().map(|(asked, _)| talk(asked)).collect();
        let outcomes: Vec<Vec<Outcome>> = pairs.iter().map(|(_, text)| vec![outcome(text)]).collect();
        judge(&script(), &talks, &outcomes, Counts::All, known)
    }

    #[test]
    fn what_is_meant_passes_and_every_other_field_is_found() {
        verdict(&[("q", GOOD), ("e", SLOW)], &[]).unwrap();
        for (from, to) in [
            (r#""text": "a""#, r#""text": "b""#),
            (r#""streamed_text": "a""#, r#""streamed_text": """#),
            (r#""finish": "Stop""#, r#""finish": {"Other": "x"}"#),
            (r#""cache_read": 2"#, r#""cache_read": 1"#),
            (r#""output": 1"#, r#""output": null"#),
        ] {
            assert!(GOOD.contains(from));
            assert!(verdict(&[("q", &GOOD.replacen(from, to, 1))], &[]).is_err(), "{to}");
        }
        for (from, to) in [("rate_limit", "overloaded"), ("2000", "null"), ("slow", "?")] {
            assert!(verdict(&[("e", &SLOW.replacen(from, to, 1))], &[]).is_err(), "{to}");
        }
        assert!(verdict(&[("q", SLOW)], &[]).is_err(), "an error in place of an answer");
        assert!(verdict(&[("e", GOOD)], &[]).is_err(), "an answer in place of an error");
    }

    #[test]
    fn what_is_known_passes_until_it_no_longer_happens() {
        let known = Known { wire: CHAT, stream: Some(true), asked: Some("q"), field: "finish", why: "x" };
        let other = GOOD.replacen(r#""Stop""#, r#""Length""#, 1);
        verdict(&[("q", &other)], &[known]).unwrap();
        let error = verdict(&[("q", GOOD)], &[known]).unwrap_err().to_string();
        assert!(error.contains("no longer happens"), "{error}");
        for not_it in [
            Known { wire: GEMINI, ..known },
            Known { stream: Some(false), ..known },
            Known { asked: Some("e"), ..known },
            Known { field: "text", ..known },
        ] {
            assert!(verdict(&[("q", &other)], &[not_it]).is_err(), "{not_it:?}");
        }
    }
}
