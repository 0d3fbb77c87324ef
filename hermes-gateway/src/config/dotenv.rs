//! The `.env` file of the home, and where a key is looked up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hermes_providers::credential::file::{AuthDoc, AuthFile, Entry};
use hermes_providers::credential::{SeededKey, seed};
use secrecy::{ExposeSecret, SecretString};

use super::{ConfigError, Env, Scope, files};

/// A `.env` file may have at most so many bytes.
const DOTENV_MAX_BYTES: usize = 1024 * 1024;
/// A key that is shorter is a placeholder.
const KEY_MIN_CHARS: usize = 4;
/// Texts that examples hold in the place of a key.
const PLACEHOLDERS: [&str; 14] = [
    "changeme",
    "change_me",
    "change-me",
    "placeholder",
    "your_api_key",
    "your-api-key",
    "your_key_here",
    "api_key",
    "apikey",
    "replace_me",
    "replaceme",
    "dummy",
    "none",
    "null",
];

/// What a `.env` file says. Of two lines with one name the last counts.
#[derive(Default)]
pub struct DotEnv {
    /// Values by name.
    vars: BTreeMap<String, SecretString>,
    /// Lines that were not understood.
    pub problems: Vec<DotEnvProblem>,
}

/// A line of `.env` that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DotEnvProblem {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it. Never holds its value.
    pub why: &'static str,
}

impl DotEnv {
    /// Reads a text of lines `NAME=VALUE`. `export `, quotes, escapes in double quotes, comments, CRLF and a byte
    /// order mark are understood; a quoted value may go over several lines. A bad line is left out and reported.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut line = 1;
        while !rest.is_empty() {
            let (used, outcome) = one(rest);
            match outcome {
                Ok(Some((name, value))) => {
                    found.vars.insert(name, SecretString::from(value));
                }
                Ok(None) => {}
                Err(why) => found.problems.push(DotEnvProblem { line, why }),
            }
            let (done, next) = rest.split_at(used);
            line += done.matches('\n').count();
            rest = next;
        }
        found
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SecretString> {
        self.vars.get(name)
    }

    /// The names, in order of the alphabet.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.vars.keys().map(String::as_str)
    }
}

/// Only names.
impl std::fmt::Debug for DotEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DotEnv")
            .field("names", &self.vars.keys().collect::<Vec<_>>())
            .field("problems", &self.problems)
            .finish()
    }
}

type Assignment = Result<Option<(String, String)>, &'static str>;

/// Reads one assignment; also gives how many bytes it takes, its line end with it.
fn one(text: &str) -> (usize, Assignment) {
    let end = text.find('\n').map_or(text.len(), |at| at + 1);
    let line = text[..end].trim();
    if line.is_empty() || line.starts_with('#') {
        return (end, Ok(None));
    }
    let Some(equals) = text[..end].find('=') else {
        return (end, Err("there is no '=' in this line"));
    };
    let name = text[..equals].trim();
    let name = name.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(name).trim();
    let first = name.chars().next();
    let valid = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '-');
    if !valid {
        return (end, Err("the name before '=' is not the name of a variable"));
    }
    let value = text[equals + 1..].trim_start_matches([' ', '\t']);
    let start = text.len() - value.len();
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => match quoted(&value[1..], quote) {
            Some((value, used)) => {
                let after = start + 1 + used;
                let last = text[after..].find('\n').map_or(text.len(), |at| after + at + 1);
                let tail = text[after..last].trim();
                if tail.is_empty() || tail.starts_with('#') {
                    (last, Ok(Some((name.to_owned(), value))))
                } else {
                    (end, Err("there is text after the closing quote"))
                }
            }
            None => (end, Err("a quote is not closed")),
        },
        _ => {
            let value = text[equals + 1..end].trim();
            let comment = value.find(" #").or_else(|| value.find("\t#")).unwrap_or(value.len());
            let value = if value.starts_with('#') { "" } else { value[..comment].trim_end() };
            (end, Ok(Some((name.to_owned(), value.to_owned()))))
        }
    }
}

