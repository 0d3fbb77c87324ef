//! The scenarios: small worlds that between them go through every phase and every end of a turn.

use hermes_core::EndReason as R;
use hermes_core::{EngineSettings, Interrupt};
use hermes_providers::ErrorClass as C;
use hermes_tools::ReplaySafety;

use crate::model::{Meanwhile, Say, Step, Summary};
use crate::rewinds::Act;
use crate::world::{HELD, Scenario, UNREADABLE};

const fn text(text: &'static str) -> Step {
    Step::say(Say::Text(text))
}

const fn calls(calls: &'static [(&'static str, &'static str)]) -> Step {
    Step::say(Say::Calls(calls))
}

fn usual(_settings: &mut EngineSettings) {}

fn three_steps(settings: &mut EngineSettings) {
    settings.max_iterations = Some(2);
}

fn two_minutes(settings: &mut EngineSettings) {
    settings.turn_deadline_ms = Some(120_000);
}

const ONE: &[(&str, &str)] = &[("act", "{}")];
const TWO: &[(&str, &str)] = &[("act", "{\"n\":1}"), ("look", "{\"n\":2}")];
const MIXED: &[(&str, &str)] = &[("act", "{}"), ("no_such_tool", "{}"), ("look", "{}"), ("act", "{\"fail\":true}")];
const SLOW: &[(&str, &str)] = &[("act", "{\"ms\":90000}"), ("act", "{\"n\":2}")];
const CHILD: &[(&str, &str)] = &[("delegate_task", "{\"goal\":\"task one\"}")];
const NEST: &[(&str, &str)] = &[("delegate_task", "{\"goal\":\"nest\"}")];
const CHILDREN: &[(&str, &str)] = &[
    ("look", "{}"),
    ("delegate_task", "{\"tasks\":[{\"goal\":\"task one\"},{\"goal\":\"task two\"},{\"goal\":\"task three\"}]}"),
];
const BACKGROUND: &[(&str, &str)] =
    &[("delegate_task", "{\"tasks\":[{\"goal\":\"task one\"},{\"goal\":\"task two\"}],\"background\":true}")];
const BROKEN: &[(&str, &str)] = &[("act", "{\"n\":")];

const fn scenario(
    name: &'static str,
    inputs: &'static [&'static str],
    script: &'static [(&'static str, &'static [Step])],
    ends: &'static [R],
) -> Scenario {
    Scenario {
        name,
        inputs,
        script,
        settings: usual,
        replay: ReplaySafety::Once,
        stride: 1,
        window: 128_000,
        summary: Summary::Notes,
        fallback: false,
        held: false,
        delegates: 0,
        rest_ms: 0,
        acts: &[],
        ends,
    }
}

