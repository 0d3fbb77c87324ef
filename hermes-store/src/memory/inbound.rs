//! What comes in, in the in-memory model.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::State;
use crate::admission::{AdmissionStatus, AdmitOutcome, NewAdmission, Receipt};
use crate::delivery::{DeliveryRecord, Target};
use crate::error::StoreError;
use crate::ids::{AdmissionId, ConversationId, DeliveryId, Generation};
use crate::inbound::{
    Inbound, InboundKey, InboundReceipt, InboundStore, ReceiveOutcome, Reply, Route, RouteKey, RouteOutcome,
};
use crate::limits::{INBOUND_KEEP_MS, PRUNE_MAX_ROWS};
use crate::rules::{conflict, invalid, ms};
use crate::session::NewConversation;
use crate::turn::TurnStatus;

/// What came in from people and goes out to them.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// By the digest of their keys.
    receipts: BTreeMap<String, Received>,
    /// Which conversation each route leads to, and the generation that set it. The counter stands in [`State::routes`].
    routes: BTreeMap<(String, String), (Option<ConversationId>, i64)>,
    /// Answers that are owed, by admission.
    pub(super) replies: BTreeMap<AdmissionId, Vec<Reply>>,
    /// Each with its place among those of its (account, chat).
    pub(super) deliveries: BTreeMap<DeliveryId, (i64, DeliveryRecord)>,
    pub(super) lanes: BTreeMap<(String, String), i64>,
}

#[derive(Debug, Clone)]
struct Received {
    key: InboundKey,
    conversation: ConversationId,
    admission: Option<AdmissionId>,
    /// What the admission came to, once its conversation is deleted.
    left: Option<Receipt>,
    digest: String,
    last_digest: String,
    edits: i64,
    received_ms: i64,
}

impl State {
    fn inbound_receipt(&self, row: &Received) -> InboundReceipt {
        let live = row.admission.as_ref().and_then(|id| self.admissions.get(id)).map(|a| a.receipt.clone());
        InboundReceipt {
            key: row.key.clone(),
            conversation: row.conversation.clone(),
            admission: live.or_else(|| row.left.clone()),
            edits: row.edits,
            received_at_ms: row.received_ms,
        }
    }

    fn route_of(&self, key: &RouteKey) -> Route {
        let (conversation, generation) =
            self.exchange.routes.get(&(key.source.clone(), key.key.clone())).cloned().unwrap_or_default();
        Route { key: key.clone(), conversation, generation: Generation(generation) }
    }

    fn put_route(&mut self, key: &RouteKey, conversation: &ConversationId, generation: i64) -> Route {
        let at = (key.source.clone(), key.key.clone());
        self.exchange.routes.insert(at, (Some(conversation.clone()), generation));
        self.route_of(key)
    }

    fn bump_route(&mut self, key: &RouteKey) -> i64 {
        let counter = self.routes.entry((key.source.clone(), key.key.clone())).or_insert(0);
        *counter += 1;
        *counter
    }

