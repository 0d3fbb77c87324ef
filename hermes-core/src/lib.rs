//! How one turn runs.
//!
//! A conversation is a ledger, a turn is a transaction. An [`Engine`] accepts an input durably, takes the lease of the
//! conversation, builds the context, asks the model, writes every round of tool calls down before it runs them, and
//! leaves through one exit with exactly one [`EndReason`]. What it knows stands in the store: after a crash the next
//! engine reads the journal and goes on, without losing an input and without repeating an effect.
//!
//! ```
//! use std::sync::Arc;
//! use hermes_core::{Engine, TokioClock};
//! use hermes_providers::PracticeModel;
//! use hermes_store::memory::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), hermes_core::EngineError> {
//! let clock = TokioClock::new();
//! let store = Arc::new(MemoryStore::new(clock.clone()));
//! let engine = Engine::builder(store, Arc::new(PracticeModel::new()), clock).build();
//! let result = engine.ask("hello").await?;
//! println!("{}", result.answer);
//! # Ok(())
//! # }
//! ```
//!
//! The examples go on from here: `minimal_chat` shows the answer as it comes, `own_tool` adds a tool that a person must
//! allow, `own_context_engine` shortens long histories in another way.
//!
//! The crate does no IO of its own. Storage, models and tools come in as traits of their crates; time, prompt files
//! and people through the small seams of [`seams`](Clock). It has no global, reads no environment and no wall clock
//! ([`TokioClock`] is there for hosts that want it), and starts no task: everything runs inside the futures that the
//! host awaits, and dropping one is a crash that the next owner recovers from.

mod auxiliary;
mod budget;
mod builder;
mod cache;
mod clock;
mod closing;
mod compress;
mod delegate;
mod edit;
mod end;
mod engine;
mod event;
mod guardrail;
mod image;
mod input;
mod judge;
pub mod limits;
mod metrics;
mod nudge;
mod operator;
mod persist;
mod platform;
mod prefix;
mod projection;
mod prompt;
mod recovery;
mod repetition;
mod retry;
mod rewind;
mod ring;
mod route;
mod run;
mod seams;
mod shown;
mod stop;
mod title;
mod tokens;
mod trail;
mod turn;
mod watchdog;
mod windows;

#[cfg(feature = "test-util")]
pub mod testing;

pub use auxiliary::{Auxiliary, TaskTimes};
pub use builder::{EngineBuilder, Nobody, PlainSessions};
pub use clock::TokioClock;
pub use compress::{
    CompactError, CompressionSettings, ContextEngine, History, NewView, Summarizer, SummaryEngine, ViewFault, ViewPart,
};
pub use delegate::{CHILD_SOURCE, Child, ChildState, ChildStop, DelegationSettings, delegate_tool};
pub use end::{EndReason, Stopper, TurnError, TurnResult};
pub use engine::{Engine, EngineError, EngineParts, EngineSettings, Submission};
pub use event::{Event, EventKind, EventSink, NoEvents, PlannedCall, TakenInput};
pub use image::InputImage;
pub use input::Input;
pub use metrics::Metrics;
pub use operator::{Decision, UnknownCall, UnknownInput};
pub use rewind::{Rewinder, Undone};
pub use ring::{Cursor, GapReason, Replay};
pub use seams::{
    Clock, ContextFile, FixedPrompt, People, PromptMaterial, PromptSource, ToolHost, ToolSession, ToolSessions,
};
pub use stop::Interrupt;
pub use turn::Shortened;
pub use windows::{NoWindows, WindowKeeper};

pub use {hermes_providers, hermes_store, hermes_tools};
