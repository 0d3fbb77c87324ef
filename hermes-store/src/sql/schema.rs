//! The tables, as steps that lead from one version of the schema to the next.
//!
//! The texts are those of SQLite; `driver::ddl` turns one into what its database wants (`BLOB` is `BYTEA` on PostgreSQL).
//! Types are few on purpose: ids and words are `TEXT`, times `BIGINT` milliseconds since the Unix epoch, flags 0 or 1,
//! exact bytes `BLOB`. What a table means stands beside the methods that write it.

/// Statements that belong together: the tables of one kind of fact.
pub(crate) type Group = &'static [&'static str];

/// One step per version: step `n` of the array leads from version `n` to `n + 1`. A step that was released is never
/// changed. Version 2 is not released yet.
pub(crate) const STEPS: &[&[Group]] = &[
    &[V1],
    &[
        super::leases::COLUMNS,
        super::rows::TABLES,
        super::history::TABLES,
        super::retention::TABLES,
        super::work::TABLES,
        super::delegations::TABLES,
        super::inbound::TABLES,
        super::delivery::TABLES,
        super::approval::TABLES,
        super::transfer::TABLES,
        super::search::TABLES,
        CLOCKS,
    ],
];

/// The newest version that this program knows.
pub(crate) fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// The statements of one step, in their order.
pub(crate) fn statements(step: &[Group]) -> Vec<&'static str> {
    step.iter().flat_map(|group| group.iter().copied()).collect()
}

/// One row for each start of the host that wrote: which time the zero of its boot clock was, and how much of its sleep is
/// taken out of beats and leases. Used on SQLite alone; a server has a clock of its own.
const CLOCKS: Group = &["CREATE TABLE host_clocks (
        boot_id TEXT PRIMARY KEY NOT NULL,
        zero_ms BIGINT NOT NULL,
        slept_ms BIGINT NOT NULL,
        written_ms BIGINT NOT NULL
    )"];

const V1: Group = &[
    "CREATE TABLE schema_version (version BIGINT PRIMARY KEY, applied_ms BIGINT NOT NULL)",
    "CREATE TABLE conversations (
        id TEXT PRIMARY KEY NOT NULL,
        profile TEXT NOT NULL,
        source TEXT NOT NULL,
        title TEXT,
        title_source TEXT,
        preview TEXT,
        tip TEXT,
        open_turn TEXT,
        revision BIGINT NOT NULL,
        token BIGINT NOT NULL,
        generation BIGINT NOT NULL,
        seq BIGINT NOT NULL,
        place BIGINT NOT NULL,
        lease_owner TEXT,
        lease_expires_ms BIGINT NOT NULL,
        lease_ttl_ms BIGINT NOT NULL,
        freed_ms BIGINT NOT NULL,
        message_count BIGINT NOT NULL,
        created_ms BIGINT NOT NULL,
        activity_ms BIGINT NOT NULL
    )",
    "CREATE INDEX conversations_by_activity ON conversations (activity_ms, id)",
    "CREATE INDEX conversations_by_lease ON conversations (lease_owner) WHERE lease_owner IS NOT NULL",
    "CREATE TABLE tombstones (
        id TEXT PRIMARY KEY NOT NULL,
        token BIGINT NOT NULL,
        generation BIGINT NOT NULL,
        seq BIGINT NOT NULL,
        place BIGINT NOT NULL
    )",
    "CREATE TABLE owners (
        id TEXT PRIMARY KEY NOT NULL,
        host TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        pid BIGINT NOT NULL,
        pid_start BIGINT NOT NULL,
        beat_ms BIGINT NOT NULL,
        retired BIGINT NOT NULL
    )",
    "CREATE TABLE routes (
        source TEXT NOT NULL,
        route_key TEXT NOT NULL,
        generation BIGINT NOT NULL,
        PRIMARY KEY (source, route_key)
    )",
    "CREATE TABLE admissions (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        seq BIGINT NOT NULL,
        principal TEXT NOT NULL,
        request_id TEXT NOT NULL,
        intent TEXT NOT NULL,
        payload TEXT NOT NULL,
        submitted_by TEXT NOT NULL,
        status TEXT NOT NULL,
        outcome TEXT,
        generation BIGINT,
        turn_id TEXT,
        created_ms BIGINT NOT NULL,
        UNIQUE (conversation_id, principal, request_id)
    )",
    "CREATE UNIQUE INDEX admissions_waiting ON admissions (conversation_id, seq) WHERE status <> 'terminal'",
    "CREATE TABLE turns (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        admission_id TEXT NOT NULL,
        session_id TEXT,
        generation BIGINT NOT NULL,
        attempt BIGINT NOT NULL,
        status TEXT NOT NULL,
        reason TEXT,
        detail TEXT,
        api_calls BIGINT NOT NULL,
        first_seq BIGINT NOT NULL,
        started_ms BIGINT NOT NULL,
        ended_ms BIGINT
    )",
    "CREATE INDEX turns_by_conversation ON turns (conversation_id)",
    "CREATE TABLE prompts (hash TEXT PRIMARY KEY NOT NULL, bytes BLOB NOT NULL)",
    "CREATE TABLE sessions (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        parent_id TEXT,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        cwd TEXT,
        prompt_hash TEXT NOT NULL REFERENCES prompts (hash),
        tools_hash TEXT NOT NULL REFERENCES prompts (hash),
        first_seq BIGINT NOT NULL,
        started_ms BIGINT NOT NULL,
        ended_ms BIGINT,
        end_reason TEXT
    )",
    "CREATE INDEX sessions_by_conversation ON sessions (conversation_id)",
    "CREATE INDEX sessions_by_prompt ON sessions (prompt_hash)",
    "CREATE INDEX sessions_by_tools ON sessions (tools_hash)",
    "CREATE TABLE messages (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        session_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        role TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        content TEXT NOT NULL,
        api_content BLOB,
        reasoning TEXT,
        sidecar_issuer TEXT,
        sidecar BLOB,
        finish TEXT,
        has_calls BIGINT NOT NULL,
        call_id TEXT,
        meta TEXT,
        digest TEXT NOT NULL,
        created_ms BIGINT NOT NULL
    )",
    "CREATE UNIQUE INDEX messages_by_place ON messages (conversation_id, seq)",
    "CREATE INDEX messages_by_turn ON messages (turn_id, seq)",
    "CREATE TABLE calls (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        turn_id TEXT NOT NULL,
        assistant_id TEXT NOT NULL,
        assistant_seq BIGINT NOT NULL,
        result_id TEXT NOT NULL UNIQUE,
        result_seq BIGINT NOT NULL,
        provider_id TEXT NOT NULL,
        name TEXT NOT NULL,
        arguments TEXT NOT NULL,
        replay TEXT NOT NULL,
        state TEXT NOT NULL,
        outcome TEXT,
        digest TEXT,
        written_ms BIGINT NOT NULL
    )",
    "CREATE UNIQUE INDEX calls_by_place ON calls (conversation_id, result_seq)",
    "CREATE INDEX calls_open ON calls (turn_id) WHERE state <> 'settled'",
    "CREATE TABLE usage_log (
        attempt TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        task TEXT NOT NULL,
        input BIGINT NOT NULL,
        output BIGINT NOT NULL,
        cache_read BIGINT NOT NULL,
        cache_write BIGINT NOT NULL,
        reasoning BIGINT NOT NULL,
        known BIGINT NOT NULL
    )",
    "CREATE INDEX usage_by_conversation ON usage_log (conversation_id)",
];
