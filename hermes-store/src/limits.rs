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
/// Most tokens (and requests) that one entry of usage counts in a sum, whatever a provider said: four million entries
/// of it still fit.
pub const USAGE_MAX_TOKENS: i64 = 1 << 40;
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
/// Most words, phrases and parts of words in one search.
pub const SEARCH_TERMS_MAX: usize = 64;
/// Words of a search snippet (the Python program's limit).
pub const SNIPPET_WORDS: usize = 40;
/// Longest search snippet, without its marks.
pub const SNIPPET_MAX_CHARS: usize = 400;
/// Length of a row that is shown beside a hit (the Python program's limit).
pub const SEARCH_NEIGHBOUR_CHARS: usize = 200;
/// The part of a tool's result that is searched (the Python program's limit).
pub const SEARCH_TOOL_MAX_CHARS: usize = 8_192;
/// The part of any other row that is searched.
pub const SEARCH_TEXT_MAX_CHARS: usize = 262_144;
/// The part of a word that is compared: the hash of a file in hexadecimal digits is shorter.
pub const SEARCH_WORD_MAX_CHARS: usize = 128;
/// Most rows that one step of the index writes.
pub const SEARCH_STEP_MAX_ROWS: usize = 5_000;
/// Rows of a step that a search runs itself.
pub const SEARCH_STEP_ROWS: usize = 500;
/// Most steps that a search runs itself: so many rows times [`SEARCH_STEP_ROWS`] that were just written are found.
pub const SEARCH_STEPS_MAX: usize = 4;
/// Most text that one step of the index holds in memory, but for one row that is larger.
pub const SEARCH_STEP_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Most conversations that one step looks at.
pub const SEARCH_STEP_CONVERSATIONS: usize = 200;
/// Most conversations that are counted as due.
pub const SEARCH_COUNT_MAX: usize = 10_000;
/// Most rows that one search looks at, one by one; the next page goes on.
pub const SEARCH_LOOK_MAX_ROWS: usize = 20_000;
/// Rows that the index names at once.
pub const SEARCH_LOOK_PAGE_ROWS: usize = 256;
/// The newest rows with the words of a search, among which the best ones are looked for.
pub const SEARCH_RANK_MAX_ROWS: usize = 50_000;
/// Longest wait of a step for the lock of the index on SQLite: the next search tries again.
pub const SEARCH_LOCK_WAIT_MS: u64 = 250;
/// Connections to the index on SQLite.
pub const SEARCH_INDEX_READERS: u32 = 3;
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
/// Most sessions of one imported conversation. The Python program takes 500 in a whole file; a whole store of ours is one
/// file, so that here every conversation is bounded and not their number.
pub const IMPORT_SESSIONS_MAX: usize = 10_000;
/// Most rows of one imported conversation (the Python program: 10,000). All of them are written in one transaction; this
/// many take about ten seconds, well within the patience of a transcript write ([`SQLITE_BUSY_MS`]).
pub const IMPORT_ROWS_MAX: usize = 200_000;
/// Most prompts of one imported conversation: two for each session.
pub const IMPORT_PROMPTS_MAX: usize = 2 * IMPORT_SESSIONS_MAX;
/// Most other ids of one imported conversation: one for each session.
pub const IMPORT_ALIASES_MAX: usize = IMPORT_SESSIONS_MAX;
/// Longest description of pictures and files that is kept with an imported row.
pub const IMPORT_PARTS_MAX_BYTES: usize = 1024 * 1024;
/// Longest line of an imported file: a row with the largest content, escaped (the Python program: 5 MiB for a session).
pub const IMPORT_LINE_MAX_BYTES: usize = 2 * CONTENT_MAX_BYTES;
/// Most conversations of one imported export: only the place of each in the file is held.
pub const IMPORT_MAX_CONVERSATIONS: usize = 1_000_000;
/// Most broken lines of an imported file that are told; the others are counted.
pub const IMPORT_ERRORS_TOLD_MAX: usize = 20;
/// Rows that one page of an export reads.
pub const EXPORT_PAGE_ROWS: usize = 500;
/// Conversations that one page of a whole export names.
pub const EXPORT_LIST_MAX: usize = 1_000;
/// A conversation that was ended is kept this long when nothing more happens in it (the Python program's 90 days).
pub const PRUNE_IDLE_MS: u64 = 90 * 86_400_000;
/// A conversation in which nothing ever was is kept this long.
pub const PRUNE_EMPTY_MS: u64 = 86_400_000;
/// Least time between two runs of the rules of retention (the Python program's).
pub const PRUNE_EVERY_MS: u64 = 86_400_000;
/// Most conversations that one run removes, ends or archives; each is a transaction of its own.
pub const PRUNE_MAX_CONVERSATIONS: usize = 200;
/// Most conversations that an ambiguous name is told with.
pub const RESOLVE_MAX: usize = 20;
/// Longest reason for the end of a conversation.
pub const END_REASON_MAX_BYTES: usize = 64;
/// User rows that are looked at for a new preview, after a rewind took the old one away.
pub const PREVIEW_LOOK_ROWS: usize = 20;
/// Longest account, chat or thread of a transport. Several of them stand in one index, whose rows PostgreSQL limits.
pub const ADDRESS_MAX_BYTES: usize = 256;
/// Most chats that the answer to one input goes to.
pub const REPLIES_MAX: usize = 16;
/// Receipts of messages are kept this long: twice the longest time for which a platform tries again (WhatsApp's seven
/// days; Telegram keeps an update for one).
pub const INBOUND_KEEP_MS: u64 = 14 * 86_400_000;
/// Most receipts that one pruning deletes; the rest waits for the next one.
pub const PRUNE_MAX_ROWS: usize = 10_000;
/// Most attempts to send one delivery (reference of the store, section 2.9).
pub const SEND_ATTEMPTS_MAX: i64 = 3;
/// Pause after the first and after the second attempt that failed (the Python program's).
pub const SEND_BACKOFF_MS: [u64; 2] = [30_000, 120_000];
/// Longest pause that a platform may ask for (the Python program's cap).
pub const SEND_RETRY_AFTER_MAX_MS: u64 = 900_000;
/// Usual time of an attempt to send: a long text in many parts, with room for a slow network.
pub const SEND_LEASE_MS: u64 = 120_000;
/// Longest time of an attempt to send.
pub const SEND_LEASE_MAX_MS: u64 = 600_000;
/// A delivery that is older is given up (reference of the store, section 2.9).
pub const SEND_STALE_MS: u64 = 86_400_000;
/// Deliveries are kept this long after their end (reference of the store, section 2.9).
pub const SEND_KEEP_MS: u64 = 7 * 86_400_000;
/// Deliveries of one conversation that are kept after their end (reference of the store, section 2.9).
pub const SEND_KEEP_ROWS: usize = 500;
/// Most deliveries of one conversation that are not over and that a turn may have recorded.
pub const SEND_OPEN_MAX: usize = 1_000;
/// Most messages of a platform that one delivery becomes.
pub const SEND_PARTS_MAX: usize = 1_000;
/// Most chats that one claim looks into.
pub const SEND_LOOK_MAX: usize = 64;
/// Most deliveries in one list.
pub const SEND_LIST_MAX: usize = 1_000;
/// Usual time in which a question is to be answered (reference of the gateway, section 3: approvals).
pub const APPROVAL_TTL_MS: u64 = 300_000;
/// Longest time in which a question may be answered.
pub const APPROVAL_TTL_MAX_MS: u64 = 86_400_000;
/// Questions are kept this long after their end.
pub const APPROVAL_KEEP_MS: u64 = 7 * 86_400_000;
/// Most open questions of one turn.
pub const APPROVALS_OPEN_MAX: usize = 100;
/// Most questions in one list.
pub const APPROVALS_LIST_MAX: usize = 1_000;
/// Longest text of a question.
pub const APPROVAL_SUBJECT_MAX_BYTES: usize = 64 * 1024;
/// Most choices of a question, and most principals that may answer it.
pub const APPROVAL_WORDS_MAX: usize = 64;

