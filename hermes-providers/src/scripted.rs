//! A model that answers from a queue, for tests of whoever speaks to a [`ChatModel`].
//!
//! ```
//! # #[cfg(feature = "test-util")] {
//! use hermes_providers::{Script, ScriptedModel};
//! let model = ScriptedModel::new(ScriptedModel::test_info());
//! model.push(Script::calls([("call_1", "terminal", r#"{"command":"ls"}"#)]));
//! model.push(Script::text("done"));
//! assert_eq!(model.left(), 2);
//! # }
//! ```

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use crate::chat::{
    ChatModel, ChatRequest, CompletedCall, Completion, Delta, DeltaStream, Finish, ModelInfo, Sidecar, Usage,
};
use crate::error::{ErrorClass, ProviderError};
use crate::json::is_whole_json;

/// How a scripted answer ends.
#[derive(Debug, Clone)]
enum End {
    Done(Box<Completion>),
    Error(ProviderError),
    /// The stream stays open and silent until it is dropped.
    Hang,
}

/// One scripted answer.
#[derive(Debug, Clone)]
pub struct Script {
    /// Comes out of `stream()` itself instead of a head.
    head_error: Option<ProviderError>,
    /// `stream()` never returns.
    head_hang: bool,
    deltas: Vec<Delta>,
    end: End,
}

impl Script {
    fn new(deltas: Vec<Delta>, end: End) -> Self {
        Self { head_error: None, head_hang: false, deltas, end }
    }

    /// A final answer: one text delta (none when it is empty), finish `stop`.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        let deltas = if text.is_empty() { Vec::new() } else { vec![Delta::Text(text.clone())] };
        Self::new(deltas, End::Done(Box::new(Completion { text, ..empty(Finish::Stop) })))
    }

    /// Tool calls, `(id, name, arguments)` each. An empty id stands for "the provider sent none".
    #[must_use]
    pub fn calls<I, A, B, C>(calls: I) -> Self
    where
        I: IntoIterator<Item = (A, B, C)>,
        A: Into<String>,
        B: Into<String>,
        C: Into<String>,
    {
        let calls: Vec<CompletedCall> = calls
            .into_iter()
            .map(|(id, name, arguments)| {
                let (id, arguments) = (id.into(), arguments.into());
                let whole = is_whole_json(&arguments);
                CompletedCall { id: (!id.is_empty()).then_some(id), name: name.into(), arguments, whole }
            })
            .collect();
        let mut deltas = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            deltas.push(Delta::CallStarted { index, name: call.name.clone() });
            deltas.push(Delta::CallArguments { index, bytes: call.arguments.len() });
        }
        Self::new(deltas, End::Done(Box::new(Completion { calls, ..empty(Finish::ToolCalls) })))
    }

    /// Exactly these deltas, then this completion.
    #[must_use]
    pub fn completion(deltas: Vec<Delta>, completion: Completion) -> Self {
        Self::new(deltas, End::Done(Box::new(completion)))
    }

    /// The request fails before a head arrives.
    #[must_use]
    pub fn error(error: ProviderError) -> Self {
        Self { head_error: Some(error.clone()), head_hang: false, deltas: Vec::new(), end: End::Error(error) }
    }

    /// Some text arrives, then the stream fails.
    #[must_use]
    pub fn text_then_error(text: impl Into<String>, error: ProviderError) -> Self {
        Self::new(vec![Delta::Text(text.into())], End::Error(error))
    }

    /// The head arrives, then nothing until the stream is dropped.
    #[must_use]
    pub fn hang() -> Self {
        Self::new(Vec::new(), End::Hang)
    }

    /// Some text arrives, then nothing until the stream is dropped.
    #[must_use]
    pub fn text_then_hang(text: impl Into<String>) -> Self {
        Self::new(vec![Delta::Text(text.into())], End::Hang)
    }

    /// Not even the head arrives.
    #[must_use]
    pub fn hang_at_head() -> Self {
        Self { head_hang: true, ..Self::hang() }
    }

    /// Puts visible text before the calls.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.deltas.insert(0, Delta::Text(text.clone()));
        self.edit(|completion| completion.text.insert_str(0, &text))
    }

    /// Puts readable reasoning before everything.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        let reasoning = reasoning.into();
        self.deltas.insert(0, Delta::Reasoning(reasoning.clone()));
        self.edit(|completion| completion.reasoning = Some(reasoning))
    }

    /// Sets why the model stopped.
    #[must_use]
    pub fn with_finish(self, finish: Finish) -> Self {
        self.edit(|completion| completion.finish = finish)
    }

    /// Sets what the answer cost.
    #[must_use]
    pub fn with_usage(self, usage: Usage) -> Self {
        self.edit(|completion| completion.usage = Some(usage))
    }

    /// Adds opaque state.
    #[must_use]
    pub fn with_sidecar(self, sidecar: Sidecar) -> Self {
        self.edit(|completion| completion.sidecar = Some(sidecar))
    }

    fn edit(mut self, change: impl FnOnce(&mut Completion)) -> Self {
        if let End::Done(completion) = &mut self.end {
            change(completion);
        }
        self
    }
}

