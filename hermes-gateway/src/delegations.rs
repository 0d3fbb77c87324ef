//! Runs tasks that conversations gave away in the background, as long as the program lives.

use std::convert::Infallible;
use std::time::Duration;

use hermes_core::Engine;
use hermes_store::limits::HEARTBEAT_MS;

/// Runs them until it is dropped. When the engine ends in order it ends its work, and this only waits.
pub(crate) async fn run(engine: Engine) -> Infallible {
    loop {
        match engine.run_delegations().await {
            Ok(()) => return std::future::pending().await,
            Err(error) => {
                tracing::warn!(code = error.code(), "tasks in the background are run later: {error}");
                tokio::time::sleep(Duration::from_millis(HEARTBEAT_MS)).await;
            }
        }
    }
}