/// COMMITs after which the log of a SQLite file is moved into the file (the Python program's number).
pub const CHECKPOINT_EVERY_COMMITS: u64 = 50;
/// Pages of the log from which on the writer itself moves the last of them, so that the log begins anew (8 MiB).
pub const WAL_REST_PAGES: i64 = 2_048;
/// Most pages that a SQLite connection keeps in memory, in KiB: a batch over hundreds of conversations must not spill.
/// Taken page by page, so that a small store stays small.
pub const PAGE_CACHE_KIB: u32 = 8 * 1024;
/// Size to which the log is cut when it begins anew (the Python program's number).
pub const WAL_KEEP_BYTES: u64 = 64 * 1024 * 1024;
/// Prompts that a check hashes in one page.
pub const CHECK_PAGE_PROMPTS: usize = 100;
/// A vacuum is worth its time when more than this share of the file is free (the Python program's limit).
pub const VACUUM_FREE_PERCENT: u64 = 25;
/// Time between two vacuums that nobody forces: 30 days (the Python program's limit).
pub const VACUUM_EVERY_MS: u64 = 30 * 86_400_000;
/// Where a restore lets counters begin, for each millisecond since the Unix epoch: more than any counter can grow in one
/// (a disk commits a few times in a millisecond).
pub const RESTORE_COUNTS_PER_MS: i64 = 1_000;
/// Where a restore lets counters begin at most: half of the numbers that every JSON parser reads exactly (2^53).
pub const RESTORE_COUNT_MAX: i64 = 1 << 52;
/// What a restore adds to a counter that is above that: far above anything that the lost store can have counted since
/// its backup.
pub const RESTORE_COUNTER_STEP: i64 = 1_000_000_000;
/// Conversations of a lost store whose counters a restore reads in one page.
pub const RESTORE_PAGE_ROWS: i64 = 1_000;

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
const _: () = assert!(SEND_STALE_MS < SEND_KEEP_MS && SEND_LEASE_MS <= SEND_LEASE_MAX_MS);
const _: () = assert!(SEND_BACKOFF_MS.len() as i64 + 1 == SEND_ATTEMPTS_MAX);
// What was owed by an input is sent or given up before its receipt may go.
const _: () = assert!(SEND_STALE_MS < INBOUND_KEEP_MS && APPROVAL_TTL_MS <= APPROVAL_TTL_MAX_MS);
