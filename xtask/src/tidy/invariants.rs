//! The invariants that `ARCHITECTURE.md` lists are guarded: each row names a test that exists.
//!
//! A row is `| I07 | what holds | where | `i07_a_test` |`; the last cell may say `planned (issue 3)` instead.

use std::collections::BTreeSet;

use super::source::blank;
use super::{Finding, TextFile};

/// The page with the table.
const PAGE: &str = "ARCHITECTURE.md";

/// How many invariants there are: I01 to this one.
const INVARIANTS: u32 = 28;

/// One row of the table.
struct Row<'a> {
    line: usize,
    id: &'a str,
    guard: &'a str,
}

impl<'a> Row<'a> {
    /// The names of tests in the last cell.
    fn tests(&self) -> impl Iterator<Item = &'a str> {
        // A path such as `tests::i07_x` or `i07_x()` still names the function.
        let name = |part: &'a str| part.rsplit("::").next().unwrap_or(part).trim_end_matches("()");
        self.guard.split('`').skip(1).step_by(2).map(name).filter(|name| is_test_name(name))
    }

    /// Whether the test comes with a later issue.
    fn is_planned(&self) -> bool {
        self.guard.contains("planned (issue ")
    }
}

/// Whether the name begins with an id, as `i07_` does.
fn is_test_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() > 4 && bytes[0] == b'i' && bytes[1..3].iter().all(u8::is_ascii_digit) && bytes[3] == b'_'
}

/// The rows of the table.
fn rows<'a>(page: &'a str) -> Vec<Row<'a>> {
    let row = |(index, line): (usize, &'a str)| {
        let cells: Vec<&str> = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let id = cells.first()?.trim_matches('`');
        let is_id = id.len() == 3 && id.starts_with('I') && id[1..].bytes().all(|byte| byte.is_ascii_digit());
        is_id.then_some(Row { line: index + 1, id, guard: cells.last()? })
    };
    page.lines().enumerate().filter_map(row).collect()
}

/// How many rows wait for a later issue.
#[must_use]
pub(crate) fn planned(files: &[TextFile]) -> usize {
    let page = files.iter().find(|file| file.path == PAGE);
    page.map_or(0, |page| rows(&page.text).iter().filter(|row| row.is_planned()).count())
}

/// Checks the table against all Rust files.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![Finding::new(PAGE, 1, "the page is missing; write it with a row for each invariant")];
    };
    let codes: Vec<String> = files.iter().filter(|file| file.is_rust()).map(|file| blank(&file.text)).collect();
    let functions: BTreeSet<&str> = codes.iter().flat_map(|code| functions(code)).collect();
    let rows = rows(&page.text);
    let mut findings = Vec::new();
    for row in &rows {
        let mut named = 0;
        for test in row.tests() {
            named += 1;
            if !functions.contains(test) {
                findings.push(Finding::new(PAGE, row.line, format!("{}: there is no test `{test}`; write it", row.id)));
            }
        }
        if named == 0 && !row.is_planned() {
            let text = format!("{} has no test; name one that begins with its id, or say `planned (issue N)`", row.id);
            findings.push(Finding::new(PAGE, row.line, text));
        }
    }
    for id in (1..=INVARIANTS).map(|number| format!("I{number:02}")) {
        if !rows.iter().any(|row| row.id == id) {
            findings.push(Finding::new(PAGE, 1, format!("{id} has no row in the table of invariants; add one")));
        }
    }
    findings
}

/// The names of all functions in code.
fn functions(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("fn ").filter_map(|(at, found)| {
        let name = code[at + found.len()..].split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        is_test_name(name).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings about a table whose other rows are all planned.
    #[track_caller]
    fn check_row(row: &str, rust: &str, expect: &[&str]) {
        let others: String = (2..=INVARIANTS).map(|n| format!("| I{n:02} | x | planned (issue 9) |\n")).collect();
        let page = format!("# T\n{row}\n{others}");
        let files = [TextFile::new(PAGE, &page), TextFile::new("a/tests/b.rs", rust)];
        assert_eq!(check(&files).iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn a_row_with_a_test_or_a_plan_passes() {
        check_row("| I01 | x | `i01_a` |", "async fn i01_a() {}", &[]);
        check_row("| I01 | x | `b::i01_a`, `i01_b` |", "fn i01_a<T>() {}\nfn i01_b() {}", &[]);
        check_row("| I01 | x | planned (issue 3) |", "", &[]);
    }

    #[test]
    fn a_row_whose_test_does_not_exist_is_found() {
        check_row(
            "| I01 | x | `i01_a` |",
            "// fn i01_a()\nfn i01_ab() {}",
            &["ARCHITECTURE.md:2: I01: there is no test `i01_a`; write it"],
        );
        let none = "ARCHITECTURE.md:2: I01 has no test; name one that begins with its id, or say `planned (issue N)`";
        check_row("| I01 | x | see `store` |", "", &[none]);
    }

    #[test]
    fn a_missing_row_or_page_is_found() {
        check_row("", "", &["ARCHITECTURE.md:1: I01 has no row in the table of invariants; add one"]);
        assert_eq!(check(&[]).len(), 1);
    }

    #[test]
    fn planned_rows_are_counted() {
        assert_eq!(planned(&[TextFile::new(PAGE, "| I01 | planned (issue 3) |\n| I02 | `i02_a` |\n")]), 1);
    }
}
