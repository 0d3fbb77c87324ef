//! The liveness watchdog: ends a turn that goes on without getting on, and bounds how long a stopped turn takes to end.
//!
//! A turn lives as long as something of it moves. What counts is progress, and not that somebody still answers:
//!
//! | a sign of life | not one |
//! |---|---|
//! | a piece of the answer, of its reasoning or of a call | a keep-alive of the provider, an open connection |
//! | a write that is durable | a renewal of the lease |
//! | a call that begins, ends or has output | a call that is silent |
//! | the end of an attempt at a request (attempts are counted) | |
//!
//! Silence with a reason is no wedge: a call within its own time limit ([`hermes_tools::Tool::limit_ms`], else the
//! batch's), a wait before a retry within its length, notes of a compression within their time; and a wait for a person
//! or for a child of the turn, which has a watchdog of its own, for as long as it takes. What outlives its own limit by
//! [`LIVENESS_MARGIN_MS`] is silent like anything else. Time in which the host slept does not count.
//!
//! The turn is stopped once, hard, and bound to what was seen: the count of signs is compared again under the lock that
//! every sign takes. It then ends like any stopped turn, through the one exit, and gives its lease back. What ignores
//! even that is given up: [`watch`] ends [`TURN_STOP_GRACE_MS`] after the hard stop, whoever asked for it, and the future
//! of the turn is dropped. Everything of a turn runs inside it, so this is a crash that leaves the process alive: no more
//! renewal, and the next owner recovers the turn from the journal when the lease has run out. It is not given back
//! early, since a thread that a tool blocked may still be at work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hermes_tools::{
    ApprovalAnswer, ApprovalRequest, Approver, Clarifier, ClarifyAnswer, ClarifyQuestion, PreparedCall, ToolContext,
};

use crate::limits::{LIVENESS_JUMP_POLLS, LIVENESS_MARGIN_MS, LIVENESS_POLL_MS, TURN_STOP_GRACE_MS};
use crate::seams::Clock;
use crate::stop::{Cause, Interrupt, StopSignal};

/// A sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The turn began.
    Begun,
    /// A piece of an answer.
    Delta,
    /// An attempt at a request ended.
    Attempt,
    /// A write is durable.
    Write,
    /// A call began, ended or had output.
    Call,
    /// A wait with a reason is over.
    Waited,
}

impl Sign {
    fn words(self) -> &'static str {
        match self {
            Self::Begun => "its begin",
            Self::Delta => "a piece of the model's answer",
            Self::Attempt => "the end of a request",
            Self::Write => "a row that was stored",
            Self::Call => "a tool call",
            Self::Waited => "the end of a wait",
        }
    }
}

/// How long a silence has a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For so many milliseconds.
    Ms(u64),
    /// For as long as it takes.
    Open,
}

/// How long a call may be silent. `batch_ms` is the time of the batch, 0 for none.
pub(crate) fn patience_of(ready: &PreparedCall, cx: &ToolContext, batch_ms: u64) -> Option<Patience> {
    match ready.tool.limit_ms(&ready.call, cx) {
        Some(ms) => Some(Patience::Ms(ms)),
        None if !ready.tool.spec().timed => Some(Patience::Open),
        None => (batch_ms > 0).then_some(Patience::Ms(batch_ms)),
    }
}

/// What is known of a turn's life. Pure: it is told the time.
#[derive(Debug)]
struct Signs {
    /// Grows with every sign.
    count: u64,
    last: Sign,
    at_ms: i64,
    /// Until when each silence has a reason; `None` = until it is over.
    waits: BTreeMap<u64, Option<i64>>,
}

impl Signs {
    fn new(now_ms: i64) -> Self {
        Self { count: 0, last: Sign::Begun, at_ms: now_ms, waits: BTreeMap::new() }
    }

    fn stamp(&mut self, sign: Sign, now_ms: i64) {
        self.count += 1;
        self.last = sign;
        self.at_ms = now_ms;
    }

