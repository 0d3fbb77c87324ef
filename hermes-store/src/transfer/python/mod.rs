//! Reads the Python program's `state.db`, of any of its schema versions 16 to 32, as bundles.
//!
//! The file is never written (`open`). Which columns there are is asked of the file and not concluded from its version:
//! the program adds columns to files whose version stays. What is read, and how, is in `decode`; which sessions are one
//! conversation, in `lineage`; how rows become rows of ours, in `rows`.
//!
//! Every row of a user, an assistant or a tool is carried, live, compacted or rewound as it is there (S50). Calls and
//! results that have lost each other get a counterpart that says so; nothing is dropped for it (I13, I14).

mod decode;
mod lineage;
mod open;
mod own;
mod rows;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::bundle::{ImportKey, ImportOutcome, RowCounts};
use crate::error::StoreError;
use crate::ids::ConversationId;
use crate::prompt::PromptHash;
use crate::transfer::TransferStore;
use lineage::{Chain, Mark, Node};
use open::{Access, Opened, Scratch, Watch};

/// The oldest schema that is read. Before it nothing said which sessions were delegated tasks.
pub const OLDEST_VERSION: i64 = 16;
/// The newest schema that is known.
pub const NEWEST_VERSION: i64 = 32;
/// The name of the database in a home directory of the Python program.
const FILE_NAME: &str = "state.db";
/// Most conversations of one kind that a report names; the others are counted.
pub const NAMED_MAX: usize = 20;

/// Tables that hold the state of running processes, or things that have no place here, with what to call them.
const LEFT_BEHIND: &[(&str, &str)] = &[
    ("session_turn_leases", "turn leases"),
    ("compression_locks", "compression locks"),
    ("gateway_heartbeats", "heartbeats"),
    ("session_admissions", "admissions"),
    ("worker_executions", "workers"),
    ("worker_receipts", "worker receipts"),
    ("gateway_routing", "messaging routes"),
    ("gateway_hygiene_state", "messaging hygiene counters"),
    ("conversation_generations", "route generations"),
    ("async_delegations", "delegations"),
    ("delivery_obligations", "deliveries"),
    ("telegram_dm_topic_mode", "Telegram topic settings"),
    ("telegram_dm_topic_bindings", "Telegram topic bindings"),
];

/// Files of a home that are not part of its sessions.
const FILES_LEFT_BEHIND: &[(&str, &str)] = &[
    ("cron/jobs.json", "cron jobs (file cron/jobs.json)"),
    ("cron/executions.db", "cron executions (file cron/executions.db)"),
    ("kanban.db", "kanban board (file kanban.db)"),
    ("response_store.db", "stored API responses (file response_store.db)"),
    ("runs_idempotency.db", "API run records (file runs_idempotency.db)"),
];

fn map(error: sqlx::Error) -> StoreError {
    crate::sqlite::map_error(error)
}

/// Something that was found and is told, with how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes(pub BTreeMap<String, u64>);

impl Notes {
    fn add(&mut self, what: &str) {
        self.add_many(what, 1);
    }

    fn add_many(&mut self, what: &str, count: u64) {
        if count > 0 {
            *self.0.entry(what.to_owned()).or_default() += count;
        }
    }

    fn merge(&mut self, other: Self) {
        for (what, count) in other.0 {
            self.add_many(&what, count);
        }
    }
}

/// What an import did. The rows of the first four counts together are those of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    /// The schema version of the file; 0 for an export of this program.
    pub version: i64,
    /// Rows in the file.
    pub found: RowCounts,
    /// Rows that were imported now, without those that were added.
    pub imported: RowCounts,
    /// Rows of conversations that were imported before.
    pub known: RowCounts,
    /// Rows of conversations that were not imported, or of roles that have no place here.
    pub left: RowCounts,
    /// Rows that were added so that each call has its result and each result its call.
    pub added: u64,
    /// Sessions in the file.
    pub sessions: u64,
    /// Conversations that were imported now.
    pub conversations: u64,
    /// Conversations that are here from an earlier import, as they are there.
    pub same: u64,
    /// Conversations that were imported before and have gone on there since, the first [`NAMED_MAX`].
    pub changed: Vec<String>,
    /// Conversations that were refused because something here has one of their ids, the first [`NAMED_MAX`].
    pub taken: Vec<String>,
    /// Conversations that could not be read, with why, the first [`NAMED_MAX`].
    pub failed: Vec<String>,
    /// How many were not imported in all.
    pub refused: u64,
    /// What was mended or noticed, with how often.
    pub notes: Notes,
    /// What is not carried, with how many there are.
    pub left_behind: Notes,
}