/// Every scenario.
pub(crate) const ALL: &[Scenario] = &[
    scenario("an answer", &["hi"], &[("hi", &[text("hello")])], &[R::Answered]),
    scenario("two rounds", &["go"], &[("go", &[calls(TWO), calls(ONE), text("done")])], &[R::Answered]),
    Scenario {
        replay: ReplaySafety::Idempotent,
        ..scenario("calls that may be repeated", &["go"], &[("go", &[calls(TWO), text("done")])], &[R::Answered])
    },
    scenario("mixed calls", &["go"], &[("go", &[calls(MIXED), text("done")])], &[R::Answered]),
    scenario(
        "three inputs",
        &["one", "two", "three"],
        &[("one", &[calls(ONE), text("1")]), ("two", &[text("2")]), ("three", &[calls(ONE), text("3")])],
        &[R::Answered, R::Answered, R::Answered],
    ),
    scenario(
        "a steer into a round",
        &["go"],
        &[
            ("go", &[calls(ONE).while_(Meanwhile::Steer("left")), text("never said")]),
            ("left", &[calls(ONE), text("left it is")]),
        ],
        &[R::Answered],
    ),
    scenario(
        "a steer that comes too late",
        &["go"],
        &[("go", &[text("done").while_(Meanwhile::Steer("left"))]), ("left", &[text("later")])],
        &[R::Answered],
    ),
    scenario(
        "an input while another runs",
        &["go"],
        &[("go", &[calls(ONE), text("done").while_(Meanwhile::Send("next"))]), ("next", &[text("after")])],
        &[R::Answered],
    ),
    scenario(
        "a failing provider",
        &["go"],
        &[("go", &[calls(ONE).failing(C::ServerError, 2), text("done").failing(C::RateLimit, 1)])],
        &[R::Answered],
    ),
    scenario(
        "a lost connection",
        &["go"],
        &[("go", &[text("all of it").lost_after("all "), text("never said")])],
        &[R::Answered],
    ),
    scenario(
        "a provider that is down",
        &["go", "then"],
        &[("go", &[text("never").failing(C::ServerError, 1_000)]), ("then", &[text("up again")])],
        &[R::RetriesExhausted, R::Answered],
    ),
    scenario(
        "a refused key",
        &["go"],
        &[("go", &[calls(ONE), text("never").failing(C::Auth, 1_000)])],
        &[R::AuthFailed],
    ),
    scenario("no money", &["go"], &[("go", &[text("never").failing(C::Billing, 1_000)])], &[R::BillingFailed]),
    scenario("no such model", &["go"], &[("go", &[text("no").failing(C::ModelNotFound, 1_000)])], &[R::ModelNotFound]),
    scenario(
        "a refused request",
        &["go"],
        &[("go", &[text("no").failing(C::BadRequest, 1_000)])],
        &[R::RequestRefused],
    ),
    scenario("a certificate", &["go"], &[("go", &[text("no").failing(C::Certificate, 1_000)])], &[R::Misconfigured]),
    scenario("content withheld", &["go"], &[("go", &[calls(ONE), Step::say(Say::Withheld)])], &[R::ContentBlocked]),
    scenario(
        "a pause in an answer",
        &["go"],
        &[("go", &[Step::say(Say::Pause("so far")), text("and on")])],
        &[R::Answered],
    ),
    scenario(
        "a broken call, once",
        &["go"],
        &[("go", &[calls(ONE), Step::say(Say::CutCalls(BROKEN)).failing(C::ServerError, 1)])],
        &[R::OutputTruncated],
    ),
    Scenario {
        settings: three_steps,
        ..scenario(
            "the budget",
            &["go"],
            &[("go", &[calls(ONE), calls(ONE), calls(ONE), text("so far")])],
            &[R::BudgetExhausted],
        )
    },
    Scenario {
        settings: two_minutes,
        ..scenario(
            "the deadline",
            &["go"],
            &[("go", &[calls(SLOW), calls(SLOW), text("late")])],
            &[R::DeadlineExceeded],
        )
    },
    scenario(
        "a soft stop while the model is asked",
        &["go", "then"],
        &[
            ("go", &[calls(ONE), text("never said").while_(Meanwhile::Stop(Interrupt::Soft))]),
            ("then", &[text("as you like")]),
        ],
        &[R::StoppedByUser, R::Answered],
    ),
    scenario(
        "a hard stop",
        &["go", "then"],
        &[
            ("go", &[calls(TWO).while_(Meanwhile::Stop(Interrupt::Hard)), text("never said")]),
            ("then", &[text("as you like")]),
        ],
        &[R::StoppedByUser, R::Answered],
    ),
    scenario(
        "a shutdown",
        &["go"],
        &[("go", &[calls(ONE), text("never said").while_(Meanwhile::Shutdown)])],
        &[R::StoppedByShutdown],
    ),
    scenario(
        "a model that thinks longer than a lease lives",
        &["go"],
        &[("go", &[calls(ONE), text("done").while_(Meanwhile::Wait(500_000))])],
        &[R::Answered],
    ),
    scenario(
        "a model that never answers",
        &["go", "then"],
        &[("go", &[calls(ONE), text("never").while_(Meanwhile::Wait(5_000_000))]), ("then", &[text("then")])],
        &[R::LivenessLost, R::Answered],
    ),
    Scenario {
        window: SMALL,
        stride: 29,
        ..scenario(
            "a history that outgrows its window",
            &["go", "then"],
            &[("go", LONG), ("then", &[text("then")])],
            TWICE,
        )
    },
    Scenario {
        window: SMALL,
        stride: 29,
        settings: in_place,
        ..scenario("the same, shortened in place", &["go", "then"], &[("go", LONG), ("then", &[text("then")])], TWICE)
    },
    Scenario {
        window: SMALL,
        stride: 29,
        summary: Summary::Cut,
        ..scenario("a summary that is cut", &["go"], &[("go", LONG)], &[R::Answered])
    },
    Scenario {
        window: SMALL,
        stride: 29,
        summary: Summary::Fails(C::Auth),
        ..scenario("a summary that fails", &["go"], &[("go", LONG)], &[R::Answered])
    },
    scenario(
        "a request that is refused as too long",
        &["go"],
        &[("go", &[calls(BIG), calls(BIG), calls(BIG), calls(BIG).failing(C::ContextOverflow, 1), text("done")])],
        &[R::Answered],
    ),
    scenario(
        "a request that is too long whatever is done",
        &["go", "then"],
        &[("go", &[calls(ONE), text("never").failing(C::ContextOverflow, 1_000)]), ("then", &[text("then")])],
        &[R::ContextOverflow, R::Answered],
    ),
    scenario(
        "a provider that refuses to speak of it",
        &["go"],
        &[("go", &[text("no").failing(C::ContentPolicy, 9)])],
        &[R::ContentBlocked],
    ),
    scenario("a model that says nothing", &["go"], &[("go", &[Step::say(Say::Nothing)])], &[R::EmptyResponse]),
    scenario(
        "a model that says nothing after its calls, but when it is nudged",
        &["go"],
        &[("go", &[calls(ONE), Step::say(Say::Nothing)])],
        &[R::EmptyResponse],
    ),
    scenario("a model that only thinks", &["go"], &[("go", &[Step::say(Say::Thought)])], &[R::ThinkingExhausted]),
    scenario(
        "a model that repeats itself",
        &["go"],
        &[("go", &[calls(ONE), Step::say(Say::Loop)])],
        &[R::RepetitionStopped],
    ),
    scenario(
        "a connection that breaks, and nothing more",
        &["go", "then"],
        &[("go", &[Step::say(Say::Nothing).lost_after("as far as it goes")]), ("then", &[text("then")])],
        &[R::PartialAnswer, R::Answered],
    ),
    scenario(
        "an answer in three parts",
        &["go"],
        &[("go", &[Step::say(Say::Cut("one, ")), Step::say(Say::Cut("two, ")), text("three")])],
        &[R::Answered],
    ),
    scenario(
        "an answer that never ends",
        &["go"],
        &[(
            "go",
            &[
                Step::say(Say::Cut("a, ")),
                Step::say(Say::Cut("b, ")),
                Step::say(Say::Cut("c, ")),
                Step::say(Say::Cut("d")),
            ],
        )],
        &[R::OutputTruncated],
    ),
    scenario(
        "calls to tools that do not exist",
        &["go"],
        &[("go", &[calls(NO_TOOL), calls(NO_TOOL), calls(NO_TOOL)])],
        &[R::InvalidCalls],
    ),
    scenario(
        "calls that are no JSON, then that are",
        &["go"],
        &[("go", &[Step::say(Say::BadCalls(BAD)), calls(ONE), text("done")])],
        &[R::Answered],
    ),
    scenario(
        "calls that are announced and never come",
        &["go"],
        &[("go", &[Step::say(Say::NoCalls)])],
        &[R::InvalidCalls],
    ),
    scenario(
        "a call that fails again and again",
        &["go", "then"],
        &[
            ("go", &[calls(FAILS), calls(FAILS), calls(FAILS), calls(FAILS), calls(FAILS), text("never")]),
            ("then", &[text("then")]),
        ],
        &[R::GuardrailHalt, R::Answered],
    ),
    scenario(
        "a write that fails",
        &["go", "then"],
        &[("go", &[calls(ONE), text("done").while_(Meanwhile::FailWrite)]), ("then", &[text("then")])],
        &[R::PersistenceFailed, R::Answered],
    ),
    scenario(
        "a write that fails, of a round",
        &["go"],
        &[("go", &[calls(ONE).while_(Meanwhile::FailWrite), text("never")])],
        &[R::PersistenceFailed],
    ),
    scenario(
        "a redirect",
        &["go"],
        &[
            ("go", &[calls(ONE), text("never").while_(Meanwhile::Redirect("left"))]),
            ("left", &[calls(ONE), text("left it is")]),
        ],
        &[R::Answered],
    ),
    scenario(
        "a user who never lets it speak",
        &["go"],
        &[
            ("go", &[text("never").while_(Meanwhile::Redirect("one"))]),
            ("one", &[text("never").while_(Meanwhile::Redirect("two"))]),
            ("two", &[text("never").while_(Meanwhile::Redirect("three"))]),
            ("three", &[text("never").while_(Meanwhile::Redirect("four"))]),
            ("four", &[text("never").while_(Meanwhile::Redirect("five"))]),
            ("five", &[text("five")]),
        ],
        &[R::RedirectLimit],
    ),
    scenario(
        "an owner that is robbed",
        &["go", "then"],
        &[("go", &[calls(ONE), calls(ONE).while_(Meanwhile::Rob), text("done")]), ("then", &[text("then")])],
        &[R::LeaseLost, R::Answered],
    ),
    scenario(
        "a turn of which nobody knows what came of it",
        &["go", "then"],
        &[("go", &[calls(ONE), calls(ONE).while_(Meanwhile::Lose), text("never")]), ("then", &[text("then")])],
        &[R::LeaseLost, R::Answered],
    ),
    Scenario {
        held: true,
        settings: impatient,
        ..scenario(
            "a conversation that another has",
            &["go"],
            &[("go", &[text("done")]), (HELD, &[text("held")])],
            &[R::LeaseTimeout],
        )
    },
    scenario(
        "a process that dies, and the next goes on",
        &["go"],
        &[("go", &[calls(TWO), text("done").while_(Meanwhile::Die)])],
        &[R::Answered],
    ),
    Scenario {
        rest_ms: 7_200_000,
        ..scenario(
            "a process that dies, and the next comes too late",
            &["go", "then"],
            &[("go", &[calls(TWO), text("never").while_(Meanwhile::Die)]), ("then", &[text("then")])],
            &[R::CrashInterrupted, R::Answered],
        )
    },
    scenario(
        "an input that cannot be read",
        &[UNREADABLE, "then"],
        &[("then", &[text("then")])],
        &[R::InvariantViolated, R::Answered],
    ),
    Scenario {
        fallback: true,
        ..scenario(
            "a model that stands in",
            &["go", "then"],
            &[("go", &[calls(ONE), calls(TWO).failing(C::Billing, 1), text("done")]), ("then", &[text("then")])],
            TWICE,
        )
    },
    Scenario {
        fallback: true,
        ..scenario(
            "two models that are down",
            &["go"],
            &[("go", &[calls(ONE), text("no").failing(C::Auth, 9)])],
            &[R::AuthFailed],
        )
    },
    Scenario {
        delegates: 1,
        ..scenario(
            "a child",
            &["go"],
            &[("go", &[calls(CHILD), text("done")]), ("task one", &[calls(ONE), text("one is done")])],
            &[R::Answered],
        )
    },
    Scenario {
        delegates: 1,
        stride: 3,
        ..scenario(
            "three children beside a call, one of which fails",
            &["go"],
            &[
                ("go", &[calls(CHILDREN), text("done")]),
                ("task one", &[calls(ONE), text("one is done")]),
                ("task two", &[text("never").failing(C::Auth, 1_000)]),
                ("task three", &[text("three is done")]),
            ],
            &[R::Answered],
        )
    },
    Scenario {
        delegates: 1,
        stride: 3,
        ..scenario(
            "a child in the background",
            &["go", "then"],
            &[
                ("go", &[calls(BACKGROUND), text("done")]),
                ("then", &[text("then")]),
                ("task one", &[calls(ONE), text("one is done")]),
                ("task two", &[text("two is done")]),
            ],
            TWICE,
        )
    },
    Scenario {
        delegates: 2,
        stride: 3,
        ..scenario(
            "a child that has a child",
            &["go"],
            &[
                ("go", &[calls(NEST), text("done")]),
                ("nest", &[calls(CHILD), text("both are done")]),
                ("task one", &[calls(ONE), text("one is done")]),
            ],
            &[R::Answered],
        )
    },
    Scenario {
        delegates: 1,
        ..scenario(
            "a stop while a child works",
            &["go", "then"],
            &[
                ("go", &[calls(CHILDREN), text("never")]),
                ("task one", &[calls(ONE), text("never").while_(Meanwhile::StopParent(Interrupt::Hard))]),
                ("task two", &[calls(SLOW), text("never")]),
                ("task three", &[text("never").while_(Meanwhile::Wait(500_000))]),
                ("then", &[text("as you like")]),
            ],
            &[R::StoppedByUser, R::Answered],
        )
    },
    scenario(
        "calls that a person allows, refuses and leaves unanswered",
        &["go"],
        &[("go", &[calls(ASKED), calls(ALLOWED), text("done")])],
        &[R::Answered],
    ),
    scenario("questions to a person", &["go"], &[("go", &[calls(QUESTIONS), text("as you say")])], &[R::Answered]),
    scenario(
        "a process that dies while a person is asked",
        &["go"],
        &[("go", &[calls(&[("ask", "{\"why\":\"dies after 1000\"}")]), text("done")])],
        &[R::Answered],
    ),
    Scenario {
        acts: &[Act::Undo],
        ..scenario(
            "an undo",
            &["go", "then"],
            &[("go", &[calls(ONE), text("done")]), ("then", &[calls(TWO), text("then")])],
            TWICE,
        )
    },
    Scenario {
        acts: &[Act::Undo, Act::Redo],
        ..scenario("an undo that is taken back", &["go"], &[("go", &[calls(ONE), text("done")])], &[R::Answered])
    },
    Scenario {
        acts: &[Act::Retry],
        ..scenario(
            "a retry",
            &["go", "then"],
            &[("go", &[calls(ONE), text("done")]), ("then", &[calls(TWO), text("then")])],
            TWICE,
        )
    },
    Scenario {
        window: SMALL,
        stride: 29,
        ..scenario(
            "a steer and a stop while a history is shortened",
            &["go", "then"],
            &[
                ("go", STEERED),
                ("left", &[calls(BIG), calls(BIG), text("left it is").while_(Meanwhile::Stop(Interrupt::Soft))]),
                ("then", &[text("then")]),
            ],
            &[R::StoppedByUser, R::Answered],
        )
    },
];

