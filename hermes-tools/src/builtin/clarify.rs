//! `clarify`: asks the user.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::arguments::{done, failed};
use crate::approval::{Authorized, ClarifyAnswer, ClarifyQuestion, Risk};
use crate::text::error_json;
use crate::tool::{
    Call, CallOutcome, CallProgress, CallReport, Concurrency, ReplaySafety, Tool, ToolContext, ToolSpec,
};

/// Questions of one call (tools reference, 2.1).
const QUESTIONS_MAX: usize = 5;

/// Answers to choose from.
const CHOICES_MAX: usize = 4;

/// Longest choice, in characters.
const CHOICE_MAX_CHARS: usize = 8_000;

/// Asks the user questions.
pub(super) struct Clarify {
    spec: ToolSpec,
}

impl Clarify {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "questions": {"type": "array", "minItems": 1, "maxItems": QUESTIONS_MAX, "items": {
                    "type": "object", "required": ["question"], "properties": {
                        "question": {"type": "string"},
                        "choices": {"type": "array", "maxItems": CHOICES_MAX, "items": {"type": "string"},
                            "description": "Answers to choose from; leave out for a free answer."},
                        "multi_select": {"type": "boolean", "description": "Several may be chosen."}
                    }}}
            },
            "required": ["questions"]
        });
        Self {
            spec: ToolSpec {
                name: "clarify".to_owned(),
                toolset: "clarify",
                description: "Asks the user one to five questions and waits for the answers. Use it when the answer \
                    changes what you do and you cannot find it out."
                    .to_owned(),
                parameters,
                replay: ReplaySafety::Once,
                concurrency: Concurrency::Barrier,
                timed: false,
                result_max_chars: None,
            },
        }
    }
}

#[async_trait]
impl Tool for Clarify {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::None
    }

    fn label(&self, call: &Call) -> String {
        call.arguments["questions"][0]["question"].as_str().unwrap_or("a question").to_owned()
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let questions = match read(&call.arguments["questions"]) {
            Ok(questions) => questions,
            Err(why) => return failed(format!("{why}; nobody was asked")),
        };
        (cx.progress)(CallProgress::Waiting { what: "an answer".to_owned() });
        let answers = tokio::select! {
            // What the user said is not thrown away because of a stop in the same moment.
            biased;
            answers = cx.clarifier.clarify(questions.clone()) => answers,
            () = cx.cancel.cancelled() => {
                return CallReport::new(CallOutcome::Interrupted, error_json("stopped before the user answered"));
            }
        };
        let mut answered = 0;
        let responses: Vec<Value> = questions
            .iter()
            .enumerate()
            .map(|(at, question)| match answers.get(at) {
                Some(ClarifyAnswer::Answered { text }) => {
                    answered += 1;
                    json!({"question": question.question, "status": "answered", "user_response": text})
                }
                Some(ClarifyAnswer::Skipped) => json!({"question": question.question, "status": "skipped"}),
                _ => json!({"question": question.question, "status": "unanswered"}),
            })
            .collect();
        let unanswered = responses.iter().all(|response| response["status"] == "unanswered");
        let outcome = if unanswered { "undelivered" } else { "submitted" };
        let mut content = json!({"responses": responses, "outcome": outcome});
        if unanswered {
            content["note"] = json!("Nobody answered. Go on as you think best and say what you assumed.");
        }
        done(&content, format!("{answered} of {} answered", questions.len()))
    }
}

fn read(questions: &Value) -> Result<Vec<ClarifyQuestion>, String> {
    let items = questions.as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() || items.len() > QUESTIONS_MAX {
        return Err(format!("there must be 1 to {QUESTIONS_MAX} questions"));
    }
    let mut out = Vec::new();
    for item in items {
        let question = item["question"].as_str().unwrap_or("").trim().to_owned();
        if question.is_empty() {
            return Err("a question is empty".to_owned());
        }
        let strings = item["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let choices: Vec<String> = strings.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if choices.len() > CHOICES_MAX || choices.iter().any(|choice| choice.chars().count() > CHOICE_MAX_CHARS) {
            return Err(format!("a question may have {CHOICES_MAX} choices of {CHOICE_MAX_CHARS} characters"));
        }
        let multi_select = item["multi_select"].as_bool().unwrap_or(false);
        out.push(ClarifyQuestion { question, choices, multi_select });
    }
    Ok(out)
}
