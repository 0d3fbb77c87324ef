//! A Rust file as the checks see it: code without comments and strings, and which lines are for tests only.
//!
//! This is a small scanner and no parser: it knows comments, literals, brackets and attributes. That is enough to look
//! for words, and costs no dependency.

use std::collections::BTreeSet;

use super::{Finding, TextFile};

/// The files that a `mod` line for tests only brings in.
#[derive(Debug, Default)]
pub(crate) struct TestModules {
    /// Paths of files, as `crate/src/name.rs`.
    files: BTreeSet<String>,
    /// Directories with a slash at the end, as `crate/src/name/`.
    directories: Vec<String>,
}

impl TestModules {
    /// Reads the `mod` lines of all files.
    #[must_use]
    pub(crate) fn of(files: &[TextFile]) -> Self {
        let mut modules = Self::default();
        for file in files.iter().filter(|file| file.is_rust()) {
            let code = blank(&file.text);
            for (start, end) in test_ranges(&file.text, &code) {
                modules.add(&file.path, &file.text[start..end], &code[start..end]);
            }
        }
        modules
    }

    /// Adds the file of one item, if the item is a `mod name;`.
    fn add(&mut self, path: &str, text: &str, code: &str) {
        let Some(name) = code.strip_suffix(';').and_then(|head| head.rsplit_once("mod ")).map(|(_, name)| name.trim())
        else {
            return;
        };
        let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
        let beside = format!("{directory}/");
        if let Some((_, rest)) = text.split_once("#[path = \"") {
            self.files.insert(format!("{beside}{}", rest.split('"').next().unwrap_or_default()));
            return;
        }
        let home = match file {
            "lib.rs" | "main.rs" | "mod.rs" => beside,
            _ => format!("{beside}{}/", file.trim_end_matches(".rs")),
        };
        self.files.insert(format!("{home}{name}.rs"));
        self.directories.push(format!("{home}{name}/"));
    }

    /// Whether the whole file is for tests: by its place, its name, or the `mod` line that brings it in.
    #[must_use]
    pub(crate) fn hold(&self, path: &str) -> bool {
        let by_place =
            path.split('/').rev().skip(1).any(|part| matches!(part, "tests" | "benches" | "examples" | "fuzz_targets"));
        let name = path.rsplit('/').next().unwrap_or(path);
        by_place
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
            || self.files.contains(path)
            || self.directories.iter().any(|directory| path.starts_with(directory.as_str()))
    }
}

/// One Rust file, scanned.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: &'a str,
    /// The lines, with every comment and the inside of every literal replaced by spaces.
    lines: Vec<(String, bool)>,
}

impl<'a> Source<'a> {
    /// Scans one file.
    #[must_use]
    pub(crate) fn new(file: &'a TextFile, modules: &TestModules) -> Self {
        let code = blank(&file.text);
        let whole = modules.hold(&file.path);
        let ranges = test_ranges(&file.text, &code);
        let mut at = 0;
        let lines = code
            .split_inclusive('\n')
            .map(|line| {
                let (start, end) = (at, at + line.len());
                at = end;
                let test = whole || ranges.iter().any(|&(from, to)| from < end && start < to);
                (line.trim_end().to_owned(), test)
            })
            .collect();
        Self { path: &file.path, lines }
    }

    /// The lines of code that are compiled into the product, with their numbers from 1.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.all_lines().filter(|(number, _)| !self.lines[number - 1].1)
    }

    /// All lines of code, with their numbers from 1.
    pub(crate) fn all_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines.iter().enumerate().map(|(index, (line, _))| (index + 1, line.as_str()))
    }

    /// A finding in this file.
    #[must_use]
    pub(crate) fn finding(&self, line: usize, text: impl Into<String>) -> Finding {
        Finding::new(self.path, line, text)
    }
}

/// Whether the word stands in the line and is not a part of a longer word. Ends that are no letters fit anywhere.
#[must_use]
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part) && word.starts_with(part);
        let after = line[at + word.len()..].chars().next().is_some_and(part) && word.ends_with(part);
        !before && !after
    })
}

