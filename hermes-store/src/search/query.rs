//! The language of a search, and what it means.
//!
//! | written | means |
//! |---|---|
//! | `two words` | both, anywhere in the row |
//! | `a AND b`, `a OR b`, `NOT a` | as in English; NOT binds closest, OR loosest; only in capital letters |
//! | `"two words"` | one after the other |
//! | `pre*` | words that begin so |
//! | `*middle*`, `*end` | this text anywhere in what people and models said, also inside a word; not in tool rows |
//! | `foo::bar` | the words `foo bar` one after the other: what is no letter and no digit only separates |
//! | `++` | no word at all: this text anywhere, as with `*++*` |
//!
//! There is no wrong query. An operator that has nothing to work on is a word, a quote that is never closed ends with the
//! text, and nothing that a person types can become syntax of a database: databases get words that are made of letters
//! and digits only.

use crate::error::StoreError;
use crate::limits::{SEARCH_QUERY_MAX_CHARS, SEARCH_TERMS_MAX, SNIPPET_MAX_CHARS, SNIPPET_WORDS};
use crate::message::Role;

use super::text::{self, Word};

/// Letters of one entry of an index of parts of words.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
const GRAM_CHARS: usize = 3;
/// Words of a snippet before the first match.
const LEAD_WORDS: usize = SNIPPET_WORDS / 4;

/// One thing to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    /// Words, one after the other; the last one may go on.
    Phrase { words: Vec<String>, is_prefix: bool },
    /// A folded text, anywhere.
    Part(String),
}

/// Terms that must all be there, and terms of which none may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Clause {
    all: Vec<Term>,
    none: Vec<Term>,
}

/// A query that was understood: at least one of its clauses must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    any: Vec<Clause>,
}

/// A piece of the query's text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Bare(&'a str),
    Quoted(&'a str),
}

impl Piece<'_> {
    fn is_one_of(&self, words: &[&str]) -> bool {
        matches!(self, Self::Bare(word) if words.contains(word))
    }
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\0');
        let Some(first) = rest.chars().next() else { return out };
        if first == '"' {
            let (inside, after) = rest[1..].split_once('"').unwrap_or((&rest[1..], ""));
            out.push(Piece::Quoted(inside));
            rest = after;
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || c == '\0' || c == '"').unwrap_or(rest.len());
            out.push(Piece::Bare(&rest[..end]));
            rest = &rest[end..];
        }
    }
}

fn part(text: &str) -> Option<Term> {
    let folded = text::fold(text);
    let folded = folded.trim();
    (!folded.is_empty()).then(|| Term::Part(folded.to_owned()))
}

fn term(piece: &Piece<'_>) -> Option<Term> {
    let (body, is_prefix) = match *piece {
        Piece::Quoted(body) => (body, false),
        Piece::Bare(word) if word.len() > 1 && word.starts_with('*') => {
            let inside = word.trim_matches('*');
            return part(if inside.is_empty() { word } else { inside });
        }
        Piece::Bare(word) => {
            word.strip_suffix('*').filter(|stem| !stem.is_empty()).map_or((word, false), |s| (s, true))
        }
    };
    match text::phrase(body, is_prefix) {
        Some((words, is_prefix)) => Some(Term::Phrase { words, is_prefix }),
        None => part(body),
    }
}

impl Parsed {
    /// Reads a query. One with nothing to look for finds nothing.
    pub(crate) fn parse(query: &str) -> Result<Self, StoreError> {
        if query.chars().count() > SEARCH_QUERY_MAX_CHARS {
            return Err(StoreError::Limit { what: "the search text", limit: SEARCH_QUERY_MAX_CHARS as u64 });
        }
        let pieces = pieces(query);
        if pieces.len() > SEARCH_TERMS_MAX {
            return Err(StoreError::Limit { what: "the number of search terms", limit: SEARCH_TERMS_MAX as u64 });
        }
        let mut parsed = Self::default();
        let mut clause = Clause::default();
        let mut is_negated = false;
        for (at, piece) in pieces.iter().enumerate() {
            let next = pieces.get(at + 1);
            let has_operand = next.is_some_and(|next| !next.is_one_of(&["AND", "OR"]));
            let has_left = clause != Clause::default() && !is_negated;
            if piece.is_one_of(&["NOT"]) && !is_negated && has_operand {
                is_negated = true;
            } else if piece.is_one_of(&["AND"]) && has_left && has_operand {
                // Also what two words without an operator mean.
            } else if piece.is_one_of(&["OR"]) && has_left && has_operand {
                parsed.any.push(std::mem::take(&mut clause));
            } else if let Some(term) = term(piece) {
                match std::mem::take(&mut is_negated) {
                    true => clause.none.push(term),
                    false => clause.all.push(term),
                }
            }
        }
        if clause != Clause::default() {
            parsed.any.push(clause);
        }
        if parsed.any.iter().any(|clause| clause.all.is_empty()) {
            let detail = "a search needs a word that is to be found, beside those after NOT, on each side of an OR";
            return Err(StoreError::Invalid { detail: detail.to_owned() });
        }
        Ok(parsed)
    }

