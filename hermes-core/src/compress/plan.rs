//! What a compression keeps and what it summarises.
//!
//! The history is cut between *units*: a row, or an assistant row with all results of its calls; what the program said to
//! the model about it ([`crate::nudge`]) belongs to it. A unit is never split, so that whatever the plan is, every call
//! keeps its result (I13), and a model that is told to go on sees with what.

use hermes_store::{MessageKind, Role, StoredMessage};

use super::CompressionSettings;
use crate::tokens;

/// The tail's share of the window: 2.5 percent, in per mille.
const TAIL_PER_MILLE: u64 = 25;
/// Least and most tokens of the tail before the soft ceiling (engine reference, 7.4).
const TAIL_MIN_TOKENS: u64 = 10_000;
const TAIL_MAX_TOKENS: u64 = 25_000;
/// The tail never takes more of the window than this, in percent.
const TAIL_WINDOW_PERCENT: u64 = 20;
/// Least rows of the tail, where they fit under the ceiling.
const TAIL_MIN_ROWS: usize = 3;
/// Most rows that `protect_last` asks for beyond the tail's budget.
const TAIL_FLOOR_ROWS: usize = 8;

const _: () = assert!(TAIL_MIN_TOKENS <= TAIL_MAX_TOKENS);

/// Where the history is cut: `rows[..head]` and `rows[tail..]` stay, what is between them is summarised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Rows of the head.
    pub head: usize,
    /// First row of the tail.
    pub tail: usize,
}

/// A row or a round: `rows[from..to]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    from: usize,
    to: usize,
    tokens: u64,
}

/// Plans a compression, or says that there is nothing to compress: the middle must hold at least one unit that is not
/// a summary already.
pub(crate) fn plan(rows: &[StoredMessage], settings: &CompressionSettings, window: u64) -> Option<Plan> {
    let units = units(rows);
    let head_units = head(rows, &units, settings);
    let tail_units = tail(rows, &units, settings, window, head_units);
    let middle = units.get(head_units..tail_units).filter(|middle| !middle.is_empty())?;
    let is_new = middle.iter().any(|unit| rows[unit.from..unit.to].iter().any(|row| row.kind != MessageKind::Summary));
    let edge = |index: usize| units.get(index).map_or(rows.len(), |unit| unit.from);
    is_new.then(|| Plan { head: edge(head_units), tail: edge(tail_units) })
}

fn units(rows: &[StoredMessage]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut open = 0;
    for (index, row) in rows.iter().enumerate() {
        let tokens = tokens::of_row(row, None);
        let is_result = open > 0 && row.role == Role::Tool;
        let is_nudge = row.role == Role::User && row.kind == MessageKind::Hidden;
        match units.last_mut().filter(|_| is_result || is_nudge) {
            Some(unit) => {
                unit.to = index + 1;
                unit.tokens += tokens;
                open -= usize::from(is_result);
            }
            None => {
                units.push(Unit { from: index, to: index + 1, tokens });
                open = row.calls.len();
            }
        }
    }
    units
}

/// Units at the start that stay. Nothing of a history that holds a summary: it was compressed before. A head that ends
/// with a user row gives it to the middle: the summary speaks as the user, and two user messages in a row are refused by
/// strict providers.
fn head(rows: &[StoredMessage], units: &[Unit], settings: &CompressionSettings) -> usize {
    if rows.iter().any(|row| row.kind == MessageKind::Summary) {
        return 0;
    }
    let mut count = units.iter().take_while(|unit| unit.to <= settings.protect_first).count();
    while count > 0 && rows[units[count - 1].to - 1].role == Role::User {
        count -= 1;
    }
    count
}

/// The first unit of the tail. It holds as many of the last units as its budget allows, and at least: the newest unit,
/// the last row that a person wrote, and what follows it, unless that alone is over the ceiling (one long turn).
fn tail(rows: &[StoredMessage], units: &[Unit], settings: &CompressionSettings, window: u64, head: usize) -> usize {
    let ceiling_by_window = window.saturating_mul(TAIL_WINDOW_PERCENT) / 100;
    let budget = (window.saturating_mul(TAIL_PER_MILLE) / 1_000).clamp(TAIL_MIN_TOKENS, TAIL_MAX_TOKENS);
    let budget = budget.min(ceiling_by_window);
    let ceiling = (budget + budget / 2).min(ceiling_by_window);
    let least_rows = settings.protect_last.clamp(TAIL_MIN_ROWS, TAIL_FLOOR_ROWS);
    let asked = units.iter().rposition(|unit| is_asked(&rows[unit.from]));
    let (mut first, mut tokens) = (units.len(), 0_u64);
    while first > head {
        let next = &units[first - 1];
        let rows_now = units.get(first).map_or(0, |unit| rows.len() - unit.from);
        let with_next = tokens.saturating_add(next.tokens);
        let wanted = with_next <= budget || rows_now < least_rows || asked.is_some_and(|asked| asked < first);
        let is_newest = first == units.len();
        if !is_newest && (!wanted || with_next > ceiling) {
            break;
        }
        first -= 1;
        tokens = with_next;
    }
    first
}

