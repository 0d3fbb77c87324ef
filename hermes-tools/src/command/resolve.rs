//! Which programs a script runs: words are expanded, wrappers taken off, scripts in arguments read in their turn.

use std::path::{Path, PathBuf};

use super::expand::{Arg, EITHER, Inner, State, expand, said};
use super::lexer::{Item, Script, Simple, lex};
use crate::session::normalize;

/// Deepest nesting of scripts in arguments.
const MAX_DEPTH: usize = 12;

/// Most program calls that are looked at; more is not read.
const INVOCATIONS_MAX: usize = 20_000;

/// A redirection of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Redirected {
    pub(crate) op: String,
    pub(crate) target: Arg,
}

/// One program call, as it would run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Invocation {
    /// The program without its directory.
    pub(crate) name: String,
    pub(crate) args: Vec<Arg>,
    pub(crate) redirects: Vec<Redirected>,
    /// Where it runs, unless that is not known.
    pub(crate) cwd: Option<PathBuf>,
    /// True when it reads what another prints.
    pub(crate) piped: bool,
    /// True when it reads a here-document or a here-string.
    pub(crate) fed: bool,
    /// Variables set for it.
    pub(crate) assigned: Vec<String>,
}

impl Invocation {
    /// The call as one line, for globs.
    pub(crate) fn line(&self) -> String {
        let mut line = self.name.clone();
        for arg in &self.args {
            line.push(' ');
            line.push_str(&arg.text);
        }
        line
    }

    /// The arguments that are no options.
    pub(crate) fn plain(&self) -> impl Iterator<Item = &Arg> {
        let mut options = true;
        self.args.iter().filter(move |arg| {
            if options && arg.text == "--" {
                options = false;
                return false;
            }
            !options || !arg.text.starts_with('-') || arg.text == "-"
        })
    }

    /// True when it has this long option (also shortened to a value) or one of these letters.
    pub(crate) fn has(&self, letters: &str, long: &[&str]) -> bool {
        self.args.iter().take_while(|arg| arg.text != "--").any(|arg| {
            if let Some(name) = arg.text.strip_prefix("--") {
                let name = name.split('=').next().unwrap_or("");
                return long.contains(&name);
            }
            arg.text.strip_prefix('-').is_some_and(|short| short.chars().any(|c| letters.contains(c)))
        })
    }
}

/// Everything that a script runs.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) invocations: Vec<Invocation>,
    /// What is not known before it runs.
    pub(crate) problems: Vec<&'static str>,
}

/// Lists what a script runs.
pub(crate) fn resolve(script: &Script, state: &mut State) -> Calls {
    let mut walk = Walk { calls: Calls::default(), depth: 0 };
    walk.script(script, state);
    walk.calls
}

struct Walk {
    calls: Calls,
    depth: usize,
}

/// What a call reads.
#[derive(Default, Clone)]
struct Feed {
    piped: bool,
    /// What is known of what it reads.
    texts: Vec<String>,
    fed: bool,
}

impl Walk {
    fn problem(&mut self, text: &'static str) {
        if !self.calls.problems.contains(&text) {
            self.calls.problems.push(text);
        }
    }

    fn script(&mut self, script: &Script, state: &mut State) {
        if self.depth > MAX_DEPTH {
            return self.problem("it is nested too deeply");
        }
        self.depth += 1;
        for problem in &script.problems {
            self.problem(problem);
        }
        let mut outer: Vec<Option<PathBuf>> = Vec::new();
        let mut printed: Option<String> = None;
        for item in &script.items {
            match item {
                Item::Open => outer.push(state.cwd.clone()),
                Item::Close => {
                    if let Some(cwd) = outer.pop() {
                        state.cwd = cwd;
                    }
                }
                Item::Command(simple) => printed = self.simple(simple, printed.as_ref(), state),
            }
        }
        self.depth -= 1;
    }

    /// Reads a text as a script of its own.
    fn text(&mut self, text: &str, state: &State) {
        let mut state = state.clone();
        self.script(&lex(text), &mut state);
    }

