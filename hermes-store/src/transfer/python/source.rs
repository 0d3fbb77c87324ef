//! One conversation of the Python program as the parts of a bundle, read page by page.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value};
use sqlx::sqlite::SqliteRow;

use super::lineage::Chain;
use super::open::Access;
use super::rows::{Ids, Maker, RawRow};
use super::{Notes, PythonStore, decode, get, map, string};
use crate::error::StoreError;
use crate::ids::{ConversationId, InvalidId, SessionId};
use crate::message::UsageTotals;
use crate::prompt::PromptSnapshot;
use crate::rules::{clean_title, invalid};
use crate::session::TitleSource;
use crate::transfer::bundle::{
    BundleConversation, BundleEnd, BundlePart, BundlePrompt, BundleSession, BundleSource, Exact,
};

/// Rows that are read at one time.
const PAGE_ROWS: i64 = 200;
/// The provider of a session that names none.
const NAMELESS: &str = "unknown";
/// The tool list of a session that stored none.
const NO_TOOLS: &[u8] = b"[]";

/// Where the reading of a conversation stands.
enum Stage {
    Head,
    Session { number: usize, maker_ms: i64, after: i64, is_all: bool },
    Tail,
    Done,
}

/// The parts of one conversation.
pub(super) struct Source<'a> {
    store: &'a mut PythonStore,
    chain: &'a Chain,
    profile: &'a str,
    ids: Ids,
    stage: Stage,
    ready: VecDeque<BundlePart>,
    buffer: VecDeque<RawRow>,
    turn: Option<crate::ids::TurnId>,
    rows: u64,
    notes: Notes,
    holds_snapshot: bool,
    data_version: i64,
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
fn bad_id(error: InvalidId) -> StoreError {
    invalid(format!("an id of the conversation: {error}"))
}

impl<'a> Source<'a> {
    pub(super) fn new(store: &'a mut PythonStore, chain: &'a Chain, profile: &'a str) -> Self {
        let ids = Ids { store: store.id.clone() };
        Self {
            store,
            chain,
            profile,
            ids,
            stage: Stage::Head,
            ready: VecDeque::new(),
            buffer: VecDeque::new(),
            turn: None,
            rows: 0,
            notes: Notes::default(),
            holds_snapshot: false,
            data_version: 0,
        }
    }

    /// Lets go of the file, and says what was noticed.
    pub(super) async fn finish(mut self) -> Notes {
        if std::mem::take(&mut self.holds_snapshot) {
            // A read that cannot be ended is ended with the connection.
            let _ = sqlx::query("COMMIT").execute(&mut self.store.conn).await;
        }
        self.notes
    }

