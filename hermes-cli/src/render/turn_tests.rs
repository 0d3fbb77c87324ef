//! What a turn looks like. `[out]` is stdout, `[err]` stderr, `[spin]` the spinner's text.

use hermes_gateway::protocol::{AdmissionId, ConversationId, PlannedCall, TakenInput, UsageTotals};

use super::*;

fn person() -> Shown {
    Shown {
        stream: true,
        activity: true,
        notices: true,
        partial: true,
        clean_answer: true,
        style: Style::default(),
        width: 60,
    }
}

fn one_shot() -> Shown {
    Shown { stream: false, activity: false, notices: false, partial: false, clean_answer: false, ..person() }
}

fn event(kind: EventKind) -> ServerMessage {
    ServerMessage::Event(Event::new(ConversationId::parse("c1").unwrap(), None, kind))
}

fn call(id: &str) -> CallId {
    CallId::parse(id).unwrap()
}

fn delta(text: &str) -> ServerMessage {
    event(EventKind::TextDelta { text: text.into() })
}

fn started(id: &str, name: &str, label: &str) -> ServerMessage {
    event(EventKind::CallStarted { call: call(id), name: name.into(), label: label.into() })
}

fn finished(id: &str, name: &str, outcome: CallOutcome, summary: &str) -> ServerMessage {
    event(EventKind::CallFinished {
        call: call(id),
        name: name.into(),
        outcome,
        summary: summary.into(),
        preview: String::new(),
    })
}

fn recorded(text: &str) -> ServerMessage {
    let calls = vec![PlannedCall { call: call("k1"), name: "terminal".into(), label: "echo hello".into() }];
    event(EventKind::RoundRecorded { text: text.into(), calls })
}

fn result(reason: EndReason, answer: &str) -> TurnResult {
    TurnResult {
        conversation: ConversationId::parse("c1").unwrap(),
        session: None,
        turn: None,
        admission: AdmissionId::parse("a1").unwrap(),
        reason,
        answer: answer.into(),
        error: None,
        api_calls: 1,
        model: "practice".into(),
        usage: UsageTotals::default(),
    }
}

/// Everything as it stands on the screen, stream by stream.
fn show(shown: Shown, messages: &[ServerMessage], end: &TurnResult) -> String {
    let mut view = TurnView::new(shown);
    let mut pieces: Vec<Piece> = messages.iter().flat_map(|message| view.message(message)).collect();
    pieces.extend(view.finish(end));
    let mut out = String::new();
    let mut last = "";
    for piece in pieces {
        let (stream, text) = match piece {
            Piece::Text(text) => ("[out] ", text),
            Piece::Line(text) => ("[err] ", format!("{text}\n")),
            Piece::Status(text) if text.is_empty() => continue,
            Piece::Status(text) => ("[spin] ", format!("{text}\n")),
        };
        if stream != "[out] " || last != stream || out.ends_with('\n') {
            out.push_str(stream);
        }
        out.push_str(&text);
        last = stream;
    }
    // A space that ends a line is made visible: files of this project have none.
    out.replace(" \n", "␠\n")
}

