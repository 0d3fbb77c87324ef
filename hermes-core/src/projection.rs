//! From stored rows to the messages of a request, and nothing is decided on the way.
//!
//! The same rows always give the same messages: request N is a prefix of request N+1 (I18), whether the history was
//! just written or read back by another process. Rows written in a turn go through the same functions as rows read
//! from the store.

use hermes_providers::{CacheMarker, ChatMessage, Sidecar, ToolCall};
use hermes_store::{CallOutcome, NewMessage, Role, StoredMessage};

/// The messages of `rows`, oldest first.
pub(crate) fn messages(rows: &[StoredMessage]) -> Vec<ChatMessage> {
    rows.iter().filter_map(message).collect()
}

fn message(row: &StoredMessage) -> Option<ChatMessage> {
    let text = match &row.api_content {
        Some(bytes) => String::from_utf8_lossy(&bytes.0).into_owned(),
        None => row.content.clone(),
    };
    match row.role {
        Role::User => Some(user(text)),
        Role::Assistant => {
            let calls = row
                .calls
                .iter()
                .map(|call| ToolCall {
                    id: call.provider_id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                })
                .collect();
            let sidecar = row.sidecar.as_ref();
            Some(ChatMessage::Assistant {
                text,
                reasoning: row.reasoning.clone(),
                sidecar: sidecar.map(|s| Sidecar { issuer: s.issuer.as_str().into(), bytes: s.bytes.clone() }),
                calls,
                cache: CacheMarker::None,
            })
        }
        Role::Tool => {
            // A tool row without its call cannot be sent to any provider; the store never returns one.
            let call = row.answers.as_ref()?;
            let outcome = call.outcome.unwrap_or(CallOutcome::OutcomeUnknown);
            Some(tool(call.provider_id.clone(), call.name.clone(), text, outcome))
        }
    }
}

/// A user message.
pub(crate) fn user(text: String) -> ChatMessage {
    ChatMessage::User { text, cache: CacheMarker::None }
}

/// An assistant message of a row that is being written.
pub(crate) fn assistant(row: &NewMessage, calls: Vec<ToolCall>) -> ChatMessage {
    let sidecar = row.sidecar.as_ref();
    ChatMessage::Assistant {
        text: match &row.api_content {
            Some(bytes) => String::from_utf8_lossy(&bytes.0).into_owned(),
            None => row.content.clone(),
        },
        reasoning: row.reasoning.clone(),
        sidecar: sidecar.map(|s| Sidecar { issuer: s.issuer.as_str().into(), bytes: s.bytes.clone() }),
        calls,
        cache: CacheMarker::None,
    }
}

/// The result of a call.
pub(crate) fn tool(call_id: String, name: String, content: String, outcome: CallOutcome) -> ChatMessage {
    let is_error = outcome != CallOutcome::Ok;
    ChatMessage::Tool { call_id, name, content, is_error, cache: CacheMarker::None }
}
