//! Conversations as bundles: out of the database page by page, into it in one transaction.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;

use super::driver::{Backend, Conn, Row, map, text_in};
use super::read::{
    CallRow, call, call_columns, col, id, message, message_columns, signed, size, text, text_in_or_null, text_or_null,
    word, word_or_null,
};
use super::schema::Group;
use crate::error::StoreError;
use crate::ids::{CallId, ConversationId, MessageId, SessionId};
use crate::limits::{EXPORT_LIST_MAX, EXPORT_PAGE_ROWS, ROUND_MAX_CALLS};
use crate::message::{StoredMessage, UsageTotals};
use crate::prompt::PromptHash;
use crate::round::{CallOutcome, JournalState};
use crate::rules::not_found;
use crate::session::TitleSource;
use crate::traits::SessionStore as _;
use crate::transfer::bundle::{
    BundleAnswer, BundleCall, BundleConversation, BundleEnd, BundlePart, BundlePrompt, BundleRow, BundleSession,
    BundleSidecar, BundleSource, Exact, ExportCursor, ExportPage, ImportKey, ImportOutcome,
};
use crate::transfer::{Intake, Placed, PlacedRow, TransferStore};

/// `imports`: what came from where, so that it comes once. A sum that was imported stands for many requests in one row of
/// `usage_log`.
pub(crate) const TABLES: Group = &[
    "ALTER TABLE usage_log ADD COLUMN requests BIGINT NOT NULL DEFAULT 1",
    "CREATE TABLE imports (
        source TEXT NOT NULL,
        source_id TEXT NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        fingerprint TEXT NOT NULL,
        origin TEXT,
        imported_ms BIGINT NOT NULL,
        PRIMARY KEY (source, source_id)
    )",
    "CREATE INDEX imports_by_conversation ON imports (conversation_id)",
];

const KNOWN_IMPORT: &str = "SELECT conversation_id, fingerprint FROM imports WHERE source = $1 AND source_id = $2";
/// A restored store remembers under `*` how far the counters of any lost conversation can have come.
const COUNTERS: &str = "SELECT COALESCE(MAX(token), 0), COALESCE(MAX(generation), 0), COALESCE(MAX(seq), 0), \
     COALESCE(MAX(place), 0) FROM tombstones WHERE id = $1 OR id = '*'";
const INSERT_CONVERSATION: &str = "INSERT INTO conversations (id, profile, source, title, title_source, archived, \
     pinned, hidden, revision, token, generation, seq, place, lease_expires_ms, lease_ttl_ms, freed_ms, message_count, \
     created_ms, activity_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $11, $12, 0, 0, $13, 0, $14, $15) \
     ON CONFLICT (id) DO NOTHING";
/// As in `transcript`: holds the row, so that nobody deletes it before the session refers to it.
const INSERT_PROMPT: &str = "INSERT INTO prompts (hash, bytes) VALUES ($1, $2) \
     ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash WHERE 1 = 0";
const INSERT_SESSION: &str = "INSERT INTO sessions (id, conversation_id, parent_id, provider, model, cwd, prompt_hash, \
     tools_hash, first_seq, started_ms, ended_ms, end_reason) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING";
const SESSION_STARTS: &str = "UPDATE sessions SET first_seq = $2 WHERE id = $1";
const OPEN_TIP: &str = "UPDATE sessions SET ended_ms = NULL, end_reason = NULL WHERE id = $1";
const INSERT_ROW: &str = "INSERT INTO messages (id, conversation_id, session_id, turn_id, seq, role, kind, state, \
     content, api_content, reasoning, sidecar_issuer, sidecar, finish, has_calls, call_id, meta, digest, created_ms, \
     copy_of) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) \
     ON CONFLICT DO NOTHING";
const INSERT_CALL: &str = "INSERT INTO calls (id, conversation_id, turn_id, assistant_id, assistant_seq, result_id, \
     result_seq, provider_id, name, arguments, replay, state, written_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'recorded', $12) ON CONFLICT DO NOTHING";
const SETTLE_CALL: &str = "UPDATE calls SET state = 'settled', outcome = $2, digest = $3 WHERE id = $1 \
     AND conversation_id = $4";
const INSERT_USAGE: &str = "INSERT INTO usage_log (attempt, conversation_id, provider, model, task, input, output, \
     cache_read, cache_write, reasoning, known, requests) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
     ON CONFLICT (attempt) DO NOTHING";
