//! Processes that want the same thing at the same time: exactly one gets it, on both databases.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_store::conformance::{input, new_conversation, owner};
use hermes_store::postgres::PostgresStore;
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{
    AdmissionId, AdmitOutcome, AmbiguousPolicy, AnswerOutcome, ApprovalAnswer, ApprovalId, CallId, ClaimOutcome,
    ClaimPolicy, ClaimRequest, ConversationId, DeliveryClaim, DeliveryFilter, DeliveryKind, DeliveryRequest,
    DeliveryState, Fence, HostClock, Inbound, InboundKey, MessageId, MessageRef, NewAdmission, NewApproval, NewCall,
    NewDelivery, NewMessage, NewSession, OwnerInfo, PromptSnapshot, ReceiveOutcome, ReplaySafety, Role, Round, Store,
    Target, TurnId,
};
use support::{TestSchema, url};

/// Tells the test binary that it is a child, and what to do.
const ROLE: &str = "HERMES_STORE_TEST_ROLE";
const STORE: &str = "HERMES_STORE_TEST_STORE";
const DIRECTORY: &str = "HERMES_STORE_TEST_DIRECTORY";
const NAME: &str = "HERMES_STORE_TEST_NAME";
/// Processes of a race.
const RACERS: usize = 3;
/// Things that they race for, one behind the other.
const ROUNDS: usize = 12;
/// Longest time that a racer waits for the start.
const PATIENCE: Duration = Duration::from_secs(120);
const TTL_MS: u64 = 300_000;

/// The store that a text names: a schema on the server, or a file.
async fn open(name: &str) -> Arc<dyn Store> {
    match name.strip_prefix("postgres:") {
        Some(schema) => Arc::new(PostgresStore::connect(TestSchema::options_of(&url(), schema)).await.unwrap()),
        None => {
            let options = SqliteOptions {
                synchronous: Synchronous::Normal,
                ..SqliteOptions::new(Path::new(name), Arc::new(HostClock::new()))
            };
            Arc::new(SqliteStore::open(options).await.unwrap())
        }
    }
}

fn conversation() -> ConversationId {
    ConversationId::parse("c").unwrap()
}

fn turn() -> TurnId {
    TurnId::parse("turn").unwrap()
}

fn question(round: usize) -> ApprovalId {
    ApprovalId::parse(&format!("q{round}")).unwrap()
}

fn message(round: usize) -> Inbound {
    Inbound {
        key: InboundKey {
            account: "telegram:1".to_owned(),
            chat: "7".to_owned(),
            message: MessageRef::Platform(format!("m{round}")),
        },
        content: "the same".to_owned(),
        replies: Vec::new(),
        route: None,
    }
}

/// What each racer did in a round, one line for each.
async fn race(store: &dyn Store, role: &str, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for round in 0..ROUNDS {
        lines.push(match role {
            "admission" => {
                // The same request, under an id of its own.
                let id = AdmissionId::parse(&format!("{name}-{round}")).unwrap();
                let new = NewAdmission { id, ..input("c", &format!("same-{round}"), "the same") };
                match store.admit(new).await.unwrap() {
                    AdmitOutcome::Accepted(receipt) => format!("won {round} {}", receipt.admission),
                    AdmitOutcome::Replayed(receipt) => format!("lost {round} {}", receipt.admission),
                }
            }
            "inbound" => {
                let new = input(name, &format!("own-{round}"), "the same");
                let outcome = store.receive(message(round), Some(new_conversation(name)), new).await.unwrap();
                match outcome {
                    ReceiveOutcome::Accepted(receipt) => {
                        format!("won {round} {}", receipt.admission.unwrap().admission)
                    }
                    ReceiveOutcome::Replayed(receipt) => {
                        format!("lost {round} {}", receipt.admission.unwrap().admission)
                    }
                    other => panic!("{other:?}"),
                }
            }
            "approval" => {
                let answer = match name {
                    "w0" => ApprovalAnswer::Deny,
                    _ => ApprovalAnswer::Approve { choice: "once".to_owned() },
                };
                let outcome = store.answer_approval(&question(round), name, answer).await.unwrap();
                let by = outcome.approval().answer.clone().unwrap().principal;
                match outcome {
                    AnswerOutcome::Accepted(_) => format!("won {round} {by}"),
                    _ => format!("lost {round} {by}"),
                }
            }
            _ => panic!("no race {role}"),
        });
    }
    lines
}

