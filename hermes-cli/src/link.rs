//! The line to a gateway: requests one way, messages the other.
//!
//! Commands and the two ways to talk know only these traits, so tests put a scripted gateway behind them.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use hermes_gateway::protocol::{
    ConversationSummary, ModelStatusResponse, Request, Response, RpcError, ServerMessage, SessionListParams,
    SessionRefParams, SessionResolveParams, SessionResolveResponse, SessionShowParams, SessionShowResponse,
};

/// Sends requests.
pub(crate) trait Caller: Send + Sync {
    /// Sends one and waits for its answer. Requests may overlap.
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Response, RpcError>>;
}

/// Receives what the gateway sends of its own accord.
pub(crate) trait Messages: Send {
    /// The next message; `None` when the gateway is gone. Dropping the future loses no message.
    fn next(&mut self) -> BoxFuture<'_, Option<ServerMessage>>;
}

/// Both, and what the gateway says of its model.
pub(crate) struct Link {
    /// Sends requests.
    pub(crate) caller: Arc<dyn Caller>,
    /// Receives messages.
    pub(crate) messages: Box<dyn Messages>,
    /// Which model is used and why: one line for a person.
    pub(crate) model_line: String,
    /// Where the history of typed inputs is kept.
    pub(crate) history: Option<PathBuf>,
}

/// The code of an answer that does not fit the request.
const CODE_WRONG_RESPONSE: &str = "HM0291";

/// The error for an answer that does not fit: the gateway and this program are of different versions.
pub(crate) fn wrong_response(wanted: &str) -> RpcError {
    RpcError {
        code: CODE_WRONG_RESPONSE.to_owned(),
        message: format!(
            "the gateway answered something else than {wanted}; the gateway and this program are of different versions"
        ),
        usage: false,
    }
}

/// Sends a request and takes one kind of answer out of it.
macro_rules! request {
    ($link:expr, $request:expr, $pattern:pat => $value:expr) => {
        match $link.call($request).await? {
            $pattern => Ok($value),
            _ => Err($crate::link::wrong_response(stringify!($pattern))),
        }
    };
}
pub(crate) use request;

impl Link {
    /// Sends one request and waits for its answer.
    pub(crate) fn call(&self, request: Request) -> BoxFuture<'static, Result<Response, RpcError>> {
        self.caller.call(request)
    }

    /// The conversation with the newest activity.
    pub(crate) async fn last(&self) -> Result<SessionResolveResponse, RpcError> {
        let params = SessionResolveParams { last: true, name: None, exact: false };
        request!(self, Request::SessionResolve(params), Response::SessionResolved(found) => found)
    }

    /// A conversation by id, beginning of an id, or title.
    pub(crate) async fn find(&self, name: &str) -> Result<SessionResolveResponse, RpcError> {
        let params = SessionResolveParams { last: false, name: Some(name.to_owned()), exact: false };
        request!(self, Request::SessionResolve(params), Response::SessionResolved(found) => found)
    }

    /// As [`Link::find`], for what changes or removes it: a title that several have is refused.
    pub(crate) async fn find_exactly(&self, name: &str) -> Result<ConversationSummary, RpcError> {
        let params = SessionResolveParams { last: false, name: Some(name.to_owned()), exact: true };
        let found = request!(self, Request::SessionResolve(params), Response::SessionResolved(found) => found)?;
        if let Some(note) = found.note {
            eprintln!("note: {}", crate::text::harmless(&note));
        }
        Ok(found.session)
    }

    /// Conversations, newest activity first, with those that were put away or without; 0 = as many as the gateway finds
    /// right.
    pub(crate) async fn list(&self, limit: usize, archived: bool) -> Result<Vec<ConversationSummary>, RpcError> {
        let params = SessionListParams { limit, before_ms: None, archived };
        request!(self, Request::SessionList(params), Response::Sessions(list) => list)
    }

    /// A conversation with its rows after a place.
    pub(crate) async fn show(&self, params: SessionShowParams) -> Result<SessionShowResponse, RpcError> {
        request!(self, Request::SessionShow(params), Response::Session(shown) => *shown)
    }

    /// Which model is used.
    pub(crate) async fn model(&self) -> Result<ModelStatusResponse, RpcError> {
        request!(self, Request::ModelStatus, Response::Model(status) => *status)
    }

    /// Deletes a conversation.
    pub(crate) async fn delete(&self, params: SessionRefParams) -> Result<(), RpcError> {
        request!(self, Request::SessionDelete(params), Response::Deleted => ())
    }
}
