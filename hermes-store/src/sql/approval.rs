//! Questions to people.

use async_trait::async_trait;

use super::driver::{Backend, Conn, Row, locked, map, text_in};
use super::fenced::Touch;
use super::read::{col, id, size, text, text_in_or_null, text_or_null, word};
use super::schema::Group;
use crate::approval::{
    AnswerOutcome, ApprovalAnswer, ApprovalRecord, ApprovalState, ApprovalStore, GivenAnswer, NewApproval, OVER,
};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ApprovalId, CallId, ConversationId, TurnId};
use crate::limits::{APPROVAL_KEEP_MS, APPROVALS_LIST_MAX, APPROVALS_OPEN_MAX};
use crate::rules::{conflict, invalid, ms, not_found};

/// An answer is who gave it and the choice, which is empty for a no.
pub(crate) const TABLES: Group = &[
    "CREATE TABLE approvals (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        subject TEXT NOT NULL,
        choices TEXT NOT NULL,
        may_answer TEXT NOT NULL,
        state TEXT NOT NULL,
        answered_by TEXT,
        choice TEXT,
        reason TEXT,
        asked_ms BIGINT NOT NULL,
        expires_ms BIGINT NOT NULL,
        ended_ms BIGINT
    )",
    "CREATE INDEX approvals_by_turn ON approvals (turn_id)",
    "CREATE INDEX approvals_by_conversation ON approvals (conversation_id)",
    "CREATE INDEX approvals_open ON approvals (asked_ms, id) WHERE state = 'open'",
    "CREATE INDEX approvals_by_end ON approvals (ended_ms)",
];

/// Columns of [`approval`].
macro_rules! approval_columns {
    () => {
        "id, conversation_id, turn_id, call_id, subject, choices, may_answer, state, answered_by, choice, reason, \
         asked_ms, expires_ms, ended_ms"
    };
}

const INSERT: &str = "INSERT INTO approvals (id, conversation_id, turn_id, call_id, subject, choices, may_answer, state, \
     asked_ms, expires_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, 'open', $8, $9)";
const ONE: &str = concat!("SELECT ", approval_columns!(), " FROM approvals WHERE id = $1");
const TAKE: &str = concat!("UPDATE approvals SET state = state WHERE id = $1 RETURNING ", approval_columns!());
const SAVE: &str = "UPDATE approvals SET state = $2, answered_by = $3, choice = $4, reason = $5, ended_ms = $6 \
     WHERE id = $1";
const OF_TURN: &str =
    concat!("SELECT ", approval_columns!(), " FROM approvals WHERE turn_id = $1 ORDER BY asked_ms, id");
const OPEN: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals WHERE state = 'open' AND (CAST($1 AS TEXT) IS NULL OR conversation_id = $1) \
     ORDER BY asked_ms, id LIMIT $2"
);
const COUNT_OPEN: &str = "SELECT COUNT(*) FROM approvals WHERE turn_id = $1 AND state = 'open'";
const OPEN_CALL: &str = "SELECT COUNT(*) FROM calls WHERE id = $1 AND turn_id = $2 AND state <> 'settled'";
const BUMP: &str = "UPDATE conversations SET revision = revision + 1 WHERE id = $1 RETURNING open_turn";
const EXPIRE: &str = concat!(
    "UPDATE approvals SET state = 'expired', ended_ms = $1 WHERE id IN (SELECT id FROM approvals \
     WHERE state = 'open' AND expires_ms <= $1 ORDER BY id",
    locked!(),
    ")"
);
const WITHDRAW: &str = concat!(
    "UPDATE approvals SET state = 'withdrawn', ended_ms = $1, reason = $2 WHERE id IN (SELECT id FROM approvals \
     WHERE state = 'open' AND (NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = approvals.conversation_id AND \
     c.open_turn = approvals.turn_id) OR NOT EXISTS (SELECT 1 FROM calls k WHERE k.id = approvals.call_id AND \
     k.turn_id = approvals.turn_id AND k.state <> 'settled')) ORDER BY id",
    locked!(),
    ")"
);
const PRUNE: &str = concat!(
    "DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE state <> 'open' AND ended_ms <= $1 ORDER BY id",
    locked!(),
    ")"
);
const DELETE_OF: &str = "DELETE FROM approvals WHERE conversation_id = $1";

