//! What conversations used, summed as it is counted: an entry of its own for each request would hold as much as the row
//! that it paid for.

use std::collections::BTreeMap;

use crate::ids::ConversationId;
use crate::limits::USAGE_MAX_TOKENS;
use crate::message::{UsageDelta, UsageTotals};

/// Sums by conversation, and which attempts are among them.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Each attempt counts once.
    attempts: BTreeMap<String, ConversationId>,
    sums: BTreeMap<ConversationId, Vec<UsageTotals>>,
}

impl Usage {
    /// Counts an attempt, unless it was counted before.
    pub(super) fn count(&mut self, conversation: &ConversationId, one: &UsageDelta) {
        if self.attempts.contains_key(&one.attempt) {
            return;
        }
        self.attempts.insert(one.attempt.clone(), conversation.clone());
        self.add(
            conversation,
            &UsageTotals {
                provider: one.provider.clone(),
                model: one.model.clone(),
                task: one.task.clone(),
                requests: 1,
                unknown: u64::from(!one.known),
                input: one.input,
                output: one.output,
                cache_read: one.cache_read,
                cache_write: one.cache_write,
                reasoning: one.reasoning,
            },
        );
    }

    /// Adds sums that were counted elsewhere.
    pub(super) fn add(&mut self, conversation: &ConversationId, one: &UsageTotals) {
        let sums = self.sums.entry(conversation.clone()).or_default();
        let place = sums.binary_search_by_key(&key(one), key).unwrap_or_else(|place| {
            let (provider, model, task) = (one.provider.clone(), one.model.clone(), one.task.clone());
            sums.insert(place, UsageTotals { provider, model, task, ..UsageTotals::default() });
            place
        });
        if let Some(sum) = sums.get_mut(place) {
            sum.requests += counted(one.requests);
            sum.unknown += counted(one.unknown);
            sum.input += counted(one.input);
            sum.output += counted(one.output);
            sum.cache_read += counted(one.cache_read);
            sum.cache_write += counted(one.cache_write);
            sum.reasoning += counted(one.reasoning);
        }
    }

    /// Sums of a conversation, by provider, model and task.
    pub(super) fn of(&self, conversation: &ConversationId) -> Vec<UsageTotals> {
        self.sums.get(conversation).cloned().unwrap_or_default()
    }

    /// Forgets a conversation that is deleted.
    pub(super) fn forget(&mut self, conversation: &ConversationId) {
        self.attempts.retain(|_, known| known != conversation);
        self.sums.remove(conversation);
    }
}

fn key(one: &UsageTotals) -> (&str, &str, &str) {
    (&one.provider, &one.model, &one.task)
}

/// What a number of one entry counts in a sum.
fn counted(number: u64) -> u64 {
    number.min(USAGE_MAX_TOKENS.unsigned_abs())
}
