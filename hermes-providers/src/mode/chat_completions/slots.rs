//! Puts calls together from fragments whose indices and ids are often wrong.
//!
//! Slots are a list in order of arrival. A provider's index is a key to the latest slot of that index and never a
//! position: Ollama sends every call with index 0, others skip numbers, others send neither index nor id.

use std::borrow::Cow;

use crate::chat::CompletedCall;
use crate::json::is_whole_json;
use crate::mode::names::NameMap;

/// Most calls of one answer. More than a model ever meant to make, few enough for memory.
pub(super) const MAX_CALLS: usize = 1024;

/// A fragment with everything optional.
#[derive(Debug, Default)]
pub(super) struct Fragment<'a> {
    pub(super) index: Option<i64>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Option<Cow<'a, str>>,
}

/// What a fragment changed, by position of the slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) at: usize,
    /// The wire name, when it became known now.
    pub(super) started: Option<String>,
    /// Bytes of arguments that arrived.
    pub(super) bytes: usize,
}

/// Longest number or word that counts as whole arguments while more may come; objects have no such limit.
const MAX_SCALAR_BYTES: usize = 64;

/// Where growing arguments stand, told from what is new: they are parsed once, when their value closes. Some servers repeat
/// the name in every fragment, and parsing all that came each time would be quadratic.
#[derive(Debug, Default)]
struct Growth {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The value closed, and whether it is JSON.
    closed: Option<bool>,
}

impl Growth {
    /// Takes what came behind `old` bytes.
    fn take(&mut self, all: &str, old: usize) {
        for (at, byte) in all.bytes().enumerate().skip(old) {
            if self.closed.is_some() {
                if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                    self.closed = Some(false);
                }
                continue;
            }
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => continue,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => continue,
            }
            let is_closed = self.depth == 0 && !self.in_string;
            if is_closed && matches!(byte, b'"' | b'}' | b']') {
                self.closed = Some(is_whole_json(&all[..=at]));
            }
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    index: i64,
    id: Option<String>,
    name: String,
    arguments: String,
    growth: Growth,
}

impl Slot {
    fn append(&mut self, more: &str) {
        let old = self.arguments.len();
        self.arguments.push_str(more);
        self.growth.take(&self.arguments, old);
    }

    fn is_whole(&self) -> bool {
        let is_open = self.growth.depth > 0 || self.growth.in_string;
        let is_scalar = || self.arguments.len() <= MAX_SCALAR_BYTES && is_whole_json(&self.arguments);
        !self.name.is_empty() && !is_open && self.growth.closed.unwrap_or_else(is_scalar)
    }
}

/// A slot that never got a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nameless;

/// More than [`MAX_CALLS`] calls.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// All calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    last: Option<usize>,
}

impl Slots {
    /// Adds a fragment.
    pub(super) fn add(&mut self, fragment: Fragment<'_>) -> Result<Change, TooMany> {
        let id = fragment.id.filter(|id| !id.is_empty());
        let name = fragment.name.filter(|name| !name.is_empty());
        let arguments = fragment.arguments.unwrap_or_default();
        let at = match self.find(fragment.index, id.as_deref(), name.as_deref(), &arguments) {
            Some(at) => at,
            None if self.slots.len() >= MAX_CALLS => return Err(TooMany),
            None => {
                self.slots.push(Slot { index: fragment.index.unwrap_or(0), ..Slot::default() });
                self.slots.len() - 1
            }
        };
        self.last = Some(at);
        let slot = &mut self.slots[at];
        let mut change = Change { at, started: None, bytes: 0 };
        if slot.id.is_none() {
            slot.id = id.map(Cow::into_owned);
        }
        let first_name = slot.name.is_empty();
        if let Some(name) = name {
            // Assigned, never appended: some servers repeat the name in every fragment (B15).
            if first_name {
                slot.name = name.into_owned();
                change.started = Some(slot.name.clone());
            } else if slot.name == name && !arguments.is_empty() && slot.arguments == arguments && slot.is_whole() {
                // The whole call once more, as a summary.
                return Ok(change);
            }
        }
        change.bytes = arguments.len();
        slot.append(&arguments);
        Ok(change)
    }

