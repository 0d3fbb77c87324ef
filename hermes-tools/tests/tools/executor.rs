//! The order, the limits and the ends of calls.

use hermes_tools::scripted::{FixedApprover, LedgerEvent, LedgerTool};
use hermes_tools::{
    ApprovalAnswer, CallOutcome, CallProgress, Concurrency, Executor, PolicyConfig, ReplaySafety, Risk,
};
use serde_json::{Value, json};

use crate::bench::{Bench, Heard, Witness};

/// A bench with `read` (shared, pure), `write` and `look` (by path), `step` (barrier, once).
fn bench() -> Bench {
    let mut bench = Bench::new();
    let ledger = bench.ledger.clone();
    let tool = |name| LedgerTool::new(name, ledger.clone());
    bench.add(tool("read").replay(ReplaySafety::Pure).concurrency(Concurrency::Shared));
    bench.add(tool("write").concurrency(Concurrency::Paths));
    bench.add(tool("look").replay(ReplaySafety::Pure).concurrency(Concurrency::Paths).reading());
    bench.add(tool("step"));
    bench.add(tool("hang").hanging(false));
    bench.add(tool("deaf").hanging(true));
    bench.add(tool("panic").panicking());
    bench.add(tool("fail").failing("no"));
    bench
}

fn none() -> Value {
    json!({})
}

fn at(events: &[LedgerEvent], event: &LedgerEvent) -> usize {
    events.iter().position(|other| other == event).unwrap_or_else(|| panic!("{event:?} in {events:?}"))
}

fn began(id: &str) -> LedgerEvent {
    LedgerEvent::Began(id.to_owned())
}

fn effect(id: &str) -> LedgerEvent {
    LedgerEvent::Effect(id.to_owned())
}

#[tokio::test(start_paused = true)]
async fn i13_every_call_has_one_result_whatever_happens_to_it() {
    let bench = bench();
    let witness = Witness::default();
    let calls = [
        ("read", none()),
        ("fail", none()),
        ("panic", none()),
        ("step", none()),
        ("terminal", json!({"command": "rm -rf build"})),
    ];
    bench.run(&calls, &witness).await.unwrap();
    let expected = [CallOutcome::Ok, CallOutcome::Failed, CallOutcome::Failed, CallOutcome::Ok, CallOutcome::Denied];
    assert_eq!(witness.outcomes(), expected);
    assert!(witness.report(4).content.contains("did not allow"), "{}", witness.report(4).content);
}

