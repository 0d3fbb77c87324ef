//! What is never run and what is asked about, for one program call.

use std::path::{Path, PathBuf};

use super::expand::{Arg, picks_files};
use super::resolve::{Invocation, base_name};
use super::tables::{ASK, BLOCK_DEVICES, COPIERS, NEVER, PROGRAM_DIRS, PROTECTED};
use super::wrappers::{is_long, option_values};
use super::{Assessment, Finding, Ground, loose, wildcard};
use crate::paths;
use crate::session::normalize;

/// Longest path that is looked up on disk, in bytes (`PATH_MAX` of Linux).
const PATH_MAX_BYTES: usize = 4_096;

/// Judges one call.
pub(super) fn judge(call: &Invocation, ground: &Ground, out: &mut Assessment) {
    for cwd in &call.cwds {
        judge_in(call, cwd.as_deref(), ground, out);
    }
}

/// Judges one call in one of the directories that it may run in.
fn judge_in(call: &Invocation, cwd: Option<&Path>, ground: &Ground, out: &mut Assessment) {
    let mut judge = Judge { call, cwd, ground, out };
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

pub(super) struct Judge<'a> {
    pub(super) call: &'a Invocation,
    pub(super) cwd: Option<&'a Path>,
    pub(super) ground: &'a Ground,
    pub(super) out: &'a mut Assessment,
}

