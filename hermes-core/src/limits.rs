//! Every limit of the engine, with its unit last in its name.

/// Tries of a model that is overloaded or silent, before another one stands in (the Python program's number).
pub const OVERLOAD_ATTEMPTS: u32 = 2;
/// First rest of a route whose provider has had enough of us, in milliseconds; doubled each time.
pub const COOLDOWN_BASE_MS: u64 = 60_000;
/// Longest rest of a route, in milliseconds.
pub const COOLDOWN_MAX_MS: u64 = 4 * 60 * 60 * 1_000;
/// Attempts at one request before the turn gives up: the first and three more (`agent.api_max_retries`).
pub const REQUEST_ATTEMPTS_MAX: u32 = 4;
/// Times that one request goes out again with another key of the same provider; none of them counts as an attempt. More
/// keys than anybody has, and an end for a provider that takes none of them.
pub const KEY_ROTATIONS_MAX: u32 = 32;
/// First wait before a request is tried again; doubles with every attempt (engine reference, 8.2).
pub const BACKOFF_BASE_MS: u64 = 2_000;
/// Longest wait that the program chooses itself (engine reference, 8.2).
pub const BACKOFF_CAP_MS: u64 = 60_000;
/// Longest wait that a provider may ask for (engine reference, 8.2).
pub const RETRY_AFTER_CAP_MS: u64 = 600_000;
/// Times that an answer with nothing in it is asked for again before the turn gives up (engine reference, 8.3).
pub const EMPTY_RETRIES_MAX: u32 = 3;
/// Answers in a row that cost no output and ended for the same reason: another one would be paid for and be the same
/// (engine reference, 8.3).
pub const EMPTY_PROVEN_MAX: u32 = 2;
/// Times that a model that only thought is asked again (engine reference, 8.3).
pub const THOUGHT_ONLY_RETRIES_MAX: u32 = 2;
/// Times that a model whose thinking used the output limit up is asked again, with less thinking or more room.
pub const THOUGHT_AWAY_RETRIES_MAX: u32 = 1;
/// Times that an answer that the output limit cut is gone on with (engine reference, 8.3).
pub const CONTINUATIONS_MAX: u32 = 3;
/// Room in the model's window, in tokens, below which a cut answer is not gone on with (engine reference, 8.3).
pub const CONTINUATION_ROOM_MIN_TOKENS: u64 = 512;
/// What an output cap of the configuration may be raised to after an answer was cut; twice the cap, when that is more
/// (engine reference, 8.3).
pub const OUTPUT_CAP_RAISED_MAX_TOKENS: u64 = 32_768;
/// What an output cap is lowered below the room that a provider says is left, in tokens: the Python program's number.
pub const OUTPUT_CAP_MARGIN_TOKENS: u64 = 64;
/// Shortest repetition that is taken out where two parts of an answer meet (engine reference, 8.3).
pub const SEAM_OVERLAP_MIN_CHARS: usize = 32;
/// Longest repetition that is looked for where two parts of an answer meet.
pub const SEAM_WINDOW_BYTES: usize = 4_096;
/// Times that a request is sent again because its answer was cut inside a call (engine reference, 8.3).
pub const TORN_CALL_RETRIES_MAX: u32 = 4;
/// Times that a model that announced calls and made none is asked again (engine reference, 8.3).
pub const MISSING_CALLS_RETRIES_MAX: u32 = 3;
/// Times that a model whose call the provider could not read is asked again (providers reference, B31).
pub const MALFORMED_CALL_RETRIES_MAX: u32 = 1;
/// Length from which a text is looked at for loops (engine reference, 8.3).
pub const REPETITION_MIN_CHARS: usize = 16_000;
/// The end of a text that is looked at for loops.
pub const REPETITION_TAIL_BYTES: usize = 8_000;
/// New text between two looks.
pub const REPETITION_CHECK_BYTES: usize = 1_000;
/// Longest piece whose repetition counts as a loop.
pub const REPETITION_PERIOD_MAX_BYTES: usize = 1_600;
/// How often a line stands in the end of a text before it counts as repeated.
pub const REPETITION_LINE_MIN_TIMES: usize = 8;
/// Part of the end of a text that repeated lines make up in a loop.
pub const REPETITION_LINES_PERCENT: usize = 90;
/// Answers with calls that cannot be read, asked again in silence, before the model is told (engine reference, 9).
pub const SILENT_CALL_REPAIRS_MAX: u32 = 2;
/// Rounds in a row without one valid call before the turn ends (engine reference, 9).
pub const INVALID_ROUNDS_MAX: u32 = 3;
/// Failures of the same call with the same arguments that the model is told of (engine reference, 9).
pub const GUARD_EXACT_FAILURES_WARN: u32 = 2;
/// Failures of the same call with the same arguments that end the turn (engine reference, 9).
pub const GUARD_EXACT_FAILURES_HALT: u32 = 5;
/// Failures of one tool in a row that the model is told of (engine reference, 9).
pub const GUARD_TOOL_FAILURES_WARN: u32 = 3;
/// Failures of one tool in a row that end the turn (engine reference, 9).
pub const GUARD_TOOL_FAILURES_HALT: u32 = 8;
/// Times that a call without effect gave the same result that the model is told of (engine reference, 9).
pub const GUARD_NO_PROGRESS_WARN: u32 = 2;
/// Times that a call without effect gave the same result that end the turn (engine reference, 9).
pub const GUARD_NO_PROGRESS_HALT: u32 = 5;
/// The same call with the same result, or the same cycle of calls, in a row that the model is told of (engine
/// reference, 9).
pub const GUARD_STREAK_WARN: u32 = 3;
/// The same call with the same result, or the same cycle of calls, in a row that end the turn (engine reference, 9).
pub const GUARD_STREAK_HALT: u32 = 5;
/// Longest cycle of calls that is noticed, in calls (engine reference, 9).
pub const GUARD_CYCLE_MAX_CALLS: usize = 4;
/// Least size of a result that is not repeated for the model (engine reference, 9).
pub const GUARD_SAME_RESULT_MIN_BYTES: usize = 512;
/// Which repetition of a result is the first that is given as a reference to the earlier one (engine reference, 9).
pub const GUARD_SAME_RESULT_FROM_REPEAT: u32 = 2;
/// Web searches in one turn, on every surface (engine reference, 9).
pub const WEB_SEARCHES_PER_TURN_MAX: u32 = 50;
/// Subagents that one turn starts, on every surface (engine reference, 9).
pub const SUBAGENTS_PER_TURN_MAX: u32 = 50;
/// Children of one turn that work at once, and most tasks of one call (`delegation.max_concurrent_children`).
pub const CHILDREN_AT_ONCE_MAX: usize = 10;
/// How deep children may have children; 1 = a child has none (`delegation.max_spawn_depth`).
pub const SPAWN_DEPTH_MAX: u32 = 1;
/// Requests of one child (`delegation.max_iterations`).
pub const CHILD_ITERATIONS_MAX: u64 = 250;
/// Text of one child's result that its parent is shown (`delegation.max_summary_chars`).
pub const CHILD_SUMMARY_MAX_CHARS: usize = 24_000;
/// Longest goal of a task (tools reference, 10).
pub const GOAL_MAX_CHARS: usize = 16_000;
/// Longest context of a task (tools reference, 10).
pub const TASK_CONTEXT_MAX_CHARS: usize = 32_000;
/// Children of a conversation that a list of them shows, the newest ones.
pub const CHILDREN_LISTED_MAX: usize = 50;
/// Children that one look for work in the background sees, the last active ones.
pub const CHILDREN_LOOKED_AT_MAX: usize = 100;
/// A child that is over is looked at for so long after its last row: its delegation may not have ended yet.
pub const CHILD_LOOK_BACK_MS: u64 = 600_000;
/// Inputs with results of children that one engine runs at once.
pub const BACKGROUND_PARENTS_MAX: usize = 16;
/// Times that a parent goes on with a child of which a write has failed.
pub const CHILD_RECOVERIES_MAX: u32 = 1;
/// Text of an input that the event of its taking shows; the transcript has it whole.
pub const TAKEN_SHOWN_MAX_CHARS: usize = 2_000;
/// Calls over such a cap that are answered before the turn ends.
pub const CAPPED_CALLS_MAX: u32 = 5;
/// Steps that one turn gets back at most, whatever the cause: a budget with refunds still ends.
pub const BUDGET_REFUNDS_MAX: u32 = 500;
/// Attempts at the closing summary: the first and one more when it is empty (engine reference, 3).
pub const SUMMARY_ATTEMPTS_MAX: u32 = 2;
/// Part of the time of a turn after which the model is told, once (engine reference, 3.4).
pub const DEADLINE_WARN_PERCENT: i64 = 80;
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
/// Longest sleep between two looks for a redirect beside a request; a change of the conversation ends it earlier.
pub const REDIRECT_WAIT_MS: u64 = 30_000;
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
/// Characters of one such heading.
pub const CONTEXT_CUT_HEADING_MAX_CHARS: usize = 80;
/// Time for reading one context file (mechanism document, 2.3).
pub const CONTEXT_FILE_READ_TIMEOUT_MS: u64 = 5_000;
/// Longest input of a user in bytes.
pub const INPUT_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Tool sessions that one engine keeps for conversations that it worked on.
pub const TOOL_SESSIONS_MAX: usize = 256;

