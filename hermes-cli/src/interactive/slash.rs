//! Commands that are typed into a conversation. One line each in the registry.

/// What can be typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slash {
    /// Shows the commands.
    Help,
    /// Begins a new session.
    New,
    /// Shows the model.
    Model,
    /// Shows the last sessions.
    Sessions,
    /// Goes on with a session.
    Resume,
    /// Adds a picture to the next text.
    Image,
    /// Gives the session a title.
    Title,
    /// Undoes the last input.
    Undo,
    /// Takes the last undo back.
    Redo,
    /// Undoes the last input and sends it again.
    Retry,
    /// Says something to the turn that runs, in whatever process.
    Steer,
    /// Interrupts the answer that is being written, in whatever process.
    Redirect,
    /// Leaves.
    Quit,
}

struct Entry {
    slash: Slash,
    name: &'static str,
    /// What stands behind it; empty when nothing does.
    argument: &'static str,
    help: &'static str,
}

const REGISTRY: &[Entry] = &[
    Entry { slash: Slash::Help, name: "help", argument: "", help: "show this" },
    Entry { slash: Slash::New, name: "new", argument: "", help: "begin a new session" },
    Entry { slash: Slash::Model, name: "model", argument: "", help: "show which model is used, and why" },
    Entry { slash: Slash::Sessions, name: "sessions", argument: "", help: "show the last sessions" },
    Entry { slash: Slash::Resume, name: "resume", argument: "ID|TITLE", help: "go on with a session" },
    Entry { slash: Slash::Image, name: "image", argument: "FILE", help: "add a picture to the next text" },
    Entry { slash: Slash::Title, name: "title", argument: "TEXT", help: "give this session a title" },
    Entry { slash: Slash::Undo, name: "undo", argument: "", help: "undo the last input and what came of it" },
    Entry { slash: Slash::Redo, name: "redo", argument: "", help: "take the undo back, while nothing was said since" },
    Entry { slash: Slash::Retry, name: "retry", argument: "", help: "undo the last input and send it again" },
    Entry {
        slash: Slash::Steer,
        name: "steer",
        argument: "TEXT",
        help: "tell a turn that another program runs in this session; else it is the next input",
    },
    Entry {
        slash: Slash::Redirect,
        name: "redirect",
        argument: "TEXT",
        help: "the same, and interrupt the answer that is being written there",
    },
    Entry { slash: Slash::Quit, name: "quit", argument: "", help: "leave (also Ctrl-D)" },
];

/// A command and what stands behind it; `None` when the text is for the model.
///
/// A path (`/etc/hosts has ...`) is for the model: a command is one word of letters.
pub(super) fn parse(text: &str) -> Option<Result<(Slash, &str), String>> {
    let rest = text.trim().strip_prefix('/')?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    let argument = argument.trim();
    let Some(entry) = REGISTRY.iter().find(|entry| entry.name == name.to_ascii_lowercase()) else {
        return Some(Err(format!("There is no command /{name}; /help shows those that there are.")));
    };
    Some(match (entry.argument.is_empty(), argument.is_empty()) {
        (false, true) => Err(format!("It goes like this: /{} {}", entry.name, entry.argument)),
        (true, false) => Err(format!("Nothing stands behind /{}.", entry.name)),
        _ => Ok((entry.slash, argument)),
    })
}

/// All commands, one on each line.
pub(super) fn help() -> String {
    let lines: Vec<String> = REGISTRY
        .iter()
        .map(|entry| format!("  {:<18} {}", format!("/{} {}", entry.name, entry.argument).trim_end(), entry.help))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_understood_as_help_shows_it() {
        for entry in REGISTRY {
            let typed = format!("/{} {}", entry.name, entry.argument);
            assert_eq!(parse(&typed), Some(Ok((entry.slash, entry.argument))), "{typed}");
            assert!(help().contains(&format!("/{}", entry.name)));
        }
    }

    #[test]
    fn a_wrong_command_is_told_and_not_sent_to_the_model() {
        assert!(parse("/nonsense").is_some_and(|parsed| parsed.is_err()));
        assert!(parse("/resume").is_some_and(|parsed| parsed.is_err()));
        assert!(parse("/quit now").is_some_and(|parsed| parsed.is_err()));
    }

    #[test]
    fn text_for_the_model_is_no_command() {
        for text in ["hello", "/etc/hosts is what?", "/ ", "a /help", "/2 what"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
