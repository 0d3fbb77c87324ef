//! Tasks for children: what a child is given, what its parent is told, and what a stop, a limit or a crash leaves of both.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hermes_core::testing::{Fault, FaultStore};
use hermes_core::{
    CHILD_SOURCE, DelegationSettings, EndReason, Engine, EngineParts, EventKind, Interrupt, Stopper, ToolHost,
    TurnResult,
};
use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, DeltaStream, ErrorClass, ModelInfo, ProviderError, Script, ScriptedModel,
};
use hermes_store::{
    AdmissionStatus, AdmissionStore as _, ConversationId, DelegationRecord, DelegationState, DelegationStore as _,
    LeaseStore as _, ResultDelivery, Role, SessionStore as _, Store, TurnStatus, View,
};
use hermes_tools::scripted::{FixedApprover, LedgerTool};
use hermes_tools::{ApprovalAnswer, Concurrency, ReplaySafety, Risk, ToolRegistry};
use serde_json::{Value, json};

use crate::support::{World, ask, check_pairs, error, results, submission};

/// How the result of a task in the background begins.
pub const NEWS: &str = "a task that you gave away in the background";

/// Plays a parent that makes these calls of `delegate_task`, one a round, and any child as its goal says.
pub struct Family {
    info: ModelInfo,
    calls: Vec<Value>,
    requests: Mutex<Vec<ChatRequest>>,
}

impl Family {
    pub fn new(calls: impl IntoIterator<Item = Value>) -> Arc<Self> {
        let calls = calls.into_iter().collect();
        Arc::new(Self { info: ScriptedModel::test_info(), calls, requests: Mutex::default() })
    }

    fn script(&self, request: &ChatRequest) -> Script {
        let last_user = request.messages.iter().rposition(|m| matches!(m, ChatMessage::User { .. })).unwrap();
        let done = request.messages[last_user..]
            .iter()
            .filter(|m| matches!(m, ChatMessage::Assistant { calls, .. } if !calls.is_empty()))
            .count();
        let Some(goal) = goal(request) else {
            if matches!(&request.messages[last_user], ChatMessage::User { text, .. } if text.contains(NEWS)) {
                return Script::text("noted");
            }
            let Some(arguments) = self.calls.get(done) else { return Script::text("done") };
            let calls = arguments.as_array().cloned().unwrap_or_else(|| vec![arguments.clone()]);
            let named = |(n, call): (usize, &Value)| {
                let call = call.to_string().replace("$CHILD", &first_child(request));
                (format!("p{done}-{last_user}-{n}"), "delegate_task".to_owned(), call)
            };
            return Script::calls(calls.iter().enumerate().map(named));
        };
        let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        match (goal.split_once(' ').map_or(goal, |(word, _)| word), done) {
            ("hang", _) => Script::hang(),
            ("refuse", _) => Script::error(error(ErrorClass::Auth)),
            ("work", 0) => Script::calls([("w", "act", "{}")]),
            ("work", _) => Script::text("worked"),
            ("nest", 0) => Script::calls([("n", "delegate_task", "{\"goal\": \"tools\"}")]),
            ("nest", _) => Script::text(results(request).join(" ")),
            ("tools", _) => Script::text(format!("tools: {}", tools.join(","))),
            _ => Script::text(format!("{goal}: done")),
        }
    }

    /// Requests of the parent.
    pub fn asked(&self) -> Vec<ChatRequest> {
        self.requests.lock().unwrap().iter().filter(|request| goal(request).is_none()).cloned().collect()
    }
}

/// The first child that the parent was told of.
fn first_child(request: &ChatRequest) -> String {
    let told = results(request).into_iter().find_map(|text| Some(text.split_once("\"subagent_id\":\"")?.1.to_owned()));
    told.and_then(|text| Some(text.split_once('"')?.0.to_owned())).unwrap_or_default()
}

/// The goal, in a request of a child.
fn goal(request: &ChatRequest) -> Option<&str> {
    let ChatMessage::User { text, .. } = request.messages.first()? else { return None };
    let (_, task) = text.split_once("\n\nTask:\n")?;
    Some(task.split("\n\n").next().unwrap_or(task))
}

#[async_trait]
impl ChatModel for Family {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: &ChatRequest) -> Result<DeltaStream, ProviderError> {
        check_pairs(&request.messages);
        self.requests.lock().unwrap().push(request.clone());
        let once = ScriptedModel::new(self.info.clone());
        once.push(self.script(request));
        once.stream(request).await
    }
}

