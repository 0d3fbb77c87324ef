//! What a bundle must be before it is written: the one check that every store uses.
//!
//! Parts go in, in their order; what is to be written comes out, with its place. Rounds are closed here: a call without
//! a result gets one that says so (I13, I14), never an invented one.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::bundle::{BundleAnswer, BundleCall, BundleConversation, BundlePart, BundleRow, BundleSession, RowCounts};
use crate::error::StoreError;
use crate::ids::{MessageId, SessionId, TurnId};
use crate::limits::{
    CONTENT_MAX_BYTES, IMPORT_ALIASES_MAX, IMPORT_PROMPTS_MAX, IMPORT_ROWS_MAX, IMPORT_SESSIONS_MAX, KEY_MAX_BYTES,
    ROUND_MAX_CALLS,
};
use crate::message::{ApiContent, MessageKind, NewMessage, Role, RowState, Sidecar, UsageTotals};
use crate::prompt::PromptSnapshot;
use crate::round::{JournalState, NewCall};
use crate::rules::{self, invalid, is_shown};

/// Something to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Placed {
    /// First of all.
    Conversation(Box<BundleConversation>),
    /// A prompt whose hash was checked.
    Prompt(PromptSnapshot),
    /// A session with its parent.
    Session { session: BundleSession, parent: Option<SessionId> },
    /// The place before the first row of a session. Comes before that row.
    SessionStarts { session: SessionId, first_seq: i64 },
    /// A row at its place, with its digest.
    Row(Box<PlacedRow>),
    /// What was used; `0` is the first.
    Usage { number: usize, totals: UsageTotals },
    /// Everything was seen.
    End(Totals),
}

/// A row at its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlacedRow {
    pub(crate) seq: i64,
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) state: RowState,
    pub(crate) copy_of: Option<MessageId>,
    pub(crate) new: NewMessage,
    pub(crate) digest: String,
    /// The calls of an assistant row: the first one's result stands at `seq + 1`. A copy has none of its own.
    pub(crate) calls: Vec<NewCall>,
    /// Whether the row, or what it is a copy of, has calls.
    pub(crate) has_calls: bool,
    pub(crate) answers: Option<BundleAnswer>,
    pub(crate) created_ms: i64,
}

/// What a whole bundle comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) rows: RowCounts,
    pub(crate) added: u64,
    /// Rows that people see.
    pub(crate) shown: i64,
    pub(crate) last_seq: i64,
    pub(crate) tip: SessionId,
    pub(crate) preview: Option<String>,
}

/// How far the parts have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Begin,
    Prompts,
    Sessions,
    Rows,
    Usage,
    End,
}

/// The round whose results are awaited.
#[derive(Debug)]
struct OpenRound {
    row: RoundRow,
    due: VecDeque<BundleCall>,
}

#[derive(Debug, Clone)]
struct RoundRow {
    session: SessionId,
    turn: TurnId,
    state: RowState,
    copy_of: Option<MessageId>,
    created_ms: i64,
}

/// Checks one bundle.
#[derive(Debug)]
pub(crate) struct Intake {
    stage: Stage,
    prompts: BTreeSet<String>,
    sessions: BTreeMap<SessionId, bool>,
    last_session: Option<SessionId>,
    conversation: Option<Box<BundleConversation>>,
    open: Option<OpenRound>,
    /// Rows with calls: a copy of one has calls too.
    rounds: HashSet<MessageId>,
    /// Rows that are no copies.
    firsts: HashSet<MessageId>,
    /// What the copies are of, as far as it has not come yet.
    awaited: BTreeSet<MessageId>,
    seq: i64,
    usage: usize,
    read: u64,
    rows: RowCounts,
    added: u64,
    shown: i64,
    preview: Option<String>,
}

