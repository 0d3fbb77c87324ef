//! Who waits for a change of a conversation, and how they hear of it.
//!
//! Waiters are kept by conversation, so that a change wakes those of its conversation and no others. A change of this
//! process wakes them directly. Those of other processes are told with NOTIFY, and two tasks do the work: `tell` sends
//! what this process changed, many conversations in one statement; `listen` hears what others changed.
//!
//! A NOTIFY inside the transaction would make all commits of the database wait for each other: PostgreSQL takes one lock
//! for the whole database, from the COMMIT's begin to its end. So it is sent right after it. A process that dies between
//! the two has told nobody; every waiter also looks by itself, each [`POLL_MAX_MS`](super::driver::POLL_MAX_MS).

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgListener;
use sqlx::{Executor as _, PgPool};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::conn::Pool;
use crate::ids::ConversationId;

/// Changes that wait to be told to other processes; beyond it they find out by themselves.
const TELL_QUEUE_MAX: usize = 1_024;
/// Changes that are told in one statement.
const TELL_BATCH_MAX: usize = 256;
/// First and longest pause before a lost connection is opened again.
const RECONNECT_FIRST_MS: u64 = 100;
const RECONNECT_MAX_MS: u64 = 10_000;

/// The test whether the server still hears us.
const TEST: &str = "SELECT CAST(1 AS BIGINT)";
/// One notification for each text. `$1` is the channel.
pub(super) const TELL: &str = "SELECT pg_notify($1, told) FROM UNNEST(CAST($2 AS TEXT[])) AS told";

/// How the connection that hears is opened and tested.
pub(super) struct Listen {
    /// A pool for one connection.
    pub(super) pool: Box<dyn Fn() -> PgPool + Send + Sync>,
    /// Longest wait for an answer.
    pub(super) answer: Duration,
    /// Silence after which the connection is tested, in milliseconds.
    pub(super) test_ms: u64,
}

fn silent() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

#[derive(Default)]
struct Entry {
    notify: Arc<Notify>,
    waiters: usize,
}

type Waiting = Mutex<HashMap<ConversationId, Entry>>;

/// The waiters of one store.
pub(super) struct Wakes {
    waiting: Arc<Waiting>,
    queue: mpsc::Sender<ConversationId>,
    /// Distinguishes our own notifications from those of others.
    instance: String,
    channel: String,
}

/// One waiter, registered until it is dropped.
pub(super) struct Waiter {
    waiting: Arc<Waiting>,
    conversation: ConversationId,
    notify: Arc<Notify>,
}

impl Deref for Waiter {
    type Target = Notify;

