//! One profile: its name and the directory that holds its files.

use std::path::{Component, Path, PathBuf};

use super::env::Env;
use super::error::ConfigError;

/// The longest profile name. Source: the Python program's pattern `[a-z0-9][a-z0-9_-]{0,63}`.
pub const PROFILE_NAME_MAX_BYTES: usize = 64;

/// The name of the profile whose directory is the root home itself.
pub const DEFAULT_PROFILE: &str = "default";

/// The directory under the user's home when `HERMES_HOME` is not set.
const DEFAULT_HOME: &str = ".hermes";
/// Where named profiles live, under the root home.
const PROFILES: &str = "profiles";
/// The file in the root home that names the profile to use when none is asked for.
const ACTIVE_PROFILE: &str = "active_profile";
/// A directory of the user's and of nobody else.
#[cfg(unix)]
const PRIVATE_DIR_MODE: u32 = 0o700;

/// Which profile, and where its files are. An explicit argument of everything that touches a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The profile's name; [`DEFAULT_PROFILE`] for the root home.
    pub profile: String,
    /// The absolute directory of its files. It need not exist yet.
    pub home: PathBuf,
}

impl Scope {
    /// A path as a person writes it in this home: `~/` is the user's directory, and what is relative is below the home.
    pub(crate) fn place(&self, env: &Env, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &env.user_home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.home.join(path),
        }
    }

    /// Finds the home of a profile.
    ///
    /// The root home is `$HERMES_HOME`, or `.hermes` in the user's home directory. `profile` is what the user asked
    /// for (`-p`); without it the root's `active_profile` file decides, as in the Python program. A `HERMES_HOME`
    /// that is itself `<root>/profiles/<name>` is that profile, which is what child processes of a profile see.
    ///
    /// # Errors
    /// [`ConfigError::NoHome`], [`ConfigError::ProfileName`], [`ConfigError::UnknownProfile`], or
    /// [`ConfigError::Unreadable`] for an `active_profile` file that exists and cannot be read.
    pub fn resolve(env: &Env, profile: Option<&str>) -> Result<Self, ConfigError> {
        let given = given_home(env)?;
        let (root, inherited) = match profile_of_home(&given) {
            Some((root, name)) => (root, Some(name)),
            None => (given, None),
        };
        if let Some(name) = profile {
            return Self::named(&root, name, "asked for with -p");
        }
        if let Some(name) = inherited {
            return Ok(Self { home: root.join(PROFILES).join(&name), profile: name });
        }
        let file = root.join(ACTIVE_PROFILE);
        match std::fs::read_to_string(&file) {
            Ok(text) if !text.trim().is_empty() => {
                Self::named(&root, text.trim(), &format!("named in {}", file.display()))
            }
            Ok(_) => Self::named(&root, DEFAULT_PROFILE, ""),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::named(&root, DEFAULT_PROFILE, ""),
            Err(error) => Err(ConfigError::Unreadable { path: file, reason: error.to_string() }),
        }
    }

    fn named(root: &Path, name: &str, asked_by: &str) -> Result<Self, ConfigError> {
        if name == DEFAULT_PROFILE {
            return Ok(Self { profile: name.to_owned(), home: root.to_owned() });
        }
        if !is_profile_name(name) {
            return Err(ConfigError::ProfileName { name: name.to_owned() });
        }
        let path = root.join(PROFILES).join(name);
        if path.is_dir() {
            return Ok(Self { profile: name.to_owned(), home: path });
        }
        Err(ConfigError::UnknownProfile {
            name: name.to_owned(),
            asked_by: asked_by.to_owned(),
            path,
            existing: existing_profiles(root),
        })
    }

    /// Makes the home directory (mode 0700) if it is missing. The mode of an existing one is left alone.
    ///
    /// # Errors
    /// [`ConfigError::Unwritable`].
    pub fn ensure_home(&self) -> Result<(), ConfigError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, PRIVATE_DIR_MODE);
        builder
            .create(&self.home)
            .map_err(|error| ConfigError::Unwritable { path: self.home.clone(), reason: error.to_string() })
    }

    /// Settings.
    #[must_use]
    pub fn config_yaml(&self) -> PathBuf {
        self.home.join("config.yaml")
    }

    /// Secrets as `NAME=value` lines.
    #[must_use]
    pub fn dotenv(&self) -> PathBuf {
        self.home.join(".env")
    }

    /// Credentials, and what they went through.
    #[must_use]
    pub fn auth_json(&self) -> PathBuf {
        self.home.join("auth.json")
    }

    /// The persona.
    #[must_use]
    pub fn soul(&self) -> PathBuf {
        self.home.join("SOUL.md")
    }

    /// What the agent remembers.
    #[must_use]
    pub fn memory_md(&self) -> PathBuf {
        self.home.join("memories").join("MEMORY.md")
    }

    /// What the agent knows about the user.
    #[must_use]
    pub fn user_md(&self) -> PathBuf {
        self.home.join("memories").join("USER.md")
    }

    /// The directory of skills.
    #[must_use]
    pub fn skills(&self) -> PathBuf {
        self.home.join("skills")
    }

    /// Our database. Never the Python program's `state.db`.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.home.join("hermes.db")
    }

    /// Sockets and other files of running processes.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        self.home.join("run")
    }

    /// Files that may be deleted at any time.
    #[must_use]
    pub fn cache_dir(&self) -> PathBuf {
        self.home.join("cache")
    }

    /// Log files.
    #[must_use]
    pub fn logs_dir(&self) -> PathBuf {
        self.home.join("logs")
    }

    /// The lines that the user typed at the interactive prompt.
    #[must_use]
    pub fn history(&self) -> PathBuf {
        self.home.join("history.txt")
    }
}

/// `$HERMES_HOME` or its default, absolute and without `.` parts.
fn given_home(env: &Env) -> Result<PathBuf, ConfigError> {
    let path = match env.get("HERMES_HOME").map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => expand_home(env, text)?,
        None => env.user_home.as_ref().filter(|home| home.is_absolute()).ok_or(ConfigError::NoHome)?.join(DEFAULT_HOME),
    };
    Ok(env.cwd.join(path).components().filter(|part| *part != Component::CurDir).collect())
}

/// `~` and `~/x` with the user's home in front; other paths as they are.
fn expand_home(env: &Env, text: &str) -> Result<PathBuf, ConfigError> {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            Ok(env.user_home.as_ref().ok_or(ConfigError::NoHome)?.join(rest.trim_start_matches('/')))
        }
        _ => Ok(PathBuf::from(text)),
    }
}

/// `(root, name)` of a home that is `<root>/profiles/<name>`.
fn profile_of_home(home: &Path) -> Option<(PathBuf, String)> {
    let name = home.file_name()?.to_str().filter(|name| is_profile_name(name) && *name != DEFAULT_PROFILE)?;
    let profiles = home.parent().filter(|parent| parent.file_name().is_some_and(|part| part == PROFILES))?;
    Some((profiles.parent()?.to_owned(), name.to_owned()))
}

fn is_profile_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= PROFILE_NAME_MAX_BYTES
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'_')
}

/// The named profiles of a root, sorted. A directory that cannot be listed has none.
fn existing_profiles(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.join(PROFILES)) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_profile_name(name))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
