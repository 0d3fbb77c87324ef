//! Care of a SQLite file: backup, restore, check, vacuum.
//!
//! A restored store must never hand out a token or a generation that a lost one has handed out (I08): whoever still
//! holds one would be believed. Its counters, and those of everything that only a lost store knew, go on from the time:
//! [`RESTORE_COUNTS_PER_MS`] for each millisecond since the Unix epoch. No counter grows so fast, so that all that was
//! ever handed out is below, by this store, by the lost one, and by those that were restored and lost in between, even if
//! one backup is restored again and again and no lost file can be read. Should a clock have been set back, the time of
//! the last change of the lost file is taken; a counter that is above that too goes on a step further
//! ([`RESTORE_COUNTER_STEP`]). How far the lost store came is read from its file, if that is readable.
//!
//! What waited to be run when the backup was made may have been run since (I01, I14): it is not run again by itself.
//!
//! A platform sends a message again that it believes unanswered (I05). Which messages the lost store had received is read
//! from its file, if that is readable, and how far it came with them decides:
//!
//! | the input in the lost store | its receipt | a redelivery |
//! |---|---|---|
//! | is over | is kept, with its outcome | runs nothing: the answer was given |
//! | was begun, or is unknown | is kept, as interrupted | runs nothing: it may have had effects that no backup takes back |
//! | was queued | is not kept | runs: it never began, and is lost with its file |
//! | none: a command that moved a route | is not kept | moves the route: what it did is lost with its file |

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode};
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection};

use super::SqliteStore;
use super::errors::{is_busy, map};
use super::schema;
use super::write::LOCK_WAIT_MS;
use crate::error::StoreError;
use crate::limits::{
    RESTORE_COUNT_MAX, RESTORE_COUNTER_STEP, RESTORE_COUNTS_PER_MS, RESTORE_PAGE_ROWS, VACUUM_EVERY_MS,
    VACUUM_FREE_PERCENT,
};
use crate::maintenance::{CheckDepth, CheckReport, VacuumOutcome};
use crate::rules::{invalid, ms};

/// Only the user may read what was said.
const FILE_MODE: u32 = 0o600;
/// In the name of a copy that a backup makes, before its id.
pub(super) const PARTIAL_WORD: &str = ".partial-";
/// In the name of a copy that a restore makes, before its id.
pub(super) const RESTORE_WORD: &str = ".restore-";
/// In the name of a store that a restore put aside, before the time in milliseconds.
pub(super) const REPLACED_WORD: &str = ".replaced-";
/// Rights of the directory of a copy that is being made: its user alone.
const PARTIAL_MODE: u32 = 0o700;

const SPACE: &str = "SELECT (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count), \
     (SELECT page_size FROM pragma_page_size)";
const AT_WORK: &str = "SELECT id FROM conversations WHERE open_turn IS NOT NULL \
     OR (lease_owner IS NOT NULL AND lease_expires_ms > $1) LIMIT 1";
const PAGES: &str = "SELECT page_count FROM pragma_page_count";
const ROUTES: &str = "SELECT source, route_key, generation FROM routes";
const RAISE_ROUTE: &str = "INSERT INTO routes (source, route_key, generation) VALUES ($1, $2, $3) \
     ON CONFLICT (source, route_key) DO UPDATE SET generation = MAX(generation, excluded.generation)";
const LOOSE: &str = "SELECT COUNT(*), MIN(\"table\") FROM pragma_foreign_key_check";
const LAST_VACUUM: &str = "SELECT done_ms FROM maintenance WHERE name = 'vacuum'";
const NOTE_VACUUM: &str = "INSERT INTO maintenance (name, done_ms) VALUES ('vacuum', $1) \
     ON CONFLICT (name) DO UPDATE SET done_ms = excluded.done_ms";

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RestoreReport {
    /// Where the file that was there is now; none when there was none.
    pub replaced: Option<PathBuf>,
    /// Whether that file could be read: how far its counters came, and which messages it had received.
    pub read_counters: bool,
    /// Messages that only that file had received: a platform that sends one again runs nothing.
    #[serde(default)]
    pub receipts: u64,
    /// Inputs that waited to be run and were cancelled.
    pub cancelled: u64,
    /// Inputs that were at work and must be resolved by a person.
    pub unknown: u64,
    /// Deliveries that were not over; nobody knows whether they were sent since.
    #[serde(default)]
    pub deliveries: u64,
    /// Open questions that were withdrawn.
    #[serde(default)]
    pub approvals: u64,
    /// Workers that were at work and are unknown now.
    #[serde(default)]
    pub workers: u64,
    /// Delegations that were at work; no result is carried to a parent by itself.
    #[serde(default)]
    pub delegations: u64,
}

