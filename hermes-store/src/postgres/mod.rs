//! The PostgreSQL store: for more than one host.
//!
//! Every store lives in a schema of its own (`hermes`, unless the options say otherwise) of one database. The
//! statements and the methods are those of SQLite (`sql`); what really differs is in `errors`, `schema`, `search`,
//! `text` (PostgreSQL's texts hold no NUL), `wake` (LISTEN and NOTIFY) and `write` (READ COMMITTED, the database's
//! time).
//!
//! Connections stand in three pools: one for the work, a small one for heartbeats and renewals of leases, and one for
//! notifications. An owner whose writers are all busy goes on saying that it lives.
//!
//! What waits, waits for a bounded time ([`Timeouts`]): for a connection, for a row that another transaction holds, for
//! a statement, and for the answer to a COMMIT. The server keeps these limits, and `conn` a little later the client too,
//! should the network swallow what the server says: a call ends as `Unavailable` when its COMMIT was not sent, and as
//! `CommitUnknown` when it was, and its connection is thrown away. A transaction whose client fell silent is ended by the
//! server after [`IDLE_IN_TRANSACTION_MAX_MS`], so that a host that lost the network does not hold a conversation.
//!
//! # Behind a pooler
//!
//! Sessions of the database must be the store's own for their whole life: their settings (`search_path`, the limits)
//! are made once, their statements are prepared once, and LISTEN belongs to a session. A pooler in front of the server
//! (PgBouncer) must therefore pool sessions (`pool_mode = session`, with `ignore_startup_parameters =
//! extra_float_digits`), and give as many as `connections` + 5 to each process. Pooling of transactions is not
//! supported, and nothing notices it before a statement meets a session that does not know it, or the tables of another
//! schema; the error of that statement names the pooler and what to change (`errors`). Notifications would be lost without
//! a word, which costs those who wait a look of their own. Locks of the store are those of rows and of transactions; no
//! advisory lock outlives its transaction.
//!
//! # The URL
//!
//! `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=/path/ca.pem`. `sslmode` is `prefer`
//! when nobody says otherwise, which hides nothing from whoever can change packets; between hosts use `verify-full`: the
//! certificate must name the host and come from an authority that the system trusts or that `sslrootcert` holds.
//! `require` encodes and does not look at the certificate. The variables `PGPASSWORD`, `PGSSLMODE` and their like, and
//! `~/.pgpass`, fill what the URL leaves open, as in other clients of PostgreSQL.

mod conn;
mod driver;
mod errors;
mod maintenance;
mod plain;
mod schema;
mod search;
#[path = "../sql/mod.rs"]
#[expect(clippy::duplicate_mod, reason = "one text of every statement, compiled once for each driver")]
mod sql;
mod text;
mod wake;
mod write;

use std::str::FromStr as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};
use tokio::task::JoinHandle;

use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::limits::{HEARTBEAT_DEAD_MS, LEASE_REFRESH_MS, LEASE_TTL_MS, STATEMENTS_MAX};
use crate::owner::LivenessProbe;
use crate::patience::{Patience, WriteKind};
use crate::time::Clock;
use conn::Pool;
use errors::map;
use wake::{Listen, Waiter, Wakes};
use write::WriteTx;

/// Connections for the work, unless the options say otherwise. A server takes 100 by default.
pub const CONNECTIONS: u32 = 10;
/// Connections for heartbeats and renewals of leases.
pub const LEASE_CONNECTIONS: u32 = 2;
/// Connections that tell other processes of changes. One more hears of theirs.
const TELL_CONNECTIONS: u32 = 1;
/// The schema, unless the options say otherwise.
pub const SCHEMA: &str = "hermes";
/// Longest name of a schema (PostgreSQL's limit, with room for the name of a channel).
pub const SCHEMA_MAX_BYTES: usize = 40;

