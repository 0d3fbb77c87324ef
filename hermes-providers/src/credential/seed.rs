//! Keys from variables: `NAME`, `NAME_2`, `NAME_3` and so on, each a row of its own (provider reference, 5.7).

use secrecy::SecretString;

use crate::credential::Fingerprint;

/// Most variables of one name that are looked at.
const NUMBERED_MAX: usize = 32;

/// A key that a variable holds.
#[derive(Debug, Clone)]
pub struct SeededKey {
    /// The variable.
    pub variable: String,
    /// The key.
    pub key: SecretString,
}

impl SeededKey {
    /// The row's id and source.
    #[must_use]
    pub fn source(&self) -> String {
        format!("env:{}", self.variable)
    }
}

/// The keys of these variables in their order. `lookup` gives nothing for a variable that is not set or holds the place of
/// a key only; the numbers end at the first such one. A key that stands in two variables is one row.
pub fn seed<'a>(
    variables: impl IntoIterator<Item = &'a str>,
    lookup: impl Fn(&str) -> Option<SecretString>,
) -> Vec<SeededKey> {
    let mut found: Vec<(Fingerprint, SeededKey)> = Vec::new();
    for name in variables {
        let numbered = (2..=NUMBERED_MAX).map(|number| format!("{name}_{number}"));
        let mut first = true;
        for variable in std::iter::once(name.to_owned()).chain(numbered) {
            let key = lookup(&variable);
            // `NAME_2` counts also where `NAME` itself is not set.
            if key.is_none() && !std::mem::take(&mut first) {
                break;
            }
            first = false;
            let Some(key) = key else { continue };
            let fingerprint = Fingerprint::of(&key);
            if found.iter().all(|(known, _)| *known != fingerprint) {
                found.push((fingerprint, SeededKey { variable, key }));
            }
        }
    }
    found.into_iter().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b48_numbered_variables_are_rows_until_the_first_gap_and_a_key_is_one_row() {
        let set = [("A", "k1"), ("A_2", "k2"), ("A_3", "k1"), ("A_5", "no"), ("B_2", "k3"), ("C", "k2")];
        let lookup = |name: &str| Some(SecretString::from(set.iter().find(|(known, _)| *known == name)?.1));
        let found: Vec<String> = seed(["A", "B", "C", "D"], lookup).iter().map(SeededKey::source).collect();
        assert_eq!(found, ["env:A", "env:A_2", "env:B_2"]);
    }
}
