//! What the words of a command become, as far as that can be known before it runs.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::lexer::{Item, Piece, Script, Word};

/// Most words that braces of one word may make.
const BRACES_MAX: usize = 64;

/// Most guesses that are kept of one word that is not known.
const HINTS_MAX: usize = 16;

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Arg {
    /// Its text; what is not known stands for nothing in it.
    pub(crate) text: String,
    /// False when a part of it is not known before the command runs.
    pub(crate) known: bool,
    /// True when it holds signs that the shell matches with file names.
    pub(crate) glob: bool,
    /// True when it is the output of commands as a file.
    pub(crate) process: bool,
    /// What it may come to, when it is not known: the words that make it hold these.
    pub(crate) hints: Vec<String>,
}

impl Arg {
    /// A known text.
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { text: text.into(), known: true, ..Self::default() }
    }

    /// Something that is not known, but may be one of these.
    pub(crate) fn unknown(hints: &[String]) -> Self {
        Self { hints: hints.to_vec(), ..Self::default() }
    }

    /// Another text with the same doubts.
    pub(crate) fn with(&self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self.clone() }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.hints.iter_mut().for_each(|hint| hint.push_str(text));
    }

    fn push_value(&mut self, value: &Value) {
        let stems = if self.hints.is_empty() { vec![self.text.clone()] } else { self.hints.clone() };
        let more = |stem: &String| value.hints.iter().map(|hint| format!("{stem}{hint}")).collect::<Vec<_>>();
        let hints: Vec<String> = stems.iter().flat_map(more).take(HINTS_MAX).collect();
        self.push(&value.text);
        self.hints.extend(hints);
        self.hints.truncate(HINTS_MAX);
        self.known &= value.known;
    }
}

/// One value that a variable or an output may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Value {
    pub(crate) text: String,
    pub(crate) known: bool,
    /// See [`Arg::hints`].
    pub(crate) hints: Vec<String>,
}

impl Value {
    /// A known value.
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { text: text.into(), known: true, hints: Vec::new() }
    }

    /// A value that is not known, but may be one of these.
    pub(crate) fn unknown(hints: Vec<String>) -> Self {
        Self { text: String::new(), known: false, hints }
    }

    /// Every text that it may be.
    fn texts(&self) -> Vec<String> {
        self.hints.iter().cloned().chain((!self.text.is_empty()).then(|| self.text.clone())).collect()
    }
}

/// What a script has set so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// Variables with every value that they may have.
    pub(crate) variables: Arc<HashMap<String, Vec<Value>>>,
    /// Every directory that may be the working directory; `None` for one that is not known.
    pub(crate) cwds: Vec<Option<PathBuf>>,
    /// Directories that stay possible because a command of the current chain may not have run, or failed.
    pub(crate) pending: Vec<Option<PathBuf>>,
    /// The directories before the last change.
    pub(crate) last: Vec<Option<PathBuf>>,
    /// The environment of the shell.
    pub(crate) env: Arc<BTreeMap<String, String>>,
    /// What loops may read whose input is named behind them.
    pub(crate) input: Vec<String>,
}

impl State {
    /// The variables, to be changed. Most states never change theirs, so they share them.
    pub(crate) fn variables_mut(&mut self) -> &mut HashMap<String, Vec<Value>> {
        Arc::make_mut(&mut self.variables)
    }

    /// The value of a variable. One with several values is pinned to one of them before words are worked out.
    pub(crate) fn value(&self, name: &str) -> Value {
        if let Some(values) = self.variables.get(name) {
            return match values.as_slice() {
                [value] => value.clone(),
                several => Value::unknown(several.iter().flat_map(Value::texts).take(HINTS_MAX).collect()),
            };
        }
        match (name, self.cwds.as_slice()) {
            ("IFS", _) => Value::known(" \t\n"),
            ("PWD", [Some(cwd)]) => Value::known(cwd.display().to_string()),
            ("PWD", cwds) => Value::unknown(cwds.iter().flatten().map(|cwd| cwd.display().to_string()).collect()),
            _ => self.env.get(name).map_or_else(Value::default, Value::known),
        }
    }

