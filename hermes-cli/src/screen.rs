//! Where pieces are written. The only place of a turn that writes.
//!
//! Writes block the thread that runs the client, never a worker of the engine: the engine's tasks run on the runtime's
//! own threads, and a reader that is slow makes the client miss events, not the turn wait.

use std::io::{self, Write};

use crate::render::Piece;
use crate::style::Style;

/// Bytes of output that are kept back while a question is open.
const HELD_LIMIT_BYTES: usize = 1 << 20;

const FRAMES: &[&str] = &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Writes pieces to stdout and stderr.
pub(crate) struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Whether a spinner may be drawn on stderr.
    spins: bool,
    style: Style,
    status: String,
    frame: usize,
    drawn: bool,
    /// Whether text stands on the cursor's row: a spinner there would erase it.
    open_row: bool,
    held: Option<Held>,
}

#[derive(Default)]
struct Held {
    pieces: Vec<Piece>,
    bytes: usize,
    lost: bool,
}

impl Screen {
    /// Over two streams.
    pub(crate) fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, spins: bool, style: Style) -> Self {
        Self { out, err, spins, style, status: String::new(), frame: 0, drawn: false, open_row: false, held: None }
    }

    /// Over this process's own streams.
    pub(crate) fn of_process(spins: bool, style: Style) -> Self {
        Self::new(Box::new(io::stdout()), Box::new(io::stderr()), spins, style)
    }

    /// Whether there is something to draw now and then.
    pub(crate) fn spins(&self) -> bool {
        self.spins && !self.open_row && self.held.is_none() && !self.status.is_empty()
    }

    /// Writes pieces.
    ///
    /// # Errors
    /// What stdout answers. A stderr that nobody reads is no reason to stop.
    pub(crate) fn show(&mut self, pieces: Vec<Piece>) -> io::Result<()> {
        if let Some(held) = &mut self.held {
            for piece in pieces {
                held.push(piece);
            }
            return Ok(());
        }
        let mut text = false;
        for piece in pieces {
            match piece {
                Piece::Text(piece) => {
                    self.erase();
                    self.out.write_all(piece.as_bytes())?;
                    if let Some(last) = piece.bytes().next_back() {
                        self.open_row = last != b'\n';
                    }
                    text = true;
                }
                Piece::Line(line) => {
                    // Both streams may be one terminal: what was said first must stand first.
                    self.out.flush()?;
                    self.erase();
                    let _ = writeln!(self.err, "{line}");
                    self.open_row = false;
                }
                Piece::Status(status) => {
                    if status.is_empty() {
                        self.erase();
                    }
                    self.status = status;
                }
            }
        }
        if text {
            self.out.flush()?;
        }
        Ok(())
    }

    /// One line on stderr.
    pub(crate) fn note(&mut self, line: &str) {
        // Only stderr is written, whose failure is ignored.
        let _ = self.show(vec![Piece::Line(line.to_owned())]);
    }

    /// Draws the next frame of the spinner.
    pub(crate) fn tick(&mut self) {
        if !self.spins() {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let text = format!("{} {}", FRAMES[self.frame], self.status);
        let _ = write!(self.err, "\r\x1b[K{}", self.style.dim(&text));
        let _ = self.err.flush();
        self.drawn = true;
    }

    /// From now on keep everything back: a question has the terminal.
    pub(crate) fn hold(&mut self) {
        self.erase();
        self.held.get_or_insert_default();
    }

    /// Writes what was kept back.
    ///
    /// # Errors
    /// As [`Screen::show`].
    pub(crate) fn release(&mut self) -> io::Result<()> {
        let Some(held) = self.held.take() else { return Ok(()) };
        self.show(held.pieces)?;
        if held.lost {
            self.note("! there was too much output while the question was open; the transcript has it all");
        }
        Ok(())
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(self.err, "\r\x1b[K");
            let _ = self.err.flush();
        }
    }
}

impl Held {
    fn push(&mut self, piece: Piece) {
        let size = match &piece {
            Piece::Text(text) | Piece::Line(text) | Piece::Status(text) => text.len(),
        };
        if self.bytes + size > HELD_LIMIT_BYTES {
            self.lost = true;
            return;
        }
        self.bytes += size;
        self.pieces.push(piece);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.erase();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Shared;

    fn screen(spins: bool) -> (Screen, Shared, Shared) {
        let (out, err) = (Shared::default(), Shared::default());
        (Screen::new(Box::new(out.clone()), Box::new(err.clone()), spins, Style::default()), out, err)
    }

    #[test]
    fn text_goes_to_stdout_and_lines_to_stderr() {
        let (mut screen, out, err) = screen(false);
        screen.show(vec![Piece::Text("a".into()), Piece::Line("b".into()), Piece::Status("c".into())]).unwrap();
        screen.tick();
        assert_eq!((out.text(), err.text()), ("a".to_owned(), "b\n".to_owned()));
    }

    #[test]
    fn a_spinner_is_erased_before_anything_else_is_written() {
        let (mut screen, _out, err) = screen(true);
        screen.show(vec![Piece::Status("thinking".into())]).unwrap();
        screen.tick();
        screen.show(vec![Piece::Line("b".into())]).unwrap();
        assert_eq!(err.text(), "\r\x1b[K⠙ thinking\r\x1b[Kb\n");
    }

    #[test]
    fn a_spinner_is_not_drawn_over_text() {
        let (mut screen, _out, err) = screen(true);
        screen.show(vec![Piece::Text("half a li".into()), Piece::Status("stopping".into())]).unwrap();
        screen.tick();
        assert_eq!(err.text(), "");
        screen.show(vec![Piece::Text("ne\n".into())]).unwrap();
        screen.tick();
        assert!(err.text().ends_with("stopping"), "{}", err.text());
    }

    #[test]
    fn what_comes_while_a_question_is_open_is_written_after_it() {
        let (mut screen, out, err) = screen(false);
        screen.hold();
        screen.show(vec![Piece::Text("a".into())]).unwrap();
        assert_eq!(out.text(), "");
        screen.release().unwrap();
        assert_eq!((out.text(), err.text()), ("a".to_owned(), String::new()));
    }

    #[test]
    fn i26_held_output_has_a_limit_that_is_told() {
        let (mut screen, out, err) = screen(false);
        screen.hold();
        for _ in 0..3 {
            screen.show(vec![Piece::Text("x".repeat(HELD_LIMIT_BYTES / 2))]).unwrap();
        }
        screen.release().unwrap();
        assert_eq!(out.text().len(), HELD_LIMIT_BYTES);
        assert!(err.text().contains("too much output"));
    }
}
