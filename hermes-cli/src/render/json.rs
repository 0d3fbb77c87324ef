//! A turn as programs read it: one JSON object on each line, the result last.

use hermes_gateway::protocol::{EventKind, RpcError, ServerMessage, TurnResult};
use serde::Serialize;

use super::Piece;
use crate::exit::{Exit, without_code};

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    /// The last line of a turn.
    Result {
        #[serde(flatten)]
        result: &'a TurnResult,
        exit_code: i32,
    },
    /// The last line when no turn could be run or followed.
    Error {
        code: &'a str,
        message: &'a str,
        exit_code: i32,
    },
    /// The last line when there was nothing to go on with.
    Nothing {
        exit_code: i32,
    },
    EventsMissed,
}

fn line<T: Serialize>(value: &T) -> Option<Piece> {
    // These values have string keys and finite numbers only, so writing them cannot fail.
    serde_json::to_string(value).ok().map(|mut text| {
        text.push('\n');
        Piece::Text(text)
    })
}

/// One message of the gateway. The end of the turn has its own line, which is the last one.
pub(crate) fn message(message: &ServerMessage) -> Option<Piece> {
    match message {
        ServerMessage::Event(event) if matches!(event.kind, EventKind::TurnEnded { .. }) => None,
        ServerMessage::Event(event) => line(event),
        ServerMessage::EventsMissed {} => line(&Line::EventsMissed),
        _ => None,
    }
}

/// The last line: how the turn ended.
pub(crate) fn result(result: &TurnResult) -> Option<Piece> {
    line(&Line::Result { result, exit_code: Exit::of(result.reason).code() })
}

/// The last line when there was nothing to go on with.
pub(crate) fn nothing() -> Option<Piece> {
    line(&Line::Nothing { exit_code: Exit::Answered.code() })
}

/// The last line when the request failed before a turn could end.
pub(crate) fn error(error: &RpcError) -> Option<Piece> {
    let exit = if error.usage { Exit::Usage } else { Exit::Failed };
    let message = without_code(&error.code, &error.message);
    line(&Line::Error { code: &error.code, message, exit_code: exit.code() })
}