    /// Looks at one command; returns what it prints, when that is known.
    fn simple(&mut self, simple: &Simple, before: Option<&String>, state: &mut State) -> Option<String> {
        if self.calls.invocations.len() > INVOCATIONS_MAX {
            self.problem("it is too long");
            return None;
        }
        let mut inner = Inner::new();
        let mut args: Vec<Arg> = Vec::new();
        let mut assigned = Vec::new();
        for word in &simple.words {
            let expanded = expand(word, state, &mut inner);
            let name = assignment(word.pieces.first());
            match (args.is_empty(), name) {
                (true, Some((name, added))) => {
                    // A value is one text, however it would be split.
                    let known = expanded.iter().all(|arg| arg.known);
                    let text = expanded.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
                    let value = text.split_once('=').map(|(_, value)| value.to_owned());
                    let value = value.filter(|_| known && !added);
                    state.variables.insert(name.clone(), value);
                    assigned.push(name);
                }
                _ => args.extend(expanded),
            }
        }
        let redirects: Vec<Redirected> = simple
            .redirects
            .iter()
            .map(|redirect| {
                let target = expand(&redirect.target, state, &mut inner).into_iter().next().unwrap_or_default();
                Redirected { op: redirect.op.clone(), target }
            })
            .collect();
        for script in inner {
            self.script(&script, &mut state.clone());
        }
        let mut feed = Feed { piped: simple.piped, texts: simple.heredocs.clone(), fed: !simple.heredocs.is_empty() };
        if simple.piped {
            feed.texts.extend(before.cloned());
        }
        for redirect in redirects.iter().filter(|redirect| redirect.op == "<<<") {
            feed.texts.push(redirect.target.text.clone());
            feed.fed = true;
        }
        let printed = match (said(&args), redirects.is_empty()) {
            (Some(text), true) => Some(text),
            // `cat` hands on what it reads.
            _ if args.len() == 1 && args[0].text == "cat" => feed.texts.first().cloned(),
            _ => None,
        };
        let call = Invocation { redirects, assigned, cwd: state.cwd.clone(), ..Invocation::default() };
        if args.is_empty() {
            self.calls.invocations.push(call);
        } else {
            self.call(args, call, &feed, state);
        }
        printed
    }

    /// Looks at a call and at what it calls.
    fn call(&mut self, mut args: Vec<Arg>, frame: Invocation, feed: &Feed, state: &mut State) {
        if self.depth > MAX_DEPTH {
            return self.problem("it is nested too deeply");
        }
        // A name that is not known may be nothing: then the next word is the program.
        while args.first().is_some_and(|arg| arg.text.is_empty() && !arg.process) {
            if !args[0].known {
                self.problem("the name of a program is not known before it runs");
            }
            args.remove(0);
        }
        if args.is_empty() {
            self.calls.invocations.push(frame);
            return;
        }
        let program = args.remove(0);
        if !program.known || program.glob || program.process {
            self.problem("the name of a program is not known before it runs");
        }
        let name = base_name(&program.text).to_owned();
        if program.glob {
            // It may come to any of these.
            let glob = super::loose(&name);
            for candidate in HARMFUL.iter().filter(|name| super::wildcard(&glob, &name.chars().collect::<Vec<_>>())) {
                let mut args = args.clone();
                args.insert(0, Arg::known(*candidate));
                self.depth += 1;
                self.call(args, frame.clone(), feed, state);
                self.depth -= 1;
            }
        }
        let call = Invocation { name, args, piped: feed.piped, fed: feed.fed, ..frame.clone() };
        self.calls.invocations.push(call.clone());
        self.depth += 1;
        // What a wrapper calls has no redirections of its own.
        let inner = Invocation { redirects: Vec::new(), assigned: Vec::new(), ..frame };
        self.unwrap(&call, inner, feed, state);
        self.depth -= 1;
    }

