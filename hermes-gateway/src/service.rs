//! The gateway: requests in, answers and messages out, and the tasks that work on conversations.
//!
//! Every task has an owner: [`Gateway`] tracks them and waits for them in [`Gateway::shutdown`]. A client that goes away
//! does not end a turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_core::{EndReason, Engine, EngineError, Input, Interrupt, Stopper, Submission, TurnResult};
use hermes_store::{AdmissionId, ConversationId, Receipt, StoreError};
use tokio::sync::{broadcast, watch};
use tokio_util::task::TaskTracker;

use crate::compose::{Launch, Parts};
use crate::hub::Hub;
use crate::protocol::{
    PromptSubmitParams, PromptSubmitResponse, Request, Response, RpcError, ServerMessage, SessionEventsResponse,
    TurnWaitParams,
};
use crate::{care, models, providers, sessions};

/// What a finished piece of work leaves for those who wait for it.
type Outcome = Result<TurnResult, RpcError>;

/// Work on one admission: its result, once it has one.
type Work = watch::Receiver<Option<Outcome>>;

struct Shared {
    parts: Parts,
    hub: Arc<Hub>,
    tasks: TaskTracker,
    /// Work by admission. Held for map operations only, never over an await.
    work: Mutex<HashMap<AdmissionId, (ConversationId, Work)>>,
}

/// A running gateway.
pub struct Gateway {
    shared: Arc<Shared>,
}

/// One client's connection to a gateway in the same process: requests through [`Caller`], messages through
/// [`Client::next`].
pub struct Client {
    caller: Caller,
    messages: broadcast::Receiver<ServerMessage>,
}

/// Sends requests to a gateway. Cheap to clone.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<Shared>,
}

impl Gateway {
    /// Reads the configuration and chooses the model. The store is opened when something needs it.
    ///
    /// # Errors
    /// What is wrong with the configuration, as a person can mend it.
    pub async fn start(launch: Launch) -> Result<Self, RpcError> {
        let (parts, hub) = Parts::gather(launch).await?;
        let shared = Arc::new(Shared { parts, hub, tasks: TaskTracker::new(), work: Mutex::default() });
        if shared.parts.serves_all() {
            // Tasks in the background that an earlier process left wait for no client.
            let begun = shared.clone();
            shared.tasks.spawn(async move {
                if let Err(error) = begun.parts.engine().await {
                    tracing::debug!(code = error.code, "the engine is built with the first request: {}", error.message);
                }
            });
        }
        Ok(Self { shared })
    }

    /// A new client. It hears everything from now on.
    #[must_use]
    pub fn connect(&self) -> Client {
        Client { caller: Caller { shared: self.shared.clone() }, messages: self.shared.hub.subscribe() }
    }

    /// Which model is used and why, as one line for a person.
    #[must_use]
    pub fn model_line(&self) -> String {
        self.shared.parts.model_line()
    }

    /// Stops what runs, in order: turns leave through their one exit, who looks after the store and background processes
    /// end, the store is closed.
    pub async fn shutdown(self) {
        self.shared.tasks.close();
        if let Some(engine) = self.shared.parts.engine_if_built() {
            engine.wind_down(0).await;
        }
        self.shared.tasks.wait().await;
        self.shared.parts.close().await;
    }
}

impl Client {
    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As the request's own documentation says.
    pub async fn call(&self, request: Request) -> Result<Response, RpcError> {
        self.caller.call(request).await
    }

