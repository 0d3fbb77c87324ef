//! Ownership and turns in the in-memory model.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Lease, State, Turn};
use crate::admission::{AdmissionRecord, AdmissionStatus};
use crate::error::StoreError;
use crate::fence::{ClaimOutcome, ClaimPolicy, ClaimRequest, Fence};
use crate::ids::{ConversationId, Generation, OwnerId, Token, TurnId};
use crate::limits::{BEAT_AHEAD_MAX_MS, OWNER_KEEP_MS};
use crate::message::Role;
use crate::owner::{LivenessProbe, OwnerInfo};
use crate::round::{JournalCall, JournalState, RecordedCall, Round};
use crate::rules::{self, OwnerRow, conflict, invalid, ms, not_found, not_running};
use crate::traits::LeaseStore;
use crate::turn::{OpenTurn, TurnEnd, TurnRecord, TurnStatus};

impl State {
    fn claim(
        &mut self,
        request: &ClaimRequest,
        now: i64,
        probe: &dyn LivenessProbe,
    ) -> Result<ClaimOutcome, StoreError> {
        let id = &request.conversation;
        self.conv(id)?;
        // A clock that went back must not keep anybody waiting for hours (D3): no lease is longer than its life, and no
        // beat is much newer than now.
        let ahead = now.saturating_add(ms(BEAT_AHEAD_MAX_MS));
        for owner in self.owners.values_mut().filter(|owner| owner.beat_ms > ahead) {
            owner.beat_ms = now;
        }
        if let Some(repeated) = self.repeated(request)? {
            return Ok(repeated);
        }
        let Some(conv) = self.conversations.get_mut(id) else { return Err(not_found("conversation", id)) };
        let mut free_since = conv.freed_ms;
        if let Some(lease) = &mut conv.lease {
            lease.expires_ms = lease.expires_ms.min(now.saturating_add(lease.ttl_ms));
            if now < lease.expires_ms && !rules::is_gone(self.owners.get(&lease.owner), now, probe) {
                return Ok(ClaimOutcome::Held { owner: lease.owner.clone(), expires_at_ms: lease.expires_ms });
            }
            free_since = lease.expires_ms.min(now);
        }
        if let Some(open) = conv.open_turn.clone() {
            let fence = self.grant(request, now);
            let open = self.open_turn(&open).ok_or_else(|| not_found("turn", &open))?;
            return Ok(ClaimOutcome::Recover { fence, open: Box::new(open) });
        }
        if request.policy == ClaimPolicy::LeaseOnly {
            return Ok(ClaimOutcome::Leased { fence: self.grant(request, now) });
        }
        let Some(head) = self.waiting(id).first().map(|head| (*head).clone()) else { return Ok(ClaimOutcome::Empty) };
        if head.receipt.status == AdmissionStatus::Unknown {
            return Ok(ClaimOutcome::Blocked);
        }
        let gone = rules::is_gone(self.owners.get(&head.submitted_by), now, probe);
        let since = head.created_at_ms.max(free_since);
        if !rules::may_take(request.policy, &request.owner, &head.submitted_by, gone, since, now) {
            return Ok(ClaimOutcome::NotMine);
        }
        if self.turns.contains_key(&request.turn) {
            return Err(conflict("turn", &request.turn));
        }
        Ok(self.start(request, head, now))
    }

    /// What a claim was told whose answer was lost: its lease is held, and nothing is changed.
    fn repeated(&self, request: &ClaimRequest) -> Result<Option<ClaimOutcome>, StoreError> {
        let conv = self.conv(&request.conversation)?;
        let is_ours = |lease: &Lease| lease.owner == request.owner && lease.claim == request.turn;
        if !conv.lease.as_ref().is_some_and(is_ours) {
            return Ok(None);
        }
        let fence = Fence::new(request.conversation.clone(), request.owner.clone(), Token(conv.counters.token));
        let Some(open) = &conv.open_turn else { return Ok(Some(ClaimOutcome::Leased { fence })) };
        if *open != request.turn {
            let open = self.open_turn(open).ok_or_else(|| not_found("turn", open))?;
            return Ok(Some(ClaimOutcome::Recover { fence, open: Box::new(open) }));
        }
        let turn = self.turns.get(open).ok_or_else(|| not_found("turn", open))?;
        let admission = self.admissions.get(&turn.admission).ok_or_else(|| not_found("admission", &turn.admission))?;
        Ok(Some(ClaimOutcome::Turn { fence, admission: Box::new(admission.clone()), generation: turn.generation }))
    }

    /// Gives the lease, with a token above every earlier one.
    fn grant(&mut self, request: &ClaimRequest, now: i64) -> Fence {
        let ttl_ms = ms(request.ttl_ms);
        let mut token = 0;
        if let Some(conv) = self.conversations.get_mut(&request.conversation) {
            conv.counters.token += 1;
            conv.revision += 1;
            token = conv.counters.token;
            let expires_ms = now.saturating_add(ttl_ms);
            conv.lease = Some(Lease { owner: request.owner.clone(), claim: request.turn.clone(), expires_ms, ttl_ms });
        }
        Fence::new(request.conversation.clone(), request.owner.clone(), Token(token))
    }