    fn unwrap(&mut self, call: &Invocation, frame: Invocation, feed: &Feed, state: &mut State) {
        let args = &call.args;
        match call.name.as_str() {
            "cd" | "pushd" | "chdir" => change_directory(call, state),
            "popd" => state.cwd = None,
            "export" | "declare" | "local" | "readonly" | "typeset" => declare(args, state),
            "read" | "mapfile" | "readarray" | "getopts" => {
                for arg in call.plain() {
                    state.variables.insert(arg.text.clone(), None);
                }
            }
            "unset" => {
                for arg in call.plain() {
                    state.variables.remove(&arg.text);
                }
            }
            "for" | "select" => {
                let values: Vec<&Arg> = args.iter().skip(2).collect();
                let known = !values.is_empty() && values.iter().all(|value| value.known);
                let all = values.iter().map(|value| value.text.as_str()).collect::<Vec<_>>();
                let value = known.then(|| all.join(&EITHER.to_string()));
                if let Some(name) = args.first() {
                    state.variables.insert(name.text.clone(), value);
                }
            }
            "eval" => {
                let text = args.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
                if args.iter().any(|arg| !arg.known) {
                    self.problem("a part of what eval runs is not known before it runs");
                }
                self.depth += 1;
                // In this shell: what it sets stays.
                self.script(&lex(&text), state);
                self.depth -= 1;
            }
            "alias" => {
                for arg in args {
                    if let Some((_, text)) = arg.text.split_once('=') {
                        self.text(text, state);
                    }
                }
            }
            "trap" => {
                if let Some(arg) = call.plain().next() {
                    self.text(&arg.text.clone(), state);
                }
            }
            "find" => self.find(call, &frame, state),
            name if is_shell(name) => self.shell(call, feed, state),
            "su" | "runuser" | "script" => {
                for text in option_values(args, "c", &["command", "session-command"]) {
                    self.known_text(&text, state);
                }
            }
            "ssh" => {
                let rest = after_options(args, "BbcDEeFIiJLlmOopQRSWw", &[]);
                let text = rest.iter().skip(1).map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
                self.text(&text, state);
            }
            "watch" | "entr" | "parallel" => {
                let rest = after_options(args, "nqNjI", &["interval", "jobs"]);
                let text = rest.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
                self.text(&text, state);
            }
            name => {
                if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.0 == name) {
                    self.wrapped(call, wrapper, frame, feed, state);
                }
            }
        }
    }

    fn known_text(&mut self, arg: &Arg, state: &State) {
        if !arg.known {
            self.problem("a part of a script is not known before it runs");
        }
        self.text(&arg.text, state);
    }

    fn wrapped(&mut self, call: &Invocation, wrapper: &Wrapper, frame: Invocation, feed: &Feed, state: &mut State) {
        let (name, letters, long, positionals) = *wrapper;
        if name == "env" {
            for text in option_values(&call.args, "S", &["split-string"]) {
                self.known_text(&text, state);
            }
        }
        if name == "command" && call.args.first().is_some_and(|arg| matches!(arg.text.as_str(), "-v" | "-V")) {
            return;
        }
        let mut rest = after_options(&call.args, letters, long);
        let skip = positionals.min(rest.len());
        rest.drain(..skip);
        let is_set = |arg: &Arg| assignment_text(&arg.text).is_some() && matches!(name, "env" | "sudo" | "doas");
        while rest.first().is_some_and(is_set) {
            rest.remove(0);
        }
        if name == "xargs" && !rest.is_empty() {
            // What it reads comes behind, or in the place that -I names.
            match feed.texts.first() {
                Some(text) => rest.extend(text.split_whitespace().map(Arg::known)),
                None => rest.push(Arg::unknown()),
            }
        }
        if !rest.is_empty() {
            self.call(rest, frame, feed, state);
        }
    }

    fn shell(&mut self, call: &Invocation, feed: &Feed, state: &State) {
        let mut script = None;
        let mut takes_text = false;
        let mut at = 0;
        while let Some(arg) = call.args.get(at) {
            let text = arg.text.as_str();
            at += 1;
            if text == "--" {
                break;
            }
            if let Some(short) = text.strip_prefix(['-', '+']).filter(|short| !short.starts_with('-')) {
                takes_text |= short.contains('c');
                if short.ends_with('o') || short.ends_with('O') {
                    at += 1;
                }
            } else if matches!(text, "--rcfile" | "--init-file") {
                at += 1;
            } else if !text.starts_with("--") || text.is_empty() {
                script = Some(arg);
                break;
            }
        }
        if script.is_none() {
            script = call.args.get(at);
        }
        match (takes_text, script) {
            (true, Some(text)) => {
                let mut inner = state.clone();
                // `bash -c TEXT NAME ARGS`: what $1 holds is known.
                for (n, arg) in call.args.iter().skip_while(|arg| *arg != text).skip(1).enumerate() {
                    inner.variables.insert(n.to_string(), Some(arg.text.clone()).filter(|_| arg.known));
                }
                self.known_text(&text.clone(), &inner);
            }
            (true, None) => self.problem("a shell is given no script"),
            (false, None) => {
                for text in &feed.texts {
                    self.text(text, state);
                }
            }
            (false, Some(_)) => {}
        }
    }

    /// `find` runs what stands behind its `-exec`.
    fn find(&mut self, call: &Invocation, frame: &Invocation, state: &mut State) {
        let roots: Vec<Arg> =
            call.args.iter().take_while(|arg| !arg.text.starts_with(['-', '(', '!'])).cloned().collect();
        let mut at = 0;
        while at < call.args.len() {
            if !matches!(call.args[at].text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
                at += 1;
                continue;
            }
            let from = at + 1;
            let length = call.args[from..].iter().position(|arg| matches!(arg.text.as_str(), ";" | "+"));
            let to = from + length.unwrap_or(call.args.len() - from);
            let mut inner = Vec::new();
            for arg in &call.args[from..to] {
                if arg.text == "{}" {
                    // It runs on what is below the roots; what that is, is not known, but it may be all of it.
                    inner.extend(roots.iter().map(|root| Arg { known: false, ..root.clone() }));
                } else {
                    inner.push(arg.clone());
                }
            }
            if !inner.is_empty() {
                self.call(inner, frame.clone(), &Feed::default(), state);
            }
            at = to + 1;
        }
    }
}

