//! Rows of the Python program as rows of ours.
//!
//! There a call and its result are two rows that name each other, or not; here a round is one thing. A result is looked
//! for among the tool rows right behind its call, in the same state. What has no counterpart gets one that says so.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::Notes;
use super::decode::{self, RawCall};
use crate::history::minted;
use crate::ids::{CallId, InvalidId, MessageId, SessionId, TurnId};
use crate::limits::{IMPORT_PARTS_MAX_BYTES, ROUND_MAX_CALLS};
use crate::message::{MessageKind, Role, RowState};
use crate::round::{CallOutcome, ReplaySafety};
use crate::transfer::bundle::{BundleAnswer, BundleCall, BundleRow, BundleSidecar, Exact};

/// How many rows behind a round are looked at for its results.
const LOOKAHEAD_ROWS: usize = ROUND_MAX_CALLS;
/// Opaque provider state that came from the Python program: its form is not ours, so it is kept and replayed to nobody.
const ISSUER: &str = "python";
/// The name of a tool that nobody wrote down.
const NAMELESS_TOOL: &str = "unknown";
/// A result had no call.
pub(super) const ADDED_CALL: &str = "results without a call (a row with the call was added)";
/// A call had no result.
pub(super) const ADDED_RESULT: &str = "calls without a result (a result that says so was added)";

/// A row as it was read.
#[derive(Debug, Clone, Default)]
pub(super) struct RawRow {
    pub(super) id: i64,
    pub(super) role: String,
    /// 0 live, 1 compacted, 2 rewound.
    pub(super) state: i64,
    pub(super) content: Option<Vec<u8>>,
    pub(super) api_content: Option<Vec<u8>>,
    pub(super) tool_call_id: Option<String>,
    pub(super) tool_calls: Option<String>,
    pub(super) tool_name: Option<String>,
    pub(super) timestamp: Option<f64>,
    pub(super) finish_reason: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) reasoning_content: Option<String>,
    pub(super) reasoning_details: Option<String>,
    pub(super) codex_reasoning_items: Option<String>,
    pub(super) codex_message_items: Option<String>,
    pub(super) platform_message_id: Option<String>,
    pub(super) effect_disposition: Option<String>,
    pub(super) display_kind: Option<String>,
    pub(super) display_metadata: Option<String>,
    pub(super) observed: bool,
    pub(super) is_summary: bool,
    /// The row of an earlier session of the chain that this is a copy of.
    pub(super) copy_of: Option<i64>,
}

/// Makes ids that are the same in every run: of the store, a word, and a row.
#[derive(Debug, Clone)]
pub(super) struct Ids {
    pub(super) store: String,
}

impl Ids {
    fn text(&self, word: &str, id: &str) -> String {
        minted("py", &[&self.store, word, id])
    }

    pub(super) fn session(&self, id: &str) -> Result<SessionId, InvalidId> {
        SessionId::parse(id).or_else(|_| SessionId::parse(&self.text("session", id)))
    }

    pub(super) fn message(&self, row: i64) -> Result<MessageId, InvalidId> {
        MessageId::parse(&self.text("row", &row.to_string()))
    }

    fn made(&self, word: &str, row: i64, number: usize) -> Result<MessageId, InvalidId> {
        MessageId::parse(&self.text(word, &format!("{row} {number}")))
    }

    /// The call that the tool row `row` answers.
    fn call(&self, row: i64) -> Result<CallId, InvalidId> {
        CallId::parse(&self.text("call", &row.to_string()))
    }

    fn unanswered(&self, row: i64, number: usize) -> Result<CallId, InvalidId> {
        CallId::parse(&self.text("unanswered", &format!("{row} {number}")))
    }

    pub(super) fn turn(&self, session: &str, row: i64) -> Result<TurnId, InvalidId> {
        TurnId::parse(&self.text("turn", &format!("{row} {session}")))
    }
}

/// Makes the rows of one session.
pub(super) struct Maker<'a> {
    pub(super) ids: &'a Ids,
    pub(super) session_name: String,
    pub(super) session: SessionId,
    pub(super) turn: TurnId,
    /// The time of the last row whose time was believed.
    pub(super) last_ms: i64,
}

