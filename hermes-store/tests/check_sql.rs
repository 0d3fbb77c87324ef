//! Every SQL text of the store is prepared on the database that it is for: those of `src/sql` on both.
//!
//! The texts are found in the source, so that none can be forgotten: constants are evaluated as the compiler would,
//! with their `concat!` and the macros of this crate, and a literal that looks like a statement and stands in no
//! constant fails the test. What a statement returns and takes must be of the few types that the store's code reads
//! and binds, also where PostgreSQL would count in other sizes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hermes_store::SearchStore as _;
use hermes_store::postgres::PostgresStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore};
use sqlx::postgres::PgTypeInfo;
use sqlx::{AssertSqlSafe, Column as _, ConnectOptions as _, Either, Executor as _, Row as _, SqlSafeStr as _};
use sqlx::{Statement as _, TypeInfo as _};
use support::TestSchema;

/// How a statement begins.
const VERBS: [&str; 5] = ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "WITH "];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Text(String),
    Word(String),
    Sign(char),
}

#[derive(Debug, Clone)]
struct Placed {
    token: Token,
    line: usize,
}

/// The tokens of a source file, without comments, and without its tests.
fn tokens(source: &str) -> Vec<Placed> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let chars: Vec<char> = source.chars().collect();
    let (mut at, mut line, mut out) = (0, 1, Vec::new());
    while at < chars.len() {
        let (c, next) = (chars[at], chars.get(at + 1).copied().unwrap_or(' '));
        let began = line;
        let token = match c {
            '\n' => {
                line += 1;
                at += 1;
                continue;
            }
            '/' if next == '/' => {
                while at < chars.len() && chars[at] != '\n' {
                    at += 1;
                }
                continue;
            }
            '"' => Token::Text(text(&chars, &mut at, &mut line)),
            'r' if next == '"' || next == '#' => match raw_text(&chars, &mut at, &mut line) {
                Some(raw) => Token::Text(raw),
                None => word(&chars, &mut at),
            },
            '\'' => {
                character(&chars, &mut at);
                continue;
            }
            c if c.is_alphanumeric() || c == '_' || c == '$' => word(&chars, &mut at),
            c if c.is_whitespace() => {
                at += 1;
                continue;
            }
            c => {
                at += 1;
                Token::Sign(c)
            }
        };
        out.push(Placed { token, line: began });
    }
    out
}

fn word(chars: &[char], at: &mut usize) -> Token {
    let start = *at;
    while chars.get(*at).is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$')) {
        *at += 1;
    }
    Token::Word(chars[start..*at].iter().collect())
}

/// A literal with its escapes; a backslash at the end of a line takes the next line's indent away.
fn text(chars: &[char], at: &mut usize, line: &mut usize) -> String {
    let mut out = String::new();
    *at += 1;
    while chars[*at] != '"' {
        match (chars[*at], chars.get(*at + 1)) {
            ('\\', Some('\n')) => {
                *at += 1;
                while chars[*at].is_whitespace() {
                    *line += usize::from(chars[*at] == '\n');
                    *at += 1;
                }
                continue;
            }
            ('\\', Some(escaped)) => {
                out.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    '0' => '\0',
                    other => *other,
                });
                *at += 1;
            }
            (c, _) => {
                *line += usize::from(c == '\n');
                out.push(c);
            }
        }
        *at += 1;
    }
    *at += 1;
    out
}

fn raw_text(chars: &[char], at: &mut usize, line: &mut usize) -> Option<String> {
    let hashes = chars[*at + 1..].iter().take_while(|c| **c == '#').count();
    let start = *at + 1 + hashes;
    if chars.get(start) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let length = chars[start + 1..].windows(end.len()).position(|window| window == end).unwrap();
    let raw: String = chars[start + 1..start + 1 + length].iter().collect();
    *line += raw.matches('\n').count();
    *at = start + 1 + length + end.len();
    Some(raw)
}

/// A character or the mark of a lifetime.
fn character(chars: &[char], at: &mut usize) {
    *at += match (chars.get(*at + 1), chars.get(*at + 2)) {
        (Some('\\'), _) => 2 + chars[*at + 2..].iter().skip(1).position(|c| *c == '\'').unwrap() + 2,
        (Some(_), Some('\'')) => 3,
        _ => 1,
    };
}

/// One arm of a macro: its parameters and its body.
type Arm = (Vec<String>, Vec<Placed>);

/// One file of the store.
struct File {
    name: String,
    tokens: Vec<Placed>,
    macros: BTreeMap<String, Vec<Arm>>,
}

fn is(token: Option<&Placed>, sign: char) -> bool {
    token.is_some_and(|placed| placed.token == Token::Sign(sign))
}

