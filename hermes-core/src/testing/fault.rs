//! A store that fails or dies at a chosen write: every crash point of a scenario can be enumerated.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use hermes_store::{
    AdmissionId, AdmissionRecord, AdmissionStore, AdmitOutcome, CallId, CallResult, ClaimOutcome, ClaimRequest,
    ConversationFilter, ConversationId, ConversationSummary, Fence, Generation, LeaseStore, MessagePage, NewAdmission,
    NewConversation, NewMessage, NewSession, OwnerId, OwnerInfo, Planned, PromptHash, PromptSnapshot, Receipt,
    Recorded, Round, SearchHit, SessionId, SessionRecord, SessionStore, SettledCall, Store, StoreError, StoredMessage,
    TitleSource, TranscriptStore, TurnEnd, TurnId, TurnRecord, UsageDelta, UsageTotals, View,
};
use tokio::sync::Notify;

/// What happens at the chosen write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and changes nothing; so do all later writes.
    FailsBefore,
    /// It happens and its answer is lost; later writes work.
    AnswerLost,
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it.
    DiesAfter,
}

/// A store with one fault.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    fault: Fault,
    left: AtomicI64,
    died: Notify,
}

impl FaultStore {
    /// A store whose write number `at` (from 0) has the fault.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, fault: Fault, at: i64) -> Arc<Self> {
        Arc::new(Self { inner, fault, left: AtomicI64::new(at), died: Notify::new() })
    }

    /// Ends when the process would be dead: what runs on this store must be dropped then.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    /// True when the chosen write was reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    async fn die<T>(&self) -> T {
        self.died.notify_one();
        futures::future::pending().await
    }

    async fn write<T>(&self, work: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        let injected = || StoreError::Io { detail: "injected fault".to_owned() };
        match (self.fault, left) {
            (_, 1..) => work.await,
            (Fault::FailsBefore, _) => Err(injected()),
            (Fault::AnswerLost, 0) => {
                let _ = work.await;
                Err(injected())
            }
            (Fault::AnswerLost, _) => work.await,
            (Fault::DiesAfter, 0) => {
                let _ = work.await;
                self.die().await
            }
            (Fault::DiesBefore | Fault::DiesAfter, _) => self.die().await,
        }
    }
}

#[async_trait]
impl AdmissionStore for FaultStore {
    async fn admit(&self, input: NewAdmission) -> Result<AdmitOutcome, StoreError> {
        self.write(self.inner.admit(input)).await
    }

    async fn create_and_admit(
        &self,
        conversation: NewConversation,
        input: NewAdmission,
    ) -> Result<AdmitOutcome, StoreError> {
        self.write(self.inner.create_and_admit(conversation, input)).await
    }

    async fn admission(&self, id: &AdmissionId) -> Result<AdmissionRecord, StoreError> {
        self.inner.admission(id).await
    }

    async fn cancel(&self, id: &AdmissionId) -> Result<Receipt, StoreError> {
        self.write(self.inner.cancel(id)).await
    }

    async fn resolve_unknown(
        &self,
        id: &AdmissionId,
        generation: Generation,
        end: TurnEnd,
    ) -> Result<Receipt, StoreError> {
        self.write(self.inner.resolve_unknown(id, generation, end)).await
    }
}

#[async_trait]
impl LeaseStore for FaultStore {
    async fn heartbeat(&self, owner: &OwnerInfo) -> Result<(), StoreError> {
        self.write(self.inner.heartbeat(owner)).await
    }

    async fn retire(&self, owner: &OwnerId) -> Result<(), StoreError> {
        self.write(self.inner.retire(owner)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.write(self.inner.claim(request)).await
    }

    async fn renew(&self, fence: &Fence, ttl_ms: u64) -> Result<(), StoreError> {
        self.write(self.inner.renew(fence, ttl_ms)).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.write(self.inner.release(fence)).await
    }

    async fn adopt_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        self.write(self.inner.adopt_turn(fence, turn)).await
    }

    async fn requeue(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        self.write(self.inner.requeue(fence, turn)).await
    }

    async fn settle_turn(&self, fence: &Fence, turn: &TurnId, end: TurnEnd, release: bool) -> Result<(), StoreError> {
        self.write(self.inner.settle_turn(fence, turn, end, release)).await
    }