const FINISH: &str = "UPDATE conversations SET tip = $2, seq = $3, message_count = $4, preview = $5 WHERE id = $1";
const INSERT_IMPORT: &str = "INSERT INTO imports (source, source_id, conversation_id, fingerprint, origin, imported_ms) \
     VALUES ($1, $2, $3, $4, $5, $6)";
const INSERT_ALIAS: &str = "INSERT INTO aliases (id, conversation_id) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";

const LIST: &str = "SELECT id FROM conversations WHERE id > $1 ORDER BY id LIMIT $2";
const BY_NAME: &str = "SELECT conversation_id FROM sessions WHERE id = $1 \
     UNION ALL SELECT conversation_id FROM aliases WHERE id = $1 LIMIT 1";
const HEAD: &str = "SELECT profile, source, title, title_source, preview, archived, pinned, hidden, created_ms, \
     activity_ms, seq, (SELECT MAX(origin) FROM imports WHERE conversation_id = $1) FROM conversations WHERE id = $1";
const ALIASES: &str = "SELECT id FROM aliases WHERE conversation_id = $1 ORDER BY id";
const SESSIONS: &str = "SELECT id, parent_id, provider, model, cwd, prompt_hash, tools_hash, started_ms, ended_ms, \
     end_reason FROM sessions WHERE conversation_id = $1";
const PROMPT: &str = "SELECT bytes FROM prompts WHERE hash = $1";
const ROWS: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM messages WHERE conversation_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4"
);
const CALLS: &str = concat!(
    "SELECT ",
    call_columns!(),
    " FROM calls WHERE conversation_id = $1 AND result_seq BETWEEN $2 AND $3 ORDER BY result_seq"
);
const OUTCOME: &str = "SELECT outcome FROM calls WHERE id = $1";

/// What an import has written so far.
struct Writing<'a> {
    conversation: ConversationId,
    now: i64,
    key: &'a ImportKey,
    base_seq: i64,
}

/// Nothing is kept of an import that met something with its id; this says what.
enum Written {
    Yes,
    Taken(String),
}

fn taken(what: &str, id: &dyn std::fmt::Display) -> Written {
    Written::Taken(format!("{what} {id}"))
}

async fn insert_conversation(conn: &mut Conn, new: &BundleConversation, now: i64) -> Result<Option<i64>, StoreError> {
    let counters = sqlx::query(COUNTERS).bind(new.id.as_str()).fetch_one(&mut *conn).await.map_err(map)?;
    let (token, generation, seq, place): (i64, i64, i64, i64) =
        (col(&counters, 0)?, col(&counters, 1)?, col(&counters, 2)?, col(&counters, 3)?);
    let done = sqlx::query(INSERT_CONVERSATION)
        .bind(new.id.as_str())
        .bind(text_in(&new.profile))
        .bind(text_in(&new.source))
        .bind(text_in_or_null(new.title.as_deref()))
        .bind(new.title_source.map(TitleSource::as_str))
        .bind(i64::from(new.archived))
        .bind(i64::from(new.pinned))
        .bind(i64::from(new.hidden))
        .bind(token)
        .bind(generation)
        .bind(seq)
        .bind(place)
        .bind(now)
        .bind(new.created_at_ms)
        .bind(new.last_activity_ms)
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    if done.rows_affected() == 0 {
        return Ok(None);
    }
    // On PostgreSQL the insert may have waited for one that deleted such a conversation: its tombstone counts too (I08).
    super::admissions::raise(conn, &new.id).await?;
    let counters = sqlx::query(COUNTERS).bind(new.id.as_str()).fetch_one(conn).await.map_err(map)?;
    Ok(Some(col(&counters, 2)?))
}

async fn insert_session(
    conn: &mut Conn,
    to: &Writing<'_>,
    session: &BundleSession,
    parent: Option<&SessionId>,
) -> Result<Written, StoreError> {
    let done = sqlx::query(INSERT_SESSION)
        .bind(session.id.as_str())
        .bind(to.conversation.as_str())
        .bind(parent.map(SessionId::as_str))
        .bind(text_in(&session.provider))
        .bind(text_in(&session.model))
        .bind(text_in_or_null(session.cwd.as_deref()))
        .bind(session.prompt.as_str())
        .bind(session.tools.as_str())
        .bind(to.base_seq)
        .bind(session.started_at_ms)
        .bind(session.ended_at_ms)
        .bind(text_in_or_null(session.end_reason.as_deref()))
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(if done.rows_affected() == 1 { Written::Yes } else { taken("session", &session.id) })
}

