//! Random worlds: a seed makes a scenario and what goes wrong in it. The same seed makes the same world.

use hermes_core::testing::Fault;
use hermes_core::{EngineSettings, Interrupt};
use hermes_providers::ErrorClass;
use hermes_tools::ReplaySafety;

use crate::bound::simulate;
use crate::check;
use crate::family::NEWS_INPUT;
use crate::model::{Meanwhile, Say, Step, Summary};
use crate::rewinds::Act;
use crate::sweep::{NEVER, live, projection, succeed};
use crate::world::{HELD, Scenario, World};

const INPUTS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
pub(crate) const SENT: [&str; 3] = ["sent one", "sent two", "sent three"];
const CALLS: [&[(&str, &str)]; 6] = [
    &[("act", "{}")],
    &[("look", "{\"n\":1}"), ("look", "{\"n\":2}")],
    &[("act", "{\"n\":1}"), ("look", "{}"), ("act", "{\"fail\":true}")],
    &[("no_such_tool", "{}"), ("act", "{\"n\":3}")],
    &[("act", "{\"ms\":70000}")],
    &[("look", "{\"size\":7000}"), ("look", "{\"size\":7000,\"n\":2}"), ("act", "{\"size\":7000}")],
];
/// Calls that a person is asked about, and questions; what the person does stands in them.
const ASKED: [&[(&str, &str)]; 8] = [
    &[("ask", "{\"why\":\"yes after 3000\"}")],
    &[("act", "{}"), ("ask", "{\"why\":\"no after 20000\"}"), ("ask", "{\"why\":\"yes after 90000\"}")],
    &[("ask", "{\"why\":\"session\"}"), ("ask", "{\"why\":\"session\"}"), ("look", "{}")],
    &[("ask", "{\"why\":\"always after 10000\"}"), ("act", "{\"ms\":70000}")],
    &[("ask", "{\"why\":\"late\"}"), ("ask", "{\"why\":\"gone\"}")],
    &[("ask", "{\"why\":\"dies after 1000\"}")],
    &[("clarify", "{\"questions\":[{\"question\":\"yes after 40000\"},{\"question\":\"no\"}]}"), ("act", "{}")],
    &[("clarify", "{\"questions\":[{\"question\":\"late\"},{\"question\":\"dies after 2000\"}]}")],
];
/// What a person does with the end of a conversation.
const ACTS: [&[Act]; 8] = [
    &[],
    &[],
    &[],
    &[Act::Undo],
    &[Act::Retry],
    &[Act::Undo, Act::Redo],
    &[Act::Retry, Act::Redo, Act::Undo],
    &[Act::Undo, Act::Undo, Act::Redo, Act::Retry],
];
/// Tasks that scripts give away.
pub(crate) const GOALS: [&str; 4] = ["task one", "task two", "task three", "nest"];
const DELEGATED: [&[(&str, &str)]; 7] = [
    &[("delegate_task", "{\"goal\":\"task one\"}")],
    &[
        ("look", "{}"),
        ("delegate_task", "{\"tasks\":[{\"goal\":\"task one\"},{\"goal\":\"task two\"}]}"),
        ("act", "{}"),
    ],
    &[("delegate_task", "{\"goal\":\"task one\"}"), ("delegate_task", "{\"goal\":\"task three\"}")],
    &[("delegate_task", "{\"goal\":\"nest\"}")],
    &[("delegate_task", "{\"goal\":\"task two\",\"background\":true}")],
    &[("delegate_task", "{\"tasks\":[{\"goal\":\"nest\"},{\"goal\":\"task three\"}],\"background\":true}")],
    &[("delegate_task", "{\"tasks\":[{\"goal\":\"a\"},{\"goal\":\"b\"},{\"goal\":\"c\"},{\"goal\":\"d\"}]}")],
];
const CLASSES: [ErrorClass; 8] = [
    ErrorClass::ServerError,
    ErrorClass::RateLimit,
    ErrorClass::Timeout,
    ErrorClass::Incomplete,
    ErrorClass::Overloaded,
    ErrorClass::ContextOverflow,
    ErrorClass::Auth,
    ErrorClass::BadRequest,
];

/// One of a list.
fn one<T: Copy>(rng: &mut fastrand::Rng, list: &[T]) -> T {
    list[rng.usize(..list.len())]
}

fn meanwhile(rng: &mut fastrand::Rng) -> Meanwhile {
    match rng.u8(..18) {
        0..=4 => Meanwhile::Steer(one(rng, &SENT)),
        5..=7 => Meanwhile::Send(one(rng, &SENT)),
        8 => Meanwhile::Stop(Interrupt::Soft),
        9 => Meanwhile::Stop(Interrupt::Hard),
        10 => Meanwhile::Shutdown,
        11 => Meanwhile::Die,
        12 => Meanwhile::Rob,
        13 => Meanwhile::FailWrite,
        14 => Meanwhile::Redirect(one(rng, &SENT)),
        16 => Meanwhile::Lose,
        15 => Meanwhile::StopParent(one(rng, &[Interrupt::Soft, Interrupt::Hard])),
        _ => Meanwhile::Wait(rng.u64(1..1_000_000)),
    }
}

