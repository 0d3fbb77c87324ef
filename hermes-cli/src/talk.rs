//! Talking to the model: which way, with which text, about which session.

use std::io::Read;
use std::path::Path;

use hermes_gateway::protocol::{
    ConversationSummary, InputImage, PromptSubmitParams, PromptSubmitResponse, Request, Response, SessionRefParams,
    TurnWaitParams,
};

use crate::args::{PickArgs, SessionArgs};
use crate::ask::TerminalAsker;
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::follow::{Desk, End, Followed, Patience, View};
use crate::interactive;
use crate::link::{Link, request};
use crate::open::{LaunchPlan, open};
use crate::render::turn::{Shown, TurnView, failure_of};
use crate::render::{Piece, json};
use crate::screen::Screen;
use crate::signals::{ProcessSignals, Stop, Stops, leave_now, patiently};
use crate::terminal::Terminal;
use crate::text::harmless;

/// Most bytes that are taken from stdin; more is refused, because no model reads more.
const STDIN_LIMIT_BYTES: u64 = 8 << 20;
/// What a conversation's inputs say of where they were written.
const PLATFORM: &str = "terminal";

/// How the program talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `-z`: only the final answer on stdout.
    OneShot,
    /// `chat -q`: text as it comes, what is done on stderr.
    Query,
    /// `chat -Q`: only the answer, and the session's id.
    Quiet,
    /// `--json`: JSON lines.
    Json,
    /// A conversation at the terminal, where there is one.
    Interactive,
}

/// What shall be said, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    text: Option<String>,
    mode: Mode,
    /// Whether stdin belongs to the text.
    reads_stdin: bool,
    /// Whether the text is the session's last input, which is undone and sent again.
    again: bool,
}

impl Plan {
    /// Of `hermes -z TEXT`.
    pub(crate) fn one_shot(text: String, json: bool) -> Self {
        Self { text: Some(text), mode: if json { Mode::Json } else { Mode::OneShot }, reads_stdin: true, again: false }
    }

    /// Of `hermes` and `hermes chat`.
    pub(crate) fn chat(query: Option<String>, quiet: bool, json: bool) -> Self {
        let mode = match (&query, quiet, json) {
            (_, true, _) => Mode::Quiet,
            (_, _, true) => Mode::Json,
            (Some(_), ..) => Mode::Query,
            (None, ..) => Mode::Interactive,
        };
        Self { reads_stdin: query.is_none(), text: query, mode, again: false }
    }

    /// Of `hermes sessions retry NAME`.
    pub(crate) fn retry(json: bool) -> Self {
        Self { text: None, mode: if json { Mode::Json } else { Mode::Query }, reads_stdin: false, again: true }
    }

    /// The mode for what this process is connected to: without a terminal nobody can talk, only say something.
    fn settle(mut self, terminal: Terminal) -> Self {
        if self.mode == Mode::Interactive && !terminal.attended() {
            self.mode = Mode::Query;
        }
        self.reads_stdin &= !terminal.stdin;
        self
    }
}

/// Talks.
///
/// # Errors
/// Why nothing was said, or no answer could be shown.
pub(crate) fn run(context: &Context, session: &SessionArgs, plan: Plan) -> Result<Exit, Fault> {
    let plan = plan.settle(context.terminal);
    let mode = plan.mode;
    let result = context.block_on(talk(context, session, plan));
    if let (Mode::Json, Err(Fault::Rpc(error))) = (mode, &result) {
        let mut screen = Screen::of_process(false, context.terminal.err_style());
        screen.show(json::error(error).into_iter().collect())?;
    }
    result
}

async fn talk(context: &Context, session: &SessionArgs, plan: Plan) -> Result<Exit, Fault> {
    let mut stops = ProcessSignals::listen()?;
    let text = match plan.mode {
        Mode::Interactive => String::new(),
        _ => {
            let text = tokio::select! {
                text = whole_text(plan.text.clone(), plan.reads_stdin) => text?,
                _ = stops.next() => return Err(Fault::Interrupted),
            };
            let is_silent = text.trim().is_empty() && session.select.images.is_empty();
            if is_silent && !session.pick.last && session.pick.resume.is_none() {
                return Err(Fault::Usage("there is no text; see `hermes --help`".to_owned()));
            }
            text
        }
    };
    let mut images = Vec::with_capacity(session.select.images.len());
    for file in &session.select.images {
        images.push(picture(file).await?);
    }
    let attended = context.terminal.attended() && !matches!(plan.mode, Mode::Quiet | Mode::Json);
    let launch = LaunchPlan {
        profile: context.profile.clone(),
        select: session.select.clone(),
        attended,
        titles: plan.mode == Mode::Interactive,
        needs_model: true,
    };
    let (opened, early) = patiently(&mut stops, open(launch)).await;
    let mut opened = opened?;
    let terminal = context.terminal;
    let spins = terminal.err_style().colour && attended;
    let mut room = Room {
        link: &mut opened.link,
        screen: Screen::of_process(spins, terminal.err_style()),
        stops: &mut stops,
        terminal,
        attended,
        mode: plan.mode,
        images,
    };
    let result = match plan.mode {
        Mode::Interactive => interactive::run(&mut room, &session.pick).await,
        _ if plan.again => room.say_again(&session.pick, early).await,
        _ => room.say(&text, &session.pick, early).await,
    };
    drop(room);
    patiently(&mut stops, opened.shutdown()).await;
    result
}