    async fn data_version(&mut self) -> Result<i64, StoreError> {
        sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut self.store.conn).await.map_err(map)
    }

    async fn begin(&mut self) -> Result<(), StoreError> {
        match self.store.access {
            Access::Live | Access::Copy => {
                sqlx::query("BEGIN").execute(&mut self.store.conn).await.map_err(map)?;
                self.holds_snapshot = true;
            }
            Access::Brief => self.data_version = self.data_version().await?,
            Access::Still => {}
        }
        Ok(())
    }

    /// Fails when what was read is not what was there at one time.
    async fn check(&mut self) -> Result<(), StoreError> {
        if self.store.access == Access::Brief && self.data_version().await? != self.data_version {
            return Err(StoreError::Retryable {
                detail: "the Python program wrote to the file while it was read; run the import again".to_owned(),
            });
        }
        self.store.check_still().await
    }

    async fn head(&mut self) -> Result<(), StoreError> {
        self.begin().await?;
        let conversation = self.conversation()?;
        self.ready.push_back(BundlePart::Conversation(Box::new(conversation)));
        let (mut prompts, mut sessions) = (BTreeMap::new(), Vec::new());
        for number in 0..self.chain.sessions.len() {
            let (prompt, tools) = self.prompts(number).await?;
            sessions.push(self.session(number, &prompt, &tools)?);
            for snapshot in [prompt, tools] {
                prompts.insert(snapshot.hash().as_str().to_owned(), snapshot);
            }
        }
        for (_, snapshot) in prompts {
            let prompt = BundlePrompt { hash: snapshot.hash().clone(), bytes: Exact(snapshot.bytes().clone()) };
            self.ready.push_back(BundlePart::Prompt(prompt));
        }
        self.ready.extend(sessions.into_iter().map(BundlePart::Session));
        self.stage = self.begin_session(0);
        Ok(())
    }

    fn begin_session(&mut self, number: usize) -> Stage {
        self.turn = None;
        if number == self.chain.sessions.len() {
            return Stage::Tail;
        }
        Stage::Session { number, maker_ms: self.started_ms(number), after: i64::MIN, is_all: false }
    }

    fn started_ms(&self, number: usize) -> i64 {
        let node = &self.store.sessions[self.chain.sessions[number]].node;
        decode::time_ms(Some(node.started_at)).or_else(|| decode::time_ms(Some(node.last_activity))).unwrap_or(0)
    }

    fn session_id(&self, number: usize) -> Result<SessionId, StoreError> {
        self.ids.session(&self.store.sessions[self.chain.sessions[number]].node.id).map_err(bad_id)
    }

    fn conversation(&mut self) -> Result<BundleConversation, StoreError> {
        let sessions: Vec<_> = self.chain.sessions.iter().map(|at| &self.store.sessions[*at]).collect();
        let root = self.session_id(0)?;
        let created_at_ms = self.started_ms(0);
        let tip = sessions[sessions.len() - 1];
        // A compressed session gives its title to the one that goes on; an old one may have kept it.
        let titled = sessions.iter().rev().find(|session| session.title.as_deref().and_then(clean_title).is_some());
        let title_source = titled.map(|session| match session.title_source.as_deref() {
            Some("derived") => TitleSource::Derived,
            Some("llm") => TitleSource::Model,
            _ => TitleSource::User,
        });
        let mut origin = Map::new();
        origin.insert("program".to_owned(), Value::from("python"));
        if let Some((edge, parent)) = &self.chain.left {
            origin.insert("edge".to_owned(), Value::from(edge.as_str()));
            origin.insert("parent".to_owned(), Value::from(parent.chars().take(200).collect::<String>()));
        }
        if let Some(ended) = decode::time_ms(tip.node.ended_at) {
            origin.insert("ended_at_ms".to_owned(), Value::from(ended));
        }
        if let Some(reason) = &tip.node.end_reason {
            origin.insert("end_reason".to_owned(), Value::from(reason.chars().take(200).collect::<String>()));
        }
        let newest = sessions.iter().filter_map(|session| decode::time_ms(Some(session.node.last_activity))).max();
        let flag = |index: usize| tip.flags[index] || sessions[0].flags[index];
        let id = ConversationId::parse(root.as_str()).map_err(bad_id)?;
        let is_alias =
            |name: &&str| *name != id.as_str() && !name.is_empty() && name.len() <= crate::limits::KEY_MAX_BYTES;
        let mut aliases: Vec<String> =
            sessions.iter().map(|session| session.node.id.as_str()).filter(is_alias).map(str::to_owned).collect();
        aliases.sort();
        Ok(BundleConversation {
            profile: self.profile.to_owned(),
            source: sessions[0].node.source.chars().take(100).collect(),
            title: titled.and_then(|session| session.title.clone()),
            title_source,
            preview: None,
            archived: flag(0),
            pinned: flag(1),
            hidden: flag(2),
            created_at_ms,
            last_activity_ms: newest.unwrap_or(created_at_ms).max(created_at_ms),
            aliases,
            origin: Some(Value::Object(origin)),
            id,
        })
    }

    /// The prompt and the tool names of a session: by hash, or as the old versions kept the prompt.
    async fn prompts(&mut self, number: usize) -> Result<(PromptSnapshot, PromptSnapshot), StoreError> {
        let store = &mut *self.store;
        let id = store.sessions[self.chain.sessions[number]].node.id.clone();
        let sql = format!(
            "SELECT {}, {}, {} FROM sessions WHERE id = CAST($1 AS TEXT)",
            store.text_of("sessions", "system_prompt"),
            store.text_of("sessions", "system_prompt_hash"),
            store.text_of("sessions", "tool_names"),
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(&id).fetch_optional(&mut store.conn).await.map_err(map)?;
        let (inline, hash, tools) = match &row {
            Some(row) => (get::<Option<Vec<u8>>>(row, 0)?, string(row, 1)?, string(row, 2)?),
            None => (None, None, None),
        };
        let stored = self.stored_prompt(hash.as_deref()).await?;
        if hash.is_some() && stored.is_none() {
            self.notes.add("sessions whose prompt is not stored any more");
        }
        let prompt = PromptSnapshot::new(Bytes::from(stored.or(inline).unwrap_or_default()));
        if hash.is_some_and(|hash| !prompt.bytes().is_empty() && hash != prompt.hash().as_str()) {
            self.notes.add("prompts that do not have the hash they are stored under (kept as they are)");
        }
        let tools = self.stored_prompt(tools.as_deref()).await?;
        let tools = tools.unwrap_or_else(|| NO_TOOLS.to_vec());
        Ok((prompt, PromptSnapshot::new(Bytes::from(tools))))
    }

    async fn stored_prompt(&mut self, hash: Option<&str>) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(hash) = hash.filter(|_| self.store.has("system_prompts", "prompt")) else { return Ok(None) };
        let found = sqlx::query_scalar("SELECT CAST(prompt AS BLOB) FROM system_prompts WHERE hash = CAST($1 AS TEXT)");
        let found: Option<Option<Vec<u8>>> =
            found.bind(hash).fetch_optional(&mut self.store.conn).await.map_err(map)?;
        Ok(found.flatten())
    }

    fn session(
        &self,
        number: usize,
        prompt: &PromptSnapshot,
        tools: &PromptSnapshot,
    ) -> Result<BundleSession, StoreError> {
        let session = &self.store.sessions[self.chain.sessions[number]];
        let is_tip = number + 1 == self.chain.sessions.len();
        let ended = decode::time_ms(session.node.ended_at).filter(|_| !is_tip);
        Ok(BundleSession {
            id: self.session_id(number)?,
            provider: session.provider.clone().unwrap_or_else(|| NAMELESS.to_owned()),
            model: session.model.clone().unwrap_or_else(|| NAMELESS.to_owned()),
            cwd: session.cwd.clone(),
            prompt: prompt.hash().clone(),
            tools: tools.hash().clone(),
            started_at_ms: self.started_ms(number),
            ended_at_ms: if is_tip { None } else { Some(ended.unwrap_or_else(|| self.started_ms(number + 1))) },
            end_reason: session.node.end_reason.clone().filter(|_| !is_tip),
        })
    }

    /// Reads the next rows of a session. True when there are no more.
    async fn read_page(&mut self, number: usize, after: i64) -> Result<(i64, bool), StoreError> {
        let store = &mut *self.store;
        let name = store.sessions[self.chain.sessions[number]].node.id.clone();
        let text = |column: &str| store.text_of("messages", column);
        let sql = format!(
            "SELECT id, CAST(role AS TEXT), {}, CAST(timestamp AS REAL), {}, {}, {} FROM messages \
             WHERE session_id = CAST($1 AS TEXT) AND id > $2 AND role IN ('user', 'assistant', 'tool') \
             ORDER BY id LIMIT $3",
            store.state_expression(""),
            store.expression("messages", "observed", "CAST(observed AS INTEGER)"),
            store.expression("messages", "_compressed_summary", "CAST(_compressed_summary AS INTEGER)"),
            [
                "content",
                "api_content",
                "tool_call_id",
                "tool_calls",
                "tool_name",
                "finish_reason",
                "reasoning",
                "reasoning_content",
                "reasoning_details",
                "codex_reasoning_items",
                "codex_message_items",
                "platform_message_id",
                "effect_disposition",
                "display_kind",
                "display_metadata",
            ]
            .map(text)
            .join(", "),
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(&name).bind(after).bind(PAGE_ROWS);
        let rows = rows.fetch_all(&mut store.conn).await.map_err(map)?;
        let mut raw: Vec<RawRow> = rows.iter().map(raw_row).collect::<Result<_, _>>()?;
        let last = raw.last().map_or(after, |row| row.id);
        if number > 0 && !raw.is_empty() {
            self.find_copies(number, &name, after, last, &mut raw).await?;
        }
        let is_all = i64::try_from(raw.len()).unwrap_or(i64::MAX) < PAGE_ROWS;
        self.buffer.extend(raw);
        Ok((last, is_all))
    }

    /// A rotation writes rows again in the session that goes on; they have the time and the text of the first ones.
    async fn find_copies(
        &mut self,
        number: usize,
        name: &str,
        after: i64,
        last: i64,
        rows: &mut [RawRow],
    ) -> Result<(), StoreError> {
        let store = &mut *self.store;
        let earlier: Vec<&str> =
            self.chain.sessions[..number].iter().map(|at| store.sessions[*at].node.id.as_str()).collect();
        let earlier = serde_json::to_string(&earlier).map_err(|error| invalid(error.to_string()))?;
        let state = store.state_expression("p.");
        let sql = format!(
            "SELECT c.id, MIN(p.id) FROM messages c JOIN messages p ON p.session_id IN (SELECT value FROM json_each($1)) \
             AND p.timestamp = c.timestamp AND p.role = c.role AND p.content IS c.content \
             AND p.tool_calls IS c.tool_calls AND p.tool_call_id IS c.tool_call_id AND {state} <> 2 \
             WHERE c.session_id = CAST($2 AS TEXT) AND c.id > $3 AND c.id <= $4 GROUP BY c.id"
        );
        let found = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(earlier).bind(name).bind(after).bind(last);
        let found = found.fetch_all(&mut store.conn).await.map_err(map)?;
        let mut firsts: BTreeMap<i64, i64> = BTreeMap::new();
        for row in &found {
            firsts.insert(get(row, 0)?, get(row, 1)?);
        }
        for row in rows {
            row.copy_of = firsts.get(&row.id).copied();
        }
        Ok(())
    }

    /// Makes the next rows ready, reading more where that is needed.
    async fn rows(&mut self, number: usize, maker_ms: i64, after: i64, is_all: bool) -> Result<(), StoreError> {
        let name = self.store.sessions[self.chain.sessions[number]].node.id.clone();
        let turn = match self.turn.take() {
            Some(turn) => turn,
            None => self.ids.turn(&name, 0).map_err(bad_id)?,
        };
        let session = self.session_id(number)?;
        let mut maker = Maker { ids: &self.ids, session_name: name, session, turn, last_ms: maker_ms };
        let made = maker.take(&mut self.buffer, is_all, &mut self.notes).map_err(bad_id)?;
        let (maker_ms, turn) = (maker.last_ms, maker.turn);
        self.turn = Some(turn);
        if let Some(rows) = made {
            self.rows += rows.len() as u64;
            self.ready.extend(rows.into_iter().map(|row| BundlePart::Row(Box::new(row))));
            self.stage = Stage::Session { number, maker_ms, after, is_all };
        } else if is_all {
            self.stage = self.begin_session(number + 1);
        } else {
            let (after, is_all) = self.read_page(number, after).await?;
            self.stage = Stage::Session { number, maker_ms, after, is_all };
        }
        Ok(())
    }

    /// What the sessions used: by model where that is stored, else as each session counted.
    async fn usage(&mut self) -> Result<Vec<UsageTotals>, StoreError> {
        let mut sums: BTreeMap<(String, String, String), UsageTotals> = BTreeMap::new();
        for at in &self.chain.sessions {
            let session = self.store.sessions[*at].clone();
            let mut has_main = false;
            for row in self.store.model_usage(&session.node.id).await? {
                has_main |= row.task.is_empty();
                add_usage(&mut sums, &row);
            }
            if has_main {
                continue;
            }
            if let Some(mut row) = self.store.session_usage(&session.node.id).await? {
                row.provider = session.provider.clone().unwrap_or_else(|| NAMELESS.to_owned());
                row.model = session.model.clone().unwrap_or_else(|| NAMELESS.to_owned());
                add_usage(&mut sums, &row);
            }
        }
        Ok(sums.into_values().collect())
    }
}

