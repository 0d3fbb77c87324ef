//! Programs that run what their arguments or their input say: interpreters, editors, filters, git, the shell's variables.

use super::resolve::is_shell;
use super::rules::Judge;
use super::tables::{COPIERS, GIT_PROGRAMS, INTERPRETERS, LOADERS, QUIET_PAGERS};
use super::wrappers::{after_options, is_long, option_values};

impl Judge<'_> {
    pub(super) fn interpreters(&mut self) {
        let name = self.name().to_owned();
        let reads_file = self.call.args.iter().any(|arg| arg.process);
        if is_shell(&name) {
            // `-s` reads commands, whatever follows.
            let script = self.call.plain().next().is_some() && !(self.call.piped && self.call.has("s", &[]));
            if reads_file {
                self.ask("runs what another command prints", "run output of a command");
            } else if !script && !self.call.args.iter().any(|arg| arg.text.len() > 2 && arg.text.starts_with("--")) {
                let how = if self.call.piped {
                    "runs what another command prints"
                } else {
                    "a shell that reads its commands"
                };
                if !self.call.fed {
                    self.ask(how, "run output of a command");
                }
            }
            return;
        }
        if matches!(name.as_str(), "source" | ".") {
            let unknown =
                self.call.args.first().is_none_or(|arg| !arg.known || arg.process || arg.text.starts_with("/dev/"));
            if unknown {
                self.ask("runs commands of a file that is not known", "run output of a command");
            }
            return;
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if let Some((program, letters)) = INTERPRETERS.iter().find(|(program, _)| *program == stem) {
            let inline = (!letters.is_empty() && self.call.has(letters, &["eval", "print", "command", "Command"]))
                || self.call.args.first().is_some_and(|arg| arg.text == "eval");
            let from_input = (self.call.piped || self.call.fed) && self.call.plain().all(|arg| arg.text == "-");
            if inline {
                self.ask(
                    format!("runs a {program} program from the command line"),
                    format!("{program}: inline program"),
                );
            } else if from_input || reads_file {
                self.ask(format!("runs a {program} program that it reads"), format!("{program}: program from input"));
            }
        }
        self.filters(stem);
    }

    /// Filters and archivers that run commands when they are told to.
    pub(super) fn filters(&mut self, stem: &str) {
        let name = self.call.name.clone();
        let call = self.call;
        let texts = || call.args.iter().map(|arg| arg.text.as_str()).chain(call.feed.iter().map(String::as_str));
        let from_input =
            call.args.iter().any(|arg| matches!(arg.text.as_str(), "-f-" | "-" | "/dev/stdin" | "--file=-"));
        let found = match stem {
            "awk" | "gawk" | "mawk" | "nawk" => {
                // The program stands first, or behind `-e`; files and separators are no programs.
                let given = option_values(&call.args, "e", &["source"]);
                let program = after_options(&call.args, "Fvfe", &["field-separator", "assign", "file", "source"]);
                let file = option_values(&call.args, "f", &["file"]);
                file.iter().any(|arg| arg.text == "-" || arg.text.starts_with("/dev/"))
                    || given.iter().chain(program.first()).any(|arg| awk_reaches_out(&arg.text))
                    || call.has("", &["load", "include"])
            }
            "sed" | "gsed" => {
                let given = option_values(&call.args, "e", &["expression"]);
                let scripts = if given.is_empty() { call.plain().take(1).cloned().collect() } else { given };
                let file = option_values(&call.args, "f", &["file"]).iter().any(|arg| arg.text.starts_with("/dev/"));
                file || scripts.iter().any(|script| sed_reaches_out(&script.text))
            }
            "tar" | "bsdtar" | "gtar" => {
                call.has("", &["checkpoint-action", "to-command", "remove-files", "info-script", "new-volume-script"])
            }
            "zip" => call
                .args
                .iter()
                .any(|arg| arg.text.starts_with('-') && !arg.text.starts_with("--") && arg.text.contains('m')),
            "make" | "gmake" => {
                let shell =
                    call.args.iter().any(|arg| arg.text.starts_with("SHELL=") || arg.text.starts_with(".SHELLFLAGS"));
                shell || from_input || call.has("", &["eval"])
            }
            "ed" | "ex" | "dc" | "vi" | "vim" | "nvim" => texts().any(|text| text.contains('!')) || call.piped,
            "m" => texts().any(|text| text.contains("syscmd")),
            "sqlite" | "duckdb" => texts().any(|text| {
                [".shell", ".system", ".once", ".output", ".import", ".load", "writefile(", "load_extension", "edit("]
                    .iter()
                    .any(|word| text.contains(word))
            }),
            "psql" | "mysql" | "mariadb" => texts().any(|text| text.contains("\\!") || text.contains("PROGRAM")),
            "man" => call.has("PH", &["pager", "html"]),
            "fuser" => call.has("k", &["kill"]),
            "ps" => {
                // `ps e` shows the environment of processes; `ps -e` does not.
                call.args.first().is_some_and(|arg| !arg.text.starts_with('-') && arg.text.contains('e'))
            }
            _ => false,
        };
        if found {
            self.ask(
                format!("{name} runs commands, or reaches files and processes by itself"),
                format!("{name}: commands"),
            );
        }
    }

    pub(super) fn version_control(&mut self) {
        if self.name() != "git" {
            return;
        }
        let mut words: Vec<&str> = self.call.args.iter().map(|arg| arg.text.as_str()).collect();
        let mut runs = false;
        // Options before the subcommand.
        while words.first().is_some_and(|word| word.starts_with('-')) {
            let option = words.remove(0);
            if option == "-c" || option.starts_with("--config-env") || option.starts_with("--exec-path") {
                runs = true;
            }
            if matches!(option, "-c" | "-C" | "--git-dir" | "--work-tree" | "--namespace") && !words.is_empty() {
                words.remove(0);
            }
        }
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        if runs {
            self.ask("sets an option of git that may run commands", "git: -c");
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((&sub, rest)) = words.split_first() else { return };
        if let Some((reason, pattern)) = git_programs(sub, rest).or_else(|| git_losses(sub, rest)) {
            self.ask(format!("git {sub} {reason}"), pattern);
        }
    }
    /// System programs that get another name, and editors that run commands.
    pub(super) fn disguises(&mut self) {
        if COPIERS.contains(&self.name()) {
            let (sources, _) = self.copied();
            if sources.iter().any(|arg| self.is_program(arg)) {
                self.ask("gives a system program another name", "disguised program");
            }
        }
        let copies =
            self.call.redirects.iter().any(|redirect| redirect.op.contains('>') && redirect.target.text != "/dev/null");
        if copies && self.name() == "cat" && self.call.plain().any(|arg| self.is_program(arg)) {
            self.ask("gives a system program another name", "disguised program");
        }
        let editor =
            matches!(self.name(), "vi" | "vim" | "nvim" | "view" | "ex" | "ed" | "emacs" | "less" | "more" | "man");
        if editor
            && self
                .call
                .args
                .iter()
                .any(|arg| arg.text.contains('!') || arg.text.contains("system(") || arg.text == "--eval")
        {
            self.ask("an editor runs commands", "editor: commands");
        }
    }

    pub(super) fn variables(&mut self) {
        let mut sets: Vec<(String, String)> = self.call.assigned.clone();
        if matches!(self.name(), "export" | "declare" | "env" | "typeset" | "readonly") {
            let given = self.call.args.iter().filter_map(|arg| arg.text.split_once('='));
            sets.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        let runs = |(name, value): &&(String, String)| {
            let listed = LOADERS.contains(&name.as_str()) || name.starts_with("GIT_CONFIG");
            // A pager or an editor that does nothing is set to be left alone.
            let pager = ["PAGER", "EDITOR", "VISUAL", "ASKPASS"].iter().any(|part| name.ends_with(part));
            listed && !(pager && QUIET_PAGERS.contains(&value.as_str()))
        };
        if let Some((name, _)) = sets.iter().find(runs) {
            self.ask(format!("sets {name}, which makes programs run other code"), format!("variable: {name}"));
        }
    }
}

/// Options with these letters, and long options in any form.
fn has(rest: &[&str], letters: &str, long: &[&str]) -> bool {
    rest.iter().take_while(|word| **word != "--").any(|word| match word.strip_prefix("--") {
        Some(name) => {
            let name = name.split('=').next().unwrap_or("");
            long.iter().any(|long| is_long(name, long.trim_start_matches("--")))
        }
        None => word.strip_prefix('-').is_some_and(|short| short.chars().any(|c| letters.contains(c))),
    })
}

/// What git would run.
fn git_programs(sub: &str, rest: &[&str]) -> Option<(&'static str, &'static str)> {
    let runs = match sub {
        "submodule" => rest.contains(&"foreach"),
        "rebase" => has(rest, "x", &["exec"]),
        "bisect" => rest.contains(&"run"),
        "grep" => has(rest, "O", &["open-files-in-pager"]),
        "difftool" | "mergetool" => has(rest, "x", &["extcmd"]),
        "clone" => {
            has(rest, "uc", &["upload-pack", "config", "template"]) || rest.iter().any(|word| word.starts_with("ext::"))
        }
        "init" => has(rest, "", &["template"]),
        "fetch" | "pull" | "ls-remote" | "push" | "archive" | "fetch-pack" | "send-pack" => {
            has(rest, "", &["upload-pack", "receive-pack"]) || rest.iter().any(|word| word.starts_with("ext::"))
        }
        "for-each-repo" | "hook" | "instaweb" | "send-email" => true,
        _ => false,
    };
    runs.then_some(("runs programs", "git: programs"))
}

/// What git would throw away.
fn git_losses(sub: &str, rest: &[&str]) -> Option<(&'static str, &'static str)> {
    let letters = |set: &str| has(rest, set, &[]);
    let long = |names: &[&str]| has(rest, "", names);
    match sub {
        "config" => {
            let runs = rest.iter().any(|word| {
                let lower = word.to_ascii_lowercase();
                word.starts_with('!') || GIT_PROGRAMS.iter().any(|key| lower.starts_with(key))
            });
            runs.then_some(("sets what git runs", "git config: program"))
        }
        "push" => {
            let forced = letters("fd")
                || long(&["--force", "--force-with-lease", "--force-if-includes", "--mirror", "--delete", "--prune"])
                || rest.iter().any(|word| word.starts_with('+') || word.starts_with(':'));
            forced.then_some(("rewrites or removes what is on the other side", "git push: force"))
        }
        "reset" => long(&["--hard", "--merge", "--keep"]).then_some(("throws changes away", "git reset: hard")),
        "clean" => (letters("f") || long(&["--force"])).then_some(("removes files", "git clean: force")),
        "branch" => (letters("D") || (letters("d") && letters("f")) || long(&["--delete"]))
            .then_some(("removes a branch", "git branch: delete")),
        "checkout" | "switch" => (letters("f")
            || long(&["--force", "--discard-changes"])
            || rest.contains(&"--")
            || rest.contains(&".")
            || names_files(rest))
        .then_some(("throws changes away", "git checkout: discard")),
        "restore" => (!long(&["--staged"])).then_some(("throws changes away", "git restore: discard")),
        "stash" => matches!(rest.first(), Some(&("drop" | "clear")))
            .then_some(("throws stashed changes away", "git stash: drop")),
        "filter-branch" | "filter-repo" => Some(("rewrites history", "git: rewrite history")),
        "update-ref" | "reflog" => (letters("d") || rest.contains(&"expire") || rest.contains(&"delete"))
            .then_some(("removes references", "git: remove references")),
        "rm" => ((letters("rf") || long(&["--force"])) && !long(&["--cached"]))
            .then_some(("removes files", "git rm: force")),
        "worktree" => {
            (rest.contains(&"remove") && long(&["--force"])).then_some(("removes a work tree", "git worktree: remove"))
        }
        _ => None,
    }
}

/// `git checkout COMMIT FILE`: what the file held is lost.
fn names_files(rest: &[&str]) -> bool {
    let makes = has(rest, "bBtl", &["track", "orphan", "create"]);
    !makes && rest.iter().filter(|word| !word.starts_with('-')).count() > 1
}

/// The filters of `awk` without its strings and patterns; what stays shows what it runs and writes.
fn bare_awk(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let operand =
            out.trim_end().ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '$' | '"'));
        let word = out.trim_end().ends_with("print") || out.trim_end().ends_with("return");
        if c == '"' || (c == '/' && (!operand || word)) {
            at += 1;
            let start = at;
            while chars.get(at).is_some_and(|end| *end != c) {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            let inside: String = chars.get(start..at.min(chars.len())).unwrap_or_default().iter().collect();
            // Its own output is no file.
            out.push_str(if inside.starts_with("/dev/std") { "\"std\"" } else { "\"\"" });
        } else {
            out.push(c);
        }
        at += 1;
    }
    out
}

