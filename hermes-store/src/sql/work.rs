//! Workers, starts and presence.

use async_trait::async_trait;

use super::driver::{Backend, Conn, Row, WriteTx, locked, map, text_in};
use super::fenced::Touch;
use super::leases::PRUNE_OWNERS;
use super::read::{col, id, size, text, text_in_or_null, text_or_null, word, word_or_null};
use super::schema::Group;
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, ExecutionId, Generation, OwnerId};
use crate::limits::{OWNER_KEEP_MS, PAGE_MAX_ROWS, SWEEP_MAX_ROWS, WORKER_KEEP_MS};
use crate::owner::OwnerInfo;
use crate::patience::WriteKind;
use crate::rules::{OwnerRow, invalid, ms, not_found};
use crate::work::{
    self, Epoch, EpochRecord, NewReceipt, NewWorker, OwnerState, OwnerStatus, Presence, ReceiptRecord, ReceiptStep,
    RecordOutcome, RegisterOutcome, WorkStore, WorkerEnd, WorkerFence, WorkerFilter, WorkerKind, WorkerOutcome,
    WorkerRecord, WorkerRow, WorkerSecret, WorkerState,
};

pub(crate) const TABLES: Group = &[
    "CREATE TABLE worker_executions (
        id TEXT PRIMARY KEY NOT NULL,
        kind TEXT NOT NULL,
        task TEXT NOT NULL,
        conversation_id TEXT REFERENCES conversations (id),
        owner TEXT NOT NULL,
        generation BIGINT NOT NULL,
        state TEXT NOT NULL,
        last_sequence BIGINT NOT NULL,
        outcome TEXT,
        detail TEXT,
        registered_ms BIGINT NOT NULL,
        written_ms BIGINT NOT NULL,
        secret_digest TEXT NOT NULL,
        adopted_from BIGINT
    )",
    "CREATE UNIQUE INDEX workers_by_task ON worker_executions (task) WHERE state <> 'terminal'",
    "CREATE INDEX workers_by_conversation ON worker_executions (conversation_id) WHERE conversation_id IS NOT NULL",
    "CREATE INDEX workers_by_time ON worker_executions (registered_ms, id)",
    "CREATE INDEX workers_over ON worker_executions (written_ms) WHERE state = 'terminal'",
    "CREATE TABLE worker_receipts (
        execution_id TEXT NOT NULL REFERENCES worker_executions (id),
        sequence BIGINT NOT NULL,
        digest TEXT NOT NULL,
        result TEXT NOT NULL,
        recorded_ms BIGINT NOT NULL,
        PRIMARY KEY (execution_id, sequence)
    )",
    "CREATE TABLE worker_generations (
        singleton BIGINT PRIMARY KEY NOT NULL CHECK (singleton = 1),
        generation BIGINT NOT NULL
    )",
    "CREATE TABLE runtime_epoch (
        singleton BIGINT PRIMARY KEY NOT NULL CHECK (singleton = 1),
        epoch BIGINT NOT NULL,
        instance TEXT NOT NULL,
        begun_ms BIGINT NOT NULL
    )",
    "ALTER TABLE owners ADD COLUMN profile TEXT",
    "ALTER TABLE owners ADD COLUMN role TEXT",
    "ALTER TABLE owners ADD COLUMN started_ms BIGINT",
];

/// Columns of [`worker`].
macro_rules! worker_columns {
    () => {
        "id, kind, task, conversation_id, owner, generation, state, last_sequence, outcome, detail, registered_ms, \
         written_ms, secret_digest, adopted_from"
    };
}

/// The next generation of any worker. The row puts registrations and adoptions in a line.
const NEXT_GENERATION: &str = "INSERT INTO worker_generations (singleton, generation) VALUES (1, 1) \
     ON CONFLICT (singleton) DO UPDATE SET generation = worker_generations.generation + 1 RETURNING generation";
const REGISTER: &str = "INSERT INTO worker_executions (id, kind, task, conversation_id, owner, generation, state, \
     last_sequence, registered_ms, written_ms, secret_digest) \
     VALUES ($1, $2, $3, $4, $5, $6, 'registered', 0, $7, $7, $8) ON CONFLICT DO NOTHING";