impl Maker<'_> {
    /// Takes the first rows of `buffer` that belong together, and returns what they are here. Nothing when more rows
    /// must be read to tell; with `is_all` there are none.
    pub(super) fn take(
        &mut self,
        buffer: &mut VecDeque<RawRow>,
        is_all: bool,
        notes: &mut Notes,
    ) -> Result<Option<Vec<BundleRow>>, InvalidId> {
        let Some(first) = buffer.front() else { return Ok(None) };
        let calls = self.calls_of(first, notes);
        if calls.is_empty() {
            let Some(row) = buffer.pop_front() else { return Ok(None) };
            return match row.role.as_str() {
                "tool" => self.lost_result(row, notes).map(Some),
                _ => Ok(Some(vec![self.plain(row, notes)?])),
            };
        }
        let Some(found) = results(&calls, buffer, is_all) else { return Ok(None) };
        // From the back, so that the places before stay.
        let mut at: Vec<usize> = found.iter().flatten().copied().collect();
        at.sort_unstable();
        let mut taken = Vec::with_capacity(at.len());
        for place in at.iter().rev() {
            if let Some(row) = buffer.remove(*place) {
                taken.push((*place, row));
            }
        }
        let Some(row) = buffer.pop_front() else { return Ok(None) };
        let mut answers: Vec<Option<RawRow>> = Vec::with_capacity(found.len());
        for place in &found {
            let row = place.and_then(|place| taken.iter().position(|(at, _)| *at == place));
            answers.push(row.map(|at| taken.swap_remove(at).1));
        }
        self.round(row, calls, answers, notes).map(Some)
    }

    fn calls_of(&self, row: &RawRow, notes: &mut Notes) -> Vec<RawCall> {
        if row.role != "assistant" {
            return Vec::new();
        }
        let Some(text) = row.tool_calls.as_deref().filter(|text| !text.trim().is_empty()) else { return Vec::new() };
        match decode::calls(text) {
            Some(calls) if calls.len() <= ROUND_MAX_CALLS => calls,
            _ => {
                notes.add("rows whose calls cannot be read (kept as they are, among the facts of the row)");
                Vec::new()
            }
        }
    }

    fn round(
        &mut self,
        row: RawRow,
        calls: Vec<RawCall>,
        answers: Vec<Option<RawRow>>,
        notes: &mut Notes,
    ) -> Result<Vec<BundleRow>, InvalidId> {
        // A copied round shows the calls of the first one; it must be a copy as a whole.
        let is_copy = row.copy_of.is_some() && answers.iter().all(|a| a.as_ref().is_some_and(|a| a.copy_of.is_some()));
        let number = row.id;
        let mut assistant = self.row(row, is_copy, notes)?;
        let mut out = Vec::with_capacity(answers.len() + 1);
        for (index, (call, answer)) in calls.into_iter().zip(answers).enumerate() {
            let id = match &answer {
                Some(answer) => self.ids.call(answer.id)?,
                None => self.ids.unanswered(number, index)?,
            };
            let result = match &answer {
                Some(answer) => self.ids.message(answer.id)?,
                None => self.ids.made("no result", number, index)?,
            };
            let named = answer.as_ref().and_then(|a| a.tool_call_id.clone()).filter(|id| call.ids.contains(id));
            let provider_id = named.or_else(|| call.ids.first().cloned());
            if answer.is_none() {
                notes.add(ADDED_RESULT);
            }
            if let Some(answer) = answer {
                let root = if is_copy { answer.copy_of } else { None };
                let outcome = outcome_of(&answer);
                let call = self.ids.call(root.unwrap_or(answer.id))?;
                let mut row = self.row(answer, is_copy, notes)?;
                row.answers = Some(BundleAnswer { call, outcome });
                out.push(row);
            }
            if !is_copy {
                assistant.calls.push(BundleCall {
                    provider_id: provider_id.unwrap_or_else(|| id.as_str().to_owned()),
                    id,
                    result,
                    name: call.name,
                    arguments: call.arguments,
                    replay: ReplaySafety::Once,
                    open: None,
                });
            }
        }
        out.insert(0, assistant);
        Ok(out)
    }

    /// A result whose call is not there: gets a row with the call.
    fn lost_result(&mut self, row: RawRow, notes: &mut Notes) -> Result<Vec<BundleRow>, InvalidId> {
        let id = self.ids.call(row.id)?;
        let name = row.tool_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| NAMELESS_TOOL.to_owned());
        let provider_id = row.tool_call_id.clone().filter(|id| !id.is_empty());
        let (number, outcome) = (row.id, outcome_of(&row));
        let mut result = self.row(RawRow { copy_of: None, ..row }, false, notes)?;
        result.answers = Some(BundleAnswer { call: id.clone(), outcome });
        let call = BundleCall {
            provider_id: provider_id.unwrap_or_else(|| id.as_str().to_owned()),
            id,
            result: result.id.clone(),
            name,
            arguments: "{}".to_owned(),
            replay: ReplaySafety::Once,
            open: None,
        };
        let added = BundleRow {
            id: self.ids.made("no call", number, 0)?,
            role: Role::Assistant,
            content: String::new(),
            calls: vec![call],
            answers: None,
            meta: Some(serde_json::json!({"import": "the call of this result was not stored"})),
            reasoning: None,
            ..result.clone()
        };
        notes.add(ADDED_CALL);
        Ok(vec![added, result])
    }

    fn plain(&mut self, row: RawRow, notes: &mut Notes) -> Result<BundleRow, InvalidId> {
        let is_copy = row.copy_of.is_some();
        if row.role == "user" && (row.state == 0 || row.display_kind.is_none()) {
            self.turn = self.ids.turn(&self.session_name, row.id)?;
        }
        self.row(row, is_copy, notes)
    }

    /// One row, without its calls and without what it answers.
    #[expect(clippy::needless_pass_by_value, reason = "most of the row moves into the new one")]
    fn row(&mut self, row: RawRow, is_copy: bool, notes: &mut Notes) -> Result<BundleRow, InvalidId> {
        let role = match row.role.as_str() {
            "user" => Role::User,
            "tool" => Role::Tool,
            _ => Role::Assistant,
        };
        let created_at_ms = decode::time_ms(row.timestamp).unwrap_or_else(|| {
            notes.add("rows with an impossible time (that of the row before was taken)");
            self.last_ms
        });
        self.last_ms = created_at_ms;
        let (raw, scrubbed) = decode::text(row.content.clone().unwrap_or_default());
        if scrubbed {
            notes.add("rows with text that is no UTF-8 (the bad bytes were replaced)");
        }
        let content = decode::content(raw);
        let api = row.api_content.clone().filter(|api| api.as_slice() != content.text.as_bytes());
        let copy_of = if is_copy { row.copy_of.map(|first| self.ids.message(first)).transpose()? } else { None };
        Ok(BundleRow {
            id: self.ids.message(row.id)?,
            session: self.session.clone(),
            turn: self.turn.clone(),
            role,
            kind: kind_of(&row, role),
            state: state_of(row.state),
            copy_of,
            api_content: api.map(|api| Exact(Bytes::from(api))),
            reasoning: row.reasoning.clone().or_else(|| row.reasoning_content.clone()).filter(|text| !text.is_empty()),
            sidecar: sidecar_of(&row),
            finish: row.finish_reason.clone(),
            calls: Vec::new(),
            answers: None,
            meta: meta_of(&row, content.parts, notes),
            content: content.text,
            created_at_ms,
        })
    }
}