    /// How long the turn has been silent without a reason for it; `None` while it lives.
    fn wedged_for(&self, now_ms: i64, timeout_ms: u64) -> Option<u64> {
        let mut lives_until_ms = after(self.at_ms, timeout_ms);
        for until_ms in self.waits.values() {
            lives_until_ms = lives_until_ms.max(after((*until_ms)?, LIVENESS_MARGIN_MS));
        }
        (now_ms >= lives_until_ms).then(|| u64::try_from(now_ms.saturating_sub(self.at_ms)).unwrap_or(0))
    }

    /// Takes time out of all counts.
    fn shift(&mut self, ms: i64) {
        for until_ms in self.waits.values_mut().flatten() {
            *until_ms = until_ms.saturating_add(ms);
        }
    }
}

fn after(from_ms: i64, ms: u64) -> i64 {
    from_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Where the parts of a turn leave their signs. Clones are one.
#[derive(Clone)]
pub(crate) struct Pulse {
    clock: Arc<dyn Clock>,
    /// Held for one look or change, never over an await.
    signs: Arc<Mutex<Signs>>,
}

impl Pulse {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let signs = Arc::new(Mutex::new(Signs::new(clock.now_ms())));
        Self { clock, signs }
    }

    fn lock(&self) -> MutexGuard<'_, Signs> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something moved.
    pub(crate) fn stamp(&self, sign: Sign) {
        let now_ms = self.clock.now_ms();
        self.lock().stamp(sign, now_ms);
    }

    /// Silence has a reason until the guard is dropped, or its time is over.
    pub(crate) fn wait(&self, patience: Patience) -> Waiting {
        let now_ms = self.clock.now_ms();
        let mut signs = self.lock();
        signs.count += 1;
        let id = signs.count;
        let open_since_ms = match patience {
            Patience::Ms(ms) => {
                signs.waits.insert(id, Some(after(now_ms, ms)));
                None
            }
            Patience::Open => {
                signs.waits.insert(id, None);
                Some(now_ms)
            }
        };
        Waiting { pulse: self.clone(), id, open_since_ms }
    }

    /// The host slept: nothing could move.
    fn slept(&self, ms: i64) {
        let mut signs = self.lock();
        signs.at_ms = signs.at_ms.saturating_add(ms);
        signs.shift(ms);
    }

    /// What is seen now: the count of signs, and how long nothing has moved when that is too long.
    fn look(&self, timeout_ms: u64) -> Option<(u64, u64)> {
        let now_ms = self.clock.now_ms();
        let signs = self.lock();
        signs.wedged_for(now_ms, timeout_ms).map(|quiet_ms| (signs.count, quiet_ms))
    }

    /// Stops the turn, unless something has moved since `seen`. Every sign takes the same lock, so none can slip in
    /// between the comparison and the stop.
    fn stop_if_still(&self, seen: u64, quiet_ms: u64, stop: &StopSignal) -> bool {
        let signs = self.lock();
        if signs.count != seen {
            return false;
        }
        tracing::warn!(quiet_ms, last = signs.last.words(), "a turn made no progress and is stopped");
        stop.stop(Cause::Wedged { quiet_ms, last: signs.last.words() }, Interrupt::Hard);
        true
    }

    /// The same person; the time that their answers need is no silence.
    pub(crate) fn approver(&self, inner: Arc<dyn Approver>) -> Arc<dyn Approver> {
        Arc::new(Patient { pulse: self.clone(), inner })
    }

    /// The same person; the time that their answers need is no silence.
    pub(crate) fn clarifier(&self, inner: Arc<dyn Clarifier>) -> Arc<dyn Clarifier> {
        Arc::new(Patient { pulse: self.clone(), inner })
    }
}

/// A silence with a reason.
pub(crate) struct Waiting {
    pulse: Pulse,
    id: u64,
    open_since_ms: Option<i64>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let now_ms = self.pulse.clock.now_ms();
        let mut signs = self.pulse.lock();
        signs.waits.remove(&self.id);
        // The time that a person needs is not that of a call beside it.
        if let Some(since_ms) = self.open_since_ms {
            signs.shift(now_ms.saturating_sub(since_ms).max(0));
        }
        signs.stamp(Sign::Waited, now_ms);
    }
}

