//! The practice model: a small program behind [`ChatModel`], for people who have no model yet.
//!
//! It has no language ability and says so. It understands a few plain requests, turns them into real tool calls and
//! reports what came back, so tools, approvals, sessions and recovery can be tried without a network. What it answers
//! depends on the request alone.

mod answer;
mod plan;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use crate::chat::{
    ChatMessage, ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, Finish, ModelInfo,
};
use crate::error::ProviderError;
use plan::{Plan, Step};

/// Provider, model and wire of the practice model.
pub const PRACTICE: &str = "practice";
/// Beginning of the ids of its calls.
const ID_PREFIX: &str = "practice_";
/// Size of a streamed piece of text; small, so that streaming can be seen.
const CHUNK_BYTES: usize = 24;

/// The practice model.
#[derive(Debug, Clone)]
pub struct PracticeModel {
    info: ModelInfo,
}

impl Default for PracticeModel {
    fn default() -> Self {
        Self::new()
    }
}

impl PracticeModel {
    /// The model; there is nothing to set.
    #[must_use]
    pub fn new() -> Self {
        Self {
            info: ModelInfo {
                provider: PRACTICE.to_owned(),
                model: PRACTICE.to_owned(),
                endpoint: String::new(),
                api_mode: PRACTICE.to_owned(),
                context_window: None,
                max_output_tokens: None,
            },
        }
    }
}

#[async_trait]
impl ChatModel for PracticeModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let (text, calls) = respond(request);
        let mut deltas = Vec::new();
        if request.stream {
            deltas.extend(chunks(&text).map(|chunk| Delta::Text(chunk.to_owned())));
            for (index, call) in calls.iter().enumerate() {
                deltas.push(Delta::CallStarted { index, name: call.name.clone() });
                deltas.push(Delta::CallArguments { index, bytes: call.arguments.len() });
            }
        }
        let finish = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        deltas.push(Delta::Done(Box::new(Completion {
            text,
            reasoning: None,
            sidecar: None,
            calls,
            finish,
            finish_missing: false,
            // It has no tokens, so it reports none.
            usage: None,
            served_model: None,
        })));
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

/// The text and the calls that answer the last user message.
fn respond(request: &ChatRequest) -> (String, Vec<CompletedCall>) {
    let at = request.messages.iter().rposition(|message| matches!(message, ChatMessage::User { .. }));
    let (asked, since) = match at.map(|at| (&request.messages[at], &request.messages[at + 1..])) {
        Some((ChatMessage::User { text, .. }, since)) => (text.as_str(), since),
        _ => ("", &[][..]),
    };
    let plan = Plan::read(asked);
    let offered = |step: &Step| request.tools.iter().any(|tool| tool.name == step.tool());
    let missing: Vec<&Step> = plan.steps().filter(|step| !offered(step)).collect();
    // Rounds as far as they can be done; a round without any usable tool is none.
    let rounds: Vec<Vec<&Step>> = plan
        .rounds
        .iter()
        .map(|round| round.iter().filter(|step| offered(step)).collect::<Vec<_>>())
        .filter(|round| !round.is_empty())
        .collect();
    let done = since.iter().filter(|m| matches!(m, ChatMessage::Assistant { calls, .. } if !calls.is_empty())).count();
    let failed = since.iter().any(|message| matches!(message, ChatMessage::Tool { is_error: true, .. }));
    match rounds.get(done).filter(|_| !failed) {
        Some(round) => {
            let first = next_id(&request.messages);
            let calls = round.iter().zip(first..).map(|(step, id)| CompletedCall {
                id: Some(format!("{ID_PREFIX}{id}")),
                name: step.tool().to_owned(),
                arguments: step.arguments().to_string(),
                whole: true,
            });
            (String::new(), calls.collect())
        }
        None => {
            let left: Vec<&Step> = rounds.iter().skip(done).flatten().copied().collect();
            (answer::write(&plan, since, &missing, &left), Vec::new())
        }
    }
}

/// A number that no call of the history has, also after a part of the history was compressed away.
fn next_id(messages: &[ChatMessage]) -> u64 {
    let calls = messages.iter().filter_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => Some(calls),
        _ => None,
    });
    let used = calls.flatten().filter_map(|call| call.id.strip_prefix(ID_PREFIX)?.parse::<u64>().ok()).max();
    used.map_or(1, |used| used.saturating_add(1))
}

/// Pieces of about [`CHUNK_BYTES`], cut between characters.
pub(crate) fn chunks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = CHUNK_BYTES.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (chunk, after) = rest.split_at(end);
        rest = after;
        Some(chunk)
    })
}

#[cfg(test)]
mod tests;
