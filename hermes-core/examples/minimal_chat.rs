//! The smallest host: one question, and its answer as it comes.
//!
//! `cargo run -p hermes-core --example minimal_chat`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use hermes_core::hermes_providers::PracticeModel;
use hermes_core::hermes_store::memory::MemoryStore;
use hermes_core::{Engine, Event, EventKind, TokioClock, TurnResult};

/// Asks, and hands every piece of the answer to `show`.
pub async fn chat(show: impl Fn(&str) + Send + Sync + 'static) -> Result<TurnResult, Box<dyn Error>> {
    let clock = TokioClock::new();
    // A file instead: `SqliteStore::open(SqliteOptions::new("chat.db", clock.clone())).await?`.
    let store = Arc::new(MemoryStore::new(clock.clone()));
    // A real model instead: `HttpChatModel`.
    let model = Arc::new(PracticeModel::new());
    let engine = Engine::builder(store, model, clock)
        .events(Arc::new(move |event: Event| match event.kind {
            EventKind::TextDelta { text } => show(&text),
            EventKind::TextRestarted => show("\n(once more)\n"),
            _ => {}
        }))
        .build();
    Ok(engine.ask("hello").await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let print = |text: &str| {
        let mut out = std::io::stdout();
        // Somebody closed the pipe: nobody reads on.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let result = chat(print).await?;
    print(&format!("\n[{}, {} request]\n", result.reason.as_str(), result.api_calls));
    Ok(())
}
