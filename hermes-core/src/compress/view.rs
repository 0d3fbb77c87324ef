//! The new history, and the proof that it may be committed.

use hermes_store::{Role, StoredMessage};

use super::plan::Plan;
use super::{prune, summary};
use crate::{image, projection, tokens};

/// A new history must be smaller than the old one by this share, in percent (engine reference, 7.3): what frees less would
/// be asked for again at once.
const FREED_MIN_PERCENT: u64 = 5;

/// The notes of a history that lost nothing but pictures.
const PICTURES_GONE: &str = "Nothing was left out of the conversation but pictures, which were too large to be sent again; a line stands in \
the place of each.";

/// One row of the new history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewPart {
    /// A row of the old history, by its index, with a shortened content where it was shortened.
    Carried {
        /// Index in the old rows.
        index: usize,
        /// The new content; `None` carries the row as it is.
        content: Option<String>,
    },
    /// The summary, as a row of the user.
    Summary {
        /// Its content.
        content: String,
    },
}

/// A new history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewView {
    /// Its rows, oldest first.
    pub rows: Vec<ViewPart>,
}

/// Why a new history may not be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewFault {
    /// It is not smaller than the old one, or hardly.
    #[error("the shortened history would hardly be smaller")]
    NotSmaller,
    /// A call has no result, or a result has no call.
    #[error("a call would lose its result")]
    PairBroken,
    /// The summary would be the last thing that the model is shown.
    #[error("nothing would be left but the summary")]
    NothingLeft,
}

/// Makes the new history of a plan and its notes.
pub(crate) fn build(rows: &[StoredMessage], plan: Plan, notes: &str) -> Result<NewView, ViewFault> {
    let (middle, tail) = (&rows[plan.head..plan.tail], &rows[plan.tail..]);
    let mut shortened = prune::shorten(tail);
    let pictures = prune::without_pictures(rows);
    shortened.extend(pictures.iter().filter_map(|(index, text)| Some((index.checked_sub(plan.tail)?, text.clone()))));
    let carried = |index: usize, content: Option<String>| ViewPart::Carried { index, content };
    let content = summary::content(notes, summary::open_request(middle, tail).as_deref());
    let mut view: Vec<ViewPart> = (0..plan.head).map(|index| carried(index, pictures.get(&index).cloned())).collect();
    view.push(ViewPart::Summary { content });
    view.extend((plan.tail..rows.len()).map(|index| carried(index, shortened.get(&(index - plan.tail)).cloned())));
    let new = NewView { rows: view };
    verify(rows, &new)?;
    Ok(new)
}

/// Makes a new history in which only pictures are missing; `None` when there is none that may go.
pub(crate) fn without_pictures(rows: &[StoredMessage]) -> Option<Result<NewView, ViewFault>> {
    let is_of_use = !prune::without_pictures(rows).is_empty();
    is_of_use.then(|| build(rows, Plan { head: 0, tail: 0 }, PICTURES_GONE))
}

/// Bytes of the pictures that a row shows.
fn picture_bytes(row: &StoredMessage) -> usize {
    if image::count(row) == 0 { 0 } else { row.sidecar.as_ref().map_or(0, |sidecar| sidecar.bytes.len()) }
}

/// Bytes of pictures in the new history.
fn pictures_left(rows: &[StoredMessage], view: &NewView) -> usize {
    let left = |part: &ViewPart| match part {
        ViewPart::Carried { index, content: None } => rows.get(*index).map_or(0, picture_bytes),
        _ => 0,
    };
    view.rows.iter().map(left).sum()
}

/// Sizes of the old history and of the new one, by the same estimate.
pub(crate) fn sizes(rows: &[StoredMessage], view: &NewView) -> (u64, u64) {
    (tokens::of_rows(rows), view.rows.iter().map(|row| row_tokens(rows, row)).sum())
}

fn row_tokens(rows: &[StoredMessage], row: &ViewPart) -> u64 {
    match row {
        ViewPart::Summary { content } => tokens::of_message(&projection::user(content.clone())),
        ViewPart::Carried { index, content } => {
            rows.get(*index).map_or(0, |row| tokens::of_row(row, content.as_deref()))
        }
    }
}

