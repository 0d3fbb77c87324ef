//! An external login: another program owns it, and this one only ever reads. Either a command prints the token, or the
//! token stands in a file that the other program keeps.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use crate::credential::fetched::{Fetched, SecretSource};
use crate::credential::helper::{Helper, HelperFailure};
use crate::credential::when::when;
use crate::credential::{Fingerprint, Secret};
use crate::error::{ErrorClass, ProviderError};
use crate::text_file::read_text;

/// Longest run of a command when the profile does not say; some ask a server.
pub const COMMAND_TIMEOUT_S: u32 = 30;
/// Longest run that a profile may ask for: a request waits for it.
pub const COMMAND_TIMEOUT_MAX_S: u32 = 300;
/// How long a token without an end of its own is used before it is looked for again. A refused one is looked for at once.
const UNKNOWN_LIFE_MS: u64 = 900_000;
/// Largest file.
const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// Longest token; headers of most servers take less.
const TOKEN_MAX_BYTES: usize = 32 * 1024;

const _: () = assert!(COMMAND_TIMEOUT_S <= COMMAND_TIMEOUT_MAX_S);
const _: () = assert!(UNKNOWN_LIFE_MS > crate::credential::fetched::REFRESH_AHEAD_MS);

/// The table `[external_login]` of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct ExternalLogin {
    /// Where the token is.
    pub place: TokenPlace,
    /// Where in that text; `None`: the text is the token.
    pub fields: Option<TokenFields>,
    /// What a person runs to log in, for messages.
    pub login: Option<String>,
}

/// Where a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenPlace {
    /// What a command prints. The program and its arguments; no shell reads them.
    Command {
        /// The program.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that it gets beside those that every program needs.
        env: Vec<String>,
        /// How long it may run, in seconds.
        timeout_s: u32,
    },
    /// A file. `~/` is the user's directory.
    File(String),
}

/// JSON pointers (RFC 6901) to what is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFields {
    /// To the token.
    pub token: String,
    /// To the time when it ends: seconds or milliseconds since the epoch, or RFC 3339.
    pub expires: Option<String>,
}

/// As it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    command: Option<Vec<String>>,
    file: Option<String>,
    token: Option<String>,
    expires: Option<String>,
    login: Option<String>,
    #[serde(default)]
    env: Vec<String>,
    timeout_seconds: Option<u32>,
}

impl TryFrom<Written> for ExternalLogin {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let is_pointer = |text: &Option<String>| text.as_ref().is_none_or(|text| text.starts_with('/'));
        if !is_pointer(&written.token) || !is_pointer(&written.expires) {
            return Err("`token` and `expires` are JSON pointers, which begin with a slash");
        }
        let fields = match (written.token, written.expires) {
            (Some(token), expires) => Some(TokenFields { token, expires }),
            (None, None) => None,
            (None, Some(_)) => return Err("`expires` needs `token`: only JSON has both"),
        };
        let timeout_s = written.timeout_seconds.unwrap_or(COMMAND_TIMEOUT_S);
        if !(1..=COMMAND_TIMEOUT_MAX_S).contains(&timeout_s) {
            return Err("`timeout_seconds` is not between 1 and 300");
        }
        let is_of_command = written.timeout_seconds.is_some() || !written.env.is_empty();
        let place = match (written.command.map(|words| words.into_iter()), written.file) {
            (Some(mut words), None) => {
                let program = words.next().filter(|program| !program.trim().is_empty());
                let program = program.ok_or("`command` names no program")?;
                TokenPlace::Command { program, args: words.collect(), env: written.env, timeout_s }
            }
            (None, Some(file)) if !file.is_empty() && !is_of_command => TokenPlace::File(file),
            (None, Some(file)) if !file.is_empty() => return Err("`env` and `timeout_seconds` are for a `command`"),
            _ => return Err("either `command` or `file` says where the token is"),
        };
        Ok(Self { place, fields, login: written.login })
    }
}

/// The source of an external login. `Debug` shows no value of a variable.
pub struct ExternalSource {
    login: ExternalLogin,
    /// The file, when it is one; `~` and variables are read already.
    file: PathBuf,
    env: Vec<(String, String)>,
}

impl fmt::Debug for ExternalSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalSource").field("login", &self.login).field("file", &self.file).finish_non_exhaustive()
    }
}

