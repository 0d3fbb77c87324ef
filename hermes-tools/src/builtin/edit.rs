//! Finds what an edit means and makes it, byte for byte. Knows nothing of files.
//!
//! Two ways to find the old text are trusted: the exact text (a line feed also matches CR LF), and whole lines that
//! differ only in white space at their ends. Anything less certain is shown to the model with its exact text and never
//! applied.

use std::fmt::Write;
use std::ops::Range;

/// Places that an error names when the old text is there several times.
const PLACES_MAX: usize = 5;

/// Shortest new text by which an edit is recognised as done already, in bytes.
const DONE_MIN_BYTES: usize = 8;

/// Lines up to which a similar place is searched for.
const SIMILAR_LINES_MAX: usize = 50_000;

/// Part of the lines of a similar place that must agree, in percent.
const SIMILAR_PERCENT: usize = 50;

/// Lines of a similar place that are shown.
const SIMILAR_SHOWN_LINES: usize = 40;

/// An edit that was made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edited {
    /// The whole new content.
    pub(super) bytes: Vec<u8>,
    /// Places that were changed; 0 when the edit was there already.
    pub(super) places: usize,
    /// How the old text was found.
    pub(super) strategy: &'static str,
}

/// An edit that was not made; the text says why and what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EditError {
    #[error("old_string is empty; use write_file to write a whole file")]
    Empty,
    #[error("old_string and new_string are the same")]
    Same,
    #[error(
        "old_string is there {count} times ({places}); give more of the text around the one you mean, or replace_all"
    )]
    Several { count: usize, places: String },
    #[error("old_string is not in the file{hint}")]
    NotFound { hint: String },
}

/// Makes the edit on the bytes of a file.
pub(super) fn edit(file: &[u8], old: &str, new: &str, all: bool) -> Result<Edited, EditError> {
    if old.is_empty() {
        return Err(EditError::Empty);
    }
    if old == new {
        return Err(EditError::Same);
    }
    let (mut spans, mut strategy) = (exact(file, old.as_bytes()), "exact");
    if spans.is_empty() {
        (spans, strategy) = (trailing_space(file, old), "trailing_space");
    }
    match spans.len() {
        0 if new.len() >= DONE_MIN_BYTES && exact(file, new.as_bytes()).len() == 1 => {
            Ok(Edited { bytes: file.to_vec(), places: 0, strategy: "already_applied" })
        }
        0 => Err(EditError::NotFound { hint: similar(file, old) }),
        count if count > 1 && !all => Err(EditError::Several { count, places: places(file, &spans) }),
        count => Ok(Edited { bytes: apply(file, &spans, new), places: count, strategy }),
    }
}

/// Every place of the exact text, not overlapping. Line ends of both kinds match each other.
fn exact(file: &[u8], old: &[u8]) -> Vec<Range<usize>> {
    let old = unify(old);
    let Some(&first) = old.first() else { return Vec::new() };
    let mut spans = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let may_begin = file[at] == first || (first == b'\n' && file[at] == b'\r');
        match may_begin.then(|| match_at(file, at, &old)).flatten() {
            Some(end) => {
                spans.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    spans
}

/// The text with CR LF as LF. A lone CR is data.
fn unify(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for (at, &byte) in text.iter().enumerate() {
        if byte != b'\r' || text.get(at + 1) != Some(&b'\n') {
            out.push(byte);
        }
    }
    out
}

/// Where the match ends that begins at `at`.
fn match_at(file: &[u8], at: usize, old: &[u8]) -> Option<usize> {
    let mut pos = at;
    // A match that begins with a line end takes all of it: not the LF of a CR LF alone.
    if old.first() == Some(&b'\n') && at > 0 && file[at - 1] == b'\r' {
        return None;
    }
    for &byte in old {
        if byte == b'\n' && file.get(pos) == Some(&b'\r') && file.get(pos + 1) == Some(&b'\n') {
            pos += 2;
        } else if file.get(pos) == Some(&byte) {
            pos += 1;
        } else {
            return None;
        }
    }
    Some(pos)
}

/// The lines of a file without their line ends.
fn lines(file: &[u8]) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut start = 0;
    for end in memchr_lines(file) {
        let text_end = if end > start && file[end - 1] == b'\r' { end - 1 } else { end };
        out.push(start..text_end);
        start = end + 1;
    }
    if start < file.len() {
        out.push(start..file.len());
    }
    out
}

fn memchr_lines(file: &[u8]) -> impl Iterator<Item = usize> {
    file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at)
}

