//! One-shot runs against a scripted gateway.

use hermes_gateway::protocol::{
    AdmissionId, AdmissionStatus, ConversationId, EndReason, PromptSubmitResponse, Receipt, RpcError,
    SessionResolveResponse, TurnError, TurnResult, UsageTotals,
};
use tokio::sync::mpsc;

use super::*;
use crate::render::lists::tests::summary;
use crate::style::Style;
use crate::testing::{Buttons, Scripted, Shared, now};

fn result(reason: EndReason) -> TurnResult {
    TurnResult {
        conversation: ConversationId::parse("c1").unwrap(),
        session: None,
        turn: None,
        admission: AdmissionId::parse("a1").unwrap(),
        reason,
        answer: "hello".into(),
        error: (reason != EndReason::Answered).then(|| TurnError {
            code: "HM4006".into(),
            message: "the key was refused".into(),
            retryable: false,
        }),
        api_calls: 1,
        model: "practice".into(),
        usage: UsageTotals::default(),
    }
}

struct Said {
    exit: Result<Exit, Fault>,
    out: String,
    err: String,
    requests: Vec<Request>,
}

/// The answer to an input that was accepted, in session c1.
fn accepted() -> Response {
    Response::Submitted(PromptSubmitResponse {
        receipt: Receipt {
            admission: AdmissionId::parse("a1").unwrap(),
            conversation: ConversationId::parse("c1").unwrap(),
            seq: 1,
            status: AdmissionStatus::Queued,
            outcome: None,
            generation: None,
            turn: None,
        },
        replayed: false,
    })
}

async fn say(mode: Mode, text: &str, pick: PickArgs, turn: Option<TurnResult>) -> Said {
    let (script, mut link) = Scripted::link(move |request, _| match request {
        Request::PromptSubmit(_) => now(accepted()),
        Request::SessionResolve(params) if params.name.as_deref() == Some("missing") => Box::pin(async {
            Err(RpcError { code: "HM1003".into(), message: "there is no such session".into(), usage: true })
        }),
        Request::SessionResolve(_) => now(Response::SessionResolved(SessionResolveResponse {
            session: summary("c1", Some("Old")),
            note: Some("2 sessions have this title".into()),
        })),
        Request::TurnWait(_) | Request::TurnResume(_) => now(Response::Turn(turn.clone().map(Box::new))),
        _ => now(Response::Deleted),
    });
    let (out, err) = (Shared::default(), Shared::default());
    let (_buttons, presses) = mpsc::channel(1);
    let mut stops = Buttons(presses);
    let mut room = Room {
        link: &mut link,
        screen: Screen::new(Box::new(out.clone()), Box::new(err.clone()), false, Style::default()),
        stops: &mut stops,
        terminal: Terminal::none(),
        attended: false,
        mode,
        images: Vec::new(),
    };
    let exit = room.say(text, &pick, None).await;
    drop(room);
    Said { exit, out: out.text(), err: err.text(), requests: script.requests() }
}

fn last() -> PickArgs {
    PickArgs { last: true, resume: None }
}

#[tokio::test(start_paused = true)]
async fn one_shot_prints_the_answer_and_nothing_else() {
    let said = say(Mode::OneShot, "hi", PickArgs::default(), Some(result(EndReason::Answered))).await;
    assert_eq!((said.out.as_str(), said.err.as_str()), ("hello\n", ""));
    assert_eq!(said.exit.unwrap(), Exit::Answered);
}

#[tokio::test(start_paused = true)]
async fn quiet_prints_the_session_as_the_last_line_of_stderr_also_after_a_failure() {
    let said = say(Mode::Quiet, "hi", PickArgs::default(), Some(result(EndReason::Answered))).await;
    assert_eq!((said.out.as_str(), said.err.as_str()), ("hello\n", "session_id: c1\n"));
    let said = say(Mode::Quiet, "hi", PickArgs::default(), Some(result(EndReason::AuthFailed))).await;
    assert_eq!(said.out, "");
    assert_eq!(said.err, "error[HM4006]: the key was refused\nsession_id: c1\n");
    assert_eq!(said.exit.unwrap(), Exit::Failed);
}

