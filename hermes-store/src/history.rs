//! History and its changes: rotation, compaction, rewind, branch, and the lock that makes one compressor of many.
//!
//! A transcript only grows. What a model sees of it is a *view*: the active rows of the tip session. Only the methods of
//! [`crate::HistoryStore`] change a view, each in one transaction that holds a fence and that is refused when the view is
//! no longer the one that the change was made from ([`ViewMark`]).
//!
//! | fact | type | who may write it | bytes that it removes |
//! |---|---|---|---|
//! | a session was closed and goes on in a child with a smaller view | [`Rotation`] | the holder of the fence and of the [`CompressionLock`] | none: rows of the parent become `compacted` |
//! | a view was made smaller in its own session | [`Compaction`] | the same | none: its rows become `compacted` |
//! | the last turns were undone | [`Rewind`] | the holder of the fence, while no turn is open | none: rows become `superseded` |
//! | the same, and an input was accepted in their place | [`retry`](crate::HistoryStore::retry) | the same | the same |
//! | an undone change was taken back | [`ChangeStatus::Restored`] | the same, when nothing was written since | none: the rows are as they were |
//! | a conversation goes on in two ways | [`NewBranch`] | anybody: the new conversation has no owner yet | none: rows are copied |
//! | who compresses a session | [`CompressionLock`] | the holder of the fence | - |
//!
//! # What people and models see
//!
//! | row | a model sees it | people see and find it |
//! |---|---|---|
//! | [`RowState::Active`](crate::RowState::Active), no copy | yes, in the tip session | yes |
//! | [`RowState::Active`](crate::RowState::Active), a copy (`copy_of`) | yes, in the tip session | no: they see what it is a copy of |
//! | [`RowState::Compacted`](crate::RowState::Compacted), no copy | no: a summary or a copy stands for it | yes, in its old place |
//! | [`RowState::Compacted`](crate::RowState::Compacted), a copy | no | no |
//! | [`RowState::Superseded`](crate::RowState::Superseded) | no | no |
//!
//! A row that a compression carries on is written again, as a copy that remembers the *first* row of its line. Calls are
//! not copied with it: a copied round shows the calls of the journal, so that a call has one result whatever was
//! compressed. However many compressions there were, display and search meet each row once (S35).
//!
//! # What is left after a crash
//!
//! | last thing that was committed | what is stored | what the next owner finds, and may do |
//! |---|---|---|
//! | [`take_compression_lock`](crate::HistoryStore::take_compression_lock) | the lock, bound to the fence | the old view; a new lease makes the lock free |
//! | [`fail_compression`](crate::HistoryStore::fail_compression) | when to try again | the old view; [`LockOutcome::Cooling`] until then |
//! | rows that arrived while a summary was written | the rows | the old view with them; the commit carries each of them once (S33) |
//! | [`rotate`](crate::HistoryStore::rotate) | parent closed, child open with its prompt and rows, tip moved | the new view; repeating it with the same id changes nothing |
//! | [`compact`](crate::HistoryStore::compact) | old rows `compacted`, new ones written, prompt changed | the same |
//! | [`rewind`](crate::HistoryStore::rewind) | rows `superseded`, the change | the shorter view; [`restore`](crate::HistoryStore::restore) brings them back |
//! | [`retry`](crate::HistoryStore::retry) | the same, and the input in its queue | the input, which is run like any other |
//! | [`branch`](crate::HistoryStore::branch) | the new conversation, whole | it; repeating it changes nothing |
//!
//! Between any two of these nothing is half done: no session is closed without its child, no summary stands without its
//! tail, no title or prompt is left behind (S32).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::admission::NewAdmission;
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{CallId, ChangeId, ConversationId, MessageId, SessionId, Token, TurnId};
use crate::machine::machine;
use crate::message::{ApiContent, MessageKind, NewMessage, Role, Sidecar, StoredMessage, View};
use crate::round::{JournalState, words};
use crate::rules::{conflict, invalid};
use crate::session::{NewConversation, NewSession};

/// The view that a change was made from: compared with the present one in the transaction of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMark {
    /// The tip session.
    pub session: SessionId,
    /// The place of the last row that was seen; 0 for an empty view.
    pub last_seq: i64,
    /// How many rows were seen up to there.
    pub rows: u64,
}