fn name_at(tokens: &[Placed], at: usize) -> Option<&str> {
    match tokens.get(at).map(|placed| &placed.token) {
        Some(Token::Word(word)) => Some(word),
        _ => None,
    }
}

/// The position behind the bracket that closes the one at `open`.
fn closed(tokens: &[Placed], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, placed) in tokens.iter().enumerate().skip(open) {
        match placed.token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    panic!("line {}: no end of a bracket", tokens[open].line)
}

/// Splits at the signs that stand outside of brackets.
fn split(tokens: &[Placed], sign: char) -> Vec<&[Placed]> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        match tokens[at].token {
            Token::Sign('(' | '[' | '{') => at = closed(tokens, at),
            Token::Sign(c) if c == sign => {
                parts.push(&tokens[start..at]);
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    if start < tokens.len() {
        parts.push(&tokens[start..]);
    }
    parts
}

fn macros(tokens: &[Placed]) -> BTreeMap<String, Vec<Arm>> {
    let mut found = BTreeMap::new();
    for at in 0..tokens.len() {
        if name_at(tokens, at) != Some("macro_rules") {
            continue;
        }
        let name = name_at(tokens, at + 2).unwrap().to_owned();
        let body = &tokens[at + 4..closed(tokens, at + 3) - 1];
        let arms = split(body, ';').into_iter().filter(|arm| !arm.is_empty()).map(|arm| {
            let end = closed(arm, 0);
            let parameters = arm[1..end - 1].iter().filter_map(|placed| match &placed.token {
                Token::Word(word) if word.starts_with('$') => Some(word.clone()),
                _ => None,
            });
            // Behind the pattern stand `=` and `>`.
            let body = end + 2;
            (parameters.collect(), arm[body + 1..closed(arm, body) - 1].to_vec())
        });
        found.insert(name, arms.collect());
    }
    found
}

/// Evaluates constants.
struct Evaluator<'a> {
    file: &'a File,
    shared: &'a BTreeMap<String, Vec<Arm>>,
    used: Used,
}

impl Evaluator<'_> {
    /// The texts of an expression: one of a literal, many of an array. `None` for what is no text.
    fn texts(&mut self, tokens: &[Placed], bound: &BTreeMap<String, String>) -> Option<Vec<String>> {
        let first = tokens.first()?;
        match &first.token {
            Token::Text(text) => {
                self.used.insert((text.clone(), first.line));
                Some(vec![text.clone()])
            }
            Token::Sign('&') => self.texts(&tokens[1..], bound),
            Token::Sign('[' | '(') => {
                let parts = split(&tokens[1..closed(tokens, 0) - 1], ',');
                Some(parts.into_iter().filter_map(|part| self.texts(part, bound)).flatten().collect())
            }
            Token::Word(word) if word.starts_with('$') => Some(vec![bound.get(word)?.clone()]),
            Token::Word(name) if is(tokens.get(1), '!') => {
                let inner = &tokens[3..closed(tokens, 2) - 1];
                let arguments: Option<Vec<String>> =
                    split(inner, ',').into_iter().map(|part| self.texts(part, bound)?.into_iter().next()).collect();
                let arguments = arguments?;
                if name == "concat" {
                    return Some(vec![arguments.concat()]);
                }
                let arms = self.file.macros.get(name).or_else(|| self.shared.get(name))?.clone();
                let (parameters, body) = arms.into_iter().find(|(names, _)| names.len() == arguments.len())?;
                self.texts(&body, &parameters.into_iter().zip(arguments).collect())
            }
            _ => None,
        }
    }
}

fn is_statement(text: &str) -> bool {
    VERBS.iter().any(|verb| text.trim_start().starts_with(verb))
}

/// Literals that were part of a constant: their text and their line.
type Used = BTreeSet<(String, usize)>;

/// The statements of one file, by the name of their constant, and the literals that they are made of.
fn statements(file: &File, shared: &BTreeMap<String, Vec<Arm>>) -> (Vec<(String, String)>, Used) {
    let mut evaluator = Evaluator { file, shared, used: BTreeSet::new() };
    let mut found = Vec::new();
    let tokens = &file.tokens;
    for at in 0..tokens.len() {
        if name_at(tokens, at) != Some("const") || !is(tokens.get(at + 2), ':') {
            continue;
        }
        let parts = split(&tokens[at..], ';');
        let Some(value) = parts[0].iter().position(|placed| placed.token == Token::Sign('=')) else { continue };
        for text in evaluator.texts(&parts[0][value + 1..], &BTreeMap::new()).unwrap_or_default() {
            if is_statement(&text) {
                found.push((format!("{} {}", file.name, name_at(tokens, at + 1).unwrap()), text));
            }
        }
    }
    (found, evaluator.used)
}

