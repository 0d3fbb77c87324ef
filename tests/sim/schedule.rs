//! A scheduler of one thread: of all tasks that could go on, a seeded die says which one does. Tasks belong to nodes, and
//! a node can be put to sleep or killed with everything that it was doing.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;

use crate::bound;

/// The number of a node; 0 is whoever belongs to none.
pub(crate) type NodeId = usize;

#[derive(Default)]
struct Changes {
    new: Vec<(NodeId, BoxFuture<'static, ()>)>,
    killed: BTreeSet<NodeId>,
    asleep: BTreeSet<NodeId>,
    over: bool,
    outer: Option<Waker>,
}

/// What tasks may ask of their scheduler.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Changes>>);

impl Board {
    /// Starts a task of a node.
    pub(crate) fn spawn(&self, node: NodeId, work: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap().new.push((node, Box::pin(work)));
        self.wake();
    }

    /// Drops every task of a node, in the middle of whatever it does.
    pub(crate) fn kill(&self, node: NodeId) {
        self.0.lock().unwrap().killed.insert(node);
        self.wake();
    }

    /// No task of the node goes on.
    pub(crate) fn put_to_sleep(&self, node: NodeId) {
        self.0.lock().unwrap().asleep.insert(node);
    }

    /// They go on.
    pub(crate) fn wake_up(&self, node: NodeId) {
        self.0.lock().unwrap().asleep.remove(&node);
        self.wake();
    }

    /// The world is at rest.
    pub(crate) fn end(&self) {
        self.0.lock().unwrap().over = true;
        self.wake();
    }

    fn wake(&self) {
        let waker = self.0.lock().unwrap().outer.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Whether a task could go on.
struct Flag {
    woken: AtomicBool,
    board: Board,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.board.wake();
    }
}

struct Task {
    node: NodeId,
    work: BoxFuture<'static, ()>,
    flag: Arc<Flag>,
}

/// The scheduler; as a future it ends when a task calls [`Board::end`].
pub(crate) struct Schedule {
    board: Board,
    tasks: Vec<Task>,
    rng: fastrand::Rng,
    /// How often a task was polled.
    pub(crate) steps: u64,
}

impl Schedule {
    pub(crate) fn new(board: Board, seed: u64) -> Self {
        Self { board, tasks: Vec::new(), rng: fastrand::Rng::with_seed(seed), steps: 0 }
    }

    /// Takes in what was asked for; returns which nodes sleep, and whether all is over.
    fn take_changes(&mut self, cx: &Context<'_>) -> (BTreeSet<NodeId>, bool) {
        let mut dropped = Vec::new();
        let mut changes = self.board.0.lock().unwrap();
        changes.outer = Some(cx.waker().clone());
        for (node, work) in changes.new.drain(..).collect::<Vec<_>>() {
            let flag = Arc::new(Flag { woken: AtomicBool::new(true), board: self.board.clone() });
            self.tasks.push(Task { node, work, flag });
        }
        for node in std::mem::take(&mut changes.killed) {
            changes.asleep.remove(&node);
            dropped.extend(self.tasks.extract_if(.., |task| task.node == node));
        }
        let result = (changes.asleep.clone(), changes.over);
        drop(changes);
        // Without the lock: what is dropped may wake somebody.
        drop(dropped);
        result
    }
}

impl Future for Schedule {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u64> {
        let this = &mut *self;
        loop {
            let (asleep, over) = this.take_changes(cx);
            if over {
                return Poll::Ready(this.steps);
            }
            let can_go_on = |task: &Task| task.flag.woken.load(Ordering::SeqCst) && !asleep.contains(&task.node);
            let ready: Vec<usize> = (0..this.tasks.len()).filter(|at| can_go_on(&this.tasks[*at])).collect();
            if ready.is_empty() {
                return Poll::Pending;
            }
            let at = ready[this.rng.usize(..ready.len())];
            this.steps += 1;
            bound::step();
            let task = &mut this.tasks[at];
            task.flag.woken.store(false, Ordering::SeqCst);
            let waker = Waker::from(task.flag.clone());
            if task.work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(this.tasks.remove(at));
            }
        }
    }
}
