//! Where `database.url` is set, for messages about a server that does not answer.

use super::config::Config;
use super::settings::Source;

impl Config {
    /// ` (...)` for the end of a message: where the server's address is set, to what, and how to change it. Without its
    /// password.
    #[must_use]
    pub fn where_store_url(&self) -> String {
        let shown = self.store_url.as_ref().map(super::StoreUrl::shown).unwrap_or_default();
        let line = match self.get("database.url").map(|shown| shown.source) {
            Some(Source::File { line }) => format!(", line {line}"),
            _ => String::new(),
        };
        format!(
            " (the server is `database.url` in {}{line}: {shown}. Another one: `hermes config set database.url \
             postgres://USER@HOST:5432/DATABASE`; a file in the home instead: `hermes config unset database.url`. What the \
             URL leaves open comes from the variables PGPASSWORD, PGSSLMODE and their like, or from ~/.pgpass)",
            self.file.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn i24_the_key_its_line_and_the_command_are_named_and_the_password_is_not() {
        for section in ["database", "store"] {
            let text = format!("model: m\n{section}:\n  url: postgres://me:secret@db.example/hermes\n");
            let told = Config::parse(Path::new("/h/config.yaml"), &text).unwrap().where_store_url();
            for part in [
                "`database.url` in /h/config.yaml, line 3",
                "hermes config set database.url",
                "db.example",
                "PGPASSWORD",
            ] {
                assert!(told.contains(part), "{told}");
            }
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
