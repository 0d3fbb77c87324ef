//! What tests need: a shared buffer and a scripted gateway.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use hermes_gateway::protocol::{Request, Response, RpcError, ServerMessage};
use tokio::sync::mpsc;

use crate::ask::{Answered, Asker, Question};
use crate::link::{Caller, Link, Messages};
use crate::signals::{Stop, Stops};

/// A buffer that several owners write to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    /// What was written so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stdout whose reader went away.
pub(crate) struct Gone;

impl Write for Gone {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Answer = BoxFuture<'static, Result<Response, RpcError>>;
type Reaction = dyn Fn(Request, &mpsc::Sender<ServerMessage>) -> Answer + Send + Sync;

/// A gateway that does what the test says.
#[derive(Clone)]
pub(crate) struct Scripted {
    requests: Arc<Mutex<Vec<Request>>>,
    messages: mpsc::Sender<ServerMessage>,
    react: Arc<Reaction>,
}

impl Scripted {
    /// A line to a gateway that answers each request with what `react` returns.
    pub(crate) fn link(
        react: impl Fn(Request, &mpsc::Sender<ServerMessage>) -> Answer + Send + Sync + 'static,
    ) -> (Self, Link) {
        let (messages, inbox) = mpsc::channel(256);
        let scripted = Self { requests: Arc::default(), messages, react: Arc::new(react) };
        let link = Link {
            caller: Arc::new(scripted.clone()),
            messages: Box::new(Inbox(inbox)),
            model_line: "model practice at built-in: nothing else is set up".to_owned(),
            history: None,
        };
        (scripted, link)
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Caller for Scripted {
    fn call(&self, request: Request) -> Answer {
        self.requests.lock().unwrap().push(request.clone());
        (self.react)(request, &self.messages)
    }
}

struct Inbox(mpsc::Receiver<ServerMessage>);

impl Messages for Inbox {
    fn next(&mut self) -> BoxFuture<'_, Option<ServerMessage>> {
        Box::pin(self.0.recv())
    }
}

/// An answer that is there at once.
pub(crate) fn now(response: Response) -> Answer {
    Box::pin(async move { Ok(response) })
}

/// Wishes to stop that the test sends.
pub(crate) struct Buttons(pub(crate) mpsc::Receiver<Stop>);

impl Stops for Buttons {
    fn next(&mut self) -> BoxFuture<'_, Stop> {
        Box::pin(async move {
            match self.0.recv().await {
                Some(stop) => stop,
                None => std::future::pending().await,
            }
        })
    }
}

/// A person who answers from a list, and never answers when it is empty.
#[derive(Default)]
pub(crate) struct Person {
    /// What he will answer.
    pub(crate) answers: VecDeque<Answered>,
    /// What he was asked.
    pub(crate) asked: Vec<Question>,
}

impl Asker for Person {
    fn ask(
        &mut self,
        question: Question,
        withdrawn: Arc<std::sync::atomic::AtomicBool>,
    ) -> BoxFuture<'static, Answered> {
        self.asked.push(question);
        let answer = self.answers.pop_front();
        Box::pin(async move {
            if let Some(answer) = answer {
                return answer;
            }
            while !withdrawn.load(std::sync::atomic::Ordering::Relaxed) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            Answered { answer: crate::ask::Answer::Withdrawn, stop: false }
        })
    }
}
