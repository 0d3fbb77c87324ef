//! The newest events of each conversation, for clients that come back.
//!
//! Every event gets its place here: a number that only grows in its conversation, and the epoch of the engine that told
//! it. An epoch is one life of one [`Engine`](crate::Engine): what another one told, or this program before a restart, is
//! not here, and a client that asks for it is told to read the transcript (I28). Nothing in here is a fact; it may be
//! dropped at any time, and is, by the limits in [`limits`](crate::limits).
//!
//! Pieces of one running text are kept as one event. Where a client has seen a part of it, it gets the rest.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_store::{ConversationId, OwnerId, PromptHash};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::event::{Event, EventKind};
use crate::limits::{
    REPLAY_BYTES_MAX, REPLAY_CONVERSATIONS_MAX, REPLAY_EVENTS_MAX, REPLAY_KNOWN_MAX, REPLAY_PIECES_MAX,
    REPLAY_TEXT_BYTES, REPLAY_TOTAL_BYTES_MAX,
};

/// What an event costs beside its texts, roughly.
const EVENT_BASE_BYTES: usize = 256;

/// A place among the events of one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// The life of the engine that counts: another number after a restart. Below 2^48, so that every JSON reader keeps it;
    /// 0 for an event that no engine told.
    pub epoch: u64,
    /// Count of the conversation's events in this epoch, from 1; 0 stands before the first one. It only grows. It has
    /// gaps only where a conversation was not heard of for long, and others pushed it out.
    pub seq: u64,
}

impl Cursor {
    /// No place: what a client without one asks with.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Engine {
    /// What was told of a conversation behind a place, for a client that comes back: every event that it missed, or that
    /// it missed some and reads the transcript instead (I28). One that hears live events meanwhile drops those up to
    /// `until`: they are in the answer.
    #[must_use]
    pub fn events_since(&self, conversation: &ConversationId, after: Cursor) -> Replay {
        self.inner().rings.since(conversation, after)
    }
}

/// What a client that comes back is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "replay", rename_all = "snake_case")]
pub enum Replay {
    /// Everything that it missed.
    Events {
        /// The events behind the cursor, oldest first. Pieces of one text are one event with the place of the last.
        events: Vec<Event>,
        /// The place of the newest event: what is told from now on comes behind it.
        until: Cursor,
    },
    /// It missed events that are not kept any more: what it shows may be wrong, the transcript is right. Also the answer
    /// to [`Cursor::default`]: the place from which a new client goes on.
    Gap {
        /// Why.
        why: GapReason,
        /// The place to go on from, once the transcript is read. Take this answer first and read then: what is said
        /// meanwhile is in one of the two, or in both.
        until: Cursor,
    },
}

/// Why events cannot be told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GapReason {
    /// The cursor is another engine's: the program was started again, or there was no cursor.
    OtherEpoch,
    /// They are too old, or too many came since.
    Dropped,
}

/// One kept event, or the pieces of one text.
#[derive(Debug)]
struct Kept {
    /// The first place that it stands for; the last one is the event's.
    first: u64,
    event: Event,
    /// For a text in several pieces: its length behind each piece.
    ends: Vec<u32>,
}

impl Kept {
    /// What of it comes behind `seq`.
    fn after(&self, seq: u64) -> Event {
        let mut event = self.event.clone();
        // Pieces up to `seq` were seen.
        let seen = (seq + 1).saturating_sub(self.first);
        let end = seen.checked_sub(1).and_then(|at| self.ends.get(usize::try_from(at).unwrap_or(usize::MAX)));
        if let (Some(end), Some(text)) = (end, piece(&mut event.kind)) {
            // A piece ends where a text ended: never inside a character.
            text.drain(..(*end as usize).min(text.len()));
        }
        event
    }
}

/// The events of one conversation.
#[derive(Debug, Default)]
struct Log {
    /// The newest place.
    last: u64,
    /// Behind this place nothing is missing.
    whole_after: u64,
    kept: VecDeque<Kept>,
    bytes: usize,
    /// Something was told since the log was last looked at for a victim.
    touched: bool,
    /// It stands among those that are looked at for a victim.
    listed: bool,
}

impl Log {
    fn drop_first(&mut self) -> usize {
        let Some(first) = self.kept.pop_front() else { return 0 };
        let bytes = size(&first.event).min(self.bytes);
        self.whole_after = first.event.at.seq;
        self.bytes -= bytes;
        bytes
    }

    /// Frees everything but the numbers.
    fn clear(&mut self) -> usize {
        self.listed = false;
        self.whole_after = self.last;
        self.kept = VecDeque::new();
        std::mem::take(&mut self.bytes)
    }
}