/// Longest wait for a connection.
pub const ACQUIRE_MAX_MS: u64 = 60_000;
/// Longest wait for a row that another transaction holds. Shorter than what makes an owner look dead.
pub const LOCK_WAIT_MAX_MS: u64 = 10_000;
/// Longest run of a statement.
pub const STATEMENT_MAX_MS: u64 = 60_000;
/// Longest wait for the answer to a COMMIT; after it nobody knows whether the change holds.
pub const COMMIT_MAX_MS: u64 = 30_000;
/// How long the server keeps a transaction open whose client says nothing.
pub const IDLE_IN_TRANSACTION_MAX_MS: u64 = 15_000;
/// How much longer than the server the client waits for the end of a statement, before it believes that the network
/// swallowed the answer.
pub const ANSWER_MAX_MS: u64 = 5_000;
/// How long the connection for notifications may be silent before it is tested.
pub const LISTEN_TEST_MS: u64 = 30_000;
/// A connection that was idle for longer is tested before it reads.
const TEST_AFTER_IDLE_MS: u128 = 1_000;
/// Longest answer to the test of an idle connection.
const TEST_MAX_MS: u64 = 3_000;
/// Longest time in which a connection is given back to its pool; after it, it is closed.
const RELEASE_MAX_MS: u64 = 5_000;
/// Longest wait for the connections that are in use when the store is closed.
pub const CLOSE_MAX_MS: u64 = 10_000;
/// Longest look at the schema when a store is opened, with all steps to its newest version.
pub const BRING_UP_MAX_MS: u64 = 600_000;
/// When the server, on its side, gives up a client whose host is gone: after so long without an answer to what was sent,
/// and after three unanswered probes of an idle connection.
const TCP_SILENCE_MAX_MS: u64 = 30_000;
const TCP_KEEPALIVE_IDLE_S: u64 = 30;
const TCP_KEEPALIVE_INTERVAL_S: u64 = 10;
const TCP_KEEPALIVE_PROBES: u64 = 3;
/// How often the server looks, in mid statement, whether its client is still there.
const CLIENT_CHECK_MS: u64 = 5_000;
/// A connection that nobody needed for this long is closed.
const IDLE_MAX_MS: u64 = 600_000;

const _: () = assert!(LOCK_WAIT_MAX_MS * 2 < HEARTBEAT_DEAD_MS);
const _: () = assert!(IDLE_IN_TRANSACTION_MAX_MS < HEARTBEAT_DEAD_MS);
const _: () = assert!(COMMIT_MAX_MS + LEASE_REFRESH_MS < LEASE_TTL_MS);
// A sign of life whose answer was swallowed is given up in time for the next one.
const _: () = assert!(LOCK_WAIT_MAX_MS + ANSWER_MAX_MS < HEARTBEAT_DEAD_MS);
const _: () = assert!(RELEASE_MAX_MS < CLOSE_MAX_MS && TEST_MAX_MS < ANSWER_MAX_MS);

/// Whose time decides about leases.
#[derive(Debug, Clone, Default)]
pub enum OwnershipClock {
    /// The database's: one clock for all hosts.
    #[default]
    Database,
    /// A given one, for tests.
    Given(Arc<dyn Clock>),
}

/// How long the server, and after it the client, waits for what, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A free connection, also when one must be opened for it. A write waits for as long as its [`Patience`] says.
    pub acquire_ms: u64,
    /// A wait for a row that another transaction holds.
    pub lock_wait_ms: u64,
    /// A statement.
    pub statement_ms: u64,
    /// A transaction whose client says nothing: its host lost the network, or sleeps.
    pub idle_in_transaction_ms: u64,
    /// How much longer than the server the client waits for the end of a statement.
    pub answer_ms: u64,
    /// The answer to a COMMIT, at the client.
    pub commit_ms: u64,
    /// Silence after which the connection for notifications is tested.
    pub listen_test_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            acquire_ms: ACQUIRE_MAX_MS,
            lock_wait_ms: LOCK_WAIT_MAX_MS,
            statement_ms: STATEMENT_MAX_MS,
            idle_in_transaction_ms: IDLE_IN_TRANSACTION_MAX_MS,
            answer_ms: ANSWER_MAX_MS,
            commit_ms: COMMIT_MAX_MS,
            listen_test_ms: LISTEN_TEST_MS,
        }
    }
}

impl Timeouts {
    /// Longest wait of a client for all answers to one statement that may run for so long.
    fn of_statement(&self, runs_ms: u64) -> Duration {
        Duration::from_millis(runs_ms.saturating_add(self.answer_ms))
    }
}

