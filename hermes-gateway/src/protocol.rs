//! The protocol between a client and a gateway: the same values in one process and over a transport.
//!
//! A client sends [`Request`]s and gets one [`Response`] or [`RpcError`] for each; the gateway sends
//! [`ServerMessage`]s of its own accord. On a line transport each is one JSON object (`docs/protocol.md`).

mod models;
mod providers;

pub use models::{
    Cost, Described, Fact, Hit, Modality, ModelFacts, ModelRefreshParams, ModelRefreshResponse, ModelSearchParams,
    ModelSearchResponse, ModelShowParams, ModelShowResponse, Money, Price, Prices, Rates, Source, Tier,
};
pub use providers::{ProviderDetail, ProviderValue, ProvidersListParams, ProvidersListResponse};
// A client needs no other crate of the workspace: what the messages are made of is here too.
pub use hermes_core::{
    Child, ChildState, ChildStop, Cursor, Decision, EndReason, Event, EventKind, GapReason, InputImage, PlannedCall,
    Replay, Shortened, Stopper, TakenInput, TurnError, TurnResult, UnknownCall, UnknownInput,
};
pub use hermes_store::sqlite::RestoreReport;
pub use hermes_store::transfer::bundle::{ExportCursor, RowCounts};
pub use hermes_store::transfer::python::ImportReport;
pub use hermes_store::{
    AdmissionId, AdmissionOutcome, AdmissionStatus, CallId, CallOutcome, CheckReport, ConversationFlags,
    ConversationId, ConversationSummary, DelegationId, Generation, IndexState, IndexStatus, Intent, InvalidId,
    MessageId, Neighbour, PruneReport, PruneStep, Receipt, Role, SearchHit, SearchOrder, SearchPage, SessionId,
    TitleSource, TurnId, UsageTotals, VacuumOutcome,
};
pub use hermes_tools::{ApprovalAnswer, ApprovalRequest, ClarifyAnswer, ClarifyQuestion};
use serde::{Deserialize, Serialize};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params")]
#[non_exhaustive]
pub enum Request {
    /// Which conversation is meant: the last one, or one by id, unique beginning of an id, or title.
    #[serde(rename = "session/resolve")]
    SessionResolve(SessionResolveParams),
    /// Conversations, newest activity first.
    #[serde(rename = "session/list")]
    SessionList(SessionListParams),
    /// One conversation with its rows.
    #[serde(rename = "session/show")]
    SessionShow(SessionShowParams),
    /// What was told of a conversation since a place, for a client that comes back or was too slow.
    #[serde(rename = "session/events")]
    SessionEvents(SessionEventsParams),
    /// Rows that hold a text.
    #[serde(rename = "session/search")]
    SessionSearch(SessionSearchParams),
    /// A part of the work on the search index.
    #[serde(rename = "session/reindex")]
    SessionReindex(SessionReindexParams),
    /// Gives a title.
    #[serde(rename = "session/rename")]
    SessionRename(SessionRenameParams),
    /// Archives or pins a conversation, or the opposite.
    #[serde(rename = "session/flags")]
    SessionFlags(SessionFlagsParams),
    /// Undoes the last turns. Nothing is deleted.
    #[serde(rename = "session/undo")]
    SessionUndo(SessionUndoParams),
    /// Undoes the last input and hands it in again: both, or neither. Answered when it is durable.
    #[serde(rename = "session/retry")]
    SessionRetry(SessionRefParams),
    /// Takes the last undo back, when nothing was written since.
    #[serde(rename = "session/redo")]
    SessionRedo(SessionRefParams),
    /// Shortens the history that the model sees, now. Answered when it is done; `turn/interrupt` stops it.
    #[serde(rename = "session/compress")]
    SessionCompress(SessionCompressParams),
    /// The children of a conversation: those that its model gave tasks to.
    #[serde(rename = "session/children")]
    SessionChildren(SessionRefParams),
    /// Stops a child of a conversation. Its result reaches its parent as any other does.
    #[serde(rename = "session/stop_child")]
    SessionStopChild(SessionStopChildParams),
    /// The inputs of a session of which nobody knows what became of them, with what the journal shows.
    #[serde(rename = "session/unknown")]
    SessionUnknown(SessionRefParams),
    /// Decides what became of such an input; the session goes on behind it.
    #[serde(rename = "session/decide")]
    SessionDecide(SessionDecideParams),
    /// Makes a new conversation that begins with what this one's model sees.
    #[serde(rename = "session/branch")]
    SessionBranch(SessionBranchParams),
    /// Removes what is old by the rules of retention.
    #[serde(rename = "session/prune")]
    SessionPrune(SessionPruneParams),
    /// Deletes a conversation.
    #[serde(rename = "session/delete")]
    SessionDelete(SessionRefParams),
    /// A piece of an export: lines of text.
    #[serde(rename = "session/export")]
    SessionExport(SessionExportParams),
    /// Carries conversations in from a file: the Python program's, or an export.
    #[serde(rename = "store/import")]
    StoreImport(StorePathParams),
    /// Looks whether everything in the store is as it must be.
    #[serde(rename = "store/check")]
    StoreCheck(StoreCheckParams),
    /// Writes the store of this moment to a new file.
    #[serde(rename = "store/backup")]
    StoreBackup(StorePathParams),
    /// Puts a backup in the place of the store, which nobody may have open.
    #[serde(rename = "store/restore")]
    StoreRestore(StorePathParams),
    /// Makes the store's file smaller.
    #[serde(rename = "store/vacuum")]
    StoreVacuum(StoreVacuumParams),
    /// Hands in an input. Answered when it is durable.
    #[serde(rename = "prompt/submit")]
    PromptSubmit(PromptSubmitParams),
    /// Waits for the end of an input's turn.
    #[serde(rename = "turn/wait")]
    TurnWait(TurnWaitParams),
    /// Stops the running turn of a conversation.
    #[serde(rename = "turn/interrupt")]
    TurnInterrupt(TurnInterruptParams),
    /// Goes on with turns of a conversation that a crash left open or waiting.
    #[serde(rename = "turn/resume")]
    TurnResume(SessionRefParams),
    /// Answers [`ServerMessage::ApprovalRequested`].
    #[serde(rename = "approval/respond")]
    ApprovalRespond(ApprovalRespondParams),
    /// Answers [`ServerMessage::ClarifyRequested`].
    #[serde(rename = "clarify/respond")]
    ClarifyRespond(ClarifyRespondParams),
    /// Which model is used, and why; which providers are known.
    #[serde(rename = "model/status")]
    ModelStatus,
    /// Models that are known.
    #[serde(rename = "model/search")]
    ModelSearch(ModelSearchParams),
    /// What is known of one model, and from where.
    #[serde(rename = "model/show")]
    ModelShow(ModelShowParams),
    /// Asks a provider for its list of models and keeps it.
    #[serde(rename = "model/refresh")]
    ModelRefresh(ModelRefreshParams),
    /// Which providers are known, and where each of their values is from.
    #[serde(rename = "providers/list")]
    ProvidersList(ProvidersListParams),
    /// Which tools there are, and which this session has.
    #[serde(rename = "tools/list")]
    ToolsList,
    /// Checks the installation.
    #[serde(rename = "system/doctor")]
    SystemDoctor,
}

