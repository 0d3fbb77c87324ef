//! Which programs a script runs: words are expanded, wrappers taken off, scripts in arguments read in their turn.
//!
//! What may or may not have happened before a call (a branch, a failed `cd`, a function that is called later) leaves
//! every possibility open: a variable has all values that it may have, a call all directories that it may run in.

use std::path::PathBuf;

use super::effects::{
    Feed, absolute_in, assigned_value, assignment, assignment_text, change_directory, declare, extend, merge,
    option_scripts, print_into, prints, read_into, value_of,
};
use super::expand::{Arg, Inner, State, Value, expand, names_in};
use super::lexer::{Item, Link, Script, Simple, lex};
use super::wrappers::{Wrapper, after_options, handed, is_long, option_values, wrapper};

/// Deepest nesting of scripts in arguments.
const MAX_DEPTH: usize = 12;

/// Deepest nesting in which loops and functions are read twice.
const TWICE_DEPTH: usize = 4;

/// Most program calls that are looked at; more is not read.
const INVOCATIONS_MAX: usize = 20_000;

/// Most values that one variable is known to have, and most ways in which one command is read.
pub(super) const VALUES_MAX: usize = 64;

/// Most directories that a call may run in.
const DIRECTORIES_MAX: usize = 16;

/// A redirection of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Redirected {
    pub(crate) op: String,
    pub(crate) target: Arg,
}

