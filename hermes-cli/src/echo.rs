//! The terminal's own echo, off while a turn runs.
//!
//! What is typed meanwhile stays with the terminal and comes to the next prompt. Echoed it would stand behind the
//! spinner, and Enter would leave both on the screen.

use std::io::{Stdin, stdin};
use std::sync::{Mutex, PoisonError};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

/// How the terminal was before. In one place, because a process that leaves at once drops nothing.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// No echo until this is dropped.
#[derive(Debug)]
pub(crate) struct NoEcho(());

impl NoEcho {
    /// Switches the echo of stdin off, where stdin is a terminal that this process may change. A terminal that cannot
    /// be changed echoes on: that is ugly, and no reason to stop.
    pub(crate) fn begin() -> Self {
        let stdin = stdin();
        let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        if before.is_none()
            && ours(&stdin)
            && let Ok(was) = tcgetattr(&stdin)
        {
            let mut quiet = was.clone();
            quiet.local_flags.remove(LocalFlags::ECHO);
            if tcsetattr(&stdin, SetArg::TCSANOW, &quiet).is_ok() {
                *before = Some(was);
            }
        }
        Self(())
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its echo back. Nothing happens when it has it.
pub(crate) fn restore() {
    let stdin = stdin();
    if let Some(was) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take()
        && ours(&stdin)
    {
        let _ = tcsetattr(&stdin, SetArg::TCSANOW, &was);
    }
}

/// A process in the background would be stopped by the system for changing the terminal.
fn ours(stdin: &Stdin) -> bool {
    tcgetpgrp(stdin).is_ok_and(|group| group == getpgrp())
}
