//! Names and ids that the wire accepts, and the way back (case W3).
//!
//! Legal names go through unchanged. An illegal one is cleaned, shortened and gets a hash of the real name, so its wire
//! name depends on nothing but itself: it is the same in every request, whatever other tools there are.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::chat::ToolSchema;
use crate::profile::ToolIds;

/// Longest tool name (OpenAI's rule, the strictest of the common ones).
pub const MAX_TOOL_NAME_BYTES: usize = 64;
/// Longest id of a call at OpenAI.
const MAX_CALL_ID_BYTES: usize = 40;
/// Length of the ids that Mistral accepts.
const ALNUM_ID_BYTES: usize = 9;
/// `_` and 16 hexadecimal digits.
const HASH_SUFFIX_BYTES: usize = 17;
const _: () = assert!(HASH_SUFFIX_BYTES < MAX_CALL_ID_BYTES && MAX_CALL_ID_BYTES < MAX_TOOL_NAME_BYTES);

/// Both ways between real names and wire names of one request.
#[derive(Debug, Clone, Default)]
pub struct NameMap {
    to_wire: HashMap<String, String>,
    to_real: HashMap<String, String>,
}

impl NameMap {
    /// The map for these tools; only names that differ are stored.
    #[must_use]
    pub fn new(tools: &[ToolSchema]) -> Self {
        let mut map = Self::default();
        for tool in tools {
            let mut wire = wire_name(&tool.name);
            if matches!(wire, Cow::Borrowed(_)) {
                continue;
            }
            // A hash that meets another tool's name is next to impossible; still, two tools never share one.
            let mut salt = tool.name.clone();
            while tools.iter().any(|other| other.name == *wire)
                || map.to_real.get(&*wire).is_some_and(|real| *real != tool.name)
            {
                salt.push('\'');
                wire = Cow::Owned(hashed_name(&tool.name, &salt));
            }
            map.to_real.insert(wire.clone().into_owned(), tool.name.clone());
            map.to_wire.insert(tool.name.clone(), wire.into_owned());
        }
        map
    }

    /// The wire name of a tool, also of one that is no longer offered.
    #[must_use]
    pub fn wire<'a>(&'a self, real: &'a str) -> Cow<'a, str> {
        self.to_wire.get(real).map_or_else(|| wire_name(real), |wire| Cow::Borrowed(wire.as_str()))
    }

    /// The real name behind a wire name; a name that nobody mapped is real already.
    #[must_use]
    pub fn real<'a>(&'a self, wire: &'a str) -> &'a str {
        self.to_real.get(wire).map_or(wire, String::as_str)
    }
}

fn is_legal(name: &str) -> bool {
    name.len() <= MAX_TOOL_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn wire_name(real: &str) -> Cow<'_, str> {
    if is_legal(real) { Cow::Borrowed(real) } else { Cow::Owned(hashed_name(real, real)) }
}

fn hashed_name(real: &str, salt: &str) -> String {
    let mut name = String::with_capacity(MAX_TOOL_NAME_BYTES);
    for c in real.chars().take(MAX_TOOL_NAME_BYTES) {
        if name.is_empty() && !(c.is_ascii_alphabetic() || c == '_') {
            name.push('t');
        }
        name.push(if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' });
    }
    if name.is_empty() {
        name.push('t');
    }
    name.truncate(MAX_TOOL_NAME_BYTES - HASH_SUFFIX_BYTES);
    format!("{name}_{:016x}", hash(salt))
}

/// The id of a call as this provider accepts it. The call and its result get the same one.
pub(crate) fn wire_id(id: &str, rule: ToolIds) -> Cow<'_, str> {
    match rule {
        ToolIds::Max40 if id.len() > MAX_CALL_ID_BYTES => {
            let mut cut = MAX_CALL_ID_BYTES - HASH_SUFFIX_BYTES;
            while !id.is_char_boundary(cut) {
                cut -= 1;
            }
            Cow::Owned(format!("{}_{:016x}", &id[..cut], hash(id)))
        }
        ToolIds::Alnum9 if id.len() != ALNUM_ID_BYTES || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
            let mut rest = hash(id);
            let mut out = String::with_capacity(ALNUM_ID_BYTES);
            for _ in 0..ALNUM_ID_BYTES {
                out.push(char::from(DIGITS[(rest % 62) as usize]));
                rest /= 62;
            }
            Cow::Owned(out)
        }
        _ => Cow::Borrowed(id),
    }
}

/// FNV-1a with 64 bits, its upper half mixed down: stable over versions and platforms, which std's hashers do not promise.
fn hash(text: &str) -> u64 {
    let mut hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(names: &[&str]) -> Vec<ToolSchema> {
        names
            .iter()
            .map(|name| ToolSchema {
                name: (*name).to_owned(),
                description: String::new(),
                parameters: serde_json::json!({"type": "object"}),
            })
            .collect()
    }

    #[test]
    fn w3_illegal_names_get_stable_unique_legal_ones_and_come_back() {
        let long = "mcp_server_with_a_very_long_name_".repeat(4);
        let names = ["9lives.get", &long, "a b", "a.b", "a_b", "", "ünï", "read_file", "-x", &format!("{long}2")];
        let list = tools(&names);
        let map = NameMap::new(&list);
        let mut seen = std::collections::HashSet::new();
        for name in names {
            let wire = map.wire(name).into_owned();
            assert!(is_legal(&wire), "{name:?} -> {wire:?}");
            assert!(seen.insert(wire.clone()), "{wire} is used twice");
            assert_eq!(map.real(&wire), name);
            assert_eq!(NameMap::default().wire(name), wire, "depends on the name alone");
        }
        assert_eq!(map.wire("read_file"), "read_file");
        assert_eq!(map.wire("a_b"), "a_b");
    }

    #[test]
    fn w3_the_wire_name_does_not_change_between_versions() {
        assert_eq!(NameMap::default().wire("a b"), "a_b_4bdfa812c01bd4e3");
        let taken = NameMap::default().wire("a b").into_owned();
        let list = tools(&["a b", &taken]);
        let map = NameMap::new(&list);
        assert_ne!(map.wire("a b"), map.wire(&taken));
        assert_eq!(map.real(&map.wire("a b")), "a b");
    }

    #[test]
    fn ids_follow_the_rule_of_the_provider() {
        assert_eq!(wire_id("call_1", ToolIds::Any), "call_1");
        assert_eq!(wire_id("call_1", ToolIds::Max40), "call_1");
        let long = "x".repeat(64);
        assert_eq!(wire_id(&long, ToolIds::Max40).len(), 40);
        assert_eq!(wire_id("abcDEF123", ToolIds::Alnum9), "abcDEF123");
        let nine = wire_id("call_1", ToolIds::Alnum9).into_owned();
        assert!(nine.len() == 9 && nine.bytes().all(|b| b.is_ascii_alphanumeric()), "{nine}");
        assert_ne!(nine, wire_id("call_2", ToolIds::Alnum9));
    }
}