impl ViewMark {
    /// The mark of rows that were read with [`View::Model`], all of them.
    #[must_use]
    pub fn of(session: SessionId, rows: &[StoredMessage]) -> Self {
        Self { session, last_seq: rows.last().map_or(0, |row| row.seq), rows: rows.len() as u64 }
    }
}

/// One row of a view that is to be.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a view has one new row, and lives for one call")]
pub enum ViewRow {
    /// A row that was not there before: the summary, or a request said once more.
    New(NewMessage),
    /// A row of the present view, as it is.
    Carry(MessageId),
    /// A row of the present view with a shorter text (an old tool result). People still see the whole one.
    Shorten {
        /// The row.
        row: MessageId,
        /// What the model sees of it from now on.
        content: String,
    },
}

/// Closes the tip session and opens a child with a smaller view.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    /// The change's id, minted by the writer: the same one again changes nothing.
    pub id: ChangeId,
    /// The running turn; without one, an id under which the new rows are stored.
    pub turn: TurnId,
    /// What the summary was made from.
    pub mark: ViewMark,
    /// The child; its parent is the tip.
    pub child: NewSession,
    /// Its first rows, in order; at least one is a [`MessageKind::Summary`]. Rows that arrived after the mark are
    /// carried behind them by the store.
    pub rows: Vec<ViewRow>,
}

/// Makes the view of the tip session smaller, in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Compaction {
    /// The change's id, minted by the writer: the same one again changes nothing.
    pub id: ChangeId,
    /// The running turn; without one, an id under which the new rows are stored.
    pub turn: TurnId,
    /// What the summary was made from.
    pub mark: ViewMark,
    /// The prompt and tools from now on, when they were rebuilt; its id is that of the tip.
    pub session: Option<NewSession>,
    /// As [`Rotation::rows`].
    pub rows: Vec<ViewRow>,
}

/// Undoes the end of the view, from one row on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewind {
    /// The change's id, minted by the writer: the same one again changes nothing.
    pub id: ChangeId,
    /// The view as it was seen; the present one must be exactly this.
    pub mark: ViewMark,
    /// The first row that is undone; see [`nth_last_user_turn`].
    pub from: MessageId,
}

/// What kind of change it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// [`Rotation`].
    Rotation,
    /// [`Compaction`].
    Compaction,
    /// [`Rewind`].
    Rewind,
}

words!(ChangeKind { Rotation => "rotation", Compaction => "compaction", Rewind => "rewind" });

/// Whether a change holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStatus {
    /// It holds.
    Applied,
    /// It was taken back.
    Restored,
}

/// What can happen to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeEvent {
    /// It is taken back.
    Restore,
}

machine!(
    CHANGE_MACHINE, "a change of history",
    ChangeStatus { Applied => "applied", Restored => "restored" },
    ChangeEvent { Restore => "restore" },
    [(Applied, Restore, Restored)],
);

/// A change as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryChange {
    /// Its id.
    pub id: ChangeId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// What it did.
    pub kind: ChangeKind,
    /// Whether it holds.
    pub status: ChangeStatus,
    /// The tip session after it.
    pub session: SessionId,
    /// Rows that left the model's view.
    pub rows: u64,
    /// The last place of the conversation when it was done.
    pub last_seq: i64,
    /// When it was done, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

/// Which rows a branch begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBranch {
    /// The conversation to be created.
    pub conversation: NewConversation,
    /// Where it comes from.
    pub from: ConversationId,
    /// [`View::Model`]: what the next request would have been built from. [`View::Display`]: what people see, without
    /// summaries, since what they stand for is copied itself.
    pub view: View,
    /// The last row that is copied; the whole view without one.
    pub up_to: Option<MessageId>,
}

/// Where a conversation was branched off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchOrigin {
    /// The conversation that it comes from.
    pub conversation: ConversationId,
    /// The place there of the last row that was copied; 0 when there was none.
    pub seq: i64,
}

/// Whether a lock of a session is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockState {
    /// Nobody compresses.
    Free,
    /// Somebody does.
    Held,
    /// The session was rotated and is compressed no more.
    Spent,
}