impl ExternalSource {
    /// `place` gives the path of a file as it is written, `env` the whole environment of a command.
    #[must_use]
    pub fn new(login: ExternalLogin, place: impl FnOnce(&str) -> PathBuf, env: Vec<(String, String)>) -> Self {
        let file = match &login.place {
            TokenPlace::File(file) => place(file),
            TokenPlace::Command { .. } => PathBuf::new(),
        };
        Self { login, file, env }
    }

    /// Where the token is, for people.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.login.place {
            TokenPlace::Command { program, .. } => format!("the command `{program}`"),
            TokenPlace::File(_) => self.file.display().to_string(),
        }
    }

    /// An error with a code of its own, and what a person can do.
    fn failed(&self, class: ErrorClass, code: &str, why: &str) -> ProviderError {
        let then = match &self.login.login {
            Some(login) => format!("; run `{login}`"),
            None => String::new(),
        };
        let code = format!("external_login_{code}");
        let mut error = ProviderError::new(class, format!("{} {why} ({code}){then}", self.label()));
        error.code = Some(code);
        error
    }

    async fn text(&self) -> Result<String, ProviderError> {
        let TokenPlace::Command { program, args, timeout_s, .. } = &self.login.place else {
            let read = read_text(&self.file, FILE_MAX_BYTES).await;
            let text = read.map_err(|why| {
                self.failed(ErrorClass::Configuration, "unreadable", &format!("cannot be used: {why}"))
            })?;
            return text.ok_or_else(|| self.failed(ErrorClass::Auth, "missing", "is not there"));
        };
        let limit = Duration::from_secs(u64::from(*timeout_s));
        let helper = Helper { program, args, env: &self.env, limit };
        helper.run().await.map_err(|failure| {
            let (class, code) = match &failure {
                HelperFailure::NotRun(_) => (ErrorClass::Configuration, "missing"),
                HelperFailure::Failed { .. } => (ErrorClass::Auth, "failed"),
                HelperFailure::Late => (ErrorClass::Timeout, "late"),
                HelperFailure::TooLarge => (ErrorClass::Limit, "too_large"),
                HelperFailure::NoText => (ErrorClass::Configuration, "unreadable"),
            };
            self.failed(class, code, &failure.why(limit))
        })
    }

    /// The token and its end.
    fn read(&self, text: &str) -> Result<(SecretString, Option<SystemTime>), ProviderError> {
        let unreadable = |why: &str| self.failed(ErrorClass::Configuration, "unreadable", why);
        let (token, ends) = match &self.login.fields {
            None => (text.trim().to_owned(), None),
            Some(fields) => {
                let value: Value = serde_json::from_str(text).map_err(|_| unreadable("holds no JSON"))?;
                // Without the token nobody is logged in there; the program that owns the file may write it so.
                let token = value.pointer(&fields.token).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
                let ends = fields.expires.as_ref().and_then(|pointer| value.pointer(pointer));
                let ends = ends
                    .filter(|ends| !ends.is_null())
                    .map(|ends| when(ends).ok_or_else(|| unreadable("says in no known way when its token ends")));
                (token, ends.transpose()?)
            }
        };
        if token.is_empty() {
            return Err(self.failed(ErrorClass::Auth, "missing", "holds no token"));
        }
        if token.len() > TOKEN_MAX_BYTES || token.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(unreadable("holds something that is no token: it is too long, or has blanks in it"));
        }
        Ok((token.into(), ends))
    }
}

#[async_trait]
impl SecretSource for ExternalSource {
    async fn fetch(&self) -> Result<Fetched, ProviderError> {
        let (token, ends) = self.read(&self.text().await?)?;
        let now = SystemTime::now();
        if ends.is_some_and(|ends| ends <= now) {
            return Err(self.failed(ErrorClass::Auth, "ended", "holds a token that has ended"));
        }
        let label = self.label();
        Ok(Fetched {
            id: format!("{}:{label}", Fingerprint::of(&token).as_str()),
            secret: Secret::key(token),
            label,
            base_url: None,
            ends: ends.or_else(|| now.checked_add(Duration::from_millis(UNKNOWN_LIFE_MS))),
        })
    }
}

#[cfg(test)]
#[path = "external_tests.rs"]
mod tests;
