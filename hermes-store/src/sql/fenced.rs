//! The fence of a write to a conversation: its row is taken for the newest token alone, with all counters that the write
//! needs, in one statement.

use super::driver::{Backend, WriteTx, map};
use super::plain::fence;
use super::read::{col, id, size, text_in_or_null, text_or_null, word_or_null};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, SessionId, TurnId};
use crate::message::NewMessage;
use crate::rules::{self, is_shown, not_running};

/// Takes the conversation's row, only for the newest token, and all counters that the write needs. An expired lease that
/// nobody took lives again (S22).
const FENCE: &str = concat!(fence!("$3"), " RETURNING seq, tip, open_turn, title, title_source");

/// What a fenced write needs of the conversation's row, beside the fence itself.
#[derive(Debug, Clone)]
pub(super) struct Touch {
    pub(super) now: i64,
    pub(super) is_activity: bool,
    pub(super) reserve: i64,
    pub(super) shown: i64,
    pub(super) preview: Option<String>,
}

impl Touch {
    /// A write that adds no row; with `is_activity` it makes the conversation the newest.
    pub(super) fn quiet(now: i64, is_activity: bool) -> Self {
        Self { now, is_activity, reserve: 0, shown: 0, preview: None }
    }

    /// A write that adds these rows.
    pub(super) fn rows(now: i64, rows: &[NewMessage]) -> Self {
        Self {
            now,
            is_activity: true,
            reserve: size(rows.len()),
            shown: size(rows.iter().filter(|row| is_shown(row.kind)).count()),
            preview: rules::preview_of(rows.iter()),
        }
    }
}

/// The conversation's row after the fence.
pub(super) struct Fenced {
    /// The last reserved place.
    pub(super) seq: i64,
    pub(super) tip: Option<SessionId>,
    pub(super) open_turn: Option<TurnId>,
    pub(super) title: Option<String>,
    pub(super) title_source: Option<String>,
}

/// Where rows go.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) conversation: &'a ConversationId,
    pub(super) session: &'a SessionId,
    pub(super) turn: &'a TurnId,
    /// The last place that was reserved for them.
    pub(super) seq: i64,
    pub(super) now: i64,
}

impl Backend {
    /// Checks the fence and takes the conversation's row, in one statement. With a turn, it must be the running one.
    pub(super) async fn fence(
        &self,
        tx: &mut WriteTx,
        fence: &Fence,
        turn: Option<&TurnId>,
        touch: Touch,
    ) -> Result<Fenced, StoreError> {
        let row = sqlx::query(FENCE)
            .bind(fence.conversation().as_str())
            .bind(fence.token().0)
            .bind(touch.now)
            .bind(i64::from(touch.is_activity))
            .bind(touch.reserve)
            .bind(touch.shown)
            .bind(text_in_or_null(touch.preview.as_deref()))
            .fetch_optional(tx.conn())
            .await
            .map_err(map)?;
        let row = row.ok_or(StoreError::Fenced { held: fence.token() })?;
        let open_turn: Option<TurnId> = word_or_null(&row, 2, id(TurnId::parse))?;
        if let Some(turn) = turn
            && open_turn.as_ref() != Some(turn)
        {
            return Err(not_running(turn));
        }
        Ok(Fenced {
            seq: col(&row, 0)?,
            tip: word_or_null(&row, 1, id(SessionId::parse))?,
            open_turn,
            title: text_or_null(&row, 3)?,
            title_source: col(&row, 4)?,
        })
    }
}
