//! The seam between a model and whoever holds its keys.

use std::any::Any;
use std::fmt;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use crate::error::ProviderError;

/// What a request is let in with. Its text is shown by nobody: no `Serialize`, and `Debug` names the kind only.
#[derive(Clone, Default)]
pub enum Secret {
    /// Nothing is sent.
    #[default]
    None,
    /// A key or an access token, for the header that the profile names.
    Key(SecretString),
    /// Keys that sign a request (AWS Signature Version 4).
    Aws {
        /// Names the key; not secret in itself.
        access_key_id: String,
        /// What signs.
        secret_access_key: SecretString,
        /// Of temporary keys.
        session_token: Option<SecretString>,
        /// The region that the signature is for.
        region: String,
    },
}

impl Secret {
    /// A key; [`Secret::None`] when it is blank.
    #[must_use]
    pub fn key(key: SecretString) -> Self {
        if key.expose_secret().trim().is_empty() { Self::None } else { Self::Key(key) }
    }

    /// True when there is nothing to send.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The texts that nothing may show, should a server echo them.
    #[must_use]
    pub fn texts(&self) -> Vec<SecretString> {
        match self {
            Self::None => Vec::new(),
            Self::Key(key) => vec![key.clone()],
            Self::Aws { secret_access_key, session_token, .. } => {
                std::iter::once(secret_access_key).chain(session_token).cloned().collect()
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "Secret::None",
            Self::Key(_) => "Secret::Key(..)",
            Self::Aws { .. } => "Secret::Aws(..)",
        })
    }
}

/// The right to make one attempt.
#[derive(Default)]
pub struct Ticket {
    /// Which credential it is, for [`Credentials::report`]: the entry and the secret's fingerprint. Not secret.
    pub id: String,
    /// What to send.
    pub secret: Secret,
    /// Where this credential is good, when that differs from the profile's address.
    pub base_url: Option<String>,
    /// What people call the credential, for messages. Not secret.
    pub label: String,
    /// Dropped with the ticket: whoever holds the keys knows then that this one is free.
    pub lease: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("label", &self.label).field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// With a whole answer.
    Answered,
    /// With an error; many say nothing of the credential.
    Failed(&'a ProviderError),
}

/// What may be done after an attempt, as far as credentials go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing new: the same credential, or none, is what the next attempt would get.
    Same,
    /// Another credential is ready, or this one can be renewed: it pays to ask again at once.
    Another,
}

/// Who holds the credentials of one provider.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// A ticket for one attempt at `model`. May wait for a token to be renewed, and for nothing else.
    ///
    /// # Errors
    /// Class `RateLimit` with the time until the earliest is free when all rest (B49), `Auth` when none is left that could
    /// work, `Billing` when what is left has no money.
    async fn take(&self, model: &str) -> Result<Ticket, ProviderError>;

    /// Says how the attempt with `ticket` ended, however late. Quick: nothing is waited for, and nothing blocks.
    fn report(&self, ticket: &Ticket, model: &str, outcome: Outcome<'_>) -> Next;

    /// Writes down what failures taught, before the error is told: the program may end with it.
    async fn settle(&self) {}
}

/// One key that is all there is.
#[derive(Debug, Clone, Default)]
pub struct FixedKey {
    secret: Secret,
}

impl FixedKey {
    /// Always this one.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self { secret }
    }
}

#[async_trait]
impl Credentials for FixedKey {
    async fn take(&self, _: &str) -> Result<Ticket, ProviderError> {
        Ok(Ticket { secret: self.secret.clone(), ..Ticket::default() })
    }

    fn report(&self, _: &Ticket, _: &str, _: Outcome<'_>) -> Next {
        Next::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i24_no_secret_is_in_what_debug_says() {
        let aws = Secret::Aws {
            access_key_id: "AKIA-marked".into(),
            secret_access_key: "marked-1".into(),
            session_token: Some("marked-2".into()),
            region: "eu-west-1".into(),
        };
        let ticket = Ticket { secret: Secret::key("marked-3".into()), label: "first".into(), ..Ticket::default() };
        let said = format!("{aws:?} {ticket:?} {:?}", FixedKey::new(aws.clone()));
        assert!(!said.contains("marked") && said.contains("first"), "{said}");
        assert_eq!(aws.texts().len(), 2);
        assert!(Secret::key("  ".into()).is_none());
    }
}