/// A row that a person wrote, as far as a summary must not stand for it.
pub(crate) fn is_asked(row: &StoredMessage) -> bool {
    row.role == Role::User && matches!(row.kind, MessageKind::Normal | MessageKind::Steer)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hermes_store::{
        CallId, CallOutcome, JournalState, MessageId, ReplaySafety, RowState, SessionId, StoredCall, TurnId,
    };

    pub(crate) fn row(number: i64, role: Role, content: &str) -> StoredMessage {
        StoredMessage {
            seq: number,
            id: MessageId::parse(&format!("m{number}")).unwrap(),
            session: SessionId::parse("s").unwrap(),
            turn: TurnId::parse("t").unwrap(),
            role,
            kind: MessageKind::Normal,
            state: RowState::Active,
            content: content.to_owned(),
            api_content: None,
            reasoning: None,
            sidecar: None,
            finish: None,
            calls: Vec::new(),
            answers: None,
            meta: None,
            copy_of: None,
            created_at_ms: number,
        }
    }

    fn call(number: i64, index: usize) -> StoredCall {
        StoredCall {
            call: CallId::parse(&format!("c{number}-{index}")).unwrap(),
            provider_id: format!("p{number}-{index}"),
            name: "read_file".to_owned(),
            arguments: "{}".to_owned(),
            replay: ReplaySafety::Pure,
            state: JournalState::Settled,
            outcome: Some(CallOutcome::Ok),
        }
    }

    /// A round of `calls` calls with results of `size` characters, from row `number` on.
    pub(crate) fn round(number: i64, calls: usize, size: usize) -> Vec<StoredMessage> {
        let made: Vec<_> = (0..calls).map(|index| call(number, index)).collect();
        let mut rows = vec![StoredMessage { calls: made.clone(), ..row(number, Role::Assistant, "") }];
        for (at, call) in (number + 1..).zip(made) {
            rows.push(StoredMessage { answers: Some(call), ..row(at, Role::Tool, &"r".repeat(size)) });
        }
        rows
    }

    /// Questions and answers of `size` characters.
    pub(crate) fn chat(pairs: i64, size: usize) -> Vec<StoredMessage> {
        (0..pairs)
            .flat_map(|pair| {
                [
                    row(pair * 2 + 1, Role::User, &"q".repeat(size)),
                    row(pair * 2 + 2, Role::Assistant, &"a".repeat(size)),
                ]
            })
            .collect()
    }

    const WINDOW: u64 = 131_072;

    #[test]
    fn e36_head_and_tail_stay_and_the_middle_is_summarised() {
        let rows = chat(100, 4_000);
        let plan = plan(&rows, &CompressionSettings::default(), WINDOW).unwrap();
        // The head would end with a user row at 3; it ends with the answer before it.
        assert_eq!(plan.head, 2);
        assert!(plan.tail > plan.head && plan.tail < rows.len());
        assert!(rows.len() - plan.tail >= TAIL_MIN_ROWS);
        let tail = tokens::of_rows(&rows[plan.tail..]);
        assert!(tail <= TAIL_MIN_TOKENS * 3 / 2, "{tail}");
    }

    #[test]
    fn e36_no_round_is_ever_split() {
        for calls in 1..6 {
            for size in [10, 3_000, 30_000] {
                let mut rows = chat(3, 2_000);
                let mut next = 10;
                for _ in 0..12 {
                    let round = round(next, calls, size);
                    next += 10;
                    rows.extend(round);
                }
                let Some(plan) = plan(&rows, &CompressionSettings::default(), WINDOW) else { continue };
                for edge in [plan.head, plan.tail] {
                    assert!(rows.get(edge).is_none_or(|row| row.role != Role::Tool), "{calls} calls of {size}");
                }
            }
        }
    }

    #[test]
    fn the_last_thing_that_was_asked_is_kept_word_for_word_where_it_fits() {
        let mut rows = chat(40, 4_000);
        rows.push(row(500, Role::User, "do this"));
        for number in 0..5 {
            rows.extend(round(510 + number * 10, 1, 3_000));
        }
        let plan = plan(&rows, &CompressionSettings::default(), WINDOW).unwrap();
        assert!(rows[plan.tail..].iter().any(|row| row.content == "do this"));
    }

    #[test]
    fn one_turn_that_is_larger_than_the_tail_is_cut_all_the_same() {
        let mut rows = vec![row(1, Role::User, "do this")];
        for number in 0..40 {
            rows.extend(round(10 + number * 10, 1, 20_000));
        }
        let plan = plan(&rows, &CompressionSettings::default(), WINDOW).unwrap();
        assert!(plan.tail > 10 && plan.tail < rows.len());
    }

    #[test]
    fn a_model_that_is_told_to_go_on_sees_with_what() {
        let mut rows = chat(40, 4_000);
        rows.push(row(500, Role::User, "tell"));
        for number in [510, 520] {
            let part = row(number, Role::Assistant, &"p".repeat(90_000));
            rows.push(StoredMessage { kind: MessageKind::Hidden, ..part });
            rows.push(StoredMessage { kind: MessageKind::Hidden, ..row(number + 1, Role::User, "go on") });
        }
        let plan = plan(&rows, &CompressionSettings::default(), WINDOW).unwrap();
        assert_eq!(plan.tail, rows.len() - 2, "the newest part, however long, and what was said to it");
    }

    #[test]
    fn a_short_history_or_one_that_is_only_a_summary_is_left_alone() {
        let settings = CompressionSettings::default();
        assert_eq!(plan(&[], &settings, WINDOW), None);
        assert_eq!(plan(&chat(2, 100), &settings, WINDOW), None);
        let mut rows = vec![StoredMessage { kind: MessageKind::Summary, ..row(1, Role::User, &"s".repeat(400_000)) }];
        rows.push(row(2, Role::User, "next"));
        assert_eq!(plan(&rows, &settings, WINDOW), None);
    }

    #[test]
    fn after_the_first_compression_nothing_of_the_head_is_kept() {
        let mut rows = vec![StoredMessage { kind: MessageKind::Summary, ..row(1, Role::User, "summary") }];
        rows.extend(chat(60, 4_000));
        assert_eq!(plan(&rows, &CompressionSettings::default(), WINDOW).unwrap().head, 0);
    }
}