/// Whole lines that are equal but for white space at their ends.
fn trailing_space(file: &[u8], old: &str) -> Vec<Range<usize>> {
    let ends_line = old.ends_with('\n');
    let wanted: Vec<&[u8]> = old.lines().map(|line| line.as_bytes().trim_ascii_end()).collect();
    // White space alone would match anything blank.
    if wanted.iter().all(|line| line.is_empty()) {
        return Vec::new();
    }
    let lines = lines(file);
    let mut spans = Vec::new();
    let mut at = 0;
    while at + wanted.len() <= lines.len() {
        let window = &lines[at..at + wanted.len()];
        if window.iter().zip(&wanted).all(|(line, wanted)| file[line.clone()].trim_ascii_end() == *wanted) {
            let last = &window[window.len() - 1];
            let end = if ends_line { after_line_end(file, last.end) } else { last.end };
            spans.push(window[0].start..end);
            at += wanted.len();
        } else {
            at += 1;
        }
    }
    spans
}

fn after_line_end(file: &[u8], end: usize) -> usize {
    let rest = &file[end..];
    if rest.starts_with(b"\r\n") {
        end + 2
    } else if rest.starts_with(b"\n") {
        end + 1
    } else {
        end
    }
}

/// The file with the spans replaced; everything outside of them keeps its bytes.
fn apply(file: &[u8], spans: &[Range<usize>], new: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(file.len() + spans.len() * new.len());
    let mut done = 0;
    for span in spans {
        out.extend_from_slice(&file[done..span.start]);
        if uses_crlf(file, span) && !new.contains("\r\n") {
            out.extend_from_slice(new.replace('\n', "\r\n").as_bytes());
        } else {
            out.extend_from_slice(new.as_bytes());
        }
        done = span.end;
    }
    out.extend_from_slice(&file[done..]);
    out
}

/// The line end that the place uses: of the first line end inside it, else after it, else before it.
fn uses_crlf(file: &[u8], span: &Range<usize>) -> bool {
    let next = file[span.start..].iter().position(|byte| *byte == b'\n').map(|at| span.start + at);
    let near = next.or_else(|| file[..span.start].iter().rposition(|byte| *byte == b'\n'));
    near.is_some_and(|at| at > 0 && file[at - 1] == b'\r')
}