#[derive(Debug, Default)]
struct Logs {
    by_conversation: HashMap<ConversationId, Log>,
    /// Those that keep events, in the order in which they are looked at for a victim.
    keeping: VecDeque<ConversationId>,
    bytes: usize,
    /// Where conversations begin that are not known: behind everything that was forgotten.
    floor: u64,
    /// Events that were pushed out.
    dropped: u64,
}

/// The rings of all conversations of one engine.
#[derive(Debug)]
pub(crate) struct Rings {
    epoch: u64,
    /// Held for map operations only, never over an await.
    logs: Mutex<Logs>,
    /// Held from the place of an event until it is told, never over an await: a client that has seen a place has seen what
    /// comes before it, also where a child on another thread tells something of the same conversation.
    telling: Mutex<()>,
}

impl Rings {
    /// Rings of a new epoch: of this owner, from this time on.
    pub(crate) fn new(owner: &OwnerId, now_ms: i64) -> Self {
        let name = PromptHash::of(format!("{owner}/{now_ms}").as_bytes());
        let epoch = name.as_str().get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Self { epoch: epoch.unwrap_or_default().max(1), logs: Mutex::default(), telling: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the guard is dropped nobody else tells an event.
    pub(crate) fn in_order(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an event its place and keeps it.
    pub(crate) fn push(&self, event: &mut Event) {
        let mut logs = self.lock();
        logs.push(self.epoch, event);
    }

    /// Events that were pushed out so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// What was told of a conversation behind a place.
    pub(crate) fn since(&self, conversation: &ConversationId, after: Cursor) -> Replay {
        let logs = self.lock();
        let log = logs.by_conversation.get(conversation);
        let (last, whole_after) = log.map_or((logs.floor, logs.floor), |log| (log.last, log.whole_after));
        let until = Cursor { epoch: self.epoch, seq: last };
        if after.epoch != self.epoch {
            return Replay::Gap { why: GapReason::OtherEpoch, until };
        }
        if after.seq < whole_after || after.seq > last {
            return Replay::Gap { why: GapReason::Dropped, until };
        }
        let kept = log.map(|log| log.kept.iter()).into_iter().flatten();
        let events = kept.filter(|kept| kept.event.at.seq > after.seq).map(|kept| kept.after(after.seq)).collect();
        Replay::Events { events, until }
    }
}

impl Logs {
    fn push(&mut self, epoch: u64, event: &mut Event) {
        if !self.by_conversation.contains_key(&event.conversation) {
            self.make_known(&event.conversation);
        }
        let Some(log) = self.by_conversation.get_mut(&event.conversation) else { return };
        log.last += 1;
        log.touched = true;
        event.at = Cursor { epoch, seq: log.last };
        let added = match log.kept.back_mut() {
            Some(back) if joins(back, event) => join(back, event),
            _ => {
                if !std::mem::replace(&mut log.listed, true) {
                    self.keeping.push_back(event.conversation.clone());
                }
                log.kept.push_back(Kept { first: log.last, event: event.clone(), ends: Vec::new() });
                size(event)
            }
        };
        log.bytes += added;
        self.bytes += added;
        while log.kept.len() > REPLAY_EVENTS_MAX || log.bytes > REPLAY_BYTES_MAX {
            self.bytes = self.bytes.saturating_sub(log.drop_first());
            self.dropped += 1;
        }
        self.shrink(&event.conversation);
    }

    /// Takes a place in the map, of somebody who keeps nothing if need be: what others know of it ends with a gap.
    fn make_known(&mut self, conversation: &ConversationId) {
        if self.by_conversation.len() >= REPLAY_KNOWN_MAX {
            let victim = self.by_conversation.iter().find(|(_, log)| !log.listed).map(|(id, _)| id.clone());
            if let Some(log) = victim.and_then(|id| self.by_conversation.remove(&id)) {
                self.floor = self.floor.max(log.last);
            }
        }
        let log = Log { last: self.floor, whole_after: self.floor, ..Log::default() };
        self.by_conversation.insert(conversation.clone(), log);
    }

    /// Frees logs until the limits of all together hold. One that told something since it was last looked at is passed by
    /// once, so that each event pays for at most one look.
    fn shrink(&mut self, newest: &ConversationId) {
        while self.keeping.len() > REPLAY_CONVERSATIONS_MAX
            || (self.bytes > REPLAY_TOTAL_BYTES_MAX && self.keeping.len() > 1)
        {
            let Some(id) = self.keeping.pop_front() else { return };
            let Some(log) = self.by_conversation.get_mut(&id) else { continue };
            if id == *newest || std::mem::take(&mut log.touched) {
                self.keeping.push_back(id);
                continue;
            }
            self.dropped += log.kept.len() as u64;
            self.bytes = self.bytes.saturating_sub(log.clear());
        }
    }
}

/// The text of an event that is a piece of a longer one.
fn piece(kind: &mut EventKind) -> Option<&mut String> {
    match kind {
        EventKind::TextDelta { text } | EventKind::ReasoningDelta { text } | EventKind::CallOutput { text, .. } => {
            Some(text)
        }
        _ => None,
    }
}

/// Whether an event goes on with the text of the one before it.
fn joins(back: &Kept, event: &Event) -> bool {
    let goes_on = match (&back.event.kind, &event.kind) {
        (EventKind::TextDelta { .. }, EventKind::TextDelta { .. })
        | (EventKind::ReasoningDelta { .. }, EventKind::ReasoningDelta { .. }) => true,
        (EventKind::CallOutput { call: was, .. }, EventKind::CallOutput { call, .. }) => was == call,
        _ => false,
    };
    goes_on
        && back.event.turn == event.turn
        && back.ends.len() < REPLAY_PIECES_MAX
        && size(&back.event) < REPLAY_TEXT_BYTES
}

/// Appends a piece; returns by how many bytes the kept event grew.
fn join(back: &mut Kept, event: &Event) -> usize {
    let (EventKind::TextDelta { text: more }
    | EventKind::ReasoningDelta { text: more }
    | EventKind::CallOutput { text: more, .. }) = &event.kind
    else {
        return 0;
    };
    back.event.at = event.at;
    let Some(text) = piece(&mut back.event.kind) else { return 0 };
    let end = |text: &String| u32::try_from(text.len()).unwrap_or(u32::MAX);
    if back.ends.is_empty() {
        back.ends.push(end(text));
    }
    text.push_str(more);
    back.ends.push(end(text));
    more.len()
}

/// Roughly the memory that an event takes. Texts that may be long are counted, the rest is the base.
fn size(event: &Event) -> usize {
    let texts = match &event.kind {
        EventKind::TextDelta { text } | EventKind::ReasoningDelta { text } | EventKind::CallOutput { text, .. } => {
            text.len()
        }
        EventKind::Notice { text } => text.len(),
        EventKind::Steered { inputs } | EventKind::Redirected { inputs, .. } => {
            inputs.iter().map(|input| input.text.len() + EVENT_BASE_BYTES / 4).sum()
        }
        EventKind::RoundRecorded { text, calls } => {
            text.len() + calls.iter().map(|call| call.label.len() + EVENT_BASE_BYTES / 2).sum::<usize>()
        }
        EventKind::CallFinished { summary, preview, .. } => summary.len() + preview.len(),
        EventKind::TurnEnded { result } => result.answer.len() + EVENT_BASE_BYTES,
        EventKind::Child { event, .. } => size(event),
        _ => 0,
    };
    EVENT_BASE_BYTES + texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings() -> Rings {
        Rings::new(&OwnerId::parse("owner").unwrap(), 1)
    }

    fn id(name: &str) -> ConversationId {
        ConversationId::parse(name).unwrap()
    }

    fn tell(rings: &Rings, conversation: &str, kind: EventKind) -> Cursor {
        let mut event = Event::new(id(conversation), None, kind);
        rings.push(&mut event);
        event.at
    }

    fn delta(text: &str) -> EventKind {
        EventKind::TextDelta { text: text.to_owned() }
    }

    fn notice(text: &str) -> EventKind {
        EventKind::Notice { text: text.to_owned() }
    }

    fn texts(replay: &Replay) -> Vec<String> {
        let Replay::Events { events, .. } = replay else { panic!("a gap: {replay:?}") };
        let text = |event: &Event| match &event.kind {
            EventKind::TextDelta { text } | EventKind::Notice { text } => text.clone(),
            other => format!("{other:?}"),
        };
        events.iter().map(text).collect()
    }

    #[test]
    fn i28_each_conversation_counts_from_one_and_what_is_behind_a_cursor_comes_back() {
        let rings = rings();
        let first = tell(&rings, "a", notice("1"));
        let second = tell(&rings, "a", notice("2"));
        let other = tell(&rings, "b", notice("other"));
        assert_eq!((first.seq, second.seq, other.seq), (1, 2, 1));
        assert_eq!(texts(&rings.since(&id("a"), Cursor { seq: 0, ..first })), ["1", "2"]);
        assert_eq!(texts(&rings.since(&id("a"), first)), ["2"]);
        assert_eq!(rings.since(&id("a"), second), Replay::Events { events: vec![], until: second });
    }

    #[test]
    fn i28_pieces_of_a_text_are_one_event_and_a_client_in_the_middle_gets_the_rest() {
        let rings = rings();
        let places: Vec<Cursor> =
            ["Gr", "ü", "ße, ", "Welt"].iter().map(|text| tell(&rings, "a", delta(text))).collect();
        tell(&rings, "a", notice("end"));
        tell(&rings, "a", delta("next"));
        let start = Cursor { seq: 0, ..places[0] };
        assert_eq!(texts(&rings.since(&id("a"), start)), ["Grüße, Welt", "end", "next"]);
        for (at, rest) in ["üße, Welt", "ße, Welt", "Welt"].iter().enumerate() {
            assert_eq!(texts(&rings.since(&id("a"), places[at])), [*rest, "end", "next"]);
        }
        assert_eq!(texts(&rings.since(&id("a"), places[3])), ["end", "next"]);
    }

    #[test]
    fn i28_a_restart_is_told_from_events_that_were_dropped() {
        let (rings, later) = (rings(), Rings::new(&OwnerId::parse("owner").unwrap(), 2));
        let place = tell(&rings, "a", notice("1"));
        assert!(matches!(later.since(&id("a"), place), Replay::Gap { why: GapReason::OtherEpoch, .. }));
        for n in 0..REPLAY_EVENTS_MAX {
            tell(&rings, "a", notice(&n.to_string()));
        }
        // Exactly what follows it is kept; one event more, and it is not.
        assert_eq!(texts(&rings.since(&id("a"), place)).len(), REPLAY_EVENTS_MAX);
        let newest = tell(&rings, "a", notice("more"));
        let gap = rings.since(&id("a"), place);
        assert_eq!(gap, Replay::Gap { why: GapReason::Dropped, until: newest });
        assert_eq!(rings.dropped(), 2);
        let ahead = Cursor { seq: newest.seq + 1, ..newest };
        assert!(matches!(rings.since(&id("a"), ahead), Replay::Gap { .. }), "a place that was never told");
    }

    #[test]
    fn i26_no_conversation_and_not_all_together_keep_more_than_their_limits() {
        let rings = rings();
        let large = "x".repeat(REPLAY_BYTES_MAX / 4);
        let many = REPLAY_TOTAL_BYTES_MAX / REPLAY_BYTES_MAX * 2;
        for n in 0..many {
            for _ in 0..8 {
                tell(&rings, &format!("c{n}"), notice(&large));
            }
        }
        let logs = rings.lock();
        assert!(logs.bytes <= REPLAY_TOTAL_BYTES_MAX, "{}", logs.bytes);
        assert!(logs.by_conversation.values().all(|log| log.bytes <= REPLAY_BYTES_MAX));
        assert_eq!(logs.bytes, logs.by_conversation.values().map(|log| log.bytes).sum::<usize>());
        let out = logs.by_conversation.iter().find(|(_, log)| log.kept.is_empty()).map(|(id, _)| id.clone()).unwrap();
        drop(logs);
        // Who is pushed out goes on counting, and is told of the gap.
        let again = tell(&rings, out.as_str(), notice("again"));
        assert_eq!(again.seq, 9);
        assert!(matches!(rings.since(&out, Cursor { seq: 7, ..again }), Replay::Gap { why: GapReason::Dropped, .. }));
        assert_eq!(texts(&rings.since(&out, Cursor { seq: 8, ..again })), ["again"]);
    }

    #[test]
    fn i25_conversations_that_were_forgotten_never_count_backwards() {
        let rings = rings();
        for n in 0..REPLAY_KNOWN_MAX * 2 {
            tell(&rings, &format!("c{n}"), notice("1"));
            tell(&rings, &format!("c{n}"), notice("2"));
        }
        let logs = rings.lock();
        assert!(logs.by_conversation.len() <= REPLAY_KNOWN_MAX);
        assert!(logs.keeping.len() <= REPLAY_CONVERSATIONS_MAX);
        drop(logs);
        for n in [0, 1, REPLAY_KNOWN_MAX, REPLAY_KNOWN_MAX * 2 - 1] {
            let (name, seen) = (format!("c{n}"), Cursor { epoch: rings.epoch, seq: 2 });
            let next = tell(&rings, &name, notice("3"));
            assert!(next.seq > 2, "{next:?}");
            // Either it was never forgotten, and nothing is missing, or the gap is told.
            match rings.since(&id(&name), seen) {
                replay @ Replay::Events { .. } => assert_eq!(texts(&replay), ["3"]),
                Replay::Gap { why, .. } => assert_eq!(why, GapReason::Dropped),
            }
        }
    }
}
