//! An answer while it grows, for wires whose parts are well told apart: text, reasoning, calls, the end.
//!
//! (Chat completions has its own way to put calls together, because their indices and ids are often wrong there.)

use crate::chat::{CompletedCall, Completion, Delta, Finish, Sidecar, Usage};
use crate::error::{ErrorClass, ProviderError};
use crate::json::is_whole_json;
use crate::mode::context::DecodeContext;

/// Most calls of one answer. More than a model ever meant to make, few enough for memory.
const MAX_CALLS: usize = 1024;

/// A call while it grows.
#[derive(Debug, Default)]
struct OpenCall {
    id: Option<String>,
    name: String,
    arguments: String,
    /// The provider said that the call is complete.
    is_closed: bool,
}

/// An answer while it grows.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) reasoning: String,
    calls: Vec<OpenCall>,
    /// Why the model stopped, once the provider has said so.
    pub(super) finish: Option<Finish>,
    pub(super) usage: Option<Usage>,
    pub(super) served_model: Option<String>,
    /// Grows whenever the answer changes.
    pub(super) progress: u64,
}

impl Answer {
    /// More visible text.
    pub(super) fn text(&mut self, context: &DecodeContext, text: &str, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        self.progress += 1;
        self.text.push_str(text);
        emit(context, out, || Delta::Text(text.to_owned()));
    }

    /// More readable reasoning.
    pub(super) fn reasoning(&mut self, context: &DecodeContext, text: &str, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        self.progress += 1;
        self.reasoning.push_str(text);
        emit(context, out, || Delta::Reasoning(text.to_owned()));
    }

    /// A call begins. Returns its position.
    ///
    /// # Errors
    /// More than [`MAX_CALLS`] calls.
    pub(super) fn start_call(
        &mut self,
        context: &DecodeContext,
        id: Option<String>,
        wire_name: &str,
        out: &mut Vec<Delta>,
    ) -> Result<usize, ProviderError> {
        if self.calls.len() >= MAX_CALLS {
            return Err(context.error(ErrorClass::Limit, "the answer holds too many tool calls"));
        }
        let index = self.calls.len();
        self.progress += 1;
        let name = context.names.real(wire_name).to_owned();
        emit(context, out, || Delta::CallStarted { index, name: name.clone() });
        let id = id.filter(|id| !id.is_empty());
        self.calls.push(OpenCall { id, name, ..OpenCall::default() });
        Ok(index)
    }

    /// More arguments of a call.
    pub(super) fn arguments(&mut self, context: &DecodeContext, at: usize, text: &str, out: &mut Vec<Delta>) {
        let Some(call) = self.calls.get_mut(at).filter(|_| !text.is_empty()) else { return };
        self.progress += 1;
        call.arguments.push_str(text);
        emit(context, out, || Delta::CallArguments { index: at, bytes: text.len() });
    }

    /// The provider says that a call is complete; with `whole`, these are its arguments, whatever arrived before.
    pub(super) fn close_call(&mut self, context: &DecodeContext, at: usize, whole: Option<&str>, out: &mut Vec<Delta>) {
        let Some(call) = self.calls.get_mut(at) else { return };
        self.progress += 1;
        call.is_closed = true;
        let Some(whole) = whole.filter(|whole| *whole != call.arguments) else { return };
        let more = whole.len().saturating_sub(call.arguments.len());
        whole.clone_into(&mut call.arguments);
        if more > 0 {
            emit(context, out, || Delta::CallArguments { index: at, bytes: more });
        }
    }

    /// The id of a call, once the provider has told it.
    pub(super) fn call_id(&mut self, at: usize, id: &str) {
        if let Some(call) = self.calls.get_mut(at).filter(|_| !id.is_empty()) {
            call.id = Some(id.to_owned());
        }
    }

    /// Whether nothing of an answer arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    /// Whether there is a call.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The completion of an answer whose end was seen. Only a call that the provider itself closed may be whole; arguments
    /// of which no byte was sent are the empty object then (B21).
    pub(super) fn complete(&mut self, sidecar: Option<Sidecar>, finish: Finish) -> Delta {
        let mut calls: Vec<CompletedCall> = Vec::with_capacity(self.calls.len());
        for call in std::mem::take(&mut self.calls) {
            let is_bare = call.is_closed && call.arguments.trim().is_empty();
            let arguments = if is_bare { "{}".to_owned() } else { call.arguments };
            // An id that was used before pairs nothing; the caller makes one.
            let id = call.id.filter(|id| calls.iter().all(|other| other.id.as_ref() != Some(id)));
            let whole = call.is_closed && is_whole_json(&arguments);
            calls.push(CompletedCall { id, name: call.name, arguments, whole });
        }
        // Many servers say "stop" when they mean that the calls are complete.
        let finish = if finish == Finish::Stop && !calls.is_empty() { Finish::ToolCalls } else { finish };
        let reasoning = std::mem::take(&mut self.reasoning);
        Delta::Done(Box::new(Completion {
            text: std::mem::take(&mut self.text),
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            sidecar,
            calls,
            finish,
            finish_missing: false,
            usage: self.usage,
            served_model: self.served_model.take(),
        }))
    }

    /// Why there is no completion when the bytes end before the answer does: nothing at all came in an ordered end, or it
    /// was cut. What was shown of it stays shown; it is no answer.
    pub(super) fn cut(&self, context: &DecodeContext, is_broken: bool) -> ProviderError {
        if self.is_empty() && !is_broken {
            context.error(ErrorClass::EmptyResponse, "the answer was empty")
        } else {
            context.error(ErrorClass::Incomplete, "the stream ended before the answer did")
        }
    }
}

fn emit(context: &DecodeContext, out: &mut Vec<Delta>, delta: impl FnOnce() -> Delta) {
    if context.stream {
        out.push(delta());
    }
}
