//! Changes of history: rotation, compaction, rewind. No text of a row leaves the database: rows are copied by statements.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::admissions::admit_within;
use super::driver::{Backend, Conn, Row, WriteTx, map, text_in};
use super::fenced::{Fenced, Place, Touch};
use super::opening::{change_session, insert_session};
use super::read::{col, count, id, signed, size, text, text_in_or_null, word};
use super::rows::insert_new;
use super::schema::Group;
use super::view;
use crate::admission::{NewAdmission, Receipt};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::history::{
    self, BranchOrigin, ChangeEvent, ChangeKind, ChangeStatus, Compaction, CompressionLock, HistoryChange, LockEvent,
    LockOutcome, NewBranch, PlannedRow, Rewind, Rotation, TakeLock, ViewItem, ViewRow, stale,
};
use crate::ids::{ChangeId, ConversationId, MessageId, SessionId, TurnId};
use crate::limits::PREVIEW_LOOK_ROWS;
use crate::message::{MessageKind, NewMessage};
use crate::patience::WriteKind;
use crate::rules::{self, conflict, invalid, is_shown, not_found, not_running};
use crate::traits::HistoryStore;

pub(crate) const TABLES: Group = &[
    "ALTER TABLE messages ADD COLUMN copy_of TEXT",
    "ALTER TABLE messages ADD COLUMN changed_by TEXT",
    "ALTER TABLE messages ADD COLUMN state_before TEXT",
    "ALTER TABLE conversations ADD COLUMN branched_from TEXT",
    "ALTER TABLE conversations ADD COLUMN branched_seq BIGINT",
    "ALTER TABLE conversations ADD COLUMN branch_digest TEXT",
    "CREATE TABLE history_changes (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        ordinal BIGINT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        session_id TEXT NOT NULL,
        row_count BIGINT NOT NULL,
        last_seq BIGINT NOT NULL,
        digest TEXT NOT NULL,
        created_ms BIGINT NOT NULL
    )",
    "CREATE UNIQUE INDEX history_changes_by_place ON history_changes (conversation_id, ordinal)",
    "CREATE TABLE compression_locks (
        session_id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        state TEXT NOT NULL,
        holder TEXT NOT NULL,
        token BIGINT NOT NULL,
        fence_token BIGINT NOT NULL,
        expires_ms BIGINT NOT NULL,
        ttl_ms BIGINT NOT NULL,
        cooldown_ms BIGINT NOT NULL,
        error TEXT
    )",
    "CREATE INDEX compression_locks_by_conversation ON compression_locks (conversation_id)",
];

macro_rules! change_columns {
    () => {
        "id, conversation_id, kind, status, session_id, row_count, last_seq, created_ms, digest, ordinal"
    };
}

const CHANGE: &str = concat!("SELECT ", change_columns!(), " FROM history_changes WHERE id = $1");
const CHANGES: &str =
    concat!("SELECT ", change_columns!(), " FROM history_changes WHERE conversation_id = $1 ORDER BY ordinal");
const INSERT_CHANGE: &str = "INSERT INTO history_changes (id, conversation_id, ordinal, kind, status, session_id, \
     row_count, last_seq, digest, created_ms) SELECT $1, $2, \
     COALESCE((SELECT MAX(ordinal) FROM history_changes WHERE conversation_id = $2), 0) + 1, $3, $4, $5, $6, $7, $8, $9";
const SET_STATUS: &str = "UPDATE history_changes SET status = $2 WHERE id = $1";
const LATER: &str =
    "SELECT id FROM history_changes WHERE conversation_id = $1 AND ordinal > $2 AND status = 'applied' LIMIT 1";
const WRITTEN_SINCE: &str = "SELECT id FROM messages WHERE conversation_id = $1 AND seq > $2 LIMIT 1";
const EXISTS: &str = "SELECT id FROM conversations WHERE id = $1";
const TURN_EXISTS: &str = "SELECT id FROM turns WHERE id = $1";
const SESSION_EXISTS: &str = "SELECT id FROM sessions WHERE id = $1";
const ROW_EXISTS: &str =
    "SELECT id FROM messages WHERE id = $1 UNION ALL SELECT result_id FROM calls WHERE result_id = $1";
const UNKNOWN: &str =
    "SELECT id FROM admissions WHERE conversation_id = $1 AND status <> 'terminal' AND status = 'unknown' LIMIT 1";