fn io(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::NotFound { what: format!("{}", path.display()) },
        std::io::ErrorKind::StorageFull => StoreError::Full,
        std::io::ErrorKind::AlreadyExists => {
            invalid(format!("{} is there already and is not written over; name another file", path.display()))
        }
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly { detail: format!("{}: {error}", path.display()) }
        }
        _ => StoreError::Io { detail: format!("{}: {error}", path.display()) },
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Io { detail: error.to_string() })?
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn sync(path: &Path) -> Result<(), StoreError> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(|error| io(path, &error))
}

/// An empty file of ours beside `path`, under a name that nobody uses.
fn make_beside(path: &Path, word: &str) -> Result<PathBuf, StoreError> {
    let at = beside(path, &format!("{word}{}", uuid::Uuid::now_v7().simple()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&at);
    made.map_err(|error| io(&at, &error))?;
    Ok(at)
}

/// A copy that is being made, in a directory of its own beside the place where it is to be. It goes with this value,
/// also when whoever waits for the copy gives up: SQLite, which writes on meanwhile, finds no place for a new file then.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> Result<Self, StoreError> {
        let at = beside(path, &format!("{PARTIAL_WORD}{}", uuid::Uuid::now_v7().simple()));
        std::fs::DirBuilder::new().mode(PARTIAL_MODE).create(&at).map_err(|error| io(&directory_of(path), &error))?;
        let partial = Self(at);
        // Made here, so that only its user can ever read it.
        let file = partial.file();
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&file);
        made.map_err(|error| io(&file, &error))?;
        Ok(partial)
    }

    fn file(&self) -> PathBuf {
        self.0.join("copy.db")
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Gives a finished file its name, unless that is taken, and waits for the disk.
fn publish(from: &Path, to: &Path) -> Result<(), StoreError> {
    sync(from)?;
    // A link, unlike a rename, never replaces what is there.
    let linked = std::fs::hard_link(from, to).map_err(|error| io(to, &error));
    let _ = std::fs::remove_file(from);
    linked?;
    sync(&directory_of(to))
}

impl SqliteStore {
    pub(super) async fn check_engine(&self, depth: CheckDepth, report: &mut CheckReport) -> Result<(), StoreError> {
        let (pragma, fine) = match depth {
            CheckDepth::Quick => ("PRAGMA quick_check(100)", "ok"),
            CheckDepth::Full => ("PRAGMA integrity_check(100)", "ok"),
        };
        let found: Vec<String> = sqlx::query_scalar(pragma).fetch_all(self.readers()).await.map_err(map)?;
        let bad: Vec<&String> = found.iter().filter(|line| *line != fine).collect();
        report.add(
            "pages or indexes of the file are damaged",
            bad.len() as u64,
            bad.first().map(|line| (*line).clone()),
        );
        let row = sqlx::query(LOOSE).fetch_one(self.readers()).await.map_err(map)?;
        let count: i64 = row.try_get(0).map_err(map)?;
        report.add("rows refer to something that is not there", count.unsigned_abs(), row.try_get(1).map_err(map)?);
        Ok(())
    }

    /// `VACUUM INTO` reads one snapshot, so that turns go on; SQLite itself does not wait for the disk.
    pub(super) async fn copy_file(&self, to: &Path) -> Result<(), StoreError> {
        let target = to.to_owned();
        let partial = blocking(move || {
            if target.try_exists().map_err(|error| io(&target, &error))? {
                return Err(io(&target, &std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
            }
            Partial::beside(&target)
        })
        .await?;
        let name = partial.file().to_str().map(str::to_owned);
        let written = match name {
            Some(name) => sqlx::query("VACUUM INTO $1").bind(name).execute(self.readers()).await.map(drop).map_err(map),
            None => Err(invalid("the name of the backup must be UTF-8")),
        };
        let target = to.to_owned();
        blocking(move || written.and_then(|()| publish(&partial.file(), &target))).await
    }

    pub(super) async fn vacuum_file(&self, force: bool) -> Result<VacuumOutcome, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let at_work: Option<String> =
            sqlx::query_scalar(AT_WORK).bind(now).fetch_optional(tx.conn()).await.map_err(map)?;
        if let Some(conversation) = at_work {
            tx.rollback().await?;
            return Ok(VacuumOutcome::TurnRuns { conversation });
        }
        let space = sqlx::query(SPACE).fetch_one(tx.conn()).await.map_err(map)?;
        let pages: i64 = space.try_get(0).map_err(map)?;
        let free: i64 = space.try_get(1).map_err(map)?;
        let page_bytes: i64 = space.try_get(2).map_err(map)?;
        let free_percent = (free * 100 / pages.max(1)).unsigned_abs();
        let last: Option<i64> = sqlx::query_scalar(LAST_VACUUM).fetch_optional(tx.conn()).await.map_err(map)?;
        if !force && free_percent <= VACUUM_FREE_PERCENT {
            tx.rollback().await?;
            return Ok(VacuumOutcome::NotNeeded { free_percent });
        }
        if let Some(last) = last.filter(|last| !force && now.saturating_sub(*last) < ms(VACUUM_EVERY_MS)) {
            tx.rollback().await?;
            return Ok(VacuumOutcome::TooSoon { not_before_ms: last.saturating_add(ms(VACUUM_EVERY_MS)) });
        }
        let path = self.shared.path.clone();
        if !force && blocking(move || Ok(is_open_elsewhere(&path))).await? {
            tx.rollback().await?;
            return Ok(VacuumOutcome::OpenElsewhere);
        }
        sqlx::query(NOTE_VACUUM).bind(now).execute(tx.conn()).await.map_err(map)?;
        tx.commit().await?;
        // A turn that begins now waits for the lock, as it would for any other write.
        let mut conn = connect(&self.shared.path).connect().await.map_err(map)?;
        let done = sqlx::query("VACUUM").execute(&mut conn).await;
        let after: Result<i64, _> = sqlx::query_scalar(PAGES).fetch_one(&mut conn).await;
        let _ = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut conn).await;
        let _ = conn.close().await;
        done.map_err(map)?;
        let freed = pages.saturating_sub(after.map_err(map)?).max(0).saturating_mul(page_bytes);
        Ok(VacuumOutcome::Done { freed_bytes: freed.unsigned_abs() })
    }
}

fn connect(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).foreign_keys(true).busy_timeout(Duration::from_millis(LOCK_WAIT_MS))
}

