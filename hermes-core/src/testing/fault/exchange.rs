//! What comes in from people and goes out to them, with the fault of the store.

use async_trait::async_trait;
use hermes_store::{
    AnswerOutcome, ApprovalAnswer, ApprovalId, ApprovalRecord, ApprovalStore, ConversationId, DeliveryClaim,
    DeliveryDecision, DeliveryFence, DeliveryFilter, DeliveryId, DeliveryRecord, DeliveryRequest, DeliveryStore, Fence,
    Generation, Inbound, InboundKey, InboundReceipt, InboundStore, NewAdmission, NewApproval, NewConversation,
    NewDelivery, ReceiveOutcome, RetryAfter, Route, RouteKey, RouteOutcome, StoreError, TurnId,
};

use super::{FaultStore, counted};

#[async_trait]
impl InboundStore for FaultStore {
    async fn receive(
        &self,
        inbound: Inbound,
        conversation: Option<NewConversation>,
        input: NewAdmission,
    ) -> Result<ReceiveOutcome, StoreError> {
        self.write(self.inner.receive(inbound, conversation, input)).await
    }

    async fn inbound(&self, key: &InboundKey) -> Result<Option<InboundReceipt>, StoreError> {
        counted(&self.working, self.inner.inbound(key)).await
    }

    async fn prune_inbound(&self) -> Result<u64, StoreError> {
        self.write(self.inner.prune_inbound()).await
    }

    async fn route(&self, key: &RouteKey) -> Result<Route, StoreError> {
        counted(&self.working, self.inner.route(key)).await
    }

    async fn set_route(
        &self,
        key: &RouteKey,
        generation: Generation,
        conversation: &ConversationId,
    ) -> Result<RouteOutcome, StoreError> {
        self.write(self.inner.set_route(key, generation, conversation)).await
    }

    async fn reset_route(
        &self,
        key: &RouteKey,
        seen: Generation,
        conversation: NewConversation,
        by: Option<InboundKey>,
    ) -> Result<RouteOutcome, StoreError> {
        self.write(self.inner.reset_route(key, seen, conversation, by)).await
    }
}

#[async_trait]
impl DeliveryStore for FaultStore {
    async fn record_deliveries(
        &self,
        fence: &Fence,
        turn: &TurnId,
        deliveries: Vec<NewDelivery>,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        self.write(self.inner.record_deliveries(fence, turn, deliveries)).await
    }

    async fn claim_delivery(&self, request: DeliveryRequest) -> Result<DeliveryClaim, StoreError> {
        self.write(self.inner.claim_delivery(request)).await
    }

    async fn confirm_part(
        &self,
        fence: &DeliveryFence,
        index: usize,
        platform_id: &str,
        lease_ms: u64,
    ) -> Result<(), StoreError> {
        self.write(self.inner.confirm_part(fence, index, platform_id, lease_ms)).await
    }

    async fn confirm_delivery(&self, fence: &DeliveryFence) -> Result<(), StoreError> {
        self.write(self.inner.confirm_delivery(fence)).await
    }

    async fn fail_delivery(&self, fence: &DeliveryFence, error: &str, retry: RetryAfter) -> Result<(), StoreError> {
        self.write(self.inner.fail_delivery(fence, error, retry)).await
    }

    async fn decide_delivery(
        &self,
        id: &DeliveryId,
        attempt: i64,
        decision: DeliveryDecision,
    ) -> Result<DeliveryRecord, StoreError> {
        self.write(self.inner.decide_delivery(id, attempt, decision)).await
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<DeliveryRecord, StoreError> {
        counted(&self.working, self.inner.delivery(id)).await
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Vec<DeliveryRecord>, StoreError> {
        counted(&self.working, self.inner.deliveries(filter)).await
    }

    async fn prune_deliveries(&self) -> Result<u64, StoreError> {
        self.write(self.inner.prune_deliveries()).await
    }
}

#[async_trait]
impl ApprovalStore for FaultStore {
    async fn ask_approval(
        &self,
        fence: &Fence,
        turn: &TurnId,
        approval: NewApproval,
    ) -> Result<ApprovalRecord, StoreError> {
        self.write(self.inner.ask_approval(fence, turn, approval)).await
    }

    async fn answer_approval(
        &self,
        id: &ApprovalId,
        principal: &str,
        answer: ApprovalAnswer,
    ) -> Result<AnswerOutcome, StoreError> {
        self.write(self.inner.answer_approval(id, principal, answer)).await
    }

    async fn withdraw_approval(
        &self,
        fence: &Fence,
        id: &ApprovalId,
        reason: &str,
    ) -> Result<ApprovalRecord, StoreError> {
        self.write(self.inner.withdraw_approval(fence, id, reason)).await
    }

    async fn approval(&self, id: &ApprovalId) -> Result<ApprovalRecord, StoreError> {
        counted(&self.working, self.inner.approval(id)).await
    }

    async fn approvals_of_turn(&self, turn: &TurnId) -> Result<Vec<ApprovalRecord>, StoreError> {
        counted(&self.working, self.inner.approvals_of_turn(turn)).await
    }

    async fn open_approvals(&self, conversation: Option<&ConversationId>) -> Result<Vec<ApprovalRecord>, StoreError> {
        self.write(self.inner.open_approvals(conversation)).await
    }

    async fn prune_approvals(&self) -> Result<u64, StoreError> {
        self.write(self.inner.prune_approvals()).await
    }
}