/// Where the result of each call stands in `buffer`, whose first row has the calls. Nothing when more rows are needed.
fn results(calls: &[RawCall], buffer: &VecDeque<RawRow>, is_all: bool) -> Option<Vec<Option<usize>>> {
    let mut found: Vec<Option<usize>> = vec![None; calls.len()];
    let state = buffer.front()?.state;
    let mut nameless = Vec::new();
    for at in 1..=LOOKAHEAD_ROWS {
        if found.iter().all(Option::is_some) {
            return Some(found);
        }
        let Some(row) = buffer.get(at) else {
            if !is_all {
                return None;
            }
            break;
        };
        if row.state != state {
            continue;
        }
        if row.role != "tool" {
            break;
        }
        let Some(id) = row.tool_call_id.as_deref().filter(|id| !id.is_empty()) else {
            nameless.push(at);
            continue;
        };
        let open =
            calls.iter().zip(&found).position(|(call, held)| held.is_none() && call.ids.iter().any(|own| own == id));
        if let Some(open) = open {
            found[open] = Some(at);
        }
    }
    // Results without an id answer the calls that are left, in order.
    let mut nameless = nameless.into_iter();
    for held in found.iter_mut().filter(|held| held.is_none()) {
        *held = nameless.next();
    }
    Some(found)
}

fn state_of(state: i64) -> RowState {
    match state {
        0 => RowState::Active,
        1 => RowState::Compacted,
        _ => RowState::Superseded,
    }
}

fn kind_of(row: &RawRow, role: Role) -> MessageKind {
    match (role, row.is_summary, row.display_kind.as_deref()) {
        (Role::Tool, ..) => MessageKind::Normal,
        (_, true, _) => MessageKind::Summary,
        (_, _, Some("hidden")) => MessageKind::Hidden,
        _ => MessageKind::Normal,
    }
}