#[tokio::test(start_paused = true)]
async fn json_ends_with_the_result_and_its_exit_code() {
    let said = say(Mode::Json, "hi", PickArgs::default(), Some(result(EndReason::Answered))).await;
    let last: serde_json::Value = serde_json::from_str(said.out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["answer"], &last["exit_code"]), (&"result".into(), &"hello".into(), &0.into()));
    assert_eq!((&last["conversation"], &last["reason"]), (&"c1".into(), &"answered".into()));
    let said = say(Mode::Json, "hi", PickArgs::default(), Some(result(EndReason::AuthFailed))).await;
    assert!(said.out.contains(r#""exit_code":1"#));
    assert_eq!(said.err, "error[HM4006]: the key was refused\n");
}

#[tokio::test(start_paused = true)]
async fn continue_without_a_text_goes_on_with_the_interrupted_turn() {
    let said = say(Mode::OneShot, "", last(), Some(result(EndReason::Answered))).await;
    assert!(said.requests.iter().any(|request| matches!(request, Request::TurnResume(_))));
    assert!(!said.requests.iter().any(|request| matches!(request, Request::PromptSubmit(_))));
    assert_eq!(said.out, "hello\n");
    let said = say(Mode::OneShot, "", last(), None).await;
    assert_eq!((said.out.as_str(), said.exit.unwrap()), ("", Exit::Answered));
    assert!(said.err.contains("no interrupted turn"));
}

#[tokio::test(start_paused = true)]
async fn continue_with_a_text_submits_to_the_picked_session() {
    let said = say(Mode::OneShot, "more", last(), Some(result(EndReason::Answered))).await;
    let submitted = said.requests.iter().find_map(|request| match request {
        Request::PromptSubmit(params) => Some(params.clone()),
        _ => None,
    });
    let submitted = submitted.unwrap();
    assert_eq!((submitted.text.as_str(), submitted.conversation.unwrap().as_str()), ("more", "c1"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_there_is_wrong_use() {
    let pick = PickArgs { last: false, resume: Some("missing".into()) };
    let said = say(Mode::OneShot, "more", pick, None).await;
    assert_eq!(said.exit.unwrap_err().exit(), Exit::Usage);
}

/// Retries the last input of session c1 with a gateway that accepts it, or refuses.
async fn retry(accepts: bool) -> (Result<Followed, Fault>, Vec<Request>) {
    let (script, mut link) = Scripted::link(move |request, _| match request {
        Request::SessionRetry(_) if accepts => now(accepted()),
        _ => Box::pin(async { Err(RpcError { code: "HM1004".into(), message: "full".into(), usage: false }) }),
    });
    let (_buttons, presses) = mpsc::channel(1);
    let mut stops = Buttons(presses);
    let room = Room {
        link: &mut link,
        screen: Screen::new(Box::new(Shared::default()), Box::new(Shared::default()), false, Style::default()),
        stops: &mut stops,
        terminal: Terminal::none(),
        attended: false,
        mode: Mode::Query,
        images: Vec::new(),
    };
    let told = room.retry(&summary("c1", None)).await;
    (told, script.requests())
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_one_request_that_a_crash_cannot_halve() {
    let conversation = ConversationId::parse("c1").unwrap();
    let whole = [Request::SessionRetry(SessionRefParams { conversation })];
    let (told, asked) = retry(true).await;
    assert!(told.is_ok());
    assert_eq!(asked, whole);
    let (told, asked) = retry(false).await;
    assert!(told.is_err_and(|fault| fault.message().is_some_and(|text| text.contains("full"))));
    assert_eq!(asked, whole);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_cannot_be_used_is_told_once() {
    let missing = "provider \"groq\" needs a key";
    let (_, mut link) = Scripted::link(move |_, _| {
        Box::pin(async move { Err(RpcError { code: "HM0211".into(), message: missing.into(), usage: true }) })
    });
    link.model_line = missing.to_owned();
    let err = Shared::default();
    let (_buttons, presses) = mpsc::channel(1);
    let mut stops = Buttons(presses);
    let mut room = Room {
        link: &mut link,
        screen: Screen::new(Box::new(Shared::default()), Box::new(err.clone()), false, Style::default()),
        stops: &mut stops,
        terminal: Terminal { stdout: true, stderr: true, ..Terminal::none() },
        attended: false,
        mode: Mode::OneShot,
        images: Vec::new(),
    };
    // The program shows the fault when it ends.
    let fault = room.say("hi", &PickArgs::default(), None).await.unwrap_err();
    assert_eq!(fault.message().unwrap(), format!("error[HM0211]: {missing}"));
    drop(room);
    assert_eq!(err.text(), "");
}

#[test]
fn stdin_is_put_behind_the_text() {
    assert_eq!(join("explain".into(), "code\n"), "explain\n\ncode\n");
    assert_eq!(join("explain".into(), " \n"), "explain");
    assert_eq!(join(String::new(), "code"), "code");
    assert_eq!(join(String::new(), ""), "");
}

#[test]
fn i27_stdin_that_is_no_text_or_too_long_is_refused() {
    assert!(matches!(read_text(&mut &b"a\xffb"[..]), Err(Fault::Usage(text)) if text.contains("byte 1")));
    assert!(matches!(read_text(&mut std::io::repeat(b'x')), Err(Fault::Usage(text)) if text.contains("8 MiB")));
    assert_eq!(read_text(&mut &b"ok"[..]).unwrap(), "ok");
}

#[test]
fn without_a_terminal_nobody_is_talked_with() {
    let plan = Plan::chat(None, false, false).settle(Terminal::none());
    assert_eq!((plan.mode, plan.reads_stdin), (Mode::Query, true));
    let terminal = Terminal { stdin: true, stdout: true, stderr: true, ..Terminal::none() };
    let plan = Plan::chat(None, false, false).settle(terminal);
    assert_eq!((plan.mode, plan.reads_stdin), (Mode::Interactive, false));
    // A query is whole; a script's stdin is not read.
    let plan = Plan::chat(Some("x".into()), false, false).settle(Terminal::none());
    assert_eq!((plan.mode, plan.reads_stdin), (Mode::Query, false));
    assert!(!Plan::one_shot("x".into(), false).settle(terminal).reads_stdin);
}