/// The value up to the closing quote, and how many bytes it took, the quote with them.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Some((value, at + c.len_utf8())),
            '\\' => match (quote, chars.next()?.1) {
                ('"', 'n') => value.push('\n'),
                ('"', 'r') => value.push('\r'),
                ('"', 't') => value.push('\t'),
                (_, '\\') => value.push('\\'),
                (quote, c) if c == quote || (quote == '"' && c == '$') => value.push(c),
                (_, c) => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    None
}

/// Whether a value only holds the place of a key: shorter than 4 characters, or one of the texts of examples.
#[must_use]
pub fn is_placeholder(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    let same = |c: char| value.chars().all(|other| other == c);
    value.chars().count() < KEY_MIN_CHARS
        || PLACEHOLDERS.contains(&value.as_str())
        || ["x", "*", ".", "-", "0"].iter().any(|c| c.chars().all(same))
        || value.starts_with("your_")
        || value.starts_with("your-")
        || (value.starts_with('<') && value.ends_with('>'))
        || value.ends_with("xxxx")
}

/// What is known about a variable that should hold a key.
pub enum Lookup {
    /// A key.
    Found {
        /// The key.
        key: SecretString,
        /// Where it is from: `.env` or `environment`.
        place: &'static str,
    },
    /// Set to a text that is not a key.
    Placeholder,
    /// Not set, or empty.
    Missing,
}

/// Where keys are looked up: `.env` of the home first, then the environment.
#[derive(Debug)]
pub struct Keys {
    dotenv: DotEnv,
    env: Env,
    file: PathBuf,
    auth: AuthDoc,
}

impl Keys {
    /// Reads the `.env` of a home.
    ///
    /// # Errors
    /// The file is there and cannot be read, or is too large.
    pub fn load(scope: &Scope, env: Env) -> Result<Self, ConfigError> {
        let file = scope.dotenv();
        let bytes = files::read(&file, DOTENV_MAX_BYTES)?.unwrap_or_default();
        // A byte that is not UTF-8 spoils its own line only.
        // A damaged one is told by who needs it; everything else works without it.
        let auth = AuthFile::at(scope.auth_json()).read().unwrap_or_default();
        Ok(Self { dotenv: DotEnv::parse(&String::from_utf8_lossy(&bytes)), env, file, auth })
    }

    /// Keys of given parts.
    #[must_use]
    pub fn of(dotenv: DotEnv, env: Env, file: PathBuf) -> Self {
        Self { dotenv, env, file, auth: AuthDoc::default() }
    }

    /// The path of the `.env` file.
    #[must_use]
    pub fn file(&self) -> &std::path::Path {
        &self.file
    }

    /// What the `.env` file says.
    #[must_use]
    pub fn dotenv(&self) -> &DotEnv {
        &self.dotenv
    }

