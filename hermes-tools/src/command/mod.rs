//! What a shell command would run, and what is to be said of it.
//!
//! A command is judged by the programs and arguments that it comes to, not by its text: [`lexer`] reads it, [`resolve`]
//! lists what it runs, [`rules`] judges each call. What cannot be read is asked about, never passed.

mod effects;
#[cfg(test)]
mod evasions;
mod expand;
mod files;
mod lexer;
mod programs;
mod resolve;
mod rules;
mod services;
mod tables;
#[cfg(test)]
mod tests;
mod wrappers;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::paths::Homes;
use crate::text::strip_ansi;
use expand::State;
use resolve::{Calls, resolve};

/// Longest command that is read, in bytes (tools reference, 5.3).
const COMMAND_MAX_BYTES: usize = 128_000;

/// Where a command would run.
pub(crate) struct Ground {
    pub(crate) cwd: PathBuf,
    pub(crate) homes: Homes,
    /// The environment that the command gets.
    pub(crate) env: Arc<BTreeMap<String, String>>,
}

/// What a person has to be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) reason: String,
    /// What "session" and "always" would allow.
    pub(crate) pattern: String,
}

/// What is to be said of a command.
#[derive(Debug, Default)]
pub(crate) struct Assessment {
    /// Why it never runs.
    pub(crate) never: Vec<String>,
    pub(crate) ask: Vec<Finding>,
    /// Paths that were looked up on disk, and where they lead: each is looked up once.
    real: RefCell<HashMap<PathBuf, PathBuf>>,
}

/// A command that was read.
pub(crate) struct Reading {
    /// The text as it was given.
    raw: String,
    /// The text without what hides it.
    text: String,
    calls: Calls,
    too_long: bool,
}

/// Reads a command.
pub(crate) fn read(raw: &str, ground: &Ground) -> Reading {
    let too_long = raw.len() > COMMAND_MAX_BYTES;
    let lines = if too_long { String::new() } else { uncover(raw) };
    let text = lines.replace(CONTINUED, "");
    let calls_of = |text: &str| {
        let mut state = State { cwds: vec![Some(ground.cwd.clone())], env: ground.env.clone(), ..State::default() };
        resolve(&lexer::lex(text), &mut state)
    };
    let mut calls = calls_of(&text);
    // No comment is continued, whatever it ends with: what stands in the next line runs. Whether a sign begins a comment
    // depends on where it stands, so the text is read in every way, and what any of them finds counts.
    if lines.contains('#') && lines.contains(CONTINUED) {
        for text in [lexer::without_comments(&lines).replace(CONTINUED, ""), lines] {
            let more = calls_of(&text);
            calls.invocations.extend(more.invocations);
            calls.problems.extend(more.problems);
            calls.problems.sort_unstable();
            calls.problems.dedup();
        }
    }
    Reading { raw: raw.to_owned(), text, calls, too_long }
}

/// A line that goes on in the next one.
const CONTINUED: &str = "\\\n";

/// The text of a command without its comments, for a judge. Everything that runs is in it, as it was written.
pub(crate) fn without_comments(raw: &str) -> String {
    lexer::without_comments(raw)
}

/// The text without terminal sequences, NUL and invisible characters; wide letters become plain ones.
fn uncover(raw: &str) -> String {
    strip_ansi(raw).chars().filter(|c| !is_invisible(*c) && *c != '\0').map(narrow).collect()
}

/// Characters that are not seen.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Full-width forms of ASCII as ASCII.
fn narrow(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        '\u{3000}' | '\u{a0}' => ' ',
        other => other,
    }
}

/// Judges a command.
pub(crate) fn assess(reading: &Reading, ground: &Ground) -> Assessment {
    let mut out = Assessment::default();
    if reading.too_long {
        out.never.push(format!("the command is longer than {COMMAND_MAX_BYTES} bytes"));
        return out;
    }
    if rules::is_fork_bomb(&reading.text) {
        out.never.push("it is a fork bomb".to_owned());
    }
    if reading.raw.chars().any(is_invisible) {
        out.ask.push(Finding {
            reason: "the command holds invisible characters".to_owned(),
            pattern: "invisible characters".to_owned(),
        });
    }
    let mut judged = HashSet::new();
    for call in reading.calls.invocations.iter().filter(|call| judged.insert(*call)) {
        rules::judge(call, ground, &mut out);
    }
    rules::judge_text(&reading.text, &mut out);
    for problem in &reading.calls.problems {
        out.ask.push(Finding { reason: (*problem).to_owned(), pattern: format!("unclear: {problem}") });
    }
    out
}

/// True when the glob matches the text, or one of the calls that it comes to.
pub(crate) fn any_matches(glob: &str, reading: &Reading) -> bool {
    matches(glob, reading.raw.trim())
        || matches(glob, reading.text.trim())
        || reading.calls.invocations.iter().any(|call| matches(glob, &call.line()))
}

/// True when the command was read without a doubt and each of its calls matches one of the globs. Patterns that are no
/// globs match only what is equal.
pub(crate) fn all_match(globs: &[String], reading: &Reading) -> bool {
    let calls = &reading.calls;
    let plain = calls.problems.is_empty() && !reading.too_long && !calls.invocations.is_empty();
    plain
        && calls.invocations.iter().all(|call| {
            let writes =
                call.redirects.iter().any(|redirect| redirect.op.contains('>') && redirect.target.text != "/dev/null");
            let known = call.args.iter().all(|arg| arg.known && !arg.process) && call.assigned.is_empty();
            let line = call.line();
            known && !writes && !call.name.is_empty() && globs.iter().any(|glob| matches(glob, &line))
        })
}

/// `*` matches anything, `?` one character; everything else itself, white space runs as one space.
pub(crate) fn matches(glob: &str, text: &str) -> bool {
    let squeeze = |text: &str| -> Vec<char> { text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect() };
    let (glob, text) = (squeeze(glob), squeeze(text));
    wildcard(&glob, &text)
}

/// Matches without recursion: on a mismatch the last `*` takes one character more.
pub(crate) fn wildcard(glob: &[char], text: &[char]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if glob.get(g) == Some(&'*') {
            star = Some((g + 1, t));
            g += 1;
        } else if glob.get(g).is_some_and(|c| *c == '?' || *c == text[t]) {
            (g, t) = (g + 1, t + 1);
        } else if let Some((after, from)) = star {
            (g, t) = (after, from + 1);
            star = Some((after, from + 1));
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

/// A glob in which a set of characters stands for any one character.
pub(crate) fn loose(glob: &str) -> Vec<char> {
    let mut out = Vec::new();
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        if c == '[' {
            chars.by_ref().take_while(|c| *c != ']').for_each(drop);
            out.push('?');
        } else {
            out.push(c);
        }
    }
    out
}