#[tokio::test(start_paused = true)]
async fn t13_results_carry_their_places_when_calls_end_in_another_order() {
    let bench = bench();
    let witness = Witness::default();
    let calls = [
        ("read", json!({"delay_ms": 200, "text": "a"})),
        ("read", json!({"delay_ms": 300, "text": "b"})),
        ("read", json!({"delay_ms": 100, "text": "c"})),
    ];
    bench.run(&calls, &witness).await.unwrap();
    let order = [2, 0, 1].map(|index| Heard::Settled(index, CallOutcome::Ok));
    assert_eq!(witness.heard(), order);
    assert_eq!([0, 1, 2].map(|index| witness.report(index).content), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn i12_nothing_has_an_effect_before_it_was_announced() {
    let bench = bench();
    let witness = Witness { fail_effects: true, ..Witness::default() };
    let result = bench.run(&[("read", none()), ("step", none()), ("step", none())], &witness).await;
    assert!(result.is_err());
    assert_eq!(bench.ledger.effects(), ["c0"], "only the pure call ran");
}

#[tokio::test(start_paused = true)]
async fn i12_calls_that_run_together_are_announced_together_and_pure_ones_not_at_all() {
    let bench = bench();
    let witness = Witness::default();
    let calls = [("write", json!({"path": "a"})), ("read", none()), ("write", json!({"path": "b"})), ("step", none())];
    bench.run(&calls, &witness).await.unwrap();
    let announced: Vec<_> = witness.heard().into_iter().filter(|heard| matches!(heard, Heard::Effects(_))).collect();
    assert_eq!(announced, [Heard::Effects(vec![0, 2]), Heard::Effects(vec![3])]);
}

#[tokio::test(start_paused = true)]
async fn t14_a_write_and_a_read_of_one_file_keep_their_order_and_two_files_overlap() {
    let bench = bench();
    let slow = |path: &str| json!({"path": path, "delay_ms": 100});
    let calls = [("write", slow("a")), ("look", slow("a")), ("write", slow("d")), ("write", slow("e"))];
    bench.run(&calls, &Witness::default()).await.unwrap();
    let events = bench.ledger.events();
    assert!(at(&events, &effect("c0")) < at(&events, &began("c1")));
    assert!(at(&events, &began("c3")) < at(&events, &effect("c2")));
}

#[tokio::test(start_paused = true)]
async fn t15_paths_inside_each_other_and_links_to_them_do_not_overlap() {
    let bench = bench();
    std::fs::create_dir(bench.work().join("d")).unwrap();
    std::os::unix::fs::symlink(bench.work().join("d"), bench.work().join("link")).unwrap();
    let slow = |path: &str| json!({"path": path, "delay_ms": 100});
    bench.run(&[("write", slow("d")), ("write", slow("link/x"))], &Witness::default()).await.unwrap();
    let events = bench.ledger.events();
    assert!(at(&events, &effect("c0")) < at(&events, &began("c1")));
}

#[tokio::test(start_paused = true)]
async fn t16_a_barrier_waits_for_what_is_before_it_and_holds_what_is_behind_it() {
    let bench = bench();
    let slow = || json!({"delay_ms": 50});
    bench
        .run(&[("read", slow()), ("read", slow()), ("step", slow()), ("read", slow())], &Witness::default())
        .await
        .unwrap();
    let events = bench.ledger.events();
    let began_step = at(&events, &began("c2"));
    assert!(at(&events, &began("c1")) < at(&events, &effect("c0")), "the reads overlap");
    assert!(at(&events, &effect("c0")) < began_step && at(&events, &effect("c1")) < began_step);
    assert!(at(&events, &effect("c2")) < at(&events, &began("c3")));
}

#[tokio::test(start_paused = true)]
async fn t17_at_most_eight_calls_run_at_once_and_they_start_in_order() {
    let bench = bench();
    let calls: Vec<_> = (0..20).map(|_| ("read", json!({"delay_ms": 100}))).collect();
    let witness = Witness::default();
    bench.run(&calls, &witness).await.unwrap();
    assert_eq!(bench.ledger.most_at_once(), 8);
    assert_eq!(witness.outcomes().len(), 20);
    let started: Vec<usize> = witness
        .shown()
        .into_iter()
        .filter_map(|(index, progress)| matches!(progress, CallProgress::Started { .. }).then_some(index))
        .collect();
    assert_eq!(started, (0..20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn t18_a_call_that_exceeds_its_time_is_really_ended() {
    let mut bench = bench();
    bench.limits.batch_limit_ms = 500;
    let witness = Witness::default();
    bench.run(&[("hang", none()), ("deaf", none()), ("step", none())], &witness).await.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::TimedOut, CallOutcome::TimedOut, CallOutcome::Ok]);
    assert!(witness.report(1).content.contains("may have had a part of its effect"));
    assert_eq!(bench.ledger.effects(), ["c2"]);
}

#[tokio::test(start_paused = true)]
async fn c2_a_stop_in_a_batch_leaves_done_interrupted_and_skipped() {
    let bench = bench();
    let cancel = bench.context().cancel.clone();
    let witness = Witness { stop_after: Some((0, cancel)), ..Witness::default() };
    let calls = [("read", none()), ("read", json!({"delay_ms": 60_000})), ("step", none()), ("step", none())];
    bench.run(&calls, &witness).await.unwrap();
    let expected = [CallOutcome::Ok, CallOutcome::Interrupted, CallOutcome::Skipped, CallOutcome::Skipped];
    assert_eq!(witness.outcomes(), expected);
    assert!(witness.report(2).content.contains("nothing happened"));
}

#[tokio::test(start_paused = true)]
async fn t19_after_a_stop_the_other_sequential_calls_are_skipped() {
    let bench = bench();
    let cancel = bench.context().cancel.clone();
    let witness = Witness { stop_after: Some((0, cancel)), ..Witness::default() };
    bench.run(&[("step", none()), ("step", none()), ("step", none())], &witness).await.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Ok, CallOutcome::Skipped, CallOutcome::Skipped]);
    assert_eq!(bench.ledger.effects(), ["c0"]);
    let announced: Vec<_> = witness.heard().into_iter().filter(|heard| matches!(heard, Heard::Effects(_))).collect();
    assert_eq!(announced, [Heard::Effects(vec![0])], "skipped calls were never announced");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_hear_the_stop_is_dropped_after_a_grace() {
    let bench = bench();
    let cancel = bench.context().cancel.clone();
    let stop = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let witness = Witness::default();
    let calls = [("deaf", none())];
    let (result, ()) = tokio::join!(bench.run(&calls, &witness), stop);
    result.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Interrupted]);
    assert!(witness.report(0).content.contains("it was stopped while running"));
}

