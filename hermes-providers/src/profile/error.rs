//! What is wrong with a profile's file.

/// A profile that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is not a profile.
    #[error("{file}:{line}: {message}")]
    Parse {
        /// File name.
        file: String,
        /// Line of the file, the first is 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// Two profiles claim one name.
    #[error("the provider name `{name}` is claimed by both `{first}` and `{second}`; rename one of them")]
    Clash {
        /// The name or alias.
        name: String,
        /// Id of the profile that had it first.
        first: String,
        /// Id of the other one.
        second: String,
    },
}

impl ProfileError {
    /// The stable code (`docs/errors`).
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Parse { .. } => "HM2040",
            Self::Clash { .. } => "HM2041",
        }
    }
}