/// What a request returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Response {
    /// Of `session/resolve`.
    SessionResolved(SessionResolveResponse),
    /// Of `session/list`.
    Sessions(Vec<ConversationSummary>),
    /// Of `session/show`.
    Session(Box<SessionShowResponse>),
    /// Of `session/events`.
    Events(SessionEventsResponse),
    /// Of `session/search`.
    Found(SearchPage),
    /// Of `session/reindex`.
    Reindexed(SessionReindexResponse),
    /// Of `session/rename`: the title that holds.
    Renamed {
        /// The title after cleaning.
        title: String,
    },
    /// Of `session/flags`: how it is marked now.
    Flagged(ConversationFlags),
    /// Of `session/undo`.
    Undone(SessionUndoResponse),
    /// Of `session/redo`.
    Redone {
        /// Rows that are back.
        rows: u64,
    },
    /// Of `session/compress`.
    Compressed(Shortened),
    /// Of `session/children`, the newest first.
    Children(Vec<Child>),
    /// Of `session/stop_child`.
    ChildStopped(ChildStop),
    /// Of `session/unknown`.
    Unknown(Vec<UnknownInput>),
    /// Of `session/decide`.
    Decided(Receipt),
    /// Of `session/branch`.
    Branched {
        /// The new conversation.
        conversation: ConversationId,
    },
    /// Of `session/prune`.
    Pruned(PruneReport),
    /// Of `session/delete`.
    Deleted,
    /// Of `session/export`.
    Exported(SessionExportResponse),
    /// Of `store/import`.
    Imported(Box<ImportReport>),
    /// Of `store/check`.
    Checked(CheckReport),
    /// Of `store/backup`: the file is on the disk.
    BackedUp,
    /// Of `store/restore`.
    Restored(RestoreReport),
    /// Of `store/vacuum`.
    Vacuumed(VacuumOutcome),
    /// Of `prompt/submit` and `session/retry`.
    Submitted(PromptSubmitResponse),
    /// Of `turn/wait` and `turn/resume`.
    Turn(Option<Box<TurnResult>>),
    /// Of `turn/interrupt`: whether a turn was running here.
    Interrupted {
        /// True when one was.
        running: bool,
    },
    /// Of `approval/respond` and `clarify/respond`: false when nobody waits for the answer any more.
    Accepted {
        /// True when it was taken.
        taken: bool,
    },
    /// Of `model/status`.
    Model(Box<ModelStatusResponse>),
    /// Of `model/search`.
    Models(ModelSearchResponse),
    /// Of `model/show`.
    ModelShown(Box<ModelShowResponse>),
    /// Of `model/refresh`.
    ModelsRefreshed(ModelRefreshResponse),
    /// Of `providers/list`.
    Providers(ProvidersListResponse),
    /// Of `tools/list`.
    Tools(Vec<ToolStatus>),
    /// Of `system/doctor`.
    Doctor(Vec<Check>),
}

