//! Every limit of the engine, with its unit last in its name.

/// Attempts at one request before the turn gives up: the first and three more (`agent.api_max_retries`).
pub const REQUEST_ATTEMPTS_MAX: u32 = 4;
/// First wait before a request is tried again; doubles with every attempt (engine reference, 8.2).
pub const BACKOFF_BASE_MS: u64 = 2_000;
/// Longest wait that the program chooses itself (engine reference, 8.2).
pub const BACKOFF_CAP_MS: u64 = 60_000;
/// Longest wait that a provider may ask for (engine reference, 8.2).
pub const RETRY_AFTER_CAP_MS: u64 = 600_000;
/// Answers with nothing in them before the turn gives up.
pub const EMPTY_ANSWERS_MAX: u32 = 3;
/// Answers with calls that cannot be read, asked again in silence, before the model is told (engine reference, 9).
pub const SILENT_CALL_REPAIRS_MAX: u32 = 2;
/// Rounds in a row without one valid call before the turn ends (engine reference, 9).
pub const INVALID_ROUNDS_MAX: u32 = 3;
/// Pauses of a long answer (`pause_turn`) in one turn.
pub const PAUSES_MAX: u32 = 8;
/// Most calls of one round; more are answered as invalid.
pub const CALLS_PER_ROUND_MAX: usize = 128;
/// Times that one turn is begun, crashes among them, before it is closed.
pub const TURN_ATTEMPTS_MAX: i64 = 3;
/// A turn whose last row is older than this is closed after a crash and not gone on with: the wish behind it may be
/// stale (`agent.gateway_auto_continue_freshness`, 3,600 s).
pub const RESUME_FRESH_MS: i64 = 3_600_000;
/// An accepted input that its own process has left waiting for this long may be run by another.
pub const ORPHAN_AFTER_MS: u64 = 60_000;
/// Longest sleep between two looks at a conversation that somebody else owns.
pub const WAIT_POLL_MS: u64 = 250;
/// Text of a result that an event shows.
pub const EVENT_PREVIEW_CHARS: usize = 400;
/// Least size of context files together, in characters (mechanism document, 2.3).
pub const CONTEXT_FILES_MIN_CHARS: usize = 20_000;
/// Most size of context files together, in characters (mechanism document, 2.3).
pub const CONTEXT_FILES_MAX_CHARS: usize = 500_000;
/// Share of the model's window that context files may take, in percent (mechanism document, 2.3).
pub const CONTEXT_FILES_WINDOW_PERCENT: u64 = 6;
/// Characters that one token stands for in estimates.
pub const CHARS_PER_TOKEN: u64 = 4;
/// Most headings that the note about a cut context file names.
pub const CONTEXT_CUT_HEADINGS_MAX: usize = 15;
/// Time for reading one context file (mechanism document, 2.3).
pub const CONTEXT_FILE_READ_TIMEOUT_MS: u64 = 5_000;
/// Longest input of a user in bytes.
pub const INPUT_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Tool sessions that one engine keeps for conversations that it worked on.
pub const TOOL_SESSIONS_MAX: usize = 256;

const _: () = assert!(BACKOFF_BASE_MS <= BACKOFF_CAP_MS);
const _: () = assert!(CONTEXT_FILES_MIN_CHARS <= CONTEXT_FILES_MAX_CHARS);
const _: () = assert!(INPUT_MAX_BYTES <= hermes_store::limits::PAYLOAD_MAX_BYTES);