/// What can happen to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockEvent {
    /// A compressor takes it; one that expired, or whose lease is over, counts as free.
    Take,
    /// Its holder lengthens it.
    Renew,
    /// Its holder gives it back, or says that it failed.
    Release,
    /// It expired, or the lease under it is over.
    Lapse,
    /// Its holder commits a compaction.
    Compact,
    /// Its holder commits a rotation.
    Rotate,
}

machine!(
    LOCK_MACHINE, "a compression lock",
    LockState { Free => "free", Held => "held", Spent => "spent" },
    LockEvent {
        Take => "take", Renew => "renew", Release => "release", Lapse => "lapse", Compact => "compact",
        Rotate => "rotate",
    },
    [
        (Free, Take, Held), (Held, Renew, Held), (Held, Release, Free), (Held, Lapse, Free), (Held, Compact, Free),
        (Held, Rotate, Spent),
    ],
);

/// Proof of a lock on the compression of one session. Only a store makes one. Like a [`Fence`] it proves that the lock
/// *was* taken; whether it is still held is checked by the transaction that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionLock {
    session: SessionId,
    holder: String,
    token: Token,
    is_after_wait: bool,
}

impl CompressionLock {
    /// A lock on a session whose last failure is waited out until `cooldown_ms` (0: none failed).
    pub(crate) fn new(session: SessionId, holder: String, token: Token, cooldown_ms: i64) -> Self {
        Self { session, holder, token, is_after_wait: cooldown_ms > 0 }
    }

    /// Whether a compression of this session has failed before, and its wait is over or a person does not wait.
    #[must_use]
    pub fn is_after_wait(&self) -> bool {
        self.is_after_wait
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Who took it.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Its token: one above that of every earlier lock on the session.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }
}

/// A wish to compress a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeLock {
    /// The tip session.
    pub session: SessionId,
    /// Who wants it, new for every attempt (at most [`crate::limits::KEY_MAX_BYTES`]): the same holder again gets the
    /// same lock.
    pub holder: String,
    /// Life of the lock unless renewed, in milliseconds ([`crate::limits::COMPRESSION_LOCK_TTL_MS`]).
    pub ttl_ms: u64,
    /// True for a person's own command: a cooldown is not waited for.
    pub force: bool,
}

/// What came of a wish to compress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockOutcome {
    /// The lock is held.
    Taken(CompressionLock),
    /// Somebody else compresses.
    Held {
        /// Who.
        holder: String,
        /// When the lock ends unless renewed, in milliseconds since the Unix epoch.
        expires_at_ms: i64,
    },
    /// A compression failed not long ago.
    Cooling {
        /// When one may be tried again, in milliseconds since the Unix epoch.
        until_ms: i64,
        /// Why the last one failed.
        error: Option<String>,
    },
}

/// A lock as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockRow {
    pub(crate) state: LockState,
    pub(crate) holder: String,
    pub(crate) token: Token,
    /// The fencing token of the lease that it was taken under.
    pub(crate) fence: Token,
    pub(crate) expires_ms: i64,
    pub(crate) ttl_ms: i64,
}

impl LockRow {
    /// The lock as it stands now: one whose time or whose lease is over is free. A clock that went back lengthens none.
    pub(crate) fn seen(mut self, fence: Token, now: i64) -> Self {
        self.expires_ms = self.expires_ms.min(now.saturating_add(self.ttl_ms));
        if self.state == LockState::Held && (self.fence != fence || self.expires_ms <= now) {
            self.state = LockState::Free;
        }
        self
    }

    /// Whether this is the lock that `lock` proves, taken under this fence. One that has expired and that nobody took
    /// still holds, as a lease does (S22).
    pub(crate) fn check(&self, fence: &Fence, lock: &CompressionLock) -> Result<(), StoreError> {
        let is_ours = self.state == LockState::Held
            && self.token == lock.token
            && self.holder == lock.holder
            && self.fence == fence.token();
        match is_ours {
            true => Ok(()),
            false => Err(lock_lost()),
        }
    }
}

pub(crate) fn lock_lost() -> StoreError {
    StoreError::LockLost
}

