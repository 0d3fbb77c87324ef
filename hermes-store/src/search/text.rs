//! From text to words, the same way for every store: what the index holds and what a query is compared with.
//!
//! Each database has a tokenizer of its own, and no two agree about `foo.bar`, about `É`, or about Chinese. So words are
//! made here, and a database only ever sees words that are made of letters and digits, with a space between.
//!
//! - Case is folded, and so are the accents of Latin, Greek and Cyrillic letters and the wide forms of ASCII.
//! - A word is a run of letters and digits; everything else separates. `foo::bar_baz` is three words.
//! - Scripts that put no spaces between words (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) become pairs of
//!   letters: `ABCD` is indexed as `AB BC CD D`. A part of any length, one letter included, is then found as a phrase
//!   of pairs, without a dictionary and without reading a row.

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

use crate::limits::{SEARCH_TEXT_MAX_CHARS, SEARCH_TOOL_MAX_CHARS, SEARCH_WORD_MAX_CHARS};
use crate::message::Role;

/// A word of a text, and the bytes of the text that it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The part of a row that search looks at. Tools write the most and say the least.
pub(crate) fn searchable(role: Role, content: &str) -> &str {
    let most = match role {
        Role::Tool => SEARCH_TOOL_MAX_CHARS,
        Role::User | Role::Assistant => SEARCH_TEXT_MAX_CHARS,
    };
    match content.char_indices().nth(most) {
        Some((end, _)) => &content[..end],
        None => content,
    }
}

/// Gives the folded form of one letter, which may be none or several.
fn fold_char(c: char, mut emit: impl FnMut(char)) {
    match c {
        '\0' => emit(' '),
        _ if c.is_ascii() => emit(c.to_ascii_lowercase()),
        '\u{300}'..='\u{36f}' => {}
        // Latin, Greek, Cyrillic; and the forms of ASCII and of kana that differ only in width.
        '\u{a0}'..='\u{52f}' | '\u{1e00}'..='\u{1fff}' | '\u{fb00}'..='\u{fb06}' | '\u{ff00}'..='\u{ffef}' => {
            decompose_compatible(c, |part| {
                if !is_combining_mark(part) {
                    part.to_lowercase().for_each(&mut emit);
                }
            });
        }
        _ => c.to_lowercase().for_each(emit),
    }
}

/// A text folded letter by letter, with all that is between the words.
pub(crate) fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        fold_char(c, |folded| out.push(folded));
    }
    out
}

/// Where a folded text stands in a text, without regard to what the words are.
pub(crate) fn find_folded(text: &str, needle: &str) -> Vec<(usize, usize)> {
    if needle.is_empty() {
        return Vec::new();
    }
    let mut folded = String::with_capacity(text.len());
    // Where each folded letter came from.
    let mut origin: Vec<(usize, usize, usize)> = Vec::new();
    for (start, c) in text.char_indices() {
        fold_char(c, |part| {
            origin.push((folded.len(), start, start + c.len_utf8()));
            folded.push(part);
        });
    }
    let source = |at: usize| origin.binary_search_by_key(&at, |(folded, ..)| *folded).ok().map(|i| origin[i]);
    let mut out = Vec::new();
    for (at, hit) in folded.match_indices(needle) {
        let last = at + hit.len() - hit.chars().next_back().map_or(0, char::len_utf8);
        if let (Some((_, start, _)), Some((_, _, end))) = (source(at), source(last)) {
            out.push((start, end));
        }
    }
    out
}

/// Whether the script of a letter puts no spaces between its words (or hangs endings on them, as Korean does).
fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff // Thai, Lao
        | 0x1000..=0x109f // Burmese
        | 0x1100..=0x11ff // Hangul letters
        | 0x1780..=0x17ff // Khmer
        | 0x3005..=0x3007 | 0x3040..=0x31ff // kana, bopomofo, Hangul letters
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7ff | 0xf900..=0xfaff
        | 0x20000..=0x3ffff)
}

/// What a run of letters is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Between,
    Word,
    Unspaced,
}

fn kind(c: char) -> Kind {
    match c {
        _ if is_unspaced(c) && !c.is_ascii() => Kind::Unspaced,
        _ if c.is_alphanumeric() => Kind::Word,
        _ => Kind::Between,
    }
}

/// A run that is being read.
struct Run {
    kind: Kind,
    letters: Vec<(char, usize, usize)>,
}

impl Run {
    fn push(&mut self, letter: (char, usize, usize), out: &mut Vec<Word>) {
        let kind = kind(letter.0);
        if kind != self.kind {
            self.end(out);
            self.kind = kind;
        }
        if kind != Kind::Between {
            self.letters.push(letter);
        }
    }