    /// Whether there is nothing to look for.
    pub(crate) fn is_empty(&self) -> bool {
        self.any.is_empty()
    }

    /// A snippet of a row that the query finds, and none of another.
    pub(crate) fn snippet(&self, role: Role, content: &str) -> Option<String> {
        let content = text::searchable(role, content);
        let words = text::words(content);
        let mut marks = Vec::new();
        let mut is_found = false;
        for clause in &self.any {
            let find = |term: &Term| term.find(role, content, &words);
            if clause.none.iter().any(|term| !find(term).is_empty()) {
                continue;
            }
            let found: Vec<_> = clause.all.iter().map(find).collect();
            if found.iter().all(|marks| !marks.is_empty()) {
                is_found = true;
                marks.extend(found.into_iter().flatten());
            }
        }
        is_found.then(|| snippet(content, &words, marks))
    }

    /// The condition on words in the language of FTS5: holds for every row that the query finds, and perhaps for others.
    /// `None` when words alone cannot narrow it down.
    #[cfg(feature = "sqlite")]
    pub(crate) fn fts5_words(&self) -> Option<String> {
        let one = |term: &Term| match term {
            Term::Phrase { words, is_prefix } => {
                Some(format!("\"{}\"{}", words.join(" "), if *is_prefix { "*" } else { "" }))
            }
            Term::Part(_) => None,
        };
        self.combine(|clause| {
            let all: Vec<_> = clause.all.iter().filter_map(one).collect();
            let none: Vec<_> = clause.none.iter().filter_map(one).collect();
            match (all.is_empty(), none.is_empty()) {
                (true, _) => None,
                (false, true) => Some(format!("({})", all.join(" AND "))),
                (false, false) => Some(format!("(({}) NOT ({}))", all.join(" AND "), none.join(" OR "))),
            }
        })
        .map(|clauses| clauses.join(" OR "))
    }

    /// As [`Parsed::fts5_words`], for the index of parts of words.
    #[cfg(feature = "sqlite")]
    pub(crate) fn fts5_grams(&self) -> Option<String> {
        self.combine(|clause| {
            let grams: std::collections::BTreeSet<String> = clause
                .all
                .iter()
                .flat_map(|term| match term {
                    Term::Part(part) => grams(part),
                    Term::Phrase { .. } => Vec::new(),
                })
                .map(|gram| format!("\"{}\"", gram.replace('"', "\"\"")))
                .collect();
            let grams: Vec<_> = grams.into_iter().collect();
            (!grams.is_empty()).then(|| format!("({})", grams.join(" AND ")))
        })
        .map(|clauses| clauses.join(" OR "))
    }

    /// The condition on words in the language of PostgreSQL's `tsquery`, as [`Parsed::fts5_words`]. A phrase that must
    /// not be there is left to the last look at the row: PostgreSQL forgets places in long rows.
    #[cfg(feature = "postgres")]
    pub(crate) fn tsquery(&self) -> Option<String> {
        let one = |term: &Term| match term {
            Term::Phrase { words, is_prefix } => {
                let mut words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
                if let (true, Some(last)) = (*is_prefix, words.last_mut()) {
                    last.push_str(":*");
                }
                Some(words)
            }
            Term::Part(_) => None,
        };
        self.combine(|clause| {
            let all: Vec<_> = clause.all.iter().filter_map(one).map(|words| words.join(" & ")).collect();
            let none = clause.none.iter().filter_map(one).filter(|words| words.len() == 1);
            let none: Vec<_> = none.map(|words| format!("!{}", words.concat())).collect();
            (!all.is_empty()).then(|| format!("({})", [all, none].concat().join(" & ")))
        })
        .map(|clauses| clauses.join(" | "))
    }