/// Fails for a statement that no constant, of its own file or of another by a macro, contains.
fn all_used(file: &File, used: &Used) {
    for placed in &file.tokens {
        if let Token::Text(text) = &placed.token
            && is_statement(text)
            && !used.contains(&(text.clone(), placed.line))
        {
            panic!("{}:{}: a statement that stands in no constant is never checked: {text}", file.name, placed.line);
        }
    }
}

fn files(folder: &str) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths: Vec<PathBuf> = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            let tokens = tokens(&std::fs::read_to_string(&path).unwrap());
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            found.push(File { name, macros: macros(&tokens), tokens });
        }
    }
    found
}

fn all(folders: &[&str]) -> Vec<(String, String)> {
    let files: Vec<File> = folders.iter().flat_map(|folder| files(folder)).collect();
    let mut shared = BTreeMap::new();
    for file in &files {
        shared.extend(file.macros.clone());
    }
    let (found, used): (Vec<_>, Vec<Used>) = files.iter().map(|file| statements(file, &shared)).unzip();
    let used = used.into_iter().flatten().collect();
    files.iter().for_each(|file| all_used(file, &used));
    found.into_iter().flatten().collect()
}

#[tokio::test]
async fn every_statement_can_be_prepared_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let clock = std::sync::Arc::new(hermes_store::HostClock::new());
    let store = SqliteStore::open(SqliteOptions::new(&path, clock)).await.unwrap();
    // The index stands in a file of its own, made when it is first needed.
    store.rebuild_index().await.unwrap();
    let at = |path: &Path| sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut conn = at(&path).connect().await.unwrap();
    let mut index = at(&dir.path().join("hermes-search.db")).connect().await.unwrap();
    let statements = all(&["sql", "sqlite"]);
    assert!(statements.len() > 50, "the scan finds them: {}", statements.len());
    let mut wrong = Vec::new();
    for (name, sql) in &statements {
        let of_index = ["sqlite/index.rs", "sqlite/search.rs"].iter().any(|file| name.starts_with(file));
        let conn = if of_index { &mut index } else { &mut conn };
        if let Err(error) = conn.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await {
            wrong.push(format!("{name}: {error}\n    {sql}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a PostgreSQL statement takes and returns that the store does not bind and read, or the server's refusal.
async fn check_on_postgres(conn: &mut sqlx::PgConnection, sql: &str) -> Result<(), String> {
    let text = || AssertSqlSafe(sql.to_owned()).into_sql_str();
    let guessed = (&mut *conn).prepare(text()).await.map_err(|error| error.to_string())?;
    let Some(Either::Left(guessed)) = guessed.parameters() else { return Err("no parameters are told".to_owned()) };
    // Beside a literal the server guesses the small integer; the store binds the large one.
    let bound: Vec<PgTypeInfo> = guessed
        .iter()
        .map(|kind| if kind.name() == "INT4" { PgTypeInfo::with_name("INT8") } else { kind.clone() })
        .collect();
    let known = ["TEXT", "INT8", "BYTEA", "TEXT[]", "NAME"];
    if let Some(other) = bound.iter().find(|kind| !known.contains(&kind.name())) {
        return Err(format!("takes a parameter of the type {other}"));
    }
    let statement = (&mut *conn).prepare_with(text(), &bound).await.map_err(|error| error.to_string())?;
    for column in statement.columns() {
        let kind = column.type_info().name();
        if !known.contains(&kind) && kind != "VOID" {
            return Err(format!("returns column {} of the type {kind}", column.name()));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_can_be_prepared_on_postgres() {
    let schema = TestSchema::new();
    let store = PostgresStore::connect(schema.options()).await.unwrap();
    // The tables of the index are made when they are first needed.
    store.rebuild_index().await.unwrap();
    let mut conn = schema.connection().await;
    let statements = all(&["sql", "postgres"]);
    assert!(statements.len() > 50, "the scan finds them: {}", statements.len());
    let mut wrong = Vec::new();
    for (name, sql) in &statements {
        if let Err(error) = check_on_postgres(&mut conn, sql).await {
            wrong.push(format!("{name}: {error}\n    {sql}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    store.close().await;
}

/// Tables that grow with every turn. No statement may look at all their rows, except those of [`WHOLE`].
const GROWING: [&str; 5] = ["messages", "calls", "turns", "admissions", "usage_log"];
/// Rows of each growing table that plans are made for, and the conversations that they belong to.
const PLAN_ROWS: usize = 100_000;
const PLAN_CONVERSATIONS: usize = 100;
/// Statements that read a whole table on purpose, by file and constant: a check of the store, its sizes, and what is done
/// once to a restored backup.
const WHOLE: [&str; 5] = [
    "sql/maintenance.rs CHECKS",
    "sql/maintenance.rs SIZES",
    "sqlite/maintenance.rs CANCEL_WAITING",
    "sqlite/maintenance.rs LOSE_STARTED",
    "sqlite/maintenance.rs DOUBT_CALLS",
];

/// Fills a store as many turns do: words that both databases understand but for where the numbers come from.
fn filling(numbers: &str) -> Vec<String> {
    let each = PLAN_ROWS / PLAN_CONVERSATIONS;
    let place = format!("'c' || (n / {each}), n % {each} + 1");
    vec![
        format!(
            "INSERT INTO conversations (id, profile, source, revision, token, generation, seq, place, lease_expires_ms, \
             lease_ttl_ms, freed_ms, message_count, created_ms, activity_ms, tip) SELECT 'c' || n, 'p', 's', 1, 1, 1, {each}, \
             {each}, 0, 0, 0, {each}, n, n, 's' || n FROM ({numbers}) AS x WHERE n < {PLAN_CONVERSATIONS}"
        ),
        format!(
            "INSERT INTO sessions (id, conversation_id, provider, model, prompt_hash, tools_hash, first_seq, started_ms) \
             SELECT 's' || n, 'c' || n, 'p', 'm', 'h', 'h', 0, n FROM ({numbers}) AS x WHERE n < {PLAN_CONVERSATIONS}"
        ),
        format!(
            "INSERT INTO messages (id, conversation_id, seq, session_id, turn_id, role, kind, state, content, has_calls, \
             digest, created_ms) SELECT 'm' || n, {place}, 's' || (n / {each}), 't' || (n / 10), \
             CASE n % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, 'normal', 'active', 'x', 0, 'd', n \
             FROM ({numbers}) AS x"
        ),
        format!(
            "INSERT INTO calls (id, conversation_id, result_seq, turn_id, assistant_id, assistant_seq, result_id, \
             provider_id, name, arguments, replay, state, written_ms) SELECT 'k' || n, {place}, 't' || (n / 10), 'm' || n, \
             n % {each} + 1, 'r' || n, 'i', 'f', '{{}}', 'never', 'settled', n FROM ({numbers}) AS x"
        ),
        format!(
            "INSERT INTO admissions (id, conversation_id, seq, principal, request_id, intent, payload, submitted_by, \
             status, turn_id, created_ms) SELECT 'a' || n, {place}, 'p', 'r' || n, 'queue', 'x', 'o', 'terminal', 't' || n, \
             n FROM ({numbers}) AS x"
        ),
        format!(
            "INSERT INTO turns (id, conversation_id, first_seq, admission_id, generation, attempt, status, api_calls, \
             started_ms) SELECT 't' || n, {place}, 'a' || n, 1, 1, 'ended', 1, n FROM ({numbers}) AS x"
        ),
        format!(
            "INSERT INTO usage_log (attempt, conversation_id, provider, model, task, input, output, cache_read, \
             cache_write, reasoning, known) SELECT 'u' || n, 'c' || (n / {each}), 'p', 'm', '', 1, 1, 0, 0, 0, 1 \
             FROM ({numbers}) AS x"
        ),
        "ANALYZE".to_owned(),
    ]
}

/// Fails for a statement that reads a whole growing table and is not known to.
fn only_known(found: &[(String, String)]) {
    let wrong = found.iter().filter(|(name, _)| !WHOLE.contains(&name.as_str()));
    let shown: Vec<_> = wrong.map(|(name, plan)| format!("{name}\n{plan}")).collect();
    assert!(shown.is_empty(), "these look at all rows of a table that grows:\n{}", shown.join("\n"));
}

#[tokio::test]
async fn i25_no_statement_looks_at_all_rows_of_a_growing_table_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hermes.db");
    let clock = std::sync::Arc::new(hermes_store::HostClock::new());
    SqliteStore::open(SqliteOptions::new(&path, clock)).await.unwrap().close().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).foreign_keys(false);
    let mut conn = options.connect().await.unwrap();
    let numbers = format!(
        "WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s",
        PLAN_ROWS - 1
    );
    for sql in filling(&numbers) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    }
    let (mut found, mut plans) = (Vec::new(), 0);
    for (name, sql) in all(&["sql", "sqlite"]) {
        if ["sqlite/index.rs", "sqlite/search.rs"].iter().any(|file| name.starts_with(file)) {
            continue;
        }
        let plan = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(&mut conn).await;
        let Ok(plan) = plan else { continue };
        let lines: Vec<String> = plan.iter().map(|row| row.get(3)).collect();
        let text = format!("{sql}\n    {}", lines.join("\n    "));
        // A name behind SCAN may be an alias; what is read in the order of an index and ends early is no whole look.
        let whole = |line: &String| {
            let mut words = line.split_whitespace();
            let scanned = words.next() == Some("SCAN");
            let table = words.next().unwrap_or_default();
            let real = GROWING.iter().any(|name| {
                *name == table
                    || (sql.contains(&format!("{name} {table} ")) || sql.contains(&format!("{name} AS {table} ")))
            });
            scanned && real
        };
        if lines.iter().any(whole) {
            found.push((name, text));
        }
        plans += 1;
    }
    assert!(plans > 50, "plans were made: {plans}");
    only_known(&found);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i25_no_statement_looks_at_all_rows_of_a_growing_table_on_postgres() {
    let schema = TestSchema::new();
    let store = PostgresStore::connect(schema.options()).await.unwrap();
    store.rebuild_index().await.unwrap();
    let mut conn = schema.connection().await;
    support::run(&mut conn, "SET session_replication_role = replica; SET plan_cache_mode = force_generic_plan").await;
    for sql in filling(&format!("SELECT n FROM generate_series(0, {}) AS n", PLAN_ROWS - 1)) {
        support::run(&mut conn, &sql).await;
    }
    let (mut found, mut plans) = (Vec::new(), 0);
    for (name, sql) in all(&["sql", "postgres"]) {
        let prepared = (&mut conn).prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await.unwrap();
        let Some(Either::Left(parameters)) = prepared.parameters().map(|p| p.map_left(<[_]>::to_vec)) else { panic!() };
        let nulls = vec!["NULL"; parameters.len()].join(", ");
        let arguments = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
        support::run(&mut conn, &format!("PREPARE plan AS {sql}")).await;
        let explain = format!("EXPLAIN EXECUTE plan{arguments}");
        let lines: Vec<String> = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_all(&mut conn)
            .await
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        support::run(&mut conn, "DEALLOCATE plan").await;
        let whole = |line: &String| {
            GROWING.iter().any(|table| {
                line.contains(&format!("Seq Scan on {table} "))
                    || line.trim_end().ends_with(&format!("Seq Scan on {table}"))
            })
        };
        if lines.iter().any(whole) {
            found.push((name, format!("{sql}\n    {}", lines.join("\n    "))));
        }
        plans += 1;
    }
    assert!(plans > 50, "plans were made: {plans}");
    only_known(&found);
    store.close().await;
}

#[test]
fn the_scan_sees_what_the_compiler_sees() {
    let source = r##"
        // const NOT: &str = "SELECT comment";
        macro_rules! columns { () => { "a, \
            b" }; }
        macro_rules! rest { ($rest:literal) => { concat!("SELECT ", columns!(), $rest) }; }
        const PLAIN: &str = "SELECT 'it''s' \"q\" \
            FROM t";
        pub(super) const JOINED: &str = concat!("SELECT ", columns!(), " FROM t");
        const WITH_REST: &str = rest!(" FROM u");
        const MANY: [&str; 2] = ["DELETE FROM a", "DELETE FROM b"];
        const RAW: &str = r#"UPDATE "t" SET a = 1"#;
        const NUMBER: u32 = 1;
        fn f<'a>(c: char) -> bool { c == '"' || c == '\'' }
        #[cfg(test)]
mod tests { const T: &str = "SELECT test"; }
    "##;
    let tokens = tokens(source);
    let file = File { name: "f.rs".to_owned(), macros: macros(&tokens), tokens };
    let found: Vec<_> = statements(&file, &BTreeMap::new()).0.into_iter().map(|(_, sql)| sql).collect();
    assert_eq!(
        found,
        [
            "SELECT 'it''s' \"q\" FROM t",
            "SELECT a, b FROM t",
            "SELECT a, b FROM u",
            "DELETE FROM a",
            "DELETE FROM b",
            "UPDATE \"t\" SET a = 1",
        ]
    );
}

#[test]
#[should_panic(expected = "f.rs:2: a statement that stands in no constant")]
fn a_statement_outside_of_a_constant_is_found() {
    let tokens = tokens("fn f() {\n sqlx::query(\"SELECT 1\");\n}");
    let file = File { name: "f.rs".to_owned(), macros: macros(&tokens), tokens };
    let (_, used) = statements(&file, &BTreeMap::new());
    all_used(&file, &used);
}
