//! Puts a credential into the head of a request.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;

use crate::credential::Secret;
use crate::profile::{AuthHeader, Profile};

/// Adds what lets the request in. `headers` is all that goes out beside it, `url` and `body` what a signature covers.
///
/// # Errors
/// What is wrong with the credential, as the end of a sentence.
pub(super) fn authorize(
    profile: &Profile,
    secret: &Secret,
    headers: &mut HeaderMap,
    _url: &Url,
    _body: &[u8],
) -> Result<(), &'static str> {
    match secret {
        Secret::None => Ok(()),
        Secret::Key(key) => {
            let key = key.expose_secret().trim();
            let (name, text) = match profile.auth_header {
                AuthHeader::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
                AuthHeader::XApiKey => (HeaderName::from_static("x-api-key"), key.to_owned()),
                AuthHeader::XGoogApiKey => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
            };
            let mut value = HeaderValue::from_str(&text)
                .map_err(|_| "the API key holds a character that no key has; copy it once more")?;
            value.set_sensitive(true);
            headers.insert(name, value);
            Ok(())
        }
        Secret::Aws { .. } => Err("this provider takes a key and no AWS credentials"),
    }
}
