//! People who undo, redo and retry, and what must hold of it.
//!
//! A person has one input in mind: the last one that is shown. When a process dies with the wish in its hands, the person
//! looks what is shown and says it again only if it was not done.

use std::sync::{Arc, Mutex};

use futures::future::{Either, select};
use hermes_core::{Clock, Engine};
use hermes_store::transfer::bundle::BundleRow;
use hermes_store::{
    AdmissionStatus, ChangeId, ChangeKind, ChangeStatus, ConversationId, MessageId, MessageKind, Role, RowState,
};

use crate::model::PRINCIPAL;
use crate::parts::shown;
use crate::world::World;

/// How long a person waits for a process that does not answer, in milliseconds.
const PATIENCE_MS: u64 = 60_000;
/// How often a person says a wish.
const TRIES: usize = 50;
/// Time between two of them, in milliseconds.
const PAUSE_MS: u64 = 5_000;

/// What a person wants of the end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Undo,
    Redo,
    Retry,
}

/// A wish that was put to an engine.
#[derive(Debug)]
struct Wish {
    conversation: ConversationId,
    act: Act,
    came: Came,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// Nobody knows: the process died, or the store could not tell.
    Unknown,
    /// Nothing was changed.
    Refused,
    /// This change was made, or taken back.
    Done { change: ChangeId, from: Option<MessageId> },
}

/// The wishes of a world, and which acts of its scenario are over.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    said: Vec<Wish>,
    over: usize,
    /// The input that the next act of the scenario is about.
    about: Option<MessageId>,
    /// How many wishes there were when that act began.
    before: Option<usize>,
}

/// The wishes of a world.
pub(crate) type Said = Arc<Mutex<Wishes>>;

/// The input that was shown last, which is what a person means.
async fn last_input(engine: &Engine, conversation: &ConversationId) -> Option<MessageId> {
    let rows = shown(engine.store().as_ref(), conversation).await;
    rows.into_iter().rev().find(|row| row.role == Role::User && row.kind == MessageKind::Normal).map(|row| row.id)
}

/// Puts a wish to an engine, once; says in a word what came of it.
pub(crate) async fn wish(engine: &Engine, said: &Said, conversation: &ConversationId, act: Act) -> &'static str {
    let number = {
        let mut said = said.lock().unwrap();
        said.said.push(Wish { conversation: conversation.clone(), act, came: Came::Unknown });
        said.said.len() - 1
    };
    let done = match act {
        Act::Undo => engine.undo(conversation, 1).await.map(|done| (done.change.id, Some(done.from))),
        Act::Redo => engine.redo(conversation).await.map(|change| (change.id, None)),
        Act::Retry => engine.retry(conversation, PRINCIPAL).await.map(|(done, _)| (done.change.id, Some(done.from))),
    };
    let (came, told) = match done {
        Ok((change, from)) => (Came::Done { change, from }, "done"),
        // Busy; nothing to be undone; something was written since.
        Err(error) if ["HM4103", "HM1015", "HM1017", "HM1003"].contains(&error.code()) => (Came::Refused, error.code()),
        Err(error) => {
            assert!(error.code().starts_with("HM10"), "{act:?}: {error}");
            (Came::Unknown, error.code())
        }
    };
    said.lock().unwrap().said[number].came = came;
    told
}

/// Has the acts of a scenario done that are not over: each once, whatever happens to the processes that are told. True when
/// one was over now; what came of it is to be worked on then.
pub(crate) async fn next(
    engine: &Engine,
    clock: &dyn Clock,
    said: &Said,
    conversation: &ConversationId,
    acts: &[Act],
) -> bool {
    let begun = said.lock().unwrap().over;
    let Some(act) = acts.get(begun).copied() else { return false };
    for _ in 0..TRIES {
        let about = said.lock().unwrap().about.clone();
        let about = match about {
            Some(about) => Some(about),
            None if act == Act::Redo => None,
            None => last_input(engine, conversation).await,
        };
        let last = last_input(engine, conversation).await;
        let is_over = {
            let mut said = said.lock().unwrap();
            if said.over != begun {
                return true;
            }
            said.about = about.clone();
            let wishes = said.said.len();
            let before = *said.before.get_or_insert(wishes);
            match act {
                Act::Undo | Act::Retry => about.is_none() || about != last,
                Act::Redo => said.said[before..].iter().any(|wish| wish.came != Came::Unknown),
            }
        };
        if is_over {
            break;
        }
        let patience = clock.sleep(PATIENCE_MS);
        // A person whose process slept has gone to another one: the wish goes with the person.
        match select(patience, Box::pin(wish(engine, said, conversation, act))).await {
            Either::Left(_) => {}
            Either::Right(("done", _)) => break,
            Either::Right(_) => clock.sleep(PAUSE_MS).await,
        }
    }
    let mut said = said.lock().unwrap();
    if said.over == begun {
        said.over += 1;
        (said.about, said.before) = (None, None);
    }
    true
}

