//! Requests beside the turn: the notes of a compression, a title, a judgement of a dangerous command.
//!
//! Each such task may have a model of its own; without one it asks the turn's. A task with its own model falls back to
//! the turn's when that fails in a way that another route may mend, and never to a third one: what a person said goes to
//! no provider that was not chosen for it. Attempts and time are the task's own and named in [`crate::limits`]; what a
//! request used is counted under the name of its task.

use std::sync::Arc;

use futures::StreamExt as _;
use hermes_providers::{ChatModel, ChatRequest, Completion, Delta, ErrorClass, ModelInfo, ProviderError, Usage};
use hermes_store::{IdKind, IdSource, UsageDelta};
use tokio_util::sync::CancellationToken;

use crate::engine::Inner;
use crate::limits::{
    APPROVAL_TIMEOUT_MS, AUXILIARY_ATTEMPTS_MAX, AUXILIARY_TIMEOUT_MAX_MS, SUMMARY_TIMEOUT_MS, TITLE_TIMEOUT_MS,
};
use crate::retry::{backoff_ms, jitter};
use crate::route::Routes;

/// Models of tasks beside the turn. A task without one asks the turn's model.
#[derive(Clone, Default)]
pub struct Auxiliary {
    /// Writes the notes that stand for a part of the history that was shortened.
    pub compression: Option<Arc<dyn ChatModel>>,
    /// Writes titles.
    pub title: Option<Arc<dyn ChatModel>>,
    /// Judges dangerous commands before a person is asked, where the policy's mode is
    /// [`hermes_tools::ApprovalMode::Smart`].
    pub approval: Option<Arc<dyn ChatModel>>,
    /// What the judge is told beside the program's own rules (`approvals.smart_policy`).
    pub approval_policy: Option<String>,
    /// Time for each task.
    pub times: TaskTimes,
}

/// Time in milliseconds that a task has at one model, waits between attempts among it (`auxiliary.TASK.timeout`); `None` =
/// the task's own. More than [`AUXILIARY_TIMEOUT_MAX_MS`] is as much as that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskTimes {
    /// For the notes of a compression; else [`SUMMARY_TIMEOUT_MS`].
    pub compression_ms: Option<u64>,
    /// For a title; else [`TITLE_TIMEOUT_MS`].
    pub title_ms: Option<u64>,
    /// For a judgement; else [`APPROVAL_TIMEOUT_MS`].
    pub approval_ms: Option<u64>,
}

impl Auxiliary {
    /// One model for all tasks.
    #[must_use]
    pub fn all(model: Arc<dyn ChatModel>) -> Self {
        Self { compression: Some(model.clone()), title: Some(model.clone()), approval: Some(model), ..Self::default() }
    }

    /// A task's own model.
    pub(crate) fn of(&self, task: Task) -> Option<&Arc<dyn ChatModel>> {
        match task {
            Task::Compression => self.compression.as_ref(),
            Task::Title => self.title.as_ref(),
            Task::Approval => self.approval.as_ref(),
        }
    }

    /// Time for a task at one route, waits between attempts among it.
    pub(crate) fn limit_ms(&self, task: Task) -> u64 {
        let (configured, own) = match task {
            Task::Compression => (self.times.compression_ms, SUMMARY_TIMEOUT_MS),
            Task::Title => (self.times.title_ms, TITLE_TIMEOUT_MS),
            Task::Approval => (self.times.approval_ms, APPROVAL_TIMEOUT_MS),
        };
        configured.unwrap_or(own).min(AUXILIARY_TIMEOUT_MAX_MS)
    }
}

impl std::fmt::Debug for Auxiliary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |model: &Option<Arc<dyn ChatModel>>| model.as_ref().map(|model| format!("{:?}", model.info()));
        f.debug_struct("Auxiliary")
            .field("compression", &name(&self.compression))
            .field("title", &name(&self.title))
            .field("approval", &name(&self.approval))
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Notes in place of the middle of a history.
    Compression,
    /// A title for a conversation.
    Title,
    /// A judgement of a dangerous command.
    Approval,
}

