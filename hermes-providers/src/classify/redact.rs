//! Takes everything that looks like a key out of a text and cuts it (I24).

use super::body::cut;

/// Longest text of a provider that an error carries.
pub const MAX_MESSAGE_BYTES: usize = 2048;
/// What stands where a key was.
const MASK: &str = "[redacted]";
/// Beginnings of keys, as their issuers chose them.
const PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "pk-",
    "pk_",
    "rk-",
    "rk_",
    "gsk_",
    "xai-",
    "hf_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "AIza",
    "ya29.",
    "nvapi-",
    "pplx-",
    "tgp_",
    "fw_",
    "AKIA",
    "ASIA",
    "eyJ",
    "xoxb-",
    "xoxp-",
    "glpat-",
    "AKID",
    "key-",
];
/// Fewest characters after a prefix that make a key.
const MIN_AFTER_PREFIX: usize = 6;
/// A word of letters and digits mixed without any sign in between is a key from this length on.
const MIN_BARE_KEY: usize = 32;
/// A secret of fewer bytes would also hit plain words.
const MIN_SECRET_BYTES: usize = 4;

/// `text` without keys, at most [`MAX_MESSAGE_BYTES`] bytes. `secrets` are taken out literally, whatever they look like.
#[must_use]
pub fn redact(text: &str, secrets: &[&str]) -> String {
    // The cut comes after the mask, else half a key could stay; the generous first cut bounds the work.
    let mut text = cut(text, MAX_MESSAGE_BYTES * 8).to_owned();
    for secret in secrets.iter().map(|secret| secret.trim()).filter(|secret| secret.len() >= MIN_SECRET_BYTES) {
        text = text.replace(secret, MASK);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut masks_next = false;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_key_char(c)).unwrap_or(rest.len());
        if end == 0 {
            let c = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..c]);
            rest = &rest[c..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        if looks_like_key(word) || (masks_next && word.len() >= MIN_AFTER_PREFIX && !is_scheme(word)) {
            out.push_str(MASK);
            masks_next = false;
        } else {
            out.push_str(word);
            masks_next = names_a_key(word) || (masks_next && is_scheme(word));
        }
        rest = after;
    }
    let short = cut(&out, MAX_MESSAGE_BYTES);
    if short.len() < out.len() { format!("{}…", cut(short, MAX_MESSAGE_BYTES - 3)) } else { out }
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*' | '+' | '~')
}

fn looks_like_key(word: &str) -> bool {
    let prefixed = PREFIXES.iter().any(|prefix| {
        word.strip_prefix(prefix).is_some_and(|rest| {
            rest.len() >= MIN_AFTER_PREFIX && (rest.bytes().any(|b| b.is_ascii_digit() || b == b'*') || rest.len() > 20)
        })
    });
    prefixed || word.split(['-', '.']).any(is_bare_key)
}

fn is_bare_key(part: &str) -> bool {
    part.len() >= MIN_BARE_KEY
        && part.bytes().any(|byte| byte.is_ascii_digit())
        && part.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// The word before a key: what comes next is masked.
fn names_a_key(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    matches!(
        word.as_str(),
        "bearer" | "authorization" | "api_key" | "apikey" | "x-api-key" | "api-key" | "x-goog-api-key"
    ) || word.ends_with("_api_key")
}

fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        assert_eq!(redact(text, &["my own secret"]), expect);
    }

    #[test]
    fn i24_keys_of_all_kinds_go() {
        check("Incorrect API key provided: sk-proj-a1b2c3d4e5f6. See", "Incorrect API key provided: [redacted] See");
        check("key sk-*****1234 is bad", "key [redacted] is bad");
        check("Authorization: Bearer abcdefgh", "Authorization: Bearer [redacted]");
        check(r#"{"api_key":"hunter2hunter2"}"#, r#"{"api_key":"[redacted]"}"#);
        check("it was my own secret!", "it was [redacted]!");
        check("token 0123456789abcdef0123456789abcdef end", "token [redacted] end");
        check("jwt eyJhbGciOi.J9.abc1 end", "jwt [redacted] end");
    }

    #[test]
    fn plain_text_stays() {
        for text in [
            "The model `Llama-4-Maverick-17B-128E-Instruct-FP8` does not exist",
            "meta-llama/Llama-3.3-70B-Instruct-Turbo",
            "maximum context length is 131,072 tokens",
            "risk-averse sk-learn",
            "Invalid API key provided",
            "ünï → 🦀",
            "request id 7f3c2a10-5a5b-4d6e-9f00-abcdefabcdef",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let short = redact(&"🦀".repeat(3000), &[]);
        assert!(short.len() <= MAX_MESSAGE_BYTES && short.ends_with('…'), "{}", short.len());
    }
}
