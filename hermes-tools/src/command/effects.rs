//! What commands of the shell itself change for those that follow, and what commands print and read.

use std::path::{Path, PathBuf};

use super::expand::{Arg, State, Value, formatted, hints_of, said};
use super::resolve::{Invocation, Redirected, VALUES_MAX};
use super::wrappers::{after_options, option_values};
use crate::session::normalize;

/// What a call reads.
#[derive(Default, Clone)]
pub(super) struct Feed {
    pub(super) piped: bool,
    /// What is known of what it reads.
    pub(super) texts: Vec<String>,
    /// What it may read, when that is not known.
    pub(super) hints: Vec<String>,
    pub(super) fed: bool,
}

impl Feed {
    /// Everything that it may read, as guesses.
    pub(super) fn all(&self) -> Vec<String> {
        let words = self.texts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned);
        self.hints.iter().cloned().chain(words).take(VALUES_MAX).collect()
    }
}

/// `cd`: it may fail, then it changes nothing.
pub(super) fn change_directory(call: &Invocation, state: &mut State) {
    let before = state.cwds.clone();
    let target = call.plain().next();
    let after: Vec<Option<PathBuf>> = match target {
        None => vec![state.env.get("HOME").map(PathBuf::from)],
        Some(arg) if arg.text == "-" => state.last.iter().cloned().chain([None]).collect(),
        Some(arg) => {
            let known = before.iter().map(|cwd| absolute_in(&arg.text, cwd.as_deref(), state));
            let known: Vec<_> = if arg.known && !arg.glob { known.collect() } else { vec![None] };
            let hint =
                |hint: &String| before.iter().map(|cwd| absolute_in(hint, cwd.as_deref(), state)).collect::<Vec<_>>();
            // What is known of it may be all of it; the root alone says nothing.
            let part = if !arg.known && arg.text.starts_with('/') { hint(&arg.text) } else { Vec::new() };
            let part = part.into_iter().filter(|dir| dir.as_deref() != Some(Path::new("/")));
            known.into_iter().chain(part).chain(arg.hints.iter().flat_map(hint)).collect()
        }
    };
    let sure = after.iter().all(|dir| dir.as_ref().is_some_and(|dir| dir.is_dir()));
    state.cwds = Vec::new();
    extend(&mut state.cwds, &after);
    if !sure {
        extend(&mut state.pending, &before);
    }
    state.last = before;
}

/// The path that a word names, unless that is not known.
pub(super) fn absolute_in(text: &str, cwd: Option<&Path>, state: &State) -> Option<PathBuf> {
    let home = state.env.get("HOME");
    let path = match (text.strip_prefix('~'), home) {
        (Some(""), Some(home)) => PathBuf::from(home),
        (Some(rest), Some(home)) if rest.starts_with('/') => Path::new(home).join(rest.trim_start_matches('/')),
        _ => PathBuf::from(text),
    };
    if path.is_absolute() {
        return Some(normalize(&path));
    }
    cwd.map(|cwd| normalize(&cwd.join(path)))
}

