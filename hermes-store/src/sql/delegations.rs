//! Delegations.

use async_trait::async_trait;

use super::admissions::{admit_within, by_id, create};
use super::driver::{Backend, Conn, Row, WriteTx, locked, map, text_in};
use super::fenced::Touch;
use super::leases::{read_turn, take as take_conversation};
use super::read::{col, id, size, text, text_in_or_null, text_or_null, word, word_or_null};
use super::rows::read_turn_answer;
use super::schema::Group;
use crate::admission::{AdmitOutcome, NewAdmission};
use crate::delegation::{
    self, DelegationEnd, DelegationRecord, DelegationRow, DelegationState, DelegationStore, NewDelegation, ResultClaim,
    ResultDelivery,
};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{AdmissionId, ConversationId, DelegationId, OwnerId, TurnId};
use crate::limits::{
    DELEGATION_KEEP_MS, DELEGATION_UNKNOWN_GRACE_MS, DELEGATIONS_KEPT, DELEGATIONS_PENDING_MAX, PAGE_MAX_ROWS,
    RESULT_AGE_MAX_MS, RESULT_ATTEMPTS_MAX, SWEEP_MAX_ROWS,
};
use crate::patience::WriteKind;
use crate::rules::{conflict, invalid, ms, not_found};

/// The child has no foreign key: it may be deleted when the delegation is over, and the result belongs to the parent.
pub(crate) const TABLES: Group = &[
    "CREATE TABLE async_delegations (
        id TEXT PRIMARY KEY NOT NULL,
        parent_id TEXT NOT NULL REFERENCES conversations (id),
        turn_id TEXT NOT NULL,
        child_id TEXT NOT NULL,
        admission_id TEXT NOT NULL,
        task TEXT NOT NULL,
        owner TEXT NOT NULL,
        state TEXT NOT NULL,
        result TEXT,
        delivery TEXT NOT NULL,
        attempts BIGINT NOT NULL,
        delivered_as TEXT,
        collected_by TEXT,
        dispatched_ms BIGINT NOT NULL,
        written_ms BIGINT NOT NULL,
        ended_ms BIGINT,
        delivered_ms BIGINT,
        claim_owner TEXT,
        claim_expires_ms BIGINT NOT NULL
    )",
    "CREATE INDEX delegations_by_parent ON async_delegations (parent_id)",
    "CREATE INDEX delegations_by_child ON async_delegations (child_id)",
    "CREATE INDEX delegations_running ON async_delegations (owner) WHERE state = 'running'",
    "CREATE INDEX delegations_unknown ON async_delegations (admission_id) WHERE state = 'unknown'",
    "CREATE INDEX delegations_to_deliver ON async_delegations (written_ms) WHERE delivery IN ('pending', 'claimed')",
    "CREATE INDEX delegations_ended ON async_delegations (ended_ms) WHERE delivery IN ('delivered', 'dropped')",
];

/// Columns of [`delegation`].
macro_rules! delegation_columns {
    () => {
        "id, parent_id, turn_id, child_id, admission_id, task, owner, state, result, delivery, attempts, \
         delivered_as, collected_by, dispatched_ms, written_ms, ended_ms, delivered_ms, claim_owner, claim_expires_ms"
    };
}

/// Nothing waits for it any more.
macro_rules! done {
    () => {
        "state IN ('completed', 'failed', 'cancelled') AND delivery IN ('delivered', 'dropped')"
    };
}

/// Nobody has a live claim on it at the time $1.
macro_rules! free {
    () => {
        "delivery IN ('pending', 'claimed') AND (delivery = 'pending' OR claim_expires_ms <= $1)"
    };
}

const DISPATCH: &str = "INSERT INTO async_delegations (id, parent_id, turn_id, child_id, admission_id, task, owner, \
     state, delivery, attempts, dispatched_ms, written_ms, claim_expires_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, 'running', 'pending', 0, $8, $8, 0) ON CONFLICT DO NOTHING";
const ONE: &str = concat!("SELECT ", delegation_columns!(), " FROM async_delegations WHERE id = $1");
/// Takes the row, which puts its writers in a line, and changes nothing yet.
const TAKE: &str =
    concat!("UPDATE async_delegations SET attempts = attempts WHERE id = $1 RETURNING ", delegation_columns!());