#[test]
fn a_turn_with_a_tool_reads_from_top_to_bottom() {
    let messages = [
        event(EventKind::RequestStarted { number: 1, model: "practice/tiny".into() }),
        delta("I will "),
        delta("look."),
        event(EventKind::CallAnnounced { name: "terminal".into() }),
        recorded("I will look."),
        started("k1", "terminal", "echo hello"),
        event(EventKind::CallOutput { call: call("k1"), text: "hello\n".into() }),
        finished("k1", "terminal", CallOutcome::Ok, "exit 0, 1 line"),
        event(EventKind::RequestStarted { number: 2, model: "practice/tiny".into() }),
        delta("It says:\n"),
        delta("hello"),
    ];
    insta::assert_snapshot!(show(person(), &messages, &result(EndReason::Answered, "It says:\nhello")), @r"
    [spin] practice/tiny is thinking
    [out] I will look.
    [spin] preparing terminal
    [spin] terminal: echo hello
    [err] · terminal  echo hello
    [err]   │ hello
    [err] ✓ terminal  exit 0, 1 line
    [spin] practice/tiny is thinking
    [out] It says:
    [out] hello
    ");
}

#[test]
fn one_shot_shows_only_the_final_answer() {
    let messages = [
        delta("I will look."),
        recorded("I will look."),
        started("k1", "terminal", "echo hello"),
        event(EventKind::Notice { text: "something".into() }),
        delta("hello"),
    ];
    assert_eq!(show(one_shot(), &messages, &result(EndReason::Answered, "hello")), "[out] hello\n");
}

#[test]
fn a_restarted_answer_is_told_and_begins_on_a_new_line() {
    let messages = [delta("The answ"), event(EventKind::TextRestarted), delta("The answer.")];
    insta::assert_snapshot!(show(person(), &messages, &result(EndReason::Answered, "The answer.")), @r"
    [out] The answ
    [err] ! the connection was lost; the answer begins anew
    [out] The answer.
    ");
}

#[test]
fn a_redirect_shows_what_was_said_and_is_no_lost_connection() {
    let inputs = |text: &str| vec![TakenInput { admission: AdmissionId::parse("a2").unwrap(), text: text.into() }];
    let messages = [
        event(EventKind::Steered { inputs: inputs("mind the step") }),
        delta("North is"),
        event(EventKind::Redirected { inputs: inputs("go south"), kept: true }),
        event(EventKind::TextRestarted),
        delta("South then."),
    ];
    insta::assert_snapshot!(show(person(), &messages, &result(EndReason::Answered, "South then.")), @r"
    [err] > mind the step
    [out] North is
    [err] ! the answer was interrupted; the model reads the new message
    [err] > go south
    [out] South then.
    ");
}

#[test]
fn an_answer_that_is_gone_on_with_after_a_cut_is_not_shown_twice() {
    let messages = [
        delta("The "),
        event(EventKind::Retrying { message: "cut".into(), wait_ms: 2000, attempt: 2, attempts_max: 4 }),
        event(EventKind::RequestStarted { number: 2, model: "m".into() }),
        delta("answer."),
    ];
    insta::assert_snapshot!(show(person(), &messages, &result(EndReason::Answered, "The answer.")), @r"
    [out] The␠
    [err] ! cut; attempt 2 of 4 in 2.0 s
    [spin] m is thinking
    [out] answer.
    ");
}

#[test]
fn i28_a_gap_is_told_and_the_kept_answer_is_shown_whole() {
    let messages = [delta("The "), ServerMessage::EventsMissed {}, delta("wer.")];
    insta::assert_snapshot!(show(person(), &messages, &result(EndReason::Answered, "The answer.")), @r"
    [out] The␠
    [err] ! events were missed; what is shown has a gap
    [out] wer.
    [err] (what is shown above may have a gap; this is the answer as it was kept)
    [out] The answer.
    ");
}

#[test]
fn an_answer_of_which_nothing_was_streamed_is_shown() {
    assert_eq!(show(person(), &[], &result(EndReason::Answered, "kept")), "[out] kept\n");
}

#[test]
fn a_failure_is_shown_with_its_code_and_what_can_be_done() {
    let mut end = result(EndReason::RetriesExhausted, "half an ans");
    end.error = Some(TurnError { code: "HM2007".into(), message: "the model is overloaded".into(), retryable: true });
    insta::assert_snapshot!(show(person(), &[delta("half an ans")], &end), @r"
    [out] half an ans
    [err] error[HM2007]: the model is overloaded
      the same input may be sent again
    ");
    // stdout stays clean in one-shot mode.
    insta::assert_snapshot!(show(one_shot(), &[], &end), @r"
    [err] error[HM2007]: the model is overloaded
      the same input may be sent again
    ");
}

#[test]
fn what_is_drawn_when_a_turn_is_stopped_does_not_stand_on_its_text() {
    let mut view = TurnView::new(person());
    view.message(&delta("half an ans"));
    let pieces = view.stopping();
    assert_eq!(pieces, [Piece::Text("\n".into()), Piece::Status("stopping; once more leaves".into())]);
    assert_eq!(view.stopping().len(), 1, "the line is ended once");
}

#[test]
fn after_a_crash_nobody_is_told_to_send_the_same_without_a_look() {
    let mut end = result(EndReason::CrashInterrupted, "");
    end.error = Some(TurnError { code: "HM4017".into(), message: "the program ended".into(), retryable: true });
    let said = failure_of(&end).unwrap();
    assert!(said.contains("hermes sessions show c1") && !said.contains("may be sent again"), "{said}");
}

#[test]
fn every_reason_but_an_answer_says_something() {
    for reason in EndReason::ALL {
        let said = failure_of(&result(*reason, ""));
        assert_eq!(said.is_none(), *reason == EndReason::Answered, "{reason:?}");
        if let Some(code) = reason.code() {
            assert!(said.is_some_and(|said| said.starts_with(&format!("error[{code}]: "))), "{reason:?}");
        }
    }
}

fn judged(judge: &str, ruling: &str) -> EventKind {
    let told = serde_json::json!({"type": "call_judged", "call": "k1", "judge": judge, "ruling": ruling});
    serde_json::from_value(told).unwrap()
}

#[test]
fn who_decided_in_a_person_s_place_is_shown() {
    let end = result(EndReason::Answered, "done");
    let shown = show(person(), &[event(judged("openrouter/small", "deny"))], &end);
    assert!(shown.contains("openrouter/small, asked in your place, says: deny"), "{shown}");
}

#[test]
fn what_a_model_or_tool_writes_cannot_control_the_terminal() {
    let hostile = "\x1b[2J\x1b]0;owned\x07\u{9b}31m";
    let messages = [
        delta(hostile),
        event(EventKind::RequestStarted { number: 1, model: hostile.into() }),
        event(EventKind::CallAnnounced { name: hostile.into() }),
        started("k1", hostile, hostile),
        event(EventKind::CallOutput { call: call("k1"), text: hostile.into() }),
        event(EventKind::CallWaiting { call: call("k1"), what: hostile.into() }),
        event(judged(hostile, "approve")),
        finished("k1", hostile, CallOutcome::Failed, hostile),
        event(EventKind::Notice { text: hostile.into() }),
        event(EventKind::Recovered { what: hostile.into() }),
        event(EventKind::Waiting { reason: hostile.into() }),
        event(EventKind::Retrying { message: hostile.into(), wait_ms: 1500, attempt: 2, attempts_max: 5 }),
    ];
    let mut end = result(EndReason::AuthFailed, hostile);
    end.error = Some(TurnError { code: "HM4006".into(), message: hostile.into(), retryable: false });
    let shown = show(person(), &messages, &end);
    assert!(shown.chars().all(|c| !c.is_control() || c == '\n'), "{shown:?}");
    // To a file or a pipe the answer goes as it is.
    let piped = show(one_shot(), &[], &result(EndReason::Answered, hostile));
    assert_eq!(piped, format!("[out] {hostile}\n"));
}

#[test]
fn long_output_is_cut_and_says_so() {
    let text = "line\n".repeat(CALL_OUTPUT_SHOWN_LINES + 50);
    let messages =
        [started("k1", "terminal", &"x".repeat(500)), event(EventKind::CallOutput { call: call("k1"), text })];
    let shown = show(person(), &messages, &result(EndReason::Answered, ""));
    assert_eq!(shown.matches("│ line").count(), CALL_OUTPUT_SHOWN_LINES);
    assert_eq!(shown.matches("│ …").count(), 1);
    assert!(shown.lines().all(|line| crate::text::columns(line) <= 60 + "[spin] ".len()), "{shown}");
}

#[test]
fn every_outcome_has_its_mark() {
    let outcomes = [
        CallOutcome::Ok,
        CallOutcome::Failed,
        CallOutcome::Denied,
        CallOutcome::Invalid,
        CallOutcome::Skipped,
        CallOutcome::TimedOut,
        CallOutcome::Interrupted,
        CallOutcome::OutcomeUnknown,
    ];
    let messages: Vec<_> = outcomes.iter().map(|outcome| finished("k", "t", *outcome, outcome.as_str())).collect();
    insta::assert_snapshot!(show(person(), &messages, &result(EndReason::Answered, "")), @r"
    [err] ✓ t  ok
    [err] ✗ t  failed
    [err] ⊘ t  denied
    [err] ✗ t  invalid
    [err] ⊘ t  skipped
    [err] ◼ t  timed_out
    [err] ◼ t  interrupted
    [err] ? t  outcome_unknown
    ");
}

#[test]
fn waits_and_retries_are_told() {
    let messages = [
        event(EventKind::Waiting { reason: "another process answers in this session".into() }),
        event(EventKind::Recovered { what: "a turn was interrupted; 1 call has no known outcome".into() }),
        event(EventKind::Retrying {
            message: "429 from the provider".into(),
            wait_ms: 1500,
            attempt: 2,
            attempts_max: 5,
        }),
        event(EventKind::Retrying { message: "cut".into(), wait_ms: 200, attempt: 3, attempts_max: 5 }),
    ];
    insta::assert_snapshot!(show(person(), &messages, &result(EndReason::StoppedByUser, "")), @r"
    [err] ! another process answers in this session
    [err] ! a turn was interrupted; 1 call has no known outcome
    [err] ! 429 from the provider; attempt 2 of 5 in 1.5 s
    [err] ! cut; attempt 3 of 5 in 200 ms
    [err] stopped
    ");
}

#[test]
fn colours_are_there_only_when_wanted() {
    let messages = [started("k1", "terminal", "ls"), finished("k1", "terminal", CallOutcome::Ok, "done")];
    let end = result(EndReason::Answered, "x");
    assert!(!show(person(), &messages, &end).contains('\x1b'));
    let coloured = Shown { style: Style { colour: true }, ..person() };
    assert!(show(coloured, &messages, &end).contains("\x1b[32m✓\x1b[0m"));
}