/// Name, letters of options with a value, long options with a value, words before the program.
type Wrapper = (&'static str, &'static str, &'static [&'static str], usize);

/// Programs that run another program that they are given.
const WRAPPERS: &[Wrapper] = &[
    ("sudo", "ugpCThRrtDU", &["user", "group", "prompt", "chdir", "chroot", "host", "role", "type", "other-user"], 0),
    ("doas", "uC", &[], 0),
    ("env", "uCS", &["unset", "chdir", "split-string"], 0),
    ("nice", "n", &["adjustment"], 0),
    ("ionice", "cnpPu", &["class", "classdata"], 0),
    ("chrt", "TPDpa", &[], 1),
    ("taskset", "", &[], 1),
    ("nohup", "", &[], 0),
    ("timeout", "ks", &["kill-after", "signal"], 1),
    ("command", "", &[], 0),
    ("builtin", "", &[], 0),
    ("exec", "a", &[], 0),
    ("setsid", "", &[], 0),
    ("time", "fo", &["format", "output"], 0),
    ("stdbuf", "ioe", &["input", "output", "error"], 0),
    ("xargs", "adEILnPs", &["arg-file", "delimiter", "max-args", "max-procs", "replace", "max-lines", "max-chars"], 0),
    ("busybox", "", &[], 0),
    ("toybox", "", &[], 0),
    ("chroot", "", &["userspec", "groups"], 1),
    ("flock", "wE", &["timeout", "conflict-exit-code"], 1),
    ("unshare", "SGR", &["root", "wd", "setuid", "setgid"], 0),
    ("nsenter", "tSG", &["target", "setuid", "setgid"], 0),
    ("strace", "aeEIoOpPsSuX", &["output", "trace"], 0),
    ("ltrace", "aeFlnopsuxX", &[], 0),
    ("setpriv", "", &[], 0),
    ("systemd-run", "pEuM", &["property", "setenv", "unit", "slice", "machine"], 0),
    ("pkexec", "", &["user"], 0),
    ("caffeinate", "tw", &[], 0),
    ("proot", "rbwq", &[], 0),
    ("then", "", &[], 0),
    ("do", "", &[], 0),
];