impl Intake {
    /// A check whose first row stands behind the place `seq`.
    pub(crate) fn new(seq: i64) -> Self {
        Self {
            stage: Stage::Begin,
            prompts: BTreeSet::new(),
            sessions: BTreeMap::new(),
            last_session: None,
            conversation: None,
            open: None,
            rounds: HashSet::new(),
            firsts: HashSet::new(),
            awaited: BTreeSet::new(),
            seq,
            usage: 0,
            read: 0,
            rows: RowCounts::default(),
            added: 0,
            shown: 0,
            preview: None,
        }
    }

    /// Starts behind another place. Only before the first row.
    pub(crate) fn start_behind(&mut self, seq: i64) {
        self.seq = seq;
    }

    /// Takes the next part, and says what is to be written.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] or [`StoreError::Limit`]: the bundle cannot be imported.
    pub(crate) fn take(&mut self, part: BundlePart) -> Result<Vec<Placed>, StoreError> {
        let stage = match &part {
            BundlePart::Conversation(_) => Stage::Begin,
            BundlePart::Prompt(_) => Stage::Prompts,
            BundlePart::Session(_) => Stage::Sessions,
            BundlePart::Row(_) => Stage::Rows,
            BundlePart::Usage(_) => Stage::Usage,
            BundlePart::End(_) => Stage::End,
        };
        let is_first = stage == Stage::Begin;
        if is_first != self.conversation.is_none() || stage < self.stage || self.stage == Stage::End {
            return Err(invalid("the parts of the conversation are not in their order"));
        }
        self.stage = stage;
        match part {
            BundlePart::Conversation(conversation) => self.conversation(conversation),
            BundlePart::Prompt(prompt) => {
                let snapshot = PromptSnapshot::new(prompt.bytes.0);
                limit("the bytes of a prompt", snapshot.bytes().len(), CONTENT_MAX_BYTES)?;
                limit("the prompts of a conversation", self.prompts.len() + 1, IMPORT_PROMPTS_MAX)?;
                if *snapshot.hash() != prompt.hash {
                    return Err(invalid("a prompt does not have the hash that it is said to have"));
                }
                self.prompts.insert(prompt.hash.as_str().to_owned());
                Ok(vec![Placed::Prompt(snapshot)])
            }
            BundlePart::Session(session) => self.session(session),
            BundlePart::Row(row) => self.row(*row),
            BundlePart::Usage(totals) => {
                let mut out = self.close_round();
                let number = self.usage;
                self.usage += 1;
                out.push(Placed::Usage { number, totals });
                Ok(out)
            }
            BundlePart::End(end) => {
                let mut out = self.close_round();
                if end.rows != self.read {
                    return Err(invalid(format!("{} rows were announced, and {} came", end.rows, self.read)));
                }
                // An undo of a copy counts its first row: without one the conversation would come to less than nothing.
                if let Some(first) = self.awaited.first() {
                    return Err(invalid(format!("a row is a copy of {first}, which is no first row that came")));
                }
                let tip = self.last_session.clone().ok_or_else(|| invalid("the conversation has no session"))?;
                out.push(Placed::End(Totals {
                    rows: self.rows,
                    added: self.added,
                    shown: self.shown,
                    last_seq: self.seq,
                    tip,
                    preview: self.preview.clone(),
                }));
                Ok(out)
            }
        }
    }

    fn conversation(&mut self, mut new: Box<BundleConversation>) -> Result<Vec<Placed>, StoreError> {
        limit("the aliases of a conversation", new.aliases.len(), IMPORT_ALIASES_MAX)?;
        for text in new.aliases.iter().chain([&new.profile, &new.source]) {
            limit("a word of a conversation", text.len(), KEY_MAX_BYTES)?;
        }
        new.title = new.title.as_deref().and_then(rules::clean_title);
        if new.title.is_none() {
            new.title_source = None;
        } else {
            new.title_source = new.title_source.or(Some(crate::session::TitleSource::User));
        }
        self.preview = new.preview.as_deref().and_then(rules::preview);
        self.conversation = Some(new.clone());
        Ok(vec![Placed::Conversation(new)])
    }

