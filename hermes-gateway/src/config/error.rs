//! What can be wrong with a home, its files, or a wish to change them.

use std::path::PathBuf;

/// Why the configuration could not be read, understood or changed.
///
/// No message holds the value of a secret. [`ConfigError::code`] names a page in `docs/errors/`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A profile name that could not be a directory name everywhere.
    #[error(
        "{code}: {name:?} is not a profile name: use small letters, digits, '-' and '_', at most {max} characters, \
         beginning with a letter or a digit",
        code = self.code(), max = super::scope::PROFILE_NAME_MAX_BYTES
    )]
    ProfileName {
        /// What was asked for.
        name: String,
    },
    /// A profile that has no directory.
    #[error(
        "{code}: there is no profile {name:?} ({asked_by}). {known} Make it with `mkdir -p {path}`, or leave out the \
         profile to use the default one",
        code = self.code(), known = known_profiles(existing), path = path.display()
    )]
    UnknownProfile {
        /// What was asked for.
        name: String,
        /// Who asked: the option, or the file that names a profile.
        asked_by: String,
        /// Where it would be.
        path: PathBuf,
        /// The profiles that exist, sorted.
        existing: Vec<String>,
    },
    /// Neither `HERMES_HOME` nor the user's home directory is known.
    #[error("{code}: no home directory is known: set HERMES_HOME to a directory that Hermes may use", code = self.code())]
    NoHome,
    /// A file or directory that could not be read.
    #[error("{code}: cannot read {path}: {reason}", code = self.code(), path = path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Text that is not YAML.
    #[error("{code}: {path}:{line}:{column}: this is not valid YAML: {reason}. {advice}", code = self.code(), path = path.display())]
    BrokenYaml {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What the parser said.
        reason: String,
        /// What to do, a sentence.
        advice: String,
    },
    /// A known setting of the wrong type or outside its range.
    #[error("{code}: {path}:{line}: `{key}` is {found}; write {wanted}", code = self.code(), path = path.display())]
    WrongValue {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Dotted name of the setting.
        key: String,
        /// What stands there; never the value of a secret.
        found: String,
        /// What to write instead, with an example.
        wanted: String,
    },
    /// A change that cannot be made without risk to the rest of the file.
    #[error(
        "{code}: {path} was not changed: {reason}. Edit the file by hand: set `{key}` there",
        code = self.code(), path = path.display()
    )]
    CannotEdit {
        /// Which file.
        path: PathBuf,
        /// Dotted name of the setting.
        key: String,
        /// Why not.
        reason: String,
    },
    /// A file or directory that could not be written.
    #[error("{code}: cannot write {path}: {reason}", code = self.code(), path = path.display())]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A name that no setting has.
    #[error("{code}: there is no setting `{key}`{near}", code = self.code(), near = did_you_mean(near))]
    UnknownKey {
        /// The name that was asked for.
        key: String,
        /// Names that look like it, best first.
        near: Vec<String>,
    },
}

impl ConfigError {
    /// The stable code; `docs/errors/<code>.md` explains it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ProfileName { .. } => "HM0101",
            Self::UnknownProfile { .. } => "HM0102",
            Self::NoHome => "HM0103",
            Self::Unreadable { .. } => "HM0104",
            Self::BrokenYaml { .. } => "HM0105",
            Self::WrongValue { .. } => "HM0106",
            Self::CannotEdit { .. } => "HM0107",
            Self::Unwritable { .. } => "HM0108",
            Self::UnknownKey { .. } => "HM0109",
        }
    }
}

fn known_profiles(existing: &[String]) -> String {
    if existing.is_empty() {
        "There is only the default profile.".to_owned()
    } else {
        format!("There are: default, {}.", existing.join(", "))
    }
}

/// `"; did you mean `a` or `b`?"`, or nothing.
pub(super) fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}