const WORKER: &str = concat!("SELECT ", worker_columns!(), " FROM worker_executions WHERE id = $1");
const HOLDER: &str =
    concat!("SELECT ", worker_columns!(), " FROM worker_executions WHERE task = $1 AND state <> 'terminal'");
/// Takes a worker's row, which puts its writers in a line, and changes nothing yet.
const TAKE: &str =
    concat!("UPDATE worker_executions SET written_ms = written_ms WHERE id = $1 RETURNING ", worker_columns!());
const SAVE: &str = "UPDATE worker_executions SET owner = $2, generation = $3, state = $4, last_sequence = $5, \
     outcome = $6, detail = $7, written_ms = $8, adopted_from = $9 WHERE id = $1";
const WORKERS: &str = concat!(
    "SELECT ",
    worker_columns!(),
    " FROM worker_executions WHERE (CAST($1 AS TEXT) IS NULL OR kind = $1) \
     AND (CAST($2 AS TEXT) IS NULL OR conversation_id = $2) AND ($3 = 1 OR state <> 'terminal') \
     ORDER BY registered_ms DESC, id DESC LIMIT $4"
);

const RECEIPT: &str = "SELECT sequence, digest, result, recorded_ms FROM worker_receipts \
     WHERE execution_id = $1 AND sequence = $2";
const INSERT_RECEIPT: &str = "INSERT INTO worker_receipts (execution_id, sequence, digest, result, recorded_ms) \
     VALUES ($1, $2, $3, $4, $5)";
const RECEIPTS: &str = "SELECT sequence, digest, result, recorded_ms FROM worker_receipts \
     WHERE execution_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";

const OWNERS_AT_WORK: &str = "SELECT owner, MAX(written_ms) FROM worker_executions \
     WHERE state IN ('registered', 'running') GROUP BY owner ORDER BY owner";
/// Asks for all of it again outside: while it waited for a row, a living owner may have adopted the worker.
const LOSE_OF_OWNER: &str = concat!(
    "UPDATE worker_executions SET state = 'unknown', written_ms = $2 WHERE id IN \
     (SELECT id FROM worker_executions WHERE owner = $1 AND state IN ('registered', 'running') ORDER BY id LIMIT $3",
    locked!(),
    ") AND owner = $1 AND state IN ('registered', 'running') RETURNING id"
);
const OLD: &str = "SELECT id FROM worker_executions WHERE state = 'terminal' AND written_ms <= $1 \
     ORDER BY written_ms, id LIMIT $2";
const DELETE_RECEIPTS: &str = "DELETE FROM worker_receipts WHERE execution_id = $1";
const DELETE_WORKER: &str = "DELETE FROM worker_executions WHERE id = $1";

const UNFINISHED: &str =
    "SELECT id FROM worker_executions WHERE conversation_id = $1 AND state <> 'terminal' ORDER BY id LIMIT 1";
const DELETE_OF_CONVERSATION: [&str; 2] = [
    "DELETE FROM worker_receipts WHERE execution_id IN (SELECT id FROM worker_executions WHERE conversation_id = $1)",
    "DELETE FROM worker_executions WHERE conversation_id = $1",
];

const BEGIN_EPOCH: &str = "INSERT INTO runtime_epoch (singleton, epoch, instance, begun_ms) VALUES (1, 1, $1, $2) \
     ON CONFLICT (singleton) DO UPDATE SET epoch = runtime_epoch.epoch + 1, instance = excluded.instance, \
     begun_ms = excluded.begun_ms WHERE runtime_epoch.instance <> excluded.instance RETURNING epoch";
const EPOCH: &str = "SELECT epoch, instance, begun_ms FROM runtime_epoch WHERE singleton = 1";

const ANNOUNCE: &str = "INSERT INTO owners (id, host, boot_id, pid, pid_start, beat_ms, retired, profile, role, \
     started_ms) VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, $6) ON CONFLICT (id) DO UPDATE SET host = excluded.host, \
     boot_id = excluded.boot_id, pid = excluded.pid, pid_start = excluded.pid_start, beat_ms = excluded.beat_ms, \
     retired = 0, profile = excluded.profile, role = excluded.role, \
     started_ms = COALESCE(owners.started_ms, excluded.started_ms)";
