//! The line editor, on a thread of its own while it reads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{KeyCode, KeyModifiers};
use reedline::{EditCommand, Emacs, FileBackedHistory, Reedline, ReedlineEvent, Signal, default_emacs_keybindings};

use crate::ask::PlainPrompt;
use crate::exit::Fault;
use crate::signals::Stops;
use crate::style::Style;

/// How long the editor may take to give the terminal back.
const GIVE_UP_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Inputs that the history keeps.
const HISTORY_MAX_INPUTS: usize = 2_000;
const INTERRUPT: &str = "interrupt";

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A text.
    Text(String),
    /// Ctrl-C on a text: it was thrown away.
    Cleared,
    /// Ctrl-D, or Ctrl-C on an empty line.
    Leave,
    /// The system wants the program to stop.
    Stopped,
}

/// The line editor.
pub(super) struct Editor {
    /// Not here while a thread reads with it.
    line: Option<Reedline>,
    give_up: Arc<AtomicBool>,
    history: Option<PathBuf>,
    history_problem: Option<String>,
    /// Whether a history that cannot be written was told: once is enough.
    told: bool,
}

impl Editor {
    /// With a history file, where there is one.
    pub(super) fn new(history: Option<&Path>, style: Style) -> Self {
        let give_up = Arc::new(AtomicBool::new(false));
        let mut keys = default_emacs_keybindings();
        // The editor's own Ctrl-C empties the line before it returns; here it matters whether it was empty.
        keys.add_binding(
            KeyModifiers::CONTROL,
            KeyCode::Char('c'),
            ReedlineEvent::ExecuteHostCommand(INTERRUPT.to_owned()),
        );
        let mut line = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_ansi_colors(style.colour)
            .use_bracketed_paste(true)
            .with_break_signal(Arc::clone(&give_up));
        let mut history_problem = None;
        if let Some(path) = history {
            match open_history(path) {
                Ok(history) => line = line.with_history(Box::new(history)),
                Err(error) => history_problem = Some(format!("{}: {error}", path.display())),
            }
        }
        let history = history.map(Path::to_path_buf);
        Self { line: Some(line), give_up, history, history_problem, told: false }
    }

    /// Why there is no history, when there should be one. Told once.
    pub(super) fn take_history_problem(&mut self) -> Option<String> {
        self.history_problem.take().filter(|_| !std::mem::replace(&mut self.told, true))
    }

    /// Reads one input.
    ///
    /// # Errors
    /// When the terminal cannot be read.
    pub(super) async fn read(&mut self, stops: &mut dyn Stops) -> Result<Input, Fault> {
        let Some(mut line) = self.line.take() else { return Ok(Input::Leave) };
        self.give_up.store(false, Ordering::Relaxed);
        let mut reading = tokio::task::spawn_blocking(move || {
            let input = read_blocking(&mut line);
            // Now and not at the end: a program that is killed writes nothing any more.
            let synced = line.sync_history();
            (line, input, synced)
        });
        let mut stopped = false;
        let read = tokio::select! {
            read = &mut reading => read,
            _ = stops.next() => {
                stopped = true;
                // The thread looks at this several times a second, and gives the terminal back.
                self.give_up.store(true, Ordering::Relaxed);
                // On a terminal that is gone it never looks again; then the program leaves without it.
                match tokio::time::timeout(GIVE_UP_MAX, reading).await {
                    Ok(read) => read,
                    Err(_) => return Ok(Input::Stopped),
                }
            }
        };
        let (line, input, synced) = read.map_err(|error| Fault::Failed(format!("the line editor failed: {error}")))?;
        self.line = Some(line);
        if let (Err(error), Some(path)) = (synced, &self.history) {
            self.history_problem = Some(format!("{}: {error}", path.display()));
        }
        if stopped { Ok(Input::Stopped) } else { Ok(input?) }
    }
}

fn read_blocking(line: &mut Reedline) -> io::Result<Input> {
    let signal = line.read_line(&PlainPrompt("> ")).map_err(io::Error::other)?;
    Ok(match signal {
        Signal::Success(text) => Input::Text(text),
        Signal::HostCommand(_) => {
            let empty = line.current_buffer_contents().is_empty();
            line.run_edit_commands(&[EditCommand::Clear]);
            eprintln!();
            if empty { Input::Leave } else { Input::Cleared }
        }
        Signal::CtrlC => Input::Cleared,
        Signal::ExternalBreak(_) => Input::Stopped,
        _ => Input::Leave,
    })
}

fn open_history(path: &Path) -> io::Result<FileBackedHistory> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    // People type secrets now and then: the file is made before the history could make it for everybody to read.
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    FileBackedHistory::with_file(HISTORY_MAX_INPUTS, path.to_path_buf()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run").join("history");
        open_history(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_history_that_cannot_be_opened_is_told_and_no_reason_to_stop() {
        let directory = tempfile::tempdir().unwrap();
        let mut editor = Editor::new(Some(directory.path()), Style::default());
        assert!(editor.take_history_problem().is_some());
        assert!(editor.take_history_problem().is_none());
    }
}
