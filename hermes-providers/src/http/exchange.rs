//! One short exchange with an endpoint that gives tokens or keys. Never repeated by itself, never redirected, over a
//! connection of its own, and through the same proxy and with the same authorities as everything else.

use std::time::Duration;

use reqwest::{Method, Url};

use crate::http::model::is_near;
use crate::http::transport::Transport;

/// Largest answer that is read; real ones have a few kB.
const ANSWER_MAX_BYTES: usize = 1024 * 1024;
/// What a form is called.
const FORM: &str = "application/x-www-form-urlencoded";

/// What is asked.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// From the start to the last byte.
    pub(crate) limit: Duration,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct ExchangeFailure {
    /// The request may have arrived.
    pub(crate) sent: bool,
    /// Without secrets.
    pub(crate) why: String,
}

/// Asks, and gives status and body of the answer, whatever the status.
pub(crate) async fn exchange(transport: &Transport, ask: Exchange<'_>) -> Result<(u16, Vec<u8>), ExchangeFailure> {
    let not_sent = |why: String| ExchangeFailure { sent: false, why };
    let url = Url::parse(ask.url).map_err(|_| not_sent("the token endpoint is not an address".to_owned()))?;
    let host = url.host_str().unwrap_or_default().to_owned();
    // What goes there opens an account; within a network of one's own the user decides.
    if url.scheme() != "https" && !(url.scheme() == "http" && is_near(&url)) {
        return Err(not_sent(format!("tokens are asked for over https:// only, and {host} is not")));
    }
    let client = transport.token_client(&url).await.map_err(|error| not_sent(error.message))?;
    let mut request = client.request(ask.method, url).timeout(ask.limit).body(ask.body);
    for (name, value) in &ask.headers {
        request = request.header(*name, value);
    }
    let failed = |error: &reqwest::Error| ExchangeFailure {
        sent: !error.is_connect() && !error.is_builder(),
        why: format!("no answer of {host} could be read"),
    };
    let mut response = request.send().await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(bytes) = response
        .chunk()
        .await
        .map_err(|_| ExchangeFailure { sent: true, why: format!("the answer of {host} broke off") })?
    {
        body.extend_from_slice(&bytes);
        if body.len() > ANSWER_MAX_BYTES {
            return Err(ExchangeFailure { sent: true, why: format!("the answer of {host} is too large") });
        }
    }
    Ok((status, body))
}

/// Sends a form.
pub(crate) async fn post_form(
    transport: &Transport,
    url: &str,
    form: &[(&str, String)],
    limit: Duration,
) -> Result<(u16, Vec<u8>), ExchangeFailure> {
    let headers = vec![("content-type", FORM.to_owned()), ("accept", "application/json".to_owned())];
    let body = encode(form).into_bytes();
    exchange(transport, Exchange { method: Method::POST, url, headers, body, limit }).await
}

/// As `application/x-www-form-urlencoded` (WHATWG URL, 5.2).
fn encode(form: &[(&str, String)]) -> String {
    let mut out = String::new();
    for (name, value) in form {
        if !out.is_empty() {
            out.push('&');
        }
        percent(name, &mut out);
        out.push('=');
        percent(value, &mut out);
    }
    out
}

fn percent(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_encoded_as_the_standard_says() {
        assert_eq!(encode(&[("a b", "x&y=z".to_owned()), ("c", "ü/+".to_owned())]), "a+b=x%26y%3Dz&c=%C3%BC%2F%2B");
    }

    #[tokio::test]
    async fn i24_tokens_are_not_sent_in_the_clear_to_another_network() {
        for url in ["http://tokens.example/", "ftp://127.0.0.1/", "no address"] {
            let sent = post_form(&Transport::default(), url, &[], Duration::from_secs(1)).await;
            assert!(!sent.unwrap_err().sent, "{url}");
        }
    }
}