fn in_use() -> StoreError {
    invalid("the store is open; end every program and gateway of this home, close it in this one, and try again")
}

/// Takes the file for itself, or fails: leaving WAL mode needs that no other connection exists at all.
async fn seize(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options = connect(path).locking_mode(SqliteLockingMode::Exclusive).pragma("query_only", "OFF");
    let refused = |error: sqlx::Error| if is_busy(&error) { in_use() } else { map(error) };
    let mut conn = options.connect().await.map_err(refused)?;
    let mode: String =
        sqlx::query_scalar("PRAGMA journal_mode = DELETE").fetch_one(&mut conn).await.map_err(refused)?;
    if !mode.eq_ignore_ascii_case("delete") {
        return Err(in_use());
    }
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut conn).await.map_err(refused)?;
    Ok(conn)
}

/// The counters of a store, by conversation. Those of conversations that are gone are among them.
const COUNTERS: &str = "SELECT id, MAX(token), MAX(generation), MAX(seq), MAX(place) FROM (\
     SELECT id, token, generation, seq, place FROM conversations UNION ALL \
     SELECT id, token, generation, seq, place FROM tombstones) WHERE id > $1 GROUP BY id ORDER BY id LIMIT $2";
const RAISE_TO: &str = "INSERT INTO tombstones (id, token, generation, seq, place) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (id) DO UPDATE SET token = MAX(token, excluded.token), generation = MAX(generation, \
     excluded.generation), seq = MAX(seq, excluded.seq), place = MAX(place, excluded.place)";