async fn insert_row(conn: &mut Conn, to: &Writing<'_>, row: &PlacedRow) -> Result<Written, StoreError> {
    let new = &row.new;
    // JSON escapes a NUL itself.
    let meta = new.meta.as_ref().map(serde_json::Value::to_string);
    let done = sqlx::query(INSERT_ROW)
        .bind(new.id.as_str())
        .bind(to.conversation.as_str())
        .bind(row.session.as_str())
        .bind(row.turn.as_str())
        .bind(row.seq)
        .bind(new.role.as_str())
        .bind(new.kind.as_str())
        .bind(row.state.as_str())
        .bind(text_in(&new.content))
        .bind(new.api_content.as_ref().map(|api| api.0.as_ref()))
        .bind(text_in_or_null(new.reasoning.as_deref()))
        .bind(text_in_or_null(new.sidecar.as_ref().map(|sidecar| sidecar.issuer.as_str())))
        .bind(new.sidecar.as_ref().map(|sidecar| sidecar.bytes.as_ref()))
        .bind(text_in_or_null(new.finish.as_deref()))
        .bind(i64::from(row.has_calls))
        .bind(row.answers.as_ref().map(|answer| answer.call.as_str()))
        .bind(meta.as_deref())
        .bind(&row.digest)
        .bind(row.created_ms)
        .bind(row.copy_of.as_ref().map(MessageId::as_str))
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    if done.rows_affected() == 0 {
        return Ok(taken("message", &new.id));
    }
    for (result_seq, call) in (row.seq + 1..).zip(&row.calls) {
        let done = sqlx::query(INSERT_CALL)
            .bind(call.call.as_str())
            .bind(to.conversation.as_str())
            .bind(row.turn.as_str())
            .bind(new.id.as_str())
            .bind(row.seq)
            .bind(call.result.as_str())
            .bind(result_seq)
            .bind(text_in(&call.provider_id))
            .bind(text_in(&call.name))
            .bind(text_in(&call.arguments))
            .bind(call.replay.as_str())
            .bind(row.created_ms)
            .execute(&mut *conn)
            .await
            .map_err(map)?;
        if done.rows_affected() == 0 {
            return Ok(taken("call", &call.call));
        }
    }
    if let Some(answer) = row.answers.as_ref().filter(|_| row.copy_of.is_none()) {
        let settle = sqlx::query(SETTLE_CALL)
            .bind(answer.call.as_str())
            .bind(answer.outcome.as_str())
            .bind(&row.digest)
            .bind(to.conversation.as_str());
        settle.execute(conn).await.map_err(map)?;
    }
    Ok(Written::Yes)
}

async fn insert_usage(
    conn: &mut Conn,
    to: &Writing<'_>,
    number: usize,
    totals: &UsageTotals,
) -> Result<(), StoreError> {
    let known = totals.requests.saturating_sub(totals.unknown);
    for (is_known, requests) in [(true, known), (false, totals.unknown)] {
        // Tokens of requests that nobody counted stand in the sum of those that somebody did.
        if requests == 0 && !(is_known && totals.unknown == 0) {
            continue;
        }
        let counted = |tokens: u64| if is_known || known == 0 { signed(tokens) } else { 0 };
        sqlx::query(INSERT_USAGE)
            .bind(format!("import:{}:{number}:{}", to.conversation, i64::from(is_known)))
            .bind(to.conversation.as_str())
            .bind(text_in(&totals.provider))
            .bind(text_in(&totals.model))
            .bind(text_in(&totals.task))
            .bind(counted(totals.input))
            .bind(counted(totals.output))
            .bind(counted(totals.cache_read))
            .bind(counted(totals.cache_write))
            .bind(counted(totals.reasoning))
            .bind(i64::from(is_known))
            .bind(signed(requests))
            .execute(&mut *conn)
            .await
            .map_err(map)?;
    }
    Ok(())
}