pub(crate) fn stale(what: impl Into<String>) -> StoreError {
    StoreError::Stale { what: what.into() }
}

/// The first row of the `n`-th last user turn of a view (1 is the last one): where an undo, and a retry, begins. Steers
/// and nudges belong to the turn that they reached.
#[must_use]
pub fn nth_last_user_turn(rows: &[StoredMessage], n: usize) -> Option<&StoredMessage> {
    let begins = |row: &&StoredMessage| row.role == Role::User && row.kind == MessageKind::Normal;
    rows.iter().rev().filter(begins).nth(n.checked_sub(1)?)
}

// ---------------------------------------------------------------------------------------------------------------------
// Rules that every store shares.

/// What the rules need to know of a row of a view; never its text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ViewItem {
    pub(crate) id: MessageId,
    pub(crate) seq: i64,
    pub(crate) role: Role,
    pub(crate) kind: MessageKind,
    pub(crate) copy_of: Option<MessageId>,
    pub(crate) turn: TurnId,
    /// The calls of an assistant row, in order.
    pub(crate) calls: Vec<(CallId, JournalState)>,
    /// The call that a tool row answers.
    pub(crate) answers: Option<CallId>,
    /// Size of what a model sees of it.
    pub(crate) bytes: u64,
}

impl ViewItem {
    /// The first row of its line of copies.
    pub(crate) fn root(&self) -> &MessageId {
        self.copy_of.as_ref().unwrap_or(&self.id)
    }
}

/// One row to be written for a view.
#[derive(Debug, PartialEq)]
pub(crate) enum PlannedRow<'a> {
    New(&'a NewMessage),
    Copy {
        /// Its own id.
        id: MessageId,
        of: &'a ViewItem,
        content: Option<&'a str>,
    },
}

/// Size of what a model sees of a row, in bytes.
pub(crate) fn row_bytes(
    content: &str,
    api_content: Option<&ApiContent>,
    reasoning: Option<&str>,
    sidecar: Option<&Sidecar>,
) -> u64 {
    let api = api_content.map_or(content.len(), |api| api.0.len());
    (api + reasoning.map_or(0, str::len) + sidecar.map_or(0, |sidecar| sidecar.bytes.len())) as u64
}

/// Whether `view` begins with what `mark` has seen; `exact` also that nothing came after it.
pub(crate) fn check_mark(tip: &SessionId, view: &[ViewItem], mark: &ViewMark, exact: bool) -> Result<(), StoreError> {
    if *tip != mark.session {
        return Err(stale(format!("the conversation goes on in session {tip}")));
    }
    let seen = view.iter().filter(|item| item.seq <= mark.last_seq).count();
    let last = seen.checked_sub(1).and_then(|at| view.get(at)).map_or(0, |item| item.seq);
    let is_same = seen as u64 == mark.rows && last == mark.last_seq && (!exact || seen == view.len());
    match is_same {
        true => Ok(()),
        false => Err(stale("rows were written or taken away")),
    }
}

/// The rows of a new view, in order, or why it may not be (I13, I20).
pub(crate) fn plan_view<'a>(
    change: &ChangeId,
    tip: &SessionId,
    view: &'a [ViewItem],
    mark: &ViewMark,
    rows: &'a [ViewRow],
) -> Result<Vec<PlannedRow<'a>>, StoreError> {
    check_mark(tip, view, mark, false)?;
    let seen = usize::try_from(mark.rows).unwrap_or(usize::MAX).min(view.len());
    let (old, late) = view.split_at(seen);
    let mut planned = Vec::with_capacity(rows.len() + late.len());
    let mut next = 0;
    for row in rows {
        let (of, content) = match row {
            ViewRow::New(new) => {
                planned.push(PlannedRow::New(new));
                continue;
            }
            ViewRow::Carry(of) => (of, None),
            ViewRow::Shorten { row, content } => (row, Some(content.as_str())),
        };
        let at = old.iter().skip(next).position(|item| item.id == *of);
        let at = at.ok_or_else(|| invalid(format!("row {of} is not in the view, or not in its order")))?;
        next += at + 1;
        planned.push(copy(change, &old[next - 1], content)?);
    }
    check_new_rows(rows)?;
    let bytes: u64 = planned.iter().map(planned_bytes).sum();
    if bytes >= old.iter().map(|item| item.bytes).sum::<u64>() {
        return Err(invalid("the new view is not smaller than the old one"));
    }
    // S33: what arrived after the summary was begun is carried by the store, once.
    for item in late {
        planned.push(copy(change, item, None)?);
    }
    check_pairs(planned.iter().map(|row| match row {
        PlannedRow::New(_) => (None, &[][..], None),
        PlannedRow::Copy { of, .. } => (Some(of.root()), of.calls.as_slice(), of.answers.as_ref()),
    }))?;
    Ok(planned)
}