impl Judge<'_> {
    pub(super) fn ask(&mut self, reason: impl Into<String>, pattern: impl Into<String>) {
        ask(self.out, reason, pattern);
    }

    pub(super) fn never(&mut self, reason: impl Into<String>) {
        self.out.never.push(reason.into());
    }

    pub(super) fn name(&self) -> &str {
        &self.call.name
    }

    /// The path that an argument names, unless that is not known.
    pub(super) fn path(&self, text: &str) -> Option<PathBuf> {
        let home = self.ground.env.get("HOME").map(PathBuf::from).or_else(|| self.ground.homes.user.clone());
        let path = match (text.strip_prefix('~'), home) {
            (Some(""), Some(home)) => home,
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(text),
        };
        if path.is_absolute() {
            return Some(normalize(&path));
        }
        self.cwd.map(|cwd| normalize(&cwd.join(path)))
    }

    /// The path with its links followed.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        // No system call takes a longer one, and looking it up part by part takes long.
        if path.as_os_str().len() > PATH_MAX_BYTES {
            return path.to_path_buf();
        }
        let mut known = self.out.real.borrow_mut();
        known.entry(path.to_path_buf()).or_insert_with(|| paths::real_blocking(path)).clone()
    }

    /// Everything that an argument may be: itself, and what its words say when it is not known.
    pub(super) fn may_be(arg: &Arg) -> Vec<Arg> {
        let hint = |text: &String| Arg { glob: text.contains(['*', '?', '[']), ..Arg::known(text.clone()) };
        [arg.clone()].into_iter().chain(arg.hints.iter().map(hint)).collect()
    }

    /// True when the argument may be a protected directory, hold one, or be everything in one.
    pub(super) fn is_protected(&self, arg: &Arg) -> bool {
        Self::may_be(arg).iter().any(|arg| self.protects(arg))
    }

    /// See [`Judge::is_protected`], for one text.
    fn protects(&self, arg: &Arg) -> bool {
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
        let real = self.real(&path);
        if protected(&path) || protected(&real) {
            return true;
        }
        if !arg.glob {
            return false;
        }
        // `/*` is all of `/`; `/e?c` may be `/etc`.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let all = !name.is_empty() && name.chars().all(|c| matches!(c, '*' | '.' | '?' | '[' | ']' | '!' | '^'));
        if all && path.parent().is_some_and(|parent| protected(parent) || protected(&self.real(parent))) {
            return true;
        }
        let glob: Vec<char> = loose(&path.to_string_lossy());
        let hit = |path: &str| wildcard(&glob, &path.chars().collect::<Vec<_>>());
        PROTECTED.iter().any(|entry| hit(entry)) || own.iter().any(|own| hit(&own.to_string_lossy()))
    }

    /// What is copied or moved, and where to: the target stands last, or behind `-t`.
    pub(super) fn copied(&self) -> (Vec<Arg>, Option<Arg>) {
        let letters = match self.name() {
            "rsync" => "eTfMB",
            "scp" => "cFiJloPSX",
            "install" => "tSmog",
            _ => "tS",
        };
        let long = ["target-directory", "suffix", "mode", "owner", "group"];
        let gnu = !matches!(self.name(), "rsync" | "scp");
        let mut rest: Vec<Arg> = Vec::new();
        let mut skip = false;
        let mut options = true;
        for arg in &self.call.args {
            let text = arg.text.as_str();
            if std::mem::take(&mut skip) {
                continue;
            }
            if options && text == "--" {
                options = false;
            } else if options && let Some(name) = text.strip_prefix("--") {
                skip = gnu && !name.contains('=') && long.iter().any(|long| is_long(name, long));
            } else if options && text.len() > 1 && text.starts_with('-') {
                let value = text.char_indices().skip(1).find(|(_, c)| letters.contains(*c));
                skip = value.is_some_and(|(at, c)| at + c.len_utf8() == text.len());
            } else {
                rest.push(arg.clone());
            }
        }
        let into =
            if gnu { option_values(&self.call.args, "t", &["target-directory"]).into_iter().next() } else { None };
        match into {
            Some(target) => (rest, Some(target)),
            None => {
                let target = rest.pop();
                (rest, target)
            }
        }
    }

    /// True for a program of the system, by its path.
    pub(super) fn is_program(&self, arg: &Arg) -> bool {
        let path = self.path(&arg.text);
        let dir = path.as_deref().and_then(Path::parent);
        dir.is_some_and(|dir| PROGRAM_DIRS.iter().any(|program| dir == Path::new(program)))
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
            let (sources, target) = self.copied();
            if let Some(target) = target {
                // A program puts it into a directory under its own name.
                written.extend(sources.iter().map(|source| format!("{}/{}", target.text, base_name(&source.text))));
                written.push(target.text);
            }
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
        self.replaced_devices();
        if self.name() == "dd" && self.call.args.iter().any(|arg| arg.text.starts_with("of=")) {
            self.ask("dd overwrites a file", "dd: write");
        }
    }

    /// Programs that put something in the place of a device, or take it away.
    fn replaced_devices(&mut self) {
        let plain = || self.call.plain().cloned().collect::<Vec<_>>();
        let (sources, target) = self.copied();
        let touched: Vec<Arg> = match self.name() {
            "mv" => sources.into_iter().chain(target).collect(),
            "ln" | "install" => target.into_iter().collect(),
            "cp" if self.call.has("", &["remove-destination"]) => target.into_iter().collect(),
            "rm" | "unlink" | "shred" | "truncate" | "mknod" | "mkfifo" | "chmod" | "chown" | "chgrp" => plain(),
            _ => return,
        };
        for arg in touched.iter().flat_map(Self::may_be) {
            let Some(path) = self.path(&arg.text) else { continue };
            if path.starts_with("/dev") && !path.starts_with("/dev/shm") && !path.starts_with("/dev/mqueue") {
                return self.never(format!("it replaces or changes the device {}", path.display()));
            }
        }
    }

    fn removal(&mut self) {
        let name = self.name().to_owned();
        match name.as_str() {
            "rm" | "rimraf" => {
                let recursive = name == "rimraf" || self.call.has("rR", &["recursive"]);
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
                if self.call.args.iter().any(|arg| arg.text.starts_with("--del") || arg.text.starts_with("--rem")) =>
            {
                let target = self.call.plain().last().cloned().unwrap_or_default();
                if self.is_protected(&target) {
                    return self.never(format!("it removes what is in {}", target.text));
                }
                self.ask("rsync removes files", "rsync: delete");
            }
            "mv" => {
                let (moved, _) = self.copied();
                if let Some(target) = moved.iter().find(|target| self.is_protected(target)) {
                    return self.never(format!("it moves {} away", target.text));
                }
                let all = |arg: &Arg| arg.glob && arg.text.chars().all(|c| matches!(c, '*' | '.' | '/'));
                if moved.iter().any(|arg| !arg.known || all(arg)) {
                    self.ask("moves files that are not named", "mv: unnamed files");
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
        // `-L`, `-O3`, `--` and the like stand before the roots.
        let early = |text: &str| matches!(text, "-L" | "-H" | "-P" | "--") || text.starts_with("-O");
        let from = args.iter().take_while(|arg| early(&arg.text)).count();
        let mut roots: Vec<Arg> =
            args[from..].iter().take_while(|arg| !arg.text.starts_with(['-', '(', '!'])).cloned().collect();
        if roots.is_empty() {
            roots.push(Arg::known("."));
        }
        // A test that takes nearly everything (`-size -99999`) is no choice.
        let picks = picks_some(args);
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
        let group = texts.last() == Some(&"0") && !texts.contains(&"-0");
        if group
            || self.call.args.iter().any(|arg| !arg.known)
            || texts.iter().skip(1).any(|text| text.starts_with('-'))
        {
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
                if recursive && targets.iter().any(|target| !target.known) {
                    self.ask("changes the permissions of files that are not named", "chmod: unnamed files");
                }
                if recursive && targets.iter().any(|target| self.is_protected(target)) {
                    return self.never("it changes the permissions of a protected directory and everything in it");
                }
                if !recursive && targets.iter().skip(1).any(|target| self.is_protected(target)) {
                    self.ask("changes the permissions of a protected directory", "chmod: protected directory");
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

    fn listed(&mut self) {
        let name = self.name().to_owned();
        if let Some((_, reason)) = ASK.iter().find(|(listed, _)| *listed == name) {
            self.ask(format!("{name} {reason}"), name);
        }
    }
}

/// True when a test of `find` before what it does takes only some of the files: it is not turned round, it stands for no
/// choice of several, and its pattern is not everything.
fn picks_some(args: &[Arg]) -> bool {
    let acts = |arg: &&Arg| arg.text == "-delete" || arg.text.starts_with("-exec") || arg.text.starts_with("-ok");
    let before: Vec<&str> = args.iter().take_while(|arg| !acts(arg)).map(|arg| arg.text.as_str()).collect();
    let either = before.iter().any(|text| matches!(*text, "-o" | "-or" | ","));
    let all = |text: &str| text.chars().all(|c| matches!(c, '*' | '.' | '?' | '^' | '$'));
    let picks = |at: usize| {
        let turned = at > 0 && matches!(before[at - 1], "!" | "-not");
        picks_files(before[at]) && !turned && before.get(at + 1).is_some_and(|value| !all(value))
    };
    !either && (0..before.len()).any(picks)
}
