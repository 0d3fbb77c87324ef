//! What the words of a command become, as far as that can be known before it runs.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::lexer::{Item, Piece, Script, Word};

/// Most words that braces of one word may make.
const BRACES_MAX: usize = 64;

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Arg {
    /// Its text; what is not known stands for nothing in it.
    pub(crate) text: String,
    /// False when a part of it is not known before the command runs.
    pub(crate) known: bool,
    /// True when it holds signs that the shell matches with file names.
    pub(crate) glob: bool,
    /// True when it is the output of commands as a file.
    pub(crate) process: bool,
}

impl Arg {
    /// A known text.
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { text: text.into(), known: true, glob: false, process: false }
    }

    /// Something that is not known.
    pub(crate) fn unknown() -> Self {
        Self::default()
    }
}

/// What a script has set so far.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Variables; `None` for one whose value is not known.
    pub(crate) variables: HashMap<String, Option<String>>,
    /// The working directory, unless it is not known.
    pub(crate) cwd: Option<PathBuf>,
    /// The environment of the shell.
    pub(crate) env: std::sync::Arc<BTreeMap<String, String>>,
}

impl State {
    fn value(&self, name: &str) -> Option<String> {
        if let Some(value) = self.variables.get(name) {
            return value.clone();
        }
        match name {
            "IFS" => Some(" \t\n".to_owned()),
            "PWD" => self.cwd.as_ref().map(|cwd| cwd.display().to_string()),
            _ => self.env.get(name).cloned(),
        }
    }
}

/// Scripts that run while words are worked out.
pub(crate) type Inner = Vec<Script>;

/// The arguments that a word becomes. Scripts inside it are added to `inner`.
pub(crate) fn expand(word: &Word, state: &State, inner: &mut Inner) -> Vec<Arg> {
    let mut args: Vec<Arg> = Vec::new();
    let mut current: Option<Arg> = None;
    let mut braces = String::new();
    for piece in &word.pieces {
        match piece {
            Piece::Text { text, quoted } => {
                let arg = current.get_or_insert_with(|| Arg::known(""));
                arg.text.push_str(text);
                if !quoted {
                    arg.glob |= is_glob(text);
                    braces.push_str(text);
                }
            }
            Piece::Variable { name, quoted, default, plain } => {
                let value = if *plain || default.is_some() { state.value(name) } else { None };
                // A form that changes the value is not worked out.
                let certain = *plain && value.is_some();
                let value = value.or_else(|| default.clone()).unwrap_or_default();
                append(&mut args, &mut current, &value, *quoted, certain);
            }
            Piece::Output { script, quoted } => {
                let value = printed(script, state);
                let certain = value.is_some();
                append(&mut args, &mut current, &value.unwrap_or_default(), *quoted, certain);
                inner.push(script.clone());
            }
            Piece::Process { script } => {
                inner.push(script.clone());
                let arg = current.get_or_insert_with(|| Arg::known(""));
                arg.process = true;
            }
            Piece::Arithmetic => {
                let arg = current.get_or_insert_with(|| Arg::known(""));
                arg.known = false;
            }
        }
    }
    args.extend(current);
    if braces.contains('{') && braces.contains('}') { args.into_iter().flat_map(unbrace).collect() } else { args }
}

/// True for text that the shell matches with file names.
fn is_glob(text: &str) -> bool {
    text.contains(['*', '?']) || text.split_once('[').is_some_and(|(_, rest)| rest.contains(']'))
}

/// Separates the values that a variable may have. All of them are looked at, as if they stood side by side.
pub(crate) const EITHER: char = '\u{1f}';

/// Adds a value; outside of quotes white space in it splits.
fn append(args: &mut Vec<Arg>, current: &mut Option<Arg>, value: &str, quoted: bool, certain: bool) {
    if quoted && !value.contains(EITHER) {
        let arg = current.get_or_insert_with(|| Arg::known(""));
        arg.text.push_str(value);
        arg.known &= certain;
        return;
    }
    let mut parts = value.split([' ', '\t', '\n', EITHER]).peekable();
    while let Some(part) = parts.next() {
        if !part.is_empty() || !certain {
            let arg = current.get_or_insert_with(|| Arg::known(""));
            arg.text.push_str(part);
            arg.glob |= is_glob(part);
            arg.known &= certain;
        }
        if parts.peek().is_some() {
            args.extend(current.take());
        }
    }
}

/// `a{b,c}` as `ab` and `ac`.
fn unbrace(arg: Arg) -> Vec<Arg> {
    let mut open = vec![arg.text.clone()];
    let mut out = Vec::new();
    while let Some(text) = open.pop() {
        if open.len() + out.len() > BRACES_MAX {
            return vec![Arg { known: false, ..arg }];
        }
        match split_brace(&text) {
            Some((before, choices, after)) => {
                open.extend(choices.iter().rev().map(|choice| format!("{before}{choice}{after}")));
            }
            None => out.push(text),
        }
    }
    // A range (`{a..c}`) is not worked out.
    let range = |text: &str| text.contains("..") && text.contains('{');
    out.into_iter().map(|text| Arg { known: arg.known && !range(&text), text, ..arg.clone() }).collect()
}

fn split_brace(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    for (start, _) in text.match_indices('{') {
        let (mut depth, mut from, mut choices) = (0usize, start + 1, Vec::new());
        for (at, c) in text[start..].char_indices().map(|(at, c)| (start + at, c)) {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => {
                    if choices.is_empty() {
                        break;
                    }
                    choices.push(&text[from..at]);
                    return Some((&text[..start], choices, &text[at + 1..]));
                }
                '}' => depth -= 1,
                ',' if depth == 1 => {
                    choices.push(&text[from..at]);
                    from = at + 1;
                }
                _ => {}
            }
        }
    }
    None
}

/// What a script prints, when it is one `echo`, `printf`, `which` or `command -v` of known words.
pub(crate) fn printed(script: &Script, state: &State) -> Option<String> {
    let [Item::Command(simple)] = script.items.as_slice() else { return None };
    if !simple.redirects.is_empty() || !simple.heredocs.is_empty() {
        return None;
    }
    let mut inner = Inner::new();
    let args: Vec<Arg> = simple.words.iter().flat_map(|word| expand(word, state, &mut inner)).collect();
    said(&args)
}

/// What a command of known words prints, for the few whose output is their arguments.
pub(crate) fn said(args: &[Arg]) -> Option<String> {
    if args.iter().any(|arg| !arg.known || arg.glob || arg.process) {
        return None;
    }
    let words: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
    match words.as_slice() {
        ["echo", "-e" | "-ne" | "-en", rest @ ..] => Some(super::lexer::unescape(&rest.join(" "))),
        ["echo", "-n", rest @ ..] | ["echo", rest @ ..] => Some(rest.join(" ")),
        ["printf", "--", format] | ["printf", format] if !format.contains('%') => Some(super::lexer::unescape(format)),
        ["printf", "%s" | "%s\\n" | "%b" | "%b\\n", text] => Some(super::lexer::unescape(text)),
        ["which", name] | ["command", "-v", name] | ["type", "-p" | "-P", name] => Some((*name).to_owned()),
        ["pwd"] | ["pwd", _] => None,
        _ => None,
    }
}