    /// A handle that only sends requests.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// The next message; `None` when the gateway is gone. Cancelling it loses nothing. A client that was too slow is
    /// told that it missed some; what they were, the engine knows (`session/events`).
    pub async fn next(&mut self) -> Option<ServerMessage> {
        match self.messages.recv().await {
            Ok(message) => Some(message),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(ServerMessage::EventsMissed {}),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Caller {
    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As the request's own documentation says.
    pub async fn call(&self, request: Request) -> Result<Response, RpcError> {
        let shared = &self.shared;
        match request {
            Request::PromptSubmit(params) => shared.clone().submit(params).await.map(Response::Submitted),
            Request::SessionRetry(params) => shared.clone().retry(params.conversation).await.map(Response::Submitted),
            Request::TurnWait(params) => shared.wait(params).await,
            Request::TurnInterrupt(params) => {
                let running = shared.interrupt(&params.conversation).await?;
                Ok(Response::Interrupted { running })
            }
            Request::SessionCompress(params) => {
                let engine = shared.parts.engine().await?;
                let done = engine.compress(&params.conversation, params.focus.as_deref()).await;
                done.map(Response::Compressed).map_err(|error| engine_error(&error))
            }
            Request::SessionEvents(params) => {
                let engine = shared.parts.engine().await?;
                // Before the events: a question that is asked between the two comes as a message of its own.
                let questions = shared.hub.open_questions(&params.conversation);
                let replay = engine.events_since(&params.conversation, params.after);
                Ok(Response::Events(SessionEventsResponse { replay, questions }))
            }
            Request::SessionChildren(params) => {
                let engine = shared.parts.engine().await?;
                let children = engine.children(&params.conversation).await;
                children.map(Response::Children).map_err(|error| engine_error(&error))
            }
            Request::SessionStopChild(params) => {
                let engine = shared.parts.engine().await?;
                let stopped = engine.stop_child(&params.conversation, &params.delegation).await;
                stopped.map(Response::ChildStopped).map_err(|error| engine_error(&error))
            }
            Request::SessionUnknown(params) => {
                let engine = shared.parts.engine().await?;
                let found = engine.unknown(&params.conversation).await;
                found.map(Response::Unknown).map_err(|error| engine_error(&error))
            }
            Request::SessionDecide(params) => {
                let engine = shared.parts.engine().await?;
                let decided = engine.resolve(&params.admission, params.generation, params.decision).await;
                decided.map(Response::Decided).map_err(|error| engine_error(&error))
            }
            Request::TurnResume(params) => {
                let engine = shared.parts.engine().await?;
                let result = engine.drain(&params.conversation).await.map_err(|error| engine_error(&error))?;
                Ok(Response::Turn(result.map(Box::new)))
            }
            Request::ApprovalRespond(params) => {
                Ok(Response::Accepted { taken: shared.hub.answer_approval(&params.id, params.answer) })
            }
            Request::ClarifyRespond(params) => {
                Ok(Response::Accepted { taken: shared.hub.answer_clarify(&params.id, params.answers) })
            }
            Request::ModelStatus => Ok(Response::Model(Box::new(shared.parts.model_status().await))),
            Request::ToolsList => Ok(Response::Tools(shared.parts.tools_list())),
            Request::SystemDoctor => Ok(Response::Doctor(shared.parts.doctor().await)),
            request => match care::answer(&shared.parts, request).await {
                Ok(answer) => answer,
                Err(request) => match models::answer(&shared.parts, request).await {
                    Ok(answer) => answer,
                    Err(request) => match providers::answer(&shared.parts, request) {
                        Ok(answer) => answer,
                        Err(request) => sessions::answer(&shared.parts, request).await,
                    },
                },
            },
        }
    }
}

impl Shared {
    fn works(&self) -> MutexGuard<'_, HashMap<AdmissionId, (ConversationId, Work)>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_when_closing(&self) -> Result<(), RpcError> {
        if self.tasks.is_closed() {
            return Err(RpcError {
                code: "HM0201".to_owned(),
                message: "the gateway is shutting down; send the input again when it is back".to_owned(),
                usage: false,
            });
        }
        Ok(())
    }

    async fn submit(self: Arc<Self>, params: PromptSubmitParams) -> Result<PromptSubmitResponse, RpcError> {
        self.refuse_when_closing()?;
        let engine = self.parts.engine().await?;
        let admitted = self.admit(&engine, params).await?;
        self.work_on(engine, &admitted.receipt);
        Ok(admitted)
    }

    /// Undoes the last input of a session and hands it in again, both or neither.
    async fn retry(self: Arc<Self>, conversation: ConversationId) -> Result<PromptSubmitResponse, RpcError> {
        self.refuse_when_closing()?;
        let engine = self.parts.engine().await?;
        let retried = engine.retry(&conversation, &self.parts.principal()).await;
        let (_, receipt) = retried.map_err(|error| engine_error(&error))?;
        self.work_on(engine, &receipt);
        Ok(PromptSubmitResponse { receipt, replayed: false })
    }

    async fn admit(&self, engine: &Engine, params: PromptSubmitParams) -> Result<PromptSubmitResponse, RpcError> {
        let mut input = Input::text(params.text);
        input.images = params.images;
        input.platform = params.platform;
        let submission = Submission {
            conversation: params.conversation,
            principal: self.parts.principal(),
            request_id: params.request_id,
            intent: params.intent.unwrap_or(hermes_store::Intent::Queue),
            input,
        };
        let outcome = engine.submit(submission).await.map_err(|error| engine_error(&error))?;
        let receipt = outcome.receipt().clone();
        let replayed = matches!(outcome, hermes_store::AdmitOutcome::Replayed(_));
        Ok(PromptSubmitResponse { receipt, replayed })
    }

    /// Begins to work on an admission, unless somebody here does.
    fn work_on(self: &Arc<Self>, engine: Engine, receipt: &Receipt) -> Work {
        let mut works = self.works();
        if let Some((_, work)) = works.get(&receipt.admission) {
            return work.clone();
        }
        let (done, work) = watch::channel(None);
        works.insert(receipt.admission.clone(), (receipt.conversation.clone(), work.clone()));
        let shared = self.clone();
        let receipt = receipt.clone();
        self.tasks.spawn(async move {
            let result = engine.run_until(&receipt.conversation, &receipt.admission).await;
            shared.works().remove(&receipt.admission);
            let is_answered = result.as_ref().is_ok_and(|result| result.reason == EndReason::Answered);
            // Nobody may be waiting; the transcript has the answer.
            let _ = done.send(Some(result.map_err(|error| engine_error(&error))));
            // Behind the answer: whoever waits for that does not wait for a title.
            if is_answered && let Err(error) = engine.title(&receipt.conversation).await {
                tracing::warn!(code = error.code(), "no title could be given: {error}");
            }
        });
        work
    }

    async fn wait(self: &Arc<Self>, params: TurnWaitParams) -> Result<Response, RpcError> {
        let known = self.works().get(&params.admission).map(|(_, work)| work.clone());
        let mut work = match known {
            Some(work) => work,
            None => {
                let engine = self.parts.engine().await?;
                let record = engine.store().admission(&params.admission).await.map_err(|error| store_error(&error))?;
                self.work_on(engine, &record.receipt)
            }
        };
        let outcome = work.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        match outcome {
            Ok(Some(outcome)) => outcome.map(|result| Response::Turn(Some(Box::new(result)))),
            // The task ended without a word: it panicked. The input is in the store, and is run again or shown.
            _ => Err(RpcError {
                code: "HM0202".to_owned(),
                message: "the work on this input ended without a result; resume the session to go on".to_owned(),
                usage: false,
            }),
        }
    }

    /// Stops the running turn; an input that only waits is taken back.
    async fn interrupt(&self, conversation: &ConversationId) -> Result<bool, RpcError> {
        let Some(engine) = self.parts.engine_if_built() else { return Ok(false) };
        if engine.interrupt(conversation, Stopper::User, Interrupt::Hard) {
            return Ok(true);
        }
        let waiting: Vec<AdmissionId> =
            self.works().iter().filter(|(_, (at, _))| at == conversation).map(|(id, _)| id.clone()).collect();
        let mut cancelled = false;
        for admission in waiting {
            // One that was begun meanwhile cannot be taken back; its turn can be stopped with the next request.
            cancelled |= engine.store().cancel(&admission).await.is_ok();
        }
        if cancelled || engine.interrupt(conversation, Stopper::User, Interrupt::Hard) {
            return Ok(true);
        }
        // Nothing of the conversation itself runs: what is meant is what it gave away in the background.
        Ok(engine.interrupt_children(conversation, Stopper::User, Interrupt::Hard) > 0)
    }
}

/// A failure of the engine for a client.
pub(crate) fn engine_error(error: &EngineError) -> RpcError {
    let usage = matches!(
        error,
        EngineError::EmptyInput
            | EngineError::InputTooLarge { .. }
            | EngineError::TooManyImages { .. }
            | EngineError::NotAnImage { .. }
    );
    RpcError { code: error.code().to_owned(), message: error.to_string(), usage }
}

/// A failure of the store for a client.
pub(crate) fn store_error(error: &StoreError) -> RpcError {
    let usage = matches!(error, StoreError::NotFound { .. } | StoreError::Invalid { .. } | StoreError::Limit { .. });
    RpcError { code: error.code().to_owned(), message: error.to_string(), usage }
}