/// Programs that a pattern in the place of a program may come to, as far as they matter.
const HARMFUL: &[&str] = &[
    "rm",
    "reboot",
    "shutdown",
    "halt",
    "poweroff",
    "systemctl",
    "init",
    "telinit",
    "mkfs",
    "dd",
    "find",
    "kill",
    "sudo",
    "bash",
    "sh",
    "env",
    "busybox",
    "chmod",
    "chown",
    "mv",
    "wipefs",
    "rsync",
];

/// True for programs that read shell text.
pub(crate) fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "mksh" | "fish" | "rbash" | "csh" | "tcsh")
}

/// The last part of a path.
pub(crate) fn base_name(program: &str) -> &str {
    program.trim_end_matches('/').rsplit('/').next().unwrap_or(program)
}

/// The arguments behind the options of a wrapper.
fn after_options(args: &[Arg], letters: &str, long: &[&str]) -> Vec<Arg> {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let text = arg.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(name) = text.strip_prefix("--") {
            at += if !name.contains('=') && long.contains(&name) { 2 } else { 1 };
        } else if text.len() > 1 && text.starts_with('-') {
            // A letter with a value takes the rest of the word, or the next word.
            let takes_next = text.chars().last().is_some_and(|last| {
                let first = text.chars().skip(1).find(|c| letters.contains(*c));
                first == Some(last)
            });
            at += if takes_next { 2 } else { 1 };
        } else {
            break;
        }
    }
    args.get(at..).unwrap_or_default().to_vec()
}

/// The values of an option in all its forms.
fn option_values(args: &[Arg], letter: &str, long: &[&str]) -> Vec<Arg> {
    let mut values = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let text = arg.text.as_str();
        if let Some(name) = text.strip_prefix("--") {
            match name.split_once('=') {
                Some((name, value)) if long.contains(&name) => {
                    values.push(Arg { text: value.to_owned(), ..arg.clone() });
                }
                None if long.contains(&name) => values.extend(args.get(at + 1).cloned()),
                _ => {}
            }
        } else if let Some(short) = text.strip_prefix('-')
            && let Some(place) = short.find(letter)
        {
            let rest = &short[place + letter.len()..];
            if rest.is_empty() {
                values.extend(args.get(at + 1).cloned());
            } else {
                values.push(Arg { text: rest.to_owned(), ..arg.clone() });
            }
        }
    }
    values
}

fn change_directory(call: &Invocation, state: &mut State) {
    let target = call.plain().next();
    state.cwd = match target {
        None => state.env.get("HOME").map(PathBuf::from),
        Some(arg) if !arg.known || arg.glob || arg.text == "-" => None,
        Some(arg) => absolute(&arg.text, state),
    };
}

/// The path that a word names, unless that is not known.
pub(crate) fn absolute(text: &str, state: &State) -> Option<PathBuf> {
    let home = state.env.get("HOME");
    let path = match (text.strip_prefix('~'), home) {
        (Some(""), Some(home)) => PathBuf::from(home),
        (Some(rest), Some(home)) if rest.starts_with('/') => Path::new(home).join(rest.trim_start_matches('/')),
        _ => PathBuf::from(text),
    };
    if path.is_absolute() {
        return Some(normalize(&path));
    }
    state.cwd.as_ref().map(|cwd| normalize(&cwd.join(path)))
}

fn declare(args: &[Arg], state: &mut State) {
    for arg in args {
        if let Some((name, value)) = arg.text.split_once('=') {
            state.variables.insert(name.to_owned(), Some(value.to_owned()).filter(|_| arg.known));
        }
    }
}

/// The name of an assignment (`X=...`, `X+=...`, `X[1]=...`) and whether it adds to the value.
fn assignment(first: Option<&super::lexer::Piece>) -> Option<(String, bool)> {
    match first {
        Some(super::lexer::Piece::Text { text, quoted: false }) => assignment_text(text),
        _ => None,
    }
}

fn assignment_text(text: &str) -> Option<(String, bool)> {
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
