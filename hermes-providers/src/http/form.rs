//! One form to an endpoint that gives tokens. Never repeated by itself.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE};

use crate::http::client::{Clients, Network};

/// Largest answer that is read.
const ANSWER_MAX_BYTES: usize = 1024 * 1024;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct FormFailure {
    /// The request may have arrived.
    pub(crate) sent: bool,
    /// Without secrets.
    pub(crate) why: String,
}

/// Sends a form and gives the status and the body of the answer.
pub(crate) async fn post_form(
    url: &str,
    form: &[(&str, String)],
    limit: Duration,
) -> Result<(u16, Vec<u8>), FormFailure> {
    let not_sent = |why: String| FormFailure { sent: false, why };
    let url = Url::parse(url).map_err(|_| not_sent("the token endpoint is not an address".to_owned()))?;
    let secure = url.scheme() == "https";
    let clients = tokio::task::spawn_blocking(move || Clients::build(secure, &Network::default())).await;
    let clients = match clients {
        Ok(Ok(clients)) => clients,
        Ok(Err(error)) => return Err(not_sent(error.message)),
        Err(_) => return Err(not_sent("the HTTP client cannot be set up".to_owned())),
    };
    let host = url.host_str().unwrap_or_default().to_owned();
    let request = clients
        .pooled
        .post(url)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json")
        .timeout(limit)
        .body(encode(form));
    let failed = |error: &reqwest::Error| FormFailure {
        sent: !error.is_connect() && !error.is_builder(),
        why: format!("no answer of {host} could be read"),
    };
    let mut response = request.send().await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(bytes) = response
        .chunk()
        .await
        .map_err(|_| FormFailure { sent: true, why: format!("the answer of {host} broke off") })?
    {
        body.extend_from_slice(&bytes);
        if body.len() > ANSWER_MAX_BYTES {
            return Err(FormFailure { sent: true, why: format!("the answer of {host} is too large") });
        }
    }
    Ok((status, body))
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
}