fn line_number(file: &[u8], at: usize) -> usize {
    file[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn places(file: &[u8], spans: &[Range<usize>]) -> String {
    let shown: Vec<String> =
        spans.iter().take(PLACES_MAX).map(|span| format!("line {}", line_number(file, span.start))).collect();
    let more = if spans.len() > PLACES_MAX { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The place that is most like the old text, with its exact text, as a proposal.
fn similar(file: &[u8], old: &str) -> String {
    let text = String::from_utf8_lossy(file);
    let lines: Vec<&str> = text.lines().collect();
    let wanted: Vec<&str> = old.lines().collect();
    if lines.len() > SIMILAR_LINES_MAX || wanted.is_empty() || lines.len() < wanted.len() {
        return String::new();
    }
    let bare = |line: &str| -> String { line.split_whitespace().collect::<Vec<_>>().join(" ") };
    let have: Vec<String> = lines.iter().map(|line| bare(line)).collect();
    let want: Vec<String> = wanted.iter().map(|line| bare(line)).collect();
    let score = |at: usize| -> usize {
        have[at..at + want.len()].iter().zip(&want).filter(|(have, want)| !want.is_empty() && have == want).count()
    };
    let counted = want.iter().filter(|line| !line.is_empty()).count();
    let best =
        (0..=have.len() - want.len()).map(|at| (score(at), at)).max_by_key(|(score, at)| (*score, usize::MAX - at));
    match best {
        Some((score, at)) if counted > 0 && score > 0 && score * 100 >= counted * SIMILAR_PERCENT => {
            let mut hint = format!(
                "; nothing was changed. Lines {} to {} are similar. If you mean them, repeat with exactly this text:\n",
                at + 1,
                at + want.len()
            );
            for line in lines[at..at + want.len()].iter().take(SIMILAR_SHOWN_LINES) {
                // Writing to a string cannot fail.
                let _ = writeln!(hint, "{line}");
            }
            hint
        }
        _ => "; read it again and copy the text exactly".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(file: &str, old: &str, new: &str, expected: &str) {
        let edited = edit(file.as_bytes(), old, new, false).unwrap();
        assert_eq!(String::from_utf8(edited.bytes).unwrap(), expected);
    }

    #[track_caller]
    fn check_refused(file: &str, old: &str, new: &str, expected: &str) {
        let error = edit(file.as_bytes(), old, new, false).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn t48_only_the_inserted_text_takes_on_the_line_ends() {
        check("\u{feff}a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "\u{feff}x\r\ny\r\nz\r\nc\r\n");
        check("a\nb\r\nc\n", "b\n", "x\ny\n", "a\nx\r\ny\r\nc\n");
        check("a\rb\nc\n", "c", "d\ne", "a\rb\nd\ne\n");
        check("one\r\ntwo", "two", "x\ny", "one\r\nx\r\ny");
    }

    #[test]
    fn backslashes_and_indentation_are_kept_as_they_are_given() {
        check(
            "copy t\\run_x.bat\r\nend\r\n",
            "copy t\\run_x.bat\nend",
            "copy t\\run_y.bat\nend",
            "copy t\\run_y.bat\r\nend\r\n",
        );
        check("if a:\r\n        b\r\n", "if a:\n        b\n", "if a:\n        c\n", "if a:\r\n        c\r\n");
    }

    #[test]
    fn t49_two_places_are_an_error_that_names_them() {
        check_refused("a\nx\nb\nx\n", "x", "y", "2 times (line 2, line 4)");
        let edited = edit(b"a\nx\nb\nx\n", "x", "y", true).unwrap();
        assert_eq!((edited.bytes.as_slice(), edited.places), (b"a\ny\nb\ny\n".as_slice(), 2));
    }

    #[test]
    fn t50_a_similar_place_is_proposed_and_not_changed() {
        check_refused(
            "fn a() {\n    one();\n    two();\n}\n",
            "fn a() {\n  one();\n  three();\n}\n",
            "x",
            "Lines 1 to 4 are similar",
        );
        check_refused("fn a() {\n    one();\n}\n", "fn a() {\n  one();\n}\n", "x", "    one();\n}");
        check_refused("abc\n", "zzz", "y", "read it again");
    }

    #[test]
    fn white_space_at_line_ends_does_not_matter() {
        check("a  \nb\t\nc\n", "a\nb\n", "x\n", "x\nc\n");
        check("a  \nb\t\nc\n", "a\nb", "x", "x\nc\n");
        check_refused("a\n\n\nb\n", "   ", "y", "not in the file");
    }

    #[test]
    fn an_edit_that_is_there_already_is_no_failure() {
        let edited = edit(b"let value = 2;\n", "let value = 1;", "let value = 2;", false).unwrap();
        assert_eq!((edited.places, edited.strategy), (0, "already_applied"));
    }

    proptest! {
        #[test]
        fn untouched_bytes_stay_identical(
            before in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a'), Just(0xffu8), Just(b' ')], 0..40),
            after in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a'), Just(0xffu8), Just(b' ')], 0..40),
            new in "[xy\n]{0,10}",
        ) {
            let mut file = before.clone();
            file.extend_from_slice(b"QzQ");
            file.extend_from_slice(&after);
            let edited = edit(&file, "QzQ", &new, false).unwrap();
            prop_assert!(edited.bytes.starts_with(&before));
            prop_assert!(edited.bytes.ends_with(&after));
            let inner = &edited.bytes[before.len()..edited.bytes.len() - after.len()];
            prop_assert_eq!(unify(inner), new.as_bytes());
        }

        #[test]
        fn any_edit_changes_nothing_outside_of_its_places(
            file in "[ab \r\n]{0,60}", old in "[ab \n]{1,6}", new in "[xy\n]{0,6}", all: bool,
        ) {
            if let Ok(edited) = edit(file.as_bytes(), &old, &new, all) {
                let spans = { let exact = exact(file.as_bytes(), old.as_bytes()); if exact.is_empty() { trailing_space(file.as_bytes(), &old) } else { exact } };
                let mut rest = edited.bytes.as_slice();
                let mut done = 0;
                for span in &spans {
                    prop_assert!(rest.starts_with(&file.as_bytes()[done..span.start]));
                    rest = &rest[span.start - done..];
                    let plain = rest.starts_with(new.as_bytes());
                    let crlf = new.replace('\n', "\r\n");
                    prop_assert!(plain || rest.starts_with(crlf.as_bytes()));
                    rest = if uses_crlf(file.as_bytes(), span) { &rest[crlf.len()..] } else { &rest[new.len()..] };
                    done = span.end;
                }
                prop_assert_eq!(rest, &file.as_bytes()[done..]);
            }
        }
    }
}
