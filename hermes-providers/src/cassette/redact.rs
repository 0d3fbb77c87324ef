//! What must not get into a file.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};

use crate::cassette::file::{Answered, Asked, Exchange, Piece, Tape};

/// Stands for a secret.
const REDACTED: &str = "[redacted]";
/// Shorter texts are no secrets: replacing them would make nonsense of everything.
const MIN_SECRET_BYTES: usize = 6;
/// Request headers that are kept; none of them lets anybody in.
const KEPT_OF_REQUEST: &[&str] = &["accept", "anthropic-beta", "anthropic-version", "content-type", "user-agent"];
/// Headers of answers that are kept, by how they begin.
const KEPT_OF_ANSWER: &[&str] =
    &["content-type", "retry-after", "etag", "location", "x-ratelimit-", "anthropic-ratelimit-", "x-amzn-errortype"];
/// Headers whose values let somebody in.
const CREDENTIALS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-amz-security-token",
    "cookie",
];
/// Parts of a query that do.
const CREDENTIALS_OF_QUERY: &[&str] = &["key", "api_key", "api-key", "access_token", "token", "sig", "signature"];

/// Secrets that are known so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Redactor {
    secrets: Vec<SecretString>,
}

impl Redactor {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        let mut all = Self::default();
        all.add_all(secrets);
        all
    }

    pub(super) fn add_all(&mut self, secrets: &[SecretString]) {
        secrets.iter().for_each(|secret| self.add(secret.expose_secret()));
    }

    fn add(&mut self, secret: &str) {
        let secret = secret.trim();
        if secret.len() >= MIN_SECRET_BYTES && !self.secrets.iter().any(|known| known.expose_secret() == secret) {
            self.secrets.push(SecretString::from(secret.to_owned()));
            // The longest first: one may be a part of another.
            self.secrets.sort_by_key(|known| std::cmp::Reverse(known.expose_secret().len()));
        }
    }

    /// Learns the credentials of a request, and gives back which of its headers may be kept.
    pub(super) fn learn(&mut self, headers: &[(String, String)], target: &str) -> BTreeMap<String, String> {
        for (_, value) in headers.iter().filter(|(name, _)| CREDENTIALS.contains(&name.as_str())) {
            self.add(value);
            // `Bearer KEY`: the key alone may show too.
            value.split_whitespace().skip(1).for_each(|part| self.add(part));
        }
        for (name, value) in query(target) {
            if CREDENTIALS_OF_QUERY.contains(&name.to_lowercase().as_str()) {
                self.add(value);
            }
        }
        let kept = headers.iter().filter(|(name, _)| KEPT_OF_REQUEST.contains(&name.as_str()));
        kept.cloned().collect()
    }

    pub(super) fn keeps_of_answer(name: &str) -> bool {
        KEPT_OF_ANSWER.iter().any(|begin| name.starts_with(begin))
    }

    /// The tape without anything that is known to be secret.
    pub(super) fn clean(&self, tape: &Tape) -> Tape {
        let mut tape = tape.clone();
        for Exchange { request, response } in &mut tape.exchanges {
            self.clean_request(request);
            self.clean_answer(response);
        }
        tape
    }

    pub(super) fn clean_request(&self, request: &mut Asked) {
        request.target = self.text(&request.target);
        request.headers.values_mut().for_each(|value| *value = self.text(value));
        request.body = self.piece(&request.body);
    }

    /// A secret that was cut between two pieces is found in the whole, which then stays in one piece.
    fn clean_answer(&self, answer: &mut Answered) {
        answer.headers.values_mut().for_each(|value| *value = self.text(value));
        let pieces: Vec<Piece> = answer.pieces.iter().map(|piece| self.piece(piece)).collect();
        let whole: Vec<u8> = pieces.iter().filter_map(Piece::bytes).flatten().collect();
        answer.pieces = if self.is_in(&whole) { vec![Piece::of(&self.bytes(&whole))] } else { pieces };
    }

    fn piece(&self, piece: &Piece) -> Piece {
        let bytes = piece.bytes().unwrap_or_default();
        if self.is_in(&bytes) { Piece::of(&self.bytes(&bytes)) } else { piece.clone() }
    }

    fn text(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.expose_secret(), REDACTED))
    }

    fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for secret in &self.secrets {
            let secret = secret.expose_secret().as_bytes();
            while let Some(at) = bytes.windows(secret.len()).position(|part| part == secret) {
                bytes.splice(at..at + secret.len(), REDACTED.bytes());
            }
        }
        bytes
    }

    /// True when a secret is in these bytes.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        self.secrets.iter().any(|secret| {
            let secret = secret.expose_secret().as_bytes();
            bytes.windows(secret.len()).any(|part| part == secret)
        })
    }
}

/// Names and values of a query, as they are written.
fn query(target: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter_map(|part| part.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(body: &str, pieces: &[&str]) -> Exchange {
        let text = |text: &str| Piece::Text(text.to_owned());
        Exchange {
            request: Asked {
                method: "POST".into(),
                target: "/v1/x?key=url-secret-1&a=b".into(),
                headers: BTreeMap::new(),
                body: text(body),
            },
            response: Answered {
                status: 200,
                headers: BTreeMap::from([("location".to_owned(), "http://h/?k=sk-secret-1".to_owned())]),
                pieces: pieces.iter().map(|piece| text(piece)).collect(),
            },
        }
    }

    #[test]
    fn credentials_are_replaced_wherever_they_show() {
        let mut redactor = Redactor::new(&[SecretString::from("account-77".to_owned())]);
        let headers = [
            ("authorization".to_owned(), "Bearer sk-secret-1".to_owned()),
            ("accept".to_owned(), "application/json".to_owned()),
            ("x-other".to_owned(), "1".to_owned()),
        ];
        let kept = redactor.learn(&headers, "/v1/x?key=url-secret-1&a=b");
        assert_eq!(kept, BTreeMap::from([("accept".to_owned(), "application/json".to_owned())]));
        let mut tape = Tape::new("/v1".into());
        tape.exchanges.push(exchange("my key is sk-secret-1", &["you are acco", "unt-77 with sk-", "secret-1 ", "ok"]));
        tape.exchanges.push(exchange("plain", &["one", "two"]));
        let clean = redactor.clean(&tape);
        let text = serde_json::to_string(&clean).unwrap();
        for secret in ["sk-secret-1", "url-secret-1", "account-77", "acco"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert_eq!(clean.exchanges[0].request.target, "/v1/x?key=[redacted]&a=b");
        assert_eq!(clean.exchanges[0].response.pieces, [Piece::Text("you are [redacted] with [redacted] ok".into())]);
        assert_eq!(clean.exchanges[1].response.pieces.len(), 2, "what holds no secret stays as it was cut");
        assert!(!redactor.is_in(text.as_bytes()));
    }

    #[test]
    fn short_texts_are_no_secrets() {
        let redactor = Redactor::new(&[SecretString::from("a".to_owned()), SecretString::from("  ".to_owned())]);
        assert_eq!(redactor.text("banana"), "banana");
    }
}
