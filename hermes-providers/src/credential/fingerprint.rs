//! Names a secret without telling it.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// Bytes of the hash that are kept: enough that two keys of one home never meet, too few to be of use to anybody.
const FINGERPRINT_BYTES: usize = 8;
/// Keeps fingerprints of this program apart from hashes that others may have published.
const DOMAIN: &[u8] = b"hermes credential fingerprint 1\0";

/// The first bytes of a hash of a secret, as hexadecimal text. Not secret: keys and tokens cannot be guessed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Of a secret. Blanks around it do not count: they are not sent.
    #[must_use]
    pub fn of(secret: &SecretString) -> Self {
        let hash = Sha256::new().chain_update(DOMAIN).chain_update(secret.expose_secret().trim().as_bytes()).finalize();
        Self(hash.iter().take(FINGERPRINT_BYTES).map(|byte| format!("{byte:02x}")).collect())
    }

    /// One that was written down before.
    #[must_use]
    pub fn written(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// As it is written down.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_secrets_apart_and_holds_nothing_of_them() {
        let of = |text: &str| Fingerprint::of(&text.into());
        assert_eq!(of("sk-marked-1"), of(" sk-marked-1\n"));
        assert_ne!(of("sk-marked-1"), of("sk-marked-2"));
        assert_eq!(of("sk-marked-1").as_str().len(), FINGERPRINT_BYTES * 2);
        assert!(!format!("{:?}", of("sk-marked-1")).contains("marked"));
    }
}