fn approval(row: &Row) -> Result<ApprovalRecord, StoreError> {
    let words = |text: &str| serde_json::from_str::<Vec<String>>(text).ok();
    let answer = match (text_or_null(row, 8)?, text_or_null(row, 9)?) {
        (Some(principal), Some(choice)) => Some(GivenAnswer { principal, answer: ApprovalAnswer::Approve { choice } }),
        (Some(principal), None) => Some(GivenAnswer { principal, answer: ApprovalAnswer::Deny }),
        (None, _) => None,
    };
    Ok(ApprovalRecord {
        id: word(row, 0, id(ApprovalId::parse))?,
        conversation: word(row, 1, id(ConversationId::parse))?,
        turn: word(row, 2, id(TurnId::parse))?,
        call: word(row, 3, id(CallId::parse))?,
        subject: text(row, 4)?,
        choices: word(row, 5, words)?,
        may_answer: word(row, 6, words)?,
        state: word(row, 7, ApprovalState::parse)?,
        answer,
        reason: text_or_null(row, 10)?,
        asked_at_ms: col(row, 11)?,
        expires_at_ms: col(row, 12)?,
        ended_at_ms: col(row, 13)?,
    })
}

fn json(words: &[String]) -> Result<String, StoreError> {
    serde_json::to_string(words).map_err(|error| StoreError::Io { detail: error.to_string() })
}

async fn read(conn: &mut Conn, statement: &'static str, id: &ApprovalId) -> Result<Option<ApprovalRecord>, StoreError> {
    let row = sqlx::query(statement).bind(id.as_str()).fetch_optional(conn).await.map_err(map)?;
    row.as_ref().map(approval).transpose()
}