/// The floor of conversations that nobody here has ever heard of.
const FLOOR: &str = "INSERT INTO tombstones (id, token, generation, seq, place) VALUES ('*', 0, 0, 0, 0) \
     ON CONFLICT (id) DO NOTHING";
/// $1 is the floor of every counter, $2 what is added to one that is above it.
const RAISE_TOMBSTONES: &str = "UPDATE tombstones SET token = MAX($1, token + $2 * (token >= $1)), \
     generation = MAX($1, generation + $2 * (generation >= $1)), seq = MAX($1, seq + $2 * (seq >= $1)), \
     place = MAX($1, place + $2 * (place >= $1))";
/// After the tombstones, whose counters are above everything now. $3 is the time. Nobody holds a lease in a store that
/// was just restored.
const RAISE_CONVERSATIONS: &str = "UPDATE conversations SET \
     token = MAX($1, token + $2 * (token >= $1), COALESCE((SELECT t.token FROM tombstones t \
     WHERE t.id = conversations.id), 0)), \
     generation = MAX($1, generation + $2 * (generation >= $1), COALESCE((SELECT t.generation FROM tombstones t \
     WHERE t.id = conversations.id), 0)), \
     seq = MAX($1, seq + $2 * (seq >= $1), COALESCE((SELECT t.seq FROM tombstones t WHERE t.id = conversations.id), 0)), \
     place = MAX($1, place + $2 * (place >= $1), COALESCE((SELECT t.place FROM tombstones t \
     WHERE t.id = conversations.id), 0)), \
     revision = MAX($1, revision + $2 * (revision >= $1)), \
     lease_owner = NULL, lease_expires_ms = 0, freed_ms = $3, open_turn = NULL";
const RAISE_OTHERS: &[&str] = &[
    "UPDATE routes SET generation = MAX($1, generation + $2 * (generation >= $1))",
    "UPDATE compression_locks SET token = MAX($1, token + $2 * (token >= $1))",
    // Also when the backup has none: the lost store may have begun to count.
    "INSERT INTO worker_generations (singleton, generation) VALUES (1, $1) ON CONFLICT (singleton) \
     DO UPDATE SET generation = MAX($1, generation + $2 * (generation >= $1))",
    "INSERT INTO runtime_epoch (singleton, epoch, instance, begun_ms) VALUES (1, $1, 'restore', 0) \
     ON CONFLICT (singleton) DO UPDATE SET epoch = MAX($1, epoch + $2 * (epoch >= $1))",
];
/// Counters of a lost store that belong to no conversation, each with the statement that carries it over.
const SINGLE_COUNTERS: &[(&str, &str)] = &[
    (
        "SELECT COALESCE(MAX(generation), 0) FROM worker_generations",
        "INSERT INTO worker_generations (singleton, generation) VALUES (1, $1) ON CONFLICT (singleton) \
         DO UPDATE SET generation = MAX(generation, excluded.generation)",
    ),
    (
        "SELECT COALESCE(MAX(epoch), 0) FROM runtime_epoch",
        "INSERT INTO runtime_epoch (singleton, epoch, instance, begun_ms) VALUES (1, $1, 'restore', 0) \
         ON CONFLICT (singleton) DO UPDATE SET epoch = MAX(epoch, excluded.epoch)",
    ),
    // Locks of sessions that only the lost store knew begin above the floor of tokens.
    (
        "SELECT COALESCE(MAX(token), 0) FROM compression_locks",
        "INSERT INTO tombstones (id, token, generation, seq, place) VALUES ('*', $1, 0, 0, 0) \
         ON CONFLICT (id) DO UPDATE SET token = MAX(token, excluded.token)",
    ),
    ("SELECT COALESCE(MAX(token), 0) FROM compression_locks", "UPDATE compression_locks SET token = MAX(token, $1)"),
];
/// What a lost store had received, but for commands and for inputs that had not begun. See the module for why.
const LOST_RECEIPTS: &str = "SELECT r.id, r.account, r.chat, r.ref_kind, r.ref_id, r.conversation_id, r.admission_id, \
     COALESCE(a.seq, r.seq), CASE WHEN a.status IN ('started', 'unknown') THEN 'interrupted' \
     ELSE COALESCE(a.outcome, r.outcome) END, COALESCE(a.generation, r.generation), COALESCE(a.turn_id, r.turn_id), \
     r.digest, r.last_digest, r.edits, r.received_ms FROM inbound_receipts r LEFT JOIN admissions a \
     ON a.id = r.admission_id WHERE r.id > $1 AND r.admission_id IS NOT NULL AND (a.id IS NULL OR a.status <> 'queued') \
     ORDER BY r.id LIMIT $2";
