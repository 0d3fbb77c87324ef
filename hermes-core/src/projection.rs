//! From stored rows to the messages of a request, and nothing is decided on the way.
//!
//! The same rows always give the same messages: request N is a prefix of request N+1 (I18), whether the history was
//! just written or read back by another process. Rows written in a turn go through the same functions as rows read
//! from the store.

use std::borrow::Cow;

use crate::image;
use hermes_providers::{ChatMessage, Sidecar, ToolCall};
use hermes_store::{CallOutcome, MessageKind, NewMessage, Role, StoredCall, StoredMessage};

/// Room for the messages that an ordinary turn adds: a history that doubles its room holds twice what it needs.
const ROOM_MESSAGES: usize = 16;

/// What stands between rows that are one message.
pub(crate) const JOINT: &str = "\n\n";

/// The messages of `rows`, oldest first.
///
/// Strict providers refuse two user messages in a row, so two kinds of rows are one message with the user row before
/// them: what follows a summary, and a steer that was taken together with another one. In both cases all the rows were
/// written in one transaction, before any request showed one of them: no message that was sent ever grows.
pub(crate) fn messages(rows: Vec<StoredMessage>) -> Vec<ChatMessage> {
    let mut out: Vec<ChatMessage> = Vec::with_capacity(rows.len() + ROOM_MESSAGES);
    let mut before: Option<MessageKind> = None;
    for row in rows {
        let kind = row.kind;
        let Some(message) = message(row) else { continue };
        let joins =
            before == Some(MessageKind::Summary) || (before == Some(MessageKind::Steer) && kind == MessageKind::Steer);
        match (out.last_mut(), message) {
            (Some(ChatMessage::User { text, images }), ChatMessage::User { text: more, images: others }) if joins => {
                text.push_str(JOINT);
                text.push_str(&more);
                images.extend(others);
            }
            (_, message) => out.push(message),
        }
        before = Some(kind);
    }
    out
}

fn message(row: StoredMessage) -> Option<ChatMessage> {
    let text = match row.api_content {
        Some(bytes) => String::from_utf8_lossy(&bytes.0).into_owned(),
        None => row.content,
    };
    match row.role {
        Role::User => Some(ChatMessage::User { text, images: image::of_sidecar(row.sidecar.as_ref()) }),
        Role::Assistant => {
            let call = |call: StoredCall| ToolCall { id: call.provider_id, name: call.name, arguments: call.arguments };
            // Collected, they would keep the room of the rows' calls, which are three times as large.
            let mut calls = Vec::with_capacity(row.calls.len());
            calls.extend(row.calls.into_iter().map(call));
            Some(ChatMessage::Assistant {
                text,
                reasoning: row.reasoning,
                sidecar: row.sidecar.map(|s| Sidecar { issuer: s.issuer.as_str().into(), bytes: s.bytes }),
                calls,
            })
        }
        Role::Tool => {
            // A tool row without its call cannot be sent to any provider; the store never returns one.
            let call = row.answers?;
            let outcome = call.outcome.unwrap_or(CallOutcome::OutcomeUnknown);
            Some(tool(call.provider_id, call.name, text, outcome))
        }
    }
}

/// What a row shows the model.
pub(crate) fn text_of(row: &StoredMessage) -> Cow<'_, str> {
    row.api_content.as_ref().map_or_else(|| row.content.as_str().into(), |bytes| String::from_utf8_lossy(&bytes.0))
}

/// A user message.
pub(crate) fn user(text: String) -> ChatMessage {
    ChatMessage::user(text)
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
    }
}

/// The result of a call.
pub(crate) fn tool(call_id: String, name: String, content: String, outcome: CallOutcome) -> ChatMessage {
    let is_error = outcome != CallOutcome::Ok;
    ChatMessage::Tool { call_id, name, content, is_error, images: Vec::new() }
}