pub fn parts(world: &World, model: &Arc<Family>) -> EngineParts {
    let mut parts = world.parts("e", model.clone());
    parts.settings.delegation = Some(DelegationSettings::default());
    parts
}

/// The results that the parent was told in its last request.
pub fn told(model: &Family) -> Vec<Value> {
    let asked = model.asked();
    let texts = results(asked.last().unwrap());
    texts.iter().map(|text| serde_json::from_str(text.split("\n\n[").next().unwrap()).unwrap()).collect()
}

pub fn field(told: &Value, name: &str) -> Vec<String> {
    let entries = told["results"].as_array().unwrap_or_else(|| panic!("{told}"));
    entries.iter().map(|entry| entry[name].as_str().unwrap_or_default().to_owned()).collect()
}

pub async fn delegations(world: &World, conversation: &ConversationId) -> Vec<DelegationRecord> {
    let mut all = world.store.delegations(conversation, 100).await.unwrap();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

#[tokio::test]
async fn a_child_does_its_task_in_a_conversation_of_its_own_and_its_parent_gets_the_report() {
    let world = World::new();
    let model = Family::new([json!({"goal": "work hard", "context": "the tool is act"})]);
    let result = ask(&Engine::new(parts(&world, &model)), None, "go").await;
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
    let told = told(&model);
    assert_eq!(
        (field(&told[0], "status"), field(&told[0], "summary")),
        (vec!["completed".into()], vec!["worked".into()])
    );
    assert_eq!(told[0]["results"][0]["api_calls"], 2);
    let all = delegations(&world, &result.conversation).await;
    let [record] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((record.state, record.delivery), (DelegationState::Completed, ResultDelivery::Delivered));
    assert_eq!((&record.collected_by, record.result.as_deref()), (&result.turn, Some("worked")));
    let child = world.store.conversation(&record.child).await.unwrap();
    assert_eq!((child.source.as_str(), child.pending), (CHILD_SOURCE, None));
    assert!(child.flags.hidden, "a list of conversations is of those that people began");
    let rows = world.rows(&record.child, View::Display).await;
    assert!(rows[0].content.contains("the tool is act"), "{}", rows[0].content);
    assert_eq!(rows.last().unwrap().content, "worked");
    assert_eq!(world.ledger.effects().len(), 1);
    // The child's events are told in its conversation, and under its parent; pieces of its answer only there.
    let events = world.events.all();
    let kinds = |conversation: &ConversationId, pick: fn(&EventKind) -> bool| {
        events.iter().filter(|event| event.conversation == *conversation && pick(&event.kind)).count()
    };
    assert_eq!(kinds(&record.child, |kind| matches!(kind, EventKind::TurnEnded { .. })), 1);
    assert!(kinds(&record.child, |kind| matches!(kind, EventKind::TextDelta { .. })) > 0);
    let under: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Child { delegation, event: inner } => Some((event, delegation, inner)),
            _ => None,
        })
        .collect();
    assert!(under.iter().any(|(.., inner)| matches!(inner.kind, EventKind::TurnEnded { .. })));
    for (event, delegation, inner) in under {
        assert_eq!((&event.conversation, &event.turn), (&result.conversation, &result.turn));
        assert_eq!((delegation, &inner.conversation), (&record.id, &record.child));
        assert!(!matches!(inner.kind, EventKind::TextDelta { .. }));
    }
}

#[tokio::test]
async fn a_batch_runs_side_by_side_and_is_told_in_call_order() {
    let world = World::new();
    let tasks = json!({"tasks": [{"goal": "work one"}, {"goal": "say two"}, {"goal": "work three"}]});
    let model = Family::new([tasks]);
    let mut parts = parts(&world, &model);
    let tool = world.tool().concurrency(Concurrency::Shared).delay_ms(100);
    parts.tools = world.parts_with("e", model.clone(), tool, Arc::new(world.store.clone())).tools;
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    assert_eq!(field(&told(&model)[0], "summary"), ["worked", "say two: done", "worked"]);
    assert_eq!(world.ledger.most_at_once(), 2);
    let all = delegations(&world, &result.conversation).await;
    assert_eq!(all.iter().filter(|record| record.collected_by == result.turn).count(), 3);
}