fn check_new_rows(rows: &[ViewRow]) -> Result<(), StoreError> {
    let mut seen = std::collections::BTreeSet::new();
    let mut has_summary = false;
    for row in rows {
        if let ViewRow::New(new) = row {
            has_summary |= new.kind == MessageKind::Summary;
            if !seen.insert(&new.id) {
                return Err(conflict("message", &new.id));
            }
        }
    }
    match has_summary {
        true => Ok(()),
        false => Err(invalid("a compression needs a summary row")),
    }
}

fn copy<'a>(change: &ChangeId, of: &'a ViewItem, content: Option<&'a str>) -> Result<PlannedRow<'a>, StoreError> {
    let id = minted("copy", &[change.as_str(), of.root().as_str()]);
    let id = MessageId::parse(&id).map_err(|bad| invalid(format!("no id for a copy: {bad}")))?;
    Ok(PlannedRow::Copy { id, of, content })
}

fn planned_bytes(row: &PlannedRow<'_>) -> u64 {
    match row {
        PlannedRow::New(new) => {
            row_bytes(&new.content, new.api_content.as_ref(), new.reasoning.as_deref(), new.sidecar.as_ref())
        }
        PlannedRow::Copy { of, content: None, .. } => of.bytes,
        PlannedRow::Copy { content: Some(content), .. } => content.len() as u64,
    }
}

/// Every call has its result, settled, right behind its round and in call order; no result is without its round (I13).
pub(crate) fn check_pairs<'a>(
    rows: impl Iterator<Item = (Option<&'a MessageId>, &'a [(CallId, JournalState)], Option<&'a CallId>)>,
) -> Result<(), StoreError> {
    let mut due = std::collections::VecDeque::new();
    for (id, calls, answers) in rows {
        if let Some(answers) = answers {
            if due.pop_front() != Some(answers) {
                return Err(invalid(format!("the result of call {answers} is not where its round ends")));
            }
            continue;
        }
        if let Some(call) = due.front() {
            return Err(invalid(format!("call {call} has no result in the new view")));
        }
        if let Some((call, _)) = calls.iter().find(|(_, state)| *state != JournalState::Settled) {
            let id = id.map_or("?", MessageId::as_str);
            return Err(invalid(format!("call {call} of row {id} is open; it must be settled first")));
        }
        due.extend(calls.iter().map(|(call, _)| call));
    }
    match due.front() {
        None => Ok(()),
        Some(call) => Err(invalid(format!("call {call} has no result in the new view"))),
    }
}

/// The rows that a rewind takes away, or why it may not be.
pub(crate) fn plan_rewind<'a>(
    tip: &SessionId,
    view: &'a [ViewItem],
    rewind: &Rewind,
) -> Result<&'a [ViewItem], StoreError> {
    check_mark(tip, view, &rewind.mark, true)?;
    let at = view.iter().position(|item| item.id == rewind.from);
    let at = at.ok_or_else(|| invalid(format!("row {} is not in the view", rewind.from)))?;
    let (_, gone) = view.split_at(at);
    if gone.first().is_some_and(|item| item.role == Role::Tool) {
        return Err(invalid("a round is undone with its results; name its first row"));
    }
    if gone.iter().any(|item| item.kind == MessageKind::Summary) {
        return Err(invalid("what was compressed cannot be undone; make a branch from an earlier row"));
    }
    Ok(gone)
}

