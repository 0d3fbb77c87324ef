//! Branches: a new conversation that begins with the rows of another one, in one transaction.

use std::collections::HashMap;

use super::driver::{Backend, Conn, map};
use super::leases::take;
use super::read::{col, size, text_in_or_null};
use super::{admissions, history::find_preview, view};
use crate::error::StoreError;
use crate::history::{self, BranchIds, BranchOrigin, NewBranch, ViewItem};
use crate::ids::{CallId, ConversationId, MessageId, SessionId};
use crate::message::{MessageKind, View};
use crate::rules::{conflict, invalid, not_found};

const KNOWN: &str = "SELECT branched_from, branched_seq, branch_digest FROM conversations WHERE id = $1";
const OPEN: &str = "INSERT INTO sessions (id, conversation_id, parent_id, provider, model, cwd, prompt_hash, \
     tools_hash, first_seq, started_ms) SELECT $1, $1, NULL, provider, model, cwd, prompt_hash, tools_hash, $3, $4 \
     FROM sessions WHERE id = $2 ON CONFLICT (id) DO NOTHING";
/// Only in a conversation that is new: another one may have got the id while this one waited to insert it.
const ROOM: &str = "UPDATE conversations SET tip = $1, seq = seq + $2, message_count = $3, branched_from = $4, \
     branched_seq = $5, branch_digest = $6 WHERE id = $1 AND tip IS NULL AND revision = 0 RETURNING seq";
const SET_PREVIEW: &str = "UPDATE conversations SET preview = $2 WHERE id = $1";
const COPY_ROW: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, \
     content, api_content, reasoning, sidecar_issuer, sidecar, finish, has_calls, call_id, meta, digest, created_ms) \
     SELECT $1, $2, $2, $3, $4, role, kind, 'active', content, api_content, reasoning, sidecar_issuer, sidecar, \
     finish, has_calls, $5, meta, digest, created_ms FROM messages WHERE id = $6";
const COPY_CALL: &str = "INSERT INTO calls (id, conversation_id, turn_id, assistant_id, assistant_seq, result_id, \
     result_seq, provider_id, name, arguments, replay, state, outcome, digest, written_ms) \
     SELECT $1, $2, $3, $4, $5, $6, $7, provider_id, name, arguments, replay, state, outcome, digest, written_ms \
     FROM calls WHERE id = $8";

/// The branch that is there already, when it is the same one.
async fn known(conn: &mut Conn, id: &ConversationId, digest: &str) -> Result<Option<BranchOrigin>, StoreError> {
    let row = sqlx::query(KNOWN).bind(id.as_str()).fetch_optional(conn).await.map_err(map)?;
    let Some(row) = row else { return Ok(None) };
    let from = super::read::word_or_null(&row, 0, super::read::id(ConversationId::parse))?;
    match (from, col::<Option<i64>>(&row, 1)?, col::<Option<&str>>(&row, 2)?) {
        (Some(conversation), Some(seq), Some(known)) if known == digest => Ok(Some(BranchOrigin { conversation, seq })),
        _ => Err(conflict("conversation", id)),
    }
}

async fn copy_row(
    conn: &mut Conn,
    to: &ConversationId,
    item: &ViewItem,
    seq: i64,
    results: &HashMap<&CallId, &MessageId>,
) -> Result<(), StoreError> {
    let ids = BranchIds::new(to);
    let (row, turn) = (ids.message(item.root())?, ids.turn(&item.turn)?);
    let answers = item.answers.as_ref().map(|call| ids.call(call)).transpose()?;
    sqlx::query(COPY_ROW)
        .bind(row.as_str())
        .bind(to.as_str())
        .bind(turn.as_str())
        .bind(seq)
        .bind(answers.as_ref().map(CallId::as_str))
        .bind(item.id.as_str())
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    for (at, (call, _)) in (seq + 1..).zip(&item.calls) {
        let result = results.get(call).copied().ok_or_else(|| not_found("the result of call", call))?;
        sqlx::query(COPY_CALL)
            .bind(ids.call(call)?.as_str())
            .bind(to.as_str())
            .bind(turn.as_str())
            .bind(row.as_str())
            .bind(seq)
            .bind(ids.message(result)?.as_str())
            .bind(at)
            .bind(call.as_str())
            .execute(&mut *conn)
            .await
            .map_err(map)?;
    }
    Ok(())
}

impl Backend {
    pub(super) async fn make_branch(&self, branch: NewBranch) -> Result<BranchOrigin, StoreError> {
        let (new, digest) = (&branch.conversation.id, history::branch_digest(&branch));
        let mut tx = self.write().await?;
        let now = tx.now();
        // Holds the source still for the length of this transaction. Taken before the look at the branch, so that one who
        // waited here for the same branch finds it.
        let source = take(tx.conn(), &branch.from).await?;
        if let Some(origin) = known(tx.conn(), new, &digest).await? {
            tx.rollback().await?;
            return Ok(origin);
        }
        let source = source.ok_or_else(|| not_found("conversation", &branch.from))?;
        let tip = source.tip.ok_or_else(|| invalid("the conversation has no session yet; open one"))?;
        let view = match branch.view {
            View::Model => view::of_model(tx.conn(), &branch.from, &tip).await?,
            View::Display => view::of_display(tx.conn(), &branch.from).await?,
        };
        let rows = history::plan_branch(&view, &branch)?;
        let origin = BranchOrigin { conversation: branch.from.clone(), seq: rows.last().map_or(0, |item| item.seq) };
        admissions::create(tx.conn(), &branch.conversation, now).await?;
        let shown = rows.iter().filter(|item| item.kind != MessageKind::Hidden).count();
        let room = sqlx::query(ROOM)
            .bind(new.as_str())
            .bind(size(rows.len()))
            .bind(size(shown))
            .bind(branch.from.as_str())
            .bind(origin.seq)
            .bind(&digest);
        let room = room.fetch_optional(tx.conn()).await.map_err(map)?.ok_or_else(|| conflict("conversation", new))?;
        let last: i64 = col(&room, 0)?;
        let before = last - size(rows.len());
        self.open_branch(tx.conn(), new, &tip, before, now).await?;
        let results: HashMap<&CallId, &MessageId> =
            rows.iter().filter_map(|item| Some((item.answers.as_ref()?, item.root()))).collect();
        for (seq, item) in (before + 1..).zip(&rows) {
            copy_row(tx.conn(), new, item, seq, &results).await?;
        }
        let preview = find_preview(tx.conn(), new).await?;
        let set = sqlx::query(SET_PREVIEW).bind(new.as_str()).bind(text_in_or_null(preview.as_deref()));
        set.execute(tx.conn()).await.map_err(map)?;
        tx.commit().await?;
        Ok(origin)
    }

    async fn open_branch(
        &self,
        conn: &mut Conn,
        new: &ConversationId,
        tip: &SessionId,
        first_seq: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        let open = sqlx::query(OPEN).bind(new.as_str()).bind(tip.as_str()).bind(first_seq).bind(now);
        let opened = open.execute(conn).await.map_err(map)?;
        match opened.rows_affected() {
            0 => Err(conflict("session", new)),
            _ => Ok(()),
        }
    }
}