#[tokio::test]
async fn width_and_depth_have_limits_that_the_model_is_told() {
    let world = World::new();
    let many: Vec<Value> = (0..3).map(|n| json!({"goal": format!("say {n}")})).collect();
    let model = Family::new([json!({ "tasks": many }), json!({"goal": "nest"})]);
    let mut parts = parts(&world, &model);
    parts.settings.delegation =
        Some(DelegationSettings { max_concurrent_children: 2, max_spawn_depth: 2, ..DelegationSettings::default() });
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let told = told(&model);
    assert!(told[0]["error"].as_str().unwrap().contains("at most 2"), "{}", told[0]);
    // The child may have a child, which may have none.
    let nested = &field(&told[1], "summary")[0];
    assert!(nested.contains("tools: act\""), "{nested}");
    assert_eq!(delegations(&world, &result.conversation).await.len(), 1);
    // One step less, and the child has no tool for it: the call is answered as one of an unknown tool.
    let world = World::new();
    let model = Family::new([json!({"goal": "nest"})]);
    ask(&Engine::new(self::parts(&world, &model)), None, "go").await;
    let nested = &field(&self::told(&model)[0], "summary")[0];
    assert!(nested.contains("no tool named"), "{nested}");
}

#[tokio::test]
async fn a_child_has_no_more_tools_than_its_parent_and_never_some() {
    let world = World::new();
    let narrowed = json!({"goal": "tools", "toolsets": ["scripted"]});
    let unknown = json!({"goal": "tools", "toolsets": ["nothing"]});
    let model =
        Family::new([json!({"goal": "tools"}), narrowed, json!({"goal": "tools", "toolsets": ["todo"]}), unknown]);
    let mut parts = parts(&world, &model);
    let mut registry = hermes_tools::ToolRegistry::new();
    for name in ["act", "clarify", "memory", "other"] {
        registry.register(Arc::new(LedgerTool::new(name, world.ledger.clone()))).unwrap();
    }
    parts.tools.registry = Arc::new(registry);
    ask(&Engine::new(parts), None, "go").await;
    let told = told(&model);
    let summaries: Vec<String> = told[..3].iter().flat_map(|one| field(one, "summary")).collect();
    assert_eq!(summaries, ["tools: act,other", "tools: act,other", "tools: "]);
    assert!(told[3]["error"].as_str().unwrap().contains("HM3003"), "{}", told[3]);
    let names: Vec<String> = model.asked()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["act", "clarify", "delegate_task", "memory", "other"], "sorted, so that the bytes never vary");
}