const SAVE: &str = "UPDATE async_delegations SET owner = $2, state = $3, result = $4, delivery = $5, attempts = $6, \
     delivered_as = $7, collected_by = $8, written_ms = $9, ended_ms = $10, delivered_ms = $11, claim_owner = $12, \
     claim_expires_ms = $13 WHERE id = $1";
const OPEN: &str = concat!("SELECT COUNT(*) FROM async_delegations WHERE parent_id = $1 AND NOT (", done!(), ")");
const INPUT: &str = "SELECT intent, payload FROM admissions WHERE id = $1";
const FORGET_DELIVERED: &str = concat!(
    "DELETE FROM async_delegations WHERE id IN (SELECT id FROM async_delegations WHERE parent_id = $1 AND ",
    done!(),
    " AND id NOT IN (SELECT id FROM async_delegations WHERE parent_id = $1 AND ",
    done!(),
    " ORDER BY ended_ms DESC, id DESC LIMIT $2) ORDER BY id",
    locked!(),
    ")"
);
const OF_CONVERSATION: &str = concat!(
    "SELECT ",
    delegation_columns!(),
    " FROM async_delegations WHERE parent_id = $1 OR child_id = $1 ORDER BY dispatched_ms DESC, id DESC LIMIT $2"
);
/// $2 is the newest time of becoming unknown that counts.
const DUE: &str = concat!(
    "SELECT ",
    delegation_columns!(),
    " FROM async_delegations WHERE ",
    free!(),
    " AND state <> 'running' AND (state <> 'unknown' OR written_ms <= $2) AND attempts < $3 \
     ORDER BY written_ms, id LIMIT $4"
);

const TAKE_BACK: &str = "UPDATE admissions SET status = 'terminal', outcome = 'cancelled' \
     WHERE id = $1 AND status = 'queued'";
const BUMP: &str = "UPDATE conversations SET revision = revision + 1 WHERE id = $1";

const OWNERS_AT_WORK: &str = "SELECT owner, MAX(written_ms) FROM async_delegations WHERE state = 'running' \
     GROUP BY owner ORDER BY owner";
/// Running ones of an owner, whose input somebody has begun, with the lease of the child.
const ORPHANS: &str = "SELECT d.id, c.lease_owner, c.lease_expires_ms FROM async_delegations d \
     LEFT JOIN conversations c ON c.id = d.child_id WHERE d.state = 'running' AND d.owner = $1 \
     AND NOT EXISTS (SELECT 1 FROM admissions a WHERE a.id = d.admission_id AND a.status = 'queued') ORDER BY d.id";
/// Unknown ones whose input is over.
const ENDED_UNKNOWN: &str = "SELECT d.id FROM async_delegations d JOIN admissions a ON a.id = d.admission_id \
     WHERE d.state = 'unknown' AND a.status = 'terminal' ORDER BY d.id LIMIT $1";
const FORGET_OLD: &str = concat!(
    "DELETE FROM async_delegations WHERE id IN (SELECT id FROM async_delegations WHERE id IN \
     (SELECT id FROM async_delegations WHERE ",
    done!(),
    " AND ended_ms <= $1 ORDER BY ended_ms, id LIMIT $2) ORDER BY id",
    locked!(),
    ")"
);
const GIVE_UP: &str = concat!(
    "UPDATE async_delegations SET delivery = 'dropped', claim_expires_ms = 0 WHERE id IN \
     (SELECT id FROM async_delegations WHERE ",
    free!(),
    " AND state <> 'running' AND (attempts >= $2 OR (attempts > 0 AND COALESCE(ended_ms, written_ms) <= $3)) \
     ORDER BY id LIMIT $4",
    locked!(),
    ") AND ",
    free!(),
    " AND state <> 'running' AND (attempts >= $2 OR (attempts > 0 AND COALESCE(ended_ms, written_ms) <= $3))"
);

const UNFINISHED: &str = "SELECT id FROM async_delegations WHERE (parent_id = $1 OR child_id = $1) \
     AND state IN ('running', 'unknown') ORDER BY id LIMIT 1";
