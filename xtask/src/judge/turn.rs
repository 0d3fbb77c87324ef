//! What `hermes --json` says of one turn.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::child::Line;

/// A turn that was answered.
#[derive(Debug)]
pub(super) struct Turn {
    /// The pieces of the answer and when they came, since the start of the program.
    pub(super) deltas: Vec<(Duration, String)>,
    /// The answer as the result has it.
    pub(super) answer: String,
    /// `PROVIDER/MODEL`.
    pub(super) model: String,
    /// Prompt tokens that the server did not know.
    pub(super) input_tokens: u64,
    /// Prompt tokens that it knew from an earlier request.
    pub(super) cache_read_tokens: u64,
    /// Tokens of the answer.
    pub(super) output_tokens: u64,
}

/// The lines that matter here; fields and types may be added at any time.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told {
    TextDelta {
        text: String,
    },
    /// The answer begins anew after a lost connection.
    TextRestarted,
    Result {
        reason: String,
        answer: Option<String>,
        model: String,
        usage: Usage,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Usage {
    input: u64,
    output: u64,
    cache_read: u64,
}

impl Turn {
    /// Reads the lines of one run.
    ///
    /// # Errors
    /// A line is no JSON object with a `type`, or the last one is no result of an answered turn.
    pub(super) fn read(lines: &[Line]) -> Result<Self> {
        let mut deltas = Vec::new();
        let mut end = None;
        for Line { text, after } in lines {
            let told = serde_json::from_str(text).with_context(|| format!("not a line of `--json`: {text}"))?;
            end = None;
            match told {
                Told::TextDelta { text } => deltas.push((*after, text)),
                Told::TextRestarted => deltas.clear(),
                Told::Result { reason, answer, model, usage } => end = Some((reason, answer, model, usage)),
                Told::Other => {}
            }
        }
        let Some((reason, answer, model, usage)) = end else { bail!("the last line is no result") };
        let (Some(answer), "answered") = (answer, reason.as_str()) else { bail!("the turn ended as `{reason}`") };
        let Usage { input: input_tokens, output: output_tokens, cache_read: cache_read_tokens } = usage;
        Ok(Self { deltas, answer, model, input_tokens, cache_read_tokens, output_tokens })
    }

    /// All pieces as one text.
    pub(super) fn streamed(&self) -> String {
        self.deltas.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// All tokens of the prompt.
    pub(super) fn prompt_tokens(&self) -> u64 {
        self.input_tokens + self.cache_read_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"type":"result","reason":"answered","answer":"ab","error":null,"model":"p/m","usage":{"input":3,"output":2,"cache_read":4},"exit_code":0}"#;

    fn read(texts: &[&str]) -> Result<Turn> {
        let line =
            |(at, text): (usize, &&str)| Line { text: (*text).to_owned(), after: Duration::from_secs(at as u64) };
        Turn::read(&texts.iter().enumerate().map(line).collect::<Vec<_>>())
    }

    #[test]
    fn pieces_result_and_usage_are_read() {
        let a = r#"{"type":"text_delta","text":"a","turn":"t"}"#;
        let turn = read(&[r#"{"type":"new_thing","x":1}"#, a, r#"{"type":"text_delta","text":"b"}"#, RESULT]).unwrap();
        assert_eq!(turn.streamed(), "ab");
        assert_eq!(turn.deltas.first().unwrap().0, Duration::from_secs(1));
        assert_eq!((turn.prompt_tokens(), turn.output_tokens, turn.model.as_str()), (7, 2, "p/m"));
    }

    #[test]
    fn an_answer_that_begins_anew_counts_from_there() {
        let x = r#"{"type":"text_delta","text":"x"}"#;
        let turn = read(&[x, r#"{"type":"text_restarted"}"#, r#"{"type":"text_delta","text":"ab"}"#, RESULT]).unwrap();
        assert_eq!(turn.streamed(), "ab");
    }

    #[test]
    fn what_is_not_an_answered_turn_is_refused() {
        let failed = RESULT.replace("answered", "failed").replace("\"ab\"", "null");
        for (texts, why) in [
            (vec![], "no result"),
            (vec![RESULT, r#"{"type":"other"}"#], "no result"),
            (vec![failed.as_str()], "`failed`"),
            (vec!["hello"], "hello"),
        ] {
            let error = read(&texts).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