/// What the gateway sends of its own accord.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params")]
#[non_exhaustive]
pub enum ServerMessage {
    /// Something happens.
    #[serde(rename = "event")]
    Event(Event),
    /// A person is asked. Not answered within its time means no.
    #[serde(rename = "approval/request")]
    ApprovalRequested {
        /// The conversation.
        conversation: ConversationId,
        /// What is asked.
        request: ApprovalRequest,
    },
    /// The model asks the user.
    #[serde(rename = "clarify/request")]
    ClarifyRequested {
        /// The conversation.
        conversation: ConversationId,
        /// The id to answer with.
        id: String,
        /// The questions.
        questions: Vec<ClarifyQuestion>,
    },
    /// A question is not open any more (answered elsewhere, timed out, turn over).
    #[serde(rename = "request/withdrawn")]
    RequestWithdrawn {
        /// The id of the question.
        id: String,
    },
    /// The client was too slow, and messages of any conversation were not sent to it. It asks for them with
    /// `session/events`, from the place of the newest event that it has.
    #[serde(rename = "events/missed")]
    EventsMissed {},
}

/// Params of `session/resolve`. Exactly one of the two is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionResolveParams {
    /// The conversation with the newest activity.
    #[serde(default)]
    pub last: bool,
    /// An id, the unique beginning of one, or a title.
    #[serde(default)]
    pub name: Option<String>,
    /// True refuses a title that several have: for what changes or removes the one that is meant.
    #[serde(default)]
    pub exact: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionResolveResponse {
    /// The conversation.
    pub session: ConversationSummary,
    /// What a person should know (several have this title; the newest was taken).
    pub note: Option<String>,
}

/// Params of `session/list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionListParams {
    /// Most rows; 0 = 50.
    #[serde(default)]
    pub limit: usize,
    /// Only those with activity before this time, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub before_ms: Option<i64>,
    /// Those that were put away too.
    #[serde(default)]
    pub archived: bool,
}

/// Params of `session/show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionShowParams {
    /// The conversation.
    pub conversation: ConversationId,
    /// Only rows after this place.
    #[serde(default)]
    pub after_seq: i64,
    /// Most rows, from the end; 0 = all of one page (10,000).
    #[serde(default)]
    pub limit: usize,
}

/// Params of `session/events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEventsParams {
    /// The conversation.
    pub conversation: ConversationId,
    /// The place (`at`) of the newest event of it that the client has; left out by one that has none, which gets a gap and
    /// with it the place to go on from.
    #[serde(default)]
    pub after: Cursor,
}