impl ImportReport {
    pub(super) fn refuse(&mut self, list: impl FnOnce(&mut Self) -> &mut Vec<String>, what: String) {
        self.refused += 1;
        let list = list(self);
        if list.len() < NAMED_MAX {
            list.push(what);
        }
    }

    /// Whether everything that can be carried is here now.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused == 0
    }
}

/// What is read of a session before its rows.
#[derive(Debug, Clone, Default)]
struct Session {
    node: Node,
    title: Option<String>,
    title_source: Option<String>,
    model: Option<String>,
    provider: Option<String>,
    cwd: Option<String>,
    flags: [bool; 3],
}

/// The Python program's database, opened for reading.
pub struct PythonStore {
    conn: SqliteConnection,
    access: Access,
    watch: Watch,
    _scratch: Option<Scratch>,
    home: PathBuf,
    version: i64,
    /// Which store it is, as long as it stays where it is.
    id: String,
    columns: BTreeMap<&'static str, BTreeSet<String>>,
    sessions: Vec<Session>,
    chains: Vec<Chain>,
}

impl std::fmt::Debug for PythonStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PythonStore").field("version", &self.version).finish_non_exhaustive()
    }
}

impl PythonStore {
    /// Opens `path`: the database, or the home directory that it lies in. `scratch` is a directory of ours for a copy,
    /// when the file needs mending before it can be read.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] for something that is not the Python program's, or that is too
    /// old; [`StoreError::TooNew`]; [`StoreError::Corrupt`]; [`StoreError::Retryable`] when somebody wrote meanwhile.
    pub async fn open(path: &Path, scratch: &Path) -> Result<Self, StoreError> {
        let given = tokio::fs::metadata(path).await;
        let file = if given.is_ok_and(|found| found.is_dir()) { path.join(FILE_NAME) } else { path.to_owned() };
        let real = tokio::fs::canonicalize(&file).await.map_err(|_| match own::in_home(path) {
            Some(own) => own::refused(&own),
            None => StoreError::NotFound { what: format!("{}", file.display()) },
        })?;
        let Opened { mut conn, access, watch, scratch } = open::open(&real, scratch).await?;
        let mut columns = BTreeMap::new();
        for table in [
            "sessions",
            "messages",
            "system_prompts",
            "session_model_usage",
            "state_meta",
            "schema_version",
            own::OWN_TABLE,
        ] {
            let found = sqlx::query_scalar::<_, String>("SELECT name FROM pragma_table_info($1)").bind(table);
            columns.insert(table, found.fetch_all(&mut conn).await.map_err(map)?.into_iter().collect());
        }
        let home = real.parent().map(Path::to_owned).unwrap_or_default();
        let (id, version) = (format!("path:{}", PromptHash::of(real.as_os_str().as_encoded_bytes()).as_str()), 0);
        let mut store = Self {
            conn,
            access,
            watch,
            _scratch: scratch,
            home,
            version,
            id,
            columns,
            sessions: Vec::new(),
            chains: Vec::new(),
        };
        store.version = store.read_version(&file).await?;
        if let Some(id) = store.read_meta("store_instance_id").await? {
            store.id = format!("instance:{}", PromptHash::of(id.as_bytes()).as_str());
        }
        store.read_sessions().await?;
        let nodes: Vec<Node> = store.sessions.iter().map(|session| session.node.clone()).collect();
        store.chains = lineage::chains(&nodes);
        Ok(store)
    }

    /// Its schema version.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// How many conversations there are.
    #[must_use]
    pub fn conversations(&self) -> usize {
        self.chains.len()
    }

    /// Ends the connection. A store that is dropped instead loses nothing.
    pub async fn close(self) {
        let _ = self.conn.close().await;
    }

    fn has(&self, table: &str, column: &str) -> bool {
        self.columns.get(table).is_some_and(|columns| columns.contains(column))
    }

    fn has_table(&self, table: &str) -> bool {
        self.columns.get(table).is_some_and(|columns| !columns.is_empty())
    }

    /// A column as an expression: its text as bytes, or NULL where this version has none.
    fn text_of(&self, table: &str, column: &str) -> String {
        self.expression(table, column, &format!("CAST({column} AS BLOB)"))
    }

    fn expression(&self, table: &str, column: &str, otherwise: &str) -> String {
        if self.has(table, column) { otherwise.to_owned() } else { "NULL".to_owned() }
    }

