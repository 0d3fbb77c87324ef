//! Worlds with several conversations and several nodes that live at the same time. Each node works on all conversations;
//! clients send to whichever node they find; nodes die, leave in order, or sleep past their leases and come back. A seed
//! makes all of it, also who goes on next whenever more than one could.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::testing::Fault;
use hermes_core::{Interrupt, Stopper, Submission};
use hermes_providers::ErrorClass;
use hermes_store::limits::{HEARTBEAT_DEAD_MS, HEARTBEAT_MS};
use hermes_store::{AdmissionId, ConversationId, Intent, Receipt};
use hermes_tools::ReplaySafety;
use tokio::sync::{mpsc, oneshot};

use crate::bound::simulate;
use crate::check;
use crate::family;
use crate::model::{Summary, submission};
use crate::people;
use crate::rewinds::{self, Act};
use crate::schedule::{Board, NodeId, Schedule};
use crate::seeds;
use crate::sweep::{NEVER, projection};
use crate::world::{Ground, Node, Scenario, World};

const CONVERSATIONS: [&str; 3] = ["north", "east", "south"];
/// Nodes that live at the same time.
const NODES: usize = 3;
/// How long a client waits for a receipt before it asks another node, in seconds.
const PATIENCE_S: u64 = 20;
/// Longest time that an answer takes, in milliseconds.
const SLOW_MS: u64 = 9_000;
/// How long a node waits for something to do before it looks again, in milliseconds.
const IDLE_MS: u64 = 20_000;
/// A world that is not at rest so long after everybody has said what they wanted hangs.
const MINUTES_MAX: u32 = 1_000;
/// Orders that wait for a node.
const INBOX_MAX: usize = 64;

/// What a client does next.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Send(Intent, &'static str),
    /// It takes back what it sent last, if that still waits.
    Cancel,
    Stop(Interrupt),
    /// It has the history shortened.
    Shorten,
    /// It takes the end of the conversation back.
    Take(Act),
}

/// What happens to a node.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It dies; whether that can be proved.
    Dies(bool),
    /// Nothing of it goes on for so long (milliseconds).
    Sleeps(u64),
    /// It ends in order; its turns get so much time (milliseconds).
    Leaves(u64),
}

/// Everything that happens from outside, with the time before it in milliseconds.
struct Plan {
    clients: Vec<(usize, Vec<(u64, Wish)>)>,
    fates: Vec<(u64, Fate)>,
}

type Order = (Submission, oneshot::Sender<Receipt>);

#[derive(Clone)]
struct LiveNode {
    id: NodeId,
    name: String,
    node: Arc<Node>,
    inbox: mpsc::Sender<Order>,
    asleep: bool,
}

struct State {
    nodes: Vec<LiveNode>,
    begun: usize,
    clients_left: usize,
    /// How often a node slept for longer than others wait for its heartbeat.
    long_sleeps: usize,
    rng: fastrand::Rng,
    /// What was accepted, with the text.
    accepted: Vec<(ConversationId, AdmissionId, &'static str)>,
}

/// A world with its nodes and clients.
struct Crowd {
    world: World,
    board: Board,
    state: Mutex<State>,
}

impl Crowd {
    /// A new process, with a new owner id.
    fn start(self: &Arc<Self>) {
        let id = {
            let mut state = self.state.lock().unwrap();
            state.begun += 1;
            state.begun
        };
        let name = format!("node{id}");
        let node = Arc::new(self.world.node(&name, Fault::DiesBefore, NEVER));
        let (inbox, orders) = mpsc::channel(INBOX_MAX);
        self.state.lock().unwrap().nodes.push(LiveNode { id, name, node: node.clone(), inbox, asleep: false });
        self.board.spawn(id, accept(node.clone(), orders));
        for conversation in self.world.conversations.iter() {
            self.board.spawn(id, serve(node.clone(), conversation.clone()));
        }
        let host = node.clone();
        self.board.spawn(id, async move { host.look_after().await });
        let crowd = self.clone();
        // Nothing of the node may keep its death from being noticed.
        self.board.spawn(0, async move {
            node.store.died().await;
            drop(node);
            crowd.end_of(id, true);
            crowd.start();
        });
    }

    /// A node is no more.
    fn end_of(&self, id: NodeId, is_proved: bool) {
        self.board.kill(id);
        let mut state = self.state.lock().unwrap();
        if let Some(at) = state.nodes.iter().position(|node| node.id == id) {
            let gone = state.nodes.remove(at);
            if is_proved {
                self.world.bury(&gone.name);
            }
        }
    }

