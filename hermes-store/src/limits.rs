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
/// A beat that is newer than now by more than this says that the clock went back. By less, it only says that two
/// transactions of a database with many writers met.
pub const BEAT_AHEAD_MAX_MS: u64 = 15_000;
/// The row of an owner that is retired or silent is kept this long, so that others can see that it is gone.
pub const OWNER_KEEP_MS: u64 = 86_400_000;
/// Longest wait of a transcript write for its turn on SQLite (reference of the store, section 7: transcript).
pub const SQLITE_BUSY_MS: u64 = 60_000;
/// Longest wait of a write that somebody can repeat: titles, flags (reference of the store, section 7: normal).
pub const BUSY_NORMAL_MS: u64 = 20_000;
/// Longest wait of a lease's renewal (reference of the store, section 7: activity); its keeper tries again.
pub const BUSY_ACTIVITY_MS: u64 = 500;
/// Longest wait of a compression's swap (reference of the store, section 7: compression).
pub const BUSY_COMPRESSION_MS: u64 = 5_000;
/// Longest wait of a heartbeat: one beat, so that no beat waits behind another.
pub const BUSY_BEAT_MS: u64 = HEARTBEAT_MS;
/// Most writes that wait for their turn in one process; the next one waits, with the same patience, to be let in.
pub const WRITE_QUEUE_MAX: usize = 1_024;
/// Most writes that share one COMMIT. With more, the first would wait noticeably for the last.
pub const BATCH_MAX_WRITES: usize = 512;
/// Longest time in which writes join a batch, from its BEGIN: another process's writer waits for this lock.
pub const BATCH_MAX_MS: u64 = 20;
/// Statements that a connection keeps prepared: all of this crate with room to spare.
pub const STATEMENTS_MAX: usize = 512;
/// Shortest secret of a worker: 32 hex digits hold 128 bits.
pub const SECRET_MIN_BYTES: usize = 32;
/// Longest payload, result or detail of a worker (the Python program's limit of one operation).
pub const RECEIPT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Most receipts of one worker.
pub const RECEIPTS_MAX: i64 = 10_000;
/// A worker that is over is kept this long, so that a late repetition is answered.
pub const WORKER_KEEP_MS: u64 = 7 * 86_400_000;
/// Time between two looks for work whose owner is gone (the Python program's limit).
pub const WORK_SWEEP_MS: u64 = 30_000;
/// Most rows that one sweep changes of each kind; the rest waits for the next one.
pub const SWEEP_MAX_ROWS: usize = 1_000;
/// Longest description of a delegated task.
pub const DELEGATION_TASK_MAX_BYTES: usize = 64 * 1024;
/// Longest result of a delegation.
pub const DELEGATION_RESULT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Most delegations of one conversation that are not over or not delivered (the Python program's limit).
pub const DELEGATIONS_PENDING_MAX: i64 = 1_000;
/// Delegations of one conversation that are kept after they were delivered (the Python program's limit).
pub const DELEGATIONS_KEPT: usize = 50;
/// What was delivered or given up is kept this long (the Python program's limit).
pub const DELEGATION_KEEP_MS: u64 = 7 * 86_400_000;
/// A delegation that became unknown is not delivered before: whoever recovers the child may still finish it.
pub const DELEGATION_UNKNOWN_GRACE_MS: u64 = 60_000;
/// Life of a claim on a delivery (the Python program's limit).
pub const RESULT_LEASE_MS: u64 = 300_000;
/// Most attempts to deliver one result (the Python program's limit).
pub const RESULT_ATTEMPTS_MAX: i64 = 8;
/// A result that was tried and is older than this is given up (the Python program's limit).
pub const RESULT_AGE_MAX_MS: u64 = 48 * 3_600_000;
/// Life of a compression lock that nobody renews (the Python program's).
pub const COMPRESSION_LOCK_TTL_MS: u64 = 300_000;
/// Longest time without a new try after a failed compression (the longest cooldown of the Python program).
pub const COMPRESSION_COOLDOWN_MAX_MS: u64 = 900_000;
/// Longest reason of a failed compression that is kept.
pub const COMPRESSION_ERROR_MAX_CHARS: usize = 500;
/// Most rows that a branch copies (the Python program's limit for the import of one session).
pub const BRANCH_MAX_ROWS: usize = 10_000;
/// User rows that are looked at for a new preview, after a rewind took the old one away.
pub const PREVIEW_LOOK_ROWS: usize = 20;

const _: () = assert!(LEASE_REFRESH_MS * 3 < LEASE_TTL_MS);
const _: () = assert!(HEARTBEAT_MS * 3 < HEARTBEAT_DEAD_MS);
const _: () = assert!(BEAT_AHEAD_MAX_MS < HEARTBEAT_DEAD_MS);
const _: () = assert!(LEASE_TTL_MS < LEASE_WAIT_MS);
// A beat and a renewal that found no way in are tried again in time.
const _: () = assert!(BUSY_BEAT_MS * 3 < HEARTBEAT_DEAD_MS);
const _: () = assert!(BUSY_ACTIVITY_MS < BUSY_BEAT_MS && BUSY_COMPRESSION_MS < BUSY_NORMAL_MS);
const _: () = assert!(BUSY_NORMAL_MS < SQLITE_BUSY_MS);
const _: () = assert!(BATCH_MAX_MS * 10 < BUSY_ACTIVITY_MS);
const _: () = assert!(RESULT_AGE_MAX_MS < DELEGATION_KEEP_MS);
const _: () = assert!(HEARTBEAT_DEAD_MS < DELEGATION_UNKNOWN_GRACE_MS);
