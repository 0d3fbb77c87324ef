//! What may be typed. Only the shape: what it means is decided where it is used.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser};

use crate::commands::Command;
use crate::exit::{Fault, TABLE};

/// An agent that answers, runs tools, and loses nothing when it is killed.
#[derive(Debug, Parser)]
#[command(name = "hermes", version, after_help = TABLE, disable_help_subcommand = true, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) session: SessionArgs,

    /// Answer one text and leave; only the final answer goes to stdout. What is piped into stdin is put behind the text
    #[arg(
        short = 'z',
        long = "oneshot",
        value_name = "TEXT",
        allow_hyphen_values = true,
        num_args = 0..=1,
        default_missing_value = ""
    )]
    pub(crate) oneshot: Option<String>,

    /// One JSON object on each line of stdout: the events, the result last
    #[arg(long)]
    pub(crate) json: bool,

    /// Use the home of this profile
    #[arg(short = 'p', long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Which conversation, with what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    pub(crate) pick: PickArgs,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
}

/// Which conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct PickArgs {
    /// Go on with the last session
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub(crate) last: bool,

    /// Go on with this session: an id, the beginning of one, or a title
    #[arg(short = 'r', long, value_name = "ID|TITLE")]
    pub(crate) resume: Option<String>,
}

/// What is used in this run instead of what the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct SelectArgs {
    /// The model
    #[arg(short = 'm', long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// The provider of the model
    #[arg(long, value_name = "ID")]
    pub(crate) provider: Option<String>,

    /// The toolsets, with commas between
    #[arg(short = 't', long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) toolsets: Vec<String>,

    /// Most requests to the model in one turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,

    /// A picture for the first text: PNG, JPEG, GIF or WebP; may be given several times
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,

    /// Ask nobody: run what would be asked about. What is never allowed stays so
    #[arg(long)]
    pub(crate) yolo: bool,
}

impl SessionArgs {
    /// These, with what is not given taken from `outer` (flags before the command's name).
    pub(crate) fn or(self, outer: &Self) -> Self {
        Self { pick: self.pick.or(&outer.pick), select: self.select.or(&outer.select) }
    }
}

impl PickArgs {
    fn or(self, outer: &Self) -> Self {
        if self.last || self.resume.is_some() { self } else { outer.clone() }
    }
}

impl SelectArgs {
    /// These, with what is not given taken from `outer` (flags before the command's name).
    pub(crate) fn or(self, outer: &Self) -> Self {
        Self {
            model: self.model.or_else(|| outer.model.clone()),
            provider: self.provider.or_else(|| outer.provider.clone()),
            toolsets: if self.toolsets.is_empty() { outer.toolsets.clone() } else { self.toolsets },
            max_turns: self.max_turns.or(outer.max_turns),
            images: if self.images.is_empty() { outer.images.clone() } else { self.images },
            yolo: self.yolo || outer.yolo,
        }
    }
}

/// Refuses a text that is exactly one of this program's own flags: it was meant as one (`-z --json`).
///
/// # Errors
/// [`Fault::Usage`], saying what to do.
pub(crate) fn check_text(flag: &str, text: &str) -> Result<(), Fault> {
    if !text.starts_with('-') {
        return Ok(());
    }
    let command = Cli::command();
    let known = command.get_arguments().any(|arg| {
        arg.get_long().is_some_and(|long| text.strip_prefix("--") == Some(long))
            || arg.get_short().is_some_and(|short| text.strip_prefix('-') == Some(short.to_string().as_str()))
    });
    if known {
        return Err(Fault::Usage(format!(
            "{flag} took {text} as its text; write {text} before {flag}, or put a space before it to send it as text"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("hermes").chain(args.iter().copied()))
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_text_may_begin_with_a_hyphen() {
        assert_eq!(parse(&["-z", "-1 + 2"]).unwrap().oneshot.as_deref(), Some("-1 + 2"));
        assert_eq!(parse(&["-z", "--help me"]).unwrap().oneshot.as_deref(), Some("--help me"));
        assert!(matches!(
            parse(&["chat", "-q", "- a list"]).unwrap().command,
            Some(Command::Chat(args)) if args.query.as_deref() == Some("- a list")
        ));
    }

    #[test]
    fn a_flag_that_was_taken_for_the_text_is_told() {
        assert!(check_text("-z", "--json").is_err());
        assert!(check_text("-z", "-c").is_err());
        assert!(check_text("-z", "-1").is_ok());
        assert!(check_text("-z", "json").is_ok());
        assert!(check_text("-z", " --json").is_ok());
    }

    #[test]
    fn one_shot_without_a_text_is_possible() {
        let cli = parse(&["-c", "-z"]).unwrap();
        assert_eq!((cli.oneshot.as_deref(), cli.session.pick.last), (Some(""), true));
    }

    #[test]
    fn flags_stand_before_or_after_the_command() {
        let Some(Command::Chat(args)) =
            parse(&["-m", "a", "--yolo", "chat", "-q", "x", "-t", "file,web"]).unwrap().command
        else {
            panic!("chat was typed");
        };
        let outer = parse(&["-m", "a", "--yolo", "-c"]).unwrap().session;
        let session = args.session.or(&outer);
        assert_eq!(session.select.model.as_deref(), Some("a"));
        assert_eq!(session.select.toolsets, ["file", "web"]);
        assert!(session.select.yolo && session.pick.last);
        assert_eq!(parse(&["sessions", "list", "-p", "work"]).unwrap().profile.as_deref(), Some("work"));
    }

    #[test]
    fn wrong_use_is_refused() {
        for args in
            [&["-c", "--resume", "x"][..], &["--max-turns", "0"], &["nonsense"], &["-z", "a", "b"], &["--nonsense"]]
        {
            assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn i27_invalid_utf8_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let bad = std::ffi::OsString::from_vec(vec![b'a', 0xff]);
        let error = Cli::try_parse_from(["hermes".into(), "-z".into(), bad]).unwrap_err();
        assert_eq!((error.kind(), error.exit_code()), (clap::error::ErrorKind::InvalidUtf8, 2));
    }

    #[test]
    fn help_names_every_exit_code() {
        let help = Cli::command().render_help().to_string();
        for code in ["  0 ", "  1 ", "  2 ", "  130 "] {
            assert!(help.contains(code), "{code}");
        }
    }
}