    /// Some node that is awake.
    fn pick(&self) -> Option<LiveNode> {
        let mut state = self.state.lock().unwrap();
        let awake: Vec<_> = state.nodes.iter().filter(|node| !node.asleep).cloned().collect();
        (!awake.is_empty()).then(|| awake[state.rng.usize(..awake.len())].clone())
    }

    /// Some node, whether it sleeps or not: a client cannot know.
    fn pick_any(&self) -> Option<LiveNode> {
        let mut state = self.state.lock().unwrap();
        let (count, nodes) = (state.nodes.len(), state.nodes.clone());
        (count > 0).then(|| nodes[state.rng.usize(..count)].clone())
    }

    /// Sends until somebody has given a receipt. A node that sleeps may take the same order in much later.
    async fn send(&self, wish: Submission) -> Receipt {
        loop {
            if let Some(node) = self.pick_any() {
                let (reply, answer) = oneshot::channel();
                if node.inbox.try_send((wish.clone(), reply)).is_ok() {
                    drop(node);
                    if let Ok(Ok(receipt)) = tokio::time::timeout(Duration::from_secs(PATIENCE_S), answer).await {
                        return receipt;
                    }
                }
            }
            self.world.clock.sleep(500).await;
        }
    }

    async fn client(self: Arc<Self>, name: String, conversation: ConversationId, wishes: Vec<(u64, Wish)>) {
        let mut last = None;
        for (number, (after_ms, wish)) in wishes.into_iter().enumerate() {
            self.world.clock.sleep(after_ms).await;
            match wish {
                Wish::Send(intent, text) => {
                    let wish = submission(&conversation, &format!("{name}-{number}"), text, intent);
                    let receipt = self.send(wish).await;
                    last = Some(receipt.admission.clone());
                    self.state.lock().unwrap().accepted.push((conversation.clone(), receipt.admission, text));
                }
                Wish::Cancel => {
                    if let Some(admission) = last.take() {
                        let Some(node) = self.pick() else { continue };
                        let done = node.node.engine.cancel(&admission).await;
                        self.tell(format!("{name} cancels {admission}: {}", done.is_ok()));
                    }
                }
                Wish::Stop(how) => {
                    if let Some(node) = self.pick() {
                        node.node.engine.interrupt(&conversation, Stopper::User, how);
                    }
                }
                Wish::Shorten => self.shorten(&name, &conversation).await,
                Wish::Take(act) => self.take_back(&name, &conversation, act).await,
            }
        }
        self.state.lock().unwrap().clients_left -= 1;
    }

    /// Some node shortens a history; when it dies or sleeps meanwhile, nobody waits for it.
    async fn shorten(self: &Arc<Self>, name: &str, conversation: &ConversationId) {
        let Some(LiveNode { id, node, .. }) = self.pick() else { return };
        let (crowd, name, conversation) = (self.clone(), name.to_owned(), conversation.clone());
        self.board.spawn(id, async move {
            let came = people::shorten(&node.engine, &conversation).await;
            crowd.tell(format!("{name} has {conversation} shortened: {came}"));
        });
    }

    /// Some node undoes, redoes or retries; when it dies or sleeps meanwhile, nobody waits for it.
    async fn take_back(self: &Arc<Self>, name: &str, conversation: &ConversationId, act: Act) {
        let Some(LiveNode { id, node, .. }) = self.pick() else { return };
        let (crowd, name, conversation) = (self.clone(), name.to_owned(), conversation.clone());
        self.board.spawn(id, async move {
            let came = rewinds::wish(&node.engine, &crowd.world.wishes, &conversation, act).await;
            crowd.tell(format!("{name} wants {act:?} of {conversation}: {came}"));
        });
    }

    fn tell(&self, line: String) {
        self.world.trace.lock().unwrap().push(line);
    }