    async fn read_version(&mut self, file: &Path) -> Result<i64, StoreError> {
        if self.has_table(own::OWN_TABLE) {
            return Err(own::refused(file));
        }
        if !self.has("sessions", "source") || !self.has("messages", "role") || !self.has("schema_version", "version") {
            return Err(StoreError::Invalid {
                detail: format!("{} is not a database of the Python program", file.display()),
            });
        }
        let version: Option<i64> = sqlx::query_scalar("SELECT CAST(MAX(version) AS INTEGER) FROM schema_version")
            .fetch_one(&mut self.conn)
            .await
            .map_err(map)?;
        match version.unwrap_or(0) {
            found if found > NEWEST_VERSION => Err(StoreError::TooNew { found, known: NEWEST_VERSION }),
            found if found < OLDEST_VERSION => Err(StoreError::Invalid {
                detail: format!(
                    "the database has schema {found}, and {OLDEST_VERSION} is the oldest that is read; start a newer \
                     Python program once, which brings it up to date"
                ),
            }),
            found => Ok(found),
        }
    }

    async fn read_meta(&mut self, key: &str) -> Result<Option<String>, StoreError> {
        if !self.has_table("state_meta") {
            return Ok(None);
        }
        let found: Option<Option<String>> =
            sqlx::query_scalar("SELECT CAST(value AS TEXT) FROM state_meta WHERE key = $1")
                .bind(key)
                .fetch_optional(&mut self.conn)
                .await
                .map_err(map)?;
        Ok(found.flatten().filter(|value| !value.is_empty()))
    }

    /// Reads what decides about every session's place. Not their prompts and rows.
    async fn read_sessions(&mut self) -> Result<(), StoreError> {
        let text = |column: &str| self.text_of("sessions", column);
        let number = |column: &str, cast: &str| self.expression("sessions", column, cast);
        let sql = format!(
            "SELECT CAST(id AS BLOB), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, CAST(started_at AS REAL), {}, {}, {}, {}, \
             {} FROM sessions ORDER BY started_at, id",
            text("parent_session_id"),
            text("source"),
            text("session_key"),
            text("end_reason"),
            text("title"),
            text("title_source"),
            text("model"),
            text("model_config"),
            text("billing_provider"),
            text("cwd"),
            text("git_repo_root"),
            number("ended_at", "CAST(ended_at AS REAL)"),
            number("last_activity_at", "CAST(last_activity_at AS REAL)"),
            number("archived", "CAST(archived AS INTEGER)"),
            number("pinned", "CAST(pinned AS INTEGER)"),
            number("hidden", "CAST(hidden AS INTEGER)"),
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&mut self.conn).await.map_err(map)?;
        self.sessions = rows.iter().map(session).collect::<Result<_, _>>()?;
        if !self.has("sessions", "last_activity_at") {
            self.read_activity().await?;
        }
        Ok(())
    }

    /// The newest row's time stands for the activity where this version does not keep it.
    async fn read_activity(&mut self) -> Result<(), StoreError> {
        let sql = "SELECT CAST(session_id AS BLOB), MAX(CAST(timestamp AS REAL)) FROM messages GROUP BY session_id";
        let rows = sqlx::query(sql).fetch_all(&mut self.conn).await.map_err(map)?;
        let mut newest: std::collections::HashMap<String, f64> = std::collections::HashMap::new();
        for row in &rows {
            if let (Some(id), Some(time)) = (string(row, 0)?, get::<Option<f64>>(row, 1)?) {
                newest.insert(id, time);
            }
        }
        for session in &mut self.sessions {
            if let Some(time) = newest.get(&session.node.id) {
                session.node.last_activity = *time;
            }
        }
        Ok(())
    }

