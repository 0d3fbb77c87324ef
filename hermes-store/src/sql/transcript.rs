//! The transcript: each method one transaction over what `fenced`, `rows`, `journal` and `opening` do.

use async_trait::async_trait;
use bytes::Bytes;

use super::driver::{Backend, Conn, map, text_in};
use super::fenced::{Fenced, Place, Touch};
use super::journal::{self, insert_calls, known_states, settle};
use super::leases::take;
use super::opening::{change_session, open};
use super::plain::Append;
use super::read::{admission, admission_columns, col, join_calls, message, message_columns, signed, size};
use super::rows::{append, insert, uncount, verify};
use crate::admission::{AdmissionOutcome, AdmissionRecord, AdmissionStatus};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{CallId, ConversationId, Generation, SessionId, TurnId};
use crate::limits::{PAGE_MAX_ROWS, STEERS_MAX};
use crate::message::{MessagePage, NewMessage, StoredMessage, UsageDelta, View};
use crate::prompt::{PromptHash, PromptSnapshot};
use crate::round::{CallResult, NewCall, Planned, Recorded, Round, SettledCall};
use crate::rules::{self, conflict, invalid, is_shown, not_found, not_running};
use crate::session::NewSession;
use crate::traits::TranscriptStore;

const INSERT_USAGE: &str = "INSERT INTO usage_log (attempt, conversation_id, provider, model, task, input, output, \
     cache_read, cache_write, reasoning, known) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
     ON CONFLICT (attempt) DO NOTHING";
const PROMPT: &str = "SELECT bytes FROM prompts WHERE hash = $1";
const STEERS: &str = concat!(
    "SELECT ",
    admission_columns!(),
    " FROM admissions WHERE conversation_id = $1 AND status <> 'terminal' AND status = 'queued' \
     AND intent IN ('steer', 'redirect') ORDER BY seq LIMIT $2"
);
const TAKE_STEER: &str = "UPDATE admissions SET status = 'terminal', outcome = 'completed', turn_id = $2, \
     generation = (SELECT generation FROM turns WHERE id = $2) WHERE id = $1 RETURNING generation";
const EXISTS: &str = "SELECT tip FROM conversations WHERE id = $1";
const PAGE_MODEL: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND seq > (SELECT first_seq FROM sessions WHERE id = $4) \
     AND session_id = $4 AND state = 'active' ORDER BY seq LIMIT $3"
);
const PAGE_MODEL_END: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND seq > (SELECT first_seq FROM sessions WHERE id = $4) \
     AND session_id = $4 AND state = 'active' ORDER BY seq DESC LIMIT $3"
);
const PAGE_DISPLAY: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND state <> 'superseded' AND kind <> 'hidden' \
     AND copy_of IS NULL ORDER BY seq LIMIT $3"
);
const PAGE_DISPLAY_END: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND state <> 'superseded' AND kind <> 'hidden' \
     AND copy_of IS NULL ORDER BY seq DESC LIMIT $3"
);

fn tip_of(fenced: &Fenced) -> Result<SessionId, StoreError> {
    fenced.tip.clone().ok_or_else(|| invalid("the conversation has no session yet; open one"))
}

