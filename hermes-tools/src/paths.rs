//! Which files may be read and written, with links followed.

use std::path::{Path, PathBuf};

use crate::session::normalize;

/// Most links that are followed when a path is resolved.
const MAX_LINKS: usize = 40;

/// What a path rule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathVerdict {
    /// Nothing against it.
    Free,
    /// A person has to say yes; the text says why.
    Ask(String),
    /// Never; the text says why.
    Never(String),
}

/// The homes that rules speak of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Homes {
    /// The user's home.
    pub(crate) user: Option<PathBuf>,
    /// The hermes home of the profile.
    pub(crate) hermes: Option<PathBuf>,
    /// When set, files are written only below it.
    pub(crate) write_root: Option<PathBuf>,
}

/// The path with every link followed as far as it exists; the rest of a path that does not exist stays as it is.
pub(crate) async fn real(path: PathBuf) -> PathBuf {
    let kept = path.clone();
    tokio::task::spawn_blocking(move || real_blocking(&path)).await.unwrap_or(kept)
}

/// See [`real`]; reads the file system.
pub(crate) fn real_blocking(path: &Path) -> PathBuf {
    let mut path = normalize(path);
    for _ in 0..MAX_LINKS {
        let mut existing = path.as_path();
        let mut rest: Vec<std::ffi::OsString> = Vec::new();
        loop {
            if let Ok(real) = existing.canonicalize() {
                return rest.iter().rev().fold(real, |path, part| path.join(part));
            }
            // A link whose target does not exist: writing through it would make the target.
            if let Ok(target) = std::fs::read_link(existing) {
                let base = existing.parent().unwrap_or(Path::new("/"));
                let joined = rest.iter().rev().fold(base.join(target), |path, part| path.join(part));
                path = normalize(&joined);
                break;
            }
            match (existing.parent(), existing.file_name()) {
                (Some(parent), Some(name)) => {
                    rest.push(name.to_owned());
                    existing = parent;
                }
                _ => return path,
            }
        }
    }
    path
}

/// Files of the user's home that are never written: they are credentials or let others in.
const WRITE_DENIED_HOME_FILES: &[&str] =
    &[".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", ".anthropic_oauth.json"];