/// Checks a new history from the outside: it does not trust the plan that made it.
pub(crate) fn verify(rows: &[StoredMessage], view: &NewView) -> Result<(), ViewFault> {
    let (before, after) = sizes(rows, view);
    let is_hardly = before.saturating_sub(after).saturating_mul(100) < before.saturating_mul(FREED_MIN_PERCENT);
    // A provider that refused the bytes of a request is helped by pictures that go, however few tokens they were (E42).
    let pictures: usize = rows.iter().map(picture_bytes).sum();
    let freed = pictures - pictures_left(rows, view).min(pictures);
    let is_relief = freed.saturating_mul(100) >= pictures.saturating_mul(FREED_MIN_PERCENT as usize) && freed > 0;
    if (is_hardly || after >= before) && !is_relief {
        return Err(ViewFault::NotSmaller);
    }
    if matches!(view.rows.last(), None | Some(ViewPart::Summary { .. })) {
        return Err(ViewFault::NothingLeft);
    }
    let mut open: Vec<&str> = Vec::new();
    for row in &view.rows {
        let ViewPart::Carried { index, .. } = row else {
            if open.is_empty() { continue } else { return Err(ViewFault::PairBroken) }
        };
        let row = rows.get(*index).ok_or(ViewFault::PairBroken)?;
        if row.role == Role::Tool {
            let call = row.answers.as_ref().ok_or(ViewFault::PairBroken)?;
            let at = open.iter().position(|id| *id == call.call.as_str()).ok_or(ViewFault::PairBroken)?;
            open.remove(at);
        } else if !open.is_empty() {
            return Err(ViewFault::PairBroken);
        }
        open.extend(row.calls.iter().map(|call| call.call.as_str()));
    }
    if open.is_empty() { Ok(()) } else { Err(ViewFault::PairBroken) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::CompressionSettings;
    use crate::compress::plan::tests::{chat, round, row};
    use crate::compress::plan::{self};

    const WINDOW: u64 = 131_072;

    fn planned(rows: &[StoredMessage]) -> Plan {
        plan::plan(rows, &CompressionSettings::default(), WINDOW).unwrap()
    }

    #[test]
    fn rows_are_counted_like_the_messages_that_they_become() {
        let mut rows = chat(3, 40);
        rows.extend(round(100, 3, 40));
        rows[1].reasoning = Some("x漢ö".repeat(9));
        rows[2].api_content = Some(hermes_store::ApiContent("what was sent of it".into()));
        assert_eq!(tokens::of_rows(&rows), tokens::of_messages(&projection::messages(rows.clone())));
        let orphan = rows.iter_mut().find(|row| row.role == Role::Tool).unwrap();
        orphan.answers = None;
        assert_eq!(tokens::of_rows(&rows), tokens::of_messages(&projection::messages(rows.clone())));
    }

    #[test]
    fn i20_a_new_history_is_smaller_and_pair_complete() {
        let mut rows = chat(50, 4_000);
        for number in 0..20 {
            rows.extend(round(1_000 + number * 10, 3, 4_000));
        }
        let view = build(&rows, planned(&rows), "notes").unwrap();
        let (before, after) = sizes(&rows, &view);
        assert!(after < before / 2, "{after} of {before}");
        let summaries = view.rows.iter().filter(|row| matches!(row, ViewPart::Summary { .. })).count();
        assert_eq!(summaries, 1);
    }

    #[test]
    fn e38_a_summary_that_is_larger_than_what_it_stands_for_is_refused() {
        let rows = chat(50, 4_000);
        let notes = "n".repeat(800_000);
        assert_eq!(build(&rows, planned(&rows), &notes), Err(ViewFault::NotSmaller));
    }

    #[test]
    fn i13_a_plan_that_cuts_a_round_is_refused() {
        let mut rows = chat(50, 4_000);
        rows.extend(round(1_000, 3, 10));
        rows.push(row(1_010, Role::User, "go on"));
        let first_result = 101;
        assert_eq!(rows[first_result].role, Role::Tool);
        for tail in first_result..first_result + 3 {
            assert_eq!(build(&rows, Plan { head: 0, tail }, "notes"), Err(ViewFault::PairBroken), "{tail}");
        }
        for head in first_result..first_result + 3 {
            let plan = Plan { head, tail: rows.len() - 1 };
            assert!(build(&rows, plan, "").is_err(), "{head}");
        }
    }

    #[test]
    fn a_history_that_would_be_only_a_summary_is_refused() {
        let rows = chat(50, 4_000);
        assert_eq!(build(&rows, Plan { head: 0, tail: rows.len() }, "notes"), Err(ViewFault::NothingLeft));
    }
}
