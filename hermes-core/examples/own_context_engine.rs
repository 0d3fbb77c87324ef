//! Another way to shorten a history that has grown too long: the oldest exchanges are dropped, and no model is asked.
//!
//! `cargo run -p hermes-core --example own_context_engine`

use std::error::Error;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hermes_core::hermes_providers::{Script, ScriptedModel};
use hermes_core::hermes_store::memory::MemoryStore;
use hermes_core::hermes_store::{Role, StoredMessage};
use hermes_core::{
    CompactError, ContextEngine, Engine, Event, EventKind, History, NewView, Submission, Summarizer, TokioClock,
    ViewPart,
};

/// Keeps a note that something is gone, and everything from one of the last inputs on.
struct KeepLast {
    inputs: usize,
}

#[async_trait]
impl ContextEngine for KeepLast {
    /// A tenth of the window. The engine compares it with the size of each next request.
    fn threshold(&self, window: u64, _max_output_tokens: Option<u64>) -> Option<u64> {
        Some(window / 10)
    }

    /// The engine checks what this returns (smaller, every call with its result) and commits it; old rows are still
    /// shown to people.
    async fn compact(&self, history: History<'_>, _model: &dyn Summarizer) -> Result<NewView, CompactError> {
        let is_input = |(_, row): &(usize, &StoredMessage)| row.role == Role::User;
        let inputs = history.rows.iter().enumerate().filter(is_input).map(|(index, _)| index);
        let from = inputs.rev().nth(self.inputs - 1).filter(|from| *from > 0).ok_or(CompactError::Nothing)?;
        let note = ViewPart::Summary { content: "[What was said before this is left out.]".to_owned() };
        let kept = (from..history.rows.len()).map(|index| ViewPart::Carried { index, content: None });
        Ok(NewView { rows: std::iter::once(note).chain(kept).collect() })
    }
}

/// A conversation of `turns` long inputs. Returns what was said of its compressions.
pub async fn talk(turns: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let model = ScriptedModel::new(ScriptedModel::test_info());
    (0..turns).for_each(|number| model.push(Script::text(format!("answer {number}"))));
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let clock = TokioClock::new();
    let engine = Engine::builder(Arc::new(MemoryStore::new(clock.clone())), Arc::new(model), clock)
        .context(Arc::new(KeepLast { inputs: 2 }))
        .events(Arc::new(move |event: Event| {
            if let EventKind::Compressed { before, after, .. } = event.kind {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{before} -> {after} tokens"));
            }
        }))
        .build();
    let mut conversation = None;
    for number in 0..turns {
        let long = format!("Input {number}: {}", "so many words ".repeat(1_000));
        let result = engine.ask(Submission { conversation, ..Submission::text(long) }).await?;
        conversation = Some(result.conversation);
    }
    let told = told.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(told.clone())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in talk(12).await? {
        writeln!(std::io::stdout(), "the history was shortened: {line}")?;
    }
    Ok(())
}