impl Task {
    /// How many tasks there are: each own model has a place in [`Routes`].
    pub(crate) const COUNT: usize = 3;

    /// The name that its usage is counted under: what the configuration calls it below `auxiliary`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compression => "compression",
            Self::Title => "title_generation",
            Self::Approval => "approval",
        }
    }

    fn place(self) -> usize {
        match self {
            Self::Compression => 0,
            Self::Title => 1,
            Self::Approval => 2,
        }
    }
}

/// What to do after a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Wait, then ask the same model again.
    Retry {
        /// Milliseconds.
        wait_ms: u64,
    },
    /// Ask the next model, or give up where there is none.
    Leave,
}

/// What is known when the decision is taken.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    /// The attempt that failed, from 1.
    number: u32,
    /// Whether another model is there.
    has_next: bool,
    /// Time that is left for this route.
    left_ms: u64,
    /// 0 to 1,000: what part of the random half of a wait is taken.
    jitter_permille: u64,
}

/// Decides. Nobody waits for such an answer on a screen, but something does: one that is tired of us is not waited for
/// while another model is there, and no wait is begun that the task's time does not allow. A failure that repeats (a key,
/// a request that is too long) leaves the route at once.
fn decide(error: &ProviderError, attempt: Attempt) -> Decision {
    let passes = match error.class {
        ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit | ErrorClass::Unresponsive => !attempt.has_next,
        ErrorClass::Overloaded
        | ErrorClass::ServerError
        | ErrorClass::Timeout
        | ErrorClass::Incomplete
        | ErrorClass::BadResponse
        | ErrorClass::EmptyResponse => true,
        _ => false,
    };
    if !passes || attempt.number >= AUXILIARY_ATTEMPTS_MAX {
        return Decision::Leave;
    }
    let wait_ms = error.retry_after_ms.unwrap_or_else(|| backoff_ms(attempt.number, attempt.jitter_permille));
    if wait_ms < attempt.left_ms { Decision::Retry { wait_ms } } else { Decision::Leave }
}

/// What one request used, and whose it was.
#[derive(Debug, Clone)]
pub(crate) struct Used {
    pub info: ModelInfo,
    /// None when the provider reported nothing.
    pub usage: Option<Usage>,
}

impl Used {
    /// The value that the store counts.
    pub(crate) fn delta(&self, ids: &dyn IdSource, task: &str) -> UsageDelta {
        let of = |value: Option<u64>| value.unwrap_or(0);
        let reported = self.usage.unwrap_or_default();
        UsageDelta {
            attempt: ids.next(IdKind::Attempt),
            provider: self.info.provider.clone(),
            model: self.info.model.clone(),
            task: task.to_owned(),
            input: of(reported.input_uncached),
            output: of(reported.output),
            cache_read: of(reported.cache_read),
            cache_write: of(reported.cache_write),
            reasoning: of(reported.reasoning),
            known: self.usage.is_some(),
        }
    }
}

/// Asks for one task.
pub(crate) struct Desk<'t> {
    pub engine: &'t Inner,
    pub task: Task,
    /// The turn's model: asked when the task has none of its own, or when that fails.
    pub main: &'t Arc<dyn ChatModel>,
    /// Ends the asking.
    pub stopped: &'t CancellationToken,
}