/// The wait for the end of an input that was accepted.
fn followed(submitted: PromptSubmitResponse) -> Followed {
    let receipt = submitted.receipt;
    Followed {
        conversation: receipt.conversation,
        wait: Request::TurnWait(TurnWaitParams { admission: receipt.admission }),
    }
}

/// The text, with what stdin holds put behind it.
async fn whole_text(text: Option<String>, reads_stdin: bool) -> Result<String, Fault> {
    let text = text.unwrap_or_default();
    if !reads_stdin {
        return Ok(text);
    }
    // Until its end: a program that writes slowly is waited for. Ctrl-C is heard meanwhile.
    let read = tokio::task::spawn_blocking(|| read_text(&mut std::io::stdin().lock())).await;
    let piped = read.map_err(|error| Fault::Failed(error.to_string()))??;
    Ok(join(text, &piped))
}

fn join(text: String, piped: &str) -> String {
    match (text.trim().is_empty(), piped.trim().is_empty()) {
        (_, true) => text,
        (true, false) => piped.to_owned(),
        (false, false) => format!("{text}\n\n{piped}"),
    }
}

fn read_text(input: &mut dyn Read) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    let told = |error: std::io::Error| Fault::Failed(format!("stdin: {error}"));
    // A closed stdin is as good as an empty one.
    match input.take(STDIN_LIMIT_BYTES + 1).read_to_end(&mut bytes) {
        Err(error) if error.raw_os_error() == Some(EBADF) => return Ok(String::new()),
        other => other.map_err(told)?,
    };
    if bytes.len() as u64 > STDIN_LIMIT_BYTES {
        return Err(Fault::Usage(format!("stdin holds more than {} MiB", STDIN_LIMIT_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Fault::Usage(format!("stdin is not valid UTF-8 (byte {place})"))
    })
}

/// "Bad file descriptor", the same number on every system that this program runs on.
const EBADF: i32 = 9;

/// Everything that talking needs.
pub(crate) struct Room<'a> {
    /// The gateway.
    pub(crate) link: &'a mut Link,
    /// Where it is shown.
    pub(crate) screen: Screen,
    /// Wishes to stop.
    pub(crate) stops: &'a mut dyn Stops,
    /// What this process is connected to.
    pub(crate) terminal: Terminal,
    /// Whether a person is there to answer questions.
    pub(crate) attended: bool,
    /// How it talks.
    pub(crate) mode: Mode,
    /// Pictures for the next text.
    pub(crate) images: Vec<InputImage>,
}

/// A picture from a file. Whether it is one is the engine's word.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn picture(file: &Path) -> Result<InputImage, Fault> {
    let read = tokio::fs::read(file).await;
    read.map(InputImage::new).map_err(|error| Fault::Failed(format!("{} cannot be read: {error}", file.display())))
}