    fn start(&mut self, request: &ClaimRequest, mut head: AdmissionRecord, now: i64) -> ClaimOutcome {
        let fence = self.grant(request, now);
        let (mut generation, mut session) = (Generation(0), None);
        if let Some(conv) = self.conversations.get_mut(&request.conversation) {
            conv.counters.generation += 1;
            generation = Generation(conv.counters.generation);
            conv.open_turn = Some(request.turn.clone());
            session = conv.tip.clone();
        }
        head.receipt.status = AdmissionStatus::Started;
        head.receipt.generation = Some(generation);
        head.receipt.turn = Some(request.turn.clone());
        self.admissions.insert(head.receipt.admission.clone(), head.clone());
        let turn = Turn {
            conversation: request.conversation.clone(),
            admission: head.receipt.admission.clone(),
            session,
            generation,
            attempt: 1,
            status: TurnStatus::Running,
            end: None,
            api_calls: 0,
            started_ms: now,
            ended_ms: None,
        };
        self.turns.insert(request.turn.clone(), turn);
        ClaimOutcome::Turn { fence, admission: Box::new(head), generation }
    }

    /// Everything that the journal knows of a turn.
    fn open_turn(&self, id: &TurnId) -> Option<OpenTurn> {
        let turn = self.turns.get(id)?;
        let calls = self.calls_of(id);
        let rows = self.rows_of_turn(id).map(|row| row.created_ms);
        let last_write_ms = rows.chain(calls.iter().map(|c| c.written_ms)).max().unwrap_or(turn.started_ms);
        let last_round = self.rows_of_turn(id).rev().find(|row| !row.calls.is_empty());
        let open_round = last_round.and_then(|row| {
            let calls: Vec<_> = row
                .calls
                .iter()
                .filter_map(|call| self.calls.get(call))
                .map(|call| RecordedCall { new: call.new.clone(), state: call.state })
                .collect();
            let is_open = calls.iter().any(|call| call.state != JournalState::Settled);
            is_open.then(|| Round::read_back(id.clone(), row.new.message(), calls))
        });
        let journal = calls.iter().map(|call| JournalCall {
            call: call.new.call.clone(),
            name: call.new.name.clone(),
            replay: call.new.replay,
            state: call.state,
            outcome: call.outcome,
        });
        Some(OpenTurn {
            id: id.clone(),
            admission: self.admissions.get(&turn.admission)?.clone(),
            generation: turn.generation,
            session: turn.session.clone(),
            attempt: turn.attempt,
            started_at_ms: turn.started_ms,
            last_write_ms,
            calls: journal.collect(),
            open_round,
            last_row: self.rows_of_turn(id).next_back().map(|row| self.stored(row)),
        })
    }

    /// A turn with its answer.
    pub(super) fn turn_record(&self, id: &TurnId) -> Option<TurnRecord> {
        let turn = self.turns.get(id)?;
        Some(TurnRecord {
            id: id.clone(),
            conversation: turn.conversation.clone(),
            admission: turn.admission.clone(),
            session: turn.session.clone(),
            generation: turn.generation,
            attempt: turn.attempt,
            status: turn.status,
            reason: turn.end.as_ref().map(|(reason, _)| reason.clone()),
            detail: turn.end.as_ref().and_then(|(_, detail)| detail.clone()),
            api_calls: turn.api_calls,
            started_at_ms: turn.started_ms,
            ended_at_ms: turn.ended_ms,
            answer: self.answer(id),
        })
    }

    fn requeue(&mut self, fence: &Fence, turn: &TurnId, now: i64) -> Result<(), StoreError> {
        self.running(fence, turn)?;
        if self.rows_of_turn(turn).any(|row| row.new.role == Role::Assistant) {
            return Err(invalid(format!("turn {turn} has recorded what a model said; it cannot be put back")));
        }
        let Some(record) = self.turns.get_mut(turn) else { return Err(not_running(turn)) };
        record.status = TurnStatus::Ended;
        record.end = Some((rules::REQUEUED.to_owned(), None));
        record.ended_ms = Some(now);
        if let Some(admission) = self.admissions.get_mut(&record.admission) {
            admission.receipt.status = AdmissionStatus::Queued;
            admission.receipt.generation = None;
            admission.receipt.turn = None;
        }
        self.close(fence.conversation());
        self.touch(fence.conversation(), now, false);
        Ok(())
    }

    fn settle_turn(
        &mut self,
        fence: &Fence,
        turn: &TurnId,
        end: &TurnEnd,
        release: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        let id = fence.conversation();
        // A repetition is no error, even when the first one gave the lease back, as long as nobody took it since.
        let newest = self.conversations.get(id).is_some_and(|conv| Token(conv.counters.token) == fence.token());
        let record = self.turns.get(turn).filter(|record| record.conversation == *id);
        if newest && let Some((reason, _)) = record.and_then(|record| record.end.as_ref()) {
            return match *reason == end.reason {
                true => Ok(()),
                false => Err(invalid(format!("turn {turn} is over already: {reason}"))),
            };
        }
        self.running(fence, turn)?;
        if let Some(open) = self.calls_of(turn).into_iter().find(|call| call.state != JournalState::Settled) {
            return Err(invalid(format!("call {} has no stored result", open.new.call)));
        }
        self.end_turn(turn, end, now);
        self.touch(id, now, true);
        if release {
            self.release(fence, now);
        }
        Ok(())
    }

