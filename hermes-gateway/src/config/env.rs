//! The process environment as a plain value.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a program may know of its surroundings: variables, the user's home directory, the working directory.
///
/// Tests build one by hand; a program calls [`Env::of_process`] once and passes the value on.
#[derive(Clone, Default)]
pub struct Env {
    /// Environment variables whose name and value are both UTF-8.
    pub vars: BTreeMap<String, String>,
    /// The user's home directory, if one is known.
    pub user_home: Option<PathBuf>,
    /// The working directory of the process.
    pub cwd: PathBuf,
}

impl Env {
    /// Reads the environment of this process. The only place in the crate that does.
    ///
    /// Variables that are not UTF-8 are skipped: no variable that Hermes reads may hold such bytes. A working
    /// directory that cannot be read (deleted under the process) becomes `/`.
    #[must_use]
    pub fn of_process() -> Self {
        let vars: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            vars,
            user_home: std::env::home_dir(),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        }
    }

    /// The value of a variable; an empty value counts as unset.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Shows the names of the variables only: values may be keys.
impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env")
            .field("vars", &self.vars.keys().collect::<Vec<_>>())
            .field("user_home", &self.user_home)
            .field("cwd", &self.cwd)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_never_shows_a_value() {
        let env = Env { vars: BTreeMap::from([("API_KEY".into(), "sk-very-secret".into())]), ..Env::default() };
        let text = format!("{env:?}");
        assert!(text.contains("API_KEY"));
        assert!(!text.contains("very-secret"));
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let env = Env { vars: BTreeMap::from([("A".into(), String::new())]), ..Env::default() };
        assert_eq!(env.get("A"), None);
    }
}
