//! A conversation at the terminal.

mod editor;
mod slash;

use std::path::Path;

use hermes_gateway::protocol::{
    ConversationSummary, Intent, PromptSubmitParams, Request, Response, SessionRefParams, SessionRenameParams,
    SessionResolveParams, SessionUndoParams, TurnWaitParams,
};

use crate::args::PickArgs;
use crate::ask::TerminalAsker;
use crate::echo::NoEcho;
use crate::exit::{Exit, Fault};
use crate::follow::{Desk, End, Followed, Patience, View};
use crate::link::request;
use crate::render::lists;
use crate::talk::{Room, picture};
use crate::text::{harmless, one_line};
use editor::{Editor, Input};
use slash::Slash;

/// Sessions that `/sessions` shows.
const SESSIONS_SHOWN: usize = 10;

/// What comes after an input.
enum Next {
    /// The next input.
    Go,
    /// The end of the program.
    Leave(Exit),
}

/// Talks until the person leaves.
///
/// # Errors
/// When the picked session is not there, or the terminal cannot be used.
pub(crate) async fn run(room: &mut Room<'_>, pick: &PickArgs) -> Result<Exit, Fault> {
    greet(room);
    let mut session = room.picked(pick).await?;
    if let Some(picked) = session.clone()
        && let Next::Leave(exit) = go_on(room, &picked).await?
    {
        return Ok(exit);
    }
    let mut editor = Editor::new(room.link.history.as_deref(), room.terminal.err_style());
    loop {
        if let Some(problem) = editor.take_history_problem() {
            room.screen.note(&format!("! the history of inputs is not kept: {problem}"));
        }
        let next = match editor.read(&mut *room.stops).await? {
            Input::Text(text) if text.trim().is_empty() => Next::Go,
            Input::Text(text) => match slash::parse(&text) {
                None => say(room, &mut session, &text).await?,
                Some(Ok((slash, argument))) => command(room, &mut session, slash, argument).await?,
                Some(Err(message)) => {
                    room.screen.note(&message);
                    Next::Go
                }
            },
            Input::Cleared => Next::Go,
            Input::Leave => Next::Leave(Exit::Answered),
            Input::Stopped => Next::Leave(Exit::Interrupted),
        };
        if let Next::Leave(exit) = next {
            return Ok(exit);
        }
    }
}

fn greet(room: &mut Room<'_>) {
    let style = room.terminal.err_style();
    let line = format!("{} {}", style.bold("hermes"), env!("CARGO_PKG_VERSION"));
    room.screen.note(&line);
    let model = style.dim(&harmless(&room.link.model_line));
    room.screen.note(&model);
    room.screen.note(&style.dim("/help shows what can be typed; Ctrl-C stops a turn, Ctrl-D leaves"));
}

/// Shows which session it is, and goes on with a turn that a crash left in it.
async fn go_on(room: &mut Room<'_>, picked: &ConversationSummary) -> Result<Next, Fault> {
    let name = harmless(&lists::name_of(picked));
    room.screen.note(&format!("Going on with \"{name}\" ({}, {} rows)", picked.id, picked.messages));
    if picked.pending.is_none() {
        return Ok(Next::Go);
    }
    room.screen.note("A turn of it was interrupted; going on with it.");
    follow(room, Room::resume(picked)).await
}

async fn say(room: &mut Room<'_>, session: &mut Option<ConversationSummary>, text: &str) -> Result<Next, Fault> {
    let followed = match room.submit(session.as_ref(), text).await {
        Ok(followed) => followed,
        Err(fault) => return told(room, fault),
    };
    let conversation = followed.conversation.clone();
    let next = follow(room, followed).await?;
    if session.is_none() {
        // A new conversation: from now on it is this one.
        let name = Some(conversation.to_string());
        let params = SessionResolveParams { last: false, name, exact: false };
        let found = request!(room.link, Request::SessionResolve(params), Response::SessionResolved(found) => found);
        match found {
            Ok(found) => *session = Some(found.session),
            Err(error) => return told(room, error.into()),
        }
    }
    Ok(next)
}

/// Says something to the turn that runs in a session, and waits for the end of the turn that reads it.
async fn say_into(
    room: &mut Room<'_>,
    session: &ConversationSummary,
    intent: Intent,
    text: &str,
) -> Result<Next, Fault> {
    let params = PromptSubmitParams {
        conversation: Some(session.id.clone()),
        request_id: None,
        text: text.to_owned(),
        images: std::mem::take(&mut room.images),
        intent: Some(intent),
        platform: None,
    };
    let submitted = request!(room.link, Request::PromptSubmit(params), Response::Submitted(done) => done)?;
    let wait = Request::TurnWait(TurnWaitParams { admission: submitted.receipt.admission });
    follow(room, Followed { conversation: session.id.clone(), wait }).await
}

