//! AWS Signature Version 4 in headers.
//!
//! Checked against `IAM/latest/UserGuide/reference_sigv-create-signed-request` on docs.aws.amazon.com and the test vectors
//! that AWS publishes with its libraries (`aws-signing-test-suite/v4`).

use std::fmt::Write as _;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::aws::time::stamp;
use crate::percent;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const END: &str = "aws4_request";
/// Bytes that SHA-256 takes in one step.
const BLOCK_BYTES: usize = 64;

/// What signs.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) access_key_id: &'a str,
    pub(crate) secret_access_key: &'a str,
    pub(crate) session_token: Option<&'a str>,
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// As it goes over the wire: encoded once.
    pub(crate) path: &'a str,
    /// As it goes over the wire, without its question mark.
    pub(crate) query: &'a str,
    /// The headers that the signature covers, `host` among them; names in lower case.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

/// The headers that let the request in: `x-amz-date`, `x-amz-security-token` for temporary keys, `authorization`.
pub(crate) fn sign(request: Request<'_>, keys: Keys<'_>, now: SystemTime) -> Vec<(&'static str, String)> {
    let stamp = stamp(now);
    let mut headers: Vec<(&str, String)> =
        request.headers.iter().map(|(name, value)| (*name, plain_value(value))).collect();
    headers.push(("x-amz-date", stamp.clone()));
    headers.extend(keys.session_token.map(|token| ("x-amz-security-token", token.to_owned())));
    let (canonical, names) = canonical(request, &mut headers);
    let date = stamp.get(..8).unwrap_or_default();
    let scope = format!("{date}/{}/{}/{END}", keys.region, keys.service);
    let text = format!("{ALGORITHM}\n{stamp}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
    let first = format!("AWS4{}", keys.secret_access_key);
    let mut key = hmac(first.as_bytes(), date.as_bytes());
    for part in [keys.region, keys.service, END] {
        key = hmac(&key, part.as_bytes());
    }
    let signature = hex(&hmac(&key, text.as_bytes()));
    let id = keys.access_key_id;
    let authorization = format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
    let mut out = vec![("x-amz-date", stamp)];
    out.extend(keys.session_token.map(|token| ("x-amz-security-token", token.to_owned())));
    out.push(("authorization", authorization));
    out
}

/// The canonical request, and the names of its headers.
fn canonical(request: Request<'_>, headers: &mut [(&str, String)]) -> (String, String) {
    // Stable: values of one name keep their order.
    headers.sort_by_key(|(name, _)| *name);
    let mut lines = String::new();
    let mut names = String::new();
    for group in headers.chunk_by(|(one, _), (other, _)| one == other) {
        let Some((name, _)) = group.first() else { continue };
        let values: Vec<&str> = group.iter().map(|(_, value)| value.as_str()).collect();
        // Writing into a text cannot fail.
        let _ = writeln!(lines, "{name}:{}", values.join(","));
        if !names.is_empty() {
            names.push(';');
        }
        names.push_str(name);
    }
    let path = canonical_path(request.path);
    let query = canonical_query(request.query);
    let body = hex(&Sha256::digest(request.body));
    (format!("{}\n{path}\n{query}\n{lines}\n{names}\n{body}", request.method), names)
}

/// The path with its dots and double slashes taken out, each piece encoded once more: what is encoded on the wire is
/// encoded twice here.
fn canonical_path(path: &str) -> String {
    let mut pieces: Vec<&str> = Vec::new();
    for piece in path.split('/') {
        match piece {
            "" | "." => {}
            ".." => drop(pieces.pop()),
            piece => pieces.push(piece),
        }
    }
    let mut out = String::with_capacity(path.len() + 16);
    for piece in &pieces {
        out.push('/');
        percent::encode_into(piece, &mut out);
    }
    if pieces.is_empty() || path.ends_with('/') {
        out.push('/');
    }
    out
}

/// The members of the query, each in its one spelling, in order of their bytes.
fn canonical_query(query: &str) -> String {
    let spelled = |text: &str| percent::encode(&percent::decode(text));
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (spelled(name), spelled(value)))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// A header's value without blanks around it, and with one for several.
fn plain_value(value: &str) -> String {
    let words: Vec<&str> = value.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// HMAC-SHA-256 (RFC 2104).
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; BLOCK_BYTES];
    if key.len() > BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing into a text cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const HOST: (&str, &str) = ("host", "example.amazonaws.com");
    const FORM: &str = "Param1=value1";
    const FORM_HASH: (&str, &str) =
        ("x-amz-content-sha256", "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e");

    fn signature(method: &str, address: &str, more: &[(&str, &str)], body: &str, token: Option<&str>) -> String {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let headers = [&[HOST], more].concat();
        let request = Request { method, path, query, headers: &headers, body: body.as_bytes() };
        let keys = Keys {
            access_key_id: "AKIDEXAMPLE",
            secret_access_key: SECRET,
            session_token: token,
            region: "us-east-1",
            service: "service",
        };
        let mut signed = sign(request, keys, UNIX_EPOCH + Duration::from_secs(1_440_938_160));
        assert_eq!(signed[0], ("x-amz-date", "20150830T123600Z".to_owned()));
        let (name, value) = signed.pop().unwrap();
        assert_eq!(name, "authorization");
        let start = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=";
        assert!(value.starts_with(start), "{value}");
        value.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn sigv4_the_test_vectors_of_aws_give_their_signatures() {
        let get = |address: &str, more: &[(&str, &str)]| signature("GET", address, more, "", None);
        let vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        for (address, expect) in [
            ("/", vanilla),
            ("/example1/example2/../..", vanilla),
            ("/./", vanilla),
            ("/./example", "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"),
            ("//example//", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"),
            ("/ሴ", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
            ("/example space/", "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
            ("/?Param1=value1", "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
            ("/?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
            ("/?ሴ=bar", "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
            (
                "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
                "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
            ),
        ] {
            assert_eq!(get(address, &[]), expect, "{address}");
        }
        let twice = [("my-header1", "value2"), ("my-header1", "value2"), ("my-header1", "value1")];
        assert_eq!(get("/", &twice), "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea");
        let blanks = [("my-header1", " value1"), ("my-header2", " \"a   b   c\"")];
        assert_eq!(get("/", &blanks), "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
    }

    #[test]
    fn sigv4_bodies_and_session_tokens_are_signed_as_in_the_vectors() {
        let post = |more: &[(&str, &str)], body: &str| signature("POST", "/", more, body, None);
        assert_eq!(post(&[], ""), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
        let form = [("content-type", "application/x-www-form-urlencoded"), ("content-length", "13"), FORM_HASH];
        assert_eq!(post(&form, FORM), "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b");
        let charset = "application/x-www-form-urlencoded; charset=utf-8";
        let form = [("content-type", charset), ("content-length", "13"), FORM_HASH];
        assert_eq!(post(&form, FORM), "328d1b9eaadca9f5818ef05e8392801e091653bafec24fcab71e7344e7f51422");
        let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
        let expect = "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8";
        assert_eq!(signature("GET", "/", &[], "", Some(token)), expect);
    }

    #[test]
    fn what_is_encoded_on_the_wire_is_encoded_twice_in_the_signature() {
        let path = "/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse-stream";
        assert_eq!(canonical_path(path), "/model/anthropic.claude-3-haiku-20240307-v1%253A0/converse-stream");
        assert_eq!(canonical_path("/model/arn%3Aa%2Fb/converse"), "/model/arn%253Aa%252Fb/converse");
    }

    #[test]
    fn hmac_gives_the_values_of_rfc_4231() {
        let short = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
}
