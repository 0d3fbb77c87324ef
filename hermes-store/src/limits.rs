//! Every limit of the store, with its unit last in its name.

/// Longest id. Fits `profile:kind:uuid` forms with room to spare.
pub const ID_MAX_BYTES: usize = 128;
/// Longest title after cleaning (the Python program's limit).
pub const TITLE_MAX_CHARS: usize = 100;
/// Life of a lease that nobody renews (mechanism document, section 1.2).
pub const LEASE_TTL_MS: u64 = 300_000;
/// Time between two renewals of a lease (mechanism document, section 1.2).
pub const LEASE_REFRESH_MS: u64 = 60_000;
/// Longest wait for a lease that somebody else holds (mechanism document, section 1.2).
pub const LEASE_WAIT_MS: u64 = 1_800_000;
/// Time between two heartbeats of an owner.
pub const HEARTBEAT_MS: u64 = 5_000;
/// An owner whose last heartbeat is older than this is taken for dead: six missed beats.
pub const HEARTBEAT_DEAD_MS: u64 = 30_000;
/// Most admissions that may wait in one conversation.
pub const QUEUE_MAX: i64 = 1_000;
/// Largest admission payload.
pub const PAYLOAD_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Largest content of one message row; tool results are cut long before by the tools' own budget.
pub const CONTENT_MAX_BYTES: usize = 64 * 1024 * 1024;
/// Most rows that one page of messages returns.
pub const PAGE_MAX_ROWS: usize = 10_000;
/// Longest search text (the Python program's limit).
pub const SEARCH_QUERY_MAX_CHARS: usize = 2_048;
/// Most hits that one search returns.
pub const SEARCH_MAX_HITS: usize = 200;
/// Text on either side of a match in a search snippet.
pub const SNIPPET_SIDE_CHARS: usize = 60;
/// Length of the preview of a conversation (the Python program's limit).
pub const PREVIEW_CHARS: usize = 60;
/// Longest principal or request id.
pub const KEY_MAX_BYTES: usize = 1_024;
/// Most calls of one round.
pub const ROUND_MAX_CALLS: usize = 1_000;
/// Most steers that one call takes; the rest waits for the next one.
pub const STEERS_MAX: usize = 100;
/// The row of an owner that is retired or silent is kept this long, so that others can see that it is gone.
pub const OWNER_KEEP_MS: u64 = 86_400_000;
/// Longest wait of a writer for another process's write transaction on SQLite.
pub const SQLITE_BUSY_MS: u64 = 60_000;

const _: () = assert!(LEASE_REFRESH_MS * 3 < LEASE_TTL_MS);
const _: () = assert!(HEARTBEAT_MS * 3 < HEARTBEAT_DEAD_MS);
const _: () = assert!(LEASE_TTL_MS < LEASE_WAIT_MS);
