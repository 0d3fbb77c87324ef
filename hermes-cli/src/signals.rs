//! Ctrl-C and its relatives.

use std::future::Future;
use std::io;
use std::pin::pin;

use futures::future::BoxFuture;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Who wants the program to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A person at the keyboard (SIGINT): this turn.
    Keyboard,
    /// The system (SIGTERM, SIGHUP): the program.
    System,
}

/// Tells of wishes to stop.
pub(crate) trait Stops: Send {
    /// The next one. Dropping the future loses none.
    fn next(&mut self) -> BoxFuture<'_, Stop>;
}

/// The signals of this process.
pub(crate) struct ProcessSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl ProcessSignals {
    /// Takes the signals over; they do not end the process any more.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

impl Stops for ProcessSignals {
    fn next(&mut self) -> BoxFuture<'_, Stop> {
        Box::pin(async move {
            tokio::select! {
                Some(()) = self.interrupt.recv() => Stop::Keyboard,
                Some(()) = self.terminate.recv() => Stop::System,
                Some(()) = self.hangup.recv() => Stop::System,
                else => std::future::pending().await,
            }
        })
    }
}

/// Waits for something that should not take long. The first wish to stop is kept for the caller, the second one ends
/// the process at once.
pub(crate) async fn patiently<T>(stops: &mut dyn Stops, future: impl Future<Output = T>) -> (T, Option<Stop>) {
    let mut future = pin!(future);
    let first = tokio::select! {
        biased;
        value = &mut future => return (value, None),
        stop = stops.next() => stop,
    };
    tokio::select! {
        biased;
        value = &mut future => (value, Some(first)),
        _ = stops.next() => leave_now(),
    }
}

/// Ends the process without waiting for anything. What is durable stays so; the next start recovers the rest.
pub(crate) fn leave_now() -> ! {
    // A question may have the terminal in raw mode. Nothing happens when none has.
    let _ = crossterm::terminal::disable_raw_mode();
    crate::echo::restore();
    std::process::exit(Exit::Interrupted.code())
}