const KEEP_RECEIPT: &str = "INSERT INTO inbound_receipts (id, account, chat, ref_kind, ref_id, conversation_id, \
     admission_id, seq, outcome, generation, turn_id, digest, last_digest, edits, received_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (id) DO NOTHING";
/// What is written beside everything whose fate a restore leaves open.
const RESTORED: &str = "the store was restored from a backup; what happened after it is not known";
/// $1 is the time, $2 the reason. May have been sent since: nothing is sent a second time unasked.
const DOUBT_DELIVERIES: &str = "UPDATE deliveries SET state = 'ambiguous', lease_expires_ms = NULL, not_before_ms = NULL, \
     error = CASE WHEN error IS NULL THEN $2 ELSE $2 || '; before that: ' || error END \
     WHERE is_open = 1 AND state <> 'ambiguous' AND $1 = $1";
/// Silence is a no (I23).
const WITHDRAW_APPROVALS: &str =
    "UPDATE approvals SET state = 'withdrawn', ended_ms = $1, reason = $2 WHERE state = 'open'";
const LOSE_WORKERS: &str = "UPDATE worker_executions SET state = 'unknown', written_ms = $1, detail = $2 \
     WHERE state IN ('registered', 'running')";
/// The input of the child is cancelled too; that it was taken back before it began cannot be said.
const CANCEL_DELEGATIONS: &str = "UPDATE async_delegations SET state = 'cancelled', written_ms = $1, ended_ms = $1, \
     result = $2 WHERE state = 'running' AND EXISTS (SELECT 1 FROM admissions a \
     WHERE a.id = async_delegations.admission_id AND a.status = 'queued')";
const LOSE_DELEGATIONS: &str = "UPDATE async_delegations SET state = 'unknown', written_ms = $1, result = $2 \
     WHERE state = 'running'";
/// A result that was on its way may have run a turn of the parent. A turn may still take it.
const DROP_RESULTS: &str = "UPDATE async_delegations SET delivery = 'dropped', claim_expires_ms = 0 \
     WHERE delivery IN ('pending', 'claimed') AND $1 = $1 AND $2 = $2";
const CANCEL_WAITING: &str = "UPDATE admissions SET status = 'terminal', outcome = 'cancelled' WHERE status = 'queued'";
const LOSE_STARTED: &str = "UPDATE admissions SET status = 'unknown' WHERE status = 'started'";
/// A file of the index that stands beside the new store is another store's.
const FORGET_INDEX: &str = "DELETE FROM search_index";
const DOUBT_CALLS: &str = "UPDATE calls SET state = 'started' WHERE state = 'recorded'";

