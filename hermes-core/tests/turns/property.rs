//! E54: whatever a model answers, a turn ends in one way.

use hermes_core::{EndReason, Engine, EngineSettings, EventKind};
use hermes_providers::{ErrorClass, Finish, Script, Usage};
use hermes_store::{CallOutcome, Role, View};
use proptest::prelude::*;

use crate::support::{World, ask, check_requests, error, model};

/// One scripted answer, in a form that shrinks.
#[derive(Debug, Clone)]
enum Answer {
    Text(u8),
    Empty { proven: bool },
    Thought { cut: bool },
    Cut(u8),
    Paused(u8),
    Withheld,
    Missing { text: bool },
    Loop,
    Calls(Vec<CallKind>),
    CutCalls,
    Broken(u8),
    Error(usize),
}

#[derive(Debug, Clone, Copy)]
enum CallKind {
    Good(u8),
    Unknown,
    Unreadable,
    Torn,
    WrongType,
}

const CLASSES: [ErrorClass; 21] = [
    ErrorClass::Auth,
    ErrorClass::Billing,
    ErrorClass::RateLimit,
    ErrorClass::UpstreamRateLimit,
    ErrorClass::Overloaded,
    ErrorClass::ServerError,
    ErrorClass::Timeout,
    ErrorClass::Incomplete,
    ErrorClass::EmptyResponse,
    ErrorClass::ContextOverflow,
    ErrorClass::OutputCap,
    ErrorClass::PayloadTooLarge,
    ErrorClass::ModelNotFound,
    ErrorClass::ContentPolicy,
    ErrorClass::BadRequest,
    ErrorClass::SidecarRefused,
    ErrorClass::Blocked,
    ErrorClass::Certificate,
    ErrorClass::BadResponse,
    ErrorClass::Limit,
    ErrorClass::Configuration,
];

fn call() -> impl Strategy<Value = CallKind> {
    prop_oneof![
        6 => (0..3_u8).prop_map(CallKind::Good),
        1 => Just(CallKind::Unknown),
        1 => Just(CallKind::Unreadable),
        1 => Just(CallKind::Torn),
        1 => Just(CallKind::WrongType),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        2 => any::<u8>().prop_map(Answer::Text),
        3 => any::<bool>().prop_map(|proven| Answer::Empty { proven }),
        2 => any::<bool>().prop_map(|cut| Answer::Thought { cut }),
        3 => any::<u8>().prop_map(Answer::Cut),
        2 => any::<u8>().prop_map(Answer::Paused),
        1 => Just(Answer::Withheld),
        2 => any::<bool>().prop_map(|text| Answer::Missing { text }),
        1 => Just(Answer::Loop),
        12 => prop::collection::vec(call(), 1..4).prop_map(Answer::Calls),
        2 => Just(Answer::CutCalls),
        2 => any::<u8>().prop_map(Answer::Broken),
        3 => (0..CLASSES.len()).prop_map(Answer::Error),
    ]
}

fn script(answer: &Answer) -> Script {
    match answer {
        Answer::Text(n) => Script::text(format!("answer {n}")),
        Answer::Empty { proven } => {
            let usage = Usage { output: Some(0), ..Usage::default() };
            if *proven { Script::text("").with_usage(usage) } else { Script::text(" ") }
        }
        Answer::Thought { cut } => {
            let finish = if *cut { Finish::Length } else { Finish::Stop };
            Script::text("").with_reasoning("hm").with_finish(finish)
        }
        Answer::Cut(n) => Script::text(format!("part {n}, ")).with_finish(Finish::Length),
        Answer::Paused(n) => Script::text(format!("pause {n}, ")).with_finish(Finish::Pause),
        Answer::Withheld => Script::text("ha").with_finish(Finish::ContentFilter),
        Answer::Missing { text } => Script::text(if *text { "look" } else { "" }).with_finish(Finish::ToolCalls),
        Answer::Loop => Script::text("again. ".repeat(4_000)),
        Answer::Calls(kinds) => calls(kinds),
        Answer::CutCalls => calls(&[CallKind::Good(0)]).with_finish(Finish::Length),
        Answer::Broken(n) => Script::text_then_error(format!("broken {n}"), error(ErrorClass::Incomplete)),
        Answer::Error(class) => Script::error(error(CLASSES[*class])),
    }
}

