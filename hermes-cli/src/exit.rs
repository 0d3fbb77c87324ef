//! How the program ends: one table, shown by `hermes --help` and in `docs/cli.md`.

use std::io;

use hermes_gateway::protocol::{EndReason, RpcError};

/// The exit codes, for `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    answered, or the command did what it says
  1    the turn or the command failed; the reason and its code are on stderr
  2    wrong use or configuration
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP, or the reader of stdout went away)";

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Answered, or done.
    Answered,
    /// The turn or the command failed.
    Failed,
    /// Wrong use or configuration.
    Usage,
    /// Somebody stopped it.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Answered => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
        }
    }

    /// What the end of a turn means for the shell.
    pub(crate) fn of(reason: EndReason) -> Self {
        match reason {
            EndReason::Answered => Self::Answered,
            EndReason::StoppedByUser | EndReason::StoppedByShutdown => Self::Interrupted,
            EndReason::Misconfigured => Self::Usage,
            _ => Self::Failed,
        }
    }
}

/// Why a command did not do what it says.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The gateway refused or failed.
    Rpc(RpcError),
    /// Wrong use, found by this program after the arguments were read.
    Usage(String),
    /// Something outside failed (a file, the terminal).
    Failed(String),
    /// Nobody reads stdout any more. Not worth a word.
    BrokenPipe,
    /// Somebody stopped it.
    Interrupted,
}

impl Fault {
    /// What the shell sees.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Rpc(error) if error.usage => Exit::Usage,
            Self::Rpc(_) | Self::Failed(_) => Exit::Failed,
            Self::Usage(_) => Exit::Usage,
            // Like other programs whose reader had enough (`| head`).
            Self::BrokenPipe => Exit::Answered,
            Self::Interrupted => Exit::Interrupted,
        }
    }

    /// What a person reads; none when there is nothing to say.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Rpc(error) => Some(failure(&error.code, &error.message)),
            Self::Usage(text) | Self::Failed(text) => Some(format!("error: {text}")),
            Self::BrokenPipe | Self::Interrupted => None,
        }
    }
}

/// A failure with its stable code, as every part of this program writes it.
pub(crate) fn failure(code: &str, message: &str) -> String {
    if code.is_empty() {
        return format!("error: {message}");
    }
    format!("error[{code}]: {}", without_code(code, message))
}

/// A message without the code in front: some errors name it themselves, and once is enough.
pub(crate) fn without_code<'m>(code: &str, message: &'m str) -> &'m str {
    message.strip_prefix(code).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message)
}

impl From<RpcError> for Fault {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::BrokenPipe } else { Self::Failed(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_the_exit_code_of_the_table() {
        for reason in EndReason::ALL {
            let expected = match reason {
                EndReason::Answered => 0,
                EndReason::Misconfigured => 2,
                EndReason::StoppedByUser | EndReason::StoppedByShutdown => 130,
                _ => 1,
            };
            assert_eq!(Exit::of(*reason).code(), expected, "{reason:?}");
        }
    }

    #[test]
    fn a_failure_is_shown_with_its_code() {
        let fault =
            Fault::from(RpcError { code: "HM4006".into(), message: "the key was refused".into(), usage: false });
        assert_eq!(fault.message().as_deref(), Some("error[HM4006]: the key was refused"));
        assert_eq!(fault.exit(), Exit::Failed);
        assert_eq!(failure("HM0104", "HM0104: cannot read x"), "error[HM0104]: cannot read x");
        assert_eq!(failure("", "no"), "error: no");
    }

    #[test]
    fn a_broken_pipe_is_quiet() {
        let fault = Fault::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((fault.message(), fault.exit()), (None, Exit::Answered));
    }
}