fn add_usage(sums: &mut BTreeMap<(String, String, String), UsageTotals>, row: &UsageTotals) {
    let tokens = row.input + row.output + row.cache_read + row.cache_write + row.reasoning;
    if tokens == 0 && row.requests == 0 {
        return;
    }
    let key = (row.provider.clone(), row.model.clone(), row.task.clone());
    let sum = sums.entry(key).or_insert_with(|| UsageTotals {
        provider: row.provider.clone(),
        model: row.model.clone(),
        task: row.task.clone(),
        ..UsageTotals::default()
    });
    sum.requests += row.requests;
    sum.input += row.input;
    sum.output += row.output;
    sum.cache_read += row.cache_read;
    sum.cache_write += row.cache_write;
    sum.reasoning += row.reasoning;
}

const COUNTERS: [&str; 6] =
    ["api_call_count", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"];

impl PythonStore {
    fn counters(&self, table: &str) -> String {
        let one = |column: &str| {
            let value = self.expression(table, column, &format!("CAST({column} AS INTEGER)"));
            format!("COALESCE({value}, 0)")
        };
        COUNTERS.map(one).join(", ")
    }

    async fn model_usage(&mut self, session: &str) -> Result<Vec<UsageTotals>, StoreError> {
        if !self.has("session_model_usage", "model") {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {}, {}, {}, {} FROM session_model_usage WHERE session_id = CAST($1 AS TEXT)",
            self.counters("session_model_usage"),
            self.text_of("session_model_usage", "billing_provider"),
            self.text_of("session_model_usage", "model"),
            self.text_of("session_model_usage", "task"),
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(session).fetch_all(&mut self.conn).await.map_err(map)?;
        let mut out = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut sum = usage(row)?;
            sum.provider = string(row, 6)?.filter(|p| !p.is_empty()).unwrap_or_else(|| NAMELESS.to_owned());
            sum.model = string(row, 7)?.unwrap_or_else(|| NAMELESS.to_owned());
            sum.task = string(row, 8)?.unwrap_or_default();
            out.push(sum);
        }
        Ok(out)
    }

    async fn session_usage(&mut self, session: &str) -> Result<Option<UsageTotals>, StoreError> {
        let sql = format!("SELECT {} FROM sessions WHERE id = CAST($1 AS TEXT)", self.counters("sessions"));
        let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(session).fetch_optional(&mut self.conn).await;
        row.map_err(map)?.as_ref().map(usage).transpose()
    }
}

fn usage(row: &SqliteRow) -> Result<UsageTotals, StoreError> {
    let number = |index: usize| get::<i64>(row, index).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(UsageTotals {
        requests: number(0)?,
        input: number(1)?,
        output: number(2)?,
        cache_read: number(3)?,
        cache_write: number(4)?,
        reasoning: number(5)?,
        ..UsageTotals::default()
    })
}

fn raw_row(row: &SqliteRow) -> Result<RawRow, StoreError> {
    let flag = |index: usize| get::<Option<i64>>(row, index).map(|flag| flag.unwrap_or(0) != 0);
    Ok(RawRow {
        id: get(row, 0)?,
        role: get(row, 1)?,
        state: get(row, 2)?,
        timestamp: get(row, 3)?,
        observed: flag(4)?,
        is_summary: flag(5)?,
        content: get(row, 6)?,
        api_content: get(row, 7)?,
        tool_call_id: string(row, 8)?,
        tool_calls: string(row, 9)?,
        tool_name: string(row, 10)?,
        finish_reason: string(row, 11)?,
        reasoning: string(row, 12)?,
        reasoning_content: string(row, 13)?,
        reasoning_details: string(row, 14)?,
        codex_reasoning_items: string(row, 15)?,
        codex_message_items: string(row, 16)?,
        platform_message_id: string(row, 17)?,
        effect_disposition: string(row, 18)?,
        display_kind: string(row, 19)?,
        display_metadata: string(row, 20)?,
        copy_of: None,
    })
}

#[async_trait]
impl BundleSource for Source<'_> {
    async fn next(&mut self) -> Result<Option<BundlePart>, StoreError> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some(part));
            }
            match self.stage {
                Stage::Head => self.head().await?,
                Stage::Session { number, maker_ms, after, is_all } => {
                    self.rows(number, maker_ms, after, is_all).await?;
                }
                Stage::Tail => {
                    let usage = self.usage().await?;
                    self.ready.extend(usage.into_iter().map(BundlePart::Usage));
                    self.check().await?;
                    self.ready.push_back(BundlePart::End(BundleEnd { rows: self.rows }));
                    self.stage = Stage::Done;
                }
                Stage::Done => return Ok(None),
            }
        }
    }
}