/// What a client that comes back is given. It listens before it asks, drops live events up to `until`, and knows a
/// question that it is asked again by its id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEventsResponse {
    /// Every event that it missed, or that it must read the transcript (`session/show`) instead.
    #[serde(flatten)]
    pub replay: Replay,
    /// Questions of the conversation that are open now, as they were asked. Every other one is not open any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<ServerMessage>,
}

/// A conversation with its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionShowResponse {
    /// The conversation.
    pub session: ConversationSummary,
    /// Rows that people see, oldest first.
    pub rows: Vec<Row>,
    /// What it used, by model.
    pub usage: Vec<UsageTotals>,
    /// What that cost, one for one; what is not known is said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<Cost>,
}

/// One row as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its place.
    pub seq: i64,
    /// Its id.
    pub id: String,
    /// Who speaks: `user`, `assistant`, `tool`.
    pub role: String,
    /// What it is: `normal`, `steer`, `partial`, `boundary`, `hidden`, `summary`.
    pub kind: String,
    /// The text.
    pub content: String,
    /// The calls of an assistant row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RowCall>,
    /// The tool of a tool row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// How the call of a tool row ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Id of the call that a tool row answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// When it was written, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

/// One call of an assistant row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCall {
    /// The call's id.
    pub call: String,
    /// The tool.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: String,
}

/// Params of `session/search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSearchParams {
    /// Words, `"phrases"`, `pre*`, `*part*`, AND, OR, NOT.
    pub query: String,
    /// Most rows; 0 = 20.
    #[serde(default)]
    pub limit: usize,
    /// Only conversations from this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Only what this one said (`user`, `assistant`, `tool`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Only this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// Only rows written at this time or later, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
    /// Only rows written before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// Also archived conversations.
    #[serde(default)]
    pub archived: bool,
    /// Also children that were given a task, and what else is hidden.
    #[serde(default)]
    pub children: bool,
    /// The best, the newest (when left out), or the oldest first.
    #[serde(default)]
    pub order: SearchOrder,
    /// With the rows before and after each.
    #[serde(default)]
    pub neighbours: bool,
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Params of `session/reindex`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReindexParams {
    /// True throws the index away first; false goes on where it is.
    #[serde(default)]
    pub begin: bool,
}

/// How the search index is after one part of the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReindexResponse {
    /// How it stands.
    pub status: IndexStatus,
    /// Nothing is left to do; otherwise ask again.
    pub is_done: bool,
}

/// Params of `session/flags`; what is left out stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFlagsParams {
    /// The conversation.
    pub conversation: ConversationId,
    /// Put away, or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
    /// Kept at the top and never pruned, or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
}

/// Params of `session/undo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUndoParams {
    /// The conversation.
    pub conversation: ConversationId,
    /// How many inputs of the user; 0 counts as 1.
    #[serde(default)]
    pub turns: usize,
}

/// What an undo did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUndoResponse {
    /// Rows that the model does not see any more.
    pub rows: u64,
    /// The input that was undone, to be sent again or changed.
    pub text: String,
}

/// Params of `session/compress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCompressParams {
    /// The conversation.
    pub conversation: ConversationId,
    /// What the notes in place of the earlier part are to be about (at most 4,096 bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// Params of `session/stop_child`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStopChildParams {
    /// The conversation that gave the task.
    pub conversation: ConversationId,
    /// The child's `delegation`, from `session/children`. One of another conversation is not found.
    pub delegation: DelegationId,
}

/// Params of `session/decide`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDecideParams {
    /// The input, from `session/unknown`.
    pub admission: AdmissionId,
    /// The start of it that was looked at, from `session/unknown`; another one is refused.
    pub generation: Generation,
    /// What became of it.
    pub decision: Decision,
}

/// Params of `session/branch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionBranchParams {
    /// The conversation that it comes from.
    pub conversation: ConversationId,
    /// The title of the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Params of `session/prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPruneParams {
    /// How long a conversation must be idle, in days; the rule's own time when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// Params of `session/export`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionExportParams {
    /// The conversation; all of the store without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// `next` of the piece before; none for the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ExportPlace>,
}