/// A request that failed does not end the conversation.
fn told(room: &mut Room<'_>, fault: Fault) -> Result<Next, Fault> {
    match fault {
        Fault::Rpc(_) => {
            let text = harmless(&fault.message().unwrap_or_default());
            let line = room.terminal.err_style().bad(&text);
            room.screen.note(&line);
            Ok(Next::Go)
        }
        other => Err(other),
    }
}

async fn follow(room: &mut Room<'_>, followed: Followed) -> Result<Next, Fault> {
    let _no_echo = room.terminal.stdin.then(NoEcho::begin);
    let mut view = room.view();
    let mut asker = TerminalAsker { style: room.terminal.err_style(), width: room.terminal.width };
    let mut desk = Desk {
        link: &mut *room.link,
        screen: &mut room.screen,
        view: &mut view,
        stops: &mut *room.stops,
        asker: Some(&mut asker),
        patience: Patience::LeaveSoon,
    };
    let outcome = desk.follow(followed, None).await?;
    if outcome.broken_pipe {
        return Ok(Next::Leave(Exit::Interrupted));
    }
    match outcome.end {
        End::Left => return Ok(Next::Leave(Exit::Interrupted)),
        End::Refused(error) => return told(room, error.into()),
        End::Over(None) => room.screen.note("There was nothing to go on with."),
        End::Over(Some(result)) => {
            if let View::Person(view) = &mut view {
                let pieces = view.finish(&result);
                room.screen.show(pieces)?;
            }
        }
    }
    Ok(if outcome.leave { Next::Leave(Exit::Interrupted) } else { Next::Go })
}

async fn command(
    room: &mut Room<'_>,
    session: &mut Option<ConversationSummary>,
    slash: Slash,
    argument: &str,
) -> Result<Next, Fault> {
    match run_command(room, session, slash, argument).await {
        Err(fault) => told(room, fault),
        next => next,
    }
}

async fn run_command(
    room: &mut Room<'_>,
    session: &mut Option<ConversationSummary>,
    slash: Slash,
    argument: &str,
) -> Result<Next, Fault> {
    let (style, width) = (room.terminal.err_style(), room.terminal.width);
    match slash {
        Slash::Help => room.screen.note(&slash::help()),
        Slash::Quit => return Ok(Next::Leave(Exit::Answered)),
        Slash::New => {
            *session = None;
            room.screen.note("The next input begins a new session.");
        }
        Slash::Model => {
            let status = room.link.model().await?;
            room.screen.note(lists::model(&status, style).trim_end());
        }
        Slash::Sessions => {
            let list = room.link.list(SESSIONS_SHOWN, false).await?;
            room.screen.note(lists::sessions(&list, style, width).trim_end());
        }
        Slash::Resume => {
            let pick = PickArgs { last: false, resume: Some(argument.to_owned()) };
            if let Some(picked) = room.picked(&pick).await? {
                *session = Some(picked.clone());
                return go_on(room, &picked).await;
            }
        }
        Slash::Undo | Slash::Redo | Slash::Retry | Slash::Steer | Slash::Redirect if session.is_none() => {
            room.screen.note("There is no session yet: say something first.");
        }
        Slash::Undo => {
            if let Some(session) = session {
                let params = SessionUndoParams { conversation: session.id.clone(), turns: 1 };
                let done = request!(room.link, Request::SessionUndo(params), Response::Undone(done) => done)?;
                let text = one_line(&done.text, width);
                room.screen
                    .note(&format!("{} rows are undone (/redo brings them back); the input was: {text}", done.rows));
            }
        }
        Slash::Redo => {
            if let Some(session) = session {
                let params = SessionRefParams { conversation: session.id.clone() };
                let rows = request!(room.link, Request::SessionRedo(params), Response::Redone { rows } => rows)?;
                room.screen.note(&format!("{rows} rows are back."));
            }
        }
        Slash::Retry => {
            if let Some(session) = session {
                let followed = room.retry(session).await?;
                return follow(room, followed).await;
            }
        }
        Slash::Steer | Slash::Redirect => {
            if let Some(session) = session {
                let intent = if slash == Slash::Steer { Intent::Steer } else { Intent::Redirect };
                return say_into(room, session, intent, argument).await;
            }
        }
        Slash::Image => {
            let image = picture(Path::new(argument)).await?;
            match image.media_type() {
                None => room.screen.note("That is no PNG, JPEG, GIF or WebP file."),
                Some(kind) => {
                    room.screen.note(&format!("{kind}, {} bytes, goes with the next text.", image.data.len()));
                    room.images.push(image);
                }
            }
        }
        Slash::Title => match session {
            None => room.screen.note("There is no session yet: say something first."),
            Some(session) => {
                let params = SessionRenameParams { conversation: session.id.clone(), title: argument.to_owned() };
                let title = request!(room.link, Request::SessionRename(params), Response::Renamed { title } => title)?;
                room.screen.note(&format!("The title is now: {}", harmless(&title)));
                session.title = Some(title);
            }
        },
    }
    Ok(Next::Go)
}

