//! What is never run and what is asked about, for one program call.

use std::path::{Path, PathBuf};

use super::expand::Arg;
use super::resolve::{Invocation, base_name, is_shell};
use super::tables::{ASK, BLOCK_DEVICES, COPIERS, GIT_PROGRAMS, INTERPRETERS, NEVER, PROGRAM_DIRS, PROTECTED};
use super::{Assessment, Finding, Ground, loose, wildcard};
use crate::paths::{self, PathVerdict};
use crate::session::normalize;

/// Judges one call.
pub(super) fn judge(call: &Invocation, ground: &Ground, out: &mut Assessment) {
    let mut judge = Judge { call, ground, out };
    judge.power();
    judge.devices();
    judge.removal();
    judge.processes();
    judge.permissions();
    judge.interpreters();
    judge.version_control();
    judge.services_and_packages();
    judge.disguises();
    judge.written_files();
    judge.named_files();
    judge.variables();
    judge.listed();
}

/// Signs that are dangerous wherever they stand.
pub(super) fn judge_text(text: &str, out: &mut Assessment) {
    const METADATA: &[&str] = &[
        "169.254.169.254",
        "169.254.170.2",
        "169.254.169.253",
        "100.100.100.200",
        "fd00:ec2::254",
        "metadata.google.internal",
    ];
    if METADATA.iter().any(|host| text.contains(host)) {
        ask(out, "asks a cloud for its secrets", "cloud metadata");
    }
    if text.contains("/dev/tcp/") || text.contains("/dev/udp/") {
        ask(out, "opens a connection from the shell", "shell connection");
    }
    let upper = text.to_ascii_uppercase();
    let client = ["psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "duckdb", "clickhouse"]
        .iter()
        .any(|name| text.contains(name));
    if client {
        let drops = ["DROP TABLE", "DROP DATABASE", "DROP SCHEMA", "TRUNCATE "].iter().any(|word| upper.contains(word));
        let deletes = upper.contains("DELETE FROM") && !upper.contains("WHERE");
        if drops || deletes {
            ask(out, "removes data from a database", "database removal");
        }
    }
}

/// `f(){ f|f& };f` under any name and spacing.
pub(super) fn is_fork_bomb(text: &str) -> bool {
    let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    bare.match_indices("(){").any(|(at, _)| {
        let name_start = bare[..at].rfind([';', '&', '|', '(', ')', '{', '}']).map_or(0, |at| at + 1);
        let name = bare[name_start..at].trim_start_matches("function");
        !name.is_empty() && bare[at..].contains(&format!("{name}|{name}&"))
    })
}

fn ask(out: &mut Assessment, reason: impl Into<String>, pattern: impl Into<String>) {
    out.ask.push(Finding { reason: reason.into(), pattern: pattern.into() });
}

struct Judge<'a> {
    call: &'a Invocation,
    ground: &'a Ground,
    out: &'a mut Assessment,
}