/// Waits for a person without counting it.
struct Patient<T: ?Sized> {
    pulse: Pulse,
    inner: Arc<T>,
}

#[async_trait]
impl Approver for Patient<dyn Approver> {
    async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer {
        let _waiting = self.pulse.wait(Patience::Open);
        self.inner.ask(request).await
    }

    async fn remember(&self, pattern: &str) {
        self.inner.remember(pattern).await;
    }
}

#[async_trait]
impl Clarifier for Patient<dyn Clarifier> {
    async fn clarify(&self, questions: Vec<ClarifyQuestion>) -> Vec<ClarifyAnswer> {
        let _waiting = self.pulse.wait(Patience::Open);
        self.inner.clarify(questions).await
    }
}

/// Watches a turn. Stops it when its time is over or it no longer gets on, and ends when it has not ended by itself
/// [`TURN_STOP_GRACE_MS`] after a hard stop: it is to be dropped then.
pub(crate) async fn watch(
    clock: &dyn Clock,
    pulse: &Pulse,
    stop: &StopSignal,
    timeout_ms: Option<u64>,
    deadline_ms: Option<i64>,
) {
    while !stop.hard().is_cancelled() {
        let now_ms = clock.now_ms();
        if deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms) {
            stop.stop(Cause::Deadline, Interrupt::Hard);
            break;
        }
        let poll_ms = timeout_ms.map(|timeout_ms| timeout_ms.clamp(1, LIVENESS_POLL_MS));
        let left_ms = deadline_ms.map(|deadline_ms| u64::try_from(deadline_ms - now_ms).unwrap_or(1));
        let Some(nap_ms) = poll_ms.into_iter().chain(left_ms).min() else {
            stop.hard().cancelled().await;
            break;
        };
        tokio::select! {
            biased;
            () = stop.hard().cancelled() => break,
            () = clock.sleep(nap_ms) => {}
        }
        let gone_ms = clock.now_ms().saturating_sub(now_ms);
        if let Some(timeout_ms) = timeout_ms {
            if gone_ms > after(0, nap_ms.saturating_mul(LIVENESS_JUMP_POLLS)) {
                pulse.slept(gone_ms - after(0, nap_ms));
            } else if let Some((seen, quiet_ms)) = pulse.look(timeout_ms) {
                pulse.stop_if_still(seen, quiet_ms, stop);
            }
        }
    }
    clock.sleep(TURN_STOP_GRACE_MS).await;
    tracing::error!("a turn did not end after it was stopped, and is given up");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    use futures::future::BoxFuture;

    const T: u64 = 600_000;

    #[derive(Default)]
    struct Hand(AtomicI64);

    impl Clock for Hand {
        fn now_ms(&self) -> i64 {
            self.0.load(Ordering::SeqCst)
        }

        fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
            self.0.fetch_add(i64::try_from(ms).unwrap(), Ordering::SeqCst);
            Box::pin(futures::future::ready(()))
        }
    }

    fn pulse() -> (Arc<Hand>, Pulse) {
        let hand = Arc::new(Hand::default());
        (hand.clone(), Pulse::new(hand))
    }

    fn forward(hand: &Hand, ms: u64) {
        hand.0.fetch_add(i64::try_from(ms).unwrap(), Ordering::SeqCst);
    }

    #[test]
    fn silence_is_counted_from_the_last_sign() {
        let (hand, pulse) = pulse();
        forward(&hand, T - 1);
        assert_eq!(pulse.look(T), None);
        pulse.stamp(Sign::Delta);
        forward(&hand, T - 1);
        assert_eq!(pulse.look(T), None);
        forward(&hand, 1);
        assert_eq!(pulse.look(T), Some((1, T)));
    }

    #[test]
    fn a_silence_with_a_reason_is_borne_for_its_time_and_a_margin() {
        let (hand, pulse) = pulse();
        let waiting = pulse.wait(Patience::Ms(3 * T));
        forward(&hand, 3 * T + LIVENESS_MARGIN_MS - 1);
        assert_eq!(pulse.look(T), None);
        forward(&hand, 1);
        assert!(pulse.look(T).is_some(), "it outlives its own limit");
        drop(waiting);
        assert_eq!(pulse.look(T), None, "its end is a sign");
        let short = pulse.wait(Patience::Ms(1));
        forward(&hand, T - 1);
        assert_eq!(pulse.look(T), None, "a short limit makes nobody impatient");
        drop(short);
    }

    #[test]
    fn a_person_is_waited_for_and_their_time_is_not_that_of_a_call_beside() {
        let (hand, pulse) = pulse();
        let call = pulse.wait(Patience::Ms(2 * T));
        let person = pulse.wait(Patience::Open);
        forward(&hand, 50 * T);
        assert_eq!(pulse.look(T), None);
        drop(person);
        forward(&hand, 2 * T);
        assert_eq!(pulse.look(T), None);
        forward(&hand, LIVENESS_MARGIN_MS);
        assert!(pulse.look(T).is_some());
        drop(call);
    }

    #[test]
    fn the_stop_is_bound_to_what_was_seen() {
        let (hand, pulse) = pulse();
        forward(&hand, T);
        let (seen, quiet_ms) = pulse.look(T).unwrap();
        pulse.stamp(Sign::Write);
        let stop = StopSignal::default();
        assert!(!pulse.stop_if_still(seen, quiet_ms, &stop));
        assert_eq!(stop.cause(), None);
        forward(&hand, T);
        let (seen, quiet_ms) = pulse.look(T).unwrap();
        assert!(pulse.stop_if_still(seen, quiet_ms, &stop));
        assert_eq!(stop.cause(), Some(Cause::Wedged { quiet_ms: T, last: "a row that was stored" }));
        assert!(stop.hard().is_cancelled());
    }

    #[tokio::test]
    async fn a_silent_turn_is_stopped_at_its_timeout_and_given_up_after_the_grace() {
        let (hand, pulse) = pulse();
        let stop = StopSignal::default();
        watch(hand.as_ref(), &pulse, &stop, Some(T), None).await;
        assert!(matches!(stop.cause(), Some(Cause::Wedged { quiet_ms: T, .. })));
        assert_eq!(hand.now_ms(), after(0, T + TURN_STOP_GRACE_MS));
    }

    #[tokio::test]
    async fn a_deadline_stops_to_the_millisecond_also_a_turn_that_was_asked_to_end_softly() {
        let (hand, pulse) = pulse();
        let stop = StopSignal::default();
        stop.stop(Cause::Asked(crate::end::Stopper::User), Interrupt::Soft);
        watch(hand.as_ref(), &pulse, &stop, None, Some(1_234)).await;
        assert_eq!(hand.now_ms(), after(1_234, TURN_STOP_GRACE_MS));
        assert!(stop.hard().is_cancelled());
        assert_eq!(stop.cause(), Some(Cause::Asked(crate::end::Stopper::User)), "the first cause stays");
    }

    /// A clock whose host sleeps once, in the tenth nap.
    struct Sleeper {
        hand: Hand,
        naps: AtomicI64,
    }

    impl Clock for Sleeper {
        fn now_ms(&self) -> i64 {
            self.hand.now_ms()
        }

        fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
            if self.naps.fetch_add(1, Ordering::SeqCst) == 9 {
                forward(&self.hand, 100 * T);
            }
            self.hand.sleep(ms)
        }
    }

    #[tokio::test]
    async fn the_sleep_of_a_host_does_not_count() {
        let clock = Arc::new(Sleeper { hand: Hand::default(), naps: AtomicI64::new(0) });
        let pulse = Pulse::new(clock.clone());
        let stop = StopSignal::default();
        watch(clock.as_ref(), &pulse, &stop, Some(T), None).await;
        let awake_ms = clock.now_ms() - after(0, 100 * T + TURN_STOP_GRACE_MS);
        assert_eq!(awake_ms, after(0, T), "a whole timeout of waking time");
    }
}
