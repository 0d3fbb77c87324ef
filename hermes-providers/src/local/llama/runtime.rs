//! The server that all models of a process share, over time.
//!
//! One task owns the process ([`super::worker`]). Whoever asks takes a *place* first and keeps it until the answer is read;
//! who would take the server away (to grow it, or because nobody asks) takes all places, so no answer is cut. A caller that
//! goes away stops nothing: what was begun for it is there for the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::config::{LlamaConfig, LlamaError};
use super::worker::{Order, Served, Unready, Worker};
use crate::chat::OwnWindow;

/// Most requests at once; the server has its own limit and lets others wait.
pub(super) const PLACES: u32 = 256;
/// Orders that wait for the worker: each place has one at most, beside the few who grow or ask why.
const ORDERS_MAX: usize = 512;
/// How long a window that should grow waits for answers under way. To shorten the history instead, the same busy server
/// would have to be asked for notes.
pub const LLAMA_GROW_WAIT_MS: u64 = 120_000;
/// How long the worker is given to say whether a process ended: one that died is known at once.
const WHY_MAX_MS: u64 = 2_000;

/// A `llama-server` that is begun with the first request and shared by all who ask it. Dropping it ends the process;
/// [`close`](Self::close) waits until it is gone.
#[derive(Debug)]
pub struct LlamaRuntime {
    shared: Arc<Shared>,
    /// Held for moves only, never over an await.
    worker: Mutex<Option<Handle>>,
    /// Who grows the window. The next one looks anew when it is free.
    grower: AsyncMutex<()>,
    closing: watch::Sender<bool>,
}

#[derive(Debug)]
struct Handle {
    orders: mpsc::Sender<Order>,
    /// The worker; it ends with this.
    task: JoinSet<()>,
}

/// What the worker and those who ask it share.
#[derive(Debug)]
pub(super) struct Shared {
    pub config: LlamaConfig,
    /// One for each request under way.
    pub places: Arc<Semaphore>,
    /// Held for looks and moves only, never over an await.
    known: Mutex<Known>,
}

/// What is known of the window, and of who asked last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// `--ctx-size` of the server that runs, or of the next one.
    pub context: u64,
    /// What one conversation has of it, in tokens.
    pub window: u64,
    /// The largest `--ctx-size` that is worth a try.
    pub max_context: u64,
    /// When a place was given back.
    pub last_used: Instant,
}

impl Known {
    /// The window of a server with another `--ctx-size`: it is divided in the same way.
    pub(super) fn window_with(&self, context: u64) -> u64 {
        let parts = u128::from(context) * u128::from(self.window) / u128::from(self.context.max(1));
        u64::try_from(parts).unwrap_or(u64::MAX)
    }

    /// The `--ctx-size` that gives a window, rounded up.
    pub(super) fn context_for(&self, window: u64) -> u64 {
        let whole = (u128::from(window) * u128::from(self.context)).div_ceil(u128::from(self.window.max(1)));
        u64::try_from(whole).unwrap_or(u64::MAX)
    }
}

impl Shared {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to ask, for one request.
pub(super) struct Place {
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.known().last_used = Instant::now();
    }
}

impl LlamaRuntime {
    /// Nothing is started yet.
    #[must_use]
    pub fn new(config: LlamaConfig) -> Self {
        let known = Known {
            context: config.context,
            window: config.context,
            max_context: config.max_context.max(config.context),
            last_used: Instant::now(),
        };
        let places = Arc::new(Semaphore::new(PLACES as usize));
        Self {
            shared: Arc::new(Shared { config, places, known: Mutex::new(known) }),
            worker: Mutex::default(),
            grower: AsyncMutex::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> &LlamaConfig {
        &self.shared.config
    }

    /// The window of one conversation, and how large it may be made.
    #[must_use]
    pub fn window(&self) -> OwnWindow {
        let known = *self.shared.known();
        OwnWindow { tokens: known.window, max: known.window_with(known.max_context).max(known.window) }
    }

    /// The server has named its window when it refused a request as too long: no more than that is there.
    pub(super) fn refused_above(&self, window: u64) {
        let mut known = self.shared.known();
        if window > 0 && window < known.window {
            known.window = window;
        }
    }

    fn worker(&self) -> MutexGuard<'_, Option<Handle>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the worker an order; it is begun with the first one. The answer of an order that nobody takes any more is an
    /// error at the other end of its reply.
    async fn order(&self, order: Order) {
        let orders = {
            let mut worker = self.worker();
            if *self.closing.borrow() {
                return;
            }
            let handle = worker.get_or_insert_with(|| {
                let (orders, taken) = mpsc::channel(ORDERS_MAX);
                let mut task = JoinSet::new();
                task.spawn(Worker::new(Arc::clone(&self.shared), self.closing.subscribe()).run(taken));
                Handle { orders, task }
            });
            handle.orders.clone()
        };
        // Sent to nobody it is dropped, and its reply with it.
        let _ = orders.send(order).await;
    }

    fn over(&self) -> LlamaError {
        LlamaError::Start { program: self.config().program(), why: "this program is ending".to_owned() }
    }

    /// A place, as soon as there is one.
    pub(super) async fn place(&self) -> Result<Place, LlamaError> {
        let permit = Arc::clone(&self.shared.places).acquire_owned().await.map_err(|_| self.over())?;
        Ok(Place { shared: Arc::clone(&self.shared), _permit: permit })
    }

    /// A server that takes requests. To be asked for by who has a place.
    pub(super) async fn ready(&self) -> Result<Served, Unready> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Ready { reply }).await;
        answer.await.unwrap_or_else(|_| Err(Unready { error: self.over(), rest: None, has_run: false }))
    }

    /// How the server of this number ended, when it did.
    pub(super) async fn why_ended(&self, number: u64) -> Option<LlamaError> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.order(Order::Why { number, reply }).await;
            answer.await.ok().flatten()
        };
        timeout(Duration::from_millis(WHY_MAX_MS), asked).await.ok().flatten()
    }

    /// Makes the window larger, to `wanted` tokens or twice as large, whichever is more, and to no more than it may be:
    /// [`ChatModel::grow_window`](crate::ChatModel::grow_window). Waits for answers under way, and cuts none. What the
    /// server had cached is gone.
    ///
    /// # Errors
    /// [`LlamaError::AtLimit`], [`LlamaError::InUse`], and those of a start: the window is then as it was, and where the
    /// larger one did not fit, none is tried again.
    pub async fn grow(&self, from: u64, wanted: u64) -> Result<u64, LlamaError> {
        let _one = self.grower.lock().await;
        let now = self.window();
        if now.tokens > from {
            return Ok(now.tokens);
        }
        if now.max <= now.tokens {
            return Err(LlamaError::AtLimit { context: now.tokens });
        }
        let limit = Duration::from_millis(LLAMA_GROW_WAIT_MS);
        let all = timeout(limit, Arc::clone(&self.shared.places).acquire_many_owned(PLACES)).await;
        let all = all.map_err(|_| LlamaError::InUse { seconds: limit.as_secs() })?.map_err(|_| self.over())?;
        let (reply, answer) = oneshot::channel();
        self.order(Order::Grow { wanted, all, reply }).await;
        answer.await.unwrap_or_else(|_| Err(self.over()))
    }

    /// Ends the process and waits until it is gone. What asks it is cut; later requests are refused.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        let handle = self.worker().take();
        let Some(Handle { orders, mut task }) = handle else { return };
        drop(orders);
        while task.join_next().await.is_some() {}
    }
}
