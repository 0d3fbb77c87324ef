//! The items of one answer while they grow, and which one an event is about.
//!
//! Ids are not to be relied on: some servers give an item another id in each of its events, others give one id or one
//! place to several. An item is found by the `call_id`, then by the id, then by its place in the output (B18); one that
//! the provider finished takes nothing more.

use std::borrow::Cow;

use crate::mode::responses::event::{About, Kind, is_thought};

/// Most items of one answer. More than a model ever makes, few enough for memory.
const MAX_ITEMS: usize = 4096;

/// More than [`MAX_ITEMS`] items.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// Which readable reasoning an item shows. The first kind that comes counts: the other says the same in other words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readable {
    Summary,
    Full,
}

/// An item while it grows.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) kind: Kind,
    id: Option<String>,
    call_id: Option<String>,
    index: Option<i64>,
    /// The provider has announced it; of one that is not, only deltas spoke.
    is_announced: bool,
    /// The provider has given the whole item.
    pub(super) is_done: bool,
    /// Message: the text so far.
    pub(super) text: String,
    /// Message: all of the text is a refusal.
    pub(super) is_refusal: bool,
    /// Message: what the provider called it.
    pub(super) phase: Option<String>,
    /// Reasoning: what the last delta belonged to.
    pub(super) part: Option<(Readable, i64)>,
    /// The whole item as it goes back, where it is opaque.
    pub(super) raw: Option<String>,
    /// Call: its position among the calls, once its name is known.
    pub(super) call: Option<usize>,
    /// Call: arguments that came before the name.
    pub(super) early: String,
    /// Call: something other than blanks came as arguments.
    pub(super) has_arguments: bool,
    /// Call: the arguments as the provider gave them at their end.
    pub(super) whole: Option<String>,
    /// Call: the provider said that it is complete.
    pub(super) is_settled: bool,
}

/// All items of one answer, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Slots(pub(super) Vec<Slot>);

impl Slots {
    /// The item of a delta, a new one when there is none. `None` when it is finished already: the delta says it again.
    pub(super) fn of_delta(&mut self, kind: Kind, about: &About<'_>) -> Result<Option<usize>, TooMany> {
        let open = |slot: &Slot| slot.kind == kind && !slot.is_done;
        let done = |slot: &Slot| slot.kind == kind && slot.is_done;
        let found = self
            .last(|slot| open(slot) && slot.has_call_id(about))
            .or_else(|| self.last(|slot| open(slot) && slot.has_id(about)))
            .or_else(|| self.last(|slot| open(slot) && slot.has_index(about)));
        if found.is_some() {
            return Ok(found);
        }
        let again = |slot: &Slot| slot.has_call_id(about) || slot.has_id(about) || slot.has_index(about);
        if self.last(|slot| done(slot) && again(slot)).is_some() {
            return Ok(None);
        }
        let found = self.last(|slot| open(slot) && slot.may_have_index(about));
        found.map_or_else(|| self.add(kind, about, false).map(Some), |at| Ok(Some(at)))
    }

    /// A new item is announced: only one that deltas spoke of before, or the same announced again, is it already.
    pub(super) fn of_added(&mut self, kind: Kind, about: &About<'_>) -> Result<usize, TooMany> {
        let open = |slot: &Slot| slot.kind == kind && !slot.is_done && slot.agrees(about) && slot.may_have_index(about);
        let found = self
            .last(|slot| open(slot) && (slot.has_call_id(about) || slot.has_id(about)))
            .or_else(|| self.last(|slot| open(slot) && !slot.is_announced));
        match found {
            Some(at) => {
                self.0[at].learn(about);
                self.0[at].is_announced = true;
                Ok(at)
            }
            None => self.add(kind, about, true),
        }
    }