const QUEUED: &str =
    "SELECT id FROM admissions WHERE conversation_id = $1 AND status <> 'terminal' AND status = 'queued'";

const SET_COMPACTED: &str = "UPDATE messages SET state = 'compacted' WHERE conversation_id = $1 AND session_id = $2 \
     AND state = 'active' AND seq BETWEEN $3 AND $4";
const MAKE_ROOM: &str = "UPDATE conversations SET seq = seq + $2, message_count = message_count + $3, \
     preview = COALESCE(preview, $4), tip = $5 WHERE id = $1";
/// A row once more, in another session and place, with another text where $4 has one: then without what was sent in its
/// place and beside it.
const INSERT_COPY: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, \
     content, api_content, reasoning, sidecar_issuer, sidecar, finish, has_calls, call_id, meta, digest, created_ms, \
     copy_of) SELECT $1, conversation_id, $2, turn_id, $3, role, kind, 'active', COALESCE(CAST($4 AS TEXT), content), \
     CASE WHEN CAST($4 AS TEXT) IS NULL THEN api_content END, reasoning, \
     CASE WHEN CAST($4 AS TEXT) IS NULL THEN sidecar_issuer END, CASE WHEN CAST($4 AS TEXT) IS NULL THEN sidecar END, \
     finish, has_calls, call_id, meta, digest, created_ms, COALESCE(copy_of, id) FROM messages WHERE id = $5 ON CONFLICT (id) DO NOTHING";
const SET_SESSION_OF_TURN: &str = "UPDATE turns SET session_id = $2 WHERE id = $1";
const END_PARENT: &str = "UPDATE sessions SET ended_ms = $2, end_reason = $3 WHERE id = $1";

const SUPERSEDE_TAIL: &str = "UPDATE messages SET state_before = state, state = 'superseded', changed_by = $4 \
     WHERE conversation_id = $1 AND session_id = $2 AND state = 'active' AND seq >= $3";
const SUPERSEDE: &str = "UPDATE messages SET state_before = state, state = 'superseded', changed_by = $2 \
     WHERE id = $1 AND state <> 'superseded'";
const COUNT_UNDONE: &str = "SELECT COUNT(*) FROM messages WHERE conversation_id = $1 AND changed_by = $2 \
     AND kind <> 'hidden' AND copy_of IS NULL";
const REINSTATE: &str = "UPDATE messages SET state = state_before, state_before = NULL, changed_by = NULL \
     WHERE conversation_id = $1 AND changed_by = $2";
const NEXT_INPUT: &str = "SELECT seq, content FROM messages WHERE conversation_id = $1 AND seq > $2 AND role = 'user' \
     AND state <> 'superseded' AND kind <> 'hidden' AND copy_of IS NULL ORDER BY seq LIMIT 1";
const SET_PREVIEW: &str = "UPDATE conversations SET preview = $2, message_count = message_count + $3 WHERE id = $1";

/// A change with the digest of what was asked for, and its place among those of its conversation.
struct Known {
    record: HistoryChange,
    digest: String,
    ordinal: i64,
}

fn change(row: &Row) -> Result<Known, StoreError> {
    Ok(Known {
        record: HistoryChange {
            id: word(row, 0, id(ChangeId::parse))?,
            conversation: word(row, 1, id(ConversationId::parse))?,
            kind: word(row, 2, ChangeKind::parse)?,
            status: word(row, 3, ChangeStatus::parse)?,
            session: word(row, 4, id(SessionId::parse))?,
            rows: count(row, 5)?,
            last_seq: col(row, 6)?,
            created_at_ms: col(row, 7)?,
        },
        digest: col(row, 8)?,
        ordinal: col(row, 9)?,
    })
}

async fn by_id(conn: &mut Conn, id: &ChangeId) -> Result<Option<Known>, StoreError> {
    let row = sqlx::query(CHANGE).bind(id.as_str()).fetch_optional(conn).await.map_err(map)?;
    row.as_ref().map(change).transpose()
}

/// The change under this id, when it was made before.
async fn known(
    conn: &mut Conn,
    conversation: &ConversationId,
    id: &ChangeId,
    digest: &str,
) -> Result<Option<HistoryChange>, StoreError> {
    match by_id(conn, id).await? {
        None => Ok(None),
        Some(known) if known.record.conversation == *conversation && known.digest == digest => Ok(Some(known.record)),
        Some(_) => Err(conflict("change", id)),
    }
}