/// True when a program for `awk` runs commands, or writes or reads files that it names.
fn awk_reaches_out(text: &str) -> bool {
    let bare = bare_awk(text);
    let packed: String = bare.chars().filter(|c| !c.is_whitespace()).collect();
    let writes =
        packed.split([';', '{', '}']).filter_map(|part| part.find("print").map(|at| &part[at..])).any(|part| {
            let mut depth = 0usize;
            part.char_indices().any(|(at, c)| {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                c == '>' && depth == 0 && !part[at..].trim_start_matches('>').starts_with("\"std\"")
            })
        });
    packed.contains("system(")
        || packed.contains("@load")
        || packed.replace("||", "").contains('|')
        || writes
        || packed
            .split("getline")
            .skip(1)
            .any(|part| part.split([';', '}']).next().is_some_and(|part| part.contains('<')))
}

/// True when a script for `sed` runs commands or writes files.
fn sed_reaches_out(script: &str) -> bool {
    let chars: Vec<char> = script.chars().collect();
    let mut at = 0;
    let section = |mut at: usize, delimiter: char| {
        while chars.get(at).is_some_and(|c| *c != delimiter) {
            at += if chars[at] == '\\' { 2 } else { 1 };
        }
        at + 1
    };
    let rest_of_line =
        |at: usize| chars.get(at..).unwrap_or_default().iter().take_while(|c| **c != '\n').collect::<String>();
    let own = |file: &str| matches!(file.trim(), "/dev/stdout" | "/dev/stderr");
    while let Some(&c) = chars.get(at) {
        at += 1;
        match c {
            '/' => at = section(at, '/'),
            '\\' => {
                if let Some(&delimiter) = chars.get(at) {
                    at = section(at + 1, delimiter);
                }
            }
            's' | 'y' => {
                let Some(&delimiter) = chars.get(at) else { return false };
                at = section(section(at + 1, delimiter), delimiter);
                while let Some(&flag) = chars.get(at).filter(|flag| !matches!(**flag, ';' | '\n' | '}')) {
                    at += 1;
                    if c == 's' && (flag == 'e' || flag == 'w' && !own(&rest_of_line(at))) {
                        return true;
                    }
                }
            }
            'e' => return true,
            'w' | 'W' => {
                if !own(&rest_of_line(at)) {
                    return true;
                }
                at += rest_of_line(at).chars().count();
            }
            'a' | 'i' | 'c' | 'r' | 'R' | '#' => at += rest_of_line(at).chars().count(),
            ':' | 'b' | 't' | 'T' => {
                while chars.get(at).is_some_and(|c| !matches!(c, ';' | '\n' | '}')) {
                    at += 1;
                }
            }
            _ => {}
        }
    }
    false
}
