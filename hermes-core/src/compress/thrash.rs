//! Compressions that bring too little (E38): what they saved is known only when a provider counts the next request.
//!
//! ```text
//! shortened -> the next request is counted -> enough? no strike is left : one strike more -> the second blocks
//! ```
//!
//! A blocked conversation is left alone until a wait is over that the store keeps; then one compression may try again, and
//! the next count decides anew.
//!
//! Strikes are a fact: a program that is begun for each input would otherwise shorten the same history with every one of
//! them. They stand with the notes of each compression ([`fact`]), and who takes a conversation over reads them there
//! ([`Record::of_rows`]). Whether that compression was in vain is then judged by what is left of the next request when all
//! is taken away that was said since. Pure: the turn tells it what happens (`turn/compress.rs`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_store::{ConversationId, MessageKind, StoredMessage};
use serde_json::{Value, json};

use crate::tokens;

/// Compressions in a row that brought too little before further ones wait (engine reference, 7.5).
const STRIKES_MAX: u32 = 2;
/// Wait of a blocked conversation until one compression may try again (engine reference, 7.5).
pub(crate) const THRASH_WAIT_MS: u64 = 300_000;
/// What a compression frees at least of the request, in percent, to have brought enough. Ours: with less, the next rounds
/// of the same turn ask for the next one.
const SAVED_MIN_PERCENT: u64 = 10;
/// Conversations of which strikes are remembered.
const CONVERSATIONS_MAX: usize = 1_024;

const _: () = assert!(THRASH_WAIT_MS <= hermes_store::limits::COMPRESSION_COOLDOWN_MAX_MS);

/// A compression whose worth is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Size of the request before, in tokens; `None` when no provider had counted it.
    pub before: Option<u64>,
    /// Size from which a request is shortened.
    pub threshold: u64,
}

impl Pass {
    /// Whether a request of this size, counted by a provider, shows that it was in vain.
    fn was_in_vain(self, counted: u64) -> bool {
        let saved_too_little = |before: u64| {
            u128::from(before.saturating_sub(counted)) * 100 < u128::from(before) * u128::from(SAVED_MIN_PERCENT)
        };
        counted >= self.threshold || self.before.is_some_and(saved_too_little)
    }
}

/// The member of a summary's facts that tells of its compression.
const COMPRESSION: &str = "compression";

/// What is written down with the notes of a compression: what is known before it is judged.
pub(crate) fn fact(strikes: u32, pass: Option<Pass>) -> Value {
    json!({ COMPRESSION: {
        "strikes": strikes,
        "before": pass.and_then(|pass| pass.before),
        "threshold": pass.map(|pass| pass.threshold),
    } })
}

/// What is known of the compressions of one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Record {
    strikes: u32,
    open: Option<Pass>,
}

impl Record {
    /// What the rows of the model's view tell, when the next request has so many tokens.
    pub(crate) fn of_rows(rows: &[StoredMessage], tokens: u64) -> Self {
        let Some(notes) = rows.iter().rfind(|row| row.kind == MessageKind::Summary) else { return Self::default() };
        let Some(fact) = notes.meta.as_ref().and_then(|meta| meta.get(COMPRESSION)) else { return Self::default() };
        let strikes = fact["strikes"].as_u64().and_then(|strikes| u32::try_from(strikes).ok()).unwrap_or(0);
        let Some(threshold) = fact["threshold"].as_u64() else { return Self { strikes, open: None } };
        let pass = Pass { before: fact["before"].as_u64(), threshold };
        let is_new = |row: &&StoredMessage| row.copy_of.is_none() && row.created_at_ms > notes.created_at_ms;
        let since: u64 = rows.iter().filter(is_new).map(|row| tokens::of_row(row, None)).sum();
        let strikes = if pass.was_in_vain(tokens.saturating_sub(since)) { strikes.saturating_add(1) } else { 0 };
        Self { strikes, open: None }
    }
}

/// The strikes of the conversations that an engine works on.
#[derive(Debug, Default)]
pub(crate) struct Thrash {
    /// Held for one look or change, never over an await.
    known: Mutex<HashMap<ConversationId, Record>>,
}

