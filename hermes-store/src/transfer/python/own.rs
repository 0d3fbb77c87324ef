//! A store of this program where one of the Python program was expected: what to do instead, word for word.

use std::path::Path;

use crate::error::StoreError;
use crate::shell;

/// The name of this program's store in a home.
const OWN_FILE: &str = "hermes.db";
/// A table that every version of this program's store has, and none of the Python program's.
pub(super) const OWN_TABLE: &str = "conversations";

/// The store of a home of this program that has none of the Python program's.
pub(super) fn in_home(home: &Path) -> Option<std::path::PathBuf> {
    let file = home.join(OWN_FILE);
    file.is_file().then_some(file)
}

/// Why it is not imported, and the commands that do what was wanted.
pub(super) fn refused(file: &Path) -> StoreError {
    let (instead, home) = match (file.file_name().is_some_and(|name| name == OWN_FILE), file.parent()) {
        (true, Some(home)) => {
            let home = shell::word(if home.as_os_str().is_empty() { Path::new(".") } else { home });
            (
                format!("`HERMES_HOME={home} hermes store backup copy.db`, `hermes store restore copy.db --yes`"),
                format!("`HERMES_HOME={home}"),
            )
        }
        // A backup: it must be a store before it can be asked for its conversations.
        _ => {
            let restore = format!("hermes store restore {} --yes`", shell::word(file));
            (format!("`{restore}"), format!("`HERMES_HOME=carried {restore}, `HERMES_HOME=carried"))
        }
    };
    StoreError::Invalid {
        detail: format!(
            "{} is a store of this program, not of the Python program, and is not imported. To carry its conversations \
             into the present store: {home} hermes sessions export --all -o all.jsonl`, `hermes import all.jsonl`. To \
             put it in the place of the present store: {instead}",
            file.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_can_be_copied_as_they_are() {
        let of = |path: &str| refused(Path::new(path)).to_string();
        let home = of("/a b/hermes.db");
        for command in [
            "`HERMES_HOME='/a b' hermes sessions export --all -o all.jsonl`, `hermes import all.jsonl`",
            "`HERMES_HOME='/a b' hermes store backup copy.db`, `hermes store restore copy.db --yes`",
        ] {
            assert!(home.contains(command), "{home}");
        }
        let backup = of("/b/monday.db");
        for command in [
            "`HERMES_HOME=carried hermes store restore /b/monday.db --yes`, `HERMES_HOME=carried hermes sessions export \
             --all -o all.jsonl`, `hermes import all.jsonl`",
            "present store: `hermes store restore /b/monday.db --yes`",
        ] {
            assert!(backup.contains(command), "{backup}");
        }
    }
}