    /// What happens to nodes, and the end of the world when everybody has what they wanted.
    async fn direct(self: Arc<Self>, fates: Vec<(u64, Fate)>) {
        for (after_ms, fate) in fates {
            self.world.clock.sleep(after_ms).await;
            let Some(node) = self.pick() else { continue };
            self.tell(format!("{}: {fate:?}", node.name));
            match fate {
                Fate::Dies(is_proved) => {
                    self.end_of(node.id, is_proved);
                    self.start();
                }
                Fate::Sleeps(ms) => self.put_to_sleep(node.id, ms),
                Fate::Leaves(ms) => {
                    let crowd = self.clone();
                    // It ends its own work: what is left of it when it sleeps or dies meanwhile is not gone on with.
                    self.board.spawn(node.id, async move {
                        node.node.engine.wind_down(ms).await;
                        node.node.engine.shutdown().await;
                        let id = node.id;
                        drop(node);
                        crowd.end_of(id, false);
                        crowd.start();
                    });
                }
            }
        }
        while self.state.lock().unwrap().clients_left > 0 {
            self.world.clock.sleep(1_000).await;
        }
        let mut quiet = 0;
        for minute in 0.. {
            self.world.clock.sleep(60_000).await;
            let nobody_sleeps = self.state.lock().unwrap().nodes.iter().all(|node| !node.asleep);
            let waits = self.what_waits().await;
            assert!(minute < MINUTES_MAX, "what waits is not worked on: {waits:#?}");
            quiet = if nobody_sleeps && waits.is_empty() { quiet + 1 } else { 0 };
            if quiet == 3 {
                break;
            }
        }
        self.board.end();
    }

    fn put_to_sleep(self: &Arc<Self>, id: NodeId, ms: u64) {
        self.board.put_to_sleep(id);
        {
            let mut state = self.state.lock().unwrap();
            state.nodes.iter_mut().filter(|node| node.id == id).for_each(|node| node.asleep = true);
            state.long_sleeps += usize::from(ms + HEARTBEAT_MS >= HEARTBEAT_DEAD_MS);
        }
        let crowd = self.clone();
        self.board.spawn(0, async move {
            crowd.world.clock.sleep(ms).await;
            crowd.board.wake_up(id);
            let mut state = crowd.state.lock().unwrap();
            state.nodes.iter_mut().filter(|node| node.id == id).for_each(|node| node.asleep = false);
        });
    }

    /// Inputs and tasks that are not over.
    async fn what_waits(&self) -> Vec<String> {
        let mut waits = family::open(self.world.store.as_ref(), &self.world.conversations).await;
        for conversation in self.world.conversations.iter() {
            let queue = self.world.store.queue(conversation).await.unwrap();
            waits.extend(queue.iter().map(|record| format!("{record:?}")));
        }
        waits
    }

