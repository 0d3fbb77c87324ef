//! The behaviours of the store are guarded: each of the list has a test that carries its number.
//!
//! A test carries the numbers that its name begins with: `fn i03_s7_...` guards I03 and S7. What the conformance suite
//! owes must stand there, since only that suite is run on all three stores.

use std::collections::BTreeSet;

use super::source::blank;
use super::{Finding, TextFile};

/// The page that findings point at: how the suite is named.
const SUITE: &str = "hermes-store/src/conformance.rs";

/// Where the cases of the suite are.
const CASES: &str = "hermes-store/src/conformance/";

/// Where a behaviour may have its test.
const PLACES: &[&str] = &["hermes-store/", "hermes-core/", "hermes-gateway/", "tests/"];

/// How many behaviours the list has: S1 to this one.
const BEHAVIOURS: u32 = 50;

/// The invariants that every store shows by the suite.
const INVARIANTS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20];

/// Behaviours whose test comes with a later issue, each with the reason. None today.
const LATER: &[(u32, &str)] = &[];

/// What the beginning of a name says: all its leading parts such as `i03` and `s7`, as letter and number.
fn carried(name: &str) -> impl Iterator<Item = (char, u32)> {
    name.split('_').map_while(|part| {
        let mut letters = part.chars();
        let letter = letters.next().filter(|letter| matches!(letter, 'i' | 's'))?;
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

/// Checks the list against all Rust files.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    check_with(files, LATER)
}

fn check_with(files: &[TextFile], later: &[(u32, &str)]) -> Vec<Finding> {
    let everywhere = found(files.iter().filter(|file| PLACES.iter().any(|place| file.path.starts_with(place))));
    let in_suite = found(files.iter().filter(|file| file.path.starts_with(CASES)));
    let mut texts = Vec::new();
    for number in 1..=BEHAVIOURS {
        let is_there = everywhere.contains(&('s', number));
        let excuse = later.iter().find(|(known, _)| *known == number);
        match (is_there, excuse) {
            (false, None) => {
                texts.push(format!("S{number} has no test; write one whose name begins with `s{number}_`"));
            }
            (true, Some(_)) => texts.push(format!("S{number} has a test; take it off the list of later ones")),
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
        let behaviours = (1..=BEHAVIOURS).map(|number| format!("s{number}_x"));
        let invariants = INVARIANTS.iter().map(|number| format!("i{number:02}_x"));
        let all = behaviours.chain(invariants).filter(|name| name != without);
        let code: String = all.map(|name| format!("pub(super) async fn {name}(w: &World) {{}}\n")).collect();
        TextFile::new("hermes-store/src/conformance/a.rs", &code)
    }

    #[track_caller]
    fn check_files(files: &[TextFile], later: &[(u32, &str)], expect: &[&str]) {
        let found: Vec<String> = check_with(files, later).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_name_carries_all_numbers_that_it_begins_with() {
        let all = |name: &str| carried(name).collect::<Vec<_>>();
        assert_eq!(all("i03_s7_one_of_many"), [('i', 3), ('s', 7)]);
        assert_eq!(all("s17_x"), [('s', 17)]);
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
    fn an_invariant_counts_only_in_the_suite() {
        let finding = "hermes-store/src/conformance.rs:1: I07 has no case; write one in hermes-store/src/conformance/ \
             whose name carries `i07_`";
        check_files(&[suite("i07_x"), TextFile::new("hermes-store/tests/a.rs", "fn i07_x() {}")], &[], &[finding]);
    }

    #[test]
    fn an_exception_lasts_until_the_test_is_there() {
        check_files(&[suite("s17_x")], &[(17, "comes with issue 9")], &[]);
        let finding = "hermes-store/src/conformance.rs:1: S17 has a test; take it off the list of later ones";
        check_files(&[suite("")], &[(17, "comes with issue 9")], &[finding]);
    }

    #[test]
    fn every_exception_has_its_reason() {
        assert!(LATER.iter().all(|(number, reason)| (1..=BEHAVIOURS).contains(number) && !reason.is_empty()));
    }
}