async fn raise_to(lost: &mut SqliteConnection, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut after = String::new();
    loop {
        let rows = sqlx::query(COUNTERS).bind(&after).bind(RESTORE_PAGE_ROWS).fetch_all(&mut *lost).await?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(0)?;
        for row in &rows {
            sqlx::query(RAISE_TO)
                .bind(row.try_get::<String, _>(0)?)
                .bind(row.try_get::<i64, _>(1)?)
                .bind(row.try_get::<i64, _>(2)?)
                .bind(row.try_get::<i64, _>(3)?)
                .bind(row.try_get::<i64, _>(4)?)
                .execute(&mut *conn)
                .await?;
        }
    }
    let routes = sqlx::query(ROUTES).fetch_all(&mut *lost).await?;
    for row in &routes {
        sqlx::query(RAISE_ROUTE)
            .bind(row.try_get::<String, _>(0)?)
            .bind(row.try_get::<String, _>(1)?)
            .bind(row.try_get::<i64, _>(2)?)
            .execute(&mut *conn)
            .await?;
    }
    for (count, raise) in SINGLE_COUNTERS {
        let count: i64 = sqlx::query_scalar(*count).fetch_one(&mut *lost).await?;
        sqlx::query(*raise).bind(count).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Carries over which messages the lost store had received; returns how many.
async fn keep_receipts(lost: &mut SqliteConnection, conn: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    let (mut after, mut kept) = (String::new(), 0);
    loop {
        let rows = sqlx::query(LOST_RECEIPTS).bind(&after).bind(RESTORE_PAGE_ROWS).fetch_all(&mut *lost).await?;
        let Some(last) = rows.last() else { return Ok(kept) };
        after = last.try_get(0)?;
        for row in &rows {
            let mut keep = sqlx::query(KEEP_RECEIPT);
            for at in [0, 1, 2, 3, 4, 5, 6] {
                keep = keep.bind(row.try_get::<Option<String>, _>(at)?);
            }
            keep = keep.bind(row.try_get::<Option<i64>, _>(7)?).bind(row.try_get::<Option<String>, _>(8)?);
            keep = keep.bind(row.try_get::<Option<i64>, _>(9)?);
            for at in [10, 11, 12] {
                keep = keep.bind(row.try_get::<Option<String>, _>(at)?);
            }
            keep = keep.bind(row.try_get::<i64, _>(13)?).bind(row.try_get::<i64, _>(14)?);
            kept += keep.execute(&mut *conn).await?.rows_affected();
        }
    }
}

/// Raises every counter above all that was ever handed out.
async fn raise_all(conn: &mut SqliteConnection, floor: i64, now_ms: i64) -> Result<(), sqlx::Error> {
    sqlx::query(FLOOR).execute(&mut *conn).await?;
    for statement in std::iter::once(&RAISE_TOMBSTONES).chain(RAISE_OTHERS) {
        sqlx::query(*statement).bind(floor).bind(RESTORE_COUNTER_STEP).execute(&mut *conn).await?;
    }
    let raise = sqlx::query(RAISE_CONVERSATIONS).bind(floor).bind(RESTORE_COUNTER_STEP).bind(now_ms);
    raise.execute(conn).await?;
    Ok(())
}

/// Below which no counter of a restored store may begin, given the latest time that is known.
fn floor_at(latest_ms: i64) -> i64 {
    latest_ms.max(0).saturating_mul(RESTORE_COUNTS_PER_MS).min(RESTORE_COUNT_MAX)
}

/// When a store's file or its log was changed last, in milliseconds since the Unix epoch; 0 when there is none.
fn changed_ms(path: &Path) -> i64 {
    let changed = |path: PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some(found.mtime().saturating_mul(1_000).saturating_add(found.mtime_nsec() / 1_000_000))
    };
    [path.to_owned(), beside(path, "-wal")].into_iter().filter_map(changed).max().unwrap_or(0)
}

/// Says of a damage that it is the backup's: nobody shall believe that the store is damaged.
fn of_backup(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { detail } => StoreError::Corrupt { detail: format!("the backup: {detail}") },
        other => other,
    }
}