async fn count_usage(conn: &mut Conn, conversation: &ConversationId, usage: &UsageDelta) -> Result<(), StoreError> {
    sqlx::query(INSERT_USAGE)
        .bind(text_in(&usage.attempt))
        .bind(conversation.as_str())
        .bind(text_in(&usage.provider))
        .bind(text_in(&usage.model))
        .bind(text_in(&usage.task))
        .bind(signed(usage.input))
        .bind(signed(usage.output))
        .bind(signed(usage.cache_read))
        .bind(signed(usage.cache_write))
        .bind(signed(usage.reasoning))
        .bind(i64::from(usage.known))
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

#[async_trait]
impl TranscriptStore for Backend {
    async fn open_session(
        &self,
        fence: &Fence,
        turn: &TurnId,
        session: NewSession,
        rows: Vec<NewMessage>,
    ) -> Result<(), StoreError> {
        rules::check_rows(&rows)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let fenced = self.fence(&mut tx, fence, Some(turn), Touch::rows(now, &rows)).await?;
        let place = Place { conversation: fence.conversation(), session: &session.id, turn, seq: fenced.seq, now };
        let before = fenced.seq - size(rows.len());
        open(tx.conn(), place, &session, fenced.tip.as_ref(), before).await?;
        append(tx.conn(), place, &rows).await?;
        tx.commit().await
    }

    async fn change_session(&self, fence: &Fence, turn: &TurnId, session: NewSession) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let touch = Touch::quiet(now, true);
        let fenced = self.fence(&mut tx, fence, Some(turn), touch).await?;
        if fenced.tip.as_ref() != Some(&session.id) {
            return Err(conflict("session", &session.id));
        }
        change_session(tx.conn(), fence.conversation(), &session).await?;
        tx.commit().await
    }

    async fn append(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: Vec<NewMessage>,
        usage: Option<UsageDelta>,
    ) -> Result<(), StoreError> {
        rules::check_rows(&rows)?;
        if let [row] = rows.as_slice()
            && self.append_plain(Append::new(fence, turn, row, usage.as_ref())).await?
        {
            return Ok(());
        }
        let mut tx = self.write().await?;
        let now = tx.now();
        let fenced = self.fence(&mut tx, fence, Some(turn), Touch::rows(now, &rows)).await?;
        let session = tip_of(&fenced)?;
        let place = Place { conversation: fence.conversation(), session: &session, turn, seq: fenced.seq, now };
        append(tx.conn(), place, &rows).await?;
        if let Some(usage) = &usage {
            count_usage(tx.conn(), fence.conversation(), usage).await?;
        }
        tx.commit().await
    }

    async fn record_round(&self, fence: &Fence, round: Round<Planned>) -> Result<Round<Recorded>, StoreError> {
        rules::check_round(&round)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let conversation = fence.conversation();
        let calls: Vec<&NewCall> = round.calls().iter().map(|call| &call.new).collect();
        let assistant = round.assistant();
        let shown = i64::from(is_shown(assistant.kind)) + size(calls.iter().filter(|c| c.preset.is_some()).count());
        let touch = Touch { now, is_activity: true, reserve: size(calls.len() + 1), shown, preview: None };
        let fenced = self.fence(&mut tx, fence, Some(round.turn()), touch).await?;
        let session = tip_of(&fenced)?;
        let place = Place { conversation, session: &session, turn: round.turn(), seq: fenced.seq, now };
        let digest = rules::round_digest(assistant, &calls);
        let seq = fenced.seq - size(calls.len());
        let states = if insert(tx.conn(), place, seq, assistant, true, &digest).await? {
            if let Some(usage) = round.usage() {
                count_usage(tx.conn(), conversation, usage).await?;
            }
            insert_calls(tx.conn(), place, (&assistant.id, seq), &calls).await?
        } else {
            if verify(tx.conn(), conversation, &assistant.id, &digest).await? != round.turn().as_str() {
                return Err(conflict("message", &assistant.id));
            }
            uncount(tx.conn(), conversation, shown).await?;
            known_states(tx.conn(), conversation, &assistant.id, &calls).await?
        };
        tx.commit().await?;
        Ok(round.recorded(&states))
    }

    async fn start_calls(&self, fence: &Fence, turn: &TurnId, calls: &[CallId]) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let touch = Touch::quiet(now, true);
        self.fence(&mut tx, fence, Some(turn), touch).await?;
        for call in calls {
            journal::start(tx.conn(), fence.conversation(), turn, call, now).await?;
        }
        tx.commit().await
    }

    async fn settle_call(
        &self,
        fence: &Fence,
        turn: &TurnId,
        call: &CallId,
        result: CallResult,
    ) -> Result<SettledCall, StoreError> {
        rules::check_result(&result)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let touch = Touch { shown: 1, ..Touch::quiet(now, true) };
        self.fence(&mut tx, fence, Some(turn), touch).await?;
        if !settle(tx.conn(), fence.conversation(), turn, call, &result, now).await? {
            uncount(tx.conn(), fence.conversation(), 1).await?;
        }
        tx.commit().await?;
        Ok(SettledCall::new(call.clone()))
    }

    async fn take_steers(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: &(dyn for<'a> Fn(&'a [AdmissionRecord]) -> Vec<NewMessage> + Send + Sync),
    ) -> Result<Vec<AdmissionRecord>, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let conversation = fence.conversation();
        let taken = take(tx.conn(), conversation).await?;
        let holds = |t: &super::leases::Taken| t.token == fence.token() && t.lease_owner.is_some();
        let taken = taken.filter(holds).ok_or(StoreError::Fenced { held: fence.token() })?;
        if taken.open_turn.as_ref() != Some(turn) {
            return Err(not_running(turn));
        }
        let found = sqlx::query(STEERS).bind(conversation.as_str()).bind(size(STEERS_MAX)).fetch_all(tx.conn()).await;
        let mut steers: Vec<_> = found.map_err(map)?.iter().map(admission).collect::<Result<_, _>>()?;
        if steers.is_empty() {
            tx.rollback().await?;
            return Ok(steers);
        }
        let new = rows(&steers);
        rules::check_rows(&new)?;
        let fenced = self.fence(&mut tx, fence, Some(turn), Touch::rows(now, &new)).await?;
        let session = tip_of(&fenced)?;
        append(tx.conn(), Place { conversation, session: &session, turn, seq: fenced.seq, now }, &new).await?;
        for steer in &mut steers {
            let id = steer.receipt.admission.as_str();
            let row = sqlx::query(TAKE_STEER).bind(id).bind(turn.as_str()).fetch_one(tx.conn()).await.map_err(map)?;
            steer.receipt.status = AdmissionStatus::Terminal;
            steer.receipt.outcome = Some(AdmissionOutcome::Completed);
            steer.receipt.turn = Some(turn.clone());
            steer.receipt.generation = col::<Option<i64>>(&row, 0)?.map(Generation);
        }
        tx.commit().await?;
        Ok(steers)
    }

    async fn count_usage(&self, fence: &Fence, usage: UsageDelta) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        count_usage(tx.conn(), fence.conversation(), &usage).await?;
        tx.commit().await
    }

    async fn messages(
        &self,
        conversation: &ConversationId,
        view: View,
        page: MessagePage,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        // Rows and calls from one snapshot: a result must not be missing of a call that is settled.
        let mut tx = self.readers().begin().await.map_err(map)?;
        let row = sqlx::query(EXISTS).bind(conversation.as_str()).fetch_optional(&mut *tx).await.map_err(map)?;
        let row = row.ok_or_else(|| not_found("conversation", conversation))?;
        let tip: Option<String> = col(&row, 0)?;
        let limit = size(page.limit.min(PAGE_MAX_ROWS));
        let (text, tip) = match (view, page.from_end, tip) {
            (View::Model, _, None) => return Ok(Vec::new()),
            (View::Model, false, Some(tip)) => (PAGE_MODEL, Some(tip)),
            (View::Model, true, Some(tip)) => (PAGE_MODEL_END, Some(tip)),
            (View::Display, false, _) => (PAGE_DISPLAY, None),
            (View::Display, true, _) => (PAGE_DISPLAY_END, None),
        };
        let mut query = sqlx::query(text).bind(conversation.as_str()).bind(page.after_seq).bind(limit);
        if let Some(tip) = tip {
            query = query.bind(tip);
        }
        let mut rows: Vec<_> =
            query.fetch_all(&mut *tx).await.map_err(map)?.iter().map(message).collect::<Result<_, _>>()?;
        if page.from_end {
            rows.reverse();
        }
        join_calls(&mut tx, conversation, rows).await
    }

    async fn prompt(&self, hash: &PromptHash) -> Result<PromptSnapshot, StoreError> {
        let bytes: Option<Vec<u8>> =
            sqlx::query_scalar(PROMPT).bind(hash.as_str()).fetch_optional(self.readers()).await.map_err(map)?;
        let bytes = bytes.ok_or_else(|| not_found("prompt", hash.as_str()))?;
        let found = PromptSnapshot::new(Bytes::from(bytes));
        if found.hash() != hash {
            return Err(StoreError::Corrupt { detail: format!("prompt {} has other bytes", hash.as_str()) });
        }
        Ok(found)
    }
}