    fn session(&mut self, session: BundleSession) -> Result<Vec<Placed>, StoreError> {
        limit("the sessions of a conversation", self.sessions.len() + 1, IMPORT_SESSIONS_MAX)?;
        for hash in [&session.prompt, &session.tools] {
            if !self.prompts.contains(hash.as_str()) {
                return Err(invalid(format!("session {} has a prompt that did not come with it", session.id)));
            }
        }
        let parent = self.last_session.replace(session.id.clone());
        let first = self.conversation.as_ref().map(|new| new.id.first_session());
        if parent.is_none() && first.as_ref() != Some(&session.id) {
            return Err(invalid("the first session of a conversation has the conversation's id"));
        }
        if self.sessions.insert(session.id.clone(), false).is_some() {
            return Err(invalid(format!("session {} comes twice", session.id)));
        }
        Ok(vec![Placed::Session { session, parent }])
    }

    fn row(&mut self, row: BundleRow) -> Result<Vec<Placed>, StoreError> {
        self.read += 1;
        limit("the rows of a conversation", usize::try_from(self.read).unwrap_or(usize::MAX), IMPORT_ROWS_MAX)?;
        check_sizes(&row)?;
        let mut out = Vec::new();
        if let Some(answer) = row.answers.clone().filter(|_| row.copy_of.is_none() && row.role == Role::Tool) {
            let open = self.open.as_mut().filter(|open| open.row.session == row.session);
            let at = open.as_ref().and_then(|open| open.due.iter().position(|call| call.id == answer.call));
            let (Some(at), Some(open)) = (at, open) else {
                return Err(invalid(format!("row {} answers no call of the round before it", row.id)));
            };
            if open.due[at].result != row.id {
                return Err(invalid(format!("row {} is not the result that its call names", row.id)));
            }
            // Those before it will get none any more: results stand in call order.
            let skipped: Vec<BundleCall> = open.due.drain(..at).collect();
            let round = open.row.clone();
            open.due.pop_front();
            if open.due.is_empty() {
                self.open = None;
            }
            out.extend(skipped.into_iter().map(|call| self.missing(&round, call)));
            out.push(self.placed(row, Vec::new()));
            return Ok(out);
        }
        if row.role == Role::Tool && row.copy_of.is_none() {
            return Err(invalid(format!("tool row {} answers no call", row.id)));
        }
        out.extend(self.close_round());
        match self.sessions.get_mut(&row.session) {
            None => return Err(invalid(format!("row {} is of a session that did not come", row.id))),
            Some(seen) if !*seen => {
                *seen = true;
                out.push(Placed::SessionStarts { session: row.session.clone(), first_seq: self.seq });
            }
            Some(_) => {}
        }
        let calls = row.calls.clone();
        if !calls.is_empty() {
            if row.role != Role::Assistant || row.copy_of.is_some() {
                return Err(invalid(format!("row {} may not have calls", row.id)));
            }
            let ids: BTreeSet<&str> = calls.iter().flat_map(|call| [call.id.as_str(), call.result.as_str()]).collect();
            if ids.len() != calls.len() * 2 {
                return Err(invalid(format!("row {} has the same call twice", row.id)));
            }
            self.open = Some(OpenRound {
                row: RoundRow {
                    session: row.session.clone(),
                    turn: row.turn.clone(),
                    state: row.state,
                    copy_of: None,
                    created_ms: row.created_at_ms,
                },
                due: calls.iter().cloned().collect(),
            });
        }
        let calls = calls.into_iter().map(new_call).collect();
        out.push(self.placed(row, calls));
        Ok(out)
    }

