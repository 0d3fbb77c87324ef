//! The pure parts, and real servers: how they start, and how they end with their owner.

use super::*;

/// Far above what any of this takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The programs; a test installs nothing.
fn binaries() -> Binaries {
    Binaries::find().unwrap().expect("no PostgreSQL server on this machine; `cargo xtask test` installs one")
}

/// A cluster without a server.
fn made() -> (Binaries, Option<User>, TempDir) {
    let (binaries, user) = (binaries(), User::for_server().unwrap());
    let directory = directory(user.as_ref()).unwrap();
    Cluster::init(&binaries, user.as_ref(), directory.path()).unwrap();
    (binaries, user, directory)
}

/// What a client gets for a query.
fn ask(cluster: &Cluster, query: &str) -> Result<String> {
    let beside = cluster.binaries.program("psql");
    let psql = if beside.is_file() { beside } else { PathBuf::from("psql") };
    let mut command = command(&psql, None, Path::new("/"));
    command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-p", &cluster.port.to_string(), "-U", SUPERUSER, "-h"]);
    shell::output(command.arg(cluster.directory.path()).args(["-d", "postgres", "-c", query]))
}

/// Waits for the thing to come true.
#[track_caller]
fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_true() {
        assert!(Instant::now() < until, "not within {} s: {what}", LIMIT.as_secs());
        thread::sleep(Duration::from_millis(LOOK_EVERY_MS));
    }
}

/// Whether the process is there.
fn is_alive(id: &str) -> bool {
    succeeds(Command::new("kill").args(["-0", id]))
}

/// The id of the server's process.
fn server_id(cluster: &Cluster) -> String {
    let lock = std::fs::read_to_string(cluster.directory.path().join("data").join("postmaster.pid")).unwrap();
    lock.lines().next().unwrap().to_owned()
}

#[test]
fn the_url_has_the_socket_directory_as_its_host() {
    let expect = "postgres://hermes@localhost:5433/postgres?host=%2Ftmp%2Fhermes-pg-a1";
    assert_eq!(url(Path::new("/tmp/hermes-pg-a1"), 5433), expect);
}

#[test]
fn everything_that_means_something_in_a_url_is_encoded() {
    assert_eq!(percent_encoded("a-._~Z9"), "a-._~Z9");
    assert_eq!(percent_encoded("/ &=+%?#é"), "%2F%20%26%3D%2B%25%3F%23%C3%A9");
}

#[test]
fn a_path_that_needs_quotes_is_not_plain() {
    assert!(is_plain(Path::new("/tmp/a_b-c.1")));
    for path in ["/tmp/it's", "/tmp/a b", "/tmp/a,b", "/tmp/é"] {
        assert!(!is_plain(Path::new(path)), "{path}");
    }
}

#[test]
fn the_server_is_ready_when_its_lock_file_says_so() {
    let lock = "1\n/d/data\n1700000000\n5432\n/d\n\n 123 4\n";
    assert!(!is_ready(""));
    assert!(!is_ready(lock));
    assert!(!is_ready(&format!("{lock}starting\n")));
    assert!(is_ready(&format!("{lock}ready   \n")));
}