/// Makes a copy of a backup into a store that may follow a lost one.
async fn prepare(
    file: &Path,
    lost: Option<&mut SqliteConnection>,
    (now_ms, floor): (i64, i64),
    report: &mut RestoreReport,
) -> Result<(), StoreError> {
    let options = connect(file).journal_mode(SqliteJournalMode::Delete);
    let mut conn = options.connect().await.map_err(map).map_err(of_backup)?;
    let status = schema::status(&mut conn).await.map_err(of_backup)?;
    schema::check_known(status.version, status.objects)?;
    if status.version == 0 {
        return Err(invalid("the backup is empty; it holds no store"));
    }
    let sound: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut conn).await.map_err(map)?;
    if sound != "ok" {
        return Err(StoreError::Corrupt { detail: format!("the backup: {sound}") });
    }
    schema::migrate(&mut conn, now_ms).await?;
    let mut tx = conn.begin().await.map_err(map)?;
    if let Some(lost) = lost {
        // A store that is too damaged to be read is what restores are for; the floor covers its counters.
        let raised = raise_to(lost, &mut tx).await.is_ok();
        let kept = keep_receipts(lost, &mut tx).await;
        report.read_counters = raised && kept.is_ok();
        report.receipts = kept.unwrap_or(0);
    }
    raise_all(&mut tx, floor, now_ms).await.map_err(map)?;
    let mut doubt = async |statement| {
        let done = sqlx::query(statement).bind(now_ms).bind(RESTORED).execute(&mut *tx).await;
        done.map(|done| done.rows_affected()).map_err(map)
    };
    report.deliveries = doubt(DOUBT_DELIVERIES).await?;
    report.approvals = doubt(WITHDRAW_APPROVALS).await?;
    report.workers = doubt(LOSE_WORKERS).await?;
    report.delegations = doubt(CANCEL_DELEGATIONS).await? + doubt(LOSE_DELEGATIONS).await?;
    doubt(DROP_RESULTS).await?;
    // The index may know rows that are gone.
    sqlx::query(FORGET_INDEX).execute(&mut *tx).await.map_err(map)?;
    report.cancelled = sqlx::query(CANCEL_WAITING).execute(&mut *tx).await.map_err(map)?.rows_affected();
    report.unknown = sqlx::query(LOSE_STARTED).execute(&mut *tx).await.map_err(map)?.rows_affected();
    sqlx::query(DOUBT_CALLS).execute(&mut *tx).await.map_err(map)?;
    tx.commit().await.map_err(map)?;
    conn.close().await.map_err(map)
}

fn copy_backup(backup: &Path, store: &Path) -> Result<PathBuf, StoreError> {
    let log = std::fs::metadata(beside(backup, "-wal")).map_or(0, |found| found.len());
    if log > 0 {
        return Err(invalid(format!(
            "{} is a store in use, not a backup; make one of it with `hermes store backup`",
            backup.display()
        )));
    }
    if !backup.is_file() {
        return Err(StoreError::NotFound { what: format!("the backup {}", backup.display()) });
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory_of(store))
        .map_err(|error| io(store, &error))?;
    let partial = make_beside(store, RESTORE_WORD)?;
    match std::fs::copy(backup, &partial) {
        Ok(_) => Ok(partial),
        Err(error) => {
            let _ = std::fs::remove_file(&partial);
            Err(io(backup, &error))
        }
    }
}

/// Puts `partial` in the place of `store`; what was there is kept.
fn replace(partial: &Path, store: &Path, now_ms: i64) -> Result<Option<PathBuf>, StoreError> {
    // The copy took the mode of the backup.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(FILE_MODE);
    std::fs::set_permissions(partial, mode).map_err(|error| io(partial, &error))?;
    sync(partial)?;
    let kept = beside(store, &format!("{REPLACED_WORD}{now_ms}"));
    let was_there = match std::fs::hard_link(store, &kept) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(io(&kept, &error)),
    };
    for suffix in ["-wal", "-shm"] {
        // A log of the old file must never be taken for one of the new.
        let _ = std::fs::rename(beside(store, suffix), beside(&kept, suffix));
    }
    std::fs::rename(partial, store).map_err(|error| io(store, &error))?;
    sync(&directory_of(store))?;
    Ok(was_there.then_some(kept))
}

/// Puts a backup in the place of the store at `store`, which nobody may have open. The file that was there is kept
/// beside it. See the module for what is done to counters and inputs.
///
/// # Errors
/// [`StoreError::Invalid`] while somebody has the store open, and for a backup that is empty, in use or another
/// program's database; [`StoreError::NotFound`]; [`StoreError::TooNew`]; [`StoreError::Corrupt`] for a backup that is
/// damaged or no database at all; those of the file system. Until the last step the old store is untouched.
pub async fn restore(backup: &Path, store: &Path, now_ms: i64) -> Result<RestoreReport, StoreError> {
    let (from, to) = (backup.to_owned(), store.to_owned());
    let partial = blocking(move || copy_backup(&from, &to)).await?;
    let result = restore_to(&partial, store, now_ms).await;
    if result.is_err() {
        let _ = tokio::fs::remove_file(&partial).await;
    }
    result
}