    /// All checkers, and that each accepted input was heard once.
    async fn check(&self, what: &str) {
        let accepted = self.state.lock().unwrap().accepted.clone();
        for conversation in self.world.conversations.iter() {
            let mut admissions = Vec::new();
            for (_, admission, _) in accepted.iter().filter(|(of, ..)| of == conversation) {
                admissions.push(self.world.store.admission(admission).await.unwrap());
            }
            check::conversation_at_rest(&self.world, conversation, &admissions, what).await;
            let rows = self.world.everything(conversation).await;
            let again = rewinds::again(&self.world, conversation).await;
            let texts = accepted.iter().filter(|(of, ..)| of == conversation).map(|(_, _, text)| *text);
            for (record, text) in admissions.iter().zip(texts) {
                check::heard_once(record, text, &rows, &again, what);
            }
        }
        self.nobody_alive_was_robbed(what);
        check::requests_of_all_nodes_agree(&self.world, what).await;
        check::effects_are_in_a_transcript(&self.world, what).await;
        check::people_were_heard(&self.world, what).await;
    }
}

impl Crowd {
    /// (I10) An owner loses a conversation when it sleeps for longer than a heart may stand still, or to a robber.
    fn nobody_alive_was_robbed(&self, what: &str) {
        let trace = self.world.trace.lock().unwrap();
        // Children lose theirs with their parents.
        let is_root = |line: &str| {
            let of = line.split(": ").nth(1);
            of.is_some_and(|of| CONVERSATIONS.contains(&of)) && !line.contains(": Child {")
        };
        let count = |word: &str| trace.iter().filter(|line| line.contains(word) && is_root(line)).count();
        let sleeps = self.state.lock().unwrap().long_sleeps * CONVERSATIONS.len();
        let (lost, robbed) = (count("reason: LeaseLost"), count("is robbed"));
        assert!(lost <= sleeps + robbed, "{what}: {lost} leases were lost, {robbed} robbed, {sleeps} slept away");
    }
}

/// The node's door: it takes one order after the other.
async fn accept(node: Arc<Node>, mut orders: mpsc::Receiver<Order>) {
    while let Some((wish, reply)) = orders.recv().await {
        if let Ok(outcome) = node.engine.submit(wish).await {
            // The client may have gone to another node since.
            let _ = reply.send(outcome.receipt().clone());
        }
    }
}

/// The node's work on one conversation.
async fn serve(node: Arc<Node>, conversation: ConversationId) {
    let mut seen = 0;
    loop {
        let worked = node.engine.drain(&conversation).await;
        assert!(worked.as_ref().err().is_none_or(|error| error.code().starts_with("HM10")), "{worked:?}");
        if let Ok(now) = node.engine.store().wait_for_change(&conversation, seen, IDLE_MS).await {
            seen = now;
        }
    }
}

fn one<T: Copy>(rng: &mut fastrand::Rng, list: &[T]) -> T {
    list[rng.usize(..list.len())]
}

fn plan(rng: &mut fastrand::Rng, texts: &mut Vec<&'static str>) -> Plan {
    let mut clients = Vec::new();
    for client in 0..rng.usize(2..6) {
        let conversation = rng.usize(..CONVERSATIONS.len());
        let mut wishes = Vec::new();
        for number in 0..rng.usize(1..6) {
            let wish = match rng.u8(..20) {
                14.. => Wish::Take(one(rng, &[Act::Undo, Act::Undo, Act::Redo, Act::Retry, Act::Retry])),
                12.. => Wish::Shorten,
                0 => Wish::Cancel,
                1 => Wish::Stop(one(rng, &[Interrupt::Soft, Interrupt::Hard])),
                kind => {
                    let text: &'static str = format!("client {client} says {number}").leak();
                    texts.push(text);
                    let intent = match kind {
                        ..6 => Intent::Steer,
                        6 => Intent::Redirect,
                        _ => Intent::Queue,
                    };
                    Wish::Send(intent, text)
                }
            };
            wishes.push((rng.u64(0..30_000), wish));
        }
        clients.push((conversation, wishes));
    }
    let mut fates = Vec::new();
    for _ in 0..rng.usize(..6) {
        let fate = match rng.u8(..8) {
            0..=2 => Fate::Dies(rng.bool()),
            3..=6 => Fate::Sleeps(one(rng, &[3_000, 40_000, 400_000, 1_000_000])),
            _ => Fate::Leaves(rng.u64(0..20_000)),
        };
        fates.push((rng.u64(0..40_000), fate));
    }
    Plan { clients, fates }
}

fn scenario(rng: &mut fastrand::Rng, texts: &[&'static str]) -> Scenario {
    let delegates = seeds::depth(rng);
    let script = seeds::scripts(rng, texts.iter().chain(&seeds::SENT).copied(), delegates);
    Scenario {
        name: "a crowd",
        inputs: &[],
        script,
        settings: seeds::settings(rng),
        replay: one(rng, &[ReplaySafety::Once, ReplaySafety::Once, ReplaySafety::Idempotent]),
        stride: 1,
        window: one(rng, &[40_000, 128_000]),
        summary: one(rng, &[Summary::Notes, Summary::Notes, Summary::Cut, Summary::Fails(ErrorClass::ServerError)]),
        fallback: rng.u8(..4) == 0,
        held: false,
        delegates,
        rest_ms: 0,
        acts: &[],
        ends: &[],
    }
}

/// Runs the crowd of a seed and checks it; returns what happened in it, and how often somebody went on.
pub(crate) fn run(seed: u64) -> (Vec<String>, u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut texts = Vec::new();
    let plan = plan(&mut rng, &mut texts);
    let scenario = scenario(&mut rng, &texts);
    let what = format!("crowd {seed}");
    simulate(
        &what,
        tokio::task::unconstrained(async {
            let mut world = World::on(&Ground::memory(), &scenario, "", &CONVERSATIONS).await;
            world.slow_ms = SLOW_MS;
            let board = Board::default();
            let state = State {
                nodes: Vec::new(),
                begun: 0,
                clients_left: plan.clients.len(),
                long_sleeps: 0,
                rng: fastrand::Rng::with_seed(rng.u64(..)),
                accepted: Vec::new(),
            };
            let crowd = Arc::new(Crowd { world, board: board.clone(), state: Mutex::new(state) });
            for _ in 0..NODES {
                crowd.start();
            }
            for (number, (conversation, wishes)) in plan.clients.into_iter().enumerate() {
                let conversation = crowd.world.conversations[conversation].clone();
                board.spawn(0, crowd.clone().client(format!("client{number}"), conversation, wishes));
            }
            board.spawn(0, crowd.clone().direct(plan.fates));
            let steps = Schedule::new(board, rng.u64(..)).await;
            crowd.check(&what).await;
            let mut trace = crowd.world.trace.lock().unwrap().clone();
            trace.extend(projection(&crowd.world).await);
            (trace, steps)
        }),
    )
}
