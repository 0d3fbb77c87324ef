//! Error codes (`HM` and four digits): each one in the code has a page, each page has a code.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, TextFile};

/// Where the pages are.
const PAGES: &str = "docs/errors/";

/// Checks all files.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used: BTreeMap<&str, Finding> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with("hermes-")) {
        for (index, line) in file.text.lines().enumerate() {
            for code in codes(line) {
                let text = format!("{code} has no page; write {PAGES}{code}.md");
                used.entry(code).or_insert_with(|| Finding::new(&file.path, index + 1, text));
            }
        }
    }
    let mut paged = BTreeSet::new();
    for (code, title, file) in pages(files) {
        paged.insert(code);
        if title.is_none() {
            findings.push(Finding::new(&file.path, 1, format!("begin the page with `# {code} What happened`")));
        }
        if !used.contains_key(code) {
            findings.push(Finding::new(&file.path, 1, format!("no code uses {code}; remove the page")));
        }
    }
    findings.extend(used.into_iter().filter(|(code, _)| !paged.contains(code)).map(|(_, finding)| finding));
    findings
}

/// All pages in the order of their codes: the code, the title without the code (if there is one), the file.
pub(crate) fn pages(files: &[TextFile]) -> Vec<(&str, Option<&str>, &TextFile)> {
    let mut pages: Vec<_> = files
        .iter()
        .filter_map(|file| {
            let code = file.path.strip_prefix(PAGES)?.strip_suffix(".md")?;
            let is_code = codes(code).next() == Some(code);
            let head = file.text.lines().next().unwrap_or_default();
            let title = head.strip_prefix("# ").and_then(|head| head.strip_prefix(code)).map(str::trim);
            is_code.then_some((code, title.filter(|title| !title.is_empty()), file))
        })
        .collect();
    pages.sort_by_key(|(code, _, _)| *code);
    pages
}

/// The codes in a line.
fn codes(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("HM").filter_map(|(at, _)| {
        let code = line.get(at..at + 6)?;
        let whole = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
        let alone = whole(line[..at].chars().next_back()) && whole(line[at + 6..].chars().next());
        (alone && code[2..].bytes().all(|byte| byte.is_ascii_digit())).then_some(code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_tree(files: &[(&str, &str)], expect: &[&str]) {
        let files: Vec<_> = files.iter().map(|(path, text)| TextFile::new(path, text)).collect();
        assert_eq!(check(&files).iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn a_code_with_its_page_passes() {
        let code = ("hermes-store/src/e.rs", "\"HM1001\" HMAC HM12345 AHM1002 HM\u{e9}\u{e9}\n");
        check_tree(&[code, ("docs/errors/HM1001.md", "# HM1001 It broke\n"), ("docs/errors/README.md", "x")], &[]);
    }

    #[test]
    fn a_code_without_a_page_is_found() {
        let code = ("hermes-store/src/e.rs", "x\n\"HM1001\"\nHM1001\n");
        check_tree(&[code], &["hermes-store/src/e.rs:2: HM1001 has no page; write docs/errors/HM1001.md"]);
    }

    #[test]
    fn a_page_without_a_code_or_title_is_found() {
        let page = ("docs/errors/HM1001.md", "# HM1001 It broke\n");
        check_tree(&[page], &["docs/errors/HM1001.md:1: no code uses HM1001; remove the page"]);
        let files = [("hermes-store/src/e.rs", "HM1001\n"), ("docs/errors/HM1001.md", "# It broke\n")];
        check_tree(&files, &["docs/errors/HM1001.md:1: begin the page with `# HM1001 What happened`"]);
    }
}