    fn end(&mut self, out: &mut Vec<Word>) {
        let letters = std::mem::take(&mut self.letters);
        let (Some(&(_, start, _)), Some(&(last, last_start, end))) = (letters.first(), letters.last()) else { return };
        if self.kind == Kind::Word {
            let text = letters.iter().take(SEARCH_WORD_MAX_CHARS).map(|(c, ..)| *c).collect();
            out.push(Word { text, start, end });
            return;
        }
        for pair in letters.windows(2) {
            let ((a, start, _), (b, _, end)) = (pair[0], pair[1]);
            out.push(Word { text: String::from_iter([a, b]), start, end });
        }
        out.push(Word { text: last.to_string(), start: last_start, end });
    }
}

/// The words of a text, in order.
pub(crate) fn words(text: &str) -> Vec<Word> {
    let mut out = Vec::new();
    let mut run = Run { kind: Kind::Between, letters: Vec::new() };
    for (start, c) in text.char_indices() {
        fold_char(c, |part| run.push((part, start, start + c.len_utf8()), &mut out));
    }
    run.end(&mut out);
    out
}

/// The words of a text with spaces between, as an index takes them.
#[cfg(any(feature = "sqlite", test))]
pub(crate) fn joined(words: &[Word]) -> String {
    let mut out = String::with_capacity(words.iter().map(|word| word.text.len() + 1).sum());
    for word in words {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&word.text);
    }
    out
}

/// What a phrase of a query is compared with: the words, and whether the last one may go on.
pub(crate) fn phrase(text: &str, is_prefix: bool) -> Option<(Vec<String>, bool)> {
    let mut words: Vec<String> = words(text).into_iter().map(|word| word.text).collect();
    let last = words.last()?;
    let mut letters = last.chars();
    let is_open = letters.next().is_some_and(|c| kind(c) == Kind::Unspaced) && letters.next().is_none();
    if !is_open {
        return Some((words, is_prefix));
    }
    // The last letter of a run: inside a longer run no word is made of it alone. After a pair it says nothing new;
    // alone it is the first letter of some pair, or the last of its run.
    let before = words.len().checked_sub(2).and_then(|at| words.get(at));
    let follows_pair = before.is_some_and(|pair| {
        pair.chars().count() == 2 && pair.ends_with(last.as_str()) && {
            pair.chars().all(|c| kind(c) == Kind::Unspaced)
        }
    });
    if follows_pair {
        words.pop();
        return Some((words, false));
    }
    Some((words, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> String {
        joined(&words(text))
    }

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        for (text, want) in [
            ("", ""),
            (" Hello, World! ", "hello world"),
            ("foo::bar_baz-42 a.b", "foo bar baz 42 a b"),
            ("Café CAFÉ cafe\u{301} Straße Ångström ﬁne", "cafe cafe cafe straße angstrom fine"),
            ("Ёлка ΆΛΦΑ", "елка αλφα"),
            ("ＡＢＣ１", "abc1"),
            ("世界", "世界 界"),
            ("我爱hello世 界", "我爱 爱 hello 世 界"),
            ("학교에서", "학교 교에 에서 서"),
            ("a\0b", "a b"),
            ("😀 + ++", ""),
        ] {
            assert_eq!(split(text), want, "{text:?}");
        }
        assert_eq!(split(&"x".repeat(1_000)).len(), SEARCH_WORD_MAX_CHARS);
    }

    #[test]
    fn words_know_where_they_stand() {
        let text = "É 世界x";
        for word in words(text) {
            assert!(!text[word.start..word.end].is_empty(), "{word:?}");
        }
        assert_eq!(find_folded(text, "e "), [(0, 3)]);
        assert_eq!(find_folded("aÀ--Á", "a--a"), [(1, 7)]);
        assert_eq!(find_folded("abc", ""), []);
    }

    #[test]
    fn a_part_of_an_unspaced_run_is_a_phrase_of_pairs() {
        let want = |text, words: &[&str], open| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(phrase(text, false), Some((words, open)), "{text}");
        };
        want("世", &["世"], true);
        want("世界", &["世界"], false);
        want("世界人", &["世界", "界人"], false);
        want("世界 foo", &["世界", "界", "foo"], false);
        want("foo 世", &["foo", "世"], true);
        want("界 界", &["界", "界"], true);
        assert_eq!(phrase(" ++ ", true), None);
        assert_eq!(phrase("fo", true), Some((vec!["fo".to_owned()], true)));
    }

    #[test]
    fn tool_rows_are_cut() {
        let long = "é".repeat(SEARCH_TOOL_MAX_CHARS + 1);
        assert_eq!(searchable(Role::Tool, &long).chars().count(), SEARCH_TOOL_MAX_CHARS);
        assert_eq!(searchable(Role::User, &long), long);
    }
}
