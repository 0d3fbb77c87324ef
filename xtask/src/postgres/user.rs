//! Who runs the server: PostgreSQL refuses to run as root.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// Users who may run the server in place of root, the first that exists. The first one comes with Debian's package.
const IN_PLACE_OF_ROOT: [&str; 2] = ["postgres", "nobody"];
/// Where the users are listed.
const USERS_PATH: &str = "/etc/passwd";

/// A user who is not the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    name: String,
    id: u32,
    group: u32,
}

impl User {
    /// Who must run the server; `None` when the current user may.
    ///
    /// # Errors
    /// This is root and there is nobody else.
    pub(super) fn for_server() -> Result<Option<Self>> {
        if !is_root()? {
            return Ok(None);
        }
        let users = std::fs::read_to_string(USERS_PATH).with_context(|| format!("cannot read {USERS_PATH}"))?;
        let user = IN_PLACE_OF_ROOT.iter().find_map(|name| Self::in_list(&users, name));
        let user = user.with_context(|| {
            format!("PostgreSQL does not run as root, and {USERS_PATH} has no `{}`", IN_PLACE_OF_ROOT.join("` or `"))
        })?;
        Ok(Some(user))
    }

    /// The user of that name in the text of the list.
    fn in_list(users: &str, name: &str) -> Option<Self> {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)?;
        let number = |index: usize| fields.get(index)?.parse().ok();
        Some(Self { name: name.to_owned(), id: number(2)?, group: number(3)? })
    }

    /// The name, as `setpriv` and `su` take it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Lets the command run as this user, without the groups of root.
    pub(super) fn become_in(&self, command: &mut Command) {
        command.uid(self.id).gid(self.group);
    }

    /// Gives the file or directory to this user.
    pub(super) fn own(&self, path: &Path) -> Result<()> {
        chown(path, Some(self.id), Some(self.group))
            .with_context(|| format!("cannot give {} to {}", path.display(), self.name))
    }
}

/// Whether this program runs as root.
pub(super) fn is_root() -> Result<bool> {
    Ok(shell::output(Command::new("id").arg("-u"))?.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let users = "root:x:0:0:root:/:/bin/sh\npostgres2:x:7:7::/:/bin/sh\npostgres:x:101:104:a,,,:/var:/bin/sh\n";
        let user = User::in_list(users, "postgres").unwrap();
        assert_eq!((user.name(), user.id, user.group), ("postgres", 101, 104));
        assert_eq!(User::in_list(users, "nobody"), None);
    }

    #[test]
    fn a_broken_line_is_no_user() {
        assert_eq!(User::in_list("\nnobody\n", "nobody"), None);
        assert_eq!(User::in_list("nobody:x:a:b::/:", "nobody"), None);
    }
}