impl Room<'_> {
    /// The conversation that was picked.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) async fn picked(&mut self, pick: &PickArgs) -> Result<Option<ConversationSummary>, Fault> {
        let found = match &pick.resume {
            Some(name) => self.link.find(name).await?,
            None if pick.last => self.link.last().await?,
            None => return Ok(None),
        };
        if let Some(note) = &found.note
            && !matches!(self.mode, Mode::Quiet | Mode::Json)
        {
            self.screen.note(&format!("! {}", harmless(note)));
        }
        Ok(Some(found.session))
    }

    /// Hands a text in; its answer is the acceptance.
    ///
    /// # Errors
    /// When it is not accepted.
    pub(crate) async fn submit(
        &mut self,
        session: Option<&ConversationSummary>,
        text: &str,
    ) -> Result<Followed, Fault> {
        let params = PromptSubmitParams {
            conversation: session.map(|session| session.id.clone()),
            request_id: None,
            text: text.to_owned(),
            images: std::mem::take(&mut self.images),
            intent: None,
            platform: Some(PLATFORM.to_owned()),
        };
        let submitted = request!(self.link, Request::PromptSubmit(params), Response::Submitted(done) => done)?;
        Ok(followed(submitted))
    }

    /// Undoes the last input of a session and hands its text in again: both, or neither.
    ///
    /// # Errors
    /// When there is nothing to undo, or the text is not accepted; everything is as it was then.
    pub(crate) async fn retry(&self, session: &ConversationSummary) -> Result<Followed, Fault> {
        let retry = Request::SessionRetry(SessionRefParams { conversation: session.id.clone() });
        let submitted = request!(self.link, retry, Response::Submitted(done) => done)?;
        Ok(followed(submitted))
    }

    /// Goes on with what a crash left.
    pub(crate) fn resume(session: &ConversationSummary) -> Followed {
        let conversation = session.id.clone();
        Followed { conversation: conversation.clone(), wait: Request::TurnResume(SessionRefParams { conversation }) }
    }

    /// How turns are shown in this mode.
    pub(crate) fn view(&self) -> View {
        let terminal = self.terminal;
        let (stream, activity, notices, partial) = match self.mode {
            Mode::Json => return View::Json,
            Mode::Interactive => (true, true, true, true),
            Mode::Query => (terminal.stdout, terminal.stderr, true, true),
            Mode::OneShot => (false, terminal.stderr, terminal.stderr, false),
            Mode::Quiet => (false, false, false, false),
        };
        View::Person(TurnView::new(Shown {
            stream,
            activity,
            notices,
            partial,
            clean_answer: terminal.stdout,
            style: terminal.err_style(),
            width: terminal.width,
        }))
    }

    /// Says one text (or goes on, when there is none) and shows the answer.
    async fn say(&mut self, text: &str, pick: &PickArgs, early: Option<Stop>) -> Result<Exit, Fault> {
        let session = self.picked(pick).await?;
        let followed = match &session {
            Some(session) if text.trim().is_empty() && self.images.is_empty() => Self::resume(session),
            _ => self.submit(session.as_ref(), text).await?,
        };
        self.show_answer(followed, early).await
    }

    /// Says the last input of a session again and shows the answer.
    async fn say_again(&mut self, pick: &PickArgs, early: Option<Stop>) -> Result<Exit, Fault> {
        // What changes a session is not guessed at.
        let Some(name) = &pick.resume else {
            return Err(Fault::Usage("which session? see `hermes sessions retry --help`".to_owned()));
        };
        let session = self.link.find_exactly(name).await?;
        let followed = self.retry(&session).await?;
        self.show_answer(followed, early).await
    }

    async fn show_answer(&mut self, followed: Followed, early: Option<Stop>) -> Result<Exit, Fault> {
        // After the acceptance: without a usable model this line is the same message as the failure.
        if self.terminal.stderr && matches!(self.mode, Mode::OneShot | Mode::Query) {
            let line = self.terminal.err_style().dim(&harmless(&self.link.model_line));
            self.screen.note(&line);
        }
        let conversation = followed.conversation.clone();
        let mut view = self.view();
        let mut asker = TerminalAsker { style: self.terminal.err_style(), width: self.terminal.width };
        let mut desk = Desk {
            link: &mut *self.link,
            screen: &mut self.screen,
            view: &mut view,
            stops: &mut *self.stops,
            asker: if self.attended { Some(&mut asker) } else { None },
            patience: Patience::Leave,
        };
        let outcome = desk.follow(followed, early).await?;
        let exit = match outcome.end {
            End::Left => leave_now(),
            End::Refused(error) => {
                if self.mode == Mode::Json {
                    return Err(error.into());
                }
                let fault = Fault::from(error);
                self.screen.note(&harmless(&fault.message().unwrap_or_default()));
                fault.exit()
            }
            End::Over(_) if outcome.broken_pipe => return Ok(Exit::Interrupted),
            End::Over(None) => {
                let pieces = match view {
                    View::Json => json::nothing().into_iter().collect(),
                    View::Person(_) => vec![Piece::Line("There is no interrupted turn to go on with.".to_owned())],
                };
                self.screen.show(pieces)?;
                Exit::Answered
            }
            End::Over(Some(result)) => {
                let pieces = match &mut view {
                    View::Json => {
                        json::result(&result).into_iter().chain(failure_of(&result).map(Piece::Line)).collect()
                    }
                    View::Person(view) => view.finish(&result),
                };
                self.screen.show(pieces)?;
                Exit::of(result.reason)
            }
        };
        if self.mode == Mode::Quiet {
            self.screen.note(&format!("session_id: {conversation}"));
        }
        Ok(exit)
    }
}

#[cfg(test)]
#[path = "talk_tests.rs"]
mod tests;
