//! Puts a credential into the head of a request.

use std::time::SystemTime;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;

use crate::aws::{self, Keys, Request};
use crate::credential::Secret;
use crate::profile::{AuthHeader, Profile};

/// What a signature covers beside headers.
#[derive(Clone, Copy)]
pub(super) struct Covered<'a> {
    pub(super) method: &'static str,
    pub(super) url: &'a Url,
    pub(super) body: &'a [u8],
    /// The time by the server's clock.
    pub(super) now: SystemTime,
}

impl<'a> Covered<'a> {
    /// A request without a body, signed by our own clock.
    pub(super) fn get(url: &'a Url) -> Self {
        Self { method: "GET", url, body: &[], now: SystemTime::now() }
    }
}

/// Adds what lets the request in. `headers` is all that goes out beside it.
///
/// # Errors
/// What is wrong with the credential, as the end of a sentence.
pub(super) fn authorize(
    profile: &Profile,
    secret: &Secret,
    headers: &mut HeaderMap,
    covered: Covered<'_>,
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
        Secret::Aws { access_key_id, secret_access_key, session_token, region } => {
            let Covered { method, url, body, now } = covered;
            let host = url.host_str().unwrap_or_default();
            let keys = Keys {
                access_key_id,
                secret_access_key: secret_access_key.expose_secret(),
                session_token: session_token.as_ref().map(ExposeSecret::expose_secret),
                // An address of AWS says itself where it is.
                region: aws::region_of(host).unwrap_or(region),
                service: aws::SERVICE,
            };
            let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
            let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let signed = [("content-type", kind), ("host", host.as_str())];
            let signed = if kind.is_empty() { &signed[1..] } else { &signed[..] };
            let (path, query) = (url.path(), url.query().unwrap_or_default());
            let request = Request { method, path, query, headers: signed, body };
            for (name, text) in aws::sign(request, keys, now) {
                let mut value = HeaderValue::from_str(&text)
                    .map_err(|_| "the AWS credentials hold a character that none has; copy them once more")?;
                value.set_sensitive(name != "x-amz-date");
                headers.insert(HeaderName::from_static(name), value);
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profiles;
    use std::time::{Duration, UNIX_EPOCH};

    fn secret(region: &str) -> Secret {
        Secret::Aws {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: Some("tok/en==".into()),
            region: region.into(),
        }
    }

    fn signed(url: &str, region: &str) -> String {
        let profile = Profiles::bundled().unwrap().get("bedrock").unwrap().clone();
        let url = Url::parse(url).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("accept", HeaderValue::from_static("text/plain"));
        let now = UNIX_EPOCH + Duration::from_secs(1_735_787_045);
        let covered = Covered { method: "POST", url: &url, body: br#"{"messages":[]}"#, now };
        authorize(&profile, &secret(region), &mut headers, covered).unwrap();
        assert!(headers["authorization"].is_sensitive() && headers["x-amz-security-token"].is_sensitive());
        assert_eq!(headers["x-amz-date"], "20250102T030405Z");
        headers["authorization"].to_str().unwrap().to_owned()
    }

    #[test]
    fn sigv4_a_request_is_signed_as_awss_own_library_signs_it() {
        // What botocore 1.44.8 makes of the same request.
        let expect = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20250102/eu-west-1/bedrock/aws4_request, \
            SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, \
            Signature=fafc0eee13794c42edfd09ff568ebb9526544da8c10ef15c26f393dc983a576c";
        let host = "https://bedrock-runtime.eu-west-1.amazonaws.com";
        let arn = "arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Aapplication-inference-profile%2Fabc";
        let url = format!("{host}/model/{arn}/converse-stream");
        assert_eq!(signed(&url, "eu-west-1"), expect);
        assert_eq!(signed(&url, "us-east-1"), expect, "the address says where it is");
        let elsewhere = signed("http://127.0.0.1:8080/model/x/converse", "ap-south-1");
        assert!(elsewhere.contains("/ap-south-1/bedrock/"), "{elsewhere}");
    }
}