    /// Rows of the whole file, and those that no session holds or whose role has no place.
    async fn survey(&mut self, report: &mut ImportReport) -> Result<(), StoreError> {
        report.version = self.version;
        report.sessions = self.sessions.len() as u64;
        let state = self.state_expression("");
        let sql = format!(
            "SELECT {state}, role IN ('user', 'assistant', 'tool'), session_id IN (SELECT id FROM sessions), COUNT(*), \
             MAX(CAST(role AS TEXT)) FROM messages GROUP BY 1, 2, 3, CASE WHEN role IN ('user', 'assistant', 'tool') \
             THEN '' ELSE role END"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&mut self.conn).await.map_err(map)?;
        for row in &rows {
            let counts = counts_of(get(row, 0)?, get(row, 3)?);
            report.found.merge(counts);
            let (has_role, has_session): (bool, bool) = (get(row, 1)?, get(row, 2)?);
            if has_role && has_session {
                continue;
            }
            report.left.merge(counts);
            let what = match has_session {
                false => "rows whose session is not there".to_owned(),
                true => format!("rows of the role {:?}", get::<Option<String>>(row, 4)?.unwrap_or_default()),
            };
            report.left_behind.add_many(&what, counts.total());
        }
        for (table, name) in LEFT_BEHIND {
            let there: i64 =
                sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1")
                    .bind(table)
                    .fetch_one(&mut self.conn)
                    .await
                    .map_err(map)?;
            if there > 0 {
                let sql = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
                let count: i64 = sqlx::query_scalar(sql).fetch_one(&mut self.conn).await.map_err(map)?;
                report.left_behind.add_many(name, count.unsigned_abs());
            }
        }
        for prefix in ["goal:", "heartbeat:", "loop:", "gateway."] {
            if self.has_table("state_meta") {
                let sql = "SELECT COUNT(*) FROM state_meta WHERE substr(key, 1, length($1)) = $1";
                let count: i64 = sqlx::query_scalar(sql).bind(prefix).fetch_one(&mut self.conn).await.map_err(map)?;
                report.left_behind.add_many(&format!("records {prefix}*"), count.unsigned_abs());
            }
        }
        for (file, name) in FILES_LEFT_BEHIND {
            let there = tokio::fs::try_exists(self.home.join(file)).await.unwrap_or(false);
            report.left_behind.add_many(name, u64::from(there));
        }
        Ok(())
    }

    /// 0 live, 1 compacted, 2 rewound. A row without a flag is live, as the program mends it itself.
    fn state_expression(&self, of: &str) -> String {
        let active = self.expression("messages", "active", &format!("{of}active"));
        let compacted = self.expression("messages", "compacted", &format!("{of}compacted"));
        format!("CASE WHEN COALESCE({active}, 1) <> 0 THEN 0 WHEN COALESCE({compacted}, 0) <> 0 THEN 1 ELSE 2 END")
    }

    /// Rows that a conversation brings, and a text that changes when it does.
    async fn fingerprint(&mut self, chain: &Chain) -> Result<(RowCounts, String), StoreError> {
        let state = self.state_expression("");
        let sql = format!(
            "SELECT {state}, COUNT(*), MAX(id) FROM messages WHERE session_id = CAST($1 AS TEXT) AND role IN \
             ('user', 'assistant', 'tool') GROUP BY 1 ORDER BY 1"
        );
        let mut counts = RowCounts::default();
        let mut text = String::new();
        for at in &chain.sessions {
            let session = &self.sessions[*at];
            text.push_str(&format!(
                "{}\n{:?}\n{:?}\n{:?}\n",
                session.node.id, session.title, session.node.end_reason, session.flags
            ));
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql.clone())).bind(&session.node.id);
            for row in rows.fetch_all(&mut self.conn).await.map_err(map)? {
                let (state, number, last): (i64, i64, i64) = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
                counts.merge(counts_of(state, number));
                text.push_str(&format!("{state} {number} {last}\n"));
            }
        }
        Ok((counts, PromptHash::of(text.as_bytes()).as_str().to_owned()))
    }

    /// Imports everything into `store`, one conversation in one transaction, for `profile`. What was imported before is
    /// recognised: an import that was stopped goes on, and one that was finished changes nothing. `progress` is told
    /// after each conversation how many are done.
    ///
    /// # Errors
    /// Those of reading the file as a whole and of the store. A conversation that cannot be read is in the report.
    pub async fn import_into(
        &mut self,
        store: &dyn TransferStore,
        profile: &str,
        progress: &mut (dyn FnMut(usize) + Send),
    ) -> Result<ImportReport, StoreError> {
        let mut report = ImportReport::default();
        self.survey(&mut report).await?;
        for at in 0..self.chains.len() {
            let chain = self.chains[at].clone();
            self.import_one(store, profile, &chain, &mut report).await?;
            progress(at + 1);
        }
        Ok(report)
    }

    async fn import_one(
        &mut self,
        store: &dyn TransferStore,
        profile: &str,
        chain: &Chain,
        report: &mut ImportReport,
    ) -> Result<(), StoreError> {
        let (counts, fingerprint) = self.fingerprint(chain).await?;
        let root = self.sessions[chain.sessions[0]].node.id.clone();
        let key = ImportKey { source: format!("python:{}", self.id), id: root.clone(), fingerprint };
        let mut source = source::Source::new(self, chain, profile);
        let outcome = store.import(&key, &mut source).await;
        let notes = source.finish().await;
        match outcome {
            Ok(ImportOutcome::Imported { rows, added, .. }) => {
                let mended = notes.0.get(rows::ADDED_CALL).copied().unwrap_or(0);
                let added = added + mended;
                if rows.total() != counts.total() + added {
                    report.notes.add("conversations that changed while they were read");
                }
                report.conversations += 1;
                report.imported.merge(counts);
                report.added += added;
                report.notes.merge(notes);
            }
            Ok(ImportOutcome::Same { .. }) => {
                report.same += 1;
                report.known.merge(counts);
            }
            Ok(ImportOutcome::Changed { conversation }) => {
                report.left.merge(counts);
                report.refuse(|report| &mut report.changed, conversation.to_string());
            }
            Ok(ImportOutcome::Taken { what }) => {
                report.left.merge(counts);
                report.refuse(|report| &mut report.taken, format!("{}: {what}", shown(&root)));
            }
            Err(error @ (StoreError::Invalid { .. } | StoreError::Limit { .. } | StoreError::Conflict { .. })) => {
                report.left.merge(counts);
                report.refuse(|report| &mut report.failed, format!("{}: {error}", shown(&root)));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Fails when the file is not what it was when it was opened.
    async fn check_still(&self) -> Result<(), StoreError> {
        if self.access == Access::Still {
            let watch = self.watch.clone();
            return tokio::task::spawn_blocking(move || watch.check())
                .await
                .map_err(|error| StoreError::Io { detail: error.to_string() })?;
        }
        Ok(())
    }
}

/// An id for a report: those of the file may be anything.
fn shown(id: &str) -> String {
    match ConversationId::parse(id) {
        Ok(id) => id.to_string(),
        Err(_) => format!("{:?}", id.chars().take(40).collect::<String>()),
    }
}

fn counts_of(state: i64, number: i64) -> RowCounts {
    let number = number.unsigned_abs();
    match state {
        0 => RowCounts { active: number, ..RowCounts::default() },
        1 => RowCounts { compacted: number, ..RowCounts::default() },
        _ => RowCounts { superseded: number, ..RowCounts::default() },
    }
}

fn get<'r, T>(row: &'r SqliteRow, index: usize) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(index).map_err(map)
}

