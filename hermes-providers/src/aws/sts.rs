//! `AssumeRoleWithWebIdentity`: a token of another issuer becomes temporary keys.
//!
//! Checked against `STS/latest/APIReference/API_AssumeRoleWithWebIdentity` on docs.aws.amazon.com. The request is not
//! signed: the token is what lets it in. Nothing is repeated here.

use std::time::{Duration, SystemTime};

use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};

use crate::aws::sources::WebIdentity;
use crate::aws::{domain, time};
use crate::classify::redact;
use crate::error::{ErrorClass, ProviderError};
use crate::http::{Exchange, Transport, exchange};
use crate::percent;

/// For the whole exchange.
const EXCHANGE_TIMEOUT_MS: u64 = 30_000;
/// Largest token; the API takes 20,000 characters.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;
/// How the form is written.
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// The API's version.
const VERSION: &str = "2011-06-15";
/// What a session is called when nobody named it.
const SESSION_NAME: &str = "hermes";

/// Temporary keys.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: SecretString,
    pub(super) session_token: SecretString,
    pub(super) ends: SystemTime,
}

/// Exchanges the token of the file.
pub(super) async fn assume_role(
    identity: &WebIdentity,
    region: &str,
    url: Option<&str>,
    transport: &Transport,
) -> Result<Session, ProviderError> {
    let token = super::chain::text_of(&identity.token_file, MAX_TOKEN_BYTES).await?.ok_or_else(|| {
        failed(ErrorClass::Configuration, &format!("the token file {} is not there", identity.token_file.display()))
    })?;
    let token = SecretString::from(token.trim().to_owned());
    let url = url.map_or_else(|| format!("https://sts.{region}.{}/", domain(region)), str::to_owned);
    let name = identity.session_name.as_deref().unwrap_or(SESSION_NAME);
    let form = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", VERSION),
        ("RoleArn", &identity.role_arn),
        ("RoleSessionName", name),
        ("WebIdentityToken", token.expose_secret()),
    ];
    let form: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", percent::encode(value))).collect();
    let ask = Exchange {
        method: Method::POST,
        url: &url,
        headers: vec![("content-type", FORM.to_owned())],
        body: form.join("&").into_bytes(),
        limit: Duration::from_millis(EXCHANGE_TIMEOUT_MS),
    };
    let (status, body) = exchange(transport, ask).await.map_err(|lost| {
        failed(ErrorClass::Timeout, &format!("the web identity cannot be exchanged ({}); try again", lost.why))
    })?;
    let text = String::from_utf8_lossy(&body);
    if !(200..300).contains(&status) {
        return Err(refused(status, &text, &token));
    }
    session(&text).ok_or_else(|| failed(ErrorClass::BadResponse, "the answer to the web identity holds no keys"))
}

fn refused(status: u16, body: &str, token: &SecretString) -> ProviderError {
    let code = element(body, "Code").unwrap_or_default();
    let class = match (status, code.as_str()) {
        (_, "IDPCommunicationError") | (500.., _) => ErrorClass::ServerError,
        (429, _) | (_, "Throttling" | "ThrottlingException") => ErrorClass::RateLimit,
        _ => ErrorClass::Auth,
    };
    let said = element(body, "Message").unwrap_or_else(|| body.trim().to_owned());
    let what = format!("AWS refuses the web identity (HTTP {status} {code}): {said}");
    let mut error = failed(class, &redact(&what, &[token.expose_secret()]));
    error.status = Some(status);
    error.code = Some(code).filter(|code| !code.is_empty());
    error
}

fn session(body: &str) -> Option<Session> {
    let text = |name: &str| element(body, name).filter(|text| !text.is_empty());
    Some(Session {
        access_key_id: text("AccessKeyId")?,
        secret_access_key: text("SecretAccessKey")?.into(),
        session_token: text("SessionToken")?.into(),
        ends: time::parse(&text("Expiration")?)?,
    })
}

/// The text of the first element of this name. Enough for an answer whose elements have their own names, no attributes
/// and nothing but text in them.
fn element(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#xA;", "\n"), ("&amp;", "&")];
    Some(plain.into_iter().fold(text.trim().to_owned(), |text, (written, meant)| text.replace(written, meant)))
}

fn failed(class: ErrorClass, what: &str) -> ProviderError {
    ProviderError::new(class, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_an_error_has_its_class() {
        let body = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
            <SessionToken>tok&amp;en==</SessionToken>\n <SecretAccessKey>s/e+c</SecretAccessKey>\
            <Expiration>2030-01-02T03:04:05Z</Expiration><AccessKeyId>ASIA1</AccessKeyId></Credentials></X>";
        let read = session(body).unwrap();
        assert_eq!((read.access_key_id.as_str(), read.session_token.expose_secret()), ("ASIA1", "tok&en=="));
        assert_eq!(read.secret_access_key.expose_secret(), "s/e+c");
        assert!(session("<Credentials></Credentials>").is_none());

        let error = "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code>\
            <Message>Token tok-123456 expired</Message></Error></ErrorResponse>";
        let error = refused(400, error, &"tok-123456".to_owned().into());
        assert_eq!((error.class, error.code.as_deref()), (ErrorClass::Auth, Some("ExpiredTokenException")));
        assert!(error.message.contains("expired") && !error.message.contains("tok-123456"), "{error}");
        let class = |status, body| refused(status, body, &"x".repeat(20).into()).class;
        assert_eq!(class(503, "busy"), ErrorClass::ServerError);
        assert_eq!(class(400, "<Code>IDPCommunicationError</Code>"), ErrorClass::ServerError);
        assert_eq!(class(429, ""), ErrorClass::RateLimit);
    }
}
