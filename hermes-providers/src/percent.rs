//! Percent-encoding of one piece of an address.

/// Every byte but letters, digits and `-._~` becomes `%XX`, in upper case: RFC 3986, and what AWS signs.
pub(crate) fn encode_into(text: &str, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// The same as a text of its own.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    encode_into(text, &mut out);
    out
}

/// The bytes behind `%XX`; what is no such thing stays as it is. Bytes that are no UTF-8 are replaced.
#[cfg(feature = "http")]
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = text
            .get(at + 1..at + 3)
            .filter(|pair| *byte == b'%' && pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_is_encoded() {
        assert_eq!(encode("aZ09-._~"), "aZ09-._~");
        assert_eq!(encode("a:b/c d%ü"), "a%3Ab%2Fc%20d%25%C3%BC");
    }

    #[test]
    #[cfg(feature = "http")]
    fn decoding_undoes_encoding_and_leaves_the_rest_alone() {
        for text in ["a:b/c d%ü", "", "100%", "%"] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(decode("%zz%4%41%+1"), "%zz%4A%+1");
    }
}