async fn finish(
    conn: &mut Conn,
    to: &Writing<'_>,
    head: &BundleConversation,
    totals: &crate::transfer::Totals,
) -> Result<(), StoreError> {
    sqlx::query(OPEN_TIP).bind(totals.tip.as_str()).execute(&mut *conn).await.map_err(map)?;
    sqlx::query(FINISH)
        .bind(to.conversation.as_str())
        .bind(totals.tip.as_str())
        .bind(totals.last_seq)
        .bind(totals.shown)
        .bind(text_in_or_null(totals.preview.as_deref()))
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    sqlx::query(INSERT_IMPORT)
        .bind(text_in(&to.key.source))
        .bind(text_in(&to.key.id))
        .bind(to.conversation.as_str())
        .bind(text_in(&to.key.fingerprint))
        .bind(head.origin.as_ref().map(serde_json::Value::to_string))
        .bind(to.now)
        .execute(&mut *conn)
        .await
        .map_err(map)?;
    for alias in &head.aliases {
        let insert = sqlx::query(INSERT_ALIAS).bind(text_in(alias)).bind(to.conversation.as_str());
        insert.execute(&mut *conn).await.map_err(map)?;
    }
    Ok(())
}

/// Writes one thing of a bundle.
async fn write(conn: &mut Conn, to: &Writing<'_>, placed: &Placed) -> Result<Written, StoreError> {
    match placed {
        Placed::Prompt(prompt) => {
            let insert = sqlx::query(INSERT_PROMPT).bind(prompt.hash().as_str()).bind(prompt.bytes().as_ref());
            insert.execute(conn).await.map_err(map)?;
        }
        Placed::Session { session, parent } => return insert_session(conn, to, session, parent.as_ref()).await,
        Placed::SessionStarts { session, first_seq } => {
            let set = sqlx::query(SESSION_STARTS).bind(session.as_str()).bind(first_seq);
            set.execute(conn).await.map_err(map)?;
        }
        Placed::Row(row) => return insert_row(conn, to, row).await,
        Placed::Usage { number, totals } => insert_usage(conn, to, *number, totals).await?,
        // The first and the last are the caller's.
        Placed::Conversation(_) | Placed::End(_) => {}
    }
    Ok(Written::Yes)
}

/// Sessions of a conversation from the first to the tip, with their prompts' hashes, each once.
fn in_order(rows: &[Row]) -> Result<Vec<BundleSession>, StoreError> {
    let mut by_parent: HashMap<Option<SessionId>, BundleSession> = HashMap::new();
    for row in rows {
        let session = BundleSession {
            id: word(row, 0, id(SessionId::parse))?,
            provider: text(row, 2)?,
            model: text(row, 3)?,
            cwd: text_or_null(row, 4)?,
            prompt: PromptHash::from_stored(col(row, 5)?),
            tools: PromptHash::from_stored(col(row, 6)?),
            started_at_ms: col(row, 7)?,
            ended_at_ms: col(row, 8)?,
            end_reason: text_or_null(row, 9)?,
        };
        by_parent.insert(word_or_null(row, 1, id(SessionId::parse))?, session);
    }
    let mut out = Vec::with_capacity(by_parent.len());
    let mut next = by_parent.remove(&None);
    while let Some(session) = next {
        next = by_parent.remove(&Some(session.id.clone()));
        out.push(session);
    }
    match by_parent.is_empty() {
        true => Ok(out),
        false => Err(StoreError::Corrupt { detail: "the sessions of a conversation are not one line".to_owned() }),
    }
}

async fn export_head(
    conn: &mut Conn,
    conversation: &ConversationId,
    parts: &mut Vec<BundlePart>,
) -> Result<ExportCursor, StoreError> {
    let row = sqlx::query(HEAD).bind(conversation.as_str()).fetch_optional(&mut *conn).await.map_err(map)?;
    let row = row.ok_or_else(|| not_found("conversation", conversation))?;
    let aliases = sqlx::query(ALIASES).bind(conversation.as_str()).fetch_all(&mut *conn).await.map_err(map)?;
    let origin: Option<String> = col(&row, 11)?;
    let origin = origin.map(|text| serde_json::from_str(&text)).transpose();
    parts.push(BundlePart::Conversation(Box::new(BundleConversation {
        id: conversation.clone(),
        profile: text(&row, 0)?,
        source: text(&row, 1)?,
        title: text_or_null(&row, 2)?,
        title_source: word_or_null(&row, 3, TitleSource::parse)?,
        preview: text_or_null(&row, 4)?,
        archived: col::<i64>(&row, 5)? != 0,
        pinned: col::<i64>(&row, 6)? != 0,
        hidden: col::<i64>(&row, 7)? != 0,
        created_at_ms: col(&row, 8)?,
        last_activity_ms: col(&row, 9)?,
        aliases: aliases.iter().map(|row| text(row, 0)).collect::<Result<_, _>>()?,
        origin: origin.map_err(|error| StoreError::Corrupt { detail: format!("the origin of an import: {error}") })?,
    })));
    let sessions = sqlx::query(SESSIONS).bind(conversation.as_str()).fetch_all(&mut *conn).await.map_err(map)?;
    let sessions = in_order(&sessions)?;
    let mut seen = std::collections::BTreeSet::new();
    for hash in sessions.iter().flat_map(|session| [&session.prompt, &session.tools]) {
        if seen.insert(hash.as_str()) {
            let bytes = sqlx::query(PROMPT).bind(hash.as_str()).fetch_optional(&mut *conn).await.map_err(map)?;
            let bytes = bytes.ok_or_else(|| StoreError::Corrupt { detail: "a prompt is not there".to_owned() })?;
            let bytes = Exact(col::<Vec<u8>>(&bytes, 0)?.into());
            parts.push(BundlePart::Prompt(BundlePrompt { hash: hash.clone(), bytes }));
        }
    }
    parts.extend(sessions.into_iter().map(BundlePart::Session));
    Ok(ExportCursor { after_seq: 0, until_seq: col(&row, 10)?, rows: 0 })
}