/// One program call, as it would run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Invocation {
    /// The program without its directory.
    pub(crate) name: String,
    pub(crate) args: Vec<Arg>,
    pub(crate) redirects: Vec<Redirected>,
    /// Every directory that it may run in; `None` for one that is not known.
    pub(crate) cwds: Vec<Option<PathBuf>>,
    /// True when it reads what another prints.
    pub(crate) piped: bool,
    /// True when it reads a here-document or a here-string.
    pub(crate) fed: bool,
    /// What is known of what it reads.
    pub(crate) feed: Vec<String>,
    /// Variables set for it, and their values.
    pub(crate) assigned: Vec<(String, String)>,
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

    /// True when it has this long option (in any shorter form, with or without a value) or one of these letters.
    pub(crate) fn has(&self, letters: &str, long: &[&str]) -> bool {
        self.args.iter().take_while(|arg| arg.text != "--").any(|arg| {
            if let Some(name) = arg.text.strip_prefix("--") {
                let name = name.split('=').next().unwrap_or("");
                return long.iter().any(|long| is_long(name, long));
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
    let mut walk = Walk { calls: Calls::default(), depth: 0, again: false };
    walk.script(script, state);
    walk.calls
}

struct Walk {
    calls: Calls,
    depth: usize,
    /// True when a script is read for the second time: what it sets is added to what was set before.
    again: bool,
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
        let pending = std::mem::take(&mut state.pending);
        self.items(script, state);
        if script.compound && self.depth <= TWICE_DEPTH {
            // A loop comes back, and a function is called after what follows it.
            let again = std::mem::replace(&mut self.again, true);
            self.items(script, state);
            self.again = again;
        } else if script.compound {
            self.problem("loops or functions are nested too deeply");
        }
        state.pending = pending;
        self.depth -= 1;
    }

    fn items(&mut self, script: &Script, state: &mut State) {
        let mut outer: Vec<State> = Vec::new();
        let mut printed = Value::default();
        let mut only_and = true;
        // The list that is being set, `x=(a b)`.
        let mut list: Option<String> = None;
        let mut before: Option<&Simple> = None;
        for item in &script.items {
            match item {
                Item::Open => {
                    list = before.and_then(list_name);
                    outer.push(state.clone());
                }
                Item::Close => {
                    list = None;
                    if let Some(kept) = outer.pop() {
                        *state = kept;
                    }
                }
                Item::Command(simple) => {
                    if let (Some(name), Some(around)) = (&list, outer.last_mut()) {
                        let words = simple.words.iter().flat_map(|word| expand(word, state, &mut Inner::new()));
                        let values: Vec<Value> = words.map(|arg| value_of(&arg)).collect();
                        let mut hints = around.value(name).hints;
                        hints.extend(values.into_iter().flat_map(|value| value.hints.into_iter().chain([value.text])));
                        hints.truncate(VALUES_MAX);
                        around.variables_mut().insert(name.clone(), vec![Value::unknown(hints)]);
                    }
                    match simple.link {
                        Link::Next => {
                            self.join_pending(state);
                            state.pending.clear();
                            only_and = true;
                        }
                        Link::And => extend(&mut state.pending, &state.cwds.clone()),
                        Link::Or => {
                            let leaves = simple.words.first().and_then(super::lexer::Word::plain);
                            let leaves = matches!(leaves.as_deref(), Some("exit" | "return" | "break" | "continue"));
                            if leaves && only_and {
                                // Who is still here got through.
                                state.pending.clear();
                            } else {
                                only_and = false;
                                self.join_pending(state);
                            }
                        }
                    }
                    if simple.maybe || simple.piped || simple.detached || self.again {
                        extend(&mut state.pending, &state.cwds.clone());
                    }
                    printed = self.simple(simple, &printed, state);
                    if simple.detached || simple.piped {
                        self.join_pending(state);
                    }
                }
            }
            before = if let Item::Command(simple) = item { Some(simple) } else { None };
        }
        self.join_pending(state);
        state.pending.clear();
    }

    /// What may not have happened is possible again.
    fn join_pending(&mut self, state: &mut State) {
        let pending = state.pending.clone();
        extend(&mut state.cwds, &pending);
        if state.cwds.len() > DIRECTORIES_MAX {
            state.cwds.truncate(DIRECTORIES_MAX);
            self.problem("there are too many directories that it may run in");
        }
    }

    /// Reads a text as a script of its own.
    fn text(&mut self, text: &str, state: &State) {
        let mut state = state.clone();
        self.script(&lex(text), &mut state);
    }

    /// Looks at one command, once for each value that its variables may have; returns what it prints.
    fn simple(&mut self, simple: &Simple, before: &Value, state: &mut State) -> Value {
        let mut names = Vec::new();
        let targets = simple.redirects.iter().map(|redirect| &redirect.target);
        simple.words.iter().chain(targets).for_each(|word| names_in(word, &mut names));
        let mut variants = vec![state.clone()];
        for name in names {
            let Some(values) = state.variables.get(&name).filter(|values| values.len() > 1) else { continue };
            if variants.len() * values.len() > VALUES_MAX {
                self.problem("a variable has too many values");
                continue;
            }
            let pin = |variant: &State| {
                let pinned = |value: &Value| {
                    let mut variant = variant.clone();
                    variant.variables_mut().insert(name.clone(), vec![value.clone()]);
                    variant
                };
                values.iter().map(pinned).collect::<Vec<_>>()
            };
            variants = variants.iter().flat_map(pin).collect();
        }
        if let [_] = variants.as_slice() {
            return self.one(simple, before, state);
        }
        let mut merged: Option<State> = None;
        let mut printed = Value::default();
        for mut variant in variants {
            let said = self.one(simple, before, &mut variant);
            extend(&mut printed.hints, &said.hints);
            extend(&mut printed.hints, &[said.text]);
            printed.hints.truncate(VALUES_MAX);
            merged = Some(match merged {
                Some(merged) => merge(merged, &variant),
                None => variant,
            });
        }
        if let Some(merged) = merged {
            *state = merged;
        }
        printed
    }

    fn one(&mut self, simple: &Simple, before: &Value, state: &mut State) -> Value {
        if self.calls.invocations.len() > INVOCATIONS_MAX {
            self.problem("it is too long");
            return Value::default();
        }
        let mut inner = Inner::new();
        let settings = simple.words.iter().take_while(|word| assignment(word.pieces.first()).is_some()).count();
        // Words are worked out before variables are set for the call.
        let mut args: Vec<Arg> =
            simple.words[settings..].iter().flat_map(|word| expand(word, state, &mut inner)).collect();
        let redirects: Vec<Redirected> = simple
            .redirects
            .iter()
            .map(|redirect| {
                let target = expand(&redirect.target, state, &mut inner).into_iter().next().unwrap_or_default();
                Redirected { op: redirect.op.clone(), target }
            })
            .collect();
        let outside = (!args.is_empty()).then(|| state.variables.clone());
        let sure = simple.link == Link::Next && !simple.maybe && !simple.piped && !simple.detached && !self.again;
        let mut assigned = Vec::new();
        for word in &simple.words[..settings] {
            let Some((name, added)) = assignment(word.pieces.first()) else { continue };
            let value = assigned_value(&expand(word, state, &mut inner), added);
            assigned.push((name.clone(), value.text.clone()));
            self.set(state, &name, value, sure || outside.is_some());
        }
        for script in inner {
            self.script(&script, &mut state.clone());
        }
        let mut feed = Feed {
            piped: simple.piped,
            texts: simple.heredocs.clone(),
            hints: Vec::new(),
            fed: !simple.heredocs.is_empty(),
        };
        if simple.piped {
            feed.texts.extend(before.known.then(|| before.text.clone()));
            feed.hints.extend(before.hints.iter().cloned());
        }
        for redirect in redirects.iter().filter(|redirect| redirect.op == "<<<") {
            feed.texts.extend((!redirect.target.text.is_empty()).then(|| redirect.target.text.clone()));
            feed.hints.extend(redirect.target.hints.iter().cloned());
            feed.fed = true;
        }
        let printed = prints(&args, &redirects, &feed, state);
        let call = Invocation { redirects, assigned, cwds: state.cwds.clone(), ..Invocation::default() };
        if args.is_empty() {
            // `done <<< TEXT`: what the loop reads.
            let inputs = call.redirects.iter().filter(|redirect| redirect.op.starts_with('<'));
            for target in inputs.map(|redirect| &redirect.target) {
                extend(&mut state.input, &target.hints);
                extend(&mut state.input, std::slice::from_ref(&target.text));
            }
            state.input.truncate(VALUES_MAX);
            self.calls.invocations.push(call);
            return printed;
        }
        let keeps = [
            "eval",
            "export",
            "declare",
            "typeset",
            "readonly",
            "local",
            "read",
            "printf",
            "mapfile",
            "readarray",
            "getopts",
            "unset",
            "for",
            "select",
            "source",
            ".",
            "exec",
            "builtin",
            "command",
            "let",
            "set",
        ];
        let outside = outside.filter(|_| settings > 0 && !args.iter().any(|arg| keeps.contains(&arg.text.as_str())));
        let doubtful = (!sure).then(|| state.variables.clone());
        args.iter_mut().for_each(|arg| arg.hints.dedup());
        self.call(args, call, &feed, state);
        match (outside, doubtful) {
            (Some(outside), _) => state.variables = outside,
            // It may not have run.
            (None, Some(old)) => {
                let kept = State { variables: old, cwds: Vec::new(), ..state.clone() };
                *state = merge(state.clone(), &kept);
            }
            (None, None) => {}
        }
        printed
    }

    /// Sets a variable, or adds to its values when that may not happen.
    fn set(&mut self, state: &mut State, name: &str, value: Value, sure: bool) {
        if sure {
            state.variables_mut().insert(name.to_owned(), vec![value]);
            return;
        }
        // What is not set is nothing.
        let unset = state.env.get(name).cloned().unwrap_or_default();
        let values = state.variables_mut().entry(name.to_owned()).or_insert_with(|| vec![Value::known(unset)]);
        if values.contains(&value) {
            return;
        }
        if values.len() >= VALUES_MAX {
            return self.problem("a variable has too many values");
        }
        values.push(value);
    }

    /// Looks at a call and at what it calls.
    fn call(&mut self, mut args: Vec<Arg>, frame: Invocation, feed: &Feed, state: &mut State) {
        if self.depth > MAX_DEPTH {
            return self.problem("it is nested too deeply");
        }
        if self.calls.invocations.len() > INVOCATIONS_MAX {
            return self.problem("it is too long");
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
        let call =
            Invocation { name, args, piped: feed.piped, fed: feed.fed, feed: feed.texts.clone(), ..frame.clone() };
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
            "popd" => {
                let last = std::mem::take(&mut state.last);
                state.cwds = vec![None];
                extend(&mut state.cwds, &last);
            }
            "export" | "declare" | "local" | "readonly" | "typeset" => declare(args, state),
            "read" => read_into(call, feed, state),
            "printf" if args.first().is_some_and(|arg| arg.text.starts_with("-v")) => print_into(args, state),
            "mapfile" | "readarray" | "getopts" => {
                for arg in call.plain() {
                    state.variables_mut().insert(arg.text.clone(), vec![Value::unknown(feed.all())]);
                }
            }
            "unset" => {
                for arg in call.plain() {
                    state.variables_mut().remove(&arg.text);
                }
            }
            "for" | "select" => {
                let mut values: Vec<Value> = Vec::new();
                for arg in args.iter().skip(2) {
                    let value = value_of(arg);
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                if values.is_empty() || values.len() > VALUES_MAX {
                    values = vec![Value::unknown(values.into_iter().map(|value| value.text).collect())];
                }
                if let Some(name) = args.first() {
                    state.variables_mut().insert(name.text.clone(), values);
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
            "fd" | "fdfind" => {
                let runs = |arg: &&Arg| matches!(arg.text.as_str(), "-x" | "-X" | "--exec" | "--exec-batch");
                let roots: Vec<String> = call.plain().map(|arg| arg.text.clone()).collect();
                let mut inner: Vec<Arg> = args.iter().skip_while(|arg| !runs(arg)).skip(1).cloned().collect();
                if !inner.is_empty() {
                    inner.push(Arg::unknown(&roots));
                    self.call(inner, frame, &Feed::default(), state);
                }
            }
            name if is_shell(name) => self.shell(call, feed, state),
            "su" | "runuser" | "script" | "sg" | "newgrp" => self.other_user(call, frame, feed, state),
            "start-stop-daemon" => {
                let programs = option_values(args, "xa", &["exec", "startas"]);
                // `--start` is no shorter `--startas`.
                if let Some(program) = programs.iter().find(|program| !program.text.starts_with('-')) {
                    let rest = args.iter().skip_while(|arg| arg.text != "--").skip(1).cloned();
                    self.call([program.clone()].into_iter().chain(rest).collect(), frame, feed, state);
                }
            }
            "ssh" => {
                let rest = after_options(args, "BbcDEeFIiJLlmOopQRSWw", &[]);
                let text = rest.iter().skip(1).map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
                self.text(&text, state);
                for option in option_values(args, "o", &[]) {
                    if let Some((_, command)) = option.text.split_once(['=', ' ']) {
                        self.text(command, state);
                    }
                }
            }
            "watch" | "entr" => {
                let rest = after_options(args, "nqs", &["interval", "equexit", "shotsdir"]);
                let text = rest.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
                self.text(&text, state);
            }
            "parallel" | "rush" => self.parallel(call, feed, state),
            name if option_scripts(name).is_some() => {
                let (letters, long) = option_scripts(name).unwrap_or_default();
                for text in option_values(args, letters, long) {
                    self.known_text(&text, state);
                }
                if let Some(args) = handed(name, args) {
                    self.call(args, frame, feed, state);
                }
            }
            name => {
                if let Some(wrapper) = wrapper(name) {
                    self.wrapped(call, wrapper, frame, feed, state);
                } else if let Some(args) = handed(name, args) {
                    self.call(args, frame, feed, state);
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

    /// Programs that take a whole script with `-c`, or a program behind their options.
    fn other_user(&mut self, call: &Invocation, frame: Invocation, feed: &Feed, state: &mut State) {
        let scripts = option_values(&call.args, "c", &["command", "session-command"]);
        for text in &scripts {
            self.known_text(text, state);
        }
        if scripts.is_empty() && !matches!(call.name.as_str(), "script") && feed.fed | feed.piped {
            feed.texts.iter().for_each(|text| self.text(text, state));
        }
        let letters = if call.name == "script" { "IOBTmoE" } else { "ugGsw" };
        let mut rest = after_options(&call.args, letters, &["user", "group", "supp-group", "shell"]);
        // `su USER PROGRAM`, `sg GROUP PROGRAM`, `script FILE PROGRAM`; `runuser -u USER PROGRAM`.
        for _ in 0..2 {
            if !rest.is_empty() {
                self.call(rest.clone(), frame.clone(), feed, state);
                rest.remove(0);
            }
        }
        let behind: Vec<Arg> = call.args.iter().skip_while(|arg| arg.text != "--").skip(1).cloned().collect();
        if !behind.is_empty() {
            self.call(behind, frame, feed, state);
        }
    }

    /// `parallel PROGRAM ::: ARGUMENTS`, or with arguments that it reads.
    fn parallel(&mut self, call: &Invocation, feed: &Feed, state: &State) {
        let rest = after_options(&call.args, "njIaSN", &["jobs", "arg-file", "max-args", "delay", "timeout", "joblog"]);
        let template: Vec<&str> =
            rest.iter().map(|arg| arg.text.as_str()).take_while(|text| !text.starts_with(":::")).collect();
        let template = template.join(" ");
        let given: Vec<&Arg> = rest.iter().skip_while(|arg| !arg.text.starts_with(":::")).skip(1).collect();
        let mut values: Vec<Value> = given.into_iter().map(value_of).collect();
        if values.is_empty() {
            values.extend(feed.texts.iter().flat_map(|text| text.lines()).map(Value::known));
            values.push(Value::unknown(feed.hints.clone()));
        }
        let mut inner = state.clone();
        values.truncate(VALUES_MAX);
        inner.variables_mut().insert("PARALLEL_ARGUMENT".to_owned(), values);
        let script = if template.contains("{}") {
            template.replace("{}", "$PARALLEL_ARGUMENT")
        } else {
            format!("{template} $PARALLEL_ARGUMENT")
        };
        self.text(&script, &inner);
    }

    fn wrapped(&mut self, call: &Invocation, wrapper: &Wrapper, mut frame: Invocation, feed: &Feed, state: &mut State) {
        let (name, letters, long, positionals) = *wrapper;
        if name == "env" {
            for text in option_values(&call.args, "S", &["split-string"]) {
                self.known_text(&text, state);
            }
            if let Some(dir) = option_values(&call.args, "C", &["chdir"]).first() {
                frame.cwds = state.cwds.iter().map(|cwd| absolute_in(&dir.text, cwd.as_deref(), state)).collect();
            }
        }
        if name == "command" && call.args.first().is_some_and(|arg| matches!(arg.text.as_str(), "-v" | "-V")) {
            return;
        }
        let all = after_options(&call.args, letters, long);
        let mut rest = all.get(positionals..).unwrap_or_default().to_vec();
        if name == "flock" || name == "capsh" {
            for text in
                option_values(&rest, "c", &["command"]).into_iter().chain(option_values(&all, "c", &["command"]))
            {
                self.known_text(&text, state);
            }
        }
        // Words that may be left out: `setarch -R PROGRAM`.
        if matches!(name, "setarch" | "chrt" | "perf" | "rr") && positionals > 0 && !all.is_empty() {
            self.call(all, frame.clone(), feed, state);
        }
        if positionals > 0 {
            rest = after_options(&rest, letters, long);
        }
        let sets = |arg: &Arg| assignment_text(&arg.text).is_some() && matches!(name, "env" | "sudo" | "doas" | "run0");
        while rest.first().is_some_and(sets) {
            rest.remove(0);
        }
        if name == "xargs" && !rest.is_empty() {
            // `-I% sh -c %`: what it reads is the script.
            let whole = option_values(&call.args, "I", &["replace"]);
            if rest.iter().any(|arg| is_shell(base_name(&arg.text))) {
                self.problem("a script is not known before it runs");
            }
            let files = call.args.iter().any(|arg| arg.text.starts_with("-a") || arg.text.starts_with("--arg"));
            // What it reads comes behind, or in the place that -I names.
            match feed.texts.first().filter(|_| !files) {
                Some(text) => {
                    let words: Vec<Arg> = text.split_whitespace().map(Arg::known).collect();
                    for mark in &whole {
                        rest.iter_mut().for_each(|arg| arg.text = arg.text.replace(&mark.text, text));
                    }
                    rest.extend(words);
                }
                None => rest.push(Arg::unknown(&feed.hints)),
            }
        }
        if let Some(args) = handed("", &call.args).filter(|args| name != "xargs" && args.len() != rest.len()) {
            self.call(args, frame.clone(), feed, state);
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
                    inner.variables_mut().insert(n.to_string(), vec![value_of(arg)]);
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

/// The name of the list that a command begins to set.
fn list_name(simple: &Simple) -> Option<String> {
    let [word] = simple.words.as_slice() else { return None };
    let list = matches!(word.pieces.last(), Some(super::lexer::Piece::Arithmetic));
    assignment(word.pieces.first()).map(|(name, _)| name).filter(|_| list)
}

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