/// Refuses to let go of a row that an input which waits has written: it would be run without being seen.
pub(crate) fn check_inputs_stay<'a>(
    waiting: &std::collections::BTreeSet<String>,
    gone: impl Iterator<Item = &'a ViewItem>,
) -> Result<(), StoreError> {
    for item in gone {
        if waiting.contains(item.root().as_str()) {
            return Err(invalid(format!("input {} waits to be run; run or cancel it first", item.root())));
        }
    }
    Ok(())
}

/// The rows of `view` that a plan leaves out.
pub(crate) fn left_out<'a>(view: &'a [ViewItem], plan: &[PlannedRow<'_>]) -> Vec<&'a ViewItem> {
    let kept: std::collections::BTreeSet<&MessageId> = plan
        .iter()
        .filter_map(|row| match row {
            PlannedRow::New(_) => None,
            PlannedRow::Copy { of, .. } => Some(&of.id),
        })
        .collect();
    view.iter().filter(|item| !kept.contains(&item.id)).collect()
}

/// An id that follows from other ids: `word-` and 40 hex digits.
pub(crate) fn minted(word: &str, parts: &[&str]) -> String {
    let hash = digest_of(parts.iter().map(|part| part.as_bytes()));
    format!("{word}-{}", &hash[..40])
}

fn digest_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    crate::prompt::PromptHash::of(&hash.finalize()).as_str().to_owned()
}

/// Digest of everything that a change was asked to do: the same id with another digest is a conflict (I17).
pub(crate) fn change_digest(
    kind: ChangeKind,
    mark: &ViewMark,
    session: Option<&NewSession>,
    rows: &[ViewRow],
    from: Option<&MessageId>,
) -> String {
    let mut parts: Vec<String> = vec![
        kind.as_str().to_owned(),
        mark.session.as_str().to_owned(),
        mark.last_seq.to_string(),
        mark.rows.to_string(),
    ];
    if let Some(new) = session {
        parts.extend([
            new.id.as_str().to_owned(),
            new.parent.as_ref().map(|parent| parent.as_str().to_owned()).unwrap_or_default(),
            new.provider.clone(),
            new.model.clone(),
            new.cwd.clone().unwrap_or_default(),
            new.prompt.hash().as_str().to_owned(),
            new.tools.hash().as_str().to_owned(),
        ]);
    }
    for row in rows {
        match row {
            ViewRow::New(new) => parts.extend(["new".to_owned(), new.id.as_str().to_owned(), new.digest()]),
            ViewRow::Carry(row) => parts.extend(["carry".to_owned(), row.as_str().to_owned()]),
            ViewRow::Shorten { row, content } => {
                parts.extend(["shorten".to_owned(), row.as_str().to_owned(), content.clone()]);
            }
        }
    }
    parts.extend(from.map(|row| row.as_str().to_owned()));
    digest_of(parts.iter().map(String::as_bytes))
}

/// Digest of what a rewind was asked for; `again` is the input that a retry puts in its place.
pub(crate) fn rewind_digest(rewind: &Rewind, again: Option<&NewAdmission>) -> String {
    let undo = change_digest(ChangeKind::Rewind, &rewind.mark, None, &[], Some(&rewind.from));
    match again {
        None => undo,
        Some(again) => {
            let parts = [&undo, again.id.as_str(), &again.principal, &again.request_id, &again.payload];
            digest_of(parts.into_iter().map(str::as_bytes))
        }
    }
}

/// Refuses a retry whose input is for another conversation, or could never be accepted.
pub(crate) fn check_again(conversation: &ConversationId, again: &NewAdmission) -> Result<(), StoreError> {
    if again.conversation != *conversation {
        return Err(invalid("the input of a retry belongs to the conversation that is retried"));
    }
    crate::rules::check_admission(again)
}

/// Digest of what a branch was asked for.
pub(crate) fn branch_digest(branch: &NewBranch) -> String {
    let view = match branch.view {
        View::Model => "model",
        View::Display => "display",
    };
    let row = branch.up_to.as_ref().map_or("", MessageId::as_str);
    digest_of([branch.from.as_str(), view, row].into_iter().map(str::as_bytes))
}