const DELETE_OF_CONVERSATION: &str = "DELETE FROM async_delegations WHERE parent_id = $1";

/// A delegation from [`delegation_columns`].
fn read(row: &Row) -> Result<DelegationRow, StoreError> {
    let record = DelegationRecord {
        id: word(row, 0, id(DelegationId::parse))?,
        parent: word(row, 1, id(ConversationId::parse))?,
        turn: word(row, 2, id(TurnId::parse))?,
        child: word(row, 3, id(ConversationId::parse))?,
        input: word(row, 4, id(AdmissionId::parse))?,
        task: text(row, 5)?,
        owner: word(row, 6, id(OwnerId::parse))?,
        state: word(row, 7, DelegationState::parse)?,
        result: text_or_null(row, 8)?,
        delivery: word(row, 9, ResultDelivery::parse)?,
        attempts: col(row, 10)?,
        delivered_as: word_or_null(row, 11, id(AdmissionId::parse))?,
        collected_by: word_or_null(row, 12, id(TurnId::parse))?,
        dispatched_at_ms: col(row, 13)?,
        written_at_ms: col(row, 14)?,
        ended_at_ms: col(row, 15)?,
        delivered_at_ms: col(row, 16)?,
    };
    let claim_owner = word_or_null(row, 17, id(OwnerId::parse))?;
    Ok(DelegationRow { record, claim_owner, claim_expires_ms: col(row, 18)? })
}

async fn find(
    conn: &mut Conn,
    statement: &'static str,
    key: &DelegationId,
) -> Result<Option<DelegationRow>, StoreError> {
    let row = sqlx::query(statement).bind(key.as_str()).fetch_optional(conn).await.map_err(map)?;
    row.as_ref().map(read).transpose()
}

async fn take(conn: &mut Conn, id: &DelegationId) -> Result<DelegationRow, StoreError> {
    find(conn, TAKE, id).await?.ok_or_else(|| not_found("delegation", id))
}