async fn restore_to(partial: &Path, store: &Path, now_ms: i64) -> Result<RestoreReport, StoreError> {
    let mut report = RestoreReport::default();
    let path = store.to_owned();
    // Before the file is opened, which changes it.
    let changed_ms = blocking(move || Ok(changed_ms(&path))).await?;
    let is_there = tokio::fs::try_exists(store).await.map_err(|error| io(store, &error))?;
    // Held until the new file is in its place.
    let mut lost = match is_there {
        true => match seize(store).await {
            Ok(conn) => Some(conn),
            // Too damaged even for a lock; that it is open elsewhere would show in its shared memory.
            Err(StoreError::Corrupt { .. }) if !is_open_elsewhere(store) => None,
            Err(error) => return Err(error),
        },
        false => None,
    };
    prepare(partial, lost.as_mut(), (now_ms, floor_at(now_ms.max(changed_ms))), &mut report).await?;
    let (from, to) = (partial.to_owned(), store.to_owned());
    report.replaced = blocking(move || replace(&from, &to, now_ms)).await?;
    if let Some(lost) = lost {
        let _ = lost.close().await;
    }
    Ok(report)
}

/// The `-shm` files that were looked at. To close one would end every lock that this process
/// has on it, those of SQLite too (that is how locks of `fcntl` are); so they stay open as long as the file exists.
static LOOKED_AT: std::sync::Mutex<Vec<std::fs::File>> = std::sync::Mutex::new(Vec::new());

/// Whether another process has a database open in WAL mode: asks for a lock that cannot be had then, and takes none.
/// This process may have it open itself.
pub(crate) fn is_open_elsewhere(path: &Path) -> bool {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;
    /// The byte of the `-shm` file that every process with the database open has locked (SQLite, "WAL-index format").
    const ALIVE_BYTE: i64 = 128;
    let shm = beside(path, "-shm");
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // One that has no name any more is not SQLite's either.
    looked_at.retain(|file| file.metadata().is_ok_and(|found| found.nlink() > 0));
    let Ok(found) = std::fs::metadata(&shm) else { return false };
    let is_same = |other: &std::fs::Metadata| (other.dev(), other.ino()) == (found.dev(), found.ino());
    let at = match looked_at.iter().position(|file| file.metadata().is_ok_and(|other| is_same(&other))) {
        Some(at) => at,
        None => {
            let Ok(file) = std::fs::File::open(&shm) else { return false };
            looked_at.push(file);
            looked_at.len() - 1
        }
    };
    let Some(file) = looked_at.get(at) else { return false };
    #[expect(clippy::cast_possible_truncation, reason = "small constants of the system")]
    let (lock, free, start) = (libc::F_WRLCK as i16, libc::F_UNLCK as i16, libc::SEEK_SET as i16);
    let mut probe = libc::flock { l_type: lock, l_whence: start, l_start: ALIVE_BYTE, l_len: 1, l_pid: 0 };
    fcntl(file, FcntlArg::F_GETLK(&mut probe)).is_ok() && probe.l_type != free
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MaintenanceStore as _;
    use crate::sqlite::SqliteOptions;
    use crate::time::HostClock;

    #[tokio::test]
    async fn a_refused_restore_or_backup_names_what_the_user_named() {
        let home = tempfile::tempdir().unwrap();
        let (text, path) = (home.path().join("text.db"), home.path().join("hermes.db"));
        std::fs::write(&text, "no database\n").unwrap();
        let refused = restore(&text, &path, 1).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Corrupt { detail } if detail.starts_with("the backup: ")), "{refused}");

        let store = SqliteStore::open(SqliteOptions::new(&path, Arc::new(HostClock::new()))).await.unwrap();
        let nowhere = home.path().join("nowhere");
        let refused = store.backup(&nowhere.join("copy.db")).await.unwrap_err();
        let named = nowhere.display().to_string();
        assert!(matches!(&refused, StoreError::NotFound { what } if *what == named), "{refused}");
        store.close().await;
    }
}
