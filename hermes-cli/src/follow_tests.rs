//! A turn of a scripted gateway, followed by a scripted person.

use std::sync::Mutex;

use hermes_gateway::protocol::{
    ApprovalAnswer, ApprovalRequest, ClarifyAnswer, ClarifyQuestion, EndReason, Event, GapReason, TurnWaitParams,
    UsageTotals,
};
use tokio::sync::{mpsc, watch};

use super::*;
use crate::render::turn::Shown;
use crate::style::Style;
use crate::testing::{Buttons, Gone, Person, Scripted, Shared, now};

fn conversation() -> ConversationId {
    ConversationId::parse("c1").unwrap()
}

fn result(reason: EndReason) -> Box<TurnResult> {
    Box::new(TurnResult {
        conversation: conversation(),
        session: None,
        turn: None,
        admission: AdmissionId::parse("a1").unwrap(),
        reason,
        answer: "done".into(),
        error: None,
        api_calls: 1,
        model: "practice".into(),
        usage: UsageTotals::default(),
    })
}

fn event(kind: EventKind) -> ServerMessage {
    ServerMessage::Event(Event::new(conversation(), None, kind))
}

fn delta(text: &str) -> ServerMessage {
    event(EventKind::TextDelta { text: text.into() })
}

fn approval(id: &str) -> ServerMessage {
    ServerMessage::ApprovalRequested {
        conversation: conversation(),
        request: ApprovalRequest {
            id: id.into(),
            call_id: "k1".into(),
            tool: "terminal".into(),
            subject: "rm x".into(),
            reasons: vec![],
            pattern: "rm".into(),
            timeout_ms: 60_000,
        },
    }
}

/// A gateway whose turn sends `messages`, then ends when the conditions that the test set are met.
struct World {
    script: Scripted,
    link: Link,
    screen: Screen,
    out: Shared,
    err: Shared,
    buttons: mpsc::Sender<Stop>,
    stops: Buttons,
    person: Person,
}

/// When the scripted turn ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// At once.
    Now,
    /// When it is told to stop.
    Stopped,
    /// When a question was answered.
    Answered(usize),
    /// Never.
    Never,
}

fn world(messages: Vec<ServerMessage>, until: Until) -> World {
    let messages = Mutex::new(Some(messages));
    let stopped = watch::channel(false).0;
    let answered = watch::channel(0_usize).0;
    let (script, link) = Scripted::link(move |request, outbox| match request {
        Request::TurnWait(_) => {
            for message in messages.lock().unwrap().take().unwrap_or_default() {
                outbox.try_send(message).unwrap();
            }
            let (mut stopped, mut answered) = (stopped.subscribe(), answered.subscribe());
            let outbox = outbox.clone();
            Box::pin(async move {
                let reason = match until {
                    Until::Now => EndReason::Answered,
                    Until::Answered(count) => {
                        answered.wait_for(|done| *done >= count).await.unwrap();
                        EndReason::Answered
                    }
                    Until::Stopped => {
                        stopped.wait_for(|stopped| *stopped).await.unwrap();
                        EndReason::StoppedByUser
                    }
                    Until::Never => std::future::pending().await,
                };
                outbox.send(event(EventKind::TurnEnded { result: result(reason) })).await.unwrap();
                Ok(Response::Turn(Some(result(reason))))
            })
        }
        Request::TurnInterrupt(_) => {
            stopped.send_replace(true);
            now(Response::Interrupted { running: true })
        }
        _ => {
            answered.send_modify(|count| *count += 1);
            now(Response::Accepted { taken: true })
        }
    });
    let (out, err) = (Shared::default(), Shared::default());
    let (buttons, presses) = mpsc::channel(8);
    World {
        script,
        link,
        screen: Screen::new(Box::new(out.clone()), Box::new(err.clone()), false, Style::default()),
        out,
        err,
        buttons,
        stops: Buttons(presses),
        person: Person::default(),
    }
}

