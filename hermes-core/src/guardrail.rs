//! Guardrails: notices that a turn goes in circles, tells the model, and where nobody watches ends the turn.
//!
//! One value per turn that is told of every result and answers with a [`Verdict`]; it decides and does nothing. What it
//! compares are (tool, canonical arguments, result), so a call that is written in another order is the same call.
//!
//! | sign | told at | ends the turn at |
//! |---|---|---|
//! | the same call with the same arguments fails | 2 | 5 |
//! | the same tool fails, whatever its arguments, in a row | 3 | 8 |
//! | a call without effect gives the same result | 2 | 5 |
//! | the same call with the same result, in a row | 3 | 5 |
//! | the same cycle of 2 to 4 calls with the same results, in a row | 3 | 5 |
//! | more web searches or subagents than a turn may have | each is refused | 5 refusals, on every surface |
//!
//! A call that had an effect makes it worth while to try again what failed before it, and to look again: both counts
//! begin anew. So does everything when a person has said something.
//!
//! # Results that are not repeated
//!
//! From its second repetition on, a large result is given as a short reference to the earlier row. The row that is
//! stored holds this reference and not the result: what the model saw is then what every later request replays (I18,
//! I19), and there is no second form of the row that a rebuilt request could show by mistake. Nothing is lost, because
//! the earlier row of the same turn holds the same bytes; `meta` names its call. When the model's view was rebuilt (a
//! resume, a compression) the earlier row may be out of its sight, so the counting begins anew ([`Guardrails::view_changed`]).

use std::collections::{HashMap, VecDeque};

use hermes_store::{CallOutcome, CallResult, ReplaySafety};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::limits::{
    CAPPED_CALLS_MAX, GUARD_CYCLE_MAX_CALLS, GUARD_EXACT_FAILURES_HALT, GUARD_EXACT_FAILURES_WARN,
    GUARD_NO_PROGRESS_HALT, GUARD_NO_PROGRESS_WARN, GUARD_SAME_RESULT_FROM_REPEAT, GUARD_SAME_RESULT_MIN_BYTES,
    GUARD_STREAK_HALT, GUARD_STREAK_WARN, GUARD_TOOL_FAILURES_HALT, GUARD_TOOL_FAILURES_WARN, SUBAGENTS_PER_TURN_MAX,
    WEB_SEARCHES_PER_TURN_MAX,
};

/// What a digest is kept of: the first half of a SHA-256.
type Short = [u8; 16];

/// A tool of which one turn may make so many calls only.
struct Cap {
    tool: &'static str,
    max: u32,
    /// How many one call counts for.
    weight: fn(&Value) -> u32,
}

/// Every cap.
const CAPS: &[Cap] = &[
    Cap { tool: "web_search", max: WEB_SEARCHES_PER_TURN_MAX, weight: |_| 1 },
    Cap {
        tool: "delegate_task",
        max: SUBAGENTS_PER_TURN_MAX,
        weight: |arguments| match arguments["action"].as_str() {
            None | Some("" | "spawn") => {
                arguments["tasks"].as_array().map_or(1, |tasks| u32::try_from(tasks.len()).unwrap_or(u32::MAX).max(1))
            }
            // It is about children that there are.
            Some(_) => 0,
        },
    },
];

/// What a result means for the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on.
    Fine,
    /// Go on, and tell the model this together with the result.
    Warn(String),
    /// End the turn after this round, for this reason. The model is told too.
    Halt(String),
}

/// A call, as far as guardrails look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'c> {
    /// The tool.
    pub name: &'c str,
    /// The arguments as the model wrote them.
    pub arguments: &'c str,
    /// What the call may do.
    pub replay: ReplaySafety,
    /// The id that the model knows the call by.
    pub provider_id: &'c str,
}

/// A large result that the model has seen.
#[derive(Debug)]
struct Known {
    provider_id: String,
    times: u32,
}

/// What one turn's calls have come to so far.
#[derive(Debug, Default)]
pub(crate) struct Guardrails {
    hard_stop: bool,
    exact_failures: HashMap<Short, u32>,
    tool_failures: HashMap<String, u32>,
    /// By call: its last result, and how often it gave it.
    progress: HashMap<Short, (Short, u32)>,
    /// The last results with their calls, oldest first.
    recent: VecDeque<Short>,
    results: HashMap<Short, Known>,
    capped: HashMap<&'static str, u32>,
    refused: u32,
    halt: Option<String>,
}

