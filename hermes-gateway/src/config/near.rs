//! Which names look like a mistyped one.

/// Names further away than this are not offered.
const NEAR_MAX_EDITS: usize = 2;
/// At most so many names are offered.
const NEAR_MAX_NAMES: usize = 3;

/// The names that are at most two edits from `name` or begin with it, nearest first.
pub(super) fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let name = name.to_lowercase();
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|known| {
            let edits = distance(&name, known);
            let begins = name.len() >= 3 && (known.starts_with(&name) || name.starts_with(known));
            // In a short name two edits make any other short name.
            let limit = NEAR_MAX_EDITS.min(name.chars().count() / 2);
            (edits <= limit || begins).then_some((edits, known))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(NEAR_MAX_NAMES).map(|(_, known)| known.to_owned()).collect()
}

/// Whether a name is so near to another one that it must be a slip of the hand.
pub(super) fn is_slip(name: &str, known: &str) -> bool {
    (1..=NEAR_MAX_EDITS.min(known.chars().count() / 2)).contains(&distance(name, known))
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let changed = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["openai", "openrouter", "groq"];
        assert_eq!(near("opanai", known), ["openai"]);
        assert_eq!(near("OpenRoute", known), ["openrouter"]);
        assert!(near("mistral", known).is_empty());
        assert!(is_slip("defualt", "default") && !is_slip("default", "default") && !is_slip("defaults_x", "default"));
    }
}