/// (n) A wish is done once or not at all: what was told is stored, nothing else was undone, and an input that is tried
/// again is there as often as it was accepted.
pub(crate) async fn at_rest(world: &World, what: &str) {
    for conversation in world.conversations.iter() {
        let changes = world.store.changes(conversation).await.unwrap();
        let changes: Vec<_> = changes.into_iter().filter(|change| change.kind == ChangeKind::Rewind).collect();
        let rows = world.everything(conversation).await;
        let applied = changes.iter().filter(|change| change.status == ChangeStatus::Applied);
        let gone: u64 = applied.clone().map(|change| change.rows).sum();
        assert_eq!(superseded(&rows), gone, "{what}: rows are gone that nobody undid: {changes:?}");
        wishes_are_done_once(world, conversation, &changes, &rows, what);
        for change in applied.filter(|change| change.id.as_str().starts_with("retry-")) {
            let again = world.store.admission_of(conversation, PRINCIPAL, change.id.as_str()).await.unwrap();
            let again = again.unwrap_or_else(|| panic!("{what}: an input was undone and not sent again: {change:?}"));
            assert_eq!(again.receipt.status, AdmissionStatus::Terminal, "{what}: {again:?}");
        }
        for change in changes.iter().filter(|change| change.status == ChangeStatus::Restored) {
            let again = world.store.admission_of(conversation, PRINCIPAL, change.id.as_str()).await.unwrap();
            let row = again.map(|again| again.receipt.admission.input_row());
            let ran = row.is_some_and(|row| rows.iter().any(|known| known.id == row));
            assert!(!ran, "{what}: an input ran again, and its first answer is back: {change:?}");
        }
    }
}

fn wishes_are_done_once(
    world: &World,
    conversation: &ConversationId,
    changes: &[hermes_store::HistoryChange],
    rows: &[BundleRow],
    what: &str,
) {
    let said = world.wishes.lock().unwrap();
    let of_here = || said.said.iter().filter(|wish| wish.conversation == *conversation);
    let unknown = |act: &[Act]| of_here().filter(|wish| act.contains(&wish.act) && wish.came == Came::Unknown).count();
    let mut told = Vec::new();
    for wish in of_here() {
        let Came::Done { change, from } = &wish.came else { continue };
        let stored = changes.iter().find(|known| known.id == *change);
        let stored = stored.unwrap_or_else(|| panic!("{what}: {wish:?} was told and is not stored"));
        let Some(from) = from else {
            assert_eq!(stored.status, ChangeStatus::Restored, "{what}: {wish:?} is lost");
            continue;
        };
        assert!(!told.contains(&change), "{what}: two wishes made one change: {wish:?}");
        told.push(change);
        let row = rows.iter().find(|row| row.id == *from).unwrap();
        let is_gone = row.state == RowState::Superseded;
        if stored.status == ChangeStatus::Applied {
            assert!(is_gone, "{what}: {wish:?} was told, and its input is there");
            continue;
        }
        let redone = |other: &Wish| {
            other.act == Act::Redo && matches!(&other.came, Came::Done { change: back, .. } if back == change)
        };
        let is_explained = of_here().any(redone) || unknown(&[Act::Redo]) > 0;
        assert!(is_explained, "{what}: {wish:?} was taken back by nobody");
    }
    let more = changes.len() - told.len();
    let may_be = unknown(&[Act::Undo, Act::Retry]);
    assert!(more <= may_be, "{what}: {more} changes that nobody was told of, and {may_be} wishes without an answer");
}

/// Rows that were undone. One that stands in a view as a copy was undone once, with what it is a copy of.
fn superseded(rows: &[BundleRow]) -> u64 {
    let gone = || rows.iter().filter(|row| row.state == RowState::Superseded);
    let copied: std::collections::BTreeSet<_> = gone().filter_map(|row| row.copy_of.as_ref()).collect();
    gone().filter(|row| !copied.contains(&row.id)).count() as u64
}

/// The rows of inputs that were handed in again.
pub(crate) async fn again(world: &World, conversation: &ConversationId) -> Vec<MessageId> {
    let mut found = Vec::new();
    for change in world.store.changes(conversation).await.unwrap() {
        let again = world.store.admission_of(conversation, PRINCIPAL, change.id.as_str()).await.unwrap();
        found.extend(again.map(|again| again.receipt.admission.input_row()));
    }
    found
}