/// A window that a few rounds of [`BIG`] fill.
const SMALL: u64 = 40_000;
const TWICE: &[R] = &[R::Answered, R::Answered];
const BIG: &[(&str, &str)] =
    &[("look", "{\"size\":7000}"), ("act", "{\"size\":7000}"), ("look", "{\"size\":7000,\"n\":3}")];
const LONG: &[Step] = &[
    calls(BIG),
    calls(BIG),
    calls(BIG),
    calls(BIG),
    calls(BIG),
    calls(BIG),
    calls(BIG),
    calls(BIG),
    calls(BIG),
    calls(BIG),
    text("done"),
];

const STEERED: &[Step] =
    &[calls(BIG), calls(BIG), calls(BIG), calls(BIG), calls(BIG).while_(Meanwhile::Steer("left")), text("never said")];
const ASKED: &[(&str, &str)] = &[
    ("ask", "{\"why\":\"yes after 3000\"}"),
    ("ask", "{\"why\":\"no\"}"),
    ("ask", "{\"why\":\"late\"}"),
    ("ask", "{\"why\":\"gone\"}"),
];
const ALLOWED: &[(&str, &str)] = &[
    ("ask", "{\"why\":\"session\"}"),
    ("ask", "{\"why\":\"session\"}"),
    ("ask", "{\"why\":\"always\"}"),
    ("act", "{}"),
];
const QUESTIONS: &[(&str, &str)] = &[
    ("clarify", "{\"questions\":[{\"question\":\"yes after 40000\"},{\"question\":\"no\"},{\"question\":\"late\"}]}"),
    ("clarify", "{\"questions\":[{\"question\":\"gone\"}]}"),
];
const NO_TOOL: &[(&str, &str)] = &[("no_such_tool", "{}")];
const BAD: &[(&str, &str)] = &[("act", "{\"n\"}")];
const FAILS: &[(&str, &str)] = &[("act", "{\"fail\":true}")];