impl World {
    async fn follow(&mut self, patience: Patience, attended: bool, early: Option<Stop>) -> Outcome {
        let mut view = View::Person(TurnView::new(Shown {
            stream: true,
            activity: true,
            notices: true,
            partial: true,
            clean_answer: true,
            style: Style::default(),
            width: 80,
        }));
        let mut desk = Desk {
            link: &mut self.link,
            screen: &mut self.screen,
            view: &mut view,
            stops: &mut self.stops,
            asker: if attended { Some(&mut self.person) } else { None },
            patience,
        };
        let wait = Request::TurnWait(TurnWaitParams { admission: AdmissionId::parse("a1").unwrap() });
        desk.follow(Followed { conversation: conversation(), wait }, early).await.unwrap()
    }

    fn interrupts(&self) -> usize {
        self.script.requests().iter().filter(|request| matches!(request, Request::TurnInterrupt(_))).count()
    }

    fn approvals(&self) -> Vec<ApprovalRespondParams> {
        self.script
            .requests()
            .into_iter()
            .filter_map(|request| match request {
                Request::ApprovalRespond(params) => Some(params),
                _ => None,
            })
            .collect()
    }
}

fn reason(outcome: &Outcome) -> Option<EndReason> {
    match &outcome.end {
        End::Over(Some(result)) => Some(result.reason),
        _ => None,
    }
}

#[tokio::test]
async fn what_was_sent_before_the_end_is_shown_before_the_end() {
    let mut world = world(vec![delta("a"), delta("b"), delta("c")], Until::Now);
    let outcome = world.follow(Patience::Leave, false, None).await;
    assert_eq!(reason(&outcome), Some(EndReason::Answered));
    assert_eq!(world.out.text(), "abc");
}

#[tokio::test]
async fn another_conversation_is_not_shown() {
    let other = ServerMessage::Event(Event::new(
        ConversationId::parse("c2").unwrap(),
        None,
        EventKind::TextDelta { text: "not mine".into() },
    ));
    let mut world = world(vec![delta("mine"), other], Until::Now);
    world.follow(Patience::Leave, false, None).await;
    assert_eq!(world.out.text(), "mine");
}

#[tokio::test]
async fn a_first_stop_ends_the_turn_in_order() {
    let mut world = world(vec![], Until::Stopped);
    world.buttons.send(Stop::Keyboard).await.unwrap();
    let outcome = world.follow(Patience::Leave, false, None).await;
    assert_eq!((reason(&outcome), outcome.leave, world.interrupts()), (Some(EndReason::StoppedByUser), false, 1));
}

#[tokio::test]
async fn a_stop_that_came_before_the_turn_ends_it_too() {
    let mut world = world(vec![], Until::Stopped);
    let outcome = world.follow(Patience::Leave, false, Some(Stop::System)).await;
    assert_eq!((reason(&outcome), outcome.leave), (Some(EndReason::StoppedByUser), true));
}