/// A page of rows, and where the next one begins.
async fn export_rows(
    conn: &mut Conn,
    conversation: &ConversationId,
    cursor: &mut ExportCursor,
    parts: &mut Vec<BundlePart>,
) -> Result<bool, StoreError> {
    let rows = sqlx::query(ROWS)
        .bind(conversation.as_str())
        .bind(cursor.after_seq)
        .bind(cursor.until_seq)
        .bind(size(EXPORT_PAGE_ROWS))
        .fetch_all(&mut *conn)
        .await
        .map_err(map)?;
    let rows: Vec<(StoredMessage, Option<CallId>)> = rows.iter().map(message).collect::<Result<_, _>>()?;
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(true) };
    let (from, to) = (first.0.seq, last.0.seq);
    let calls =
        sqlx::query(CALLS).bind(conversation.as_str()).bind(from).bind(to.saturating_add(size(ROUND_MAX_CALLS)));
    let calls: Vec<CallRow> =
        calls.fetch_all(&mut *conn).await.map_err(map)?.iter().map(call).collect::<Result<_, _>>()?;
    let mut by_row: BTreeMap<&str, Vec<BundleCall>> = BTreeMap::new();
    let mut outcomes: BTreeMap<&str, Option<CallOutcome>> = BTreeMap::new();
    for one in &calls {
        outcomes.insert(one.new.call.as_str(), one.outcome);
        by_row.entry(one.assistant.as_str()).or_default().push(BundleCall {
            id: one.new.call.clone(),
            result: one.new.result.clone(),
            provider_id: one.new.provider_id.clone(),
            name: one.new.name.clone(),
            arguments: one.new.arguments.clone(),
            replay: one.new.replay,
            open: (one.state != JournalState::Settled).then_some(one.state),
        });
    }
    let is_end = rows.len() < EXPORT_PAGE_ROWS;
    cursor.after_seq = to;
    cursor.rows += rows.len() as u64;
    for (row, answers) in rows {
        let answers = match answers {
            Some(call) => Some(BundleAnswer { outcome: outcome(conn, &outcomes, &call).await?, call }),
            None => None,
        };
        let calls = by_row.remove(row.id.as_str()).unwrap_or_default();
        parts.push(BundlePart::Row(Box::new(bundle_row(row, calls, answers))));
    }
    Ok(is_end)
}

/// How a call ended. One outside of the page belongs to a copy.
async fn outcome(
    conn: &mut Conn,
    page: &BTreeMap<&str, Option<CallOutcome>>,
    call: &CallId,
) -> Result<CallOutcome, StoreError> {
    let found = match page.get(call.as_str()) {
        Some(found) => *found,
        None => {
            let row = sqlx::query(OUTCOME).bind(call.as_str()).fetch_optional(conn).await.map_err(map)?;
            row.map(|row| word_or_null(&row, 0, CallOutcome::parse)).transpose()?.flatten()
        }
    };
    found.ok_or_else(|| StoreError::Corrupt { detail: format!("the result of call {call} stands without it") })
}