#[tokio::test(start_paused = true)]
async fn t20_the_time_of_a_person_is_not_the_batchs() {
    let approver = FixedApprover::new(ApprovalAnswer::Once).thinking_ms(200_000);
    let mut bench = Bench::with(PolicyConfig::default(), approver);
    bench.limits.batch_limit_ms = 1_000;
    let risk = Risk::Command { command: "rm -rf build".to_owned(), workdir: bench.work() };
    let tool = LedgerTool::new("risky", bench.ledger.clone()).risk(risk).delay_ms(900).concurrency(Concurrency::Shared);
    bench.add(tool);
    bench.add(LedgerTool::new("slow", bench.ledger.clone()).delay_ms(100_000).concurrency(Concurrency::Shared));
    let witness = Witness::default();
    bench.run(&[("slow", none()), ("risky", none())], &witness).await.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Ok, CallOutcome::Ok]);
    assert!(witness.shown().iter().any(|(index, shown)| *index == 1 && matches!(shown, CallProgress::Waiting { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_a_person_is_asked_skips_the_call() {
    let approver = FixedApprover::new(ApprovalAnswer::Once).thinking_ms(200_000);
    let mut bench = Bench::with(PolicyConfig::default(), approver);
    let risk = Risk::Command { command: "rm -rf build".to_owned(), workdir: bench.work() };
    bench.add(LedgerTool::new("risky", bench.ledger.clone()).risk(risk));
    let cancel = bench.context().cancel.clone();
    let stop = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        cancel.cancel();
    };
    let witness = Witness::default();
    let calls = [("risky", none()), ("risky", none())];
    let (result, ()) = tokio::join!(bench.run(&calls, &witness), stop);
    result.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Skipped, CallOutcome::Skipped]);
    assert!(bench.ledger.events().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_soft_stop_begins_nothing_more_and_lets_what_runs_end_by_itself() {
    let bench = bench();
    let quiet = bench.cx.begin_nothing.clone();
    let witness = Witness { stop_after: Some((0, quiet)), ..Witness::default() };
    let calls = [("read", none()), ("read", json!({"delay_ms": 60_000})), ("step", none()), ("step", none())];
    bench.run(&calls, &witness).await.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Ok, CallOutcome::Ok, CallOutcome::Skipped, CallOutcome::Skipped]);
    assert!(witness.report(2).content.contains("nothing happened"));
}

#[tokio::test(start_paused = true)]
async fn a_soft_stop_withdraws_the_question_about_a_call_that_has_not_begun() {
    let approver = FixedApprover::new(ApprovalAnswer::Once).thinking_ms(200_000);
    let mut bench = Bench::with(PolicyConfig::default(), approver);
    let risk = Risk::Command { command: "rm -rf build".to_owned(), workdir: bench.work() };
    bench.add(LedgerTool::new("risky", bench.ledger.clone()).risk(risk));
    let quiet = bench.cx.begin_nothing.clone();
    let stop = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        quiet.cancel();
    };
    let witness = Witness::default();
    let calls = [("risky", none())];
    let (result, ()) = tokio::join!(bench.run(&calls, &witness), stop);
    result.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Skipped]);
    assert!(bench.ledger.events().is_empty());
}

#[tokio::test(start_paused = true)]
async fn t21_a_result_that_cannot_be_written_ends_everything() {
    let bench = bench();
    let witness = Witness { fail_settled: Some(0), ..Witness::default() };
    let calls = [("read", none()), ("read", json!({"delay_ms": 60_000})), ("step", none())];
    assert!(bench.run(&calls, &witness).await.is_err());
    assert!(witness.outcomes().is_empty());
    let stopped = LedgerEvent::Stopped("c1".to_owned());
    assert!(bench.ledger.events().contains(&stopped), "the running call was ended");
    assert_eq!(bench.ledger.effects(), ["c0"]);
}

#[tokio::test(start_paused = true)]
async fn t32_one_person_is_asked_one_thing_at_a_time_and_the_same_thing_once() {
    let approver = FixedApprover::new(ApprovalAnswer::Once).thinking_ms(1_000);
    let mut bench = Bench::with(PolicyConfig::default(), approver);
    let risk = Risk::Command { command: "rm -rf build".to_owned(), workdir: bench.work() };
    bench.add(LedgerTool::new("risky", bench.ledger.clone()).risk(risk).concurrency(Concurrency::Shared));
    let witness = Witness::default();
    bench.run(&[("risky", none()), ("risky", none())], &witness).await.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Ok, CallOutcome::Ok]);
    // Two rounds of one conversation at once: one prompt answers both.
    let before = bench.approver.asked().len();
    let executor = Executor::default();
    let (a, b) = (Witness::default(), Witness::default());
    let (first, second) = tokio::join!(
        executor.run(bench.batch(&[("risky", none())]), &bench.cx, &a),
        executor.run(bench.batch(&[("risky", none())]), &bench.cx, &b),
    );
    first.unwrap();
    second.unwrap();
    assert_eq!(bench.approver.asked().len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn c7_e55_what_a_tool_says_is_stored_safely() {
    let mut bench = Bench::new();
    bench.add(LedgerTool::new("odd", bench.ledger.clone()).answering("a\0b\u{1b}[31m😀"));
    assert_eq!(bench.one("odd", none()).await.content, "a␀b␛[31m😀");
}

#[tokio::test]
async fn an_empty_batch_is_no_work() {
    let bench = Bench::new();
    let witness = Witness::default();
    bench.run(&[], &witness).await.unwrap();
    assert!(witness.heard().is_empty());
}
