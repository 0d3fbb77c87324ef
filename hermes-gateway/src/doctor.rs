//! What `hermes doctor` looks at.

use std::path::Path;

use crate::config::{Config, Scope, StoreUrl};
use crate::fallback::Entry;
use crate::model::Choice;
use crate::protocol::{Check, CheckState, RpcError};

fn check(name: &str, state: CheckState, detail: impl Into<String>) -> Check {
    Check { name: name.to_owned(), state, detail: detail.into() }
}

/// Where the store is, without a password.
fn database(scope: &Scope, config: &Config) -> String {
    match &config.store_url {
        Some(StoreUrl::Sqlite(path)) => scope.home.join(path).display().to_string(),
        Some(url) => url.shown(),
        None => scope.database().display().to_string(),
    }
}

/// All checks, in the order in which a person would mend them.
pub(crate) fn checks(
    scope: &Scope,
    config: &Config,
    (choice, fallbacks): (&Result<Choice, RpcError>, &[Entry]),
    store: &Result<(), RpcError>,
    cwd: &Path,
) -> Vec<Check> {
    let mut found =
        vec![check("home", CheckState::Ok, format!("{} (profile {})", scope.home.display(), scope.profile))];
    found.push(match config.file.try_exists() {
        Ok(true) => check("configuration", CheckState::Ok, config.file.display().to_string()),
        _ => check("configuration", CheckState::Note, format!("{} is not there; defaults hold", config.file.display())),
    });
    found.push(match choice {
        Ok(choice) if choice.is_practice() => check("model", CheckState::Note, choice.line()),
        Ok(choice) => check("model", CheckState::Ok, choice.line()),
        Err(error) => check("model", CheckState::Failed, format!("{}: {}", error.code, error.message)),
    });
    found.extend(fallbacks.iter().map(|(_, fallback)| match fallback {
        Ok(choice) => check("fallback", CheckState::Ok, choice.line()),
        // The turns work without it.
        Err(error) => check("fallback", CheckState::Note, format!("not used: {}: {}", error.code, error.message)),
    }));
    found.push(match store {
        Ok(()) => check("database", CheckState::Ok, database(scope, config)),
        Err(error) => {
            let place = database(scope, config);
            check("database", CheckState::Failed, format!("{place}: {}: {}", error.code, error.message))
        }
    });
    found.push(if cwd.is_dir() {
        check("working directory", CheckState::Ok, cwd.display().to_string())
    } else {
        check("working directory", CheckState::Failed, format!("{} is not a directory (terminal.cwd)", cwd.display()))
    });
    let shell = ["/bin/bash", "/usr/bin/bash", "/bin/sh"].into_iter().find(|path| Path::new(path).exists());
    found.push(match shell {
        Some(path) => check("shell", CheckState::Ok, path),
        None => check("shell", CheckState::Failed, "neither bash nor sh was found; the terminal tool cannot work"),
    });
    found
}
