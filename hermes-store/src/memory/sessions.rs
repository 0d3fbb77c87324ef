//! Conversations and sessions in the in-memory model.

use std::cmp::Reverse;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Conv, State};
use crate::admission::AdmissionRecord;
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, Generation, SessionId, Token};
use crate::limits::PAGE_MAX_ROWS;
use crate::message::UsageTotals;
use crate::retention::{PruneReport, PruneRules};
use crate::rules::{self, invalid, not_found};
use crate::session::{
    ConversationFilter, ConversationFlags, ConversationSummary, FlagChange, SessionRecord, TitleSource,
};
use crate::traits::SessionStore;

impl State {
    pub(super) fn summary(&self, id: &ConversationId, conv: &Conv) -> ConversationSummary {
        let tip = conv.tip.as_ref().and_then(|tip| self.sessions.get(tip));
        ConversationSummary {
            id: id.clone(),
            tip: conv.tip.clone(),
            profile: conv.profile.clone(),
            source: conv.source.clone(),
            title: conv.title.clone(),
            title_source: conv.title_source,
            provider: tip.map(|tip| tip.provider.clone()),
            model: tip.map(|tip| tip.model.clone()),
            cwd: tip.and_then(|tip| tip.cwd.clone()),
            messages: self.rows_of(id).filter(|row| row.is_visible()).count() as u64,
            preview: conv.preview.clone(),
            created_at_ms: conv.created_ms,
            last_activity_ms: conv.activity_ms,
            pending: self.waiting(id).first().map(|head| head.receipt.status),
            flags: conv.flags,
            ended_at_ms: conv.ended.as_ref().map(|(at, _)| *at),
            branched_from: conv.origin.as_ref().map(|(origin, _)| origin.conversation.clone()),
        }
    }

    fn delete(&mut self, fence: &Fence) -> Result<(), StoreError> {
        let id = fence.conversation();
        if self.tombstones.get(id).is_some_and(|left| Token(left.token) == fence.token()) {
            return Ok(());
        }
        self.fenced(fence)?;
        self.erase(id)
    }

    /// Fails while something of a conversation is not over.
    pub(super) fn check_over(&self, id: &ConversationId) -> Result<(), StoreError> {
        if let Some(waiting) = self.waiting(id).first() {
            return Err(invalid(format!("input {} of the conversation is not over", waiting.receipt.admission)));
        }
        self.check_deliveries_idle(id)?;
        self.check_workers_over(id)?;
        self.check_delegations_over(id)
    }

    /// Removes a conversation that is over, but for its counters.
    pub(super) fn erase(&mut self, id: &ConversationId) -> Result<(), StoreError> {
        let counters = self.conv(id)?.counters;
        self.check_over(id)?;
        self.aliases.retain(|_, conversation| conversation != id);
        self.delete_workers(id);
        self.delete_delegations(id);
        self.leave_receipts(id);
        self.delete_deliveries(id);
        self.approvals.retain(|_, approval| approval.conversation != *id);
        self.admissions.remove_all(id);
        self.turns.retain(|_, turn| turn.conversation != *id);
        self.rows.remove_all(id);
        self.calls.retain(|_, call| call.conversation != *id);
        self.usage.forget(id);
        self.locks.retain(|session, _| self.sessions.get(session).is_some_and(|known| known.conversation != *id));
        self.changes.retain(|_, change| change.record.conversation != *id);
        self.sessions.retain(|_, session| session.conversation != *id);
        let sessions = &self.sessions;
        self.prompts.retain(|hash, _| sessions.values().any(|s| s.prompt.as_str() == hash || s.tools.as_str() == hash));
        self.imports.forget(id);
        self.conversations.remove(id);
        self.tombstones.insert(id.clone(), counters);
        Ok(())
    }
}

