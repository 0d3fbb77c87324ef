//! What goes out, in the in-memory model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::State;
use crate::admission::AdmissionOutcome;
use crate::delivery::{
    AmbiguousPolicy, DeliveryClaim, DeliveryDecision, DeliveryFence, DeliveryFilter, DeliveryRecord, DeliveryRequest,
    DeliveryState, DeliveryStore, NewDelivery, RetryAfter, Step, TOO_OLD,
};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, DeliveryId, TurnId};
use crate::limits::{SEND_KEEP_MS, SEND_KEEP_ROWS, SEND_LIST_MAX, SEND_OPEN_MAX, SEND_STALE_MS};
use crate::owner::LivenessProbe;
use crate::rules::{self, conflict, invalid, ms, not_found};
use crate::turn::TurnEnd;

impl State {
    /// Adds a delivery behind those of its chat, unless it is there.
    fn owe(&mut self, record: DeliveryRecord) {
        let lane = (record.target.account.clone(), record.target.chat.clone());
        let place = self.exchange.lanes.entry(lane).or_insert(0);
        *place += 1;
        let place = *place;
        self.exchange.deliveries.entry(record.id.clone()).or_insert((place, record));
    }

    /// The end of a turn: what was owed for its inputs becomes deliveries of its answer, or of the notice why there is
    /// none.
    pub(super) fn owe_answer(&mut self, turn: &TurnId, end: &TurnEnd, now: i64) {
        let Some(conversation) = self.turns.get(turn).map(|record| record.conversation.clone()) else { return };
        let replies = self.take_replies(turn);
        if replies.is_empty() {
            return;
        }
        let answer = self.answer(turn).filter(|_| end.outcome == AdmissionOutcome::Completed).map(|row| row.content);
        for reply in replies {
            let new = NewDelivery::of_turn(reply, answer.as_deref(), end);
            if let Ok(id) = new.id(&conversation, turn) {
                self.owe(new.into_record(id, &conversation, turn, now));
            }
        }
    }

    fn record(
        &mut self,
        fence: &Fence,
        turn: &TurnId,
        new: Vec<NewDelivery>,
        now: i64,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        self.running(fence, turn)?;
        let conversation = fence.conversation();
        let open = self.deliveries_of(conversation).filter(|d| d.state.is_open()).count();
        let mut fresh: Vec<DeliveryRecord> = Vec::new();
        let mut ids = Vec::new();
        for one in new {
            let id = one.id(conversation, turn)?;
            ids.push(id.clone());
            let known = self.exchange.deliveries.get(&id).map(|(_, known)| known);
            match known.or_else(|| fresh.iter().find(|known| known.id == id)) {
                Some(known) if known.content != one.content || known.reply_to != one.reply_to => {
                    return Err(conflict("delivery", &id));
                }
                Some(_) => {}
                None => fresh.push(one.into_record(id, conversation, turn, now)),
            }
        }
        if open + fresh.len() > SEND_OPEN_MAX {
            return Err(StoreError::Limit {
                what: "the number of open deliveries of a conversation",
                limit: SEND_OPEN_MAX as u64,
            });
        }
        for record in fresh {
            self.owe(record);
        }
        self.touch(conversation, now, false);
        Ok(ids.iter().filter_map(|id| self.exchange.deliveries.get(id)).map(|(_, record)| record.clone()).collect())
    }

    fn deliveries_of(&self, conversation: &ConversationId) -> impl Iterator<Item = &DeliveryRecord> {
        self.exchange.deliveries.values().map(|(_, d)| d).filter(move |d| d.conversation == *conversation)
    }

    /// The first open delivery of each chat of an account.
    fn heads(&self, request: &DeliveryRequest) -> Vec<DeliveryRecord> {
        let leave = request.ambiguous == AmbiguousPolicy::Leave;
        let mut heads: BTreeMap<&str, (i64, &DeliveryRecord)> = BTreeMap::new();
        for (place, one) in self.exchange.deliveries.values() {
            let is_passed = !one.state.is_open() || (leave && one.state == DeliveryState::Ambiguous);
            if one.target.account != request.account || is_passed {
                continue;
            }
            let head = heads.entry(&one.target.chat).or_insert((*place, one));
            if *place < head.0 {
                *head = (*place, one);
            }
        }
        heads.into_values().map(|(_, record)| record.clone()).collect()
    }

    fn claim_delivery(
        &mut self,
        request: &DeliveryRequest,
        now: i64,
        probe: &dyn LivenessProbe,
    ) -> Result<DeliveryClaim, StoreError> {
        let mut heads = self.heads(request);
        heads.sort_by_key(|d| {
            (d.state == DeliveryState::Attempting && !d.is_overdue(now), d.created_at_ms, d.id.clone())
        });
        for chat in heads.into_iter().map(|head| head.target.chat) {
            while let Some(mut head) = self.heads(request).into_iter().find(|head| head.target.chat == chat) {
                let owner = head.owner.as_ref().and_then(|owner| self.owners.get(owner));
                match head.step(now, rules::is_gone(owner, now, probe)) {
                    Step::Leave => break,
                    Step::Lose => head.lose()?,
                    Step::Abandon(why) => head.abandon(why, now)?,
                    Step::Take => {
                        let fence = head.begin(request, now)?;
                        self.put(head.clone());
                        return Ok(DeliveryClaim::Send { fence, delivery: Box::new(head) });
                    }
                }
                self.put(head);
            }
        }
        let waits = self.exchange.deliveries.values().map(|(_, d)| d).filter(|d| d.target.account == request.account);
        let next_at_ms = waits
            .filter_map(|d| match d.state {
                DeliveryState::Failed => d.not_before_ms,
                DeliveryState::Attempting => d.lease_expires_ms,
                _ => None,
            })
            .min();
        Ok(DeliveryClaim::Idle { next_at_ms })
    }