fn bundle_row(row: StoredMessage, calls: Vec<BundleCall>, answers: Option<BundleAnswer>) -> BundleRow {
    BundleRow {
        id: row.id,
        session: row.session,
        turn: row.turn,
        role: row.role,
        kind: row.kind,
        state: row.state,
        copy_of: row.copy_of,
        content: row.content,
        api_content: row.api_content.map(|api| Exact(api.0)),
        reasoning: row.reasoning,
        sidecar: row.sidecar.map(|one| BundleSidecar { issuer: one.issuer, bytes: Exact(one.bytes) }),
        finish: row.finish,
        calls,
        answers,
        meta: row.meta,
        created_at_ms: row.created_at_ms,
    }
}

impl Backend {
    /// The conversation of a bundle is there: writes the rest of it.
    async fn import_rest(
        conn: &mut Conn,
        to: &Writing<'_>,
        head: &BundleConversation,
        intake: &mut Intake,
        source: &mut dyn BundleSource,
    ) -> Result<Result<ImportOutcome, String>, StoreError> {
        while let Some(part) = source.next().await? {
            for placed in intake.take(part)? {
                if let Placed::End(totals) = &placed {
                    finish(conn, to, head, totals).await?;
                    let conversation = to.conversation.clone();
                    return Ok(Ok(ImportOutcome::Imported { conversation, rows: totals.rows, added: totals.added }));
                }
                if let Written::Taken(what) = write(conn, to, &placed).await? {
                    return Ok(Err(what));
                }
            }
        }
        Err(crate::rules::invalid("the conversation has no end; it was cut off"))
    }
}

#[async_trait]
impl TransferStore for Backend {
    async fn import(&self, key: &ImportKey, source: &mut dyn BundleSource) -> Result<ImportOutcome, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let known = sqlx::query(KNOWN_IMPORT).bind(text_in(&key.source)).bind(text_in(&key.id));
        if let Some(known) = known.fetch_optional(tx.conn()).await.map_err(map)? {
            let conversation = word(&known, 0, id(ConversationId::parse))?;
            let is_same = text(&known, 1)? == key.fingerprint;
            tx.rollback().await?;
            return Ok(match is_same {
                true => ImportOutcome::Same { conversation },
                false => ImportOutcome::Changed { conversation },
            });
        }
        let mut intake = Intake::new(0);
        let first = source.next().await?.ok_or_else(|| crate::rules::invalid("the conversation is empty"))?;
        let Some(Placed::Conversation(head)) = intake.take(first)?.pop() else {
            return Err(crate::rules::invalid("a conversation begins with what it is"));
        };
        let Some(base_seq) = insert_conversation(tx.conn(), &head, now).await? else {
            tx.rollback().await?;
            return Ok(ImportOutcome::Taken { what: format!("conversation {}", head.id) });
        };
        intake.start_behind(base_seq);
        let to = Writing { conversation: head.id.clone(), now, key, base_seq };
        match Self::import_rest(tx.conn(), &to, &head, &mut intake, source).await? {
            Ok(outcome) => {
                tx.commit().await?;
                Ok(outcome)
            }
            Err(what) => {
                tx.rollback().await?;
                Ok(ImportOutcome::Taken { what })
            }
        }
    }

    async fn export(
        &self,
        conversation: &ConversationId,
        cursor: Option<ExportCursor>,
    ) -> Result<ExportPage, StoreError> {
        let mut tx = self.readers().begin().await.map_err(map)?;
        let mut parts = Vec::new();
        let mut cursor = match cursor {
            Some(cursor) => cursor,
            None => export_head(&mut tx, conversation, &mut parts).await?,
        };
        if !export_rows(&mut tx, conversation, &mut cursor, &mut parts).await? {
            return Ok(ExportPage { parts, next: Some(cursor) });
        }
        drop(tx);
        parts.extend(self.usage(conversation).await?.into_iter().map(BundlePart::Usage));
        parts.push(BundlePart::End(BundleEnd { rows: cursor.rows }));
        Ok(ExportPage { parts, next: None })
    }

    async fn export_list(
        &self,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError> {
        let rows = sqlx::query(LIST)
            .bind(after.map_or("", ConversationId::as_str))
            .bind(size(limit.min(EXPORT_LIST_MAX)))
            .fetch_all(self.readers())
            .await
            .map_err(map)?;
        rows.iter().map(|row| word(row, 0, id(ConversationId::parse))).collect()
    }

    async fn conversation_named(&self, name: &str) -> Result<Option<ConversationId>, StoreError> {
        let row = sqlx::query(BY_NAME).bind(text_in(name)).fetch_optional(self.readers()).await.map_err(map)?;
        row.map(|row| word(&row, 0, id(ConversationId::parse))).transpose()
    }
}
