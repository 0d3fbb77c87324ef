//! The iteration budget of a turn: one step is one answer of the model that is taken in.
//!
//! | what | costs |
//! |---|---|
//! | an answer, whatever it is (a round, a cut part, an empty one that is asked for again) | one step |
//! | a round whose only tool is `execute_code`: the model has saved rounds by it | given back, though the request counts |
//! | the answer to a nudge that the last step went into | the one grace step |
//! | an attempt of the same request after a failure of the provider | nothing |
//! | the last empty or withheld answer of a model, behind which another one is asked | given back |
//!
//! What gives a step back is bounded too ([`BUDGET_REFUNDS_MAX`]), so that a turn with a budget always ends.

use crate::limits::BUDGET_REFUNDS_MAX;

/// The tool whose rounds are free.
const FREE_TOOL: &str = "execute_code";

/// Steps of one turn.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    max: Option<u64>,
    used: u64,
    refunds: u32,
    /// Steps after which the model is told, once.
    warn_at: Option<u64>,
    grace: Grace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grace {
    Unused,
    Armed,
    Spent,
}

impl Budget {
    /// A budget of `max` steps (`None`: no limit); the model is told when the part `warn_ratio` of it is used.
    pub(crate) fn new(max: Option<u64>, warn_ratio: Option<f64>) -> Self {
        let warn_at = max.zip(warn_ratio.filter(|ratio| *ratio > 0.0 && *ratio <= 1.0)).map(|(max, ratio)| {
            // Steps are few: they are exact in a float.
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let steps = (max as f64 * ratio).ceil() as u64;
            steps.max(1)
        });
        Self { max, used: 0, refunds: 0, warn_at, grace: Grace::Unused }
    }

    /// Takes a step; false when there is none left.
    pub(crate) fn take(&mut self) -> bool {
        if self.max.is_none_or(|max| self.used < max) {
            self.used += 1;
            return true;
        }
        let graced = self.grace == Grace::Armed;
        if graced {
            self.grace = Grace::Spent;
        }
        graced
    }

    /// An earlier owner of the turn took an answer with calls of these tools in: a crash makes no budget new.
    pub(crate) fn was_used<'n>(&mut self, tools: impl Iterator<Item = &'n str>) {
        let mut tools = tools.peekable();
        self.used += 1;
        if tools.peek().is_some() {
            self.refund_round(tools);
        }
    }

    /// Steps used so far.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// The model was nudged: when that took the last step, its answer is still heard, once in a turn.
    pub(crate) fn allow_grace(&mut self) {
        if self.max.is_some_and(|max| self.used >= max) && self.grace == Grace::Unused {
            self.grace = Grace::Armed;
        }
    }

    /// A round of these tools was run: gives its step back when it is a free one.
    pub(crate) fn refund_round<'n>(&mut self, mut tools: impl Iterator<Item = &'n str>) {
        if tools.all(|name| name == FREE_TOOL) {
            self.refund();
        }
    }

    /// The step of an answer that was none is given back: another model is asked.
    pub(crate) fn refund(&mut self) {
        if self.refunds < BUDGET_REFUNDS_MAX && self.used > 0 {
            self.refunds += 1;
            self.used -= 1;
        }
    }

    /// What the model is told when the budget runs low; once.
    pub(crate) fn warning(&mut self) -> Option<String> {
        let max = self.max?;
        self.warn_at.take_if(|at| self.used >= *at)?;
        let left = max.saturating_sub(self.used);
        Some(format!(
            "Note: {} of the {max} steps of this turn are used, {left} are left. Bring the work to a state that can be \
             left, and answer.",
            self.used
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_run_out_and_no_limit_never_does() {
        let mut budget = Budget::new(Some(2), None);
        assert_eq!([budget.take(), budget.take(), budget.take()], [true, true, false]);
        let mut free = Budget::new(None, Some(0.5));
        assert!((0..1_000).all(|_| free.take()) && free.warning().is_none());
        assert!(!Budget::new(Some(0), None).take());
    }

    #[test]
    fn e18_rounds_of_execute_code_alone_are_given_back_within_a_limit() {
        let mut budget = Budget::new(Some(1), None);
        for _ in 0..BUDGET_REFUNDS_MAX {
            assert!(budget.take());
            budget.refund_round(["execute_code", "execute_code"].into_iter());
            assert_eq!(budget.used(), 0);
        }
        assert!(budget.take());
        budget.refund_round(["execute_code"].into_iter());
        assert!(!budget.take(), "refunds are bounded");
        let mut mixed = Budget::new(Some(1), None);
        mixed.take();
        mixed.refund_round(["execute_code", "terminal"].into_iter());
        assert_eq!(mixed.used(), 1);
    }

    #[test]
    fn what_was_used_before_a_crash_is_used() {
        let mut budget = Budget::new(Some(3), None);
        budget.was_used(["terminal"].into_iter());
        budget.was_used(["execute_code"].into_iter());
        budget.was_used(std::iter::empty());
        assert_eq!(budget.used(), 2);
        assert_eq!([budget.take(), budget.take()], [true, false]);
    }

    #[test]
    fn the_grace_step_is_one_and_only_for_the_last() {
        let mut budget = Budget::new(Some(2), None);
        budget.take();
        budget.allow_grace();
        budget.take();
        assert!(!budget.take(), "there was a step left when it was asked for");
        budget.allow_grace();
        assert!(budget.take());
        budget.allow_grace();
        assert!(!budget.take());
    }

    #[test]
    fn the_warning_comes_once_at_the_ratio() {
        let mut budget = Budget::new(Some(10), Some(0.75));
        let told: Vec<bool> = (0..10).map(|_| budget.take() && budget.warning().is_some()).collect();
        assert_eq!(told.iter().position(|told| *told), Some(7));
        assert_eq!(told.iter().filter(|told| **told).count(), 1);
        for ratio in [0.0, -1.0, 1.5, f64::NAN] {
            let mut budget = Budget::new(Some(1), Some(ratio));
            budget.take();
            assert_eq!(budget.warning(), None, "{ratio}");
        }
    }
}
