//! How answers are understood, and how questions look.

use super::*;

fn request() -> ApprovalRequest {
    ApprovalRequest {
        id: "q1".into(),
        call_id: "k1".into(),
        tool: "terminal".into(),
        subject: "rm -rf build\u{202e}\nls \x1b[8mhidden".into(),
        reasons: vec!["deletes files".into()],
        pattern: "rm *".into(),
        timeout_ms: 60_000,
    }
}

#[test]
fn i23_nothing_but_a_clear_word_approves() {
    for line in [
        "",
        " ",
        "\t",
        "ok",
        "yep",
        "y es",
        "yes please",
        "yy",
        "1",
        "ya",
        "y\u{0}",
        "sure",
        "always not",
        "/yes",
        "ja",
    ] {
        let understood = understand_approval(line);
        assert!(
            !matches!(understood, Some(ApprovalAnswer::Once | ApprovalAnswer::Session | ApprovalAnswer::Always)),
            "{line:?} {understood:?}"
        );
    }
}

#[test]
fn an_unclear_answer_asks_again_and_is_no_denial() {
    for line in ["", "  ", "maybe", "what?", "yes please"] {
        assert_eq!(understand_approval(line), None, "{line:?}");
    }
}

#[test]
fn clear_answers_are_understood() {
    use ApprovalAnswer::{Always, Deny, Once, Session};
    for (line, answer) in [
        ("y", Once),
        (" YES ", Once),
        ("once", Once),
        ("s", Session),
        ("Session", Session),
        ("a", Always),
        ("always", Always),
        ("n", Deny { reason: String::new() }),
        ("No", Deny { reason: String::new() }),
        ("n use trash instead", Deny { reason: "use trash instead".into() }),
    ] {
        assert_eq!(understand_approval(line), Some(answer), "{line:?}");
    }
}

#[test]
fn a_question_shows_what_would_be_done_and_hides_nothing() {
    insta::assert_snapshot!(approval_text(&request(), Style::default(), 80), @r"
    terminal wants to do this:
      rm -rf build�
      ls ␛[8mhidden
      because: deletes files
      y = this once, s = for this session, a = always, n [why] = no; s and a allow: rm *
      no answer within 60 s means no
    ");
    let long = ApprovalRequest { subject: "x\n".repeat(SUBJECT_SHOWN_LINES + 3), ..request() };
    assert!(approval_text(&long, Style::default(), 80).contains("and 3 lines more that are not shown"));
}

fn clarify(choices: &[&str], multi_select: bool) -> ClarifyQuestion {
    ClarifyQuestion {
        question: "Which one?".into(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        multi_select,
    }
}

#[test]
fn choices_are_taken_by_number_or_in_own_words() {
    let said = |text: &str| Some(ClarifyAnswer::Answered { text: text.into() });
    let one = clarify(&["red", "blue"], false);
    assert_eq!(understand_clarify(&one, "2"), said("blue"));
    assert_eq!(understand_clarify(&one, "green, please"), said("green, please"));
    for wrong in ["0", "3", "1,2", "99999999999999999999999", ","] {
        assert!(
            !matches!(understand_clarify(&one, wrong), Some(ClarifyAnswer::Answered { text }) if one.choices.contains(&text)),
            "{wrong}"
        );
    }
    assert_eq!(understand_clarify(&one, "3"), None);
    assert_eq!(understand_clarify(&one, ""), Some(ClarifyAnswer::Skipped));
    let many = clarify(&["red", "blue", "green"], true);
    assert_eq!(understand_clarify(&many, "1, 3"), said("red, green"));
    assert_eq!(understand_clarify(&many, "1 4"), None);
    assert_eq!(understand_clarify(&clarify(&[], false), " 42 "), said("42"));
}

#[test]
fn a_question_of_the_model_shows_its_choices() {
    insta::assert_snapshot!(clarify_text(&clarify(&["red", "blue"], false), Style::default()), @r"
    Which one?
      1. red
      2. blue
      a number, or your own words; Enter alone leaves it open
    ");
}

#[test]
fn i23_who_cannot_answer_says_no() {
    assert_eq!(
        refused(&Question::Approval(request()), false).answer,
        Answer::Approval(ApprovalAnswer::Deny { reason: String::new() })
    );
    let question = Question::Clarify { id: "q".into(), questions: vec![clarify(&[], false); 2] };
    assert_eq!(refused(&question, false).answer, Answer::Clarify(vec![ClarifyAnswer::Unanswered; 2]));
}
