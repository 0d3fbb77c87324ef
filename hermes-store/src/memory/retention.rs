//! Flags, ends, names, and what is let go, in the in-memory model.

use super::state::{Conv, State};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, SessionId};
use crate::limits::{PRUNE_EMPTY_MS, PRUNE_MAX_CONVERSATIONS};
use crate::retention::{END_IDLE, PruneReport, PruneRules, PruneStep, Pruned};
use crate::rules::{conflict, invalid, ms, not_found};
use crate::session::{ConversationFlags, ConversationSummary, FlagChange, SessionRecord};
use crate::{history, retention};

impl State {
    pub(super) fn set_flags(
        &mut self,
        fence: &Fence,
        change: FlagChange,
        now: i64,
    ) -> Result<ConversationFlags, StoreError> {
        let flags = change.apply(self.fenced(fence)?.flags);
        self.touch(fence.conversation(), now, false);
        if let Some(conv) = self.conversations.get_mut(fence.conversation()) {
            conv.flags = flags;
        }
        Ok(flags)
    }

    pub(super) fn end_conversation(&mut self, fence: &Fence, reason: &str, now: i64) -> Result<(), StoreError> {
        retention::check_reason(reason)?;
        if let Some(turn) = &self.fenced(fence)?.open_turn {
            return Err(invalid(format!("turn {turn} is open; stop it, or wait for its end")));
        }
        self.touch(fence.conversation(), now, false);
        if let Some(conv) = self.conversations.get_mut(fence.conversation()) {
            conv.ended.get_or_insert_with(|| (now, reason.to_owned()));
        }
        Ok(())
    }

    pub(super) fn lineage(&self, id: &ConversationId) -> Result<Vec<SessionRecord>, StoreError> {
        self.conv(id)?;
        let of_it = self.sessions.values().filter(|session| session.conversation == *id).cloned();
        Ok(history::in_line(of_it.collect()))
    }

    /// The one resolver of ids.
    pub(super) fn tip_of_any(&self, id: &str) -> Result<ConversationSummary, StoreError> {
        let session = SessionId::parse(id).ok().and_then(|id| self.sessions.get(&id));
        let found = session
            .map(|session| session.conversation.clone())
            .or_else(|| ConversationId::parse(id).ok().filter(|id| self.conversations.contains_key(id)))
            .or_else(|| self.alias(id));
        let found = found.ok_or_else(|| not_found("session", id))?;
        Ok(self.summary(&found, self.conv(&found)?))
    }

    fn alias(&self, id: &str) -> Option<ConversationId> {
        self.aliases.get(id).cloned()
    }

    pub(super) fn add_alias(&mut self, fence: &Fence, alias: &SessionId, now: i64) -> Result<(), StoreError> {
        let id = fence.conversation();
        self.fenced(fence)?;
        match self.tip_of_any(alias.as_str()) {
            Ok(known) if known.id == *id => {}
            Ok(_) => return Err(conflict("id", alias)),
            Err(_) => {
                self.aliases.insert(alias.as_str().to_owned(), id.clone());
            }
        }
        self.touch(id, now, false);
        Ok(())
    }

    /// Nobody owns it, and nothing is to come.
    fn is_at_rest(&self, id: &ConversationId, conv: &Conv, now: i64) -> bool {
        let is_held = conv.lease.as_ref().is_some_and(|lease| lease.expires_ms > now);
        !conv.flags.pinned && !is_held && conv.open_turn.is_none() && self.check_over(id).is_ok()
    }

    /// Whether a rule applies to a conversation at rest.
    fn applies(&self, step: PruneStep, id: &ConversationId, conv: &Conv, rules: &PruneRules, now: i64) -> bool {
        let is_old = |time: i64, age: u64| time <= now.saturating_sub(ms(age));
        let is_empty = || self.rows_of(id).next().is_none() && self.admissions.of(id).next().is_none();
        match step {
            PruneStep::Removed => {
                let ended = conv.ended.as_ref().is_some_and(|(at, _)| is_old(*at, rules.idle_ms));
                ended && is_old(conv.activity_ms, rules.idle_ms)
            }
            PruneStep::Empty => is_old(conv.activity_ms, PRUNE_EMPTY_MS) && is_empty(),
            PruneStep::Ended => conv.ended.is_none() && is_old(conv.activity_ms, rules.idle_ms),
            PruneStep::Archived => {
                !conv.flags.archived && rules.archive_ms.is_some_and(|age| is_old(conv.activity_ms, age))
            }
        }
    }

    fn let_go(&mut self, step: PruneStep, id: &ConversationId, now: i64) -> Result<(), StoreError> {
        if matches!(step, PruneStep::Removed | PruneStep::Empty) {
            return self.erase(id);
        }
        if let Some(conv) = self.conversations.get_mut(id) {
            conv.revision += 1;
            match step {
                PruneStep::Ended => conv.ended = Some((now, END_IDLE.to_owned())),
                _ => (conv.flags.archived, conv.flags.auto_archived) = (true, true),
            }
        }
        Ok(())
    }

    pub(super) fn prune(&mut self, rules: &PruneRules, now: i64) -> Result<PruneReport, StoreError> {
        let last = self.pruned_ms.map(|last| last.min(now));
        if !rules.dry_run && last.is_some_and(|last| now < last.saturating_add(ms(rules.every_ms))) {
            return Ok(PruneReport::default());
        }
        let mut report = PruneReport { is_due: true, ..PruneReport::default() };
        let limit = rules.limit.min(PRUNE_MAX_CONVERSATIONS);
        for step in PruneStep::ALL {
            let mut found: Vec<_> = self
                .conversations
                .iter()
                .filter(|(id, conv)| self.applies(step, id, conv, rules, now) && self.is_at_rest(id, conv, now))
                .filter(|(id, _)| !report.done.iter().any(|one| one.conversation == **id))
                .map(|(id, conv)| (conv.activity_ms, id.clone()))
                .collect();
            found.sort();
            let room = limit.saturating_sub(report.done.len());
            report.has_more |= found.len() > room;
            for (last_activity_ms, id) in found.into_iter().take(room) {
                let summary = self.summary(&id, self.conv(&id)?);
                if !rules.dry_run {
                    self.let_go(step, &id, now)?;
                }
                let (title, messages) = (summary.title, summary.messages);
                report.done.push(Pruned { conversation: id, step, title, messages, last_activity_ms });
            }
        }
        if !rules.dry_run && !report.has_more {
            self.pruned_ms = Some(now);
        }
        Ok(report)
    }
}