/// Rows behind a compression that tools are given their state back from, the newest ones. Ours.
pub const HYDRATE_MAX_ROWS: usize = 2_000;

/// Newest rows that are looked through for the calls of a turn whose outcome is unknown. Ours.
pub const UNKNOWN_LOOK_MAX_ROWS: usize = 2_000;

/// Time for one summary at one model (`compression.context_timeout_seconds`, 120 s).
pub const SUMMARY_TIMEOUT_MS: u64 = 120_000;
/// Time for one title at one model (`auxiliary.title_generation.timeout`, 30 s).
pub const TITLE_TIMEOUT_MS: u64 = 30_000;
/// Time for one judgement of a dangerous command at one model (`auxiliary.approval.timeout`, 30 s).
pub const APPROVAL_TIMEOUT_MS: u64 = 30_000;
/// Room for the judge's one word and what a model thinks before it, in tokens. The Python program's 16 leave a model that
/// thinks no room, and every question would go to the person.
pub const APPROVAL_OUTPUT_MAX_TOKENS: u64 = 1_024;
/// Longest time that a host may give a task beside the turn at one model: the longest of the Python program's.
pub const AUXILIARY_TIMEOUT_MAX_MS: u64 = 900_000;
/// Most characters of a title that a model wrote; what a person writes may be longer.
pub const GENERATED_TITLE_MAX_CHARS: usize = 60;
/// Length from which a line is taken for a text and not for a title.
pub const TITLE_ANSWER_MAX_CHARS: usize = 120;
/// Most characters of the input, and of the answer, that a title is made from.
pub const TITLE_INPUT_MAX_CHARS: usize = 2_000;
/// Room for a title and what a model thinks before it, in tokens.
pub const TITLE_OUTPUT_MAX_TOKENS: u64 = 2_048;
/// Rows at both ends of a conversation that are looked at for its first input and its newest answer.
pub const TITLE_LOOK_MAX_ROWS: usize = 16;
/// Requests for titles of one conversation, over all its turns: a model that gives none costs no more than this, and one
/// round of attempts.
pub const TITLE_REQUESTS_MAX: u64 = 6;
/// Life of the lease under which a title is written.
pub const TITLE_LEASE_MS: u64 = 30_000;
/// Wait between two looks whether a conversation is free for its title.
pub const TITLE_RETRY_MS: u64 = 2_000;
/// Attempts at one model of a request beside the turn (`auxiliary.transient_retries`, 2, and the first).
pub const AUXILIARY_ATTEMPTS_MAX: u32 = 3;
/// Models that such a request asks at most: the task's own, then the turn's.
pub const AUXILIARY_ROUTES_MAX: u64 = 2;
/// Least size of a request whose history is shortened after a pause, in tokens: below it the notes cost more than they save.
/// Ours.
pub const IDLE_COMPRESS_MIN_TOKENS: u64 = 20_000;
/// Longest text that says what the notes of a compression are to be about.
pub const FOCUS_MAX_BYTES: usize = 4_096;
/// Window that is assumed for a model of which none is known, when a person asks for a compression: the smallest one
/// that hosted models have nowadays.
pub const UNKNOWN_WINDOW_TOKENS: u64 = 131_072;
/// Windows of models that one engine remembers from what providers said.
pub const KNOWN_WINDOWS_MAX: usize = 256;

