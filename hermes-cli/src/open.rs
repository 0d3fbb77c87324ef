//! Opens the line to a gateway in this process. The only place that knows the real one.

use std::sync::Arc;

use futures::future::BoxFuture;
use hermes_gateway::config::{Env, Scope};
use hermes_gateway::protocol::{Request, Response, RpcError, ServerMessage};
use hermes_gateway::{Client, Gateway, Launch, Overrides};

use crate::args::SelectArgs;
use crate::exit::Fault;
use crate::link::{Caller, Link, Messages};

/// What a gateway is started with.
#[derive(Debug, Clone)]
pub(crate) struct LaunchPlan {
    /// The profile.
    pub(crate) profile: Option<String>,
    /// What is used in this run instead of what the configuration says.
    pub(crate) select: SelectArgs,
    /// Whether a person is there to answer questions.
    pub(crate) attended: bool,
    /// Whether this run goes on after an answer, so that a conversation can be given a title.
    pub(crate) titles: bool,
    /// Whether turns will be run: a local model server is looked for only then.
    pub(crate) needs_model: bool,
}

/// A gateway and the line to it.
pub(crate) struct Opened {
    /// The line.
    pub(crate) link: Link,
    gateway: Gateway,
}

impl Opened {
    /// Stops what runs, in order, and waits for it.
    pub(crate) async fn shutdown(self) {
        self.gateway.shutdown().await;
    }
}

/// Starts a gateway.
///
/// # Errors
/// What is wrong with the configuration or the store.
pub(crate) async fn open(plan: LaunchPlan) -> Result<Opened, Fault> {
    let env = Env::of_process();
    // A home that cannot be found is told by the start, and better.
    let history = Scope::resolve(&env, plan.profile.as_deref()).ok().map(|scope| scope.history());
    let select = plan.select;
    let overrides = Overrides {
        model: select.model,
        provider: select.provider,
        toolsets: (!select.toolsets.is_empty()).then_some(select.toolsets),
        max_turns: select.max_turns.map(u64::from),
        yolo: select.yolo,
        attended: plan.attended,
        titles: plan.titles,
        source: "cli".to_owned(),
        ..Overrides::default()
    };
    let launch = Launch { env, profile: plan.profile, overrides, needs_model: plan.needs_model };
    let gateway = Gateway::start(launch).await?;
    let client = gateway.connect();
    let link = Link {
        caller: Arc::new(client.caller()),
        messages: Box::new(client),
        model_line: gateway.model_line(),
        history,
    };
    Ok(Opened { link, gateway })
}

impl Caller for hermes_gateway::Caller {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Response, RpcError>> {
        let caller = self.clone();
        // The inherent method, not this one.
        #[allow(clippy::large_futures, reason = "it is boxed right here")]
        Box::pin(async move { hermes_gateway::Caller::call(&caller, request).await })
    }
}

impl Messages for Client {
    fn next(&mut self) -> BoxFuture<'_, Option<ServerMessage>> {
        Box::pin(Client::next(self))
    }
}