fn calls(kinds: &[CallKind]) -> Script {
    Script::calls(kinds.iter().map(|kind| match kind {
        CallKind::Good(n) => ("same", "act", format!("{{\"n\":{n}}}")),
        CallKind::Unknown => ("", "nothing", "{}".to_owned()),
        CallKind::Unreadable => ("bad id", "act", "{\"a\":1,,}".to_owned()),
        CallKind::Torn => ("torn", "act", "{\"a\":1".to_owned()),
        CallKind::WrongType => ("wrong", "act", "{\"delay_ms\":\"soon\"}".to_owned()),
    }))
}

/// The keys of every result, whatever its end.
const KEYS: [&str; 10] =
    ["conversation", "session", "turn", "admission", "reason", "answer", "error", "api_calls", "model", "usage"];

async fn check(answers: &[Answer], max_iterations: Option<u64>, hard_stop: bool) {
    let world = World::faster();
    let model = model(answers.iter().map(script));
    let mut parts = world.parts("e", model.clone());
    parts.settings = EngineSettings {
        max_iterations,
        guardrail_hard_stop: Some(hard_stop),
        budget_warning_ratio: Some(0.5),
        max_output_tokens: Some(1_000),
        reasoning_effort: Some("high".to_owned()),
        ..EngineSettings::default()
    };
    let engine = Engine::new(parts);
    let result = ask(&engine, None, "go").await;
    let what = format!("{:?} after {answers:?}", result.reason);

    // The same keys, one reason, an error exactly where there is one.
    let json = serde_json::to_value(&result).unwrap();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, KEYS, "{what}");
    assert_eq!(result.error.is_some(), result.reason.code().is_some(), "{what}");
    assert_eq!(EndReason::parse(json["reason"].as_str().unwrap()), Some(result.reason), "{what}");
    let ends = world.events.all().iter().filter(|e| matches!(e.kind, EventKind::TurnEnded { .. })).count();
    assert_eq!(ends, 1, "{what}");

    // An assistant tail; every call with one result, in its place; an answer that is what is stored.
    for view in [View::Model, View::Display] {
        let rows = world.rows(&result.conversation, view).await;
        let last = rows.last().unwrap();
        assert_eq!((last.role, last.calls.len()), (Role::Assistant, 0), "{what}");
        if matches!(result.reason, EndReason::Answered | EndReason::PartialAnswer) {
            assert_eq!(last.content, result.answer, "{what}");
        }
        let made: Vec<_> = rows.iter().flat_map(|row| row.calls.iter().map(|call| call.call.clone())).collect();
        let answered: Vec<_> = rows.iter().filter_map(|row| row.answers.as_ref()).collect();
        assert_eq!(made, answered.iter().map(|call| call.call.clone()).collect::<Vec<_>>(), "{what}");
        let ran = answered.iter().filter(|call| call.outcome == Some(CallOutcome::Ok)).count();
        assert_eq!(ran, world.ledger.effects().len(), "{what}");
    }

    // The next turn is accepted by a strict provider, and begins with the bytes of the last request (I18).
    let next = crate::support::model([Script::text("fine")]);
    let mut parts = world.parts("f", next.clone());
    parts.settings.max_output_tokens = Some(1_000);
    world.dead.0.lock().unwrap().push("e".to_owned());
    let second = ask(&Engine::new(parts), Some(&result.conversation), "more").await;
    assert_eq!((second.reason, second.answer.as_str()), (EndReason::Answered, "fine"), "{what}");
    let mut requests = model.requests();
    requests.extend(next.requests());
    check_requests(&requests);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn e54_any_script_ends_with_the_same_keys_one_reason_and_an_assistant_tail(
        answers in prop::collection::vec(answer(), 0..24),
        max_iterations in prop::option::weighted(0.5, 0..8_u64),
        hard_stop in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(&answers, max_iterations, hard_stop));
    }
}

#[tokio::test]
async fn e54_every_class_of_failure_alone_and_after_a_round_ends_the_same_way() {
    for class in 0..CLASSES.len() {
        let fail = Answer::Error(class);
        let round = Answer::Calls(vec![CallKind::Good(1)]);
        check(&vec![fail.clone(); 5], None, true).await;
        check(&[round, fail.clone(), fail.clone(), fail.clone(), fail], None, true).await;
    }
}