/// Silence of a turn after which it is stopped (`agent.turn_liveness.timeout_s`, 600 s).
pub const LIVENESS_TIMEOUT_MS: u64 = 600_000;
/// Time between two looks at whether a turn gets on (`agent.turn_liveness.poll_s`, 15 s).
pub const LIVENESS_POLL_MS: u64 = 15_000;
/// How many polls pass between two looks before it is certain that the host slept.
pub const LIVENESS_JUMP_POLLS: u64 = 4;
/// Time after its own limit in which a call or a wait may end: what it started is ended, its result is put away.
pub const LIVENESS_MARGIN_MS: u64 = 30_000;
/// Time in which a turn ends after a hard stop, its deadline among them: calls are ended, the tail and the end are
/// stored, if need be at a locked database. What takes longer is given up.
pub const TURN_STOP_GRACE_MS: u64 = 75_000;

/// Time for turns that were stopped to settle before their process ends without them.
pub const WIND_DOWN_GRACE_MS: u64 = 60_000;

/// Times that one write is repeated after a lost COMMIT, or because the database asks for it: about six seconds in all,
/// enough for a server's restart.
pub const WRITE_REPEATS_MAX: u32 = 8;
/// Wait before the first repetition; doubles with each.
pub const WRITE_REPEAT_WAIT_MS: u64 = 25;