#[test]
fn the_settings_open_a_port_of_the_loopback_only_and_keep_the_order_of_commits() {
    let settings = settings(Path::new("/tmp/d"), 5433);
    for line in [
        "listen_addresses = '127.0.0.1'",
        "port = 5433",
        "ssl = on",
        "ssl_key_file = '/tmp/d/tls/server.key'",
        "unix_socket_directories = '/tmp/d'",
        "fsync = off",
        "synchronous_commit = on",
    ] {
        assert!(settings.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn variables_of_postgres_and_of_languages_do_not_reach_the_server() {
    for (name, expect) in [("PGPORT", true), ("PG_BINDIR", true), ("LC_ALL", true), ("LANG", true), ("PATH", false)] {
        assert_eq!(is_for_postgres(OsStr::new(name)), expect, "{name}");
    }
}

#[test]
fn the_directory_is_short_enough_for_a_socket_and_closed_to_others() {
    let directory = directory(None).unwrap();
    assert!(socket_path(directory.path()).len() <= SOCKET_PATH_MAX_BYTES);
    assert_eq!(std::fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_cluster_answers_knows_trigrams_and_leaves_nothing() {
    let cluster = Cluster::start().unwrap();
    assert_eq!(ask(&cluster, "SELECT current_setting('server_encoding')").unwrap().trim(), "UTF8");
    ask(&cluster, "CREATE EXTENSION pg_trgm").unwrap();
    // With the letters of ASCII only, this would be none.
    let of_chinese = ask(&cluster, "SELECT cardinality(show_trgm('你好世界'))").unwrap();
    assert_eq!(of_chinese.trim(), "5");
    // Sorted by bytes.
    let sorted = ask(&cluster, "SELECT string_agg(x, '' ORDER BY x) FROM (VALUES ('a'), ('B'), ('é'), ('z')) AS t (x)");
    assert_eq!(sorted.unwrap().trim(), "Bazé");

    let (directory, server) = (cluster.directory.path().to_owned(), server_id(&cluster));
    drop(cluster);
    assert!(!directory.exists());
    assert!(!is_alive(&server));
}

#[test]
fn two_clusters_run_side_by_side() {
    let (one, other) = (Cluster::start().unwrap(), Cluster::start().unwrap());
    assert_ne!(one.url(), other.url());
    ask(&one, "CREATE TABLE only_here (x int)").unwrap();
    assert!(ask(&other, "SELECT * FROM only_here").is_err());
}

#[test]
fn the_tests_get_the_url_and_the_way_to_a_server_of_their_own() {
    let cluster = Cluster::start().unwrap();
    let variables = cluster.variables();
    let user = if user::is_root().unwrap() { cluster.user.as_ref().unwrap().name() } else { "" };
    let directory = cluster.binaries.directory().to_str().unwrap();
    let tls = tls::directory(cluster.directory.path());
    assert!(tls.join("ca.pem").is_file() && tls.join("other-ca.pem").is_file());
    let expect = [
        (URL_VARIABLE, &*cluster.url()),
        (TLS_VARIABLE, tls.to_str().unwrap()),
        (BINDIR_VARIABLE, directory),
        (USER_VARIABLE, user),
    ];
    assert_eq!(variables.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>(), expect);
}

/// What the guard sees when this program is killed is the end of its input, and nothing else.
#[test]
fn the_end_of_the_owner_stops_the_server_in_the_middle_of_a_query() {
    let mut cluster = Cluster::start().unwrap();
    let (directory, server) = (cluster.directory.path().to_owned(), server_id(&cluster));
    let input = cluster.guard.stdin.take();
    let asked = thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&cluster, "SELECT pg_sleep(1000)"));
        let count = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
        wait_until("the query runs", || ask(&cluster, count).is_ok_and(|count| count == "1\n"));
        drop(input);
        asked.join().unwrap()
    });
    assert!(asked.is_err());
    assert!(cluster.guard_end(LIMIT).is_some());
    assert!(!directory.exists());
    assert!(!is_alive(&server));
}

#[test]
fn a_server_that_does_not_start_shows_its_log_and_leaves_nothing() {
    let (binaries, user, directory) = made();
    let path = directory.path().to_owned();
    let port = Cluster::choose_port(&path).unwrap();
    std::fs::write(path.join("data").join("postgresql.auto.conf"), "no_such_setting = 1\n").unwrap();
    let guard = Cluster::guard(&binaries, user.as_ref(), &path).unwrap();
    let mut cluster = Cluster { binaries, user, port, guard, directory };
    let error = cluster.wait_until_ready().unwrap_err().to_string();
    assert!(error.contains("did not start") && error.contains("no_such_setting"), "{error}");
    drop(cluster);
    assert!(!path.exists());
}
