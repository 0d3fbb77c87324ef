//! What exports look like.

use hermes_gateway::protocol::{ConversationId, RowCall};

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
    head(&mut out, format, &session()).unwrap();
    for one in rows() {
        row(&mut out, format, &one).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_page_takes_nothing_for_markup() {
    let mut out = Vec::new();
    let hostile = ConversationSummary { title: Some("<script>alert(1)</script>".into()), ..session() };
    head(&mut out, Format::Html, &hostile).unwrap();
    let text = Row { content: "</pre><img src=x onerror='a()'> & \u{1b}[31m".into(), ..rows().swap_remove(0) };
    row(&mut out, Format::Html, &text).unwrap();
    tail(&mut out, Format::Html).unwrap();
    let page = String::from_utf8(out).unwrap();
    assert!(page.contains("&lt;/pre&gt;&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; \u{fffd}[31m"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{page}");
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