async fn save(conn: &mut Conn, row: &DelegationRow) -> Result<(), StoreError> {
    let record = &row.record;
    sqlx::query(SAVE)
        .bind(record.id.as_str())
        .bind(record.owner.as_str())
        .bind(record.state.as_str())
        .bind(text_in_or_null(record.result.as_deref()))
        .bind(record.delivery.as_str())
        .bind(record.attempts)
        .bind(record.delivered_as.as_ref().map(AdmissionId::as_str))
        .bind(record.collected_by.as_ref().map(TurnId::as_str))
        .bind(record.written_at_ms)
        .bind(record.ended_at_ms)
        .bind(record.delivered_at_ms)
        .bind(row.claim_owner.as_ref().map(OwnerId::as_str))
        .bind(row.claim_expires_ms)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

/// Ends a change of one delegation.
async fn keep(mut tx: WriteTx, row: DelegationRow) -> Result<DelegationRecord, StoreError> {
    save(tx.conn(), &row).await?;
    tx.commit().await?;
    Ok(row.record)
}

/// Cancels the input of a child that is still queued. The child's row is taken.
async fn take_back(tx: &mut WriteTx, record: &DelegationRecord) -> Result<(), StoreError> {
    let done = sqlx::query(TAKE_BACK).bind(record.input.as_str()).execute(tx.conn()).await.map_err(map)?;
    if done.rows_affected() == 1 {
        sqlx::query(BUMP).bind(record.child.as_str()).execute(tx.conn()).await.map_err(map)?;
        tx.announce(&record.child);
    }
    Ok(())
}

/// Takes the row of a child that stands before its parent: two conversations are taken in the order of their ids, so that
/// two that give each other tasks do not wait for each other.
async fn take_before(conn: &mut Conn, parent: &ConversationId, child: &ConversationId) -> Result<(), StoreError> {
    if child < parent {
        take_conversation(conn, child).await?;
    }
    Ok(())
}

/// Whether the input of a known delegation is the one that is dispatched again; one that was deleted is not looked at.
async fn is_same_input(conn: &mut Conn, known: &DelegationRecord, new: &NewAdmission) -> Result<bool, StoreError> {
    let row = sqlx::query(INPUT).bind(known.input.as_str()).fetch_optional(conn).await.map_err(map)?;
    let Some(row) = row else { return Ok(true) };
    Ok(col::<&str>(&row, 0)? == new.intent.as_str() && text(&row, 1)? == new.payload)
}

/// Refuses to delete a conversation that gave or has a task which is not over; deletes what it gave away. What it was
/// given belongs to its parents.
pub(super) async fn forget(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    let open: Option<String> =
        sqlx::query_scalar(UNFINISHED).bind(conversation.as_str()).fetch_optional(&mut *conn).await.map_err(map)?;
    if let Some(open) = open {
        return Err(invalid(format!("delegation {open} of the conversation is not over")));
    }
    sqlx::query(DELETE_OF_CONVERSATION).bind(conversation.as_str()).execute(conn).await.map_err(map)?;
    Ok(())
}

impl Backend {
    /// Running delegations of an owner that is gone, which nobody who lives is at work on.
    async fn orphans_of(&self, conn: &mut Conn, owner: &OwnerId, now: i64) -> Result<Vec<DelegationId>, StoreError> {
        let rows = sqlx::query(ORPHANS).bind(owner.as_str()).fetch_all(&mut *conn).await.map_err(map)?;
        let mut found = Vec::new();
        for row in &rows {
            let lease = (word_or_null(row, 1, id(OwnerId::parse))?, col::<Option<i64>>(row, 2)?);
            if let (Some(holder), Some(expires_ms)) = lease
                && now < expires_ms
                && !self.is_gone(conn, &holder, now).await?
            {
                continue;
            }
            found.push(word(row, 0, id(DelegationId::parse))?);
        }
        Ok(found)
    }

    /// Ends or loses those that nobody is at work on; returns which were lost and how many ended.
    async fn settle_orphans(&self, conn: &mut Conn, now: i64) -> Result<(Vec<DelegationId>, u64), StoreError> {
        let owners = sqlx::query(OWNERS_AT_WORK).fetch_all(&mut *conn).await.map_err(map)?;
        let mut orphans = Vec::new();
        for row in &owners {
            let (owner, written_ms) = (word(row, 0, id(OwnerId::parse))?, col(row, 1)?);
            if self.is_orphaned(conn, &owner, written_ms, now).await? {
                let found = self.orphans_of(conn, &owner, now).await?;
                orphans.extend(found.into_iter().map(|id| (id, owner.clone())));
            }
        }
        orphans.sort_unstable();
        let mut lost = Vec::new();
        let mut ended = 0;
        for (id, owner) in orphans {
            if lost.len() >= SWEEP_MAX_ROWS {
                break;
            }
            // Somebody may have written, or adopted it, between the look and the taking.
            let Some(mut row) = find(conn, TAKE, &id).await? else { continue };
            if row.record.state != DelegationState::Running || row.record.owner != owner {
                continue;
            }
            if let Some(end) = end_by_journal(conn, &row.record).await? {
                ended += u64::from(row.finish(&end, now)?);
            } else {
                row.lose(now)?;
                lost.push(id);
            }
            save(conn, &row).await?;
        }
        Ok((lost, ended))
    }
}

/// What the journal of the child says of the end.
async fn end_by_journal(conn: &mut Conn, record: &DelegationRecord) -> Result<Option<DelegationEnd>, StoreError> {
    let input = match by_id(conn, &record.input).await {
        Ok(input) => input.receipt,
        // The child was deleted.
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(other) => return Err(other),
    };
    let mut turn = None;
    if let (Some(id), Some(_)) = (&input.turn, input.outcome) {
        let mut read = read_turn(conn, id).await?;
        read.answer = read_turn_answer(conn, id).await?;
        turn = Some(read);
    }
    Ok(delegation::end_by_journal(&input, turn.as_ref()))
}

/// Ends unknown delegations whose input is over; returns how many.
async fn end_unknown(conn: &mut Conn, now: i64) -> Result<u64, StoreError> {
    let rows = sqlx::query(ENDED_UNKNOWN).bind(size(SWEEP_MAX_ROWS)).fetch_all(&mut *conn).await.map_err(map)?;
    let mut ended = 0;
    for row in &rows {
        let id = word(row, 0, id(DelegationId::parse))?;
        let Some(mut row) = find(conn, TAKE, &id).await? else { continue };
        if row.record.state != DelegationState::Unknown {
            continue;
        }
        if let Some(end) = end_by_journal(conn, &row.record).await? {
            ended += u64::from(row.finish(&end, now)?);
            save(conn, &row).await?;
        }
    }
    Ok(ended)
}

/// Forgets and gives up what is old; returns how many rows changed.
async fn clear(conn: &mut Conn, now: i64) -> Result<u64, StoreError> {
    let before = now.saturating_sub(ms(DELEGATION_KEEP_MS));
    let forgotten = sqlx::query(FORGET_OLD).bind(before).bind(size(SWEEP_MAX_ROWS)).execute(&mut *conn).await;
    let given_up = sqlx::query(GIVE_UP)
        .bind(now)
        .bind(RESULT_ATTEMPTS_MAX)
        .bind(now.saturating_sub(ms(RESULT_AGE_MAX_MS)))
        .bind(size(SWEEP_MAX_ROWS))
        .execute(conn)
        .await;
    Ok(forgotten.map_err(map)?.rows_affected() + given_up.map_err(map)?.rows_affected())
}

#[async_trait]
impl DelegationStore for Backend {
    async fn dispatch(&self, fence: &Fence, turn: &TurnId, new: NewDelegation) -> Result<DelegationRecord, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let parent = fence.conversation();
        take_before(tx.conn(), parent, &new.child.id).await?;
        self.fence(&mut tx, fence, Some(turn), Touch::quiet(now, false)).await?;
        delegation::check_new(fence, &new)?;
        if let Some(known) = find(tx.conn(), ONE, &new.id).await? {
            known.again(fence, turn, &new)?;
            if !is_same_input(tx.conn(), &known.record, &new.input).await? {
                return Err(conflict("delegation", &new.id));
            }
            tx.commit().await?;
            return Ok(known.record);
        }
        let open: i64 = sqlx::query_scalar(OPEN).bind(parent.as_str()).fetch_one(tx.conn()).await.map_err(map)?;
        if open >= DELEGATIONS_PENDING_MAX {
            return Err(delegation::too_many());
        }
        create(tx.conn(), &new.child, now).await?;
        let AdmitOutcome::Accepted(receipt) = admit_within(&mut tx, &new.input, now).await? else {
            return Err(conflict("request", &new.input.request_id));
        };
        let row = DelegationRow::new(fence, turn, &new, receipt.admission, now);
        let inserted = sqlx::query(DISPATCH)
            .bind(new.id.as_str())
            .bind(parent.as_str())
            .bind(turn.as_str())
            .bind(new.child.id.as_str())
            .bind(row.record.input.as_str())
            .bind(text_in(&new.task))
            .bind(row.record.owner.as_str())
            .bind(now)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        if inserted.rows_affected() == 0 {
            return Err(conflict("delegation", &new.id));
        }
        let forget = sqlx::query(FORGET_DELIVERED).bind(parent.as_str()).bind(size(DELEGATIONS_KEPT));
        forget.execute(tx.conn()).await.map_err(map)?;
        tx.commit().await?;
        Ok(row.record)
    }

    async fn finish_delegation(
        &self,
        fence: &Fence,
        id: &DelegationId,
        end: DelegationEnd,
    ) -> Result<DelegationRecord, StoreError> {
        delegation::check_end(&end)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        // Which conversations a delegation has never changes.
        let seen = find(tx.conn(), ONE, id).await?;
        if let Some(seen) = seen.as_ref().filter(|seen| seen.is_cancel_of_parent(fence, &end)) {
            take_before(tx.conn(), fence.conversation(), &seen.record.child).await?;
        }
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let seen = seen.ok_or_else(|| not_found("delegation", id))?;
        let is_cancel = seen.is_cancel_of_parent(fence, &end);
        if is_cancel {
            // In this order everywhere: conversations by id, then the delegation.
            take_conversation(tx.conn(), &seen.record.child).await?;
        }
        let mut row = take(tx.conn(), id).await?;
        row.check_end(fence, &end)?;
        if row.finish(&end, now)? && is_cancel {
            take_back(&mut tx, &row.record).await?;
        }
        keep(tx, row).await
    }

    async fn adopt_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let mut row = take(tx.conn(), id).await?;
        row.adopt(fence, now)?;
        keep(tx, row).await
    }

    async fn lose_delegation(&self, fence: &Fence, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let mut row = take(tx.conn(), id).await?;
        row.lose_by(fence, now)?;
        keep(tx, row).await
    }

    async fn resolve_delegation(&self, id: &DelegationId, end: DelegationEnd) -> Result<DelegationRecord, StoreError> {
        delegation::check_end(&end)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let mut row = take(tx.conn(), id).await?;
        row.resolve(&end, now)?;
        keep(tx, row).await
    }

    async fn sweep_delegations(&self) -> Result<Vec<DelegationId>, StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let (lost, mut changed) = self.settle_orphans(tx.conn(), now).await?;
        changed += end_unknown(tx.conn(), now).await?;
        changed += clear(tx.conn(), now).await?;
        match lost.is_empty() && changed == 0 {
            true => tx.rollback().await?,
            false => tx.commit().await?,
        }
        Ok(lost)
    }

    async fn due_results(&self, limit: usize) -> Result<Vec<DelegationRecord>, StoreError> {
        // A write transaction, for the clock of ownership alone.
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let rows = sqlx::query(DUE)
            .bind(now)
            .bind(now.saturating_sub(ms(DELEGATION_UNKNOWN_GRACE_MS)))
            .bind(RESULT_ATTEMPTS_MAX)
            .bind(size(limit.min(SWEEP_MAX_ROWS)))
            .fetch_all(tx.conn())
            .await
            .map_err(map)?;
        tx.rollback().await?;
        rows.iter().map(|row| Ok(read(row)?.record)).collect()
    }

    async fn claim_result(
        &self,
        id: &DelegationId,
        owner: &OwnerId,
        lease_ms: u64,
    ) -> Result<Option<ResultClaim>, StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let mut row = take(tx.conn(), id).await?;
        if !row.claim(owner, lease_ms, now)? {
            tx.rollback().await?;
            return Ok(None);
        }
        Ok(Some(ResultClaim::new(keep(tx, row).await?)))
    }

    async fn deliver_result(&self, claim: &ResultClaim, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
        delegation::check_delivery(claim, &input)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let parent = &claim.record().parent;
        let is_there = take_conversation(tx.conn(), parent).await?.is_some();
        let mut row = take(tx.conn(), &claim.record().id).await?;
        let is_new = row.deliver(claim, &input.id, now)?;
        if !is_there {
            return Err(not_found("conversation", parent));
        }
        let done = admit_within(&mut tx, &input, now).await?;
        if done.receipt().admission != input.id {
            return Err(conflict("request", &input.request_id));
        }
        match is_new {
            true => keep(tx, row).await.map(drop)?,
            false => tx.rollback().await?,
        }
        Ok(done)
    }

    async fn release_result(&self, claim: &ResultClaim) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let Some(mut row) = find(tx.conn(), TAKE, &claim.record().id).await? else { return tx.rollback().await };
        match row.release(claim)? {
            true => keep(tx, row).await.map(drop),
            false => tx.rollback().await,
        }
    }

    async fn collect_result(
        &self,
        fence: &Fence,
        turn: &TurnId,
        id: &DelegationId,
    ) -> Result<DelegationRecord, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, Some(turn), Touch::quiet(now, false)).await?;
        let mut row = take(tx.conn(), id).await?;
        row.collect(fence, turn, now)?;
        keep(tx, row).await
    }

    async fn delegation(&self, id: &DelegationId) -> Result<DelegationRecord, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let row = find(&mut conn, ONE, id).await?;
        row.map(|row| row.record).ok_or_else(|| not_found("delegation", id))
    }

    async fn delegations(
        &self,
        conversation: &ConversationId,
        limit: usize,
    ) -> Result<Vec<DelegationRecord>, StoreError> {
        let rows = sqlx::query(OF_CONVERSATION)
            .bind(conversation.as_str())
            .bind(size(limit.min(PAGE_MAX_ROWS)))
            .fetch_all(self.readers())
            .await
            .map_err(map)?;
        rows.iter().map(|row| Ok(read(row)?.record)).collect()
    }
}