    fn receive(
        &mut self,
        inbound: Inbound,
        conversation: Option<&NewConversation>,
        input: NewAdmission,
        now: i64,
    ) -> Result<ReceiveOutcome, StoreError> {
        let (id, digest) = (inbound.key.digest(Some(&input.id)), inbound.digest());
        if let Some(row) = self.exchange.receipts.get_mut(&id) {
            let is_new = row.last_digest != digest;
            let is_edit = row.digest != digest;
            if is_edit && is_new {
                row.last_digest = digest;
                row.edits += 1;
            }
            let row = row.clone();
            let receipt = self.inbound_receipt(&row);
            return Ok(match is_edit {
                true => ReceiveOutcome::Edited { receipt, is_new },
                false => ReceiveOutcome::Replayed(receipt),
            });
        }
        let mut is_route_new = false;
        if let Some((key, seen)) = &inbound.route {
            let route = self.route_of(key);
            is_route_new = route.conversation.is_none();
            let leads_here = route.conversation.as_ref().is_none_or(|to| *to == input.conversation);
            if route.generation != *seen || !leads_here {
                return Ok(ReceiveOutcome::Moved(route));
            }
        }
        if let Some(new) = conversation {
            if !self.conversations.contains_key(&new.id) {
                if self.admissions.contains_key(&input.id) {
                    return Err(conflict("admission", &input.id));
                }
                self.check_not_retired(&input.submitted_by)?;
            }
            self.create(new, now);
        }
        let (admission, conversation) = (input.id.clone(), input.conversation.clone());
        let outcome = self.admit(input, now)?;
        let mut row = Received {
            key: inbound.key,
            conversation: conversation.clone(),
            admission: Some(outcome.receipt().admission.clone()),
            left: None,
            last_digest: digest.clone(),
            digest,
            edits: 0,
            received_ms: now,
        };
        if matches!(outcome, AdmitOutcome::Replayed(_)) {
            return Ok(ReceiveOutcome::Replayed(self.inbound_receipt(&row)));
        }
        row.admission = Some(admission.clone());
        if let (true, Some((key, _))) = (is_route_new, &inbound.route) {
            let generation = self.bump_route(key);
            self.put_route(key, &conversation, generation);
        }
        if !inbound.replies.is_empty() {
            self.exchange.replies.insert(admission, inbound.replies);
        }
        let receipt = self.inbound_receipt(&row);
        self.exchange.receipts.insert(id, row);
        Ok(ReceiveOutcome::Accepted(receipt))
    }

    fn set_route(
        &mut self,
        key: &RouteKey,
        generation: Generation,
        conversation: &ConversationId,
    ) -> Result<RouteOutcome, StoreError> {
        let issued = self.routes.get(&(key.source.clone(), key.key.clone())).copied().unwrap_or(0);
        if generation.0 < 1 || generation.0 > issued {
            return Err(invalid(format!("generation {} of the route was never handed out", generation.0)));
        }
        self.conv(conversation)?;
        let present = self.route_of(key);
        if present.generation > generation {
            return Ok(RouteOutcome::Stale(present));
        }
        if present.generation == generation {
            return match present.conversation.as_ref() == Some(conversation) {
                true => Ok(RouteOutcome::Set(present)),
                false => Err(conflict("generation of a route", generation.0)),
            };
        }
        Ok(RouteOutcome::Set(self.put_route(key, conversation, generation.0)))
    }

    fn reset_route(
        &mut self,
        key: &RouteKey,
        seen: Generation,
        new: &NewConversation,
        by: Option<InboundKey>,
        now: i64,
    ) -> RouteOutcome {
        let present = self.route_of(key);
        let id = by.as_ref().map(|by| by.digest(None));
        if id.as_ref().is_some_and(|id| self.exchange.receipts.contains_key(id)) {
            return RouteOutcome::Replayed(present);
        }
        if present.conversation.as_ref() == Some(&new.id) {
            return RouteOutcome::Set(present);
        }
        if present.generation != seen {
            return RouteOutcome::Stale(present);
        }
        self.create(new, now);
        let generation = self.bump_route(key);
        let route = self.put_route(key, &new.id, generation);
        if let (Some(key), Some(id)) = (by, id) {
            let digest =
                Inbound { key: key.clone(), content: String::new(), replies: Vec::new(), route: None }.digest();
            let row = Received {
                key,
                conversation: new.id.clone(),
                admission: None,
                left: None,
                last_digest: digest.clone(),
                digest,
                edits: 0,
                received_ms: now,
            };
            self.exchange.receipts.insert(id, row);
        }
        RouteOutcome::Set(route)
    }

