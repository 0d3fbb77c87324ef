//! The task that owns the process: carries out orders one after another, and looks after it between them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::config::LlamaError;
use super::runtime::{PLACES, Shared};
use super::server::LlamaServer;

/// Rest after the first failure, in milliseconds; doubled with each in a row.
const REST_BASE_MS: u64 = 1_000;
/// Longest rest, in milliseconds.
const REST_MAX_MS: u64 = 60_000;
/// A server that ran so long before it ended begins a new row of failures.
const STABLE_MS: u64 = 60_000;
/// How long a process of which a connection was lost is watched for its end.
const END_LOOK_MS: u64 = 500;

const _: () = assert!(REST_BASE_MS < REST_MAX_MS && REST_MAX_MS <= STABLE_MS);

/// What is wanted of the worker.
pub(super) enum Order {
    /// A server that takes requests.
    Ready { reply: oneshot::Sender<Result<Served, Unready>> },
    /// How the server of this number ended.
    Why { number: u64, reply: oneshot::Sender<Option<LlamaError>> },
    /// A larger window. All places are held meanwhile, whoever waits for it.
    Grow { wanted: u64, all: OwnedSemaphorePermit, reply: oneshot::Sender<Result<u64, LlamaError>> },
}

/// Where a server is.
#[derive(Debug, Clone)]
pub(super) struct Served {
    /// Counts the starts.
    pub number: u64,
    pub base_url: String,
    pub sees_images: Option<bool>,
}

/// Why there is none.
#[derive(Debug)]
pub(super) struct Unready {
    pub error: LlamaError,
    /// After so long the next start is tried.
    pub rest: Option<Duration>,
    /// It has run in this process: what is set up is not wrong.
    pub has_run: bool,
}

/// Failures in a row. Pure: it is told the time.
#[derive(Debug, Default)]
struct Trouble {
    in_a_row: u32,
    /// When the last one was, of which start, and what it was.
    last: Option<(Instant, u64, LlamaError)>,
    has_run: bool,
}

impl Trouble {
    fn met(&mut self, now: Instant, number: u64, error: LlamaError, ran_for: Duration) {
        let begins_anew = ran_for >= Duration::from_millis(STABLE_MS);
        self.in_a_row = if begins_anew { 1 } else { self.in_a_row.saturating_add(1) };
        self.last = Some((now, number, error));
    }

    /// Why no start is tried now.
    fn unready(&self, now: Instant) -> Option<Unready> {
        let (at, _, error) = self.last.as_ref()?;
        let rest = (*at + rest_after(self.in_a_row)).checked_duration_since(now)?;
        (!rest.is_zero()).then(|| Unready { error: error.clone(), rest: Some(rest), has_run: self.has_run })
    }
}

fn rest_after(in_a_row: u32) -> Duration {
    let doubled = REST_BASE_MS.saturating_mul(1 << in_a_row.saturating_sub(1).min(16));
    Duration::from_millis(doubled.min(REST_MAX_MS))
}