#[cfg(test)]
mod tests {
    use hermes_gateway::protocol::{ConversationId, RpcError, SessionResolveResponse};
    use tokio::sync::mpsc;

    use super::*;
    use crate::render::lists::tests::summary;
    use crate::screen::Screen;
    use crate::style::Style;
    use crate::talk::Mode;
    use crate::terminal::Terminal;
    use crate::testing::{Buttons, Scripted, Shared, now};

    /// Types one command; returns the session after it, and what stands on stderr.
    async fn type_one(text: &str, session: Option<ConversationSummary>) -> (Option<ConversationSummary>, String) {
        let (session, said, _) = type_and_ask(text, session).await;
        (session, said)
    }

    /// The same, with what the gateway was asked.
    async fn type_and_ask(
        text: &str,
        mut session: Option<ConversationSummary>,
    ) -> (Option<ConversationSummary>, String, Vec<Request>) {
        let (script, mut link) = Scripted::link(|request, _| match request {
            Request::SessionResolve(params) if params.name.as_deref() == Some("Other") => {
                let session = summary("c2", Some("Other"));
                now(Response::SessionResolved(SessionResolveResponse { session, note: None }))
            }
            Request::SessionResolve(_) => {
                Box::pin(async { Err(RpcError { code: "HM1003".into(), message: "no session".into(), usage: true }) })
            }
            Request::SessionRename(params) => now(Response::Renamed { title: params.title }),
            Request::SessionList(_) => now(Response::Sessions(vec![summary("c1", Some("Old"))])),
            _ => now(Response::Deleted),
        });
        let err = Shared::default();
        let (_buttons, presses) = mpsc::channel(1);
        let mut stops = Buttons(presses);
        let screen = Screen::new(Box::new(Shared::default()), Box::new(err.clone()), false, Style::default());
        let mut room = Room {
            link: &mut link,
            screen,
            stops: &mut stops,
            terminal: Terminal::none(),
            attended: true,
            mode: Mode::Interactive,
            images: Vec::new(),
        };
        let (slash, argument) = slash::parse(text).unwrap().unwrap();
        command(&mut room, &mut session, slash, argument).await.unwrap();
        drop(room);
        (session, err.text(), script.requests())
    }

    #[tokio::test]
    async fn sessions_are_changed_by_command() {
        let old = Some(summary("c1", Some("Old")));
        assert_eq!(type_one("/new", old.clone()).await.0, None);
        let (session, said) = type_one("/resume Other", old.clone()).await;
        assert_eq!(session.unwrap().id, ConversationId::parse("c2").unwrap());
        assert!(said.contains("Going on with \"Other\""), "{said}");
        let (session, _) = type_one("/title A new one", old).await;
        assert_eq!(session.unwrap().title.as_deref(), Some("A new one"));
    }

    #[tokio::test]
    async fn i04_what_is_said_into_a_running_turn_is_handed_in_as_such() {
        for (typed, want) in [("/steer mind the step", Intent::Steer), ("/redirect go south", Intent::Redirect)] {
            let (_, said, asked) = type_and_ask(typed, None).await;
            assert!(said.contains("no session yet") && asked.is_empty(), "{said}");
            let (_, _, asked) = type_and_ask(typed, Some(summary("c1", None))).await;
            let Some(Request::PromptSubmit(params)) = asked.first() else { panic!("{asked:?}") };
            let (_, text) = typed.split_once(' ').unwrap();
            assert_eq!((params.intent, params.text.as_str()), (Some(want), text));
            assert_eq!(params.conversation, Some(ConversationId::parse("c1").unwrap()));
        }
    }

    #[tokio::test]
    async fn an_undo_is_taken_back_by_command() {
        let (_, said, asked) = type_and_ask("/redo", None).await;
        assert!(said.contains("no session yet") && asked.is_empty(), "{said}");
        let (_, _, asked) = type_and_ask("/redo", Some(summary("c1", None))).await;
        let conversation = ConversationId::parse("c1").unwrap();
        assert_eq!(asked, [Request::SessionRedo(SessionRefParams { conversation })]);
    }

    #[tokio::test]
    async fn a_command_that_fails_changes_nothing_and_does_not_end_the_conversation() {
        let old = Some(summary("c1", Some("Old")));
        let (session, said) = type_one("/resume nothing", old.clone()).await;
        assert_eq!((session, said.as_str()), (old, "error[HM1003]: no session\n"));
        // An answer that does not fit the request.
        let (_, said) = type_one("/model", None).await;
        assert!(said.starts_with("error[HM0291]"), "{said}");
        assert!(type_one("/title x", None).await.1.contains("no session yet"));
    }
}
