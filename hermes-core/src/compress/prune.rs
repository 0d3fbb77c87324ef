//! Tool results that a compressed history need not carry whole: repeated ones, and old large ones of the tail.
//!
//! Only copies in the new session are shortened; the rows that were sent keep their bytes. Arguments of calls are never
//! touched. A shortened result says that it was shortened and how to get the rest.

use std::collections::{BTreeMap, HashSet};

use hermes_store::{Role, StoredMessage};

use super::plan::is_asked;
use crate::{image, projection};

/// Results of this size and more are looked at as repetitions (engine reference, 7.4).
const REPEATED_MIN_CHARS: usize = 200;
/// Rounds at the end whose results stay whole (engine reference, 7.4).
const FRESH_ROUNDS: usize = 6;
/// Older results of this size and more are shortened (engine reference, 7.4).
const OLD_MIN_CHARS: usize = 1_500;
/// What is left of a shortened result.
const KEPT_CHARS: usize = 400;

const _: () = assert!(KEPT_CHARS < OLD_MIN_CHARS);

/// The new contents of rows that are shortened, by their index in `tail`.
pub(crate) fn shorten(tail: &[StoredMessage]) -> BTreeMap<usize, String> {
    let mut out = BTreeMap::new();
    let mut seen: HashSet<&str> = HashSet::new();
    let mut rounds = 0;
    for (index, row) in tail.iter().enumerate().rev() {
        if row.role == Role::Assistant && !row.calls.is_empty() {
            rounds += 1;
            continue;
        }
        if row.role != Role::Tool {
            continue;
        }
        let chars = row.content.chars().count();
        if chars >= REPEATED_MIN_CHARS && !seen.insert(&row.content) {
            out.insert(index, "[This result was the same as a later one of this conversation.]".to_owned());
        } else if rounds >= FRESH_ROUNDS && chars >= OLD_MIN_CHARS {
            out.insert(index, cut(&row.content, chars));
        }
    }
    out
}

/// The new texts of rows whose pictures go, by their index: of all that a person sent but the newest, which is what is
/// asked for now.
pub(crate) fn without_pictures(rows: &[StoredMessage]) -> BTreeMap<usize, String> {
    let newest = rows.iter().rposition(is_asked);
    let older = rows.iter().enumerate().filter(|(index, _)| Some(*index) != newest);
    let text = |(index, row): (usize, &StoredMessage)| {
        let count = image::count(row);
        (count > 0).then(|| (index, image::without(&projection::text_of(row), count)))
    };
    older.filter_map(text).collect()
}

fn cut(content: &str, chars: usize) -> String {
    let kept: String = content.chars().take(KEPT_CHARS).collect();
    format!("{kept}\n[Shortened: the first {KEPT_CHARS} of {chars} characters. Call the tool again if more is needed.]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::plan::tests::round;

    #[test]
    fn only_old_large_results_and_repetitions_are_shortened() {
        let mut tail = Vec::new();
        for number in 0..9_i64 {
            let mut one = round(number * 10, 1, 2_000);
            one[1].content = format!("{number} {}", "x".repeat(2_000));
            tail.extend(one);
        }
        let shortened = shorten(&tail);
        // Rounds 7, 8 and 9 from the end; the newest six stay whole.
        assert_eq!(shortened.keys().copied().collect::<Vec<_>>(), [1, 3, 5]);
        assert!(shortened.values().all(|text| text.contains("first 400 of 2002 characters")));
    }

    #[test]
    fn of_equal_results_the_newest_is_kept() {
        let mut tail = round(0, 1, 300);
        tail.extend(round(10, 1, 300));
        tail.extend(round(20, 1, 100));
        tail.extend(round(30, 1, 100));
        assert_eq!(shorten(&tail).keys().copied().collect::<Vec<_>>(), [1]);
    }
}