    /// What splits words: white space, and what a script sets.
    fn separators(&self) -> String {
        let set = self.variables.get("IFS").into_iter().flatten().map(|value| value.text.as_str());
        set.chain([" \t\n"]).collect()
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
                let first = args.is_empty() && current.is_none();
                let arg = current.get_or_insert_with(|| Arg::known(""));
                let text = match text.strip_prefix('~') {
                    // The home that the script has set.
                    Some(rest) if first && !quoted && (rest.is_empty() || rest.starts_with('/')) => {
                        if state.variables.contains_key("HOME") {
                            arg.push_value(&state.value("HOME"));
                            rest
                        } else {
                            text
                        }
                    }
                    _ => text,
                };
                arg.push(text);
                if !quoted {
                    arg.glob |= is_glob(text);
                    braces.push_str(text);
                }
            }
            Piece::Variable { name, quoted, default, plain } => {
                let mut value = state.value(name);
                if !*plain {
                    // A form that changes the value is not worked out.
                    value.hints = value.texts();
                    let kept = default.is_some() && value.known;
                    value.text = if kept { value.text } else { default.clone().unwrap_or_default() };
                    value.known = false;
                }
                append(&mut args, &mut current, &value, *quoted, state);
            }
            Piece::Output { script, quoted } => {
                let mut value = printed(script, state);
                if !value.known {
                    // What stands in its place is nothing, as far as it is read.
                    value.text.clear();
                }
                append(&mut args, &mut current, &value, *quoted, state);
                inner.push(script.clone());
            }
            Piece::Process { script } => {
                inner.push(script.clone());
                let arg = current.get_or_insert_with(|| Arg::known(""));
                arg.process = true;
                arg.hints.extend(printed(script, state).texts());
                arg.hints.truncate(HINTS_MAX);
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

/// The names of the variables that a word uses, in its substitutions, too.
pub(crate) fn names_in(word: &Word, names: &mut Vec<String>) {
    for piece in &word.pieces {
        match piece {
            Piece::Variable { name, .. } if !names.contains(name) => names.push(name.clone()),
            Piece::Text { text, quoted: false }
                if text.starts_with('~') && !names.iter().any(|name| name == "HOME") =>
            {
                names.push("HOME".to_owned());
            }
            Piece::Output { script, .. } => {
                for item in &script.items {
                    if let Item::Command(simple) = item {
                        simple.words.iter().for_each(|word| names_in(word, names));
                    }
                }
            }
            _ => {}
        }
    }
}

/// True for text that the shell matches with file names.
fn is_glob(text: &str) -> bool {
    text.contains(['*', '?']) || text.split_once('[').is_some_and(|(_, rest)| rest.contains(']'))
}

/// Adds a value; outside of quotes white space in it splits.
fn append(args: &mut Vec<Arg>, current: &mut Option<Arg>, value: &Value, quoted: bool, state: &State) {
    let separators = state.separators();
    if quoted || !value.text.contains(|c| separators.contains(c)) {
        if quoted || !value.text.is_empty() || !value.known {
            let arg = current.get_or_insert_with(|| Arg::known(""));
            arg.push_value(value);
            arg.glob |= !quoted && is_glob(&value.text);
        }
        return;
    }
    let mut parts = value.text.split(|c| separators.contains(c)).peekable();
    while let Some(part) = parts.next() {
        if !part.is_empty() || !value.known {
            let arg = current.get_or_insert_with(|| Arg::known(""));
            arg.push_value(&Value { text: part.to_owned(), ..value.clone() });
            arg.glob |= is_glob(part);
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

/// What a script prints: known when it is one `echo`, `printf`, `pwd`, `which` or `command -v` of known words; otherwise
/// the words of its commands are what it may come to.
pub(crate) fn printed(script: &Script, state: &State) -> Value {
    let mut hints = Vec::new();
    let mut only = None;
    for item in &script.items {
        let Item::Command(simple) = item else { continue };
        let mut inner = Inner::new();
        let args: Vec<Arg> = simple.words.iter().flat_map(|word| expand(word, state, &mut inner)).collect();
        hints_of(&args, &mut hints);
        for redirect in simple.redirects.iter().filter(|redirect| redirect.op == "<<<") {
            hints_of(&expand(&redirect.target, state, &mut inner), &mut hints);
        }
        let plain = script.items.len() == 1 && simple.redirects.is_empty() && simple.heredocs.is_empty();
        only = said(&args, state).filter(|_| plain);
    }
    hints.truncate(HINTS_MAX);
    match only {
        Some(text) => Value::known(text.trim_end_matches('\n')),
        None => Value::unknown(hints),
    }
}

/// The words that a call is about: what it prints may be one of them.
pub(crate) fn hints_of(args: &[Arg], hints: &mut Vec<String>) {
    let picks = args.first().is_some_and(|arg| arg.text == "find") && args.iter().any(|arg| picks_files(&arg.text));
    for arg in args.iter().filter(|_| !picks) {
        let texts = arg.hints.iter().chain((!arg.text.is_empty() && (arg.known || arg.glob)).then_some(&arg.text));
        for text in texts {
            if !hints.contains(text) && hints.len() < HINTS_MAX {
                hints.push(text.clone());
            }
        }
    }
    if args.first().is_some_and(|arg| arg.text == "dirname") {
        let parents: Vec<String> = args[1..].iter().map(|arg| format!("{}/..", arg.text)).collect();
        hints.extend(parents);
    }
}

/// True for the tests of `find` that take only some of the files.
pub(crate) fn picks_files(text: &str) -> bool {
    matches!(
        text,
        "-name"
            | "-iname"
            | "-path"
            | "-ipath"
            | "-wholename"
            | "-regex"
            | "-iregex"
            | "-newer"
            | "-mtime"
            | "-mmin"
            | "-user"
    )
}

/// What a command of known words prints, for the few whose output is their arguments.
pub(crate) fn said(args: &[Arg], state: &State) -> Option<String> {
    if args.iter().any(|arg| !arg.known || arg.glob || arg.process) {
        return None;
    }
    let words: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
    match words.as_slice() {
        ["echo", "-e" | "-ne" | "-en", rest @ ..] => Some(unescape(&rest.join(" "))),
        ["echo", "-n", rest @ ..] | ["echo", rest @ ..] => Some(rest.join(" ")),
        ["printf", "--", format, rest @ ..] | ["printf", format, rest @ ..] if *format != "-v" => {
            formatted(format, rest)
        }
        ["which", name] | ["command", "-v", name] | ["type", "-p" | "-P", name] if !name.contains('/') => {
            Some(format!("/usr/bin/{name}"))
        }
        ["which", name] | ["command", "-v", name] | ["type", "-p" | "-P", name] => Some((*name).to_owned()),
        ["pwd"] | ["pwd", _] => Some(state.value("PWD")).filter(|value| value.known).map(|value| value.text),
        _ => None,
    }
}

/// What `printf` makes of its arguments, when its format holds nothing but `%s`, `%b`, `%d` and `%%`.
pub(crate) fn formatted(format: &str, args: &[&str]) -> Option<String> {
    let mut args = args.iter();
    let mut out = String::new();
    loop {
        let left = args.len();
        let mut chars = format.chars();
        let mut shown = String::new();
        while let Some(c) = chars.next() {
            match (c, if c == '%' { chars.next() } else { None }) {
                ('%', Some('s' | 'd')) => shown.push_str(args.next().unwrap_or(&"")),
                ('%', Some('b')) => shown.push_str(&unescape(args.next().unwrap_or(&""))),
                ('%', Some('%')) => shown.push('%'),
                ('%', _) => return None,
                (c, _) => shown.push(c),
            }
        }
        // The escapes of the format; those of an argument of `%s` are worked out, too: they hide nothing then.
        out.push_str(&unescape(&shown));
        if args.len() == 0 || args.len() == left {
            return Some(out);
        }
    }
}

/// The text that backslash escapes stand for (`printf`, `$'...'`).
pub(crate) fn unescape(raw: &str) -> String {
    let chars: Vec<char> = raw.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    let digits = |from: usize, radix: u32, max: usize| -> (u32, usize) {
        let (mut value, mut used) = (0u32, 0);
        while used < max
            && let Some(digit) = chars.get(from + used).and_then(|c| c.to_digit(radix))
        {
            value = value.wrapping_mul(radix).wrapping_add(digit);
            used += 1;
        }
        (value, used)
    };
    while at < chars.len() {
        if chars[at] != '\\' || at + 1 == chars.len() {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        let c = chars[at + 1];
        at += 2;
        let (value, used) = match c {
            'x' => digits(at, 16, 2),
            'u' => digits(at, 16, 4),
            'U' => digits(at, 16, 8),
            '0'..='7' => {
                at -= 1;
                digits(at, 8, if c == '0' { 4 } else { 3 })
            }
            _ => (0, 0),
        };
        if used > 0 {
            out.extend(char::from_u32(value).filter(|c| *c != '\0'));
            at += used;
            continue;
        }
        match c {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'a' | 'b' | 'e' | 'E' | 'f' | 'v' => out.push(' '),
            '\\' | '\'' | '"' | '?' => out.push(c),
            other => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    out
}