async fn exists(conn: &mut Conn, statement: &'static str, key: &str) -> Result<bool, StoreError> {
    let row = sqlx::query(statement).bind(key).fetch_optional(conn).await.map_err(map)?;
    Ok(row.is_some())
}

async fn nothing_unknown(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    let row = sqlx::query(UNKNOWN).bind(conversation.as_str()).fetch_optional(conn).await.map_err(map)?;
    match row {
        Some(row) => Err(invalid(format!("input {} is unknown; resolve it first", col::<&str>(&row, 0)?))),
        None => Ok(()),
    }
}

/// Inputs that wait, by the id of the row that each may have written.
async fn input_rows(conn: &mut Conn, conversation: &ConversationId) -> Result<BTreeSet<String>, StoreError> {
    let rows = sqlx::query(QUEUED).bind(conversation.as_str()).fetch_all(conn).await.map_err(map)?;
    rows.iter().map(|row| col(row, 0)).collect()
}

fn tip_of(fenced: &Fenced) -> Result<SessionId, StoreError> {
    fenced.tip.clone().ok_or_else(|| invalid("the conversation has no session yet; open one"))
}

/// The turn under which new rows are written: the running one or, without one, an id that no turn has.
async fn check_writer(conn: &mut Conn, fenced: &Fenced, turn: &TurnId) -> Result<(), StoreError> {
    let fits = match &fenced.open_turn {
        Some(open) => open == turn,
        None => !exists(conn, TURN_EXISTS, turn.as_str()).await?,
    };
    if fits { Ok(()) } else { Err(not_running(turn)) }
}

/// Everything that a swap must pass before anything is changed; the view as it is, and its session.
async fn before_swap(
    conn: &mut Conn,
    fence: &Fence,
    fenced: &Fenced,
    lock: &CompressionLock,
    turn: &TurnId,
    rows: &[ViewRow],
) -> Result<(SessionId, Vec<ViewItem>), StoreError> {
    check_writer(conn, fenced, turn).await?;
    let tip = tip_of(fenced)?;
    super::locks::check(conn, fence, lock).await?;
    if *lock.session() != tip {
        return Err(history::lock_lost());
    }
    nothing_unknown(conn, fence.conversation()).await?;
    for row in rows {
        if let ViewRow::New(new) = row
            && exists(conn, ROW_EXISTS, new.id.as_str()).await?
        {
            return Err(conflict("message", &new.id));
        }
    }
    let view = view::of_model(conn, fence.conversation(), &tip).await?;
    Ok((tip, view))
}

/// A swap that may be done.
struct Swap<'a> {
    id: &'a ChangeId,
    kind: ChangeKind,
    digest: &'a str,
    turn: &'a TurnId,
    from: &'a SessionId,
    to: &'a SessionId,
    /// The last place that was given before it.
    seq: i64,
    rows: u64,
    now: i64,
}