#[tokio::test]
async fn a_child_that_fails_is_told_and_its_parent_goes_on() {
    let world = World::new();
    let model = Family::new([json!({"tasks": [{"goal": "refuse"}, {"goal": "say it"}]}), json!({"goal": "refuse"})]);
    let result = ask(&Engine::new(parts(&world, &model)), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    let told = told(&model);
    assert_eq!(field(&told[0], "status"), ["failed", "completed"]);
    assert_eq!(field(&told[0], "exit_reason"), ["auth_failed", "answered"]);
    assert!(field(&told[0], "summary")[0].contains("HM2001"), "{}", told[0]);
    let rows = world.rows(&result.conversation, View::Display).await;
    let outcomes: Vec<_> = rows.iter().filter_map(|row| row.answers.as_ref()?.outcome).collect();
    assert_eq!(outcomes.iter().map(|outcome| outcome.as_str()).collect::<Vec<_>>(), ["ok", "failed"]);
    let states: Vec<_> = delegations(&world, &result.conversation).await.iter().map(|one| one.state).collect();
    assert_eq!(states.iter().filter(|state| **state == DelegationState::Failed).count(), 2);
}

/// Stops a parent whose child hangs, and checks that nothing of either goes on.
async fn stopped(world: &World, parts: EngineParts, stop: impl FnOnce(&Engine, &ConversationId)) -> TurnResult {
    let engine = Engine::new(parts);
    let receipt = engine.submit(submission(None, "r", "go")).await.unwrap().receipt().clone();
    let begun = async {
        while !world.events.all().iter().any(|event| {
            matches!(&event.kind, EventKind::Child { event, .. } if matches!(event.kind, EventKind::RequestStarted { .. }))
        }) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        stop(&engine, &receipt.conversation);
    };
    let (result, ()) = tokio::join!(engine.run_until(&receipt.conversation, &receipt.admission), begun);
    let result = result.unwrap();
    let all = delegations(world, &result.conversation).await;
    for record in &all {
        assert!(record.state.is_over(), "{record:?}");
        assert_eq!((record.delivery, &record.collected_by), (ResultDelivery::Delivered, &result.turn));
        let receipt = world.store.admission(&record.input).await.unwrap().receipt;
        assert_eq!(receipt.status, AdmissionStatus::Terminal);
        if let Some(turn) = receipt.turn {
            assert_eq!(world.store.turn(&turn).await.unwrap().status, TurnStatus::Ended);
        }
    }
    assert_eq!(world.store.due_results(10).await.unwrap(), []);
    result
}

#[tokio::test]
async fn a_stop_of_the_parent_stops_its_children_and_those_that_wait() {
    for how in [Interrupt::Soft, Interrupt::Hard] {
        let world = World::new();
        let model = Family::new([json!([{"goal": "hang"}, {"goal": "hang too"}])]);
        let mut parts = parts(&world, &model);
        // One at a time: the second has not begun when the stop comes.
        let one = DelegationSettings { max_concurrent_children: 1, ..DelegationSettings::default() };
        parts.settings.delegation = Some(one);
        let result = stopped(&world, parts, |engine, id| assert!(engine.interrupt(id, Stopper::User, how))).await;
        assert_eq!(result.reason, EndReason::StoppedByUser);
        let all = delegations(&world, &result.conversation).await;
        assert_eq!(all.iter().map(|one| one.state).collect::<Vec<_>>(), [DelegationState::Cancelled; 2]);
        let child = world.store.admission(&all[0].input).await.unwrap().receipt.turn.unwrap();
        assert_eq!(world.store.turn(&child).await.unwrap().reason.as_deref(), Some("stopped_by_user"));
        assert_eq!(world.store.admission(&all[1].input).await.unwrap().receipt.turn, None, "never begun");
    }
}

#[tokio::test]
async fn the_time_of_the_parent_is_the_time_of_its_children() {
    let world = World::new();
    let model = Family::new([json!({"tasks": [{"goal": "hang"}, {"goal": "say it"}]})]);
    let mut parts = parts(&world, &model);
    parts.settings.turn_deadline_ms = Some(60_000);
    let clock = world.clock.clone();
    let result = stopped(&world, parts, |_, _| clock.push(60_000)).await;
    assert_eq!(result.reason, EndReason::DeadlineExceeded);
    let rows = world.rows(&result.conversation, View::Display).await;
    let row = rows.iter().find(|row| row.role == Role::Tool).unwrap();
    assert!(row.content.contains("say it: done"), "what was done is told: {}", row.content);
}

/// Runs a parent whose process dies at write `at`; false when it ended before.
async fn run_and_die(world: &World, fault: Fault, at: i64) -> bool {
    let model = family();
    let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
    let mut parts = world.parts_with("first", model, world.tool().replay(ReplaySafety::Once), store.clone());
    parts.settings.delegation = Some(DelegationSettings::default());
    let engine = Engine::new(parts);
    let work = async {
        let receipt = engine.submit(submission(Some(&conversation()), "r", "go")).await?.receipt().clone();
        engine.run_until(&receipt.conversation, &receipt.admission).await
    };
    tokio::select! {
        result = work => { result.unwrap(); false }
        () = store.died() => true,
    }
}

fn family() -> Arc<Family> {
    Family::new([json!({"tasks": [{"goal": "work one"}, {"goal": "say two"}]}), json!({"goal": "say three"})])
}

pub fn conversation() -> ConversationId {
    ConversationId::parse("conv").unwrap()
}

#[tokio::test]
async fn i14_a_parent_that_dies_anywhere_finds_the_children_that_it_had() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        let mut points = 0;
        for at in 0.. {
            let world = World::faster();
            create(&world).await;
            let died = run_and_die(&world, fault, at).await;
            world.dead.0.lock().unwrap().push("first".to_owned());
            if at % 2 == 1 {
                // Somebody noticed before, and did not know what became of the children.
                world.store.sweep_delegations().await.unwrap();
            }
            let model = family();
            let mut parts = world.parts("second", model.clone());
            parts.settings.delegation = Some(DelegationSettings::default());
            let engine = Engine::new(parts);
            let receipt = engine.submit(submission(Some(&conversation()), "r", "go")).await.unwrap().receipt().clone();
            let result = engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
            assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"), "{fault:?} {at}");
            let all = delegations(&world, &result.conversation).await;
            assert_eq!(all.len(), 3, "{fault:?} {at}: {all:?}");
            for record in &all {
                let what = format!("{fault:?} {at}: {record:?}");
                assert_eq!(record.state, DelegationState::Completed, "{what}");
                assert_eq!(
                    (record.delivery, &record.collected_by),
                    (ResultDelivery::Delivered, &result.turn),
                    "{what}"
                );
                let rows = world.rows(&record.child, View::Display).await;
                assert_eq!(rows.iter().filter(|row| row.role == Role::User).count(), 1, "{what}");
            }
            // What the child did was done once; a call of it that was cut off is told as unknown and not repeated.
            assert!(world.ledger.effects().len() <= 1, "{fault:?} {at}");
            let rows = world.rows(&result.conversation, View::Display).await;
            let reports: String =
                rows.iter().filter(|row| row.role == Role::Tool).map(|row| row.content.as_str()).collect();
            for said in ["worked", "say two: done", "say three: done"] {
                assert_eq!(reports.matches(said).count(), 1, "{fault:?} {at}: {reports}");
            }
            points = at;
            if !died {
                break;
            }
        }
        assert!(points > 40, "only {points} points");
    }
}