#[tokio::test]
async fn a_second_stop_leaves_at_once() {
    for patience in [Patience::Leave, Patience::LeaveSoon] {
        let mut world = world(vec![], Until::Never);
        world.buttons.send(Stop::Keyboard).await.unwrap();
        world.buttons.send(Stop::Keyboard).await.unwrap();
        let outcome = world.follow(patience, false, None).await;
        assert!(matches!(outcome.end, End::Left), "{patience:?}");
        assert_eq!((outcome.leave, world.interrupts()), (true, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_second_stop_leaves_in_one_shot_only() {
    for (patience, left) in [(Patience::Leave, true), (Patience::LeaveSoon, false)] {
        let mut world = world(vec![], Until::Never);
        let buttons = world.buttons.clone();
        let pressing = async {
            buttons.send(Stop::Keyboard).await.unwrap();
            tokio::time::sleep(Duration::from_millis(LEAVE_WINDOW_MS + 1)).await;
            buttons.send(Stop::Keyboard).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        tokio::select! {
            outcome = world.follow(patience, false, None) => assert!(left && matches!(outcome.end, End::Left)),
            () = async { pressing.await; tokio::time::sleep(Duration::from_millis(50)).await } => assert!(!left),
        }
    }
}

#[tokio::test]
async fn i23_with_nobody_there_a_question_is_refused() {
    let mut world = world(vec![approval("q1")], Until::Answered(1));
    world.follow(Patience::Leave, false, None).await;
    let no = ApprovalAnswer::Deny { reason: String::new() };
    assert_eq!(world.approvals(), [ApprovalRespondParams { id: "q1".into(), answer: no }]);
}

#[tokio::test]
async fn each_question_gets_its_own_answer() {
    let clarify = ServerMessage::ClarifyRequested {
        conversation: conversation(),
        id: "q2".into(),
        questions: vec![ClarifyQuestion { question: "Which?".into(), choices: vec![], multi_select: false }],
    };
    let mut world = world(vec![approval("q1"), clarify, delta("after")], Until::Answered(2));
    let answers = vec![ClarifyAnswer::Answered { text: "this".into() }];
    world.person.answers.push_back(Answered { answer: Answer::Approval(ApprovalAnswer::Once), stop: false });
    world.person.answers.push_back(Answered { answer: Answer::Clarify(answers.clone()), stop: false });
    world.follow(Patience::LeaveSoon, true, None).await;
    assert_eq!(world.approvals(), [ApprovalRespondParams { id: "q1".into(), answer: ApprovalAnswer::Once }]);
    assert!(
        world.script.requests().contains(&Request::ClarifyRespond(ClarifyRespondParams { id: "q2".into(), answers }))
    );
    // What came while the questions were open is not lost.
    assert_eq!(world.out.text(), "after");
}

#[tokio::test]
async fn a_withdrawn_question_is_closed_and_not_answered() {
    let withdrawn = ServerMessage::RequestWithdrawn { id: "q1".into() };
    let mut world = world(vec![approval("q1"), withdrawn, delta("on")], Until::Now);
    // The person never answers; without the withdrawal this would not end.
    let outcome = world.follow(Patience::LeaveSoon, true, None).await;
    assert_eq!(reason(&outcome), Some(EndReason::Answered));
    assert_eq!(world.approvals(), []);
    assert_eq!(world.out.text(), "on");
}

#[tokio::test]
async fn ctrl_c_at_a_question_denies_and_stops_the_turn() {
    let mut world = world(vec![approval("q1"), approval("q2")], Until::Stopped);
    world
        .person
        .answers
        .push_back(Answered { answer: Answer::Approval(ApprovalAnswer::Deny { reason: String::new() }), stop: true });
    let outcome = world.follow(Patience::LeaveSoon, true, None).await;
    assert_eq!((reason(&outcome), world.interrupts()), (Some(EndReason::StoppedByUser), 1));
    assert_eq!(world.person.asked.len(), 1);
    assert!(world.approvals().iter().all(|params| matches!(params.answer, ApprovalAnswer::Deny { .. })));
}

#[tokio::test]
async fn a_reader_that_went_away_stops_the_turn_in_order() {
    let mut world = world(vec![delta("text"), delta("more")], Until::Stopped);
    world.screen = Screen::new(Box::new(Gone), Box::new(world.err.clone()), false, Style::default());
    let outcome = world.follow(Patience::Leave, false, None).await;
    assert!(outcome.broken_pipe);
    assert_eq!(world.interrupts(), 1);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_told() {
    let (_, mut link) = Scripted::link(|request, outbox| match request {
        Request::TurnWait(_) => {
            outbox.try_send(approval("q1")).unwrap();
            let outbox = outbox.clone();
            Box::pin(async move {
                // The answer to the question makes the last place free again; until then the turn runs.
                outbox.send(delta("x")).await.unwrap();
                while outbox.capacity() != outbox.max_capacity() {
                    tokio::task::yield_now().await;
                }
                Ok(Response::Turn(Some(result(EndReason::Answered))))
            })
        }
        _ => now(Response::Accepted { taken: false }),
    });
    let mut world = world(vec![], Until::Now);
    std::mem::swap(&mut world.link, &mut link);
    world.person.answers.push_back(Answered { answer: Answer::Approval(ApprovalAnswer::Once), stop: false });
    world.follow(Patience::LeaveSoon, true, None).await;
    assert!(world.err.text().contains("came too late"), "{}", world.err.text());
}

/// A piece of the answer at its place.
fn piece(seq: u64, text: &str) -> Event {
    Event {
        at: Cursor { epoch: 7, seq },
        ..Event::new(conversation(), None, EventKind::TextDelta { text: text.into() })
    }
}

/// A world whose turn sends `messages` and ends when a question was answered, or at once; `missed` answers whoever asks
/// for what was missed.
async fn catch_up(messages: Vec<ServerMessage>, missed: SessionEventsResponse) -> (World, Vec<Request>) {
    let open = !missed.questions.is_empty();
    let messages = Mutex::new(Some(messages));
    let answered = watch::channel(!open).0;
    let (script, mut link) = Scripted::link(move |request, outbox| match request {
        Request::TurnWait(_) => {
            for message in messages.lock().unwrap().take().unwrap_or_default() {
                outbox.try_send(message).unwrap();
            }
            let mut answered = answered.subscribe();
            let outbox = outbox.clone();
            Box::pin(async move {
                answered.wait_for(|answered| *answered).await.unwrap();
                outbox.send(event(EventKind::TurnEnded { result: result(EndReason::Answered) })).await.unwrap();
                Ok(Response::Turn(Some(result(EndReason::Answered))))
            })
        }
        Request::SessionEvents(_) => now(Response::Events(missed.clone())),
        _ => {
            answered.send_replace(true);
            now(Response::Accepted { taken: true })
        }
    });
    let mut world = world(vec![], Until::Now);
    std::mem::swap(&mut world.link, &mut link);
    world.person.answers.push_back(Answered { answer: Answer::Approval(ApprovalAnswer::Once), stop: false });
    world.follow(Patience::LeaveSoon, true, None).await;
    let requests = script.requests();
    (world, requests)
}

#[tokio::test]
async fn i28_what_was_missed_is_asked_for_and_shown_once_and_an_open_question_is_put() {
    let live = |seq, text| ServerMessage::Event(piece(seq, text));
    let until = Cursor { epoch: 7, seq: 4 };
    let replay = Replay::Events { events: vec![piece(3, "bc"), piece(4, "d")], until };
    let missed = SessionEventsResponse { replay, questions: vec![approval("q1")] };
    // What was told again is on its way too.
    let messages = vec![live(1, "a"), ServerMessage::EventsMissed {}, live(4, "d"), approval("q1"), live(5, "e")];
    let (world, requests) = catch_up(messages, missed).await;
    assert_eq!(world.out.text(), "abcde");
    assert_eq!(world.err.text(), "", "there is no gap");
    let after = Cursor { epoch: 7, seq: 1 };
    assert!(requests.contains(&Request::SessionEvents(SessionEventsParams { conversation: conversation(), after })));
    let answers = requests.iter().filter(|request| matches!(request, Request::ApprovalRespond(_))).count();
    assert_eq!((answers, world.person.asked.len()), (1, 1));
}

#[tokio::test]
async fn i28_events_that_are_not_kept_any_more_are_told_as_a_gap() {
    let live = |seq, text| ServerMessage::Event(piece(seq, text));
    let replay = Replay::Gap { why: GapReason::Dropped, until: Cursor { epoch: 7, seq: 900 } };
    let missed = SessionEventsResponse { replay, questions: vec![] };
    let messages = vec![live(1, "a"), ServerMessage::EventsMissed {}, live(800, "z")];
    let (world, _) = catch_up(messages, missed).await;
    assert_eq!(world.out.text(), "a\nz");
    assert!(world.err.text().contains("what is shown has a gap"), "{}", world.err.text());
}
