//! The behaviours of the store (S1-S50) and of the engine (E1-E55) are guarded: each has a test that carries its number.
//!
//! A test carries the numbers that its name begins with: `fn i03_s7_...` guards I03 and S7. What the conformance suite
//! owes must stand there, since only that suite is run on all three stores.

use std::collections::BTreeSet;

use super::source::blank;
use super::{Finding, TextFile};

/// The page that findings point at: how the suite is named.
const SUITE: &str = "hermes-store/src/conformance.rs";

/// Where the list of what is open stands.
const HERE: &str = "xtask/src/tidy/behaviours.rs";

/// Where the cases of the suite are.
const CASES: &str = "hermes-store/src/conformance/";

/// Where a behaviour may have its test.
const PLACES: &[&str] =
    &["hermes-store/", "hermes-core/", "hermes-gateway/", "hermes-providers/", "hermes-tools/", "tests/"];

/// The lists, each with its letter and how many it has, from 1.
const BEHAVIOURS: &[(char, u32)] = &[('s', 50), ('e', 55)];

/// The invariants that every store shows by the suite.
const INVARIANTS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20];

/// Behaviours that have no test yet, each with the reason. An entry that has one fails, so that the list only shrinks.
const LATER: &[(char, u32, &str)] = &[];

/// What the beginning of a name says: all its leading parts such as `i03` and `s7`, as letter and number.
fn carried(name: &str) -> impl Iterator<Item = (char, u32)> {
    name.split('_').map_while(|part| {
        let mut letters = part.chars();
        let letter = letters.next().filter(|letter| matches!(letter, 'i' | 's' | 'e' | 'c' | 't'))?;
        let digits = letters.as_str();
        let is_number = matches!(digits.len(), 1 | 2) && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten().map(|number| (letter, number))
    })
}

/// What the functions of these files carry. A name without anything behind its numbers says nothing and is no test's.
fn found<'a>(files: impl Iterator<Item = &'a TextFile>) -> BTreeSet<(char, u32)> {
    let mut all = BTreeSet::new();
    for file in files.filter(|file| file.is_rust()) {
        let code = blank(&file.text);
        for (at, fn_word) in code.match_indices("fn ") {
            let rest = &code[at + fn_word.len()..];
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            if name.split('_').count() > carried(name).count() {
                all.extend(carried(name));
            }
        }
    }
    all
}

/// What has no test yet, for people.
pub(crate) fn open() -> impl Iterator<Item = Finding> {
    LATER.iter().map(|(letter, number, why)| {
        Finding::new(HERE, 1, format!("{}{number} has no test: {why}", letter.to_ascii_uppercase()))
    })
}

/// Checks the list against all Rust files.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    check_with(files, LATER)
}