    /// The environment of the run.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The value of any variable. An empty line of `.env` is as good as none.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<(&str, &'static str)> {
        let written = self.dotenv.get(name).map(ExposeSecret::expose_secret).filter(|value| !value.is_empty());
        written.map(|value| (value, ".env")).or_else(|| Some((self.env.get(name)?, "environment")))
    }

    /// The key that a variable holds.
    #[must_use]
    pub fn key(&self, name: &str) -> Lookup {
        match self.value(name) {
            None => Lookup::Missing,
            Some((value, _)) if is_placeholder(value) => Lookup::Placeholder,
            Some((value, place)) => Lookup::Found { key: SecretString::from(value.trim().to_owned()), place },
        }
    }

    /// The keys that these variables hold, and those numbered behind them, but for those that a person removed from the
    /// provider.
    #[must_use]
    pub fn seeded<'a>(&self, provider: &str, variables: impl IntoIterator<Item = &'a str>) -> Vec<SeededKey> {
        let mut keys = self.all_seeded(variables);
        keys.retain(|key| !self.auth.is_suppressed(provider, &key.source()));
        keys
    }

    /// The same with those that a person removed.
    #[must_use]
    pub fn all_seeded<'a>(&self, variables: impl IntoIterator<Item = &'a str>) -> Vec<SeededKey> {
        let lookup = |name: &str| match self.key(name) {
            Lookup::Found { key, .. } => Some(key),
            Lookup::Placeholder | Lookup::Missing => None,
        };
        seed(variables, lookup)
    }

    /// Whether `auth.json` has a credential of a provider.
    #[must_use]
    pub fn has_login(&self, provider: &str) -> bool {
        let is_own = |entry: &Entry| entry.access_token.is_some() || entry.refresh_token.is_some();
        self.auth.entries(provider).iter().any(is_own)
    }

    /// A text with each `${NAME}` replaced by the value of that variable. An unset one stays as it is written.
    #[must_use]
    pub fn expand(&self, text: &str) -> String {
        let mut done = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            done.push_str(before);
            let value = from.find('}').and_then(|end| Some((self.value(&from[2..end])?.0, end)));
            match value {
                Some((value, end)) => {
                    done.push_str(value);
                    rest = &from[end + 1..];
                }
                None => {
                    done.push_str("${");
                    rest = &from[2..];
                }
            }
        }
        done + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<(String, String)>, Vec<usize>) {
        let found = DotEnv::parse(text);
        let vars = found.vars.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect();
        (vars, found.problems.iter().map(|problem| problem.line).collect())
    }

    #[test]
    fn lines_are_read_as_people_write_them() {
        let cases = [
            ("A=1", "1"),
            ("\u{feff}A=1\r\n", "1"),
            ("export A = 1 # why", "1"),
            ("A=a#b", "a#b"),
            ("A= # nothing", ""),
            ("A=\"x # y\" # z", "x # y"),
            ("A=\"a\\nb\\\"c\\\\\"", "a\nb\"c\\"),
            ("A='a\\nb'", "a\\nb"),
            ("A='two\nlines'", "two\nlines"),
            ("A=old\nA=new", "new"),
            ("# c\n\n  A=x=y  \n", "x=y"),
        ];
        for (text, value) in cases {
            assert_eq!(parsed(text), (vec![("A".into(), value.into())], vec![]), "{text:?}");
        }
    }

    #[test]
    fn i27_a_bad_line_is_reported_and_the_others_are_read() {
        let (vars, problems) = parsed("nonsense\nA=1\nB=\"open\nC=2\n1X=3\nD=\"a\" b\nE=5");
        assert_eq!(vars, [("A", "1"), ("C", "2"), ("E", "5")].map(|(n, v)| (n.to_string(), v.to_string())));
        assert_eq!(problems, [1, 3, 5, 6]);
    }

    #[test]
    fn placeholders_are_no_keys() {
        for value in ["", "abc", "changeme", "YOUR_API_KEY", "xxxxxxxx", "sk-xxxx", "<your key>", "your-key", "****"] {
            assert!(is_placeholder(value), "{value:?}");
        }
        for value in ["sk-or-v1-abcdef", "gsk_1234", "AIzaSy"] {
            assert!(!is_placeholder(value), "{value:?}");
        }
    }

    #[test]
    fn the_file_goes_before_the_environment_and_an_empty_line_counts_as_none() {
        let env = Env {
            vars: [("A", "from-env"), ("B", "from-env")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Env::default()
        };
        let keys = Keys::of(DotEnv::parse("A=from-file\nB=\n"), env, PathBuf::new());
        assert_eq!(keys.value("A"), Some(("from-file", ".env")));
        assert_eq!(keys.value("B"), Some(("from-env", "environment")));
        assert_eq!(keys.expand("<${A}> ${NO} ${"), "<from-file> ${NO} ${");
        assert!(!format!("{keys:?}").contains("from-"));
    }
}