fn outcome_of(row: &RawRow) -> CallOutcome {
    match row.effect_disposition.as_deref() {
        Some("unknown") => CallOutcome::OutcomeUnknown,
        _ => CallOutcome::Ok,
    }
}

/// Signed thinking and the like, as the columns held it.
fn sidecar_of(row: &RawRow) -> Option<BundleSidecar> {
    let mut fields = Map::new();
    for (name, text) in [
        ("reasoning_content", &row.reasoning_content),
        ("reasoning_details", &row.reasoning_details),
        ("codex_reasoning_items", &row.codex_reasoning_items),
        ("codex_message_items", &row.codex_message_items),
    ] {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty() && *text != "null") {
            fields.insert(name.to_owned(), Value::String(text.to_owned()));
        }
    }
    if fields.is_empty() {
        return None;
    }
    Some(BundleSidecar { issuer: ISSUER.to_owned(), bytes: Exact(Bytes::from(Value::Object(fields).to_string())) })
}

/// What a row says beside its text.
fn meta_of(row: &RawRow, parts: Option<Value>, notes: &mut Notes) -> Option<Value> {
    let mut facts = Map::new();
    let mut text = |name: &str, value: &Option<String>| {
        if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), Value::String(value.to_owned()));
        }
    };
    text("platform_message_id", &row.platform_message_id);
    text("effect_disposition", &row.effect_disposition);
    text("display_kind", &row.display_kind);
    if row.role == "assistant"
        && let Some(raw) = row.tool_calls.as_ref().filter(|raw| !raw.trim().is_empty() && decode::calls(raw).is_none())
    {
        facts.insert("tool_calls".to_owned(), Value::String(raw.clone()));
    }
    if let Some(raw) = row.display_metadata.as_deref().filter(|raw| !raw.is_empty()) {
        let value = decode::json_layers(raw).unwrap_or_else(|| Value::String(raw.to_owned()));
        if !value.is_null() {
            facts.insert("display".to_owned(), value);
        }
    }
    if row.observed {
        facts.insert("observed".to_owned(), Value::Bool(true));
    }
    if let Some(parts) = parts {
        // Only a part of what is kept as facts; pictures can be as large as they like.
        if parts.to_string().len() <= IMPORT_PARTS_MAX_BYTES {
            facts.insert("parts".to_owned(), parts);
        } else {
            notes.add("rows with pictures or files over the limit (their text is kept)");
        }
    }
    (!facts.is_empty()).then_some(Value::Object(facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(id: i64, role: &str, content: &str) -> RawRow {
        RawRow {
            id,
            role: role.to_owned(),
            content: Some(content.as_bytes().to_vec()),
            timestamp: Some(1_700_000_000.0),
            ..RawRow::default()
        }
    }

    fn calling(id: i64, calls: &[&str]) -> RawRow {
        let calls: Vec<Value> = calls
            .iter()
            .map(|id| serde_json::json!({"id": id, "function": {"name": "f", "arguments": "{}"}}))
            .collect();
        RawRow { tool_calls: Some(Value::Array(calls).to_string()), ..raw(id, "assistant", "") }
    }

    fn result(id: i64, call: &str) -> RawRow {
        RawRow { tool_call_id: Some(call.to_owned()), ..raw(id, "tool", &format!("result {id}")) }
    }

    fn make(rows: Vec<RawRow>) -> (Vec<BundleRow>, Notes) {
        let ids = Ids { store: "s".to_owned() };
        let mut maker = Maker {
            ids: &ids,
            session_name: "s".to_owned(),
            session: SessionId::parse("s").unwrap(),
            turn: TurnId::parse("t").unwrap(),
            last_ms: 7,
        };
        let mut buffer: VecDeque<RawRow> = rows.into();
        let (mut out, mut notes) = (Vec::new(), Notes::default());
        while let Some(rows) = maker.take(&mut buffer, true, &mut notes).unwrap() {
            out.extend(rows);
        }
        (out, notes)
    }

    fn shape(rows: &[BundleRow]) -> Vec<String> {
        rows.iter()
            .map(|row| match (&row.answers, row.calls.len()) {
                (Some(_), _) => format!("= {}", row.content),
                (None, 0) => format!("{} {}", row.role.as_str(), row.content),
                (None, calls) => format!("{} calls {calls}", row.role.as_str()),
            })
            .collect()
    }

    #[test]
    fn i13_results_stand_in_the_order_of_their_calls() {
        let (rows, notes) = make(vec![calling(1, &["a", "b"]), result(2, "b"), result(3, "a"), raw(4, "user", "on")]);
        assert_eq!(shape(&rows), ["assistant calls 2", "= result 3", "= result 2", "user on"]);
        assert_eq!(notes, Notes::default());
        assert_eq!(rows[0].calls[0].result, rows[1].id);
        assert_eq!(rows[0].calls[1].provider_id, "b");
        assert_eq!(rows[1].answers.as_ref().unwrap().call, rows[0].calls[0].id);
    }

    #[test]
    fn i14_calls_and_results_that_lost_each_other_are_told() {
        let (rows, notes) = make(vec![
            result(1, "gone"),
            calling(2, &["a", "b"]),
            result(3, "b"),
            raw(4, "user", "on"),
            result(5, "a"),
        ]);
        assert_eq!(
            shape(&rows),
            [
                "assistant calls 1",
                "= result 1",
                "assistant calls 2",
                "= result 3",
                "user on",
                "assistant calls 1",
                "= result 5"
            ]
        );
        assert_eq!((notes.0.get(ADDED_CALL), notes.0.get(ADDED_RESULT)), (Some(&2), Some(&1)));
    }

    #[test]
    fn a_rewound_round_between_a_call_and_its_result_is_no_obstacle() {
        let undone = |row: RawRow| RawRow { state: 2, ..row };
        let (rows, notes) =
            make(vec![calling(1, &["a"]), undone(calling(2, &["a"])), result(3, "a"), undone(result(4, "a"))]);
        assert_eq!(shape(&rows), ["assistant calls 1", "= result 3", "assistant calls 1", "= result 4"]);
        assert_eq!(rows[3].state, RowState::Superseded);
        assert_eq!(notes, Notes::default());
    }

    #[test]
    fn results_without_an_id_answer_in_order() {
        let (rows, _) = make(vec![calling(1, &["a", "b"]), raw(2, "tool", "one"), raw(3, "tool", "two")]);
        assert_eq!(shape(&rows), ["assistant calls 2", "= one", "= two"]);
    }

    #[test]
    fn more_rows_are_asked_for_until_a_round_is_whole() {
        let ids = Ids { store: "s".to_owned() };
        let mut maker = Maker {
            ids: &ids,
            session_name: "s".to_owned(),
            session: SessionId::parse("s").unwrap(),
            turn: TurnId::parse("t").unwrap(),
            last_ms: 7,
        };
        let mut buffer: VecDeque<RawRow> = vec![calling(1, &["a"])].into();
        let mut notes = Notes::default();
        assert_eq!(maker.take(&mut buffer, false, &mut notes).unwrap(), None);
        buffer.push_back(result(2, "a"));
        assert_eq!(maker.take(&mut buffer, false, &mut notes).unwrap().unwrap().len(), 2);
    }

    #[test]
    fn a_copied_round_answers_the_calls_of_the_first_one() {
        let copy = |row: RawRow, of| RawRow { copy_of: Some(of), ..row };
        let (rows, _) = make(vec![
            calling(1, &["a"]),
            result(2, "a"),
            copy(calling(11, &["a"]), 1),
            copy(result(12, "a"), 2),
            copy(calling(21, &["a"]), 1),
            result(22, "a"),
        ]);
        assert_eq!(rows[2].copy_of.as_ref(), Some(&rows[0].id));
        assert_eq!(rows[3].answers, rows[1].answers);
        assert!(rows[2].calls.is_empty());
        // Half a copy is none.
        assert_eq!((rows[4].copy_of.clone(), rows[4].calls.len()), (None, 1));
    }

    #[test]
    fn what_a_row_says_beside_its_text_is_kept() {
        let row = RawRow {
            display_metadata: Some("\"{\\\"a\\\": 1}\"".to_owned()),
            display_kind: Some("notice".to_owned()),
            observed: true,
            platform_message_id: Some("p1".to_owned()),
            timestamp: Some(-3.0),
            api_content: Some(b"sent".to_vec()),
            ..raw(1, "user", "said")
        };
        let (rows, notes) = make(vec![row]);
        assert_eq!(
            rows[0].meta,
            Some(serde_json::json!({
                "platform_message_id": "p1", "display_kind": "notice", "display": {"a": 1}, "observed": true
            }))
        );
        assert_eq!((rows[0].created_at_ms, notes.0.len()), (7, 1));
        assert_eq!(rows[0].api_content, Some(Exact(Bytes::from("sent"))));
        let broken = RawRow { tool_calls: Some("{nonsense".to_owned()), ..raw(2, "assistant", "x") };
        assert_eq!(make(vec![broken]).0[0].meta, Some(serde_json::json!({"tool_calls": "{nonsense"})));
    }
}