    fn lose_turn(&mut self, fence: &Fence, turn: &TurnId, now: i64) -> Result<(), StoreError> {
        self.fenced(fence)?;
        let admission = self.turns.get(turn).map(|record| record.admission.clone());
        let known = admission.as_ref().and_then(|id| self.admissions.get(id));
        let is_ours = |a: &&AdmissionRecord| a.receipt.conversation == *fence.conversation();
        if known.filter(is_ours).is_some_and(|a| a.receipt.status == AdmissionStatus::Unknown) {
            return Ok(());
        }
        self.running(fence, turn)?;
        if let Some(admission) = admission.and_then(|id| self.admissions.get_mut(&id)) {
            admission.receipt.status = AdmissionStatus::Unknown;
        }
        self.close(fence.conversation());
        self.touch(fence.conversation(), now, false);
        Ok(())
    }

    fn release(&mut self, fence: &Fence, now: i64) {
        if let Some(conv) = self.conversations.get_mut(fence.conversation())
            && Token(conv.counters.token) == fence.token()
            && conv.lease.take().is_some()
        {
            conv.freed_ms = now;
            conv.revision += 1;
        }
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn heartbeat(&self, owner: &OwnerInfo) -> Result<(), StoreError> {
        let now = self.now();
        let mut state = self.state();
        let row = OwnerRow { info: owner.clone(), beat_ms: now, retired: false };
        state.owners.insert(owner.id.clone(), row);
        state.owners.retain(|_, row| row.beat_ms > now.saturating_sub(ms(OWNER_KEEP_MS)));
        state.forget_presence();
        Ok(())
    }

    async fn retire(&self, owner: &OwnerId) -> Result<(), StoreError> {
        {
            let now = self.now();
            let mut state = self.state();
            if let Some(row) = state.owners.get_mut(owner) {
                row.retired = true;
            }
            for conv in state.conversations.values_mut() {
                if conv.lease.as_ref().is_some_and(|lease| lease.owner == *owner) {
                    conv.lease = None;
                    conv.freed_ms = now;
                    conv.revision += 1;
                }
            }
        }
        self.notify();
        Ok(())
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let probe = self.probe();
        let done = self.state().claim(&request, self.now(), probe.as_ref());
        self.notify();
        done
    }

    async fn renew(&self, fence: &Fence, ttl_ms: u64) -> Result<(), StoreError> {
        let now = self.now();
        let mut state = self.state();
        state.fenced(fence)?;
        let ttl_ms = ms(ttl_ms);
        if let Some(lease) = state.conversations.get_mut(fence.conversation()).and_then(|conv| conv.lease.as_mut()) {
            lease.expires_ms = now.saturating_add(ttl_ms);
            lease.ttl_ms = ttl_ms;
        }
        Ok(())
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.state().release(fence, self.now());
        self.notify();
        Ok(())
    }

    async fn adopt_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        {
            let mut state = self.state();
            state.running(fence, turn)?;
            if let Some(record) = state.turns.get_mut(turn) {
                record.attempt += 1;
            }
            state.touch(fence.conversation(), self.now(), false);
        }
        self.notify();
        Ok(())
    }

    async fn requeue(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        let done = self.state().requeue(fence, turn, self.now());
        self.notify();
        done
    }

    async fn settle_turn(&self, fence: &Fence, turn: &TurnId, end: TurnEnd, release: bool) -> Result<(), StoreError> {
        let done = self.state().settle_turn(fence, turn, &end, release, self.now());
        self.notify();
        done
    }

    async fn lose_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        let done = self.state().lose_turn(fence, turn, self.now());
        self.notify();
        done
    }

    async fn turn(&self, id: &TurnId) -> Result<TurnRecord, StoreError> {
        self.state().turn_record(id).ok_or_else(|| not_found("turn", id))
    }

    async fn wait_for_change(
        &self,
        conversation: &ConversationId,
        seen: i64,
        max_wait_ms: u64,
    ) -> Result<i64, StoreError> {
        let changed = async {
            loop {
                // The waiter is registered before the state is read: no change falls between the two.
                let notified = self.shared.changed.notified();
                let mut notified = std::pin::pin!(notified);
                notified.as_mut().enable();
                let revision = self.state().conv(conversation)?.revision;
                if revision > seen {
                    return Ok(revision);
                }
                notified.await;
            }
        };
        match tokio::time::timeout(Duration::from_millis(max_wait_ms), changed).await {
            Ok(done) => done,
            Err(_elapsed) => Ok(self.state().conv(conversation)?.revision),
        }
    }
}