const KNOWS_OWNER: &str = "SELECT COUNT(*) FROM owners WHERE id = $1";
const OWNERS: &str = "SELECT id, host, boot_id, pid, pid_start, beat_ms, retired, profile, role, started_ms \
     FROM owners ORDER BY beat_ms DESC, id DESC LIMIT $1";

/// A worker from [`worker_columns`].
fn worker(row: &Row) -> Result<WorkerRow, StoreError> {
    let outcome = word_or_null(row, 8, WorkerOutcome::parse)?;
    let detail = text_or_null(row, 9)?;
    let record = WorkerRecord {
        id: word(row, 0, id(ExecutionId::parse))?,
        kind: word(row, 1, WorkerKind::parse)?,
        task: text(row, 2)?,
        conversation: word_or_null(row, 3, id(ConversationId::parse))?,
        owner: word(row, 4, id(OwnerId::parse))?,
        generation: Generation(col(row, 5)?),
        state: word(row, 6, WorkerState::parse)?,
        last_sequence: col(row, 7)?,
        end: outcome.map(|outcome| WorkerEnd { outcome, detail }),
        registered_at_ms: col(row, 10)?,
        written_at_ms: col(row, 11)?,
    };
    let adopted_from = col::<Option<i64>>(row, 13)?.map(Generation);
    Ok(WorkerRow { record, digest: col(row, 12)?, adopted_from })
}

fn receipt(row: &Row) -> Result<ReceiptRecord, StoreError> {
    Ok(ReceiptRecord {
        sequence: col(row, 0)?,
        digest: col(row, 1)?,
        result: text(row, 2)?,
        recorded_at_ms: col(row, 3)?,
    })
}

async fn find(conn: &mut Conn, statement: &'static str, key: &str) -> Result<Option<WorkerRow>, StoreError> {
    let row = sqlx::query(statement).bind(key).fetch_optional(conn).await.map_err(map)?;
    row.as_ref().map(worker).transpose()
}

async fn take(conn: &mut Conn, id: &ExecutionId) -> Result<WorkerRow, StoreError> {
    find(conn, TAKE, id.as_str()).await?.ok_or_else(|| not_found("worker", id))
}

/// The row of a worker for a writer with a proof: one that is gone takes the proof with it.
async fn take_proved(conn: &mut Conn, fence: &WorkerFence) -> Result<WorkerRow, StoreError> {
    find(conn, TAKE, fence.execution().as_str()).await?.ok_or_else(|| fence.refused())
}