impl Guardrails {
    /// Guardrails of a new turn; with `hard_stop` circles end the turn.
    pub(crate) fn new(hard_stop: bool) -> Self {
        Self { hard_stop, ..Self::default() }
    }

    /// Why the turn has to end, when it has to.
    pub(crate) fn halted(&self) -> Option<&str> {
        self.halt.as_deref()
    }

    /// A person has said something: what goes in circles may do so for a reason that is gone. Caps stay.
    pub(crate) fn person_spoke(&mut self) {
        self.exact_failures.clear();
        self.tool_failures.clear();
        self.progress.clear();
        self.recent.clear();
    }

    /// The model's view was built anew: earlier results may be out of its sight.
    pub(crate) fn view_changed(&mut self) {
        self.results.clear();
    }

    /// Asks whether a call may run at all.
    ///
    /// # Errors
    /// What the model is told when the turn has made too many calls of this kind.
    pub(crate) fn admit(&mut self, name: &str, arguments: &Value) -> Result<(), String> {
        let Some(Cap { tool, max, weight }) = CAPS.iter().find(|cap| cap.tool == name) else { return Ok(()) };
        let count = self.capped.entry(tool).or_default();
        let wanted = count.saturating_add(weight(arguments));
        if wanted <= *max {
            *count = wanted;
            return Ok(());
        }
        self.refused += 1;
        if self.refused >= CAPPED_CALLS_MAX {
            self.halt
                .get_or_insert_with(|| format!("the turn made more calls of {name} than the {max} that it may make"));
        }
        Err(format!("Not run: one turn may do at most {max} of {name}. Go on with what you have, or answer."))
    }

    /// Looks at a result before it is stored: may replace its text by a reference and add a note to it.
    pub(crate) fn observe(&mut self, seen: Seen<'_>, result: &mut CallResult) -> Verdict {
        let call = call_digest(seen.name, seen.arguments);
        let triple = result_digest(&call, result);
        let verdict = self.judge(seen, call, triple, result.outcome);
        self.refer(seen, triple, result);
        match &verdict {
            Verdict::Fine => {}
            Verdict::Warn(note) => append(result, note),
            Verdict::Halt(why) => {
                append(result, &format!("The turn ends here: {why}."));
                self.halt.get_or_insert_with(|| why.clone());
            }
        }
        verdict
    }

    /// All signs, the weightiest first.
    fn judge(&mut self, seen: Seen<'_>, call: Short, triple: Short, outcome: CallOutcome) -> Verdict {
        let name = seen.name;
        let failed = match outcome {
            CallOutcome::Ok => false,
            CallOutcome::Failed | CallOutcome::Denied | CallOutcome::Invalid | CallOutcome::TimedOut => true,
            // The turn was stopped, or nobody knows: no sign of anything.
            CallOutcome::Skipped | CallOutcome::Interrupted | CallOutcome::OutcomeUnknown => return Verdict::Fine,
        };
        let (exact, of_tool, same) = self.count(seen, call, triple, failed);
        let (streak, cycle) = self.repeated(triple);
        let signs = [
            (
                exact,
                GUARD_EXACT_FAILURES_WARN,
                GUARD_EXACT_FAILURES_HALT,
                format!("{name} has failed {exact} times with the same arguments"),
                "Do not make this call again as it is: find out why it fails, or do it in another way.",
            ),
            (
                of_tool,
                GUARD_TOOL_FAILURES_WARN,
                GUARD_TOOL_FAILURES_HALT,
                format!("{name} has failed {of_tool} times in a row"),
                "Think about what these failures have in common before you use it again.",
            ),
            (
                streak,
                GUARD_STREAK_WARN,
                GUARD_STREAK_HALT,
                format!("{name} was called {streak} times in a row with the same arguments and the same result"),
                "Another time will not help: use what you have, or do something else.",
            ),
            (
                cycle.0,
                GUARD_STREAK_WARN,
                GUARD_STREAK_HALT,
                format!("the same {} calls were made {} times in a row with the same results", cycle.1, cycle.0),
                "You go in a circle: use what you have, or do something else.",
            ),
            (
                same,
                GUARD_NO_PROGRESS_WARN,
                GUARD_NO_PROGRESS_HALT,
                format!("{name} gave the same result {same} times for the same arguments"),
                "Nothing has changed since: use what you have.",
            ),
        ];
        if self.hard_stop
            && let Some((.., what, _)) = signs.iter().find(|(count, _, halt, ..)| count >= halt)
        {
            return Verdict::Halt(what.clone());
        }
        match signs.into_iter().find(|(count, warn, ..)| count >= warn) {
            Some((.., what, advice)) => Verdict::Warn(format!("Note: {what}. {advice}")),
            None => Verdict::Fine,
        }
    }

