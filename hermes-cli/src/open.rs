//! Opens the line to a gateway in this process.

use crate::args::SelectArgs;
use crate::exit::Fault;
use crate::link::Link;

/// What a gateway is started with.
#[derive(Debug, Clone)]
pub(crate) struct LaunchPlan {
    /// The profile.
    pub(crate) profile: Option<String>,
    /// What is used in this run instead of what the configuration says.
    pub(crate) select: SelectArgs,
    /// Whether a person is there to answer questions.
    pub(crate) attended: bool,
    /// Whether turns will be run: a local model server is looked for only then.
    pub(crate) needs_model: bool,
}

/// A gateway and the line to it.
pub(crate) struct Opened {
    /// The line.
    pub(crate) link: Link,
}

impl Opened {
    /// Stops what runs, in order, and waits for it.
    pub(crate) async fn shutdown(self) {}
}

/// Starts a gateway.
///
/// # Errors
/// What is wrong with the configuration or the store.
pub(crate) async fn open(_plan: LaunchPlan) -> Result<Opened, Fault> {
    Err(Fault::Failed("the gateway is not wired yet".to_owned()))
}