async fn save(conn: &mut Conn, row: &WorkerRow) -> Result<(), StoreError> {
    let record = &row.record;
    sqlx::query(SAVE)
        .bind(record.id.as_str())
        .bind(record.owner.as_str())
        .bind(record.generation.0)
        .bind(record.state.as_str())
        .bind(record.last_sequence)
        .bind(record.end.as_ref().map(|end| end.outcome.as_str()))
        .bind(text_in_or_null(record.end.as_ref().and_then(|end| end.detail.as_deref())))
        .bind(record.written_at_ms)
        .bind(row.adopted_from.map(|generation| generation.0))
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

/// Ends a change of one worker: saved when it changed.
async fn keep(mut tx: WriteTx, row: WorkerRow, changed: bool) -> Result<WorkerRecord, StoreError> {
    if changed {
        save(tx.conn(), &row).await?;
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    Ok(row.record)
}

async fn next_generation(conn: &mut Conn) -> Result<Generation, StoreError> {
    sqlx::query_scalar(NEXT_GENERATION).fetch_one(conn).await.map(Generation).map_err(map)
}

/// Refuses to delete a conversation whose worker is not over; deletes those that are.
pub(super) async fn forget(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    let open: Option<String> =
        sqlx::query_scalar(UNFINISHED).bind(conversation.as_str()).fetch_optional(&mut *conn).await.map_err(map)?;
    if let Some(open) = open {
        return Err(invalid(format!("worker {open} of the conversation is not over")));
    }
    for statement in DELETE_OF_CONVERSATION {
        sqlx::query(statement).bind(conversation.as_str()).execute(&mut *conn).await.map_err(map)?;
    }
    Ok(())
}

/// An owner with what it said of itself, and its facts as the rules know them.
fn status(row: &Row) -> Result<(OwnerStatus, OwnerRow), StoreError> {
    let info = OwnerInfo {
        id: word(row, 0, id(OwnerId::parse))?,
        host: text(row, 1)?,
        boot_id: text(row, 2)?,
        pid: col(row, 3)?,
        pid_start: col(row, 4)?,
    };
    let said = (text_or_null(row, 7)?, text_or_null(row, 8)?);
    let presence = match said {
        (Some(profile), Some(role)) => Some(Presence { profile, role }),
        _ => None,
    };
    let known = OwnerRow { info: info.clone(), beat_ms: col(row, 5)?, retired: col::<i64>(row, 6)? != 0 };
    let status = OwnerStatus {
        info,
        presence,
        started_at_ms: col(row, 9)?,
        beat_at_ms: known.beat_ms,
        state: OwnerState::Alive,
    };
    Ok((status, known))
}

impl Backend {
    /// Whether work of an owner is orphaned: the owner is gone, or it has no row and wrote nothing for long.
    pub(super) async fn is_orphaned(
        &self,
        conn: &mut Conn,
        owner: &OwnerId,
        written_ms: i64,
        now: i64,
    ) -> Result<bool, StoreError> {
        let known: i64 =
            sqlx::query_scalar(KNOWS_OWNER).bind(owner.as_str()).fetch_one(&mut *conn).await.map_err(map)?;
        match known {
            0 => Ok(work::is_forgotten(written_ms, now)),
            _ => self.is_gone(conn, owner, now).await,
        }
    }

    async fn lose_orphans(&self, conn: &mut Conn, now: i64) -> Result<Vec<ExecutionId>, StoreError> {
        let owners = sqlx::query(OWNERS_AT_WORK).fetch_all(&mut *conn).await.map_err(map)?;
        let mut lost = Vec::new();
        for row in &owners {
            let (owner, written_ms) = (word(row, 0, id(OwnerId::parse))?, col(row, 1)?);
            if !self.is_orphaned(conn, &owner, written_ms, now).await? {
                continue;
            }
            let left = size(SWEEP_MAX_ROWS.saturating_sub(lost.len()));
            let of_owner = sqlx::query(LOSE_OF_OWNER).bind(owner.as_str()).bind(now).bind(left);
            for row in of_owner.fetch_all(&mut *conn).await.map_err(map)? {
                lost.push(word(&row, 0, id(ExecutionId::parse))?);
            }
        }
        lost.sort_unstable();
        Ok(lost)
    }
}

/// Forgets workers that were over for long; returns how many.
async fn forget_old(conn: &mut Conn, now: i64) -> Result<usize, StoreError> {
    let before = now.saturating_sub(ms(WORKER_KEEP_MS));
    let old: Vec<String> =
        sqlx::query_scalar(OLD).bind(before).bind(size(SWEEP_MAX_ROWS)).fetch_all(&mut *conn).await.map_err(map)?;
    for worker in &old {
        for statement in [DELETE_RECEIPTS, DELETE_WORKER] {
            sqlx::query(statement).bind(worker).execute(&mut *conn).await.map_err(map)?;
        }
    }
    Ok(old.len())
}

#[async_trait]
impl WorkStore for Backend {
    async fn register_worker(&self, fence: Option<&Fence>, new: NewWorker) -> Result<RegisterOutcome, StoreError> {
        work::check_new(&new)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        if let Some(fence) = fence {
            self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        }
        let conversation = fence.map(Fence::conversation);
        let generation = next_generation(tx.conn()).await?;
        let row = WorkerRow::new(&new, conversation.cloned(), generation.0, now);
        let inserted = sqlx::query(REGISTER)
            .bind(new.id.as_str())
            .bind(new.kind.as_str())
            .bind(text_in(&new.task))
            .bind(conversation.map(ConversationId::as_str))
            .bind(new.owner.as_str())
            .bind(generation.0)
            .bind(now)
            .bind(&row.digest)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        if inserted.rows_affected() == 1 {
            tx.commit().await?;
            return Ok(RegisterOutcome::Registered(row.fence()));
        }
        if let Some(known) = find(tx.conn(), WORKER, new.id.as_str()).await? {
            tx.rollback().await?;
            return known.again(&new, conversation).map(RegisterOutcome::Registered);
        }
        let holder = find(tx.conn(), HOLDER, &text_in(&new.task)).await?;
        tx.rollback().await?;
        // It ended between the two statements: the caller may try again at once.
        let holder =
            holder.ok_or_else(|| StoreError::Retryable { detail: "the task became free just now".to_owned() })?;
        Ok(RegisterOutcome::Busy(Box::new(holder.record)))
    }

    async fn present_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
    ) -> Result<WorkerFence, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let row = find(&mut conn, WORKER, id.as_str()).await?.ok_or_else(|| not_found("worker", id))?;
        row.present(generation, secret)
    }

    async fn adopt_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        secret: &WorkerSecret,
        owner: &OwnerId,
    ) -> Result<(WorkerFence, WorkerRecord), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        // In this order everywhere: the counter, then the worker.
        let next = next_generation(tx.conn()).await?;
        let mut row = take(tx.conn(), id).await?;
        let changed = !row.was_adopted(generation, secret, owner)?;
        if changed {
            row.adopt(owner, next, now)?;
        }
        let fence = row.fence();
        Ok((fence, keep(tx, row, changed).await?))
    }

    async fn record_receipt(&self, fence: &WorkerFence, new: NewReceipt) -> Result<RecordOutcome, StoreError> {
        work::check_receipt(&new)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let execution = fence.execution().as_str();
        let mut row = take_proved(tx.conn(), fence).await?;
        if row.record(fence, new.sequence, now)? == ReceiptStep::Known {
            let known = sqlx::query(RECEIPT).bind(execution).bind(new.sequence).fetch_optional(tx.conn()).await;
            let known = known.map_err(map)?.ok_or_else(|| not_found("receipt", new.sequence))?;
            let known = receipt(&known)?;
            tx.rollback().await?;
            return work::replay(fence.execution(), &new, known);
        }
        let digest = new.digest();
        sqlx::query(INSERT_RECEIPT)
            .bind(execution)
            .bind(new.sequence)
            .bind(&digest)
            .bind(text_in(&new.result))
            .bind(now)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        keep(tx, row, true).await?;
        let record = ReceiptRecord { sequence: new.sequence, digest, result: new.result, recorded_at_ms: now };
        Ok(RecordOutcome::Recorded(record))
    }

    async fn finish_worker(&self, fence: &WorkerFence, end: WorkerEnd) -> Result<WorkerRecord, StoreError> {
        work::check_end(&end)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let mut row = take_proved(tx.conn(), fence).await?;
        let changed = row.finish(fence, &end, now)?;
        keep(tx, row, changed).await
    }

    async fn lose_worker(&self, fence: &WorkerFence) -> Result<WorkerRecord, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let mut row = take_proved(tx.conn(), fence).await?;
        row.check(fence)?;
        let changed = row.lose(now)?;
        keep(tx, row, changed).await
    }

    async fn resolve_worker(
        &self,
        id: &ExecutionId,
        generation: Generation,
        end: WorkerEnd,
    ) -> Result<WorkerRecord, StoreError> {
        work::check_end(&end)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        let mut row = take(tx.conn(), id).await?;
        let changed = row.resolve(generation, &end, now)?;
        keep(tx, row, changed).await
    }

    async fn sweep_workers(&self) -> Result<Vec<ExecutionId>, StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let forgotten = forget_old(tx.conn(), now).await?;
        let lost = self.lose_orphans(tx.conn(), now).await?;
        match lost.len() + forgotten {
            0 => tx.rollback().await?,
            _ => tx.commit().await?,
        }
        Ok(lost)
    }

    async fn worker(&self, id: &ExecutionId) -> Result<WorkerRecord, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        let row = find(&mut conn, WORKER, id.as_str()).await?;
        row.map(|row| row.record).ok_or_else(|| not_found("worker", id))
    }

    async fn workers(&self, filter: WorkerFilter) -> Result<Vec<WorkerRecord>, StoreError> {
        let rows = sqlx::query(WORKERS)
            .bind(filter.kind.map(WorkerKind::as_str))
            .bind(filter.conversation.as_ref().map(ConversationId::as_str))
            .bind(i64::from(filter.with_terminal))
            .bind(size(filter.limit.min(PAGE_MAX_ROWS)))
            .fetch_all(self.readers())
            .await
            .map_err(map)?;
        rows.iter().map(|row| Ok(worker(row)?.record)).collect()
    }

    async fn receipts(&self, id: &ExecutionId, after: i64, limit: usize) -> Result<Vec<ReceiptRecord>, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        find(&mut conn, WORKER, id.as_str()).await?.ok_or_else(|| not_found("worker", id))?;
        let rows = sqlx::query(RECEIPTS)
            .bind(id.as_str())
            .bind(after)
            .bind(size(limit.min(PAGE_MAX_ROWS)))
            .fetch_all(&mut *conn)
            .await
            .map_err(map)?;
        rows.iter().map(receipt).collect()
    }

    async fn begin_epoch(&self, instance: &OwnerId) -> Result<Epoch, StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let begun = sqlx::query_scalar(BEGIN_EPOCH).bind(instance.as_str()).bind(now).fetch_optional(tx.conn()).await;
        if let Some(epoch) = begun.map_err(map)? {
            tx.commit().await?;
            return Ok(Epoch(epoch));
        }
        let known = sqlx::query(EPOCH).fetch_one(tx.conn()).await.map_err(map)?;
        tx.rollback().await?;
        Ok(Epoch(col(&known, 0)?))
    }

    async fn current_epoch(&self) -> Result<Option<EpochRecord>, StoreError> {
        let row = sqlx::query(EPOCH).fetch_optional(self.readers()).await.map_err(map)?;
        let read = |row: &Row| {
            Ok(EpochRecord {
                epoch: Epoch(col(row, 0)?),
                instance: word(row, 1, id(OwnerId::parse))?,
                begun_at_ms: col(row, 2)?,
            })
        };
        row.as_ref().map(read).transpose()
    }

    async fn announce(&self, owner: &OwnerInfo, presence: &Presence) -> Result<(), StoreError> {
        work::check_presence(presence)?;
        let mut tx = self.write_within(WriteKind::Beat).await?;
        let now = tx.now();
        sqlx::query(ANNOUNCE)
            .bind(owner.id.as_str())
            .bind(text_in(&owner.host))
            .bind(text_in(&owner.boot_id))
            .bind(owner.pid)
            .bind(owner.pid_start)
            .bind(now)
            .bind(text_in(&presence.profile))
            .bind(text_in(&presence.role))
            .execute(tx.conn())
            .await
            .map_err(map)?;
        let before = now.saturating_sub(ms(OWNER_KEEP_MS));
        sqlx::query(PRUNE_OWNERS).bind(before).execute(tx.conn()).await.map_err(map)?;
        tx.commit().await
    }

    async fn owners(&self) -> Result<Vec<OwnerStatus>, StoreError> {
        // A write transaction, for the clock of ownership alone.
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        let rows = sqlx::query(OWNERS).bind(size(PAGE_MAX_ROWS)).fetch_all(tx.conn()).await.map_err(map)?;
        tx.rollback().await?;
        let rows: Vec<_> = rows.iter().map(status).collect::<Result<_, _>>()?;
        let probe = self.probe();
        // A probe reads files.
        let judged = tokio::task::spawn_blocking(move || {
            let judge = |(mut status, known): (OwnerStatus, OwnerRow)| {
                status.state = match () {
                    () if known.retired => OwnerState::Retired,
                    () if probe.is_provably_dead(&known.info) => OwnerState::Dead,
                    () if known.is_gone_by_time(now) => OwnerState::Silent,
                    () => OwnerState::Alive,
                };
                status
            };
            rows.into_iter().map(judge).collect()
        });
        judged.await.map_err(|error| StoreError::Io { detail: error.to_string() })
    }
}