async fn insert(conn: &mut Conn, record: &ApprovalRecord) -> Result<(), StoreError> {
    sqlx::query(INSERT)
        .bind(record.id.as_str())
        .bind(record.conversation.as_str())
        .bind(record.turn.as_str())
        .bind(record.call.as_str())
        .bind(text_in(&record.subject))
        .bind(json(&record.choices)?)
        .bind(json(&record.may_answer)?)
        .bind(record.asked_at_ms)
        .bind(record.expires_at_ms)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

async fn save(conn: &mut Conn, record: &ApprovalRecord) -> Result<(), StoreError> {
    let choice = record.answer.as_ref().and_then(|given| match &given.answer {
        ApprovalAnswer::Approve { choice } => Some(choice.as_str()),
        ApprovalAnswer::Deny => None,
    });
    sqlx::query(SAVE)
        .bind(record.id.as_str())
        .bind(record.state.as_str())
        .bind(text_in_or_null(record.answer.as_ref().map(|given| given.principal.as_str())))
        .bind(text_in_or_null(choice))
        .bind(text_in_or_null(record.reason.as_deref()))
        .bind(record.ended_at_ms)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

async fn is_open_call(conn: &mut Conn, turn: &TurnId, call: &CallId) -> Result<bool, StoreError> {
    let open = sqlx::query_scalar(OPEN_CALL).bind(call.as_str()).bind(turn.as_str()).fetch_one(conn).await;
    let open: i64 = open.map_err(map)?;
    Ok(open > 0)
}

/// A conversation is about to be deleted: its questions go with it.
pub(super) async fn forget(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    sqlx::query(DELETE_OF).bind(conversation.as_str()).execute(conn).await.map_err(map)?;
    Ok(())
}

/// Ends what cannot be answered any more; says whether there was anything.
async fn lapse(conn: &mut Conn, now: i64) -> Result<bool, StoreError> {
    let expired = sqlx::query(EXPIRE).bind(now).execute(&mut *conn).await.map_err(map)?.rows_affected();
    let withdrawn = sqlx::query(WITHDRAW).bind(now).bind(OVER).execute(conn).await.map_err(map)?.rows_affected();
    Ok(expired + withdrawn > 0)
}

#[async_trait]
impl ApprovalStore for Backend {
    async fn ask_approval(&self, fence: &Fence, turn: &TurnId, new: NewApproval) -> Result<ApprovalRecord, StoreError> {
        new.check()?;
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, Some(turn), Touch::quiet(now, false)).await?;
        let record = new.into_record(fence.conversation(), turn, now);
        if let Some(known) = read(tx.conn(), ONE, &record.id).await? {
            if !known.is_same(&record) {
                return Err(conflict("approval", &record.id));
            }
            tx.rollback().await?;
            return Ok(known);
        }
        if !is_open_call(tx.conn(), turn, &record.call).await? {
            return Err(invalid(format!("call {} is not an open call of the turn", record.call)));
        }
        let open: i64 = sqlx::query_scalar(COUNT_OPEN).bind(turn.as_str()).fetch_one(tx.conn()).await.map_err(map)?;
        if open >= size(APPROVALS_OPEN_MAX) {
            return Err(StoreError::Limit {
                what: "the number of open questions of a turn",
                limit: APPROVALS_OPEN_MAX as u64,
            });
        }
        insert(tx.conn(), &record).await?;
        tx.commit().await?;
        Ok(record)
    }

    async fn answer_approval(
        &self,
        id: &ApprovalId,
        principal: &str,
        answer: ApprovalAnswer,
    ) -> Result<AnswerOutcome, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let known = read(tx.conn(), ONE, id).await?.ok_or_else(|| not_found("approval", id))?;
        // The conversation's row first, as every writer does; then the question as it stands behind it.
        let bumped = sqlx::query_scalar(BUMP).bind(known.conversation.as_str()).fetch_optional(tx.conn()).await;
        let open_turn: Option<Option<String>> = bumped.map_err(map)?;
        let record = read(tx.conn(), TAKE, id).await?.ok_or_else(|| not_found("approval", id))?;
        let is_live = open_turn.flatten().as_deref() == Some(record.turn.as_str())
            && is_open_call(tx.conn(), &record.turn, &record.call).await?;
        let (outcome, is_changed) = record.answer(principal, &answer, is_live, now)?;
        match is_changed {
            true => {
                save(tx.conn(), outcome.approval()).await?;
                tx.announce(&outcome.approval().conversation);
                tx.commit().await?;
            }
            false => tx.rollback().await?,
        }
        Ok(outcome)
    }

    async fn withdraw_approval(
        &self,
        fence: &Fence,
        id: &ApprovalId,
        reason: &str,
    ) -> Result<ApprovalRecord, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let known = read(tx.conn(), TAKE, id).await?.filter(|a| a.conversation == *fence.conversation());
        let mut record = known.ok_or_else(|| not_found("approval", id))?;
        match record.withdraw(reason, now)? {
            true => {
                save(tx.conn(), &record).await?;
                tx.commit().await?;
            }
            false => tx.rollback().await?,
        }
        Ok(record)
    }

    async fn approval(&self, id: &ApprovalId) -> Result<ApprovalRecord, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        read(&mut conn, ONE, id).await?.ok_or_else(|| not_found("approval", id))
    }

    async fn approvals_of_turn(&self, turn: &TurnId) -> Result<Vec<ApprovalRecord>, StoreError> {
        let rows = sqlx::query(OF_TURN).bind(turn.as_str()).fetch_all(self.readers()).await.map_err(map)?;
        rows.iter().map(approval).collect()
    }

    async fn open_approvals(&self, conversation: Option<&ConversationId>) -> Result<Vec<ApprovalRecord>, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let is_changed = lapse(tx.conn(), now).await?;
        let rows = sqlx::query(OPEN)
            .bind(conversation.map(ConversationId::as_str))
            .bind(size(APPROVALS_LIST_MAX))
            .fetch_all(tx.conn())
            .await
            .map_err(map)?;
        let open = rows.iter().map(approval).collect::<Result<Vec<_>, _>>()?;
        match is_changed {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(open)
    }

    async fn prune_approvals(&self) -> Result<u64, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        lapse(tx.conn(), now).await?;
        let before = now.saturating_sub(ms(APPROVAL_KEEP_MS));
        let pruned = sqlx::query(PRUNE).bind(before).execute(tx.conn()).await.map_err(map)?.rows_affected();
        tx.commit().await?;
        Ok(pruned)
    }
}