/// Adds what is not there yet.
pub(super) fn extend<T: PartialEq + Clone>(to: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

/// Both states are possible.
pub(super) fn merge(mut one: State, other: &State) -> State {
    if !std::sync::Arc::ptr_eq(&one.variables, &other.variables) {
        for (name, values) in other.variables.iter() {
            if one.variables.get(name) != Some(values) {
                extend(one.variables_mut().entry(name.clone()).or_default(), values);
            }
        }
    }
    extend(&mut one.input, &other.input);
    extend(&mut one.cwds, &other.cwds);
    extend(&mut one.pending, &other.pending);
    extend(&mut one.last, &other.last);
    one
}

pub(super) fn value_of(arg: &Arg) -> Value {
    Value { text: arg.text.clone(), known: arg.known && !arg.process, hints: arg.hints.clone() }
}

/// The value of an assignment that became these arguments: one text, however it would be split.
pub(super) fn assigned_value(args: &[Arg], added: bool) -> Value {
    let joined = args.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
    let text = joined.split_once('=').map_or("", |(_, value)| value).to_owned();
    let mut hints: Vec<String> = args
        .iter()
        .flat_map(|arg| arg.hints.iter())
        .map(|hint| hint.split_once('=').map_or(hint.as_str(), |(_, value)| value).to_owned())
        .collect();
    if added || args.iter().any(|arg| !arg.known) {
        extend(&mut hints, &[text]);
        return Value::unknown(hints);
    }
    Value { text, known: true, hints }
}

/// What a call prints.
pub(super) fn prints(args: &[Arg], redirects: &[Redirected], feed: &Feed, state: &State) -> Value {
    if let Some(text) = said(args, state).filter(|_| redirects.is_empty()) {
        return Value::known(text);
    }
    // `cat` hands on what it reads.
    if let ([cat], Some(text)) = (args, feed.texts.first())
        && cat.text == "cat"
    {
        return Value::known(text.clone());
    }
    let mut hints = Vec::new();
    hints_of(args, &mut hints);
    extend(&mut hints, &feed.all());
    Value::unknown(hints)
}

pub(super) fn declare(args: &[Arg], state: &mut State) {
    for arg in args {
        if let Some((name, _)) = arg.text.split_once('=') {
            let value = assigned_value(std::slice::from_ref(arg), false);
            state.variables_mut().insert(name.to_owned(), vec![value]);
        }
    }
    // Another name for a variable: what is set by the one is in the other.
    if args.iter().any(|arg| arg.text.starts_with('-') && arg.text.contains('n')) {
        for arg in args {
            if let Some((name, target)) = arg.text.split_once('=') {
                for name in [name, target] {
                    state.variables_mut().insert(name.to_owned(), vec![Value::default()]);
                }
            }
        }
    }
}

/// `read NAME`: the first line of what is known of its input; more names take a word each.
pub(super) fn read_into(call: &Invocation, feed: &Feed, state: &mut State) {
    let given = after_options(&call.args, "adinNptu", &[]).into_iter().chain(option_values(&call.args, "a", &[]));
    let names: Vec<String> = given.map(|arg| arg.text).collect();
    let names = if names.is_empty() { vec!["REPLY".to_owned()] } else { names };
    let plain = call.args.iter().all(|arg| arg.text == "-r" || !arg.text.starts_with('-'));
    for name in &names {
        let mut values: Vec<Value> = Vec::new();
        for text in feed.texts.iter().filter(|_| plain) {
            let lines = text.lines().take(VALUES_MAX);
            if let [_] = names.as_slice() {
                values.extend(lines.map(|line| Value::known(line.trim())));
            } else {
                values.push(Value::unknown(text.split_whitespace().map(str::to_owned).collect()));
            }
        }
        if values.is_empty() || !feed.hints.is_empty() {
            let mut hints = feed.all();
            extend(&mut hints, &state.input);
            values.push(Value::unknown(hints));
        }
        values.truncate(VALUES_MAX);
        values.dedup();
        state.variables_mut().insert(name.clone(), values);
    }
}

/// `printf -v NAME FORMAT ARGUMENTS`.
pub(super) fn print_into(args: &[Arg], state: &mut State) {
    let rest = after_options(args, "v", &[]);
    let Some(name) = option_values(args, "v", &[]).into_iter().next() else { return };
    let words: Vec<&str> = rest.iter().map(|arg| arg.text.as_str()).collect();
    let known = rest.iter().all(|arg| arg.known);
    let text = words.split_first().filter(|_| known).and_then(|(format, words)| formatted(format, words));
    let hints = rest.iter().flat_map(|arg| arg.hints.iter().chain([&arg.text])).cloned().collect();
    state.variables_mut().insert(name.text, vec![text.map_or_else(|| Value::unknown(hints), Value::known)]);
}

/// Options of other programs whose value is shell text: letters and long forms.
pub(super) fn option_scripts(name: &str) -> Option<(&'static str, &'static [&'static str])> {
    Some(match name {
        "tar" | "bsdtar" | "gtar" => {
            ("IF", &["use-compress-program", "to-command", "info-script", "new-volume-script"])
        }
        "split" => ("\u{0}", &["filter"]),
        "rsync" => ("e", &["rsh", "rsync-path"]),
        "nix-shell" => ("\u{0}", &["run", "command"]),
        "fzf" => ("\u{0}", &["preview", "bind"]),
        "sort" => ("\u{0}", &["compress-program"]),
        "make" | "gmake" => ("\u{0}", &["eval"]),
        _ => return None,
    })
}

/// The name of an assignment (`X=...`, `X+=...`, `X[1]=...`) and whether it adds to the value.
pub(super) fn assignment(first: Option<&super::lexer::Piece>) -> Option<(String, bool)> {
    match first {
        Some(super::lexer::Piece::Text { text, quoted: false }) => assignment_text(text),
        _ => None,
    }
}

pub(super) fn assignment_text(text: &str) -> Option<(String, bool)> {
    let (left, _) = text.split_once('=')?;
    let (left, added) = match left.strip_suffix('+') {
        Some(left) => (left, true),
        None => (left, false),
    };
    let (name, added) = match left.split_once('[') {
        Some((name, _)) => (name, true),
        None => (left, added),
    };
    let mut chars = name.chars();
    let first = chars.next()?;
    let legal = (first.is_alphabetic() || first == '_') && chars.all(|c| c.is_alphanumeric() || c == '_');
    legal.then(|| (name.to_owned(), added))
}