/// The text with comments and the inside of literals replaced by spaces, byte for byte, line breaks kept.
#[must_use]
pub(crate) fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let (skip, inside) = if rest.starts_with(b"//") {
            let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            (length, 0..length)
        } else if rest.starts_with(b"/*") {
            let length = block_comment(rest);
            (length, 0..length)
        } else if let Some((head, hashes)) = raw_head(rest).filter(|_| !word_before) {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = find(&rest[head..], close.as_bytes()).unwrap_or(rest.len() - head);
            ((head + body + close.len()).min(rest.len()), head..head + body)
        } else if rest[0] == b'"' {
            let end = quoted(rest, b'"');
            (end, 1..end.saturating_sub(1).max(1))
        } else if rest[0] == b'\'' && is_char(rest) {
            let end = quoted(rest, b'\'');
            (end, 1..end.saturating_sub(1).max(1))
        } else {
            (1, 0..0)
        };
        for byte in &mut out[at + inside.start..at + inside.end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += skip.max(1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of the block comment at the start; such comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// For `r"`, `r#"`, `br##"` and the like: length of the head with the quote, and the number of hashes.
fn raw_head(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix =
        if rest.starts_with(b"br") || rest.starts_with(b"cr") { 2 } else { usize::from(rest.starts_with(b"r")) };
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    let quote = rest.get(prefix + hashes) == Some(&b'"');
    (prefix > 0 && quote).then_some((prefix + hashes + 1, hashes))
}

/// Length of the literal at the start, with both quotes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Whether the `'` at the start opens a character and not a lifetime.
fn is_char(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(&byte) if byte < 0x80 => rest.get(2) == Some(&b'\''),
        // A character of more bytes: at most four, then the closing quote.
        Some(_) => rest[2..].iter().take(4).any(|&b| b == b'\''),
        None => false,
    }
}

/// Place of the needle.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The byte ranges of the items under an attribute that keeps them out of the product. `code` is `blank(text)`.
#[must_use]
pub(crate) fn test_ranges(text: &str, code: &str) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (at, mark) in code.match_indices("#[cfg(").chain(code.match_indices("#![cfg(")) {
        let condition_end = closing(code, at + mark.len() - 1);
        let condition = &text[at..condition_end];
        let for_tests = has_word(condition, "test") || condition.contains("\"test-util\"");
        if !for_tests || condition.contains("not(") {
            continue;
        }
        ranges.push(if mark.starts_with("#!") { (0, code.len()) } else { (at, item_end(code, condition_end)) });
    }
    ranges
}

/// Where the item ends that begins somewhere after `from`: at its `;` or `,` outside of brackets, or its closing brace.
fn item_end(code: &str, from: usize) -> usize {
    // The rest of the attribute itself: its `]`.
    let mut at = code[from..].find(']').map_or(code.len(), |found| from + found + 1);
    while let Some(&byte) = code.as_bytes().get(at) {
        match byte {
            b'{' => return closing(code, at),
            b'(' | b'[' => at = closing(code, at),
            b';' | b',' => return at + 1,
            // The enclosing block or list ends first.
            b'}' | b')' => return at,
            _ => at += 1,
        }
    }
    code.len()
}

/// The place after the bracket that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_product(text: &str, expect: &[usize]) {
        let file = TextFile::new("c/src/x.rs", text);
        let source = Source::new(&file, &TestModules::default());
        let lines: Vec<usize> =
            source.product_lines().filter(|(_, line)| line.contains("hit")).map(|(n, _)| n).collect();
        assert_eq!(lines, expect, "{text}");
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        check_product("hit // hit\n// hit\n/* hit /* hit */ hit */ hit\n", &[1, 3]);
        check_product("a(\"hit \\\" hit\");\nhit\n", &[2]);
        check_product("a(r#\"hit \" hit\"#);\nb(br\"hit\\\");\nhit\n", &[3]);
        check_product("'\"'; hit\n'\\''; hit; \"'\"\nfn f<'a>(x: &'a str) { hit }\n'\u{e9}'; hit\n", &[1, 2, 3, 4]);
    }

    #[test]
    fn items_under_a_test_attribute_are_no_product() {
        check_product("hit\n#[cfg(test)]\nmod tests {\n  fn f() { hit }\n}\nhit\n", &[1, 6]);
        check_product("#[cfg(any(test, feature = \"test-util\"))]\npub use hit::hit;\nhit\n", &[3]);
        check_product("#[cfg(test)]\n#[derive(X)]\nfn f(a: [u8; 2]) -> u8 {\n hit }\nhit\n", &[5]);
        check_product("#[cfg(not(test))]\nfn f() { hit }\n", &[2]);
        check_product("#![cfg(test)]\nhit\n", &[]);
        check_product("struct S {\n #[cfg(test)]\n hit: u8,\n hit: u8,\n}\n", &[4]);
    }

    #[test]
    fn a_file_brought_in_for_tests_only_is_a_test_file() {
        let files = [
            TextFile::new("c/src/lib.rs", "#[cfg(feature = \"test-util\")]\npub mod testing;\nmod real;\n"),
            TextFile::new("c/src/deep.rs", "#[cfg(test)]\nmod check;\n#[cfg(test)]\n#[path = \"odd.rs\"]\nmod odd;\n"),
        ];
        let modules = TestModules::of(&files);
        for path in ["c/src/testing.rs", "c/src/testing/clock.rs", "c/src/deep/check.rs", "c/src/odd.rs"] {
            assert!(modules.hold(path), "{path}");
        }
        for path in [
            "c/tests/http.rs",
            "c/examples/ask.rs",
            "c/fuzz/fuzz_targets/a.rs",
            "c/src/a_tests.rs",
            "c/src/a/tests.rs",
            "tests/src/x.rs",
        ] {
            assert!(modules.hold(path), "{path}");
        }
        assert!(!modules.hold("c/src/real.rs"));
        assert!(!modules.hold("c/src/check.rs"));
    }

    #[test]
    fn a_word_is_found_between_other_signs_only() {
        assert!(has_word("let x = rand::random();", "rand::"));
        assert!(!has_word("fastrand::u64()", "rand::"));
        assert!(has_word("x.unwrap()", ".unwrap()"));
        assert!(!has_word("eprintln!()", "println!"));
        assert!(!has_word("SystemTimeLike", "SystemTime"));
    }
}