/// The rows of a view that a branch copies, or why it may not be.
pub(crate) fn plan_branch<'a>(view: &'a [ViewItem], branch: &NewBranch) -> Result<Vec<&'a ViewItem>, StoreError> {
    let end = match &branch.up_to {
        None => view.len(),
        Some(row) => {
            let at = view.iter().position(|item| item.id == *row);
            at.ok_or_else(|| crate::rules::not_found("row", row))? + 1
        }
    };
    let is_copied = |item: &&ViewItem| branch.view == View::Model || item.kind != MessageKind::Summary;
    let rows: Vec<_> = view[..end].iter().filter(is_copied).collect();
    if rows.len() > crate::limits::BRANCH_MAX_ROWS {
        return Err(StoreError::Limit {
            what: "the number of rows of a branch",
            limit: crate::limits::BRANCH_MAX_ROWS as u64,
        });
    }
    check_pairs(rows.iter().map(|item| (Some(&item.id), item.calls.as_slice(), item.answers.as_ref())))?;
    Ok(rows)
}

/// Sessions of one conversation from the first to the tip. Those that hang on none (none should) come last.
pub(crate) fn in_line(mut sessions: Vec<crate::session::SessionRecord>) -> Vec<crate::session::SessionRecord> {
    sessions.sort_by(|a, b| (a.started_at_ms, &a.id).cmp(&(b.started_at_ms, &b.id)));
    let mut line: Vec<crate::session::SessionRecord> = Vec::with_capacity(sessions.len());
    loop {
        let last = line.last().map(|session| session.id.clone());
        match sessions.iter().position(|session| session.parent == last) {
            Some(at) => line.push(sessions.remove(at)),
            None => break,
        }
    }
    line.extend(sessions);
    line
}

/// Why a session is closed by a rotation.
pub(crate) const COMPRESSION: &str = "compression";

/// Checks what a change brings, before anything is read.
pub(crate) fn check_view_rows(rows: &[ViewRow]) -> Result<(), StoreError> {
    for row in rows {
        match row {
            ViewRow::New(new) => crate::rules::check_rows(std::slice::from_ref(new))?,
            ViewRow::Shorten { content, .. } if content.len() > crate::limits::CONTENT_MAX_BYTES => {
                return Err(StoreError::Limit {
                    what: "the content of a row",
                    limit: crate::limits::CONTENT_MAX_BYTES as u64,
                });
            }
            ViewRow::Shorten { .. } | ViewRow::Carry(_) => {}
        }
    }
    Ok(())
}

/// Checks the name of a compressor.
pub(crate) fn check_holder(holder: &str) -> Result<(), StoreError> {
    match holder.len() > crate::limits::KEY_MAX_BYTES {
        true => Err(StoreError::Limit {
            what: "the holder of a compression lock",
            limit: crate::limits::KEY_MAX_BYTES as u64,
        }),
        false => Ok(()),
    }
}

/// The reason of a failed compression as it is kept.
pub(crate) fn cut_error(error: &str) -> String {
    error.chars().filter(|c| !c.is_control()).take(crate::limits::COMPRESSION_ERROR_MAX_CHARS).collect()
}

/// The ids of what a branch copies. They follow from the branch and from the copied ids, so that a repetition makes the
/// same ones.
pub(crate) struct BranchIds<'a>(&'a ConversationId);

impl<'a> BranchIds<'a> {
    pub(crate) fn new(branch: &'a ConversationId) -> Self {
        Self(branch)
    }

    fn text(&self, word: &str, id: &str) -> String {
        minted(word, &[self.0.as_str(), id])
    }

    pub(crate) fn message(&self, id: &MessageId) -> Result<MessageId, StoreError> {
        MessageId::parse(&self.text("row", id.as_str())).map_err(|bad| invalid(bad.to_string()))
    }

    pub(crate) fn call(&self, id: &CallId) -> Result<CallId, StoreError> {
        CallId::parse(&self.text("call", id.as_str())).map_err(|bad| invalid(bad.to_string()))
    }

    pub(crate) fn turn(&self, id: &TurnId) -> Result<TurnId, StoreError> {
        TurnId::parse(&self.text("turn", id.as_str())).map_err(|bad| invalid(bad.to_string()))
    }
}
