//! Checker (k): every world comes to rest, in bounded time and in a bounded number of steps.
//!
//! Virtual time stands still while anything can run, so a world that spins would never reach its bound of time. What is
//! counted are steps: a poll of the world, a task that a schedule chose, a look at the clock. The last one finds what
//! spins inside one poll, where nobody else ever gets a turn.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::LocalBoxFuture;

/// Virtual time after which a world that is not at rest hangs, in seconds.
const WORLD_MAX_S: u64 = 24 * 3_600;
/// Steps after which a world that is not at rest spins: eight times what the longest one took that was seen (123,016).
const WORLD_MAX_STEPS: u64 = 1_000_000;

thread_local! {
    /// Steps of the world that runs on this thread.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts one step.
///
/// # Panics
/// When the world has taken too many.
pub(crate) fn step() {
    let steps = STEPS.get() + 1;
    STEPS.set(steps);
    assert!(steps <= WORLD_MAX_STEPS, "the world spins: it is not at rest after {WORLD_MAX_STEPS} steps");
}

/// Steps that the last world of this thread took so far.
pub(crate) fn steps() -> u64 {
    STEPS.get()
}

/// A world whose polls are counted.
struct Counted<'w, T>(LocalBoxFuture<'w, T>);

impl<T> Future for Counted<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        step();
        self.0.as_mut().poll(cx)
    }
}

/// Says which world it was that broke a promise: a checker knows only the promise.
struct Named<'w>(&'w str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("sim: {} is broken after {} steps", self.0, steps());
        }
    }
}

/// Runs the world `what` on one thread with virtual time.
///
/// # Panics
/// When it is not at rest after its time or its steps.
pub(crate) fn simulate<T>(what: &str, work: impl Future<Output = T>) -> T {
    let _named = Named(what);
    STEPS.set(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = tokio::time::timeout(Duration::from_secs(WORLD_MAX_S), Counted(Box::pin(work)));
        world.await.expect("the world does not come to rest in a day")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::breathe;

    #[test]
    #[should_panic(expected = "the world spins")]
    fn a_world_that_never_lets_time_go_by_is_stopped() {
        simulate("a spin", async {
            loop {
                breathe().await;
            }
        });
    }

    #[test]
    #[should_panic(expected = "come to rest")]
    fn a_world_that_waits_for_ever_is_stopped() {
        simulate("a hang", futures::future::pending::<()>());
    }
}
