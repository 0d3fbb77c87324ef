//! Files that a call writes, and files with credentials that it reads.

use std::path::Path;

use super::expand::Arg;
use super::resolve::{base_name, is_shell};
use super::rules::Judge;
use super::tables::{COPIERS, NO_WRITERS, READERS};
use super::wrappers::{option_values, wrapper};
use super::{Ground, loose, wildcard};
use crate::paths::{self, Homes, PathVerdict};

impl Judge<'_> {
    /// Files that redirections and programs write.
    pub(super) fn written_files(&mut self) {
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
                self.named_targets(&plain);
                plain.iter().for_each(|arg| self.written(arg, empties));
            }
            name if COPIERS.contains(&name) => {
                let (sources, target) = self.copied();
                if let Some(target) = target {
                    self.copied_to(&sources, &target);
                }
                if name == "mv" {
                    sources.iter().for_each(|arg| self.written(arg, false));
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
                        self.written(&arg.with(path), false);
                    }
                }
            }
            "curl" | "wget" => self.downloaded(),
            "sort" => option_values(&self.call.args, "o", &["output"]).iter().for_each(|arg| self.written(arg, false)),
            "tar" | "bsdtar" | "gtar" => {
                let word = self.call.args.first().map_or("", |arg| arg.text.as_str());
                let reads = !word.starts_with("--") && word.contains('x') && !word.contains('/');
                if reads || self.call.has("x", &["extract", "get"]) {
                    let into = option_values(&self.call.args, "C", &["directory"]);
                    self.unpacked(into);
                }
            }
            "unzip" | "7z" | "7za" | "cpio" => {
                let into = option_values(&self.call.args, "doD", &["directory"]);
                self.unpacked(into);
            }
            name if !NO_WRITERS.contains(&name) => self.protected_arguments(),
            _ => {}
        }
    }

    /// What a copy puts where: into the target, or into the directory that it is.
    fn copied_to(&mut self, sources: &[Arg], target: &Arg) {
        self.named_targets(std::slice::from_ref(target));
        let outside = self.path(&target.text).is_some_and(|path| !path.starts_with(&self.ground.cwd));
        for target in Self::may_be(target) {
            self.written(&target, outside);
            for source in sources {
                let name = source.text.trim_end_matches('/');
                if name.is_empty() || name.ends_with('.') || source.glob || name.ends_with('~') {
                    self.unpacked(vec![target.clone()]);
                } else {
                    let inside = format!("{}/{}", target.text, base_name(name));
                    self.written(&target.with(inside), outside);
                }
            }
        }
    }

    /// Asks when a file that is written is not known before.
    fn named_targets(&mut self, targets: &[Arg]) {
        if targets.iter().any(|arg| !arg.known && !arg.process || arg.glob) {
            self.ask("writes to a file that is not known before it runs", "redirection: unknown file");
        }
    }

    /// What `curl` and `wget` save, and where.
    fn downloaded(&mut self) {
        let curl = self.name() == "curl";
        let files = if curl {
            option_values(&self.call.args, "oDc", &["output", "dump-header", "cookie-jar"])
        } else {
            option_values(&self.call.args, "Oao", &["output-document", "output-file", "append-output"])
        };
        files.iter().for_each(|arg| self.written(arg, false));
        let dirs = if curl {
            option_values(&self.call.args, "\u{0}", &["output-dir"])
        } else {
            option_values(&self.call.args, "P", &["directory-prefix"])
        };
        if !dirs.is_empty() {
            self.unpacked(dirs);
        }
    }

    /// Directories into which files come whose names are not known; without any, the working directory.
    fn unpacked(&mut self, mut dirs: Vec<Arg>) {
        if dirs.is_empty() {
            dirs.push(Arg::known("."));
        }
        for dir in dirs.iter().flat_map(Self::may_be) {
            let Some(path) = self.path(&dir.text) else { continue };
            let real = self.real(&path);
            let guarded = [".bashrc", ".ssh/x", "config.yaml", "run/x", "hosts", "x"];
            let hit = guarded.iter().any(|name| {
                [&path, &real].into_iter().any(|dir| may_write_new(&dir.join(name), self.ground) != PathVerdict::Free)
            });
            if hit || self.holds_home(&path) || self.holds_home(&real) {
                return self.ask(format!("puts files into {}, where others may be replaced", path.display()), "unpack");
            }
        }
    }

    /// True for a directory that holds a home, or is the home of hermes.
    fn holds_home(&self, path: &Path) -> bool {
        let homes = &self.ground.homes;
        let hermes = homes.user.as_ref().map(|home| home.join(".hermes"));
        [&homes.user, &homes.hermes, &hermes].into_iter().flatten().any(|home| home.starts_with(path))
    }

    /// Programs that nothing is known of, with a file that is never written.
    fn protected_arguments(&mut self) {
        if wrapper(self.name()).is_some() || is_shell(self.name()) {
            return;
        }
        for arg in &self.call.args {
            // `-o/path`: the path begins with the first slash.
            let from = if arg.text.starts_with('-') { arg.text.find(['/', '~']).unwrap_or(0) } else { 0 };
            let text = &arg.text[from..];
            if text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace) || text.len() > 4_096 {
                continue;
            }
            let Some(path) = self.path(text) else { continue };
            let real = self.real(&path);
            for path in [&path, &real] {
                let system = ["/dev", "/proc", "/sys"].iter().any(|dir| path.starts_with(dir));
                if !system && let PathVerdict::Never(why) = paths::may_write(path, &self.ground.homes) {
                    return self.ask(format!("names a protected file: {why}"), format!("write: {}", path.display()));
                }
            }
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
        let real = self.real(&path);
        let git = |path: &Path| {
            let mut parts = path.components().skip_while(|part| part.as_os_str() != ".git").skip(1);
            parts.next().is_some_and(|part| matches!(part.as_os_str().to_str(), Some("config" | "hooks" | "info")))
        };
        if git(&path) || git(&real) {
            return self.ask("changes what git runs", "git: own files");
        }
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
    pub(super) fn named_files(&mut self) {
        let targets = self.call.redirects.iter().map(|redirect| &redirect.target);
        let args: Vec<Arg> = self.call.args.iter().chain(targets).flat_map(Self::may_be).collect();
        if let Some(arg) = args.iter().find(|arg| self.may_match_secret(arg)) {
            return self.ask(format!("touches {}, which may be a file with credentials", arg.text), "credentials");
        }
        if let Some(dir) = self.read_tree(&args) {
            return self.ask(format!("reads what is in {dir}, where credentials are"), "credentials: directory");
        }
        let texts: Vec<String> = args.into_iter().map(|arg| arg.text).collect();
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
                let real = self.real(&path);
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

    /// True for a pattern that comes to a file with credentials.
    fn may_match_secret(&self, arg: &Arg) -> bool {
        if !arg.glob || self.name() == "ls" {
            return false;
        }
        let Some(path) = self.path(&arg.text) else { return false };
        let pattern = path.to_string_lossy().into_owned();
        if pattern.starts_with("/proc/") {
            let last = loose(base_name(&pattern));
            return ["environ", "mem"].iter().any(|name| wildcard(&last, &name.chars().collect::<Vec<_>>()))
                && !matches!(last.as_slice(), ['*']);
        }
        let homes = &self.ground.homes;
        let user = homes.user.iter().flat_map(|home| SECRETS_HOME.iter().map(|name| home.join(name)));
        let hermes = homes.user.iter().map(|home| home.join(".hermes")).chain(homes.hermes.clone());
        let hermes = hermes.flat_map(|home| SECRETS_HERMES.iter().map(move |name| home.join(name)));
        // A file `.env` in any directory that the pattern speaks of.
        let here = path.parent().into_iter().map(|dir| dir.join(".env"));
        user.chain(hermes).chain(here).any(|secret| matches_path(&pattern, &secret.to_string_lossy()))
    }

    /// The directory with credentials whose files a program reads, all of them or some that are not known.
    fn read_tree(&self, args: &[Arg]) -> Option<String> {
        let call = self.call;
        let all = match self.name() {
            "grep" | "egrep" | "fgrep" | "cp" => call.has("rRa", &["recursive", "dereference-recursive", "archive"]),
            "scp" | "zip" | "rsync" => call.has("ra", &["recursive", "recurse-paths", "archive"]),
            "rg" | "ag" | "tar" | "bsdtar" | "7z" => !call.has("x", &["extract", "get"]),
            _ => false,
        };
        let searches = matches!(self.name(), "grep" | "egrep" | "fgrep" | "rg" | "ag");
        let here = Arg::known(".");
        let implied = (all && searches && call.plain().count() < 2).then_some(&here);
        let reader = READERS.contains(&self.name());
        let is_read = |arg: &&Arg| all || reader && !arg.known && !arg.text.is_empty();
        args.iter().chain(implied).filter(is_read).filter(|arg| !arg.text.starts_with('-')).find_map(|arg| {
            let path = self.path(&arg.text)?;
            let held = self.holds_home(&path) || self.holds_home(&self.real(&path));
            held.then(|| path.display().to_string())
        })
    }
}

/// [`paths::may_write`] for a new file in a directory: a name that is guarded wherever it stands says nothing of it.
fn may_write_new(path: &Path, ground: &Ground) -> PathVerdict {
    let homes = Homes { write_root: None, ..ground.homes.clone() };
    paths::may_write(path, &homes)
}

/// Files of a home that hold credentials, for patterns.
const SECRETS_HOME: &[&str] = &[
    ".ssh/id_rsa",
    ".ssh/id_ed25519",
    ".ssh/id_ecdsa",
    ".ssh/id_dsa",
    ".aws/credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".kube/config",
    ".docker/config.json",
    ".config/gh/hosts.yml",
    ".gnupg/secring.gpg",
];

/// Files of the home of hermes that hold credentials, for patterns.
const SECRETS_HERMES: &[&str] = &[".env", "auth.json", "auth/x", "vault/x", "mcp-tokens/x"];

/// True when the pattern matches the path as a shell would, part by part; a dot at the beginning is not matched by a sign.
fn matches_path(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    let part = |(pattern, part): (&&str, &&str)| {
        (!part.starts_with('.') || pattern.starts_with('.'))
            && wildcard(&loose(pattern), &part.chars().collect::<Vec<_>>())
    };
    pattern.len() == path.len() && pattern.iter().zip(&path).all(part)
}