    /// Counts a result: failures of this call, failures of the tool in a row, equal results of this call.
    fn count(&mut self, seen: Seen<'_>, call: Short, triple: Short, failed: bool) -> (u32, u32, u32) {
        if failed {
            let exact = self.exact_failures.entry(call).or_default();
            *exact += 1;
            let of_tool = self.tool_failures.entry(seen.name.to_owned()).or_default();
            *of_tool += 1;
            return (*exact, *of_tool, 0);
        }
        self.exact_failures.remove(&call);
        self.tool_failures.remove(seen.name);
        if seen.replay != ReplaySafety::Pure {
            self.exact_failures.clear();
            self.progress.clear();
            return (0, 0, 0);
        }
        let (last, same) = self.progress.entry(call).or_insert((triple, 0));
        *same = if *last == triple { *same + 1 } else { 1 };
        *last = triple;
        (0, 0, *same)
    }

    /// How often the last result stands in a row, and the best cycle with how often it was gone through.
    fn repeated(&mut self, triple: Short) -> (u32, (u32, usize)) {
        const KEPT: usize = GUARD_CYCLE_MAX_CALLS * GUARD_STREAK_HALT as usize;
        self.recent.push_back(triple);
        if self.recent.len() > KEPT {
            self.recent.pop_front();
        }
        // How many of the last results equal the one that stands `period` before them.
        let run = |period: usize| {
            let newest_first = self.recent.iter().rev();
            newest_first.clone().zip(newest_first.skip(period)).take_while(|(a, b)| a == b).count()
        };
        let times = |period: usize| u32::try_from((run(period) + period) / period).unwrap_or(u32::MAX);
        let streak = times(1);
        // A streak is a cycle of any length too; it has its own words.
        let cycle = (2..=GUARD_CYCLE_MAX_CALLS).map(|period| (times(period), period)).max_by_key(|(times, _)| *times);
        (streak, cycle.filter(|_| streak < 2).unwrap_or((0, 0)))
    }

    /// Gives a large result that the model has seen twice as a reference to the first time.
    fn refer(&mut self, seen: Seen<'_>, triple: Short, result: &mut CallResult) {
        if result.content.len() < GUARD_SAME_RESULT_MIN_BYTES {
            return;
        }
        let first = || Known { provider_id: seen.provider_id.to_owned(), times: 0 };
        let known = self.results.entry(triple).or_insert_with(first);
        known.times += 1;
        if known.times <= GUARD_SAME_RESULT_FROM_REPEAT {
            return;
        }
        let bytes = result.content.len();
        result.content = format!(
            "[The same result, byte for byte, as that of the call {} of {} in this turn; its {bytes} bytes stand there and \
             are not repeated.]",
            known.provider_id, seen.name
        );
        if let Value::Object(meta) = result.meta.get_or_insert_with(|| json!({})) {
            meta.insert("same_as".to_owned(), json!(known.provider_id));
            meta.insert("same_bytes".to_owned(), json!(bytes));
        }
    }
}

/// Adds a note to a result that is not stored yet.
pub(crate) fn append(result: &mut CallResult, note: &str) {
    if !result.content.is_empty() {
        result.content.push_str("\n\n");
    }
    result.content.push('[');
    result.content.push_str(note);
    result.content.push(']');
}

fn call_digest(name: &str, arguments: &str) -> Short {
    let mut hash = Sha256::new();
    hash.update(name.as_bytes());
    hash.update([0]);
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => canonical(&value, &mut hash),
        Err(_) => hash.update(arguments.trim().as_bytes()),
    }
    short(hash)
}

fn result_digest(call: &Short, result: &CallResult) -> Short {
    let mut hash = Sha256::new();
    hash.update(call);
    hash.update(result.outcome.as_str().as_bytes());
    hash.update([0]);
    // A spilled result names its file, which is another one each time.
    let spill = result.meta.as_ref().and_then(|meta| meta["spill_path"].as_str());
    match spill {
        Some(path) => hash.update(result.content.replace(path, "").as_bytes()),
        None => hash.update(result.content.as_bytes()),
    }
    short(hash)
}

fn short(hash: Sha256) -> Short {
    let digest = hash.finalize();
    let mut out = [0; 16];
    out.copy_from_slice(&digest[..16]);
    out
}