/// How to open a store.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?sslmode=verify-full`. Never shown.
    pub url: String,
    /// The schema that the store lives in, made when there is none: small letters, digits and `_`.
    pub schema: String,
    /// Most connections for the work, opened when they are first needed.
    pub connections: u32,
    /// Whose time decides about leases.
    pub clock: OwnershipClock,
    /// How the death of an owner on this host is proved.
    pub probe: Arc<dyn LivenessProbe>,
    /// How long each kind of write waits for a connection.
    pub patience: Patience,
    /// How long the server and the client wait for what.
    pub timeouts: Timeouts,
    /// Failures at the COMMITs of this handle, for tests.
    #[cfg(feature = "test-util")]
    pub faults: crate::fault::Faults,
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .field("clock", &self.clock)
            .field("patience", &self.patience)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl PostgresOptions {
    /// The database of `url`, the schema [`SCHEMA`], the database's clock, deaths on this host proved through `/proc`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: SCHEMA.to_owned(),
            connections: CONNECTIONS,
            clock: OwnershipClock::Database,
            probe: Arc::new(crate::owner::ProcProbe::new()),
            patience: Patience::default(),
            timeouts: Timeouts::default(),
            #[cfg(feature = "test-util")]
            faults: crate::fault::Faults::default(),
        }
    }

    /// What can be shown of the URL: `postgres://user@host:port/database`.
    #[must_use]
    pub fn shown(&self) -> String {
        shown_url(&self.url)
    }
}

/// Whether a text can be read as a URL of PostgreSQL.
#[must_use]
pub fn is_url(text: &str) -> bool {
    read_url(text).is_ok()
}

/// The driver logs parameters that it does not know with their values, and one of them may be a password under a
/// misspelt name: nobody listens while it reads.
fn read_url(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || PgConnectOptions::from_str(url))
}

/// What can be shown of a store's URL: no password and no parameter.
#[must_use]
pub fn shown_url(url: &str) -> String {
    let Ok(options) = read_url(url) else { return "a URL that cannot be read".to_owned() };
    let place = match options.get_socket() {
        Some(path) => path.to_string_lossy().into_owned(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    format!("postgres://{}@{place}/{}", options.get_username(), options.get_database().unwrap_or_default())
}

/// A store in a PostgreSQL database. Cloning gives another handle of the same connections.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    work: Pool,
    leases: Pool,
    tell: Pool,
    clock: OwnershipClock,
    probe: Arc<dyn LivenessProbe>,
    patience: Patience,
    timeouts: Timeouts,
    wakes: Arc<Wakes>,
    /// Ended by `close`, or by the end of the last handle.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    shown: String,
    #[cfg(feature = "test-util")]
    faults: crate::fault::Faults,
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in self.take_tasks() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("at", &self.shared.shown).finish_non_exhaustive()
    }
}

impl Shared {
    fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The connections for a kind of write.
    fn pool(&self, kind: WriteKind) -> &Pool {
        match kind {
            WriteKind::Beat | WriteKind::Activity | WriteKind::Release => &self.leases,
            _ => &self.work,
        }
    }

    /// The error of a write that did not begin in time: there is no server, it does not answer, or others have all
    /// connections.
    fn no_begin(&self, kind: WriteKind, waited_ms: u64, is_sent: bool) -> StoreError {
        let what = match (is_sent, self.pool(kind).is_all_in_use()) {
            (true, _) => "no answer",
            (false, false) => "no connection",
            (false, true) => return StoreError::Busy { waited_ms },
        };
        StoreError::Unavailable { detail: format!("{} gave {what} in {waited_ms} ms", self.shown) }
    }
}