    /// The item that the provider gives as a whole.
    pub(super) fn of_done(&mut self, kind: Kind, about: &About<'_>) -> Result<usize, TooMany> {
        let open = |slot: &Slot| slot.kind == kind && !slot.is_done && slot.agrees(about);
        // The same item once more.
        let again = |slot: &Slot| {
            let is_same = slot.has_call_id(about) && slot.may_have_index(about);
            slot.kind == kind && slot.agrees(about) && (is_same || (slot.has_id(about) && slot.index == about.index))
        };
        let found = self
            .last(|slot| open(slot) && slot.has_call_id(about) && slot.may_have_index(about))
            .or_else(|| self.last(|slot| open(slot) && slot.has_id(about)))
            .or_else(|| self.last(|slot| open(slot) && slot.has_index(about)))
            .or_else(|| self.last(|slot| open(slot) && slot.has_call_id(about)))
            .or_else(|| self.last(|slot| again(slot)))
            .or_else(|| self.last(|slot| open(slot) && slot.may_have_index(about)));
        match found {
            Some(at) => {
                self.0[at].learn(about);
                Ok(at)
            }
            None => self.add(kind, about, true),
        }
    }

    /// The item of the list in the last event, where ids may have changed once more: the last resort is that it is the
    /// next one of its kind. None of `taken` is it (by position; what is behind its end is not taken).
    pub(super) fn of_output(&mut self, kind: Kind, about: &About<'_>, taken: &[bool]) -> Result<usize, TooMany> {
        let found = {
            let is_taken = |at: usize| taken.get(at).copied().unwrap_or(false);
            let free = |(at, slot): &(usize, &Slot)| slot.kind == kind && slot.agrees(about) && !is_taken(*at);
            let all = || self.0.iter().enumerate().filter(free);
            let same = all().find(|(_, slot)| slot.has_call_id(about)).or_else(|| all().find(|(_, s)| s.has_id(about)));
            same.or_else(|| all().next()).map(|(at, _)| at)
        };
        match found {
            Some(at) => {
                self.0[at].learn(about);
                Ok(at)
            }
            None => self.add(kind, about, true),
        }
    }

    fn last(&self, is: impl Fn(&Slot) -> bool) -> Option<usize> {
        self.0.iter().rposition(is)
    }

    fn add(&mut self, kind: Kind, about: &About<'_>, is_announced: bool) -> Result<usize, TooMany> {
        if self.0.len() >= MAX_ITEMS {
            return Err(TooMany);
        }
        self.0.push(Slot {
            kind,
            id: owned(about.id.as_ref()),
            call_id: owned(about.call_id.as_ref()),
            index: about.index,
            is_announced,
            is_done: false,
            text: String::new(),
            is_refusal: false,
            phase: None,
            part: None,
            raw: None,
            call: None,
            early: String::new(),
            has_arguments: false,
            whole: None,
            is_settled: false,
        });
        Ok(self.0.len() - 1)
    }
}

impl Slot {
    fn has_call_id(&self, about: &About<'_>) -> bool {
        self.call_id.is_some() && self.call_id.as_deref() == about.call_id.as_deref()
    }

    fn has_id(&self, about: &About<'_>) -> bool {
        self.id.is_some() && self.id.as_deref() == about.id.as_deref()
    }

    fn has_index(&self, about: &About<'_>) -> bool {
        self.index.is_some() && self.index == about.index
    }

    fn may_have_index(&self, about: &About<'_>) -> bool {
        self.index.is_none() || about.index.is_none() || self.index == about.index
    }

    /// Two calls with ids of their own are two calls, whatever else they share.
    fn agrees(&self, about: &About<'_>) -> bool {
        self.call_id.is_none() || about.call_id.is_none() || self.has_call_id(about)
    }

    fn learn(&mut self, about: &About<'_>) {
        if self.call_id.is_none() {
            self.call_id = owned(about.call_id.as_ref());
        }
        if self.index.is_none() {
            self.index = about.index;
        }
    }

    /// The id that pairs the call with its result.
    pub(super) fn call_id(&self) -> Option<&str> {
        self.call_id.as_deref()
    }

    /// Whether it is what the model says to itself on its way.
    pub(super) fn is_thought(&self) -> bool {
        self.phase.as_deref().is_some_and(is_thought)
    }
}

fn owned(text: Option<&Cow<'_, str>>) -> Option<String> {
    text.map(|text| text.clone().into_owned())
}