    /// The texts that must stand in a row somewhere, by clause: `None` when some clause has none.
    #[cfg(feature = "postgres")]
    pub(crate) fn parts(&self) -> Option<Vec<Vec<String>>> {
        self.combine(|clause| {
            let part = |term: &Term| match term {
                Term::Part(part) if part.chars().count() >= GRAM_CHARS => Some(part.clone()),
                _ => None,
            };
            let parts: Vec<_> = clause.all.iter().filter_map(part).collect();
            (!parts.is_empty()).then_some(parts)
        })
    }

    /// One condition for each clause; nothing when one of them has none.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn combine<T>(&self, condition: impl Fn(&Clause) -> Option<T>) -> Option<Vec<T>> {
        self.any.iter().map(condition).collect()
    }
}

/// The entries that an index of parts of words has for a text.
#[cfg(feature = "sqlite")]
fn grams(part: &str) -> Vec<String> {
    let letters: Vec<char> = part.chars().collect();
    letters.windows(GRAM_CHARS).map(|gram| gram.iter().collect()).collect()
}

impl Term {
    /// Where it stands in a text, as ranges of bytes.
    fn find(&self, role: Role, content: &str, words: &[Word]) -> Vec<(usize, usize)> {
        match self {
            Self::Part(_) if role == Role::Tool => Vec::new(),
            Self::Part(part) => text::find_folded(content, part),
            Self::Phrase { words: phrase, is_prefix } => {
                let Some((last, before)) = phrase.split_last() else { return Vec::new() };
                let is_last = |word: &Word| match is_prefix {
                    true => word.text.starts_with(last.as_str()),
                    false => word.text == *last,
                };
                let holds = |run: &&[Word]| {
                    run.last().is_some_and(is_last) && run.iter().zip(before).all(|(word, want)| word.text == *want)
                };
                let range = |run: &[Word]| Some((run.first()?.start, run.last()?.end));
                words.windows(phrase.len()).filter(holds).filter_map(range).collect()
            }
        }
    }
}