fn say(rng: &mut fastrand::Rng) -> Say {
    match rng.u8(..24) {
        20.. => Say::Calls(one(rng, &ASKED)),
        0..=9 => Say::Calls(one(rng, &CALLS)),
        10 => Say::CutCalls(&[("act", "{\"n\":")]),
        11 => Say::Cut("a part of it"),
        12 => Say::Pause("so far"),
        13 => Say::Nothing,
        14 => Say::Withheld,
        15 => Say::Thought,
        16 => Say::NoCalls,
        17 => Say::BadCalls(&[("act", "{\"n\"}")]),
        18 => Say::Loop,
        _ => Say::Text("an answer"),
    }
}

fn step(rng: &mut fastrand::Rng, say: Say) -> Step {
    let mut step = Step::say(say);
    if rng.u8(..6) == 0 {
        step = step.failing(one(rng, &CLASSES), rng.u32(1..6));
    }
    if rng.u8(..10) == 0 {
        step = step.lost_after("a part ");
    }
    if rng.u8(..6) == 0 {
        step = step.while_(meanwhile(rng));
    }
    step
}

/// What the model says to one input; `delegates` when it may give tasks away.
pub(crate) fn script(rng: &mut fastrand::Rng, delegates: bool) -> &'static [Step] {
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..rng.usize(..7) {
        let said = match delegates && rng.u8(..4) == 0 {
            true => Say::Calls(one(rng, &DELEGATED)),
            false => say(rng),
        };
        steps.push(step(rng, said));
    }
    steps.push(step(rng, Say::Text("done")));
    steps.leak()
}

/// How deep tasks may be given away in the world of a seed.
pub(crate) fn depth(rng: &mut fastrand::Rng) -> u32 {
    one(rng, &[0, 0, 1, 2])
}

/// What the model says in a world: to what people say, to tasks, and to what comes of them.
pub(crate) fn scripts(
    rng: &mut fastrand::Rng,
    said: impl Iterator<Item = &'static str>,
    depth: u32,
) -> crate::model::Script {
    let mut scripts: Vec<(&'static str, &'static [Step])> = said.map(|text| (text, script(rng, depth > 0))).collect();
    if depth > 0 {
        scripts.extend(GOALS.map(|goal| (goal, script(rng, depth > 1 && goal == "nest"))));
        scripts.push((NEWS_INPUT, script(rng, false)));
    }
    scripts.leak()
}

fn usual(_settings: &mut EngineSettings) {}

fn few_steps(settings: &mut EngineSettings) {
    settings.max_iterations = Some(3);
}

fn short_time(settings: &mut EngineSettings) {
    settings.turn_deadline_ms = Some(100_000);
}

fn in_place(settings: &mut EngineSettings) {
    settings.compression.in_place = true;
}

/// How the engines of a seed work.
pub(crate) fn settings(rng: &mut fastrand::Rng) -> fn(&mut EngineSettings) {
    one(rng, &[usual as fn(&mut EngineSettings), usual, few_steps, short_time, in_place])
}

/// The scenario of a seed.
fn scenario(rng: &mut fastrand::Rng) -> Scenario {
    let inputs = &INPUTS[..rng.usize(1..=INPUTS.len())];
    let texts = inputs.iter().chain(&SENT).chain(&[HELD]).copied();
    let delegates = depth(rng);
    let script = scripts(rng, texts, delegates);
    Scenario {
        name: "a random world",
        inputs,
        script,
        settings: settings(rng),
        replay: one(rng, &[ReplaySafety::Once, ReplaySafety::Once, ReplaySafety::Idempotent]),
        stride: 1,
        window: one(rng, &[40_000, 40_000, 128_000]),
        summary: one(rng, &[Summary::Notes, Summary::Notes, Summary::Cut, Summary::Fails(ErrorClass::ServerError)]),
        fallback: rng.u8(..4) == 0,
        held: rng.u8(..8) == 0,
        delegates,
        rest_ms: one(rng, &[0, 0, 60_000, 7_200_000]),
        acts: one(rng, &ACTS),
        ends: &[],
    }
}

/// Runs the world of a seed and checks it; returns what happened in it.
pub(crate) fn run(seed: u64) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let scenario = scenario(&mut rng);
    let what = format!("seed {seed}");
    simulate(&what, async {
        let world = World::new(&scenario).await;
        for life in 0..rng.usize(..4) {
            let name = format!("life{life}");
            let fault = one(&mut rng, &[Fault::FailsOnce, Fault::AnswerLost, Fault::DiesBefore, Fault::DiesAfter]);
            let node = world.node(&name, fault, if rng.bool() { rng.i64(0..40) } else { NEVER });
            live(node, rng.u64(0..400)).await;
            // Some deaths can be proved; the others are believed when the heartbeat has stopped.
            if rng.bool() {
                world.bury(&name);
            }
        }
        let results = succeed(&world, "last").await;
        check::at_rest(&world, &results, &what).await;
        let mut trace = world.trace.lock().unwrap().clone();
        trace.extend(projection(&world).await);
        trace
    })
}