/// Where an export goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportPlace {
    /// The conversation that is being written, or that was written last.
    pub conversation: ConversationId,
    /// Where in it; none when it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ExportCursor>,
}

/// Lines of an export, each with its line end, and where it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionExportResponse {
    /// The lines.
    pub text: String,
    /// Where the next piece begins; none behind the last one.
    pub next: Option<ExportPlace>,
}

/// Params of `store/import`, `store/backup` and `store/restore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePathParams {
    /// The file (or, for an import, the home directory of the Python program), on the gateway's machine.
    pub path: String,
}

/// Params of `store/check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreCheckParams {
    /// True reads everything several times.
    #[serde(default)]
    pub full: bool,
}

/// Params of `store/vacuum`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreVacuumParams {
    /// True does it whether it is worth it or not.
    #[serde(default)]
    pub force: bool,
}

/// Params of `session/rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRenameParams {
    /// The conversation.
    pub conversation: ConversationId,
    /// The new title.
    pub title: String,
}

/// Names one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRefParams {
    /// The conversation.
    pub conversation: ConversationId,
}

/// Params of `prompt/submit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptSubmitParams {
    /// The conversation; none begins a new one.
    #[serde(default)]
    pub conversation: Option<ConversationId>,
    /// The client's own id of the request: the same one again is not run again. None makes a new one.
    #[serde(default)]
    pub request_id: Option<String>,
    /// The text; may be empty beside pictures.
    pub text: String,
    /// Pictures behind the text: PNG, JPEG, GIF or WebP files in base64 (`data`), 10 of 5 MiB together at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<InputImage>,
    /// `queue` (default), `steer` or `redirect`.
    #[serde(default)]
    pub intent: Option<Intent>,
    /// Where the user writes, in one word (`telegram`); the model is told when it changes. None says nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

/// What became of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptSubmitResponse {
    /// Its receipt. The input is durable.
    pub receipt: Receipt,
    /// True when the same request was accepted before.
    pub replayed: bool,
}

/// Params of `turn/wait`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnWaitParams {
    /// The input.
    pub admission: AdmissionId,
}

/// Params of `turn/interrupt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnInterruptParams {
    /// The conversation.
    pub conversation: ConversationId,
}

/// Params of `approval/respond`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRespondParams {
    /// The question's id.
    pub id: String,
    /// The answer.
    pub answer: ApprovalAnswer,
}

/// Params of `clarify/respond`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClarifyRespondParams {
    /// The question's id.
    pub id: String,
    /// One answer for each question, in order.
    pub answers: Vec<ClarifyAnswer>,
}

/// Which model is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStatusResponse {
    /// Provider id.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// Where requests go; empty for the practice model.
    pub base_url: String,
    /// Why this one: one sentence.
    pub reason: String,
    /// Where the key comes from, never the key.
    pub key_source: String,
    /// What stands in for it when it gives no answer, in this order (`fallback_providers`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<FallbackStatus>,
    /// Every provider that this program knows.
    pub providers: Vec<ProviderStatus>,
}

/// One model that stands in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// Provider id; empty with a problem.
    pub provider: String,
    /// Model name; empty with a problem.
    pub model: String,
    /// Where requests go; empty with a problem.
    pub base_url: String,
    /// Where the key comes from, never the key.
    pub key_source: String,
    /// Why it is not used, with its line in the file; none when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<RpcError>,
}

/// One provider that this program knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderStatus {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Variables that may hold its key.
    pub env_keys: Vec<String>,
    /// Whether a key was found, or a local server of this kind answers.
    pub ready: bool,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStatus {
    /// Its name.
    pub name: String,
    /// Its toolset.
    pub toolset: String,
    /// Its description's first sentence.
    pub description: String,
    /// Whether sessions have it as things are set up.
    pub enabled: bool,
}

/// One finding of the doctor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// `ok`, `note` or `failed`.
    pub state: CheckState,
    /// What was found, and what to do.
    pub detail: String,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// Works, and worth knowing.
    Note,
    /// Does not work.
    Failed,
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The stable code (`HM....`); `docs/errors/CODE.md` explains it.
    pub code: String,
    /// What happened and what to do.
    pub message: String,
    /// Whether it was the caller's use or configuration that is wrong.
    pub usage: bool,
}