impl Desk<'_> {
    /// The models that may be asked, in their order. One that rests is left out.
    fn routes(&self) -> Vec<(bool, Arc<dyn ChatModel>)> {
        let place = self.task.place();
        let now_ms = self.engine.clock.now_ms();
        let same = |own: &ModelInfo, main: &ModelInfo| {
            (&own.provider, &own.model, &own.endpoint) == (&main.provider, &main.model, &main.endpoint)
        };
        let own = self.engine.auxiliary.of(self.task);
        let own = own.filter(|own| !same(own.info(), self.main.info()));
        let own = own.filter(|_| !self.engine.resting().rests(place, now_ms));
        own.map(|own| (true, own.clone())).into_iter().chain([(false, self.main.clone())]).collect()
    }

    /// The smallest window of the models that may be asked: a request must fit into it, whoever answers.
    pub(crate) fn window(&self) -> Option<u64> {
        self.routes().iter().filter_map(|(_, model)| self.engine.window_of(model.as_ref())).min()
    }

    /// One whole answer, and what was used on the way to it.
    pub(crate) async fn ask(&self, request: &ChatRequest) -> (Result<Completion, ProviderError>, Vec<Used>) {
        let mut used = Vec::new();
        let mut failure = ProviderError::new(ErrorClass::Configuration, "no model is there to ask");
        let routes = self.routes();
        for (index, (is_own, model)) in routes.iter().enumerate() {
            let asked = self.ask_one(model.as_ref(), request, index + 1 < routes.len(), &mut used).await;
            if *is_own {
                self.note(&asked);
            }
            match asked {
                Ok(completion) => return (Ok(completion), used),
                Err(error) => failure = error,
            }
            if let Some(tokens) = failure.context_limit {
                self.engine.learn_window(model.as_ref(), tokens).await;
            }
            if self.stopped.is_cancelled() {
                break;
            }
            if index + 1 < routes.len() {
                tracing::info!(task = self.task.name(), "the turn's model is asked instead: {failure}");
            }
        }
        (Err(failure), used)
    }

    fn note(&self, asked: &Result<Completion, ProviderError>) {
        let mut resting = self.engine.resting();
        match asked {
            Ok(_) => resting.answered(self.task.place()),
            Err(error) => {
                let now_ms = self.engine.clock.now_ms();
                resting.left(self.task.place(), error.class, error.retry_after_ms, now_ms);
            }
        }
    }

    /// All attempts at one model, within the task's time.
    async fn ask_one(
        &self,
        model: &dyn ChatModel,
        request: &ChatRequest,
        has_next: bool,
        used: &mut Vec<Used>,
    ) -> Result<Completion, ProviderError> {
        let clock = &self.engine.clock;
        let limit_ms = self.engine.auxiliary.limit_ms(self.task);
        let begun_ms = clock.now_ms();
        let mut over = clock.sleep(limit_ms);
        let end = |message: &str| Err(ProviderError::new(ErrorClass::Timeout, message));
        let mut number = 0;
        let mut seed = None;
        loop {
            number += 1;
            let (answer, is_last) = tokio::select! {
                biased;
                () = self.stopped.cancelled() => (end("the request was stopped"), true),
                () = &mut over => (end("no answer came in time"), true),
                answer = whole(model, request) => (answer, false),
            };
            let usage = answer.as_ref().ok().and_then(|completion| completion.usage);
            used.push(Used { info: model.info().clone(), usage });
            let error = match answer {
                Err(error) if !is_last => error,
                done => return done,
            };
            let spent_ms = u64::try_from(clock.now_ms().saturating_sub(begun_ms)).unwrap_or(0);
            let seed = seed.get_or_insert_with(|| self.engine.ids.next(IdKind::Attempt));
            let jitter_permille = jitter(seed, number);
            let attempt = Attempt { number, has_next, left_ms: limit_ms.saturating_sub(spent_ms), jitter_permille };
            let Decision::Retry { wait_ms } = decide(&error, attempt) else { return Err(error) };
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return Err(error),
                () = clock.sleep(wait_ms) => {}
            }
        }
    }
}

/// A request of one message. Its answer is not shown while it comes.
pub(crate) fn request(system: &str, text: String, max_output_tokens: Option<u64>, stream: bool) -> ChatRequest {
    ChatRequest {
        system: bytes::Bytes::copy_from_slice(system.as_bytes()),
        max_output_tokens,
        stream,
        ..ChatRequest::new(vec![crate::projection::user(text)])
    }
}

