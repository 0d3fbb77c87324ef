//! The items of an answer as they go back: what a sidecar of this wire holds, and how it is read again.
//!
//! A sidecar is a JSON list of items in the order in which they came. Reasoning (and any other opaque item) stands there as
//! it was received, every member byte for byte, but for the server's `id` (which means nothing to a server that stores
//! nothing) and members that are null. A message stands there as it will be sent. Of a call there is only its place: name
//! and arguments are those of the history. It is written when an answer says more than text and calls can: opaque items,
//! and messages with a phase.

use serde_json::value::RawValue;

use crate::chat::ToolCall;
use crate::json::{Members, items, read};
use crate::mode::responses::event::{Item, Kind};
use crate::mode::responses::slots::Slot;

/// What stands between two messages of one answer.
pub(super) const BETWEEN: &str = "\n\n";
/// The place of a call.
const CALL: &str = "{\"type\":\"function_call\"}";

/// An item as it goes back: every member byte for byte, but for the id and nulls. `None` for what has no other member.
pub(super) fn without_id(raw: &RawValue) -> Option<String> {
    let members = Members::read(raw.get())?;
    let mut out = String::with_capacity(raw.get().len());
    for (key, value) in members.0 {
        if key == "id" || value.get() == "null" {
            continue;
        }
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(&json(&key));
        out.push(':');
        out.push_str(value.get());
    }
    if out.is_empty() {
        return None;
    }
    out.push('}');
    Some(out)
}

/// A message of the model.
pub(super) fn message(text: &str, phase: Option<&str>) -> String {
    let mut out =
        String::from("{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":");
    out.push_str(&json(text));
    out.push_str("}]");
    if let Some(phase) = phase {
        out.push_str(",\"phase\":");
        out.push_str(&json(phase));
    }
    out.push('}');
    out
}

/// A text as JSON; cannot fail for a string.
fn json(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

/// The sidecar's bytes; `None` when text and calls say everything.
pub(super) fn sidecar<'a>(slots: impl Iterator<Item = &'a Slot>) -> Option<String> {
    let mut is_needed = false;
    let mut out = String::from("[");
    for slot in slots {
        let item = match (slot.kind, &slot.raw) {
            (Kind::Reasoning | Kind::Other, Some(raw)) => raw.clone(),
            (Kind::Message, _) if !slot.text.is_empty() => message(&slot.text, slot.phase.as_deref()),
            (Kind::Call, _) if slot.call.is_some() => CALL.to_owned(),
            _ => continue,
        };
        is_needed |= slot.raw.is_some() || slot.phase.is_some();
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&item);
    }
    out.push(']');
    is_needed.then_some(out)
}

/// One item of an answer that goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// The exact bytes.
    Raw(&'a str),
    /// A call of the history.
    Call(&'a ToolCall),
}

/// The items of a sidecar, when it speaks of this text and of this number of calls; `None` for anything else.
pub(super) fn read_sidecar<'a>(bytes: &'a [u8], text: &str, calls: &'a [ToolCall]) -> Option<Vec<Piece<'a>>> {
    let raws: Vec<&RawValue> = serde_json::from_slice(bytes).ok()?;
    let mut pieces = Vec::with_capacity(raws.len());
    let mut said = String::new();
    let mut left = calls.iter();
    // Reasoning that nothing follows is refused, so it stays behind.
    let mut end = 0;
    for raw in raws {
        let item: Item<'_> = read(Some(raw));
        let kind = item.kind();
        pieces.push(match kind {
            Kind::Call => Piece::Call(left.next()?),
            _ => Piece::Raw(raw.get()),
        });
        if kind == Kind::Message && !item.is_thought() {
            if !said.is_empty() {
                said.push_str(BETWEEN);
            }
            said.push_str(&item.message().0);
        }
        if matches!(kind, Kind::Call | Kind::Message) {
            end = pieces.len();
        }
    }
    if left.next().is_some() || said.trim() != text.trim() {
        return None;
    }
    pieces.truncate(end);
    Some(pieces)
}

/// The items of the list in a whole answer, in order.
pub(super) fn output<'a>(list: Option<&'a RawValue>) -> impl Iterator<Item = (Item<'a>, &'a RawValue)> {
    items(list).into_iter().map(|raw| (read(Some(raw)), raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i19_an_item_keeps_its_bytes_but_for_the_id_and_nulls() {
        let check = |json: &str, expect: Option<&str>| {
            let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
            assert_eq!(without_id(&raw).as_deref(), expect, "{json}");
        };
        check(
            r#"{ "id":"rs_1", "type":"reasoning", "summary":[ {"id":"kept","n":1.50} ],"encrypted_content":"gA\u0041=" }"#,
            Some(r#"{"type":"reasoning","summary":[ {"id":"kept","n":1.50} ],"encrypted_content":"gA\u0041="}"#),
        );
        check(r#"{"type":"reasoning","id":null,"status":null,"content":null}"#, Some(r#"{"type":"reasoning"}"#));
        check(r#"{"status":"completed","type":"x"}"#, Some(r#"{"status":"completed","type":"x"}"#));
        check(r#"{"id":"only"}"#, None);
        check("[1]", None);
    }

    #[test]
    fn a_sidecar_is_read_only_for_the_answer_that_it_is_of() {
        let reasoning = r#"{"type":"reasoning","encrypted_content":"E"}"#;
        let thought = message("hm", Some("commentary"));
        let first = message("hi", None);
        let last = message("you", Some("final_answer"));
        let bytes = format!("[{reasoning},{thought},{first},{CALL},{last},{reasoning}]");
        let call = |id: &str| ToolCall { id: id.into(), name: "t".into(), arguments: "{}".into() };
        let calls = [call("a"), call("b")];
        let read = |text: &str, calls| read_sidecar(bytes.as_bytes(), text, calls);
        let expect = [
            Piece::Raw(reasoning),
            Piece::Raw(&thought),
            Piece::Raw(&first),
            Piece::Call(&calls[0]),
            Piece::Raw(&last),
        ];
        assert_eq!(read("hi\n\nyou", &calls[..1]).unwrap(), expect, "nothing follows the last reasoning");
        for (text, calls) in
            [("hi\n\nyou", &calls[..0]), ("hi\n\nyou", &calls), ("hi you", &calls[..1]), ("", &calls[..1])]
        {
            assert_eq!(read(text, calls), None, "{text:?}");
        }
        for bytes in ["", "{}", "{\"reasoning_details\":[]}", "[", "[1]"] {
            assert_eq!(read_sidecar(bytes.as_bytes(), "x", &[]), None, "{bytes}");
        }
    }
}