    /// The slot that the fragment continues, or `None` when it opens a new one.
    fn find(&self, index: Option<i64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Option<usize> {
        let latest = |index: i64| self.slots.iter().rposition(|slot| slot.index == index);
        if let Some(id) = id {
            let same_id = |slot: &Slot| slot.id.as_deref() == Some(id) && index.is_none_or(|index| index == slot.index);
            if let Some(at) = self.slots.iter().rposition(same_id) {
                let slot = &self.slots[at];
                let more = name.is_some() && !arguments.is_empty() && slot.arguments != arguments && slot.is_whole();
                return (!more).then_some(at);
            }
        }
        let at = match index {
            Some(index) => latest(index)?,
            None if id.is_some() || name.is_some() => latest(0).or(self.last)?,
            None => self.last?,
        };
        let slot = &self.slots[at];
        let opens = match (id, name) {
            // Another id is another call, also at a used index (B11).
            (Some(_), _) if slot.id.is_some() => true,
            // A name after whole arguments, or another name, begins another call (B12).
            (_, Some(name)) => slot.is_whole() || (!slot.name.is_empty() && slot.name != name),
            _ => false,
        };
        (!opens).then_some(at)
    }

    /// True when nothing arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// True when every call has a name and whole arguments.
    pub(super) fn all_whole(&self) -> bool {
        self.slots.iter().all(|slot| !slot.name.is_empty() && is_whole_json(&slot.arguments))
    }

    /// The calls in order of arrival. `ended` says that the provider itself declared them finished: then arguments of
    /// which no byte was sent are the empty object. `cut` allows a last call that was cut before its name.
    pub(super) fn finish(self, names: &NameMap, ended: bool, cut: bool) -> Result<Vec<CompletedCall>, Nameless> {
        let mut calls: Vec<CompletedCall> = Vec::with_capacity(self.slots.len());
        for slot in self.slots {
            if slot.name.is_empty() {
                if cut || (slot.id.is_none() && slot.arguments.is_empty()) {
                    continue;
                }
                return Err(Nameless);
            }
            let arguments = if ended && slot.arguments.trim().is_empty() { "{}".to_owned() } else { slot.arguments };
            // An id that was used before pairs nothing; the caller makes one.
            let id = slot.id.filter(|id| calls.iter().all(|call| call.id.as_ref() != Some(id)));
            let whole = is_whole_json(&arguments);
            calls.push(CompletedCall { id, name: names.real(&slot.name).to_owned(), arguments, whole });
        }
        Ok(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A fragment of a server that repeats the name in each.
    fn fragment(arguments: &str) -> Fragment<'_> {
        Fragment { index: Some(0), id: None, name: Some("t".into()), arguments: Some(arguments.into()) }
    }

    #[test]
    fn i26_arguments_in_many_pieces_with_a_name_in_each_are_parsed_once() {
        // Parsing everything again for each piece is 80 GB for this; the test would not end.
        let mut slots = Slots::default();
        slots.add(fragment("{\"a\":\"")).unwrap();
        for _ in 0..200_000 {
            slots.add(fragment("[}\\\"")).unwrap();
        }
        slots.add(fragment("\"}")).unwrap();
        assert!(slots.all_whole());
        // What is whole is whole: the next fragment with a name is another call.
        assert_eq!(slots.add(fragment("{}")).unwrap().at, 1);
    }

    proptest! {
        #[test]
        fn growing_arguments_are_whole_when_a_parser_says_so(pieces in prop::collection::vec(r#"[{}\[\]",:1a\\ ]{0,3}|\{"a":|"b"\}|true"#, 0..8)) {
            let mut slot = Slot { name: "t".to_owned(), ..Slot::default() };
            for piece in pieces {
                slot.append(&piece);
                prop_assert_eq!(slot.is_whole(), is_whole_json(&slot.arguments), "{:?}", slot.arguments);
            }
        }
    }
}
