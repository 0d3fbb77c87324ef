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

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn what_is_not_plain_is_encoded() {
        assert_eq!(encode("aZ09-._~"), "aZ09-._~");
        assert_eq!(encode("a:b/c d%ü"), "a%3Ab%2Fc%20d%25%C3%BC");
    }
}