impl Judge<'_> {
    fn ask(&mut self, reason: impl Into<String>, pattern: impl Into<String>) {
        ask(self.out, reason, pattern);
    }

    fn never(&mut self, reason: impl Into<String>) {
        self.out.never.push(reason.into());
    }

    fn name(&self) -> &str {
        &self.call.name
    }

    /// The path that an argument names, unless that is not known.
    fn path(&self, text: &str) -> Option<PathBuf> {
        let home = self.ground.env.get("HOME").map(PathBuf::from).or_else(|| self.ground.homes.user.clone());
        let path = match (text.strip_prefix('~'), home) {
            (Some(""), Some(home)) => home,
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(text),
        };
        if path.is_absolute() {
            return Some(normalize(&path));
        }
        self.call.cwd.as_ref().map(|cwd| normalize(&cwd.join(path)))
    }

    /// True when the argument is a protected directory, holds one, or is everything in one.
    fn is_protected(&self, arg: &Arg) -> bool {
        // The home of another user.
        if arg.text.len() > 1 && arg.text.starts_with('~') && !arg.text[1..].trim_end_matches(['/', '*']).contains('/')
        {
            let name = arg.text[1..].trim_end_matches(['/', '*']);
            if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
                return true;
            }
        }
        let Some(path) = self.path(&arg.text) else { return false };
        let home = self.ground.homes.user.clone();
        let hermes = self.ground.homes.hermes.clone();
        let own: Vec<PathBuf> =
            home.into_iter().chain(hermes).chain(self.ground.env.get("HOME").map(PathBuf::from)).collect();
        let protected = |path: &Path| {
            PROTECTED.iter().any(|entry| path == Path::new(entry)) || own.iter().any(|own| own.starts_with(path))
        };
        let real = paths::real_blocking(&path);
        if protected(&path) || protected(&real) {
            return true;
        }
        if !arg.glob {
            return false;
        }
        // `/*` is all of `/`; `/e?c` may be `/etc`.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let all = !name.is_empty() && name.chars().all(|c| matches!(c, '*' | '.' | '?' | '[' | ']' | '!' | '^'));
        if all && path.parent().is_some_and(|parent| protected(parent) || protected(&paths::real_blocking(parent))) {
            return true;
        }
        let glob: Vec<char> = loose(&path.to_string_lossy());
        let hit = |path: &str| wildcard(&glob, &path.chars().collect::<Vec<_>>());
        PROTECTED.iter().any(|entry| hit(entry)) || own.iter().any(|own| hit(&own.to_string_lossy()))
    }

    fn power(&mut self) {
        let first = self.call.plain().next().map(|arg| arg.text.clone()).unwrap_or_default();
        let name = self.name().to_owned();
        let ends = NEVER.contains(&name.as_str())
            || name.starts_with("mkfs")
            || matches!(name.as_str(), "init" | "telinit") && matches!(first.as_str(), "0" | "6")
            || name == "systemctl"
                && matches!(first.as_str(), "poweroff" | "reboot" | "halt" | "kexec" | "soft-reboot");
        let targets =
            ["poweroff.target", "reboot.target", "halt.target", "shutdown.target", "kexec.target", "rescue.target"];
        let ends = ends || name == "systemctl" && self.call.plain().any(|arg| targets.contains(&arg.text.as_str()));
        // A help text harms nobody.
        let help = self.call.args.iter().any(|arg| matches!(arg.text.as_str(), "--help" | "--version"));
        if ends && !help {
            self.never(format!("{name} ends the system or a file system"));
        }
    }

    fn devices(&mut self) {
        let mut written: Vec<String> = Vec::new();
        for redirect in &self.call.redirects {
            if redirect.op.contains('>') {
                written.push(redirect.target.text.clone());
            }
        }
        if self.name() == "dd" {
            written.extend(self.call.args.iter().filter_map(|arg| arg.text.strip_prefix("of=").map(str::to_owned)));
        }
        if COPIERS.contains(&self.name()) {
            written.extend(self.call.plain().last().map(|arg| arg.text.clone()));
        }
        if matches!(self.name(), "tee" | "shred" | "blkdiscard" | "sponge") {
            written.extend(self.call.plain().map(|arg| arg.text.clone()));
        }
        for text in written {
            let Some(path) = self.path(&text) else { continue };
            let device = path.strip_prefix("/dev").ok().and_then(Path::to_str).unwrap_or("");
            if BLOCK_DEVICES.iter().any(|start| device.starts_with(start)) {
                self.never(format!("it writes to the device {}", path.display()));
            }
        }
        if self.name() == "dd" && self.call.args.iter().any(|arg| arg.text.starts_with("of=")) {
            self.ask("dd overwrites a file", "dd: write");
        }
    }

    fn removal(&mut self) {
        let name = self.name().to_owned();
        match name.as_str() {
            "rm" => {
                let recursive = self.call.has("rR", &["recursive"]);
                let targets: Vec<Arg> = self.call.plain().cloned().collect();
                if self.call.has("", &["no-preserve-root"]) {
                    return self.never("rm is told to remove the root directory");
                }
                if recursive && let Some(target) = targets.iter().find(|target| self.is_protected(target)) {
                    return self.never(format!("it removes {} and everything in it", target.text));
                }
                // `rm *` in a protected directory takes its files.
                if targets.iter().any(|target| target.glob && self.is_protected(target)) {
                    return self.never("it removes everything in a protected directory");
                }
                if recursive {
                    self.ask("removes directories and everything in them", "rm: recursive");
                } else if targets.iter().any(|target| target.glob || !target.known) {
                    self.ask("removes files that are not named", "rm: unnamed files");
                }
            }
            "find" => self.find(),
            "rsync"
                if self
                    .call
                    .args
                    .iter()
                    .any(|arg| arg.text.starts_with("--del") || arg.text == "--remove-source-files") =>
            {
                let target = self.call.plain().last().cloned().unwrap_or_default();
                if self.is_protected(&target) {
                    return self.never(format!("it removes what is in {}", target.text));
                }
                self.ask("rsync removes files", "rsync: delete");
            }
            "mv" => {
                let targets: Vec<Arg> = self.call.plain().cloned().collect();
                let moved = &targets[..targets.len().saturating_sub(1)];
                if let Some(target) = moved.iter().find(|target| self.is_protected(target)) {
                    self.never(format!("it moves {} away", target.text));
                }
            }
            _ => {}
        }
    }

    fn find(&mut self) {
        let args = &self.call.args;
        let removes = |name: &str| matches!(base_name(name), "rm" | "shred" | "unlink" | "srm");
        let executes = args.windows(2).any(|pair| {
            matches!(pair[0].text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") && removes(&pair[1].text)
        });
        let deletes = args.iter().any(|arg| arg.text == "-delete") || executes;
        if !deletes {
            if args.iter().any(|arg| matches!(arg.text.as_str(), "-fprint" | "-fprintf" | "-fls")) {
                self.ask("find writes files", "find: write");
            }
            return;
        }
        let mut roots: Vec<Arg> =
            args.iter().take_while(|arg| !arg.text.starts_with(['-', '(', '!'])).cloned().collect();
        if roots.is_empty() {
            roots.push(Arg::known("."));
        }
        let picks = args.iter().any(|arg| {
            matches!(
                arg.text.as_str(),
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
                    | "-size"
                    | "-user"
            )
        });
        if !picks && roots.iter().any(|root| self.is_protected(root)) {
            return self.never("it removes everything below a protected directory");
        }
        self.ask("find removes files", "find: delete");
    }

    fn processes(&mut self) {
        if self.name() != "kill" {
            return;
        }
        let texts: Vec<&str> = self.call.args.iter().map(|arg| arg.text.as_str()).collect();
        // `kill -1` is a signal without a process; `kill -9 -1` and `kill -- -1` are everything.
        let sweeps = texts.last() == Some(&"-1") && (texts.len() > 1 || self.call.args.len() == 1);
        if sweeps {
            return self.never("it ends every process");
        }
        if self.call.args.iter().any(|arg| !arg.known) || texts.iter().skip(1).any(|text| text.starts_with('-')) {
            self.ask("ends processes that are not named", "kill: unnamed processes");
        }
    }

    fn permissions(&mut self) {
        let name = self.name().to_owned();
        let targets: Vec<Arg> = self.call.plain().cloned().collect();
        let recursive = self.call.has("R", &["recursive"]);
        match name.as_str() {
            "chmod" => {
                let mode = self.call.args.iter().find(|arg| !arg.text.starts_with("--") && arg.text != "-R");
                let mode = mode.map(|arg| arg.text.clone()).unwrap_or_default();
                let octal = !mode.is_empty() && mode.chars().all(|c| c.is_digit(8));
                let world = octal && mode.ends_with(['2', '3', '6', '7'])
                    || ["o+w", "a+w", "o+rw", "a+rw", "+rwx", "a=rw", "o=rw", "ugo+w"]
                        .iter()
                        .any(|part| mode.contains(part));
                let set_id = mode.contains("+s")
                    || (octal && mode.len() == 4 && matches!(mode.as_bytes()[0], b'2' | b'4' | b'6'));
                if recursive && targets.iter().any(|target| self.is_protected(target)) {
                    return self.never("it changes the permissions of a protected directory and everything in it");
                }
                if world || set_id {
                    self.ask("gives everybody the right to change files", "chmod: world-writable");
                }
            }
            "chown" | "chgrp" => {
                if recursive && targets.iter().any(|target| self.is_protected(target)) {
                    return self.never("it changes the owner of a protected directory and everything in it");
                }
                self.ask("changes the owner of files", format!("{name}: owner"));
            }
            _ => {}
        }
    }

    fn interpreters(&mut self) {
        let name = self.name().to_owned();
        let reads_file = self.call.args.iter().any(|arg| arg.process);
        if is_shell(&name) {
            let script = self.call.plain().next().is_some();
            if reads_file {
                self.ask("runs what another command prints", "run output of a command");
            } else if !script && !self.call.args.iter().any(|arg| arg.text.starts_with("--")) {
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
        let text = self.call.args.iter().any(|arg| {
            arg.text.contains("system(")
                || arg.text.contains("--checkpoint-action")
                || arg.text.contains("--to-command")
        });
        if text && matches!(stem, "awk" | "gawk" | "mawk" | "nawk" | "tar" | "bsdtar") {
            self.ask(format!("{stem} runs commands"), format!("{stem}: commands"));
        }
    }

    fn version_control(&mut self) {
        if self.name() != "git" {
            return;
        }
        let mut words: Vec<&str> = self.call.args.iter().map(|arg| arg.text.as_str()).collect();
        // Options before the subcommand.
        while words.first().is_some_and(|word| word.starts_with('-')) {
            let option = words.remove(0);
            if option == "-c" || option.starts_with("--config-env") || option == "--exec-path" {
                ask(self.out, "sets an option of git that may run commands", "git: -c");
            }
            if matches!(option, "-c" | "-C" | "--git-dir" | "--work-tree" | "--namespace") && !words.is_empty() {
                words.remove(0);
            }
        }
        let Some((&sub, rest)) = words.split_first() else { return };
        let letters = |set: &str| {
            rest.iter()
                .any(|word| word.starts_with('-') && !word.starts_with("--") && word.chars().any(|c| set.contains(c)))
        };
        let long = |names: &[&str]| rest.iter().any(|word| names.contains(&word.split('=').next().unwrap_or("")));
        let found = match sub {
            "config" => {
                let runs = rest.iter().any(|word| {
                    let lower = word.to_ascii_lowercase();
                    word.starts_with('!') || GIT_PROGRAMS.iter().any(|key| lower.starts_with(key))
                });
                runs.then_some(("sets what git runs", "git config: program"))
            }
            "push" => {
                let forced = letters("fd")
                    || long(&[
                        "--force",
                        "--force-with-lease",
                        "--force-if-includes",
                        "--mirror",
                        "--delete",
                        "--prune",
                    ])
                    || rest.iter().any(|word| word.starts_with('+') || word.starts_with(':'));
                forced.then_some(("rewrites or removes what is on the other side", "git push: force"))
            }
            "reset" => long(&["--hard", "--merge", "--keep"]).then_some(("throws changes away", "git reset: hard")),
            "clean" => (letters("f") || long(&["--force"])).then_some(("removes files", "git clean: force")),
            "branch" => (letters("D") || (letters("d") && letters("f")) || long(&["--delete"]))
                .then_some(("removes a branch", "git branch: delete")),
            "checkout" | "switch" => {
                (letters("f") || long(&["--force", "--discard-changes"]) || rest.contains(&"--") || rest.contains(&"."))
                    .then_some(("throws changes away", "git checkout: discard"))
            }
            "restore" => (!long(&["--staged"])).then_some(("throws changes away", "git restore: discard")),
            "stash" => matches!(rest.first(), Some(&("drop" | "clear")))
                .then_some(("throws stashed changes away", "git stash: drop")),
            "filter-branch" | "filter-repo" => Some(("rewrites history", "git: rewrite history")),
            "update-ref" | "reflog" => (letters("d") || rest.contains(&"expire") || rest.contains(&"delete"))
                .then_some(("removes references", "git: remove references")),
            "worktree" => (rest.contains(&"remove") && long(&["--force"]))
                .then_some(("removes a work tree", "git worktree: remove")),
            _ => None,
        };
        if let Some((reason, pattern)) = found {
            self.ask(format!("git {sub} {reason}"), pattern);
        }
    }

    fn services_and_packages(&mut self) {
        let name = self.name().to_owned();
        let words: Vec<String> = self.call.plain().map(|arg| arg.text.clone()).collect();
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let any = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
        let found: Option<(&str, &str)> = match name.as_str() {
            "systemctl" => (!matches!(
                word(0),
                "status" | "show" | "list-units" | "list-unit-files" | "is-active" | "is-enabled" | "cat" | ""
            ))
            .then_some(("changes services", "services")),
            "service" => (!matches!(word(1), "status" | "")).then_some(("changes services", "services")),
            "crontab" => {
                (!self.call.args.iter().any(|arg| arg.text == "-l")).then_some(("changes what runs later", "crontab"))
            }
            "apt" | "apt-get" | "aptitude" | "dnf" | "yum" | "zypper" | "apk" | "snap" | "flatpak" | "brew"
            | "port" | "dpkg" | "rpm" => {
                let removes = any(&["remove", "purge", "autoremove", "erase", "uninstall", "del", "rm"])
                    || (matches!(name.as_str(), "dpkg" | "rpm") && self.call.has("rPe", &["remove", "purge", "erase"]));
                removes.then_some(("removes packages", "package removal"))
            }
            "pacman" => self.call.has("R", &["remove"]).then_some(("removes packages", "package removal")),
            "pip" | "pip3" | "pipx" | "uv" | "gem" | "conda" => {
                any(&["uninstall", "remove"]).then_some(("removes packages", "package removal"))
            }
            "npm" | "pnpm" | "yarn" | "cargo" => match word(0) {
                "publish" | "unpublish" | "yank" => Some(("publishes or withdraws a package", "package publishing")),
                "uninstall" | "rm" if self.call.has("g", &["global"]) || name == "cargo" => {
                    Some(("removes packages", "package removal"))
                }
                _ => None,
            },
            "docker" | "podman" | "nerdctl" => {
                let remote = self.call.has("H", &["host", "context"]);
                let opens = self.call.args.iter().any(|arg| {
                    matches!(arg.text.as_str(), "--privileged" | "--pid=host" | "/:/host" | "/:/mnt")
                        || arg.text.starts_with("/:")
                        || arg.text.contains("docker.sock")
                        || arg.text.contains("=/:")
                });
                let ends = any(&["rm", "rmi", "kill", "stop", "prune", "down", "restart", "pause", "swarm"]);
                (remote || opens || ends).then_some(("changes containers", "containers"))
            }
            "kubectl" => {
                any(&["delete", "drain", "scale", "replace"]).then_some(("changes a cluster", "kubectl: change"))
            }
            "terraform" | "tofu" | "pulumi" => {
                any(&["destroy", "apply"]).then_some(("changes infrastructure", "infrastructure"))
            }
            "hermes" => (word(0) == "gateway" && matches!(word(1), "stop" | "restart") || word(0) == "update")
                .then_some(("ends or changes hermes itself", "hermes")),
            "reg" => any(&["delete"]).then_some(("changes the registry", "reg: delete")),
            "nc" | "ncat" | "netcat" | "socat" => (self.call.has("ec", &["exec", "sh-exec"])
                || words.iter().any(|word| word.starts_with("EXEC:") || word.starts_with("SYSTEM:")))
            .then_some(("gives a shell to a connection", "shell connection")),
            "chsh" | "update-alternatives" => Some(("changes the system", "system settings")),
            _ => None,
        };
        if let Some((reason, pattern)) = found {
            self.ask(format!("{name} {reason}"), pattern);
        }
    }

    /// System programs that get another name, and editors that run commands.
    fn disguises(&mut self) {
        let plain: Vec<Arg> = self.call.plain().cloned().collect();
        if COPIERS.contains(&self.name()) {
            let sources = &plain[..plain.len().saturating_sub(1)];
            let program = |arg: &Arg| {
                let path = self.path(&arg.text);
                path.is_some_and(|path| {
                    path.parent().is_some_and(|dir| PROGRAM_DIRS.iter().any(|program| dir == Path::new(program)))
                })
            };
            if sources.iter().any(program) {
                self.ask("gives a system program another name", "disguised program");
            }
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

    /// Files that redirections and programs write.
    fn written_files(&mut self) {
        for redirect in self.call.redirects.clone() {
            if !redirect.op.contains('>') {
                continue;
            }
            let text = redirect.target.text.as_str();
            let duplicate =
                redirect.op == ">&" && (text == "-" || text.chars().all(|c| c.is_ascii_digit()) && !text.is_empty());
            if duplicate || redirect.target.process {
                continue;
            }
            if !redirect.target.known || redirect.target.glob {
                self.ask("writes to a file that is not known before it runs", "redirection: unknown file");
                continue;
            }
            self.written(&redirect.target, redirect.op != ">>" && redirect.op != "&>>");
        }
        let name = self.name().to_owned();
        let plain: Vec<Arg> = self.call.plain().cloned().collect();
        match name.as_str() {
            "tee" | "sponge" => {
                let empties = !self.call.has("a", &["append"]);
                plain.iter().for_each(|arg| self.written(arg, empties));
            }
            name if COPIERS.contains(&name) => {
                let into =
                    self.call.args.iter().find_map(|arg| arg.text.strip_prefix("--target-directory=")).map(Arg::known);
                let target = into.or_else(|| plain.last().cloned());
                if let Some(target) = target {
                    self.written(&target, false);
                }
                if name == "mv" {
                    plain.iter().for_each(|arg| self.written(arg, false));
                }
            }
            "sed" | "perl" | "ruby" | "gsed" if self.call.has("i", &["in-place"]) => {
                plain.iter().for_each(|arg| self.written(arg, false));
            }
            "truncate" | "rm" | "unlink" | "shred" | "chmod" | "chown" | "touch" | "ex" | "ed" | "patch" => {
                plain.iter().for_each(|arg| self.written(arg, false));
            }
            "dd" => {
                for arg in &self.call.args {
                    if let Some(path) = arg.text.strip_prefix("of=") {
                        self.written(&Arg { text: path.to_owned(), ..arg.clone() }, false);
                    }
                }
            }
            "curl" | "wget" => {
                let mut next = false;
                for arg in self.call.args.clone() {
                    if next {
                        self.written(&arg, false);
                    }
                    next = matches!(arg.text.as_str(), "-o" | "-O" | "--output" | "--output-document");
                }
            }
            _ => {}
        }
    }

    /// One written file; `empties` when what was in it is lost.
    fn written(&mut self, arg: &Arg, empties: bool) {
        let Some(path) = self.path(&arg.text) else {
            if arg.known && empties {
                self.ask("writes to a file in a directory that is not known", "redirection: unknown file");
            }
            return;
        };
        if matches!(path.to_str(), Some("/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/tty" | "/dev/full"))
            || path.starts_with("/dev/fd")
        {
            return;
        }
        let real = paths::real_blocking(&path);
        for path in [&path, &real] {
            // A directory as a target of a copy: what is written is in it.
            match paths::may_write(path, &self.ground.homes) {
                PathVerdict::Free => {}
                PathVerdict::Ask(why) => return self.ask(why.clone(), format!("write: {}", path.display())),
                PathVerdict::Never(why) => {
                    return self.ask(format!("writes a protected file: {why}"), format!("write: {}", path.display()));
                }
            }
        }
        let holds = std::fs::metadata(&real).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
        if empties && holds {
            self.ask(format!("replaces the content of {}", arg.text), "redirection: replace a file");
        }
    }

    /// Files that hold secrets, wherever they stand in a call.
    fn named_files(&mut self) {
        let mut texts: Vec<String> = self.call.args.iter().map(|arg| arg.text.clone()).collect();
        texts.extend(self.call.redirects.iter().map(|redirect| redirect.target.text.clone()));
        for text in texts {
            // `@file`, `of=file`, `--option=file`, `host:file` name files, too.
            let parts = [text.as_str(), text.rsplit(['@', '=', ':']).next().unwrap_or("")];
            for part in parts {
                // Only what looks like a path: a word like `.env` in a message is none of a shell's business.
                if part.is_empty() || part.len() > 4_096 || part.contains(char::is_whitespace) {
                    continue;
                }
                let Some(path) = self.path(part) else { continue };
                if path.starts_with("/dev") || path == Path::new("/") {
                    continue;
                }
                let real = paths::real_blocking(&path);
                let denied = [&path, &real]
                    .into_iter()
                    .any(|path| paths::may_read(path, &self.ground.homes) != PathVerdict::Free);
                let whole_ssh = self.ground.homes.user.as_ref().is_some_and(|home| path == home.join(".ssh"));
                if denied || (whole_ssh && self.name() != "ls") {
                    return self.ask(format!("touches {part}, which holds credentials"), "credentials");
                }
            }
        }
    }

    fn variables(&mut self) {
        const LOADERS: &[&str] = &[
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "BASH_ENV",
            "ENV",
            "PROMPT_COMMAND",
            "DYLD_INSERT_LIBRARIES",
            "GIT_SSH_COMMAND",
            "GIT_EXTERNAL_DIFF",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "NODE_OPTIONS",
        ];
        let mut names: Vec<String> = self.call.assigned.clone();
        if matches!(self.name(), "export" | "declare" | "env" | "typeset" | "readonly") {
            names.extend(
                self.call.args.iter().filter_map(|arg| arg.text.split_once('=').map(|(name, _)| name.to_owned())),
            );
        }
        if let Some(name) = names.iter().find(|name| LOADERS.contains(&name.as_str())) {
            self.ask(format!("sets {name}, which makes programs run other code"), format!("variable: {name}"));
        }
    }

    fn listed(&mut self) {
        let name = self.name().to_owned();
        if let Some((_, reason)) = ASK.iter().find(|(listed, _)| *listed == name) {
            self.ask(format!("{name} {reason}"), name);
        }
    }
}
