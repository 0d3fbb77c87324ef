//! Paths as a person types them: commands that an error or a report names can be copied as they are.

use std::path::Path;

/// A path as one word of a shell: within quotes where it needs some.
pub(crate) fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        for (path, want) in
            [("/a/b.db", "/a/b.db"), ("/a b", "'/a b'"), ("it's", r"'it'\''s'"), ("-x", "'-x'"), ("", "''")]
        {
            assert_eq!(word(Path::new(path)), want);
        }
    }
}