fn empty(finish: Finish) -> Completion {
    Completion {
        text: String::new(),
        reasoning: None,
        sidecar: None,
        calls: Vec::new(),
        finish,
        finish_missing: false,
        usage: None,
        served_model: None,
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Script>,
    requests: Vec<ChatRequest>,
}

/// A model that plays scripts in order and remembers what it was asked. Share it through an `Arc`.
pub struct ScriptedModel {
    info: ModelInfo,
    // Held for a push or a pop only, never over an await.
    state: Mutex<State>,
}

impl ScriptedModel {
    /// A model with an empty queue.
    #[must_use]
    pub fn new(info: ModelInfo) -> Self {
        Self { info, state: Mutex::new(State::default()) }
    }

    /// An info that fits tests: provider and wire `scripted`, 128,000 tokens of context.
    #[must_use]
    pub fn test_info() -> ModelInfo {
        ModelInfo {
            provider: "scripted".into(),
            model: "scripted-model".into(),
            endpoint: String::new(),
            api_mode: "scripted".into(),
            context_window: Some(128_000),
            max_output_tokens: None,
        }
    }

    /// Adds an answer at the end of the queue.
    pub fn push(&self, script: Script) {
        self.state().queue.push_back(script);
    }

    /// Every request so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.state().requests.clone()
    }

    /// Answers that were not asked for yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.state().queue.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ChatModel for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        let script = {
            let mut state = self.state();
            state.requests.push(request.clone());
            state.queue.pop_front()
        };
        let Some(script) = script else {
            return Err(ProviderError::new(ErrorClass::BadResponse, "script is exhausted"));
        };
        if script.head_hang {
            futures::future::pending::<()>().await;
        }
        if let Some(error) = script.head_error {
            return Err(error);
        }
        let deltas = if request.stream { script.deltas } else { Vec::new() };
        let deltas = stream::iter(deltas.into_iter().map(Ok));
        Ok(match script.end {
            End::Done(completion) => deltas.chain(stream::iter([Ok(Delta::Done(completion))])).boxed(),
            End::Error(error) => deltas.chain(stream::iter([Err(error)])).boxed(),
            End::Hang => deltas.chain(stream::pending()).boxed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn request() -> ChatRequest {
        ChatRequest { system: Bytes::from_static(b"s"), ..ChatRequest::new(Vec::new()) }
    }

    #[tokio::test]
    async fn scripts_play_in_order_and_requests_are_kept() {
        let model = ScriptedModel::new(ScriptedModel::test_info());
        model.push(Script::calls([("a", "terminal", "{}"), ("", "terminal", "{")]).with_text("look"));
        model.push(Script::text("ok"));
        model.push(Script::error(ProviderError::new(ErrorClass::Auth, "no")));
        let first: Vec<_> = model.stream(&request()).await.unwrap().collect().await;
        let Some(Ok(Delta::Done(done))) = first.last() else { panic!("no end") };
        assert_eq!((done.text.as_str(), done.calls.len()), ("look", 2));
        assert_eq!((done.calls[0].whole, done.calls[1].whole), (true, false));
        assert_eq!(done.calls[1].id, None);
        let second: Vec<_> = model.stream(&request()).await.unwrap().collect().await;
        assert_eq!(second.len(), 2);
        assert_eq!(model.stream(&request()).await.err().unwrap().class, ErrorClass::Auth);
        let exhausted = model.stream(&request()).await.err().unwrap();
        assert_eq!((exhausted.class, exhausted.message.as_str()), (ErrorClass::BadResponse, "script is exhausted"));
        assert_eq!(model.requests().len(), 4);
    }

    #[tokio::test]
    async fn text_then_error_yields_both() {
        let model = ScriptedModel::new(ScriptedModel::test_info());
        model.push(Script::text_then_error("part", ProviderError::new(ErrorClass::Incomplete, "cut")));
        let got: Vec<_> = model.stream(&request()).await.unwrap().collect().await;
        assert!(matches!(&got[0], Ok(Delta::Text(text)) if text == "part"));
        assert_eq!(got[1].as_ref().err().unwrap().class, ErrorClass::Incomplete);
    }
}
