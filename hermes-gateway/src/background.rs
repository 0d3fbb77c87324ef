//! The owner of the tasks that look after the store in a program that lives long.

use std::sync::Arc;

use hermes_core::Engine;
use hermes_store::Store;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{delegations, housekeeping, indexer};

/// The tasks of one gateway beside its turns. They end when it is dropped, and are waited for in [`Background::end`].
#[derive(Debug, Default)]
pub(crate) struct Background {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Background {
    /// Begins to look after a store: to be called once, when it is open. `committed` wakes the indexer.
    pub(crate) fn begin(&self, store: &Arc<dyn Store>, committed: &Arc<Notify>) {
        self.spawn(indexer::run(store.clone(), committed.clone(), indexer::Pace::default()));
        self.spawn(housekeeping::run(store.clone(), housekeeping::Rhythm::default()));
    }

    /// Begins to run tasks that conversations give away in the background: to be called once, when there is an engine.
    pub(crate) fn run_delegations(&self, engine: Engine) {
        self.spawn(delegations::run(engine));
    }

    /// A task that goes on until it is told to stop. It is dropped where it waits: its writes are transactions.
    fn spawn(&self, work: impl Future<Output = std::convert::Infallible> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }

    /// Stops the tasks and waits until they are gone.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    struct Held(Arc<Notify>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    async fn forever(held: Held) -> Infallible {
        let _held = held;
        std::future::pending().await
    }

    #[tokio::test]
    async fn the_end_waits_until_the_tasks_have_let_go_of_what_they_held() {
        let background = Background::default();
        let (first, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        background.spawn(forever(Held(first.clone())));
        background.end().await;
        assert_eq!(Arc::strong_count(&first), 1);
        // One that comes too late ends at once.
        background.spawn(forever(Held(gone.clone())));
        gone.notified().await;
    }

    #[tokio::test]
    async fn tasks_end_when_their_owner_is_dropped_without_an_end() {
        let gone = Arc::new(Notify::new());
        let background = Background::default();
        background.spawn(forever(Held(gone.clone())));
        drop(background);
        gone.notified().await;
    }
}
