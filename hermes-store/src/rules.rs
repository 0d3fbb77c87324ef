//! Rules that every store shares, as pure functions: what is legal, what is cleaned, and who counts as dead.

use sha2::{Digest, Sha256};

use crate::admission::NewAdmission;
use crate::error::StoreError;
use crate::fence::ClaimPolicy;
use crate::ids::{ConversationId, MessageId, OwnerId, TurnId};
use crate::limits::{
    CONTENT_MAX_BYTES, HEARTBEAT_DEAD_MS, KEY_MAX_BYTES, PAYLOAD_MAX_BYTES, PREVIEW_CHARS, ROUND_MAX_CALLS,
    TITLE_MAX_CHARS,
};
use crate::message::{MessageKind, NewMessage, Role};
use crate::owner::{LivenessProbe, OwnerInfo};
use crate::round::{CallOutcome, CallResult, JournalState, NewCall, Planned, Round};
use crate::turn::TurnEnd;

/// The end reason of a turn whose admission was put back.
pub(crate) const REQUEUED: &str = "requeued";

/// Why a child is not opened beside the rules of a compression.
pub(crate) const ONLY_ROTATE: &str = "the conversation has a session; it goes on in a child by a rotation";

/// A limit in milliseconds as the signed number that times are.
pub(crate) fn ms(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(crate) fn not_found(kind: &str, id: impl std::fmt::Display) -> StoreError {
    StoreError::NotFound { what: format!("{kind} {id}") }
}

pub(crate) fn invalid(detail: impl Into<String>) -> StoreError {
    StoreError::Invalid { detail: detail.into() }
}

pub(crate) fn conflict(kind: &str, id: impl std::fmt::Display) -> StoreError {
    StoreError::Conflict { what: format!("{kind} {id}") }
}

pub(crate) fn not_running(turn: &TurnId) -> StoreError {
    invalid(format!("turn {turn} is not the running turn of its conversation; claim it again"))
}

pub(crate) fn limit(what: &'static str, size: usize, most: usize) -> Result<(), StoreError> {
    if size > most {
        return Err(StoreError::Limit { what, limit: most as u64 });
    }
    Ok(())
}

/// A text for people, cut at the last character that fits.
pub(crate) fn cut(text: &str, most_bytes: usize) -> String {
    text[..text.floor_char_boundary(most_bytes)].to_owned()
}

/// Digest of several texts, which no other list of texts has.
pub(crate) fn digest_of(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    crate::prompt::PromptHash::of(&hash.finalize()).as_str().to_owned()
}

/// Checks an input before anything is written.
pub(crate) fn check_admission(input: &NewAdmission) -> Result<(), StoreError> {
    limit("the payload of an input", input.payload.len(), PAYLOAD_MAX_BYTES)?;
    limit("the name of a sender", input.principal.len(), KEY_MAX_BYTES)?;
    limit("a request id", input.request_id.len(), KEY_MAX_BYTES)
}

/// Checks rows to be appended.
pub(crate) fn check_rows(rows: &[NewMessage]) -> Result<(), StoreError> {
    for row in rows {
        limit("the content of a row", row.content.len(), CONTENT_MAX_BYTES)?;
        if row.role == Role::Tool {
            return Err(invalid("a tool row is written by settling its call, not by appending it"));
        }
    }
    Ok(())
}

/// Checks a planned round.
pub(crate) fn check_round(round: &Round<Planned>) -> Result<(), StoreError> {
    if round.assistant().role != Role::Assistant {
        return Err(invalid("the row of a round must be an assistant row"));
    }
    if round.calls().is_empty() {
        return Err(invalid("a round needs at least one call; append a row without calls instead"));
    }
    limit("the number of calls of a round", round.calls().len(), ROUND_MAX_CALLS)?;
    limit("the content of a row", round.assistant().content.len(), CONTENT_MAX_BYTES)?;
    for (index, call) in round.calls().iter().enumerate() {
        limit("the arguments of a call", call.new.arguments.len(), CONTENT_MAX_BYTES)?;
        if let Some(preset) = &call.new.preset {
            limit("the result of a call", preset.content.len(), CONTENT_MAX_BYTES)?;
        }
        let earlier = &round.calls()[..index];
        if earlier.iter().any(|e| e.new.call == call.new.call || e.new.result == call.new.result)
            || call.new.result == round.assistant().id
        {
            return Err(conflict("call", &call.new.call));
        }
    }
    Ok(())
}

/// Checks the result of a call.
pub(crate) fn check_result(result: &CallResult) -> Result<(), StoreError> {
    limit("the result of a call", result.content.len(), CONTENT_MAX_BYTES)
}

/// Digest of a round: its row and all that its calls were recorded with.
pub(crate) fn round_digest(assistant: &NewMessage, calls: &[&NewCall]) -> String {
    let mut hash = Sha256::new();
    let mut field = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    field(&assistant.digest());
    for call in calls {
        for text in [
            call.call.as_str(),
            call.result.as_str(),
            &call.provider_id,
            &call.name,
            &call.arguments,
            call.replay.as_str(),
        ] {
            field(text);
        }
    }
    crate::prompt::PromptHash::of(&hash.finalize()).as_str().to_owned()
}

/// Digest of a result: a repeated settle must bring the same.
pub(crate) fn result_digest(outcome: CallOutcome, content: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(outcome.as_str().as_bytes());
    hash.update([0]);
    hash.update(content.as_bytes());
    crate::prompt::PromptHash::of(&hash.finalize()).as_str().to_owned()
}

/// Whether people see a row of this kind.
pub(crate) fn is_shown(kind: MessageKind) -> bool {
    kind != MessageKind::Hidden
}

/// A title without control, zero-width and direction marks, white space joined, cut; nothing when nothing is left.
pub(crate) fn clean_title(raw: &str) -> Option<String> {
    let mut out = String::new();
    let (mut count, mut gap) = (0_usize, false);
    for c in raw.chars() {
        if c.is_whitespace() {
            gap = count > 0;
            continue;
        }
        if c.is_control() || is_mark(c) {
            continue;
        }
        let wanted = 1 + usize::from(gap);
        if count + wanted > TITLE_MAX_CHARS {
            break;
        }
        if gap {
            out.push(' ');
        }
        out.push(c);
        count += wanted;
        gap = false;
    }
    (!out.is_empty()).then_some(out)
}

fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The beginning of the first input, on one line.
pub(crate) fn preview(content: &str) -> Option<String> {
    // Only the head is looked at: the content may be megabytes on one line.
    let shown = |c: &char| c.is_whitespace() || !c.is_control();
    let head: String = content.chars().take(PREVIEW_CHARS * 8).filter(shown).collect();
    let joined = head.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = joined.chars().take(PREVIEW_CHARS).collect();
    // The preview of a preview is the same: an import makes it again.
    let cut = cut.trim_end();
    (!cut.is_empty()).then(|| cut.to_owned())
}

/// The preview that these rows give to a conversation that has none.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn preview_of<'a>(rows: impl Iterator<Item = &'a NewMessage>) -> Option<String> {
    rows.filter(|row| row.role == Role::User && is_shown(row.kind)).find_map(|row| preview(&row.content))
}