#[tokio::test]
async fn i14_a_child_that_has_a_child_is_found_with_it() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0.. {
            let world = World::faster();
            create(&world).await;
            let engine = |name: &str, store: Arc<dyn Store>| {
                let mut parts = world.parts_with(name, Family::new([json!({"goal": "nest"})]), world.tool(), store);
                parts.settings.delegation =
                    Some(DelegationSettings { max_spawn_depth: 2, ..DelegationSettings::default() });
                Engine::new(parts)
            };
            let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
            let first = engine("first", store.clone());
            let work = async {
                let receipt = first.submit(submission(Some(&conversation()), "r", "go")).await?.receipt().clone();
                first.run_until(&receipt.conversation, &receipt.admission).await
            };
            let died = tokio::select! {
                result = work => { result.unwrap(); false }
                () = store.died() => true,
            };
            world.dead.0.lock().unwrap().push("first".to_owned());
            let second = engine("second", Arc::new(world.store.clone()));
            let receipt = second.submit(submission(Some(&conversation()), "r", "go")).await.unwrap().receipt().clone();
            let result = second.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
            assert_eq!(result.reason, EndReason::Answered, "{fault:?} {at}");
            let mut above = conversation();
            for _ in 0..2 {
                let all = delegations(&world, &above).await;
                let given: Vec<_> = all.iter().filter(|record| record.parent == above).collect();
                let [record] = given.as_slice() else { panic!("{fault:?} {at}: {all:?}") };
                assert_eq!(record.state, DelegationState::Completed, "{fault:?} {at}");
                assert_eq!(record.collected_by.as_ref(), Some(&record.turn), "{fault:?} {at}");
                above = record.child.clone();
            }
            if !died {
                assert!(at > 30, "only {at} points");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_write_that_fails_once_costs_no_child_and_no_report() {
    for fault in [Fault::FailsOnce, Fault::AnswerLost, Fault::CommitLost] {
        for at in 0.. {
            let world = World::faster();
            create(&world).await;
            let store = FaultStore::new(Arc::new(world.store.clone()), fault, at);
            let mut parts = world.parts_with("first", family(), world.tool(), store.clone());
            parts.settings.delegation = Some(DelegationSettings::default());
            let engine = Engine::new(parts);
            // Whatever failed, the input is accepted at last, and a turn that was left open goes on.
            let mut result = None;
            for _ in 0..5 {
                let Ok(receipt) = engine.submit(submission(Some(&conversation()), "r", "go")).await else { continue };
                let receipt = receipt.receipt().clone();
                let Ok(done) = engine.run_until(&receipt.conversation, &receipt.admission).await else { continue };
                result = Some(done);
                let receipt = world.store.admission(&receipt.admission).await.unwrap().receipt;
                if receipt.status == AdmissionStatus::Terminal {
                    break;
                }
            }
            let result = result.unwrap();
            let all = delegations(&world, &result.conversation).await;
            let what = format!("{fault:?} {at}: {:?} {all:?}", result.reason);
            use EndReason::{Answered, CrashInterrupted, PersistenceFailed};
            assert!(matches!(result.reason, Answered | PersistenceFailed | CrashInterrupted), "{what}");
            for record in &all {
                // What could not be taken by the turn waits for somebody who brings it.
                let is_due = record.delivery == ResultDelivery::Pending;
                assert!(record.state.is_over() && (is_due || record.collected_by == result.turn), "{what}");
                let child = world.store.conversation(&record.child).await.unwrap();
                assert_eq!(child.pending, None, "{what}");
            }
            assert!(world.ledger.effects().len() <= 1, "{what}");
            if !store.reached() {
                assert!(at > 40, "only {at} points");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_given_away_does_not_take_the_others_with_it() {
    let world = World::new();
    let tasks = json!([{"goal": "say a"}, {"goal": "say b", "toolsets": ["nothing"]}, {"goal": "say c"}]);
    let model = Family::new([json!({ "tasks": tasks })]);
    ask(&Engine::new(parts(&world, &model)), None, "go").await;
    let told = told(&model);
    assert_eq!(field(&told[0], "status"), ["completed", "not_begun", "completed"]);
    assert!(field(&told[0], "summary")[1].contains("HM3003"), "{}", told[0]);
}

#[tokio::test]
async fn t35_a_child_asks_nobody_and_what_needs_a_person_is_denied() {
    let world = World::new();
    let model = Family::new([json!({"goal": "work hard"})]);
    let approver = Arc::new(FixedApprover::new(ApprovalAnswer::Once));
    let mut parts = parts(&world, &model);
    let mut registry = ToolRegistry::new();
    let tool = world.tool().risk(Risk::Ask { why: "it is dangerous".to_owned() });
    registry.register(Arc::new(tool)).unwrap();
    parts.tools = ToolHost::attended(registry, approver.clone());
    let result = ask(&Engine::new(parts), None, "go").await;
    assert_eq!(result.reason, EndReason::Answered);
    assert_eq!((world.ledger.effects().len(), approver.asked().len()), (0, 0));
    let child = delegations(&world, &result.conversation).await[0].child.clone();
    let rows = world.rows(&child, View::Display).await;
    let outcome = rows.iter().find_map(|row| row.answers.as_ref()?.outcome).unwrap();
    assert_eq!(outcome.as_str(), "denied");
}

#[tokio::test]
async fn i09_a_parent_that_lost_its_lease_leaves_its_child_to_the_next_owner() {
    let world = World::new();
    create(&world).await;
    let model = || Family::new([json!({"goal": "work hard"})]);
    let engine = |name: &str, delay_ms| {
        let tool = world.tool().replay(ReplaySafety::Idempotent).delay_ms(delay_ms);
        let mut parts = world.parts_with(name, model(), tool, Arc::new(world.store.clone()));
        parts.settings.delegation = Some(DelegationSettings::default());
        parts.settings.lease_refresh_ms = 10_000;
        Engine::new(parts)
    };
    let (first, second) = (engine("first", 2_000), engine("second", 0));
    let receipt = first.submit(submission(Some(&conversation()), "r", "go")).await.unwrap().receipt().clone();
    let zombie = first.run_until(&receipt.conversation, &receipt.admission);
    let taken = async {
        while world.ledger.events().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        world.dead.0.lock().unwrap().push("first".to_owned());
        second.drain(&conversation()).await.unwrap().unwrap()
    };
    let (_, result) = tokio::join!(zombie, taken);
    assert_eq!((result.reason, result.answer.as_str()), (EndReason::Answered, "done"));
    let all = delegations(&world, &conversation()).await;
    assert_eq!((all.len(), all[0].state), (1, DelegationState::Completed));
    assert_eq!(all[0].result.as_deref(), Some("worked"));
    let rows = world.rows(&all[0].child, View::Display).await;
    assert_eq!(rows.iter().filter(|row| row.content == "worked").count(), 1);
}

/// A conversation that exists, so that a client may repeat its request whatever became of the first attempt.
pub async fn create(world: &World) {
    use hermes_store::{AdmissionId, Intent, NewAdmission, NewConversation, OwnerId};
    let id = conversation();
    let new = NewConversation { id: id.clone(), profile: "test".into(), source: "test".into(), title: None };
    let admission = NewAdmission {
        id: AdmissionId::parse("setup").unwrap(),
        conversation: id,
        principal: "setup".into(),
        request_id: "setup".into(),
        intent: Intent::Queue,
        payload: "{\"text\":\"x\"}".into(),
        submitted_by: OwnerId::parse("setup").unwrap(),
    };
    world.store.create_and_admit(new, admission.clone()).await.unwrap();
    world.store.cancel(&admission.id).await.unwrap();
}