    async fn lose_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        self.write(self.inner.lose_turn(fence, turn)).await
    }

    async fn turn(&self, id: &TurnId) -> Result<TurnRecord, StoreError> {
        self.inner.turn(id).await
    }

    async fn wait_for_change(
        &self,
        conversation: &ConversationId,
        seen: i64,
        max_wait_ms: u64,
    ) -> Result<i64, StoreError> {
        self.inner.wait_for_change(conversation, seen, max_wait_ms).await
    }
}

#[async_trait]
impl TranscriptStore for FaultStore {
    async fn open_session(
        &self,
        fence: &Fence,
        turn: &TurnId,
        session: NewSession,
        parent_end: Option<&str>,
        rows: Vec<NewMessage>,
    ) -> Result<(), StoreError> {
        self.write(self.inner.open_session(fence, turn, session, parent_end, rows)).await
    }

    async fn change_session(&self, fence: &Fence, turn: &TurnId, session: NewSession) -> Result<(), StoreError> {
        self.write(self.inner.change_session(fence, turn, session)).await
    }

    async fn append(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: Vec<NewMessage>,
        usage: Option<UsageDelta>,
    ) -> Result<(), StoreError> {
        self.write(self.inner.append(fence, turn, rows, usage)).await
    }

    async fn record_round(&self, fence: &Fence, round: Round<Planned>) -> Result<Round<Recorded>, StoreError> {
        self.write(self.inner.record_round(fence, round)).await
    }

    async fn start_calls(&self, fence: &Fence, turn: &TurnId, calls: &[CallId]) -> Result<(), StoreError> {
        self.write(self.inner.start_calls(fence, turn, calls)).await
    }

    async fn settle_call(
        &self,
        fence: &Fence,
        turn: &TurnId,
        call: &CallId,
        result: CallResult,
    ) -> Result<SettledCall, StoreError> {
        self.write(self.inner.settle_call(fence, turn, call, result)).await
    }

    async fn take_steers(
        &self,
        fence: &Fence,
        turn: &TurnId,
        rows: &(dyn for<'a> Fn(&'a AdmissionRecord) -> NewMessage + Send + Sync),
    ) -> Result<Vec<AdmissionRecord>, StoreError> {
        self.write(self.inner.take_steers(fence, turn, rows)).await
    }

    async fn count_usage(&self, fence: &Fence, usage: UsageDelta) -> Result<(), StoreError> {
        self.write(self.inner.count_usage(fence, usage)).await
    }

    async fn messages(
        &self,
        conversation: &ConversationId,
        view: View,
        page: MessagePage,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        self.inner.messages(conversation, view, page).await
    }

    async fn prompt(&self, hash: &PromptHash) -> Result<PromptSnapshot, StoreError> {
        self.inner.prompt(hash).await
    }
}

#[async_trait]
impl SessionStore for FaultStore {
    async fn conversations(&self, filter: ConversationFilter) -> Result<Vec<ConversationSummary>, StoreError> {
        self.inner.conversations(filter).await
    }

    async fn conversation(&self, id: &ConversationId) -> Result<ConversationSummary, StoreError> {
        self.inner.conversation(id).await
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, StoreError> {
        self.inner.session(id).await
    }

    async fn set_title(&self, fence: &Fence, title: &str, source: TitleSource) -> Result<String, StoreError> {
        self.write(self.inner.set_title(fence, title, source)).await
    }

    async fn delete_conversation(&self, fence: &Fence) -> Result<(), StoreError> {
        self.write(self.inner.delete_conversation(fence)).await
    }

    async fn search(&self, query: &str, profile: Option<&str>, limit: usize) -> Result<Vec<SearchHit>, StoreError> {
        self.inner.search(query, profile, limit).await
    }

    async fn usage(&self, conversation: &ConversationId) -> Result<Vec<UsageTotals>, StoreError> {
        self.inner.usage(conversation).await
    }

    async fn next_generation(&self, source: &str, key: &str) -> Result<Generation, StoreError> {
        self.write(self.inner.next_generation(source, key)).await
    }

    async fn queue(&self, conversation: &ConversationId) -> Result<Vec<AdmissionRecord>, StoreError> {
        self.inner.queue(conversation).await
    }
}