impl PostgresStore {
    /// Connects, and brings the schema to its newest version.
    ///
    /// # Errors
    /// [`StoreError::PostgresTooOld`], [`StoreError::TooNew`], [`StoreError::Unavailable`] when no server answers,
    /// [`StoreError::Invalid`] for a URL that cannot be used, a refused log-in, a database that is not encoded in UTF-8
    /// or a schema of another program.
    pub async fn connect(options: PostgresOptions) -> Result<Self, StoreError> {
        check_schema(&options.schema)?;
        let connect = connect_options(&options.url)?;
        let settings: Arc<str> = settings(&options.schema, options.timeouts).into();
        open_schema(&connect, &settings, &options.schema).await?;
        let timeouts = options.timeouts;
        let of_work = timeouts.of_statement(timeouts.statement_ms);
        // A statement about leases concerns one row, so that it takes as long as that row is held.
        let of_leases = timeouts.of_statement(timeouts.lock_wait_ms.min(timeouts.statement_ms));
        let acquire = Duration::from_millis(timeouts.acquire_ms);
        let pool = move |connections: u32| pool(connections, acquire, Arc::clone(&settings), connect.clone());
        let work = Pool::new(pool(options.connections.max(1)), of_work);
        let leases = Pool::new(pool(LEASE_CONNECTIONS), of_leases);
        let tell = Pool::new(pool(TELL_CONNECTIONS), of_leases);
        let (wakes, changes) = Wakes::new(&options.schema);
        let wakes = Arc::new(wakes);
        let listen = Listen { pool: Box::new(move || pool(1)), answer: of_leases, test_ms: timeouts.listen_test_ms };
        let tasks = vec![
            tokio::spawn(Arc::clone(&wakes).listen(listen)),
            tokio::spawn(Arc::clone(&wakes).tell(tell.clone(), changes)),
        ];
        let shared = Shared {
            work,
            leases,
            tell,
            shown: options.shown(),
            timeouts,
            clock: options.clock,
            probe: options.probe,
            patience: options.patience,
            wakes,
            tasks: Mutex::new(tasks),
            #[cfg(feature = "test-util")]
            faults: options.faults,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Ends the tasks and closes all connections; later calls are refused. A store that is dropped instead loses
    /// nothing.
    pub async fn close(&self) {
        for task in self.shared.take_tasks() {
            task.abort();
            // Aborted on purpose.
            let _ = task.await;
        }
        let close = async {
            for pool in [&self.shared.work, &self.shared.leases, &self.shared.tell] {
                pool.close().await;
            }
        };
        if tokio::time::timeout(Duration::from_millis(CLOSE_MAX_MS), close).await.is_err() {
            tracing::debug!("connections were still in use when the store was closed; they end by themselves");
        }
    }

    /// Connections that read.
    fn readers(&self) -> &Pool {
        &self.shared.work
    }

    /// How deaths are proved.
    fn probe(&self) -> Arc<dyn LivenessProbe> {
        Arc::clone(&self.shared.probe)
    }

    /// Told of every change of a conversation that others may wait for.
    fn changed(&self, conversation: &ConversationId) -> Waiter {
        self.shared.wakes.waiter(conversation)
    }

    /// A write of the transcript, of an input or a turn.
    async fn write(&self) -> Result<WriteTx, StoreError> {
        self.write_within(WriteKind::Transcript).await
    }

    /// A write with the patience of its kind.
    async fn write_within(&self, kind: WriteKind) -> Result<WriteTx, StoreError> {
        WriteTx::begin(Arc::clone(&self.shared), kind).await
    }
}

/// A name that needs no quotes and no other care anywhere.
fn check_schema(name: &str) -> Result<(), StoreError> {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    let is_fine = name.bytes().all(plain)
        && name.bytes().next().is_some_and(|c| c.is_ascii_lowercase())
        && name.len() <= SCHEMA_MAX_BYTES
        && !name.starts_with("pg_")
        && !matches!(name, "public" | "information_schema");
    match is_fine {
        true => Ok(()),
        false => Err(StoreError::Invalid {
            detail: format!(
                "{name:?} cannot name the store's schema; use a small letter, then small letters, digits and _, at most \
                 {SCHEMA_MAX_BYTES}, and none of PostgreSQL's own names"
            ),
        }),
    }
}

fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = read_url(url).map_err(map)?;
    Ok(options.application_name("hermes").statement_cache_capacity(STATEMENTS_MAX).disable_statement_logging())
}

/// What every connection is told first.
fn settings(schema: &str, timeouts: Timeouts) -> String {
    let Timeouts { lock_wait_ms, statement_ms, idle_in_transaction_ms, .. } = timeouts;
    format!(
        "SET search_path TO {schema}, public; SET lock_timeout TO {lock_wait_ms}; \
         SET statement_timeout TO {statement_ms}; \
         SET idle_in_transaction_session_timeout TO {idle_in_transaction_ms}; \
         SET tcp_user_timeout TO {TCP_SILENCE_MAX_MS}; SET tcp_keepalives_idle TO {TCP_KEEPALIVE_IDLE_S}; \
         SET tcp_keepalives_interval TO {TCP_KEEPALIVE_INTERVAL_S}; \
         SET tcp_keepalives_count TO {TCP_KEEPALIVE_PROBES}; \
         SET client_connection_check_interval TO {CLIENT_CHECK_MS}; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
}

fn pool(connections: u32, acquire: Duration, settings: Arc<str>, connect: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(0)
        .acquire_timeout(acquire)
        .idle_timeout(Duration::from_millis(IDLE_MAX_MS))
        .max_lifetime(None)
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                match meta.idle_for.as_millis() > TEST_AFTER_IDLE_MS {
                    true => {
                        let answer = tokio::time::timeout(Duration::from_millis(TEST_MAX_MS), conn.ping()).await;
                        Ok(matches!(answer, Ok(Ok(()))))
                    }
                    false => Ok(true),
                }
            })
        })
        .after_connect(move |conn, _| {
            let settings = Arc::clone(&settings);
            Box::pin(
                async move { sqlx::raw_sql(sqlx::AssertSqlSafe(settings.to_string())).execute(conn).await.map(drop) },
            )
        })
        .connect_lazy_with(connect)
}