/// One whole answer; nothing of it is shown.
async fn whole(model: &dyn ChatModel, request: &ChatRequest) -> Result<Completion, ProviderError> {
    let mut stream = model.stream(request).await?;
    while let Some(delta) = stream.next().await {
        if let Delta::Done(completion) = delta? {
            return Ok(*completion);
        }
    }
    Err(ProviderError::new(ErrorClass::Incomplete, "the connection was closed before the answer was whole"))
}

/// The health of the tasks' own models, all of them well.
pub(crate) fn healthy() -> Routes {
    Routes::new(Task::COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u32, has_next: bool) -> Attempt {
        Attempt { number, has_next, left_ms: 100_000, jitter_permille: 0 }
    }

    #[test]
    fn every_class_has_its_attempts_with_and_without_another_model() {
        use ErrorClass as C;
        // class, attempts without another model, attempts with one
        let table = [
            (C::Auth, 1, 1),
            (C::Billing, 1, 1),
            (C::ModelNotFound, 1, 1),
            (C::ContentPolicy, 1, 1),
            (C::BadRequest, 1, 1),
            (C::SidecarRefused, 1, 1),
            (C::Blocked, 1, 1),
            (C::Certificate, 1, 1),
            (C::Configuration, 1, 1),
            (C::ContextOverflow, 1, 1),
            (C::PayloadTooLarge, 1, 1),
            (C::OutputCap, 1, 1),
            (C::Limit, 1, 1),
            (C::RateLimit, 3, 1),
            (C::UpstreamRateLimit, 3, 1),
            (C::Overloaded, 3, 3),
            (C::ServerError, 3, 3),
            (C::Timeout, 3, 3),
            (C::Incomplete, 3, 3),
            (C::BadResponse, 3, 3),
            (C::EmptyResponse, 3, 3),
        ];
        for (class, alone, with_next) in table {
            let error = ProviderError::new(class, "x");
            for (has_next, want) in [(false, alone), (true, with_next)] {
                let left = (1..10).find(|number| decide(&error, attempt(*number, has_next)) == Decision::Leave);
                assert_eq!(left, Some(want), "{class:?}, another model: {has_next}");
            }
        }
    }

    #[test]
    fn a_wait_is_the_provider_s_or_our_own_and_never_longer_than_the_task_has() {
        let mut error = ProviderError::new(ErrorClass::Overloaded, "x");
        assert_eq!(decide(&error, attempt(1, false)), Decision::Retry { wait_ms: 2_000 });
        error.retry_after_ms = Some(7_000);
        assert_eq!(decide(&error, attempt(1, false)), Decision::Retry { wait_ms: 7_000 });
        let hurry = Attempt { left_ms: 7_000, ..attempt(1, false) };
        assert_eq!(decide(&error, hurry), Decision::Leave);
    }

    #[test]
    fn each_task_has_its_own_name_and_place() {
        let tasks = [Task::Compression, Task::Title, Task::Approval];
        assert_eq!(tasks.map(Task::place), [0, 1, 2]);
        assert_eq!(tasks.len(), Task::COUNT);
        let names: std::collections::BTreeSet<_> = tasks.map(Task::name).into();
        assert_eq!(names.len(), Task::COUNT);
    }

    #[test]
    fn a_task_s_time_is_its_own_until_the_host_says_another_and_never_without_end() {
        let times = |ms| TaskTimes { compression_ms: ms, title_ms: ms, approval_ms: ms };
        let limits = |ms| {
            let auxiliary = Auxiliary { times: times(ms), ..Auxiliary::default() };
            [Task::Compression, Task::Title, Task::Approval].map(|task| auxiliary.limit_ms(task))
        };
        assert_eq!(limits(None), [SUMMARY_TIMEOUT_MS, TITLE_TIMEOUT_MS, APPROVAL_TIMEOUT_MS]);
        assert_eq!(limits(Some(5)), [5; 3]);
        assert_eq!(limits(Some(u64::MAX)), [AUXILIARY_TIMEOUT_MAX_MS; 3]);
    }
}