/// A text column that was read as bytes.
fn string(row: &SqliteRow, index: usize) -> Result<Option<String>, StoreError> {
    Ok(get::<Option<Vec<u8>>>(row, index)?.map(|bytes| decode::text(bytes).0))
}

fn session(row: &SqliteRow) -> Result<Session, StoreError> {
    let started_at: f64 = get::<Option<f64>>(row, 12)?.unwrap_or(0.0);
    let config = string(row, 8)?.and_then(|text| decode::json_layers(&text));
    let mark = |name: &str| match config.as_ref().and_then(|config| config.get(name)) {
        None | Some(serde_json::Value::Null) => Mark::None,
        Some(serde_json::Value::String(id)) => Mark::Of(id.clone()),
        Some(_) => Mark::Bare,
    };
    let configured = |name: &str| {
        config.as_ref().and_then(|config| config.get(name)).and_then(serde_json::Value::as_str).map(str::to_owned)
    };
    let flag = |index: usize| get::<Option<i64>>(row, index).map(|flag| flag.unwrap_or(0) != 0);
    Ok(Session {
        node: Node {
            id: string(row, 0)?.unwrap_or_default(),
            parent: string(row, 1)?.filter(|parent| !parent.is_empty()),
            source: string(row, 2)?.filter(|s| !s.is_empty()).unwrap_or_else(|| "unknown".to_owned()),
            session_key: string(row, 3)?,
            end_reason: string(row, 4)?,
            started_at,
            ended_at: get(row, 13)?,
            last_activity: get::<Option<f64>>(row, 14)?.unwrap_or(started_at),
            branched: mark("_branched_from"),
            delegated: mark("_delegate_from"),
            reset: mark("_reset_from"),
        },
        title: string(row, 5)?,
        title_source: string(row, 6)?,
        model: string(row, 7)?.or_else(|| configured("model")),
        provider: string(row, 9)?.filter(|p| !p.is_empty()).or_else(|| configured("provider")),
        cwd: string(row, 10)?.or(string(row, 11)?),
        flags: [flag(15)?, flag(16)?, flag(17)?],
    })
}
