//! What exports look like.

use hermes_gateway::protocol::{ConversationId, RowCall};
use serde_json::Value;

use super::*;

fn session() -> ConversationSummary {
    ConversationSummary {
        id: ConversationId::parse("c1").unwrap(),
        tip: None,
        profile: "default".into(),
        source: "cli".into(),
        title: Some("Files\nhere".into()),
        title_source: None,
        provider: Some("practice".into()),
        model: Some("tiny".into()),
        cwd: None,
        messages: 2,
        preview: None,
        created_at_ms: 1_796_199_621_000,
        last_activity_ms: 1_796_199_621_000,
        pending: None,
        flags: Default::default(),
        ended_at_ms: None,
        branched_from: None,
    }
}

fn rows() -> Vec<Row> {
    let row = |role: &str, content: &str| Row {
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
    };
    let call = RowCall { call: "k1".into(), name: "read_file".into(), arguments: r#"{"path":"a"}"#.into() };
    vec![
        row("user", "show a"),
        Row { calls: vec![call], ..row("assistant", "Reading.") },
        Row { tool: Some("read_file".into()), outcome: Some("failed".into()), ..row("tool", "```\nfenced\n```\n") },
    ]
}

fn write(format: Format) -> String {
    let mut out = Vec::new();
    head(&mut out, format, &session(), &[]).unwrap();
    for one in rows() {
        row(&mut out, format, &one).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn json_lines_hold_the_session_and_then_its_rows() {
    let text = write(Format::Jsonl);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[0]["type"], &lines[0]["id"]), (&"session".into(), &"c1".into()));
    assert_eq!(lines[0]["format_version"], EXPORT_FORMAT_VERSION);
    for (line, row) in lines[1..].iter().zip(rows()) {
        assert_eq!(line["type"], "row");
        assert_eq!(serde_json::from_value::<Row>(line.clone()).unwrap(), row);
    }
}

#[test]
fn markdown_keeps_tool_output_inside_its_block() {
    insta::assert_snapshot!(write(Format::Md), @r#"
    # Files here

    - id: `c1`
    - model: tiny at practice
    - created: 2026-12-02T08:20:21Z
    - last activity: 2026-12-02T08:20:21Z

    ## user

    show a

    ## assistant

    Reading.

    Call of `read_file`:

    ```json
    {"path":"a"}
    ```

    ## tool read_file (failed)

    ````
    ```
    fenced
    ```
    ````
    "#);
}