/// Takes the old rows out of the view and writes the new ones.
async fn swap(
    conn: &mut Conn,
    conversation: &ConversationId,
    view: &[ViewItem],
    plan: &[PlannedRow<'_>],
    swap: Swap<'_>,
) -> Result<HistoryChange, StoreError> {
    if let (Some(first), Some(last)) = (view.first(), view.last()) {
        sqlx::query(SET_COMPACTED)
            .bind(conversation.as_str())
            .bind(swap.from.as_str())
            .bind(first.seq)
            .bind(last.seq)
            .execute(&mut *conn)
            .await
            .map_err(map)?;
    }
    let new: Vec<&NewMessage> = plan
        .iter()
        .filter_map(|row| match row {
            PlannedRow::New(new) => Some(*new),
            PlannedRow::Copy { .. } => None,
        })
        .collect();
    sqlx::query(MAKE_ROOM)
        .bind(conversation.as_str())
        .bind(size(plan.len()))
        .bind(size(new.iter().filter(|row| is_shown(row.kind)).count()))
        .bind(text_in_or_null(rules::preview_of(new.iter().copied()).as_deref()))
        .bind(swap.to.as_str())
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    let last_seq = swap.seq + size(plan.len());
    let place = Place { conversation, session: swap.to, turn: swap.turn, seq: last_seq, now: swap.now };
    for (seq, row) in (swap.seq + 1..).zip(plan) {
        match row {
            PlannedRow::New(new) => insert_new(conn, place, seq, new).await?,
            PlannedRow::Copy { id, of, content } => {
                let done = sqlx::query(INSERT_COPY)
                    .bind(id.as_str())
                    .bind(swap.to.as_str())
                    .bind(seq)
                    .bind(content.map(text_in))
                    .bind(of.id.as_str())
                    .execute(&mut *conn)
                    .await
                    .map_err(map)?;
                if done.rows_affected() == 0 {
                    return Err(conflict("message", id));
                }
            }
        }
    }
    note(conn, conversation, swap, last_seq).await
}

async fn note(
    conn: &mut Conn,
    conversation: &ConversationId,
    swap: Swap<'_>,
    last_seq: i64,
) -> Result<HistoryChange, StoreError> {
    sqlx::query(INSERT_CHANGE)
        .bind(swap.id.as_str())
        .bind(conversation.as_str())
        .bind(swap.kind.as_str())
        .bind(ChangeStatus::Applied.as_str())
        .bind(swap.to.as_str())
        .bind(signed(swap.rows))
        .bind(last_seq)
        .bind(swap.digest)
        .bind(swap.now)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(HistoryChange {
        id: swap.id.clone(),
        conversation: conversation.clone(),
        kind: swap.kind,
        status: ChangeStatus::Applied,
        session: swap.to.clone(),
        rows: swap.rows,
        last_seq,
        created_at_ms: swap.now,
    })
}

/// The conversation of a fence that holds, at rest; its tip.
async fn at_rest(conn: &mut Conn, fence: &Fence, fenced: &Fenced) -> Result<SessionId, StoreError> {
    if let Some(turn) = &fenced.open_turn {
        return Err(invalid(format!("turn {turn} is open; stop it, or wait for its end")));
    }
    nothing_unknown(conn, fence.conversation()).await?;
    tip_of(fenced)
}

/// The preview anew, from what people see.
pub(super) async fn find_preview(conn: &mut Conn, conversation: &ConversationId) -> Result<Option<String>, StoreError> {
    let mut after = 0_i64;
    for _ in 0..PREVIEW_LOOK_ROWS {
        let row = sqlx::query(NEXT_INPUT).bind(conversation.as_str()).bind(after);
        let Some(row) = row.fetch_optional(&mut *conn).await.map_err(map)? else { break };
        if let Some(preview) = rules::preview(&text(&row, 1)?) {
            return Ok(Some(preview));
        }
        after = col(&row, 0)?;
    }
    Ok(None)
}

/// Sets the preview anew and counts `shown` more rows that people see.
async fn recount(conn: &mut Conn, conversation: &ConversationId, shown: i64) -> Result<(), StoreError> {
    let preview = find_preview(conn, conversation).await?;
    let set =
        sqlx::query(SET_PREVIEW).bind(conversation.as_str()).bind(text_in_or_null(preview.as_deref())).bind(shown);
    set.execute(conn).await.map_err(map)?;
    Ok(())
}

impl Backend {
    /// A fenced write that changes history.
    async fn change_of(&self, fence: &Fence) -> Result<(WriteTx, Fenced), StoreError> {
        let mut tx = self.write_within(WriteKind::Compression).await?;
        let now = tx.now();
        let fenced = self.fence(&mut tx, fence, None, Touch::quiet(now, true)).await?;
        Ok((tx, fenced))
    }
}

/// Undoes the end of the view as a part of a transaction, or finds that it was undone before.
async fn rewind_within(
    tx: &mut WriteTx,
    fence: &Fence,
    fenced: &Fenced,
    rewind: &Rewind,
    digest: &str,
) -> Result<HistoryChange, StoreError> {
    let (conversation, now) = (fence.conversation(), tx.now());
    if let Some(known) = known(tx.conn(), conversation, &rewind.id, digest).await? {
        return Ok(known);
    }
    let tip = at_rest(tx.conn(), fence, fenced).await?;
    let view = view::of_model(tx.conn(), conversation, &tip).await?;
    let gone = history::plan_rewind(&tip, &view, rewind)?;
    history::check_inputs_stay(&input_rows(tx.conn(), conversation).await?, gone.iter())?;
    sqlx::query(SUPERSEDE_TAIL)
        .bind(conversation.as_str())
        .bind(tip.as_str())
        .bind(gone.first().map_or(i64::MAX, |item| item.seq))
        .bind(rewind.id.as_str())
        .execute(tx.conn())
        .await
        .map_err(map)?;
    for first in gone.iter().filter_map(|item| item.copy_of.as_ref()).map(MessageId::as_str) {
        let undo = sqlx::query(SUPERSEDE).bind(first).bind(rewind.id.as_str());
        undo.execute(tx.conn()).await.map_err(map)?;
    }
    let shown = gone.iter().filter(|item| item.kind != MessageKind::Hidden).count();
    recount(tx.conn(), conversation, -size(shown)).await?;
    let change = Swap {
        id: &rewind.id,
        kind: ChangeKind::Rewind,
        digest,
        // Not used: no row is written.
        turn: &TurnId::parse(rewind.id.as_str()).map_err(|bad| invalid(bad.to_string()))?,
        from: &tip,
        to: &tip,
        seq: fenced.seq,
        rows: gone.len() as u64,
        now,
    };
    note(tx.conn(), conversation, change, fenced.seq).await
}

#[async_trait]
impl HistoryStore for Backend {
    async fn take_compression_lock(&self, fence: &Fence, take: TakeLock) -> Result<LockOutcome, StoreError> {
        self.take_lock(fence, take).await
    }

    async fn renew_compression_lock(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        self.renew_lock(fence, lock, ttl_ms).await
    }

    async fn release_compression_lock(&self, fence: &Fence, lock: &CompressionLock) -> Result<(), StoreError> {
        self.release_lock(fence, lock).await
    }

    async fn fail_compression(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        cooldown_ms: u64,
        error: &str,
    ) -> Result<i64, StoreError> {
        self.fail_lock(fence, lock, cooldown_ms, error).await
    }

    async fn rotate(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        rotation: Rotation,
    ) -> Result<HistoryChange, StoreError> {
        history::check_view_rows(&rotation.rows)?;
        let (mut tx, fenced) = self.change_of(fence).await?;
        let (conversation, child, now) = (fence.conversation(), &rotation.child, tx.now());
        let digest = history::change_digest(ChangeKind::Rotation, &rotation.mark, Some(child), &rotation.rows, None);
        if let Some(known) = known(tx.conn(), conversation, &rotation.id, &digest).await? {
            tx.commit().await?;
            return Ok(known);
        }
        let (tip, view) = before_swap(tx.conn(), fence, &fenced, lock, &rotation.turn, &rotation.rows).await?;
        if child.parent.as_ref() != Some(&tip) {
            return Err(stale(format!("the conversation goes on in session {tip}")));
        }
        if exists(tx.conn(), SESSION_EXISTS, child.id.as_str()).await? {
            return Err(conflict("session", &child.id));
        }
        let plan = history::plan_view(&rotation.id, &tip, &view, &rotation.mark, &rotation.rows)?;
        let left = history::left_out(&view, &plan);
        history::check_inputs_stay(&input_rows(tx.conn(), conversation).await?, left.iter().copied())?;
        let place = Place { conversation, session: &child.id, turn: &rotation.turn, seq: fenced.seq, now };
        insert_session(tx.conn(), place, child, fenced.seq).await?;
        let end = sqlx::query(END_PARENT).bind(tip.as_str()).bind(now).bind(history::COMPRESSION);
        end.execute(tx.conn()).await.map_err(map)?;
        let moved = sqlx::query(SET_SESSION_OF_TURN).bind(rotation.turn.as_str()).bind(child.id.as_str());
        moved.execute(tx.conn()).await.map_err(map)?;
        super::locks::end(tx.conn(), &tip, LockEvent::Rotate).await?;
        let change = Swap {
            id: &rotation.id,
            kind: ChangeKind::Rotation,
            digest: &digest,
            turn: &rotation.turn,
            from: &tip,
            to: &child.id,
            seq: fenced.seq,
            rows: left.len() as u64,
            now,
        };
        let done = swap(tx.conn(), conversation, &view, &plan, change).await?;
        tx.commit().await?;
        Ok(done)
    }

    async fn compact(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        compaction: Compaction,
    ) -> Result<HistoryChange, StoreError> {
        history::check_view_rows(&compaction.rows)?;
        let (mut tx, fenced) = self.change_of(fence).await?;
        let (conversation, session, now) = (fence.conversation(), compaction.session.as_ref(), tx.now());
        let digest = history::change_digest(ChangeKind::Compaction, &compaction.mark, session, &compaction.rows, None);
        if let Some(known) = known(tx.conn(), conversation, &compaction.id, &digest).await? {
            tx.commit().await?;
            return Ok(known);
        }
        let (tip, view) = before_swap(tx.conn(), fence, &fenced, lock, &compaction.turn, &compaction.rows).await?;
        if session.is_some_and(|new| new.id != tip) {
            return Err(stale(format!("the conversation goes on in session {tip}")));
        }
        let plan = history::plan_view(&compaction.id, &tip, &view, &compaction.mark, &compaction.rows)?;
        let left = history::left_out(&view, &plan);
        history::check_inputs_stay(&input_rows(tx.conn(), conversation).await?, left.iter().copied())?;
        if let Some(new) = session {
            change_session(tx.conn(), conversation, new).await?;
        }
        super::locks::end(tx.conn(), &tip, LockEvent::Compact).await?;
        let change = Swap {
            id: &compaction.id,
            kind: ChangeKind::Compaction,
            digest: &digest,
            turn: &compaction.turn,
            from: &tip,
            to: &tip,
            seq: fenced.seq,
            rows: left.len() as u64,
            now,
        };
        let done = swap(tx.conn(), conversation, &view, &plan, change).await?;
        tx.commit().await?;
        Ok(done)
    }

    async fn rewind(&self, fence: &Fence, rewind: Rewind) -> Result<HistoryChange, StoreError> {
        let (mut tx, fenced) = self.change_of(fence).await?;
        let digest = history::rewind_digest(&rewind, None);
        let done = rewind_within(&mut tx, fence, &fenced, &rewind, &digest).await?;
        tx.commit().await?;
        Ok(done)
    }

    async fn retry(
        &self,
        fence: &Fence,
        rewind: Rewind,
        again: NewAdmission,
    ) -> Result<(HistoryChange, Receipt), StoreError> {
        let (mut tx, fenced) = self.change_of(fence).await?;
        history::check_again(fence.conversation(), &again)?;
        let now = tx.now();
        let digest = history::rewind_digest(&rewind, Some(&again));
        let done = rewind_within(&mut tx, fence, &fenced, &rewind, &digest).await?;
        let accepted = admit_within(&mut tx, &again, now).await?.receipt().clone();
        tx.commit().await?;
        Ok((done, accepted))
    }

    async fn restore(&self, fence: &Fence, id: &ChangeId) -> Result<HistoryChange, StoreError> {
        let (mut tx, fenced) = self.change_of(fence).await?;
        let conversation = fence.conversation();
        let known = by_id(tx.conn(), id).await?.filter(|known| known.record.conversation == *conversation);
        let known = known.ok_or_else(|| not_found("change", id))?;
        if known.record.kind != ChangeKind::Rewind {
            return Err(invalid("a compression is not taken back; make a branch from an earlier row"));
        }
        let Ok(status) = known.record.status.next(ChangeEvent::Restore) else {
            tx.commit().await?;
            return Ok(known.record);
        };
        at_rest(tx.conn(), fence, &fenced).await?;
        for (statement, after, what) in [
            (LATER, known.ordinal, "a later change holds"),
            (WRITTEN_SINCE, known.record.last_seq, "rows were written"),
        ] {
            let since = sqlx::query(statement).bind(conversation.as_str()).bind(after);
            if since.fetch_optional(tx.conn()).await.map_err(map)?.is_some() {
                return Err(stale(what));
            }
        }
        let shown = sqlx::query(COUNT_UNDONE).bind(conversation.as_str()).bind(id.as_str());
        let shown: i64 = col(&shown.fetch_one(tx.conn()).await.map_err(map)?, 0)?;
        let back = sqlx::query(REINSTATE).bind(conversation.as_str()).bind(id.as_str());
        back.execute(tx.conn()).await.map_err(map)?;
        let set = sqlx::query(SET_STATUS).bind(id.as_str()).bind(status.as_str());
        set.execute(tx.conn()).await.map_err(map)?;
        recount(tx.conn(), conversation, shown).await?;
        tx.commit().await?;
        Ok(HistoryChange { status, ..known.record })
    }

    async fn branch(&self, branch: NewBranch) -> Result<BranchOrigin, StoreError> {
        self.make_branch(branch).await
    }

    async fn changes(&self, conversation: &ConversationId) -> Result<Vec<HistoryChange>, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        if !exists(&mut conn, EXISTS, conversation.as_str()).await? {
            return Err(not_found("conversation", conversation));
        }
        let rows = sqlx::query(CHANGES).bind(conversation.as_str()).fetch_all(&mut *conn).await.map_err(map)?;
        rows.iter().map(|row| change(row).map(|known| known.record)).collect()
    }
}