/// The owner of the process.
pub(super) struct Worker {
    shared: Arc<Shared>,
    server: Option<LlamaServer>,
    /// Starts so far.
    starts: u64,
    trouble: Trouble,
    closing: watch::Receiver<bool>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, closing: watch::Receiver<bool>) -> Self {
        Self { shared, server: None, starts: 0, trouble: Trouble::default(), closing }
    }

    /// Works until nobody can give orders any more, and ends the process.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut closing = self.closing.clone();
        let work = async {
            loop {
                let idle_at = self.idle_at();
                tokio::select! {
                    // An end is known before the next one asks.
                    biased;
                    error = ended(&mut self.server) => self.has_ended(error),
                    order = orders.recv() => match order {
                        Some(order) => self.carry_out(order).await,
                        None => return,
                    },
                    () = at(idle_at) => self.stop_when_idle().await,
                }
            }
        };
        tokio::select! {
            () = work => {}
            // Also in the middle of a start, which ends what it has begun.
            _ = closing.wait_for(|closing| *closing) => {}
        }
        self.stop().await.unwrap_or_else(|error| tracing::warn!(code = error.code(), "{error}"));
    }

    async fn carry_out(&mut self, order: Order) {
        // Who has gone away meanwhile needs no answer.
        match order {
            Order::Ready { reply } => drop(reply.send(self.ready().await)),
            Order::Why { number, reply } => drop(reply.send(self.why(number).await)),
            Order::Grow { wanted, all, reply } => {
                let grown = self.grow(wanted).await;
                drop(all);
                drop(reply.send(grown));
            }
        }
    }

    fn served(&self) -> Option<Served> {
        let server = self.server.as_ref()?;
        Some(Served { number: self.starts, base_url: server.base_url(), sees_images: server.sees_images() })
    }

    async fn ready(&mut self) -> Result<Served, Unready> {
        if self.server.as_mut().is_some_and(|server| !server.is_running()) {
            let error = ended(&mut self.server).await;
            self.has_ended(error);
        }
        if let Some(served) = self.served() {
            return Ok(served);
        }
        if let Some(unready) = self.trouble.unready(Instant::now()) {
            return Err(unready);
        }
        let grown = self.shared.known().context;
        let mut begun = self.start(grown).await;
        let small = self.shared.config.context;
        if begun.is_err() && grown > small {
            // Memory may have become less than it was when the window was grown.
            self.shared.known().max_context = small;
            begun = self.start(small).await;
        }
        if let Err(error) = begun {
            self.trouble.met(Instant::now(), self.starts, error.clone(), Duration::ZERO);
            let rest = Some(rest_after(self.trouble.in_a_row));
            return Err(Unready { error, rest, has_run: self.trouble.has_run });
        }
        self.served().ok_or_else(|| Unready {
            error: LlamaError::Start { program: self.shared.config.program(), why: "it is gone again".to_owned() },
            rest: None,
            has_run: true,
        })
    }

    /// Starts the server with this `--ctx-size`, and learns what window that gives.
    async fn start(&mut self, context: u64) -> Result<(), LlamaError> {
        self.starts += 1;
        let server = LlamaServer::start(&self.shared.config, context).await?;
        tracing::info!(context, window = server.window(), "a llama-server takes requests at {}", server.base_url());
        let mut known = self.shared.known();
        known.context = context;
        known.window = server.window();
        known.last_used = Instant::now();
        drop(known);
        self.trouble.has_run = true;
        self.server = Some(server);
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), LlamaError> {
        match self.server.take() {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }

    /// Whoever gave the order holds all places: nobody is asking the server.
    async fn grow(&mut self, wanted: u64) -> Result<u64, LlamaError> {
        let known = *self.shared.known();
        let larger = known.context_for(wanted).max(known.context.saturating_mul(2)).min(known.max_context);
        if larger <= known.context {
            return Err(LlamaError::AtLimit { context: known.window });
        }
        if let Err(error) = self.stop().await {
            self.shared.known().max_context = known.context;
            return Err(error);
        }
        match self.start(larger).await {
            Ok(()) => {
                let mut now = self.shared.known();
                if now.window > known.window {
                    return Ok(now.window);
                }
                // The model was made for no more, or an argument of the user's says otherwise.
                now.max_context = now.context;
                Err(LlamaError::AtLimit { context: now.window })
            }
            Err(error) => {
                // Too large for the memory, most likely, when what worked before works again.
                match self.start(known.context).await {
                    Ok(()) => self.shared.known().max_context = known.context,
                    Err(again) => self.trouble.met(Instant::now(), self.starts, again, Duration::ZERO),
                }
                Err(error)
            }
        }
    }

    async fn why(&mut self, number: u64) -> Option<LlamaError> {
        if number == self.starts && self.server.is_some() {
            // Its connections close a moment before it is gone.
            let error = timeout(Duration::from_millis(END_LOOK_MS), ended(&mut self.server)).await.ok()?;
            self.has_ended(error);
        }
        self.trouble.last.as_ref().filter(|(_, of, _)| *of == number).map(|(.., error)| error.clone())
    }

    fn has_ended(&mut self, error: LlamaError) {
        tracing::warn!(code = error.code(), "{error}");
        let ran_for = self.server.take().map_or(Duration::ZERO, |server| server.ran_for());
        self.trouble.met(Instant::now(), self.starts, error, ran_for);
    }

    /// When it is time to look whether anybody still needs the server.
    fn idle_at(&self) -> Option<Instant> {
        self.server.as_ref()?;
        Some(self.shared.known().last_used + self.shared.config.idle_stop?)
    }

    async fn stop_when_idle(&mut self) {
        // A request under way is not idle; its end sets the time anew.
        let Ok(_all) = Arc::clone(&self.shared.places).try_acquire_many_owned(PLACES) else {
            self.shared.known().last_used = Instant::now();
            return;
        };
        if self.idle_at().is_some_and(|at| at <= Instant::now()) {
            tracing::info!("nobody has asked the llama-server for long; it is ended until somebody does");
            self.stop().await.unwrap_or_else(|error| tracing::warn!(code = error.code(), "{error}"));
        }
    }
}

/// How the server ended; never while there is none.
async fn ended(server: &mut Option<LlamaServer>) -> LlamaError {
    match server {
        Some(server) => server.ended().await,
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_followed_by_longer_rests_up_to_a_limit() {
        assert_eq!([1, 2, 3, 7, 60].map(|n| rest_after(n).as_secs()), [1, 2, 4, 60, 60]);
        let (error, begun) = (LlamaError::AtLimit { context: 1 }, Instant::now());
        let (mut trouble, seconds) = (Trouble::default(), Duration::from_secs);
        let rest = |trouble: &Trouble, now| trouble.unready(now).map(|unready| unready.rest);
        assert_eq!(rest(&trouble, begun), None);
        trouble.met(begun, 1, error.clone(), Duration::ZERO);
        trouble.met(begun, 2, error.clone(), seconds(59));
        assert_eq!(rest(&trouble, begun), Some(Some(seconds(2))));
        assert_eq!(rest(&trouble, begun + seconds(2)), None, "the rest is over");
        trouble.met(begun, 3, error, seconds(60));
        assert_eq!(rest(&trouble, begun), Some(Some(seconds(1))), "it had run well");
    }
}