fn matches(filter: &ConversationFilter, title: Option<&str>, id: &ConversationId, conv: &Conv) -> bool {
    filter.profile.as_ref().is_none_or(|profile| *profile == conv.profile)
        && filter.source.as_ref().is_none_or(|source| *source == conv.source)
        && filter.is_after_cursor(id, conv.activity_ms)
        && filter.archived.is_none_or(|flag| flag == conv.flags.archived)
        && filter.pinned.is_none_or(|flag| flag == conv.flags.pinned)
        && filter.hidden.is_none_or(|flag| flag == conv.flags.hidden)
        && filter.id_prefix.as_ref().is_none_or(|prefix| id.as_str().starts_with(prefix.as_str()))
        && (filter.title.is_none() || (title.is_some() && conv.title.as_deref() == title))
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn conversations(&self, filter: ConversationFilter) -> Result<Vec<ConversationSummary>, StoreError> {
        let state = self.state();
        let title = filter.title.as_deref().and_then(rules::clean_title);
        let mut found: Vec<_> =
            state.conversations.iter().filter(|(id, conv)| matches(&filter, title.as_deref(), id, conv)).collect();
        found.retain(|(id, conv)| filter.fits(&state.summary(id, conv)));
        found.sort_by_key(|(id, conv)| Reverse((conv.activity_ms, (*id).clone())));
        found.truncate(filter.limit.min(PAGE_MAX_ROWS));
        Ok(found.into_iter().map(|(id, conv)| state.summary(id, conv)).collect())
    }

    async fn conversation(&self, id: &ConversationId) -> Result<ConversationSummary, StoreError> {
        let state = self.state();
        Ok(state.summary(id, state.conv(id)?))
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, StoreError> {
        self.state().sessions.get(id).cloned().ok_or_else(|| not_found("session", id))
    }

    async fn set_title(&self, fence: &Fence, title: &str, source: TitleSource) -> Result<String, StoreError> {
        let clean =
            rules::clean_title(title).ok_or_else(|| invalid("nothing is left of the title; give another one"))?;
        let held = {
            let now = self.now();
            let mut state = self.state();
            state.fenced(fence)?;
            state.touch(fence.conversation(), now, false);
            let Some(conv) = state.conversations.get_mut(fence.conversation()) else {
                return Err(StoreError::Fenced { held: fence.token() });
            };
            match (&conv.title, conv.title_source) {
                (Some(held), Some(stronger)) if stronger > source => held.clone(),
                _ => {
                    conv.title = Some(clean.clone());
                    conv.title_source = Some(source);
                    clean
                }
            }
        };
        self.notify();
        Ok(held)
    }

    async fn set_flags(&self, fence: &Fence, change: FlagChange) -> Result<ConversationFlags, StoreError> {
        let done = self.state().set_flags(fence, change, self.now());
        self.notify();
        done
    }

    async fn end_conversation(&self, fence: &Fence, reason: &str) -> Result<(), StoreError> {
        let done = self.state().end_conversation(fence, reason, self.now());
        self.notify();
        done
    }

    async fn lineage(&self, conversation: &ConversationId) -> Result<Vec<SessionRecord>, StoreError> {
        self.state().lineage(conversation)
    }

    async fn tip(&self, id: &str) -> Result<ConversationSummary, StoreError> {
        self.state().tip_of_any(id)
    }

    async fn add_alias(&self, fence: &Fence, alias: &SessionId) -> Result<(), StoreError> {
        let done = self.state().add_alias(fence, alias, self.now());
        self.notify();
        done
    }

    async fn prune(&self, rules: PruneRules) -> Result<PruneReport, StoreError> {
        let done = self.state().prune(&rules, self.now());
        self.notify();
        done
    }

    async fn delete_conversation(&self, fence: &Fence) -> Result<(), StoreError> {
        let done = self.state().delete(fence);
        self.notify();
        done
    }

    async fn usage(&self, conversation: &ConversationId) -> Result<Vec<UsageTotals>, StoreError> {
        let state = self.state();
        state.conv(conversation)?;
        Ok(state.usage.of(conversation))
    }

    async fn next_generation(&self, source: &str, key: &str) -> Result<Generation, StoreError> {
        let mut state = self.state();
        let counter = state.routes.entry((source.to_owned(), key.to_owned())).or_insert(0);
        *counter += 1;
        Ok(Generation(*counter))
    }

    async fn queue(&self, conversation: &ConversationId) -> Result<Vec<AdmissionRecord>, StoreError> {
        let state = self.state();
        state.conv(conversation)?;
        Ok(state.waiting(conversation).into_iter().cloned().collect())
    }
}