    /// Gives results to the calls of the open round that have none.
    fn close_round(&mut self) -> Vec<Placed> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let round = open.row;
        open.due.into_iter().map(|call| self.missing(&round, call)).collect()
    }

    /// The result of a call that has none.
    fn missing(&mut self, round: &RoundRow, call: BundleCall) -> Placed {
        let known = rules::resolved_result(call.open.unwrap_or(JournalState::Started));
        self.added += 1;
        let new = NewMessage::text(call.result, Role::Tool, known.content);
        let row = BundleRow {
            id: new.id.clone(),
            session: round.session.clone(),
            turn: round.turn.clone(),
            role: Role::Tool,
            kind: MessageKind::Normal,
            state: round.state,
            copy_of: round.copy_of.clone(),
            content: new.content,
            api_content: None,
            reasoning: None,
            sidecar: None,
            finish: None,
            calls: Vec::new(),
            answers: Some(BundleAnswer { call: call.id, outcome: known.outcome }),
            meta: known.meta,
            created_at_ms: round.created_ms,
        };
        self.placed(row, Vec::new())
    }

    fn placed(&mut self, row: BundleRow, calls: Vec<NewCall>) -> Placed {
        self.seq += 1;
        self.rows.add(row.state);
        match &row.copy_of {
            None => {
                self.awaited.remove(&row.id);
                self.firsts.insert(row.id.clone());
            }
            Some(first) if !self.firsts.contains(first) => drop(self.awaited.insert(first.clone())),
            Some(_) => {}
        }
        let is_visible = is_shown(row.kind) && row.state != RowState::Superseded && row.copy_of.is_none();
        self.shown += i64::from(is_visible);
        if is_visible && row.role == Role::User && self.preview.is_none() {
            self.preview = rules::preview(&row.content);
        }
        let new = NewMessage {
            id: row.id,
            role: row.role,
            kind: row.kind,
            content: row.content,
            api_content: row.api_content.map(|exact| ApiContent(exact.0)),
            reasoning: row.reasoning,
            sidecar: row.sidecar.map(|sidecar| Sidecar { issuer: sidecar.issuer, bytes: sidecar.bytes.0 }),
            finish: row.finish,
            meta: row.meta,
        };
        let digest = match (&row.answers, calls.is_empty()) {
            (Some(answer), _) => rules::result_digest(answer.outcome, &new.content),
            (None, false) => rules::round_digest(&new, &calls.iter().collect::<Vec<_>>()),
            (None, true) => new.digest(),
        };
        if !calls.is_empty() {
            self.rounds.insert(new.id.clone());
        }
        let has_calls = !calls.is_empty() || row.copy_of.as_ref().is_some_and(|first| self.rounds.contains(first));
        Placed::Row(Box::new(PlacedRow {
            has_calls,
            seq: self.seq,
            session: row.session,
            turn: row.turn,
            state: row.state,
            copy_of: row.copy_of,
            new,
            digest,
            calls,
            answers: row.answers,
            created_ms: row.created_at_ms,
        }))
    }
}

fn new_call(call: BundleCall) -> NewCall {
    NewCall {
        call: call.id,
        result: call.result,
        provider_id: call.provider_id,
        name: call.name,
        arguments: call.arguments,
        replay: call.replay,
        preset: None,
    }
}

fn check_sizes(row: &BundleRow) -> Result<(), StoreError> {
    limit("the content of a row", row.content.len(), CONTENT_MAX_BYTES)?;
    limit("the content of a row", row.api_content.as_ref().map_or(0, |exact| exact.0.len()), CONTENT_MAX_BYTES)?;
    limit("the reasoning of a row", row.reasoning.as_ref().map_or(0, String::len), CONTENT_MAX_BYTES)?;
    limit("the sidecar of a row", row.sidecar.as_ref().map_or(0, |one| one.bytes.0.len()), CONTENT_MAX_BYTES)?;
    limit("the number of calls of a round", row.calls.len(), ROUND_MAX_CALLS)?;
    for call in &row.calls {
        limit("the arguments of a call", call.arguments.len(), CONTENT_MAX_BYTES)?;
    }
    Ok(())
}

fn limit(what: &'static str, found: usize, most: usize) -> Result<(), StoreError> {
    if found > most {
        return Err(StoreError::Limit { what, limit: most as u64 });
    }
    Ok(())
}