impl Thrash {
    fn known(&self) -> MutexGuard<'_, HashMap<ConversationId, Record>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, conversation: &ConversationId, change: impl FnOnce(&mut Record)) {
        let mut known = self.known();
        let mut record = known.get(conversation).copied().unwrap_or_default();
        change(&mut record);
        if record == Record::default() && !known.contains_key(conversation) {
            return;
        }
        if known.len() >= CONVERSATIONS_MAX && !known.contains_key(conversation) {
            // Whose strikes are forgotten here has them in the store.
            let victim = known.keys().next().cloned();
            victim.map(|victim| known.remove(&victim));
        }
        known.insert(conversation.clone(), record);
    }

    /// Whether this process knows of the compressions of a conversation.
    pub(crate) fn knows(&self, conversation: &ConversationId) -> bool {
        self.known().contains_key(conversation)
    }

    /// Takes over what the store tells.
    pub(crate) fn learn(&self, conversation: &ConversationId, stored: Record) {
        self.change(conversation, |record| *record = stored);
    }

    /// Compressions in a row that brought too little, so far.
    pub(crate) fn strikes(&self, conversation: &ConversationId) -> u32 {
        self.known().get(conversation).map_or(0, |record| record.strikes)
    }

    /// A history was shortened.
    pub(crate) fn shortened(&self, conversation: &ConversationId, shortened: Pass) {
        self.change(conversation, |record| record.open = Some(shortened));
    }

    /// A provider has counted a request: the compression before it, if there was one, was worth it or not.
    pub(crate) fn counted(&self, conversation: &ConversationId, tokens: u64) {
        self.change(conversation, |record| {
            if let Some(open) = record.open.take() {
                record.strikes = if open.was_in_vain(tokens) { record.strikes.saturating_add(1) } else { 0 };
            }
        });
    }

    /// A shorter history was refused because it was none.
    pub(crate) fn refused(&self, conversation: &ConversationId) {
        self.change(conversation, |record| record.strikes = record.strikes.saturating_add(1));
    }

    /// Whether compressions are to wait now. Says so once for each wait: behind it one may try, and if that is in vain too,
    /// the next one waits.
    pub(crate) fn take_block(&self, conversation: &ConversationId) -> bool {
        let mut blocked = false;
        self.change(conversation, |record| {
            if record.strikes >= STRIKES_MAX {
                blocked = true;
                record.strikes = STRIKES_MAX - 1;
            }
        });
        blocked
    }

    /// A person has asked for a compression: what was in vain before says nothing any more.
    pub(crate) fn forget(&self, conversation: &ConversationId) {
        self.change(conversation, |record| *record = Record::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ConversationId {
        ConversationId::parse(name).unwrap()
    }

    fn pass(thrash: &Thrash, before: Option<u64>, counted: u64) {
        thrash.shortened(&id("c"), Pass { before, threshold: 1_000 });
        thrash.counted(&id("c"), counted);
        // Only the first count behind a compression says something of it.
        thrash.counted(&id("c"), 1_000_000);
    }

    #[test]
    fn e38_two_compressions_in_vain_block_and_a_worthy_one_between_them_does_not() {
        let thrash = Thrash::default();
        pass(&thrash, Some(1_200), 1_000);
        assert!(!thrash.take_block(&id("c")), "one is none");
        pass(&thrash, Some(1_200), 800);
        pass(&thrash, Some(1_200), 1_100);
        assert!(!thrash.take_block(&id("c")), "a worthy one takes the strikes away");
        pass(&thrash, Some(1_000), 950);
        assert!(thrash.take_block(&id("c")), "below the threshold, but hardly smaller");
        assert!(!thrash.take_block(&id("c")), "the wait is begun once");
        assert!(!thrash.take_block(&id("another")));
    }

    #[test]
    fn e38_behind_the_wait_one_may_try_and_its_count_decides() {
        let thrash = Thrash::default();
        for _ in 0..2 {
            pass(&thrash, None, 2_000);
        }
        assert!(thrash.take_block(&id("c")));
        pass(&thrash, None, 2_000);
        assert!(thrash.take_block(&id("c")), "the probe was in vain");
        pass(&thrash, None, 500);
        pass(&thrash, None, 2_000);
        assert!(!thrash.take_block(&id("c")), "the probe was worth it");
    }

    #[test]
    fn a_size_that_nobody_counted_is_only_held_against_the_threshold() {
        let open = |before| Pass { before, threshold: 1_000 };
        assert!(!open(None).was_in_vain(999) && open(None).was_in_vain(1_000));
        assert!(open(Some(1_010)).was_in_vain(999) && !open(Some(2_000)).was_in_vain(999));
        assert!(open(Some(0)).was_in_vain(5_000) && !open(Some(0)).was_in_vain(0));
        assert!(!open(Some(u64::MAX)).was_in_vain(1));
    }

    #[test]
    fn refusals_are_strikes_and_a_person_s_wish_forgets_them() {
        let thrash = Thrash::default();
        thrash.refused(&id("c"));
        thrash.refused(&id("c"));
        thrash.forget(&id("c"));
        assert!(!thrash.take_block(&id("c")));
        thrash.refused(&id("c"));
        thrash.refused(&id("c"));
        assert!(thrash.take_block(&id("c")));
    }

    #[test]
    fn what_the_notes_tell_is_what_the_next_process_knows() {
        use crate::compress::plan::tests::{chat, row};
        use hermes_store::Role;
        let notes = |strikes, before| {
            let meta = Some(fact(strikes, Some(Pass { before, threshold: 1_000 })));
            StoredMessage { kind: MessageKind::Summary, created_at_ms: 0, meta, ..row(1, Role::User, "notes") }
        };
        // What was said since is 100 messages of 29 tokens: 2,900 of the next request's.
        let with = |notes| {
            let mut rows = vec![notes];
            rows.extend(chat(50, 100));
            rows
        };
        let strikes = |notes, tokens| Record::of_rows(&with(notes), tokens).strikes;
        assert_eq!(strikes(notes(1, Some(5_000)), 3_000), 0, "it freed much, and then much was said");
        assert_eq!(strikes(notes(1, Some(5_000)), 4_000), 2, "without what was said since it is over the threshold");
        assert_eq!(strikes(notes(0, Some(950)), 3_800), 1, "it freed hardly anything");
        assert_eq!(Record::of_rows(&chat(50, 100), 9_000), Record::default());
        let by_person = StoredMessage { meta: Some(fact(0, None)), ..notes(0, None) };
        assert_eq!(strikes(by_person, 9_000), 0);
        let of_old = StoredMessage { meta: None, ..notes(0, None) };
        assert_eq!(strikes(of_old, 9_000), 0);
    }

    #[test]
    fn i25_no_more_is_remembered_than_fits() {
        let thrash = Thrash::default();
        for number in 0..CONVERSATIONS_MAX + 50 {
            thrash.refused(&id(&format!("c{number}")));
        }
        assert_eq!(thrash.known().len(), CONVERSATIONS_MAX);
        thrash.counted(&id("new"), 1);
        assert_eq!(thrash.known().len(), CONVERSATIONS_MAX, "nothing is remembered of what was not shortened");
    }
}
