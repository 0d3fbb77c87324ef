//! What this process is connected to. Looked at once, at start; everything else gets it as a value.

use std::io::IsTerminal;

use crate::style::Style;

/// Columns that are assumed when nobody says how many there are.
const WIDTH_DEFAULT_COLUMNS: usize = 100;
/// Columns below which lines are not cut any shorter.
const WIDTH_MIN_COLUMNS: usize = 40;

/// What this process is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminal {
    /// Whether stdin is a terminal.
    pub(crate) stdin: bool,
    /// Whether stdout is a terminal.
    pub(crate) stdout: bool,
    /// Whether stderr is a terminal.
    pub(crate) stderr: bool,
    /// Whether colours and moving things are wanted (`NO_COLOR`, `TERM=dumb`).
    pub(crate) fancy: bool,
    /// Columns of a line.
    pub(crate) width: usize,
}

impl Terminal {
    /// Looks at the streams and the environment of this process.
    pub(crate) fn detect() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let stdout = std::io::stdout().is_terminal();
        let stderr = std::io::stderr().is_terminal();
        let width = if stdout || stderr {
            crossterm::terminal::size().map_or(WIDTH_DEFAULT_COLUMNS, |(columns, _)| usize::from(columns))
        } else {
            WIDTH_DEFAULT_COLUMNS
        };
        Self {
            stdin: std::io::stdin().is_terminal(),
            stdout,
            stderr,
            fancy: !plain && !dumb,
            width: width.max(WIDTH_MIN_COLUMNS),
        }
    }

    /// How stdout is written.
    pub(crate) fn out_style(self) -> Style {
        Style { colour: self.stdout && self.fancy }
    }

    /// How stderr is written.
    pub(crate) fn err_style(self) -> Style {
        Style { colour: self.stderr && self.fancy }
    }

    /// Whether a person sits at both ends of a conversation with this program.
    pub(crate) fn attended(self) -> bool {
        self.stdin && self.stderr
    }

    /// No terminal anywhere: what tests and pipes see.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { stdin: false, stdout: false, stderr: false, fancy: true, width: WIDTH_DEFAULT_COLUMNS }
    }
}