/// Names that are never written wherever they are.
const WRITE_DENIED_NAMES: &[&str] = &["authorized_keys", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa"];

/// Directories of the user's home below which nothing is written.
const WRITE_DENIED_HOME_DIRS: &[&str] =
    &[".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".config/gh", ".config/gcloud"];

/// System files and directories that are never written.
const WRITE_DENIED_SYSTEM: &[&str] =
    &["/etc/sudoers", "/etc/sudoers.d", "/etc/passwd", "/etc/shadow", "/etc/systemd", "/proc", "/sys", "/dev", "/boot"];

/// What of the hermes home is never written by a tool.
const WRITE_DENIED_HERMES: &[&str] = &[
    "config.yaml",
    ".env",
    "hermes.db",
    "hermes.db-wal",
    "hermes.db-shm",
    "run",
    "state.db",
    "sessions",
    "auth",
    "auth.json",
    "mcp-tokens",
    "pairing",
    "vault",
    "browser-profile",
];

/// System directories whose files are asked about.
const ASK_SYSTEM: &[&str] =
    &["/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/var/run/docker.sock", "/run/docker.sock"];

/// Files that tell agents what to do: changing them changes what later turns are told.
const INSTRUCTION_FILES: &[&str] = &["AGENTS.md", "CLAUDE.md", "SOUL.md", ".cursorrules", ".hermes.md", "HERMES.md"];

/// Files of the user's home that run or configure his shell and tools.
const ASK_HOME_FILES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".gitconfig",
    ".config/fish/config.fish",
    ".config/autostart",
    ".config/systemd",
];

/// Files of the user's home that are never read: credentials.
const READ_DENIED_HOME: &[&str] = &[
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".anthropic_oauth.json",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker/config.json",
    ".azure",
    ".config/gh",
    ".config/gcloud",
];

/// What of the hermes home is never read by a tool.
const READ_DENIED_HERMES: &[&str] =
    &[".env", "auth", "auth.json", "mcp-tokens", "pairing", "vault", "browser-profile", "skills/.hub"];

/// Files that block or leak when they are read.
const READ_DENIED_SYSTEM: &[&str] =
    &["/dev", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/kcore", "/proc/kmsg"];

/// Files below `/proc/PID` that show the environment or the memory of a process.
const READ_DENIED_PROC: &[&str] = &["environ", "mem", "maps", "fd", "auxv", "cmdline", "root"];

/// Whether a tool may write there; the path is real (see [`real`]).
pub(crate) fn may_write(path: &Path, homes: &Homes) -> PathVerdict {
    let shown = path.display();
    let name = name_of(path);
    if let Some(root) = &homes.write_root
        && !path.starts_with(root)
    {
        return PathVerdict::Never(format!("{shown} is outside the directory that files may be written in"));
    }
    if below_any(path, Path::new("/"), WRITE_DENIED_SYSTEM) {
        return PathVerdict::Never(format!("{shown} is a protected system file"));
    }
    let ssh_config = homes.user.as_ref().is_some_and(|home| path == home.join(".ssh/config"));
    if ssh_config {
        return PathVerdict::Ask(format!("changes {shown}"));
    }
    let in_home = |list: &[&str]| homes.user.as_ref().is_some_and(|home| below_any(path, home, list));
    if WRITE_DENIED_NAMES.contains(&name) || in_home(WRITE_DENIED_HOME_FILES) || in_home(WRITE_DENIED_HOME_DIRS) {
        return PathVerdict::Never(format!("{shown} holds credentials and is never written by a tool"));
    }
    if hermes_homes(homes).any(|home| below_any(path, &home, WRITE_DENIED_HERMES)) {
        return PathVerdict::Never(format!("{shown} is hermes' own file and is never written by a tool"));
    }
    if INSTRUCTION_FILES.contains(&name)
        || path.components().any(|part| part.as_os_str() == ".hermes") && !below_hermes(path, homes)
    {
        return PathVerdict::Ask(format!("changes the instruction file {shown}"));
    }
    if in_home(ASK_HOME_FILES) {
        return PathVerdict::Ask(format!("changes the start-up file {shown}"));
    }
    if below_any(path, Path::new("/"), ASK_SYSTEM) {
        return PathVerdict::Ask(format!("changes the system file {shown}"));
    }
    PathVerdict::Free
}

/// Whether a tool may read there; the path is real.
pub(crate) fn may_read(path: &Path, homes: &Homes) -> PathVerdict {
    let shown = path.display();
    let name = name_of(path);
    let in_home = |list: &[&str]| homes.user.as_ref().is_some_and(|home| below_any(path, home, list));
    let private_key = homes.user.as_ref().is_some_and(|home| path.starts_with(home.join(".ssh")))
        && !matches!(name, ".ssh" | "config" | "known_hosts")
        && !name.ends_with(".pub");
    let env_file = (name == ".env" || name.starts_with(".env.") || name == ".envrc")
        && !matches!(name, ".env.example" | ".env.sample" | ".env.template" | ".env.dist");
    if private_key || env_file || in_home(READ_DENIED_HOME) || WRITE_DENIED_NAMES.contains(&name) {
        return PathVerdict::Never(format!("{shown} holds credentials and is never read by a tool"));
    }
    if hermes_homes(homes).any(|home| below_any(path, &home, READ_DENIED_HERMES)) {
        return PathVerdict::Never(format!("{shown} holds hermes' credentials and is never read by a tool"));
    }
    let proc_secret =
        path.starts_with("/proc") && READ_DENIED_PROC.contains(&name) || path.starts_with("/proc/self/fd");
    if proc_secret || below_any(path, Path::new("/"), READ_DENIED_SYSTEM) {
        return PathVerdict::Never(format!("{shown} is a device or a protected system file"));
    }
    PathVerdict::Free
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

/// The profile's home and the usual one, which other profiles live below: neither is another profile's to touch.
fn hermes_homes(homes: &Homes) -> impl Iterator<Item = PathBuf> {
    homes.hermes.clone().into_iter().chain(homes.user.as_ref().map(|home| home.join(".hermes")))
}

fn below_hermes(path: &Path, homes: &Homes) -> bool {
    homes.hermes.as_ref().is_some_and(|home| path.starts_with(home))
}

fn below_any(path: &Path, base: &Path, list: &[&str]) -> bool {
    list.iter().any(|entry| path.starts_with(base.join(entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes() -> Homes {
        Homes { user: Some("/home/u".into()), hermes: Some("/home/u/.hermes".into()), write_root: None }
    }

    #[track_caller]
    fn check_write(path: &str, expected: &str) {
        let kind = match may_write(Path::new(path), &homes()) {
            PathVerdict::Free => "free",
            PathVerdict::Ask(_) => "ask",
            PathVerdict::Never(_) => "never",
        };
        assert_eq!(kind, expected, "{path}");
    }

    #[track_caller]
    fn check_read(path: &str, expected: bool) {
        assert_eq!(may_read(Path::new(path), &homes()) == PathVerdict::Free, expected, "{path}");
    }

    #[test]
    fn write_rules() {
        for path in [
            "/home/u/.ssh/authorized_keys",
            "/home/u/.ssh/new",
            "/home/u/.netrc",
            "/srv/id_rsa",
            "/etc/passwd",
            "/etc/sudoers.d/x",
            "/home/u/.aws/credentials",
            "/home/u/.hermes/config.yaml",
            "/home/u/.hermes/.env",
            "/home/u/.hermes/hermes.db",
            "/home/u/.hermes/hermes.db-wal",
            "/dev/sda",
            "/home/u/.config/gh/hosts.yml",
        ] {
            check_write(path, "never");
        }
        for path in [
            "/home/u/.ssh/config",
            "/w/AGENTS.md",
            "/w/CLAUDE.md",
            "/w/.hermes/rules",
            "/home/u/.bashrc",
            "/etc/hosts",
            "/home/u/.hermes/SOUL.md",
            "/usr/bin/x",
        ] {
            check_write(path, "ask");
        }
        for path in ["/w/a.txt", "/home/u/notes", "/tmp/x", "/home/u/.hermes/memories/MEMORY.md", "/w/.env"] {
            check_write(path, "free");
        }
    }

    #[test]
    fn read_rules() {
        for path in [
            "/home/u/.ssh/id_rsa",
            "/home/u/.aws/credentials",
            "/w/.env",
            "/w/.env.local",
            "/w/.envrc",
            "/dev/zero",
            "/proc/1/environ",
            "/home/u/.hermes/.env",
            "/etc/shadow",
            "/home/u/.hermes/auth.json",
        ] {
            check_read(path, false);
        }
        for path in [
            "/w/a.rs",
            "/w/.env.example",
            "/home/u/.ssh/id_rsa.pub/x.pub",
            "/home/u/.hermes/config.yaml",
            "/proc/cpuinfo",
        ] {
            check_read(path, true);
        }
    }

    #[test]
    fn a_dangling_link_resolves_to_what_it_would_make() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(base.join("not/yet"), base.join("link")).unwrap();
        assert_eq!(real_blocking(&base.join("link/x")), base.join("not/yet/x"));
        assert_eq!(real_blocking(&base.join("a/../b")), base.join("b"));
    }
}