    fn deref(&self) -> &Notify {
        &self.notify
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        if let Some(entry) = waiting.get_mut(&self.conversation) {
            entry.waiters -= 1;
            if entry.waiters == 0 {
                waiting.remove(&self.conversation);
            }
        }
    }
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, HashMap<ConversationId, Entry>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wakes {
    /// The waiters, and the changes that [`tell`](Self::tell) is to send.
    pub(super) fn new(schema: &str) -> (Self, mpsc::Receiver<ConversationId>) {
        let (queue, changes) = mpsc::channel(TELL_QUEUE_MAX);
        let instance = uuid::Uuid::now_v7().simple().to_string();
        let channel = format!("hermes_{schema}");
        (Self { waiting: Arc::default(), queue, instance, channel }, changes)
    }

    /// Registers a waiter.
    pub(super) fn waiter(&self, conversation: &ConversationId) -> Waiter {
        let mut waiting = lock(&self.waiting);
        let entry = waiting.entry(conversation.clone()).or_default();
        entry.waiters += 1;
        let notify = Arc::clone(&entry.notify);
        Waiter { waiting: Arc::clone(&self.waiting), conversation: conversation.clone(), notify }
    }

    fn wake(&self, conversation: &ConversationId) {
        let entry = lock(&self.waiting).get(conversation).map(|entry| Arc::clone(&entry.notify));
        if let Some(notify) = entry {
            notify.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for entry in lock(&self.waiting).values() {
            entry.notify.notify_waiters();
        }
    }

    /// A change of this process was committed.
    pub(super) fn changed(&self, conversation: ConversationId) {
        self.wake(&conversation);
        // A full queue drops the notification, not the change: the others look by themselves.
        let _ = self.queue.try_send(conversation);
    }

    /// What others said. `None` for what is not ours to hear.
    fn heard(&self, payload: &str) -> Option<ConversationId> {
        let (instance, conversation) = payload.split_once(':')?;
        (instance != self.instance).then(|| ConversationId::parse(conversation).ok()).flatten()
    }

    /// Sends what this process changed to the other processes, until the store is closed.
    pub(super) async fn tell(self: Arc<Self>, pool: Pool, mut changes: mpsc::Receiver<ConversationId>) {
        let mut batch = Vec::with_capacity(TELL_BATCH_MAX);
        while changes.recv_many(&mut batch, TELL_BATCH_MAX).await > 0 {
            let told: BTreeSet<_> = batch.drain(..).map(|id| format!("{}:{id}", self.instance)).collect();
            let told: Vec<String> = told.into_iter().collect();
            if let Err(error) = sqlx::query(TELL).bind(&self.channel).bind(told).execute(&pool).await {
                tracing::debug!(%error, "other processes were not told of a change; they look by themselves");
            }
        }
    }

    /// Hears what other processes changed, until the store is closed.
    ///
    /// Each connection is the only one of a pool of its own: one that the network swallowed goes on saying good-bye for
    /// as long as the kernel tries, and must not stand in the way of the next.
    pub(super) async fn listen(self: Arc<Self>, listen: Listen) {
        let mut pause = RECONNECT_FIRST_MS;
        loop {
            let error = self.listen_once(&listen, &mut pause).await;
            tracing::debug!(%error, pause, "the connection for notifications was lost");
            tokio::time::sleep(Duration::from_millis(pause)).await;
            pause = (pause * 2).min(RECONNECT_MAX_MS);
        }
    }

    /// Listens on one connection until it is lost.
    async fn listen_once(&self, listen: &Listen, pause: &mut u64) -> sqlx::Error {
        let pool = (listen.pool)();
        let open = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.eager_reconnect(false);
            listener.listen(&self.channel).await?;
            Ok(listener)
        };
        let mut listener = match timeout(listen.answer, open).await {
            Ok(Ok(listener)) => listener,
            Ok(Err(error)) => return error,
            Err(_) => return silent(),
        };
        let test_after = Duration::from_millis(listen.test_ms);
        *pause = RECONNECT_FIRST_MS;
        // Whatever happened while nobody listened is found by looking.
        self.wake_all();
        loop {
            match timeout(test_after, listener.try_recv()).await {
                Ok(Ok(Some(told))) => {
                    if let Some(conversation) = self.heard(told.payload()) {
                        self.wake(&conversation);
                    }
                }
                Ok(Ok(None)) => return sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into()),
                Ok(Err(error)) => return error,
                // Nothing to hear, or nobody there? Silence is all that a dead peer says.
                Err(_) => match timeout(listen.answer, listener.execute(TEST)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return error,
                    Err(_) => return silent(),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(name: &str) -> ConversationId {
        ConversationId::parse(name).unwrap()
    }

    #[tokio::test]
    async fn a_change_wakes_the_waiters_of_its_conversation_alone() {
        let (wakes, mut changes) = Wakes::new("s");
        let (a, b) = (wakes.waiter(&conversation("a")), wakes.waiter(&conversation("b")));
        let (mut on_a, mut on_b) = (Box::pin(a.notified()), Box::pin(b.notified()));
        on_a.as_mut().enable();
        on_b.as_mut().enable();
        wakes.changed(conversation("a"));
        assert!(on_a.as_mut().enable(), "woken");
        assert!(!on_b.as_mut().enable(), "not woken");
        assert_eq!(changes.try_recv().unwrap(), conversation("a"));
    }

    #[test]
    fn nobody_is_kept_who_no_longer_waits() {
        let (wakes, _changes) = Wakes::new("s");
        let (first, second) = (wakes.waiter(&conversation("a")), wakes.waiter(&conversation("a")));
        drop(first);
        assert_eq!(lock(&wakes.waiting).len(), 1);
        drop(second);
        assert!(lock(&wakes.waiting).is_empty());
    }

    #[test]
    fn only_what_others_said_is_heard() {
        let (wakes, _changes) = Wakes::new("s");
        assert_eq!(wakes.heard("other:c"), Some(conversation("c")));
        assert_eq!(wakes.heard(&format!("{}:c", wakes.instance)), None);
        for strange in ["", "c", "other:", "other:a b\n"] {
            assert_eq!(wakes.heard(strange), None, "{strange:?}");
        }
    }

    #[test]
    fn a_full_queue_drops_notifications_and_keeps_its_limit() {
        let (wakes, mut changes) = Wakes::new("s");
        for _ in 0..TELL_QUEUE_MAX + 10 {
            wakes.changed(conversation("c"));
        }
        let mut kept = 0;
        while changes.try_recv().is_ok() {
            kept += 1;
        }
        assert_eq!(kept, TELL_QUEUE_MAX);
    }
}
