//! Who may come in: TLS, passwords, and roles that may little.

use std::sync::Mutex;

use super::*;
use hermes_store::{SearchQuery, SearchStore as _};
use sqlx::postgres::PgConnectOptions;
use tracing::field::{Field, Visit};
use tracing::subscriber::Subscriber;

/// Where `cargo xtask test` says where the certificates of its server are.
const TLS_VARIABLE: &str = "HERMES_TEST_PG_TLS";

/// The path of a certificate.
///
/// # Panics
/// When nobody says where they are: a test of TLS is never skipped.
fn certificate(name: &str) -> String {
    match std::env::var(TLS_VARIABLE) {
        Ok(directory) if !directory.is_empty() => format!("{directory}/{name}"),
        _ => panic!(
            "{TLS_VARIABLE} is not set: run `cargo xtask test`, or `cargo xtask postgres` and export its lines; a server of \
             your own needs TLS on 127.0.0.1, under the name localhost, and ca.pem and other-ca.pem in that directory"
        ),
    }
}

/// A role with a password, removed at the end of the test.
struct TestRole {
    name: String,
    password: String,
}

impl TestRole {
    async fn new() -> Self {
        let name = format!("role_{}", uuid::Uuid::now_v7().simple());
        let password = format!("Pw-{}", uuid::Uuid::now_v7().simple());
        let mut conn = connection(&url()).await;
        run(
            &mut conn,
            &format!("CREATE ROLE {name} LOGIN PASSWORD '{password}'; GRANT CREATE ON DATABASE postgres TO {name}"),
        )
        .await;
        Self { name, password }
    }

    /// The URL of this role, over the network.
    fn url(&self, host: &str, parameters: &str) -> String {
        self.url_with(&self.password, host, parameters)
    }

    fn url_with(&self, password: &str, host: &str, parameters: &str) -> String {
        let options: PgConnectOptions = url().parse().unwrap();
        format!("postgres://{}:{password}@{host}:{}/postgres?{parameters}", self.name, options.get_port())
    }

    async fn remove(self) {
        let mut conn = connection(&url()).await;
        run(&mut conn, &format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.name)).await;
    }
}

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        attributes.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, record: &tracing::span::Record<'_>) {
        record.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_over_tls_opens_the_store_whether_or_not_the_certificate_is_looked_at() {
    let role = TestRole::new().await;
    let ca = certificate("ca.pem");
    for (parameters, is_checked) in [
        ("sslmode=require".to_owned(), false),
        (format!("sslmode=verify-ca&sslrootcert={ca}"), true),
        (format!("sslmode=verify-full&sslrootcert={ca}"), true),
    ] {
        let schema = TestSchema::new();
        let options = PostgresOptions { url: role.url("localhost", &parameters), ..schema.options() };
        let store = connect(options).await;
        store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
        let mut conn = connection(&url()).await;
        let plain = "SELECT COUNT(*) FROM pg_stat_ssl s JOIN pg_stat_activity a ON a.pid = s.pid \
             WHERE a.usename = $1 AND NOT s.ssl";
        let plain: i64 = sqlx::query_scalar(plain).bind(&role.name).fetch_one(&mut conn).await.unwrap();
        assert_eq!(plain, 0, "{parameters} ({is_checked})");
        store.close().await;
        drop(schema);
    }
    role.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_or_name_is_refused_with_what_to_do() {
    let role = TestRole::new().await;
    let (ca, other) = (certificate("ca.pem"), certificate("other-ca.pem"));
    let schema = TestSchema::new();
    for (host, parameters) in [
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}")),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={other}")),
        ("localhost", "sslmode=verify-full".to_owned()),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={ca}")),
    ] {
        let refused = PostgresStore::connect(PostgresOptions { url: role.url(host, &parameters), ..schema.options() });
        let error = refused.await.unwrap_err();
        assert_eq!(error.code(), "HM1015", "{host} {parameters}: {error}");
        let text = error.to_string();
        assert!(text.contains("certificate") && text.contains("sslrootcert"), "{host} {parameters}: {text}");
        assert!(!text.contains(&role.password), "{text}");
    }
    // A file that is none, and a server that wants TLS from a client that wants none.
    for (parameters, code, word) in [
        ("sslmode=verify-full&sslrootcert=/nonexistent/ca.pem", "HM1019", "files of the store's URL"),
        ("sslmode=disable", "HM1015", "no encryption"),
    ] {
        let refused =
            PostgresStore::connect(PostgresOptions { url: role.url("localhost", parameters), ..schema.options() });
        let error = refused.await.unwrap_err();
        assert_eq!(error.code(), code, "{parameters}: {error}");
        assert!(error.to_string().contains(word), "{parameters}: {error}");
    }
    role.remove().await;
}

