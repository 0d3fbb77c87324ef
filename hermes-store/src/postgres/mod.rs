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
//! What waits, waits for a bounded time: for a connection, for a row that another transaction holds, for a statement,
//! and for the answer to a COMMIT. A transaction whose client fell silent is ended by the server after
//! [`IDLE_IN_TRANSACTION_MAX_MS`], so that a host that lost the network does not hold a conversation.
//!
//! Sessions of the database must be the store's own for their whole life: a pooler in front of it must pool sessions,
//! not transactions. The variables `PGPASSWORD`, `PGSSLMODE` and their like, and `~/.pgpass`, fill what the URL leaves
//! open, as in other clients of PostgreSQL.

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
use errors::map;
use wake::{Waiter, Wakes};
use write::WriteTx;

/// Connections for the work, unless the options say otherwise. A server takes 100 by default.
pub const CONNECTIONS: u32 = 10;
/// Connections for heartbeats and renewals of leases.
pub const LEASE_CONNECTIONS: u32 = 2;
/// Connections for notifications: one hears, one tells.
const NOTIFY_CONNECTIONS: u32 = 2;
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
/// A connection that was idle for longer is tested before it reads.
const TEST_AFTER_IDLE_MS: u128 = 1_000;
/// A connection that nobody needed for this long is closed.
const IDLE_MAX_MS: u64 = 600_000;

const _: () = assert!(LOCK_WAIT_MAX_MS * 2 < HEARTBEAT_DEAD_MS);
const _: () = assert!(IDLE_IN_TRANSACTION_MAX_MS < HEARTBEAT_DEAD_MS);
const _: () = assert!(COMMIT_MAX_MS + LEASE_REFRESH_MS < LEASE_TTL_MS);

/// Whose time decides about leases.
#[derive(Debug, Clone, Default)]
pub enum OwnershipClock {
    /// The database's: one clock for all hosts.
    #[default]
    Database,
    /// A given one, for tests.
    Given(Arc<dyn Clock>),
}

/// What the server ends by itself, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A wait for a row that another transaction holds.
    pub lock_wait_ms: u64,
    /// A statement.
    pub statement_ms: u64,
    /// A transaction whose client says nothing: its host lost the network, or sleeps.
    pub idle_in_transaction_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            lock_wait_ms: LOCK_WAIT_MAX_MS,
            statement_ms: STATEMENT_MAX_MS,
            idle_in_transaction_ms: IDLE_IN_TRANSACTION_MAX_MS,
        }
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
    /// What the server ends by itself.
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
    PgConnectOptions::from_str(text).is_ok()
}

/// What can be shown of a store's URL: no password and no parameter.
#[must_use]
pub fn shown_url(url: &str) -> String {
    let Ok(options) = PgConnectOptions::from_str(url) else { return "a URL that cannot be read".to_owned() };
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
    work: PgPool,
    leases: PgPool,
    notify: PgPool,
    clock: OwnershipClock,
    probe: Arc<dyn LivenessProbe>,
    patience: Patience,
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
    fn pool(&self, kind: WriteKind) -> &PgPool {
        match kind {
            WriteKind::Beat | WriteKind::Activity | WriteKind::Release => &self.leases,
            _ => &self.work,
        }
    }

    /// The error of a write that got no connection: there is no server, or others have all connections.
    fn no_connection(&self, kind: WriteKind, waited_ms: u64) -> StoreError {
        match self.pool(kind).size() {
            0 => StoreError::Unavailable { detail: format!("{} gave no connection in {waited_ms} ms", self.shown) },
            _ => StoreError::Busy { waited_ms },
        }
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
        let mut conn = first_connection(&connect, &settings).await?;
        schema::bring_up(&mut conn, &options.schema).await?;
        // What was done holds; the server notices the end of the connection by itself when this fails.
        let _ = conn.close().await;
        let pool = |connections: u32| pool(connections, Arc::clone(&settings), connect.clone());
        let (wakes, changes) = Wakes::new(&options.schema);
        let wakes = Arc::new(wakes);
        let notify = pool(NOTIFY_CONNECTIONS);
        let tasks = vec![
            tokio::spawn(Arc::clone(&wakes).listen(notify.clone())),
            tokio::spawn(Arc::clone(&wakes).tell(notify.clone(), changes)),
        ];
        let shared = Shared {
            work: pool(options.connections.max(1)),
            leases: pool(LEASE_CONNECTIONS),
            notify,
            shown: options.shown(),
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
        for pool in [&self.shared.work, &self.shared.leases, &self.shared.notify] {
            pool.close().await;
        }
    }

    /// Connections that read.
    fn readers(&self) -> &PgPool {
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
    let options = PgConnectOptions::from_str(url).map_err(map)?;
    Ok(options.application_name("hermes").statement_cache_capacity(STATEMENTS_MAX).disable_statement_logging())
}

/// What every connection is told first.
fn settings(schema: &str, timeouts: Timeouts) -> String {
    let Timeouts { lock_wait_ms, statement_ms, idle_in_transaction_ms } = timeouts;
    format!(
        "SET search_path TO {schema}, public; SET lock_timeout TO {lock_wait_ms}; \
         SET statement_timeout TO {statement_ms}; \
         SET idle_in_transaction_session_timeout TO {idle_in_transaction_ms}; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
}

fn pool(connections: u32, settings: Arc<str>, connect: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(0)
        .acquire_timeout(Duration::from_millis(ACQUIRE_MAX_MS))
        .idle_timeout(Duration::from_millis(IDLE_MAX_MS))
        .max_lifetime(None)
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                match meta.idle_for.as_millis() > TEST_AFTER_IDLE_MS {
                    true => Ok(conn.ping().await.is_ok()),
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
