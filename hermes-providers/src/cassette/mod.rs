//! Conversations with a real server, recorded once and replayed for ever: for the tests of programs that use this crate.
//!
//! A [`Cassette`] is a server on the loopback. While it records, it passes every request on to the real server and keeps
//! both sides; while it replays, it answers from its file and nothing leaves the computer. Whatever speaks HTTP can be put in
//! front of it: only the base URL changes.
//!
//! **No secret gets into the file.** Request headers are kept only when they are on a short list that has no credentials
//! in it. The values of the credentials that were sent, and every text that the caller names, are replaced wherever they show,
//! in addresses, bodies and answers, however an answer was cut into pieces.
//!
//! ```
//! use hermes_providers::cassette::Cassette;
//! use hermes_providers::{ChatMessage, ChatModel, ChatRequest, Delta, HttpChatModel, HttpModelConfig, Profiles};
//! # use futures::StreamExt as _;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("hello.json");
//! # std::fs::write(&file, r#"{"version":1,"base_path":"/v1","exchanges":[{
//! #   "request":{"method":"POST","target":"/v1/chat/completions","headers":{},"body":{"text":""}},
//! #   "response":{"status":200,"headers":{"content-type":"text/event-stream"},"pieces":[
//! #     {"text":"data: {\"choices\":[{\"delta\":{\"content\":\"Hello!\"},\"finish_reason\":\"stop\"}]}\n\n"},
//! #     {"text":"data: [DONE]\n\n"}]}}]}"#)?;
//! // `Cassette::open(file, "https://api.example.com/v1", secrets)` records when there is no file yet.
//! let cassette = Cassette::replay(&file).await?.in_order();
//!
//! let profile = Profiles::bundled()?.get("custom").ok_or("no such profile")?.clone();
//! let mut config = HttpModelConfig::new(profile, "any-model");
//! config.base_url = Some(cassette.base_url());
//! let model = HttpChatModel::new(config)?;
//! let request = ChatRequest::new(vec![ChatMessage::user("Hi")]);
//! let mut answer = model.stream(&request).await?;
//! while let Some(delta) = answer.next().await {
//!     if let Delta::Done(done) = delta? {
//!         assert_eq!(done.text, "Hello!");
//!     }
//! }
//! cassette.finish().await?; // an error when a request had no recorded answer
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod redact;
mod server;

use std::path::PathBuf;

pub use server::{Cassette, CassetteReport};

/// Largest request or answer, in bytes.
pub const MAX_CASSETTE_BODY_BYTES: usize = crate::loopback::MAX_BODY_BYTES;

/// What is wrong with a cassette.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The file cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is no cassette.
    #[error("{}: {message}", file.display())]
    Format {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The loopback gives no port.
    #[error("no server can be started on this computer: {0}")]
    Server(std::io::Error),
    /// The address of the real server is none, or no client can be made for it.
    #[error("{0}")]
    Upstream(String),
    /// Requests came for which nothing was recorded.
    #[error("nothing was recorded for: {}", requests.join("; "))]
    Unmatched {
        /// Method, path and the beginning of the body of each.
        requests: Vec<String>,
    },
    /// A text that must not be in the file would be in it.
    #[error("a secret would be in the file ({0}); nothing was written")]
    Secret(&'static str),
}