#[tokio::test]
async fn i24_a_wrong_password_is_refused_and_no_message_and_no_log_shows_one() {
    let role = TestRole::new().await;
    let schema = TestSchema::new();
    let log = Log::default();
    let guard = tracing::subscriber::set_default(log.clone());
    // A word that no version knows is not repeated either: it may be a secret that was written in the wrong place.
    let right = PostgresOptions {
        url: role.url("localhost", &format!("sslmode=require&passwort={}", role.password)),
        ..schema.options()
    };
    let store = connect(right).await;
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    store.close().await;
    let wrong =
        PostgresOptions { url: role.url_with("Wrong-Pa55word", "localhost", "sslmode=require"), ..schema.options() };
    let shown = format!("{wrong:?} {} {store:?}", wrong.shown());
    let error = PostgresStore::connect(wrong).await.unwrap_err();
    drop(guard);
    assert_eq!(error.code(), "HM1015");
    assert!(error.to_string().contains("refused the log-in") && error.to_string().contains(&role.name), "{error}");
    let logged = log.0.lock().unwrap().clone();
    assert!(!logged.is_empty());
    for secret in [role.password.as_str(), "Wrong-Pa55word"] {
        for text in [logged.as_str(), &shown, &error.to_string(), &format!("{error:?}")] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    drop(schema);
    role.remove().await;
}

/// A role that owns one schema and may make nothing else: no schema, no extension.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_trigrams_and_the_right_to_them_search_finds_the_same_rows_and_says_what_is_missing() {
    let name = format!("plain_{}", uuid::Uuid::now_v7().simple());
    let mut admin = connection(&url()).await;
    run(&mut admin, &format!("CREATE ROLE {name} LOGIN")).await;
    run(&mut admin, &format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).await;
    let of_admin = url().replace("/postgres?", &format!("/{name}?"));
    let mut inside = connection(&of_admin).await;
    run(&mut inside, &format!("REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE SCHEMA mine AUTHORIZATION {name}"))
        .await;
    sqlx::Connection::close(inside).await.unwrap();

    let own = of_admin.replace("://hermes@", &format!("://{name}@"));
    // A schema that is not there and may not be made: the message says what to grant.
    let refused = PostgresStore::connect(PostgresOptions { schema: "other".to_owned(), ..PostgresOptions::new(&own) });
    let error = refused.await.unwrap_err();
    assert_eq!(error.code(), "HM1015");
    assert!(error.to_string().contains("permission denied"), "{error}");

    let options = PostgresOptions { schema: "mine".to_owned(), connections: 4, ..PostgresOptions::new(&own) };
    let store = connect(options).await;
    let (fence, turn) = holding(&store, "a").await;
    store.append(&fence, &turn, vec![row("世界和平 and the needle"), row("hay")], None).await.unwrap();
    for (query, found) in [("needle", 1), ("世界", 1), ("界和", 1), ("hay", 1), ("nothing", 0)] {
        let page = store.search(SearchQuery::text(query)).await.unwrap();
        assert_eq!(page.hits.len(), found, "{query}");
    }
    let status = store.index_status().await.unwrap();
    assert!(!status.has_parts);
    assert!(status.note.as_ref().is_some_and(|note| note.contains("CREATE EXTENSION pg_trgm")), "{status:?}");
    // A superuser makes it, as the note says.
    let mut inside = connection(&of_admin).await;
    run(&mut inside, "CREATE EXTENSION pg_trgm SCHEMA public").await;
    sqlx::Connection::close(inside).await.unwrap();
    store.rebuild_index().await.unwrap();
    let status = store.index_status().await.unwrap();
    assert!(!status.has_parts, "the role may not use the schema that it is in: {status:?}");
    store.close().await;
    run(&mut admin, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    run(&mut admin, &format!("DROP ROLE {name}")).await;
}