fn check_with(files: &[TextFile], later: &[(char, u32, &str)]) -> Vec<Finding> {
    let everywhere = found(files.iter().filter(|file| PLACES.iter().any(|place| file.path.starts_with(place))));
    let in_suite = found(files.iter().filter(|file| file.path.starts_with(CASES)));
    let mut texts = Vec::new();
    for (letter, number) in BEHAVIOURS.iter().flat_map(|(letter, count)| (1..=*count).map(|number| (*letter, number))) {
        let is_there = everywhere.contains(&(letter, number));
        let is_excused = later.iter().any(|(list, known, _)| (*list, *known) == (letter, number));
        let name = letter.to_ascii_uppercase();
        match (is_there, is_excused) {
            (false, false) => {
                let begins = if letter == 'e' { format!("e{number:02}_") } else { format!("{letter}{number}_") };
                texts.push(format!("{name}{number} has no test; write one whose name begins with `{begins}`"));
            }
            (true, true) => texts.push(format!("{name}{number} has a test; take it off the list of later ones")),
            _ => {}
        }
    }
    for number in INVARIANTS {
        if !in_suite.contains(&('i', *number)) {
            let name = format!("i{number:02}_");
            texts.push(format!("I{number:02} has no case; write one in {CASES} whose name carries `{name}`"));
        }
    }
    texts.into_iter().map(|text| Finding::new(SUITE, 1, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A suite that has a case for everything but what `without` names.
    fn suite(without: &str) -> TextFile {
        let behaviours =
            BEHAVIOURS.iter().flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}_x")));
        let invariants = INVARIANTS.iter().map(|number| format!("i{number:02}_x"));
        let all = behaviours.chain(invariants).filter(|name| name != without);
        let code: String = all.map(|name| format!("pub(super) async fn {name}(w: &World) {{}}\n")).collect();
        TextFile::new("hermes-store/src/conformance/a.rs", &code)
    }

    #[track_caller]
    fn check_files(files: &[TextFile], later: &[(char, u32, &str)], expect: &[&str]) {
        let found: Vec<String> = check_with(files, later).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_name_carries_all_numbers_that_it_begins_with() {
        let all = |name: &str| carried(name).collect::<Vec<_>>();
        assert_eq!(all("i03_s7_one_of_many"), [('i', 3), ('s', 7)]);
        assert_eq!(all("s17_x"), [('s', 17)]);
        assert_eq!(all("c7_e55_x"), [('c', 7), ('e', 55)]);
        assert_eq!(all("e54_x"), [('e', 54)]);
        assert_eq!(all("a_s17_x"), []);
        assert_eq!(all("s_x"), []);
        assert_eq!(all("s123_x"), []);
        assert_eq!(all("size_s7"), []);
    }

    #[test]
    fn a_whole_list_passes() {
        check_files(&[suite("")], &[], &[]);
    }

    #[test]
    fn a_behaviour_without_a_test_is_found() {
        let finding = "hermes-store/src/conformance.rs:1: S17 has no test; write one whose name begins with `s17_`";
        check_files(&[suite("s17_x")], &[], &[finding]);
        // A comment, a text, a place that does not count, a name that says nothing.
        for (path, text) in [
            ("hermes-core/a.rs", "// fn s17_x()"),
            ("hermes-core/a.rs", "const A: &str = \"fn s17_x()\";"),
            ("hermes-core/a.md", "fn s17_x()"),
            ("xtask/src/a.rs", "fn s17_x() {}"),
            ("hermes-core/a.rs", "fn s17() {}"),
        ] {
            check_files(&[suite("s17_x"), TextFile::new(path, text)], &[], &[finding]);
        }
        for path in ["hermes-core/src/a.rs", "hermes-gateway/src/a.rs", "tests/tests/a.rs", "hermes-store/tests/a.rs"] {
            check_files(&[suite("s17_x"), TextFile::new(path, "fn i01_s17_x() {}")], &[], &[]);
        }
    }

    #[test]
    fn a_behaviour_of_the_engine_without_a_test_is_found() {
        let finding = "hermes-store/src/conformance.rs:1: E7 has no test; write one whose name begins with `e07_`";
        check_files(&[suite("e7_x")], &[], &[finding]);
        check_files(&[suite("e7_x"), TextFile::new("hermes-tools/src/a.rs", "fn i13_e07_x() {}")], &[], &[]);
        check_files(&[suite("e7_x")], &[('e', 7, "comes with issue 9")], &[]);
    }

    #[test]
    fn an_invariant_counts_only_in_the_suite() {
        let finding = "hermes-store/src/conformance.rs:1: I07 has no case; write one in hermes-store/src/conformance/ \
             whose name carries `i07_`";
        check_files(&[suite("i07_x"), TextFile::new("hermes-store/tests/a.rs", "fn i07_x() {}")], &[], &[finding]);
    }

    #[test]
    fn an_exception_lasts_until_the_test_is_there() {
        check_files(&[suite("s17_x")], &[('s', 17, "comes with issue 9")], &[]);
        let finding = "hermes-store/src/conformance.rs:1: S17 has a test; take it off the list of later ones";
        check_files(&[suite("")], &[('s', 17, "comes with issue 9")], &[finding]);
    }

    #[test]
    fn every_exception_has_its_reason() {
        let is_known =
            |letter: char, number: u32| BEHAVIOURS.iter().any(|(l, n)| *l == letter && (1..=*n).contains(&number));
        assert!(LATER.iter().all(|(letter, number, reason)| is_known(*letter, *number) && !reason.is_empty()));
    }
}