/// Another owner's turn is waited for for five seconds.
fn impatient(settings: &mut EngineSettings) {
    settings.lease_wait_ms = 5_000;
}

fn in_place(settings: &mut EngineSettings) {
    settings.compression.in_place = true;
}

/// The scenario that ends for this reason. A new reason does not compile until it has one.
pub(crate) fn that_ends(reason: R) -> &'static str {
    match reason {
        R::Answered => "an answer",
        R::StoppedByUser => "a hard stop",
        R::StoppedByShutdown => "a shutdown",
        R::BudgetExhausted => "the budget",
        R::DeadlineExceeded => "the deadline",
        R::PersistenceFailed => "a write that fails",
        R::LeaseLost => "an owner that is robbed",
        R::LeaseTimeout => "a conversation that another has",
        R::AuthFailed => "a refused key",
        R::BillingFailed => "no money",
        R::ModelNotFound => "no such model",
        R::ContentBlocked => "a provider that refuses to speak of it",
        R::RequestRefused => "a refused request",
        R::ContextOverflow => "a request that is too long whatever is done",
        R::RetriesExhausted => "a provider that is down",
        R::EmptyResponse => "a model that says nothing",
        R::OutputTruncated => "an answer that never ends",
        R::InvalidCalls => "calls to tools that do not exist",
        R::GuardrailHalt => "a call that fails again and again",
        R::RepetitionStopped => "a model that repeats itself",
        R::ThinkingExhausted => "a model that only thinks",
        R::PartialAnswer => "a connection that breaks, and nothing more",
        R::RedirectLimit => "a user who never lets it speak",
        R::Misconfigured => "a certificate",
        R::CrashInterrupted => "a process that dies, and the next comes too late",
        R::LivenessLost => "a model that never answers",
        R::InvariantViolated => "an input that cannot be read",
    }
}