/// Some words around the first match, with `>>>` and `<<<` about each match, in one line.
fn snippet(content: &str, words: &[Word], mut marks: Vec<(usize, usize)>) -> String {
    marks.sort_unstable();
    let first = marks.first().map_or(0, |mark| mark.0);
    let at = words.partition_point(|word| word.end <= first);
    let from = words.get(at.saturating_sub(LEAD_WORDS)).map_or(0, |word| word.start);
    let from = if at <= LEAD_WORDS { 0 } else { from };
    let to = words.get(at + SNIPPET_WORDS - LEAD_WORDS).map_or(content.len(), |word| word.start);
    // Words may be long: letters are counted too.
    let lead = content[..first].char_indices().rev().nth(SNIPPET_MAX_CHARS / 4).map_or(0, |(at, _)| at);
    let tail =
        content[first..].char_indices().nth(SNIPPET_MAX_CHARS * 3 / 4).map_or(content.len(), |(at, _)| first + at);
    let (from, to) = (from.max(lead).min(first), to.min(tail).max(first));
    let mut out = String::new();
    let mut done = from;
    for (start, end) in marks {
        let (start, end) = (start.max(done), end.min(to));
        if start < end {
            out.push_str(&content[done..start]);
            // Marks that touch are one.
            match out.ends_with("<<<") && start == done && done > from {
                true => out.truncate(out.len() - 3),
                false => out.push_str(">>>"),
            }
            out.push_str(&content[start..end]);
            out.push_str("<<<");
            done = end;
        }
    }
    out.push_str(&content[done.min(to)..to]);
    let line = out.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    format!("{}{line}{}", if from > 0 { "…" } else { "" }, if to < content.len() { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(query: &str, content: &str) -> bool {
        Parsed::parse(query).unwrap().snippet(Role::User, content).is_some()
    }

    #[test]
    fn the_language_means_what_its_table_says() {
        let text = "The quick brown fox, foo::bar() and C++; naïve 我爱世界和平";
        for (query, want) in [
            ("quick fox", true),
            ("quick AND fox", true),
            ("quick cat", false),
            ("cat OR fox", true),
            ("cat OR dog", false),
            ("cat OR quick fox", true),
            ("quick NOT fox", false),
            ("quick NOT cat", true),
            ("quick AND NOT cat", true),
            ("cat OR fox NOT brown", false),
            ("\"quick brown\"", true),
            ("\"brown quick\"", false),
            ("\"quick brown", true),
            ("bro*", true),
            ("row*", false),
            ("*row*", true),
            ("*own", true),
            ("*rown fo*", true),
            ("foo::bar", true),
            ("bar::foo", false),
            ("++", true),
            ("--", false),
            ("naive", true),
            ("NAÏVE", true),
            ("世", true),
            ("世界", true),
            ("世界和", true),
            ("界世", false),
            ("平", true),
            ("\"爱世\" fox", true),
            ("and", true),
            ("or", false),
            ("", false),
            ("  \0 ", false),
        ] {
            assert_eq!(finds(query, text), want, "{query}");
        }
    }

    #[test]
    fn operators_without_operands_are_words() {
        for (query, text) in [("AND", "and"), ("OR x", "or x"), ("NOT", "not"), ("x NOT", "x not"), ("a AND", "a and")]
        {
            assert!(finds(query, text), "{query}");
            assert!(!finds(query, "nothing of it"), "{query}");
        }
        assert!(finds("a AND OR b", "a and b"), "{:?}", Parsed::parse("a AND OR b"));
        for refused in ["NOT a", "a OR NOT b"] {
            assert!(matches!(Parsed::parse(refused), Err(StoreError::Invalid { .. })), "{refused}");
        }
    }

    #[test]
    fn i26_a_query_has_limits() {
        assert!(matches!(Parsed::parse(&"x".repeat(2_049)), Err(StoreError::Limit { .. })));
        assert!(Parsed::parse(&"x".repeat(2_048)).is_ok());
        assert!(matches!(Parsed::parse(&"x ".repeat(SEARCH_TERMS_MAX + 1)), Err(StoreError::Limit { .. })));
    }

    #[test]
    fn parts_of_words_are_not_looked_for_in_tool_rows() {
        let parsed = Parsed::parse("*eedl*").unwrap();
        assert_eq!(parsed.snippet(Role::Assistant, "a needle").as_deref(), Some("a n>>>eedl<<<e"));
        assert_eq!(parsed.snippet(Role::Tool, "a needle"), None);
    }

    #[test]
    fn snippets_are_short_and_marked() {
        let show = |query: &str, text: &str| Parsed::parse(query).unwrap().snippet(Role::User, text).unwrap();
        assert_eq!(show("b", "a b c"), "a >>>b<<< c");
        assert_eq!(show("\"b c\" a", "a\n\tb c"), ">>>a<<< >>>b c<<<");
        assert_eq!(show("世界和", "我爱世界和平"), "我爱>>>世界和<<<平");
        let long = format!("{} needle {}", "before ".repeat(100), "after ".repeat(100));
        let shown = show("needle", &long);
        assert!(shown.starts_with("…before") && shown.ends_with('…') && shown.contains(" >>>needle<<< "), "{shown}");
        assert!(shown.split(' ').count() <= SNIPPET_WORDS + 2, "{shown}");
        let wide = format!("{} x {}", "é".repeat(5_000), "ü".repeat(5_000));
        assert!(show("x", &wide).chars().count() <= SNIPPET_MAX_CHARS + 10);
        assert!(show("*ééé*", &wide).chars().count() <= SNIPPET_MAX_CHARS + 10);
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn i27_no_query_becomes_syntax_of_fts5() {
        let words = |query: &str| Parsed::parse(query).unwrap().fts5_words();
        assert_eq!(words("a b*").as_deref(), Some("(\"a\" AND \"b\"*)"));
        assert_eq!(words("a NOT \"b c\" OR d").as_deref(), Some("((\"a\") NOT (\"b c\")) OR (\"d\")"));
        assert_eq!(words("NEAR(a) col:b {x} ^y").as_deref(), Some("(\"near a\" AND \"col b\" AND \"x\" AND \"y\")"));
        assert_eq!(words("*abc*"), None);
        let grams = |query: &str| Parsed::parse(query).unwrap().fts5_grams();
        assert_eq!(grams("*a\"bc*").as_deref(), None, "the quote ends the part");
        assert_eq!(grams("*abcd*").as_deref(), Some("(\"abc\" AND \"bcd\")"));
        assert_eq!(grams("*ab*"), None);
        assert_eq!(grams("*abc* OR x"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_query(query in "[ab\\x00-\\x7f世é\"* ]{0,60}", content in "[ab世é+\\- ]{0,60}") {
            if let Ok(parsed) = Parsed::parse(&query) {
                let _ = parsed.snippet(Role::User, &content);
            }
        }
    }
}