/// Feeds a value with the keys of its objects sorted.
fn canonical(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            hash.update(b"{");
            for key in keys {
                hash.update((key.len() as u64).to_le_bytes());
                hash.update(key.as_bytes());
                canonical(&map[key], hash);
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                canonical(item, hash);
            }
            hash.update(b"]");
        }
        Value::String(text) => {
            hash.update(b"s");
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        other => hash.update(format!("v{other},").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        guard: Guardrails,
        calls: u32,
    }

    fn case(hard_stop: bool) -> Case {
        Case { guard: Guardrails::new(hard_stop), calls: 0 }
    }

    impl Case {
        fn call(
            &mut self,
            name: &str,
            arguments: &str,
            replay: ReplaySafety,
            outcome: CallOutcome,
            text: &str,
        ) -> Told {
            self.calls += 1;
            let provider_id = format!("p{}", self.calls);
            let mut result = CallResult { outcome, content: text.to_owned(), meta: None };
            let seen = Seen { name, arguments, replay, provider_id: &provider_id };
            let verdict = self.guard.observe(seen, &mut result);
            Told { verdict, result }
        }

        fn fails(&mut self, arguments: &str, text: &str) -> Told {
            self.call("act", arguments, ReplaySafety::Once, CallOutcome::Failed, text)
        }

        fn reads(&mut self, arguments: &str, text: &str) -> Told {
            self.call("look", arguments, ReplaySafety::Pure, CallOutcome::Ok, text)
        }

        fn writes(&mut self, arguments: &str, text: &str) -> Told {
            self.call("act", arguments, ReplaySafety::Once, CallOutcome::Ok, text)
        }
    }

    struct Told {
        verdict: Verdict,
        result: CallResult,
    }

    impl Told {
        /// `.`, `w`, `h`
        fn letter(&self) -> char {
            match self.verdict {
                Verdict::Fine => '.',
                Verdict::Warn(_) => 'w',
                Verdict::Halt(_) => 'h',
            }
        }
    }

    fn letters(told: impl IntoIterator<Item = Told>) -> String {
        told.into_iter().map(|told| told.letter()).collect()
    }

    #[test]
    fn the_same_call_that_fails_is_told_at_2_and_ends_at_5() {
        let mut on = case(true);
        assert_eq!(letters((0..5).map(|n| on.fails("{}", &n.to_string()))), ".wwwh");
        assert!(on.guard.halted().unwrap().contains("failed 5 times"));
        let mut off = case(false);
        assert_eq!(letters((0..7).map(|n| off.fails("{}", &n.to_string()))), ".wwwwww");
        assert_eq!(off.guard.halted(), None);
    }

    #[test]
    fn arguments_in_another_order_are_the_same_arguments() {
        let mut case = case(false);
        assert_eq!(case.fails("{\"a\":1,\"b\":[{\"c\":2,\"d\":3}]}", "x").letter(), '.');
        assert_eq!(case.fails(" {\"b\":[{\"d\":3,\"c\":2}], \"a\":1}", "y").letter(), 'w');
        assert_eq!(
            case.fails("{\"b\":[{\"d\":3,\"c\":2}],\"a\":\"1\"}", "z").letter(),
            'w',
            "three failures of the tool"
        );
    }

    #[test]
    fn a_tool_that_always_fails_is_told_at_3_and_ends_at_8() {
        let mut case = case(true);
        let told = (0..8).map(|n| case.fails(&format!("{{\"n\":{n}}}"), &n.to_string()));
        assert_eq!(letters(told), "..wwwwwh");
    }

    #[test]
    fn an_effect_in_between_makes_a_failed_call_worth_another_try() {
        let mut case = case(true);
        for n in 0..3 {
            assert_eq!(case.fails("{\"test\":1}", &format!("{n}a")).letter(), '.', "{n}");
            assert_eq!(case.fails("{\"test\":1}", &format!("{n}b")).letter(), 'w', "{n}");
            assert_eq!(case.call("edit", &n.to_string(), ReplaySafety::Once, CallOutcome::Ok, "ok").letter(), '.');
            case.guard.tool_failures.clear();
        }
    }

    #[test]
    fn a_look_that_brings_nothing_new_is_told_at_2_and_ends_at_5_also_with_others_between() {
        let mut case = case(true);
        let told = (0..5).map(|n| {
            case.reads(&format!("{{\"other\":{n}}}"), &n.to_string());
            case.reads("{}", "same")
        });
        assert_eq!(letters(told), ".wwwh");
    }

    #[test]
    fn a_look_after_an_effect_and_a_look_that_changes_are_no_circle() {
        let mut case = case(true);
        for n in 0..10 {
            assert_eq!(case.reads("{}", "same").letter(), '.');
            assert_eq!(case.writes(&n.to_string(), &n.to_string()).letter(), '.');
            assert_eq!(case.reads("{\"log\":1}", &n.to_string()).letter(), '.');
        }
    }

    #[test]
    fn e53_identical_results_in_a_row_are_told_at_3_and_end_at_5() {
        let mut on = case(true);
        assert_eq!(letters((0..5).map(|_| on.writes("{}", "same"))), "..wwh");
        let mut off = case(false);
        assert_eq!(letters((0..8).map(|_| off.writes("{}", "same"))), "..wwwwww");
    }

    #[test]
    fn cycles_of_two_to_four_calls_are_told_at_3_and_end_at_5() {
        for period in 2..=4 {
            let mut case = case(true);
            let told: String = letters((0..period * 5).map(|n| case.writes(&(n % period).to_string(), "same")));
            assert_eq!(told.find('w'), Some(period * 3 - 1), "{period}: {told}");
            assert_eq!(told.find('h'), Some(period * 5 - 1), "{period}: {told}");
        }
        let mut case = case(true);
        assert_eq!(letters((0..30).map(|n| case.writes(&(n % 5).to_string(), "same"))), ".".repeat(30));
    }

    #[test]
    fn a_person_who_speaks_begins_the_counting_anew() {
        let mut case = case(true);
        for _ in 0..4 {
            case.writes("{}", "same");
        }
        case.guard.person_spoke();
        assert_eq!(case.writes("{}", "same").letter(), '.');
    }

    #[test]
    fn stopped_and_unknown_calls_are_no_sign() {
        let mut case = case(true);
        let told = (0..9).map(|_| case.call("act", "{}", ReplaySafety::Once, CallOutcome::Skipped, "x"));
        assert_eq!(letters(told), ".........");
    }

    #[test]
    fn the_third_time_a_large_result_becomes_a_reference_to_the_first() {
        let mut case = case(false);
        let large = "x".repeat(GUARD_SAME_RESULT_MIN_BYTES);
        assert_eq!(case.reads("{}", &large).result.content, large);
        assert!(case.reads("{}", &large).result.content.starts_with(&large), "the first repetition is whole");
        let third = case.reads("{}", &large).result;
        assert!(third.content.len() < GUARD_SAME_RESULT_MIN_BYTES && third.content.contains("the call p1 of look"));
        assert_eq!(third.meta.unwrap()["same_as"], "p1");
        let small = "x".repeat(GUARD_SAME_RESULT_MIN_BYTES - 1);
        for _ in 0..4 {
            assert!(case.reads("{\"b\":1}", &small).result.content.starts_with(&small));
        }
        case.guard.view_changed();
        assert!(case.reads("{}", &large).result.content.starts_with(&large), "out of sight is shown again");
    }

    #[test]
    fn a_spilled_result_is_the_same_whatever_its_file_is_called() {
        let mut case = case(true);
        let told = (0..5).map(|n| {
            let path = format!("/spill/{n}.txt");
            let meta = Some(json!({ "spill_path": path }));
            let mut result = CallResult { outcome: CallOutcome::Ok, content: format!("it is in {path}"), meta };
            let seen = Seen { name: "look", arguments: "{}", replay: ReplaySafety::Pure, provider_id: "p" };
            Told { verdict: case.guard.observe(seen, &mut result), result }
        });
        assert_eq!(letters(told), ".wwwh");
    }

    #[test]
    fn searches_and_subagents_have_a_cap_on_every_surface() {
        let mut guard = Guardrails::new(false);
        for _ in 0..WEB_SEARCHES_PER_TURN_MAX {
            guard.admit("web_search", &json!({})).unwrap();
        }
        let tasks = json!({ "tasks": vec![1; 30] });
        guard.admit("delegate_task", &tasks).unwrap();
        guard.admit("delegate_task", &tasks).unwrap_err();
        guard.admit("delegate_task", &json!({})).unwrap();
        for _ in 0..SUBAGENTS_PER_TURN_MAX {
            guard.admit("delegate_task", &json!({ "action": "list" })).unwrap();
        }
        guard.admit("anything", &json!({})).unwrap();
        for _ in 0..CAPPED_CALLS_MAX - 2 {
            guard.admit("web_search", &json!({})).unwrap_err();
            assert_eq!(guard.halted(), None);
        }
        guard.admit("web_search", &json!({})).unwrap_err();
        assert!(guard.halted().unwrap().contains("web_search"));
    }
}
