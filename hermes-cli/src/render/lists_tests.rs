//! What lists look like.

use hermes_gateway::protocol::{AdmissionStatus, ConversationId, Cost, MessageId, ProviderStatus, RowCall};

use super::*;

pub(crate) fn summary(id: &str, title: Option<&str>) -> ConversationSummary {
    ConversationSummary {
        id: ConversationId::parse(id).unwrap(),
        tip: None,
        profile: "default".into(),
        source: "cli".into(),
        title: title.map(str::to_owned),
        title_source: None,
        provider: Some("practice".into()),
        model: Some("tiny".into()),
        cwd: Some("/tmp/x".into()),
        messages: 4,
        preview: Some("run: echo hello".into()),
        created_at_ms: 1_796_199_621_000,
        last_activity_ms: 1_796_199_681_000,
        pending: None,
        flags: Default::default(),
        ended_at_ms: None,
        branched_from: None,
    }
}

#[test]
fn sessions_stand_in_columns() {
    let mut open = summary("c2", None);
    open.pending = Some(AdmissionStatus::Started);
    let mut away = summary("c3", None);
    away.flags.archived = true;
    away.flags.pinned = true;
    let mut kept = summary("c4", None);
    kept.flags.pinned = true;
    let list = [summary("c1-long-id", Some("The first \x1b[31mone")), open, away, kept];
    insta::assert_snapshot!(sessions(&list, Style::default(), 100), @r#"
    ID          LAST ACTIVITY     ROWS  STATE     TITLE OR FIRST WORDS
    c1-long-id  2026-12-02 08:21  4               The first ␛[31mone
    c2          2026-12-02 08:21  4     started   "run: echo hello"
    c3          2026-12-02 08:21  4     archived  "run: echo hello"
    c4          2026-12-02 08:21  4     pinned    "run: echo hello"
    "#);
    insta::assert_snapshot!(sessions(&[], Style::default(), 100), @"There are no sessions yet.");
}

fn row(role: &str, content: &str) -> Row {
    Row {
        seq: 1,
        id: "m1".into(),
        role: role.into(),
        kind: "normal".into(),
        content: content.into(),
        calls: vec![],
        tool: None,
        outcome: None,
        call: None,
        created_at_ms: 0,
    }
}

#[test]
fn a_session_is_shown_with_its_calls_and_their_ends() {
    let call = RowCall { call: "k1".into(), name: "terminal".into(), arguments: r#"{"command":"ls"}"#.into() };
    let shown = SessionShowResponse {
        session: summary("c1", Some("Files")),
        rows: vec![
            row("user", "list files\n"),
            Row { calls: vec![call], ..row("assistant", "") },
            Row { tool: Some("terminal".into()), outcome: Some("timed_out".into()), ..row("tool", "a\x1b[0m\nb") },
            Row { kind: "partial".into(), ..row("assistant", "Two fi") },
        ],
        usage: vec![UsageTotals {
            provider: "practice".into(),
            model: "tiny".into(),
            requests: 2,
            input: 30,
            output: 5,
            ..UsageTotals::default()
        }],
        costs: vec![Cost::Unknown],
    };
    insta::assert_snapshot!(session(&shown, Style::default()), @r#"
    Files
    id             c1
    model          tiny at practice
    directory      /tmp/x
    source         cli
    created        2026-12-02 08:20
    last activity  2026-12-02 08:21
    usage          tiny at practice: 2 requests, 30 tokens in, 5 out, 0 from cache, cost unknown

    user
    list files

    assistant
    → terminal {"command":"ls"}

    tool terminal (timed_out)
    a␛[0m
    b

    assistant (partial)
    Two fi
    "#);
}

#[test]
fn hits_show_where_they_are() {
    let hit = SearchHit {
        conversation: ConversationId::parse("c1").unwrap(),
        title: None,
        message: MessageId::parse("m1").unwrap(),
        seq: 3,
        role: "user".into(),
        snippet: "say >>>hello<<<\nthere".into(),
        created_at_ms: 0,
        before: None,
        after: None,
    };
    insta::assert_snapshot!(hits(std::slice::from_ref(&hit), Style::default(), 80), @r"
    c1  1970-01-01 00:00  user  (no title)
        say >>>hello<<< there
    ");
    assert!(hits(&[hit], Style { colour: true }, 80).contains("\x1b[1mhello\x1b[0m"));
    assert_eq!(hits(&[], Style::default(), 80), "");
}

#[test]
fn the_model_is_shown_with_why_and_never_with_its_key() {
    let status = ModelStatusResponse {
        provider: "practice".into(),
        model: "tiny".into(),
        base_url: String::new(),
        reason: "nothing else is set up".into(),
        key_source: "none needed".into(),
        fallbacks: Vec::new(),
        providers: vec![ProviderStatus {
            id: "openai".into(),
            name: "OpenAI".into(),
            env_keys: vec!["OPENAI_API_KEY".into()],
            ready: false,
        }],
    };
    insta::assert_snapshot!(model(&status, Style::default()), @r"
    model     tiny
    provider  practice
    address   (no network)
    key       none needed
    why       nothing else is set up

    PROVIDER  READY  NAME    KEY VARIABLES
    openai    no     OpenAI  OPENAI_API_KEY
    ");
}

#[test]
fn tools_and_checks_stand_in_columns() {
    let list = [
        ToolStatus {
            name: "read_file".into(),
            toolset: "file".into(),
            description: "Reads a file.".into(),
            enabled: true,
        },
        ToolStatus { name: "terminal".into(), toolset: "terminal".into(), description: "Runs.".into(), enabled: false },
    ];
    insta::assert_snapshot!(tools(&list, Style::default(), 80), @r"
    TOOL       TOOLSET   ENABLED  WHAT IT DOES
    read_file  file      yes      Reads a file.
    terminal   terminal  no       Runs.
    ");
    let list = [
        Check { name: "store".into(), state: CheckState::Ok, detail: "opens".into() },
        Check { name: "configuration".into(), state: CheckState::Failed, detail: "line 3\nremove the tab".into() },
        Check { name: "key".into(), state: CheckState::Note, detail: String::new() },
    ];
    insta::assert_snapshot!(checks(&list, Style::default()), @r"
    ok      store          opens
    failed  configuration  line 3
                           remove the tab
    note    key
    ");
}