/// What a store knows of an owner.
#[derive(Debug, Clone)]
pub(crate) struct OwnerRow {
    pub(crate) info: OwnerInfo,
    pub(crate) beat_ms: i64,
    pub(crate) retired: bool,
}

impl OwnerRow {
    /// Retired or silent: known without a probe. A beat from the future (the clock went back) counts as now.
    pub(crate) fn is_gone_by_time(&self, now: i64) -> bool {
        self.retired || now.saturating_sub(self.beat_ms) > ms(HEARTBEAT_DEAD_MS)
    }
}

/// Whether an owner is gone. One that never registered is not known to be.
pub(crate) fn is_gone(row: Option<&OwnerRow>, now: i64, probe: &dyn LivenessProbe) -> bool {
    row.is_some_and(|row| row.is_gone_by_time(now) || probe.is_provably_dead(&row.info))
}

/// The probe of a store that was given none: nothing can be proved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoProbe;

impl LivenessProbe for NoProbe {
    fn is_provably_dead(&self, _owner: &OwnerInfo) -> bool {
        false
    }
}

/// Whether the head of the queue may be taken. `waiting_since` is when it was accepted or, if that is later, when the
/// last lease ended: an owner at work on the input before it has not left it.
pub(crate) fn may_take(
    policy: ClaimPolicy,
    claimer: &OwnerId,
    submitted_by: &OwnerId,
    submitter_gone: bool,
    waiting_since: i64,
    now: i64,
) -> bool {
    match policy {
        ClaimPolicy::Any => true,
        ClaimPolicy::LeaseOnly => false,
        ClaimPolicy::OwnOrOrphaned { orphan_after_ms } => {
            claimer == submitted_by || submitter_gone || now.saturating_sub(waiting_since) > ms(orphan_after_ms)
        }
    }
}

/// The result of a call that nobody settled, when an operator closes its turn.
pub(crate) fn resolved_result(state: JournalState) -> CallResult {
    let (outcome, content) = match state {
        JournalState::Recorded => (CallOutcome::Skipped, "This call was not run."),
        JournalState::Started | JournalState::Settled => (
            CallOutcome::OutcomeUnknown,
            "The program stopped while this call ran. Nobody knows what it did; check before it is repeated.",
        ),
    };
    CallResult { outcome, content: content.to_owned(), meta: None }
}

/// The row that closes the transcript of a turn that an operator decided. Its id follows from the turn.
pub(crate) fn resolved_row(
    conversation: &ConversationId,
    turn: &TurnId,
    end: &TurnEnd,
) -> Result<NewMessage, StoreError> {
    let key = crate::prompt::PromptHash::of(format!("{conversation}\n{turn}").as_bytes());
    let id = MessageId::parse(&format!("resolved-{}", &key.as_str()[..32]))
        .map_err(|bad| invalid(format!("no id for the closing row: {bad}")))?;
    let text = end.detail.clone().unwrap_or_else(|| format!("This turn was closed by an operator ({}).", end.reason));
    Ok(NewMessage { kind: MessageKind::Boundary, ..NewMessage::text(id, Role::Assistant, text) })
}
