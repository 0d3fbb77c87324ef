//! What the tests of PostgreSQL share: a schema of its own for each test, on the server that the environment names.

#[cfg(test)]
#[allow(dead_code, reason = "not every test binary starts a server of its own")]
pub(crate) mod cluster;
#[cfg(test)]
#[allow(dead_code, reason = "not every test binary cuts the network")]
pub(crate) mod proxy;
#[cfg(all(test, feature = "sqlite"))]
#[allow(dead_code, reason = "not every test binary makes a COMMIT fail")]
pub(crate) mod storage;

use std::sync::Arc;

use hermes_store::postgres::{OwnershipClock, PostgresOptions, PostgresStore};
use hermes_store::{Clock, LivenessProbe};
use sqlx::{ConnectOptions as _, Connection as _};

/// Where `cargo xtask test` says which server to use.
const URL_VARIABLE: &str = "HERMES_TEST_POSTGRES";

/// A schema of the test's own, removed with everything in it at the end.
pub(crate) struct TestSchema {
    url: String,
    name: String,
}

impl TestSchema {
    /// A name that nobody has. The schema itself is made by the first store.
    ///
    /// # Panics
    /// When the environment names no server: a test of PostgreSQL is never skipped.
    pub(crate) fn new() -> Self {
        let name = format!("t_{}", uuid::Uuid::now_v7().simple());
        Self { url: url(), name }
    }

    /// The schema with a name that another process chose.
    #[allow(dead_code, reason = "not every test binary has children")]
    pub(crate) fn options_of(url: &str, name: &str) -> PostgresOptions {
        PostgresOptions { schema: name.to_owned(), connections: 4, ..PostgresOptions::new(url) }
    }

    /// Options for a store in this schema, by the database's clock.
    pub(crate) fn options(&self) -> PostgresOptions {
        Self::options_of(&self.url, &self.name)
    }

    /// A store in this schema.
    #[allow(dead_code, reason = "not every test binary opens a store by hand")]
    pub(crate) async fn open(&self, clock: Arc<dyn Clock>, probe: Arc<dyn LivenessProbe>) -> PostgresStore {
        let options = PostgresOptions { clock: OwnershipClock::Given(clock), probe, ..self.options() };
        PostgresStore::connect(options).await.unwrap()
    }

    #[allow(dead_code, reason = "not every test binary needs it")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A connection that looks at this schema.
    #[allow(dead_code, reason = "not every test binary needs it")]
    pub(crate) async fn connection(&self) -> sqlx::PgConnection {
        let mut conn = connection(&self.url).await;
        run(&mut conn, &format!("SET search_path TO {}, public", self.name)).await;
        conn
    }
}

impl Drop for TestSchema {
    fn drop(&mut self) {
        let (url, name) = (self.url.clone(), self.name.clone());
        // A drop cannot await, and the test's own runtime may be the one that is dropping.
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut conn = connection(&url).await;
                run(&mut conn, "SET lock_timeout TO '20s'; SET client_min_messages TO warning").await;
                run(&mut conn, &format!("DROP SCHEMA IF EXISTS {name} CASCADE")).await;
                conn.close().await.unwrap();
            });
        });
        // A schema that stays is no failure of what the test shows; the server is thrown away.
        let _ = cleaner.join();
    }
}

/// The server of the tests.
///
/// # Panics
/// When there is none.
pub(crate) fn url() -> String {
    match std::env::var(URL_VARIABLE) {
        Ok(url) if !url.is_empty() => url,
        _ => panic!("{URL_VARIABLE} is not set: run `cargo xtask test`, or `cargo xtask postgres` and export its line"),
    }
}

pub(crate) async fn connection(url: &str) -> sqlx::PgConnection {
    let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    options.connect().await.unwrap()
}

pub(crate) async fn run(conn: &mut sqlx::PgConnection, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(conn).await.unwrap();
}