/// Sends until nothing is left. Each line is a delivery that this process was given.
async fn send(store: &dyn Store, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let request = DeliveryRequest {
            account: "telegram:1".to_owned(),
            owner: owner(name),
            lease_ms: 60_000,
            ambiguous: AmbiguousPolicy::Resend,
        };
        let open = DeliveryFilter { open_only: true, ..DeliveryFilter::default() };
        match store.claim_delivery(request).await.unwrap() {
            DeliveryClaim::Send { fence, delivery } => {
                assert_eq!((fence.attempt(), delivery.may_be_duplicate), (1, false));
                store.confirm_delivery(&fence).await.unwrap();
                lines.push(format!("won {} {name}", delivery.id));
            }
            DeliveryClaim::Idle { .. } if store.deliveries(open).await.unwrap().is_empty() => return lines,
            DeliveryClaim::Idle { .. } => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// Not a test: what the racers do. Without a role it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (name, directory) = (std::env::var(NAME).unwrap(), std::env::var_os(DIRECTORY).unwrap());
    let directory = Path::new(&directory);
    let store = open(&std::env::var(STORE).unwrap()).await;
    store.heartbeat(&OwnerInfo::of_this_process(owner(&name))).await.unwrap();
    std::fs::write(directory.join(format!("ready-{name}")), "").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !directory.join("go").exists() {
        assert!(Instant::now() < deadline, "nobody gave the start");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let lines = match role.as_str() {
        "delivery" => send(store.as_ref(), &name).await,
        role => race(store.as_ref(), role, &name).await,
    };
    std::fs::write(directory.join(format!("done-{name}")), lines.join("\n")).unwrap();
    store.close().await;
}

fn spawn(role: &str, store: &str, directory: &Path, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(STORE, store)
        .env(DIRECTORY, directory)
        .env(NAME, name)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Who won what, as (thing, what it became), and the same of those who lost.
struct Results {
    won: BTreeMap<String, String>,
    lost: Vec<(String, String)>,
}

/// Starts the racers, lets them go at once, and reads what they did. No thing is won twice.
async fn results(role: &'static str, store: &str) -> Results {
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..RACERS).map(|number| format!("w{number}")).collect();
    let children: Vec<_> = names.iter().map(|name| spawn(role, store, directory.path(), name)).collect();
    let deadline = Instant::now() + PATIENCE;
    while !names.iter().all(|name| directory.path().join(format!("ready-{name}")).exists()) {
        assert!(Instant::now() < deadline, "a racer never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    std::fs::write(directory.path().join("go"), "").unwrap();
    for mut child in children {
        assert!(tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap().success());
    }
    let mut results = Results { won: BTreeMap::new(), lost: Vec::new() };
    for name in &names {
        let text = std::fs::read_to_string(directory.path().join(format!("done-{name}"))).unwrap();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let [how, thing, became] = <[String; 3]>::try_from(words).unwrap();
            match how.as_str() {
                "won" => assert_eq!(results.won.insert(thing.clone(), became), None, "{thing} was won twice"),
                _ => results.lost.push((thing, became)),
            }
        }
    }
    results
}

/// One winner of each round, and everybody else was told of what the winner made.
fn assert_one_winner_each(results: &Results) {
    assert_eq!((results.won.len(), results.lost.len()), (ROUNDS, ROUNDS * (RACERS - 1)));
    for (thing, became) in &results.lost {
        assert_eq!(results.won.get(thing), Some(became), "{thing}");
    }
}

/// A turn that is at work, with a call that has begun.
async fn at_work(store: &dyn Store) -> Fence {
    store.heartbeat(&OwnerInfo::of_this_process(owner("a"))).await.unwrap();
    store.create_and_admit(new_conversation("c"), input("c", "r", "x")).await.unwrap();
    let request = ClaimRequest {
        conversation: conversation(),
        owner: owner("a"),
        turn: turn(),
        ttl_ms: TTL_MS,
        policy: ClaimPolicy::Any,
    };
    let ClaimOutcome::Turn { fence, .. } = store.claim(request).await.unwrap() else { panic!("no turn") };
    let session = NewSession {
        id: conversation().first_session(),
        parent: None,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new(&b"prompt"[..]),
        tools: PromptSnapshot::new(&b"[]"[..]),
    };
    store.open_session(&fence, &turn(), session, Vec::new()).await.unwrap();
    let call = NewCall {
        call: CallId::parse("call").unwrap(),
        result: MessageId::parse("result").unwrap(),
        provider_id: "toolu".to_owned(),
        name: "shell".to_owned(),
        arguments: "{}".to_owned(),
        replay: ReplaySafety::Once,
        preset: None,
    };
    let row = NewMessage::text(MessageId::parse("a1").unwrap(), Role::Assistant, "look");
    store.record_round(&fence, Round::plan(turn(), row, vec![call], None)).await.unwrap();
    fence
}

async fn admissions(name: &str) {
    let store = open(name).await;
    store.create_and_admit(new_conversation("c"), input("c", "first", "x")).await.unwrap();
    assert_one_winner_each(&results("admission", name).await);
    assert_eq!(store.queue(&conversation()).await.unwrap().len(), ROUNDS + 1);
    store.close().await;
}

async fn inbounds(name: &str) {
    let store = open(name).await;
    let results = results("inbound", name).await;
    assert_one_winner_each(&results);
    let mut queued = BTreeSet::new();
    for number in 0..RACERS {
        let id = ConversationId::parse(&format!("w{number}")).unwrap();
        // Whoever lost every round has made no conversation.
        let queue = store.queue(&id).await.unwrap_or_default();
        queued.extend(queue.into_iter().map(|one| one.receipt.admission.to_string()));
    }
    assert_eq!(queued, results.won.into_values().collect());
    store.close().await;
}

async fn approvals(name: &str) {
    let store = open(name).await;
    let fence = at_work(store.as_ref()).await;
    for round in 0..ROUNDS {
        let new = NewApproval {
            id: question(round),
            call: CallId::parse("call").unwrap(),
            subject: "rm -r build".to_owned(),
            choices: vec!["once".to_owned()],
            may_answer: (0..RACERS).map(|number| format!("w{number}")).collect(),
            expires_in_ms: TTL_MS,
        };
        store.ask_approval(&fence, &turn(), new).await.unwrap();
    }
    let results = results("approval", name).await;
    assert_one_winner_each(&results);
    for (round, by) in results.won {
        let stored = store.approval(&question(round.parse().unwrap())).await.unwrap();
        assert_eq!(stored.answer.unwrap().principal, by);
    }
    store.close().await;
}

async fn deliveries(name: &str) {
    let store = open(name).await;
    let fence = at_work(store.as_ref()).await;
    let new = |round: usize| NewDelivery {
        kind: DeliveryKind::Message,
        part: i64::try_from(round).unwrap(),
        target: Target { account: "telegram:1".to_owned(), chat: (round % 4).to_string(), thread: String::new() },
        reply_to: None,
        content: "news".to_owned(),
    };
    store.record_deliveries(&fence, &turn(), (0..ROUNDS).map(new).collect()).await.unwrap();
    let results = results("delivery", name).await;
    let stored = store.deliveries(DeliveryFilter::default()).await.unwrap();
    assert_eq!((results.won.len(), stored.len()), (ROUNDS, ROUNDS));
    for one in stored {
        assert_eq!((one.state, one.attempt), (DeliveryState::Delivered, 1));
        assert_eq!(results.won.get(one.id.as_str()).map(String::as_str), one.owner.as_ref().map(|by| by.as_str()));
    }
    store.close().await;
}

macro_rules! races {
    ($($race:ident => $file:ident, $server:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $file() {
                let directory = tempfile::tempdir().unwrap();
                $race(directory.path().join("hermes.db").to_str().unwrap()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $server() {
                let schema = TestSchema::new();
                $race(&format!("postgres:{}", schema.name())).await;
            }
        )*
    };
}

races! {
    admissions => i02_one_of_many_processes_admits_a_request_on_sqlite, i02_one_of_many_processes_admits_a_request_on_postgres;
    inbounds => i05_one_of_many_processes_receives_a_message_on_sqlite, i05_one_of_many_processes_receives_a_message_on_postgres;
    approvals => i23_one_of_many_processes_answers_a_question_on_sqlite, i23_one_of_many_processes_answers_a_question_on_postgres;
    deliveries => s44_one_of_many_processes_sends_a_delivery_on_sqlite, s44_one_of_many_processes_sends_a_delivery_on_postgres;
}