    fn put(&mut self, record: DeliveryRecord) {
        if let Some((_, known)) = self.exchange.deliveries.get_mut(&record.id) {
            *known = record;
        }
    }

    fn one_delivery(&self, id: &DeliveryId) -> Result<DeliveryRecord, StoreError> {
        self.exchange.deliveries.get(id).map(|(_, known)| known.clone()).ok_or_else(|| not_found("delivery", id))
    }

    fn prune_deliveries(&mut self, now: i64) -> Result<u64, StoreError> {
        let stale = now.saturating_sub(ms(SEND_STALE_MS));
        for (_, one) in self.exchange.deliveries.values_mut() {
            if one.state == DeliveryState::Attempting && one.is_overdue(now) {
                one.lose()?;
            }
            if one.state.is_open() && one.state != DeliveryState::Attempting && one.created_at_ms < stale {
                one.abandon(TOO_OLD, now)?;
            }
        }
        let mut over: Vec<_> =
            self.exchange.deliveries.values().map(|(_, d)| d).filter(|d| !d.state.is_open()).collect();
        over.sort_by_key(|d| (d.conversation.clone(), Reverse((d.ended_at_ms, d.id.clone()))));
        let before = now.saturating_sub(ms(SEND_KEEP_MS));
        let (mut seen, mut gone) = (BTreeMap::new(), Vec::new());
        for one in over {
            let nth = seen.entry(one.conversation.clone()).or_insert(0_usize);
            *nth += 1;
            if *nth > SEND_KEEP_ROWS || one.ended_at_ms.is_some_and(|ended| ended <= before) {
                gone.push(one.id.clone());
            }
        }
        for id in &gone {
            self.exchange.deliveries.remove(id);
        }
        Ok(gone.len() as u64)
    }

    /// Refuses to delete a conversation while something of it is being sent.
    pub(super) fn check_deliveries_idle(&self, id: &ConversationId) -> Result<(), StoreError> {
        match self.deliveries_of(id).find(|d| d.state == DeliveryState::Attempting) {
            Some(busy) => Err(invalid(format!("delivery {} of the conversation is being sent", busy.id))),
            None => Ok(()),
        }
    }

    pub(super) fn delete_deliveries(&mut self, id: &ConversationId) {
        self.exchange.deliveries.retain(|_, (_, d)| d.conversation != *id);
    }
}

impl MemoryStore {
    /// One change of one delivery.
    fn change_delivery(
        &self,
        id: &DeliveryId,
        change: impl FnOnce(&mut DeliveryRecord, i64) -> Result<bool, StoreError>,
    ) -> Result<DeliveryRecord, StoreError> {
        let now = self.now();
        let mut state = self.state();
        let mut record = state.one_delivery(id)?;
        if change(&mut record, now)? {
            state.put(record.clone());
        }
        Ok(record)
    }
}

#[async_trait]
impl DeliveryStore for MemoryStore {
    async fn record_deliveries(
        &self,
        fence: &Fence,
        turn: &TurnId,
        deliveries: Vec<NewDelivery>,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        deliveries.iter().try_for_each(NewDelivery::check)?;
        let done = self.state().record(fence, turn, deliveries, self.now());
        self.notify();
        done
    }

    async fn claim_delivery(&self, request: DeliveryRequest) -> Result<DeliveryClaim, StoreError> {
        request.check()?;
        let probe = self.probe();
        self.state().claim_delivery(&request, self.now(), probe.as_ref())
    }

    async fn confirm_part(
        &self,
        fence: &DeliveryFence,
        index: usize,
        platform_id: &str,
        lease_ms: u64,
    ) -> Result<(), StoreError> {
        self.change_delivery(fence.delivery(), |d, now| d.confirm_part(fence, index, platform_id, lease_ms, now))?;
        Ok(())
    }

    async fn confirm_delivery(&self, fence: &DeliveryFence) -> Result<(), StoreError> {
        self.change_delivery(fence.delivery(), |d, now| d.confirm(fence, now))?;
        Ok(())
    }

    async fn fail_delivery(&self, fence: &DeliveryFence, error: &str, retry: RetryAfter) -> Result<(), StoreError> {
        self.change_delivery(fence.delivery(), |d, now| d.fail(fence, error, retry, now))?;
        Ok(())
    }

    async fn decide_delivery(
        &self,
        id: &DeliveryId,
        attempt: i64,
        decision: DeliveryDecision,
    ) -> Result<DeliveryRecord, StoreError> {
        self.change_delivery(id, |d, now| d.decide(attempt, &decision, now))
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<DeliveryRecord, StoreError> {
        self.state().one_delivery(id)
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Vec<DeliveryRecord>, StoreError> {
        let state = self.state();
        let mut found: Vec<_> = state
            .exchange
            .deliveries
            .values()
            .map(|(_, d)| d)
            .filter(|d| filter.conversation.as_ref().is_none_or(|id| *id == d.conversation))
            .filter(|d| filter.account.as_ref().is_none_or(|account| *account == d.target.account))
            .filter(|d| !filter.open_only || d.state.is_open())
            .cloned()
            .collect();
        found.sort_by_key(|d| Reverse((d.created_at_ms, d.id.clone())));
        found.truncate(filter.limit.min(SEND_LIST_MAX));
        Ok(found)
    }

    async fn prune_deliveries(&self) -> Result<u64, StoreError> {
        self.state().prune_deliveries(self.now())
    }
}