    fn prune_inbound(&mut self, now: i64) -> u64 {
        let before = now.saturating_sub(ms(INBOUND_KEEP_MS));
        let is_over = |admission: &AdmissionId| {
            let Some(record) = self.admissions.get(admission) else { return true };
            let turn = record.receipt.turn.as_ref().and_then(|turn| self.turns.get(turn));
            record.receipt.status == AdmissionStatus::Terminal
                && turn.is_none_or(|turn| turn.status != TurnStatus::Running)
        };
        let mut old: Vec<_> = self
            .exchange
            .receipts
            .iter()
            .filter(|(_, row)| row.received_ms <= before && row.admission.as_ref().is_none_or(is_over))
            .map(|(id, row)| (row.received_ms, id.clone()))
            .collect();
        old.sort();
        old.truncate(PRUNE_MAX_ROWS);
        for (_, id) in &old {
            self.exchange.receipts.remove(id);
        }
        old.len() as u64
    }

    /// The chats that are owed the answer of a turn, each once, in the order in which their inputs came; nothing is owed
    /// afterwards.
    pub(super) fn take_replies(&mut self, turn: &crate::TurnId) -> Vec<Reply> {
        let conversation = self.turns.get(turn).map(|record| &record.conversation);
        let admissions = conversation.into_iter().flat_map(|id| self.admissions.of(id));
        let mut owed: Vec<_> =
            admissions.filter(|a| a.receipt.turn.as_ref() == Some(turn)).map(|a| &a.receipt).collect();
        owed.sort_by_key(|receipt| receipt.seq);
        let ids: Vec<_> = owed.into_iter().map(|receipt| receipt.admission.clone()).collect();
        let mut out: BTreeMap<Target, Reply> = BTreeMap::new();
        for id in ids {
            for reply in self.exchange.replies.remove(&id).unwrap_or_default() {
                out.entry(reply.target.clone()).or_insert(reply);
            }
        }
        out.into_values().collect()
    }

    /// A conversation is deleted: its receipts stay, and say what became of its admissions; its routes lead nowhere.
    /// Called while the admissions are still there.
    pub(super) fn leave_receipts(&mut self, id: &ConversationId) {
        for row in self.exchange.receipts.values_mut().filter(|row| row.conversation == *id) {
            let live = row.admission.as_ref().and_then(|id| self.admissions.get(id));
            if let Some(admission) = live {
                row.left = Some(admission.receipt.clone());
            }
        }
        for (conversation, _) in self.exchange.routes.values_mut() {
            if conversation.as_ref() == Some(id) {
                *conversation = None;
            }
        }
        let admissions = &self.admissions;
        self.exchange.replies.retain(|owed, _| admissions.get(owed).is_some_and(|a| a.receipt.conversation != *id));
    }
}

#[async_trait]
impl InboundStore for MemoryStore {
    async fn receive(
        &self,
        inbound: Inbound,
        conversation: Option<NewConversation>,
        input: NewAdmission,
    ) -> Result<ReceiveOutcome, StoreError> {
        inbound.check(conversation.as_ref(), &input)?;
        let done = self.state().receive(inbound, conversation.as_ref(), input, self.now());
        self.notify();
        done
    }

    async fn inbound(&self, key: &InboundKey) -> Result<Option<InboundReceipt>, StoreError> {
        let state = self.state();
        Ok(state.exchange.receipts.get(&key.digest(None)).map(|row| state.inbound_receipt(row)))
    }

    async fn prune_inbound(&self) -> Result<u64, StoreError> {
        Ok(self.state().prune_inbound(self.now()))
    }

    async fn route(&self, key: &RouteKey) -> Result<Route, StoreError> {
        Ok(self.state().route_of(key))
    }

    async fn set_route(
        &self,
        key: &RouteKey,
        generation: Generation,
        conversation: &ConversationId,
    ) -> Result<RouteOutcome, StoreError> {
        key.check()?;
        self.state().set_route(key, generation, conversation)
    }

    async fn reset_route(
        &self,
        key: &RouteKey,
        seen: Generation,
        conversation: NewConversation,
        by: Option<InboundKey>,
    ) -> Result<RouteOutcome, StoreError> {
        key.check()?;
        crate::inbound::check_command(by.as_ref())?;
        let done = self.state().reset_route(key, seen, &conversation, by, self.now());
        self.notify();
        Ok(done)
    }
}