/// The connection that looks at the schema. Not from a pool: a wrong password is told at once, and not after the
/// pool's patience.
async fn first_connection(connect: &PgConnectOptions, settings: &str) -> Result<sqlx::PgConnection, StoreError> {
    let open = async {
        let mut conn = connect.connect().await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(settings.to_owned())).execute(&mut conn).await?;
        Ok(conn)
    };
    match tokio::time::timeout(Duration::from_millis(LOCK_WAIT_MAX_MS), open).await {
        Ok(conn) => conn.map_err(map),
        Err(_) => {
            Err(StoreError::Unavailable { detail: format!("no answer to a connection in {LOCK_WAIT_MAX_MS} ms") })
        }
    }
}

/// Opens a connection, brings the schema to its newest version, and closes the connection again.
async fn open_schema(connect: &PgConnectOptions, settings: &str, schema: &str) -> Result<(), StoreError> {
    let mut conn = first_connection(connect, settings).await?;
    let limit = Duration::from_millis(BRING_UP_MAX_MS);
    match tokio::time::timeout(limit, schema::bring_up(&mut conn, schema)).await {
        Ok(done) => done?,
        // Whatever was done is one transaction, which the next opening finds done or not.
        Err(_) => {
            return Err(StoreError::Unavailable {
                detail: format!("the schema was not ready in {BRING_UP_MAX_MS} ms"),
            });
        }
    }
    // What was done holds; the server notices the end of the connection by itself when this fails.
    let _ = tokio::time::timeout(Duration::from_millis(RELEASE_MAX_MS), conn.close()).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_schemas() {
        for name in ["hermes", "t_0189", "a"] {
            assert!(check_schema(name).is_ok(), "{name}");
        }
        let long = "a".repeat(SCHEMA_MAX_BYTES + 1);
        for name in ["", "Hermes", "a b", "a\"b", "1a", "_a", "pg_x", "public", "information_schema", "ä", &long] {
            assert!(matches!(check_schema(name), Err(StoreError::Invalid { .. })), "{name}");
        }
    }

    #[test]
    fn i24_the_password_is_never_shown() {
        let url = "postgres://me:s3cret@db.example:5433/hermes?sslmode=verify-full&password=s3cret";
        let options = PostgresOptions::new(url);
        assert_eq!(options.shown(), "postgres://me@db.example:5433/hermes");
        assert!(!format!("{options:?}").contains("s3cret"));
        assert!(!shown_url("postgres://me:s3cret@:x/y").contains("s3cret"));
        let refused = connect_options("postgres://me:s3cret@host:port/x").unwrap_err();
        assert!(!refused.to_string().contains("s3cret"), "{refused}");
    }
}