const _: () = assert!(SUMMARY_TIMEOUT_MS * AUXILIARY_ROUTES_MAX < hermes_store::limits::COMPRESSION_LOCK_TTL_MS);
const _: () = assert!(GENERATED_TITLE_MAX_CHARS <= hermes_store::limits::TITLE_MAX_CHARS);
const _: () = assert!(GENERATED_TITLE_MAX_CHARS <= TITLE_ANSWER_MAX_CHARS);
const _: () = assert!(BACKOFF_BASE_MS <= BACKOFF_CAP_MS);
const _: () = assert!(LIVENESS_POLL_MS * LIVENESS_JUMP_POLLS * 2 <= LIVENESS_TIMEOUT_MS);
const _: () = assert!(TURN_STOP_GRACE_MS > hermes_store::limits::SQLITE_BUSY_MS);
// Who stops renewing leaves the lease to others before they give up waiting for it.
const _: () = assert!(TURN_STOP_GRACE_MS + hermes_store::limits::LEASE_TTL_MS < hermes_store::limits::LEASE_WAIT_MS);
const _: () = assert!(CHILDREN_AT_ONCE_MAX <= SUBAGENTS_PER_TURN_MAX as usize);
const _: () = assert!(CONTEXT_FILES_MIN_CHARS <= CONTEXT_FILES_MAX_CHARS);
const _: () = assert!(INPUT_MAX_BYTES <= hermes_store::limits::PAYLOAD_MAX_BYTES);
const _: () =
    assert!(REPETITION_TAIL_BYTES / REPETITION_PERIOD_MAX_BYTES >= 5 && REPETITION_TAIL_BYTES < REPETITION_MIN_CHARS);
const _: () = assert!(SEAM_OVERLAP_MIN_CHARS > 0 && SEAM_OVERLAP_MIN_CHARS * 4 <= SEAM_WINDOW_BYTES);
const _: () = assert!(GUARD_EXACT_FAILURES_WARN < GUARD_EXACT_FAILURES_HALT);
const _: () = assert!(GUARD_TOOL_FAILURES_WARN < GUARD_TOOL_FAILURES_HALT);
const _: () = assert!(GUARD_NO_PROGRESS_WARN < GUARD_NO_PROGRESS_HALT && GUARD_STREAK_WARN < GUARD_STREAK_HALT);

/// Pictures of one input (store reference, 4.1).
pub const IMAGES_MAX: usize = 10;
/// Bytes of all pictures of one input. In base64 they and the largest text fit an admission's payload.
pub const IMAGES_TOTAL_MAX_BYTES: usize = 5 * 1024 * 1024;
/// Tokens that a picture costs, by estimate (engine reference, 6.5).
pub const IMAGE_TOKENS: u64 = 1_500;

const _: () =
    assert!(IMAGES_TOTAL_MAX_BYTES.div_ceil(3) * 4 + INPUT_MAX_BYTES < hermes_store::limits::PAYLOAD_MAX_BYTES);

/// Characters of a platform's name.
pub const PLATFORM_MAX_CHARS: usize = 32;
/// Rows, from the last one back, in which an input is looked for that says where it was written.
pub const PLATFORM_LOOK_ROWS: usize = 200;

/// Events that are kept of one conversation for clients that come back (the Python program's number).
pub const REPLAY_EVENTS_MAX: usize = 512;
/// Bytes that they may take, roughly.
pub const REPLAY_BYTES_MAX: usize = 1 << 20;
/// Bytes of one text behind which its next piece is an event of its own.
pub const REPLAY_TEXT_BYTES: usize = 64 << 10;
/// Pieces that one kept text is made of, at most.
pub const REPLAY_PIECES_MAX: usize = 4_096;
/// Conversations whose events are kept at one time.
pub const REPLAY_CONVERSATIONS_MAX: usize = 256;
/// Bytes that the events of all conversations may take, roughly.
pub const REPLAY_TOTAL_BYTES_MAX: usize = 16 << 20;
/// Conversations whose count of events is kept.
pub const REPLAY_KNOWN_MAX: usize = 4_096;
/// Sessions whose last request is known, to be compared with the next one.
pub const PREFIX_SESSIONS_MAX: usize = 4_096;
/// Messages of all of them together: 8 bytes each.
pub const PREFIX_HASHES_MAX: usize = 262_144;

const _: () = assert!(REPLAY_CONVERSATIONS_MAX < REPLAY_KNOWN_MAX && REPLAY_BYTES_MAX * 2 <= REPLAY_TOTAL_BYTES_MAX);
const _: () = assert!(REPLAY_TEXT_BYTES * 4 <= REPLAY_BYTES_MAX);
