//! Session commands against a scripted gateway.

use hermes_gateway::protocol::{
    AdmissionId, AdmissionStatus, ConversationId, Generation, Receipt, Row, RpcError, SessionId,
    SessionResolveResponse, SessionShowResponse, Shortened, TurnId, UnknownCall, UnknownInput,
};

use super::*;
use crate::args::SessionArgs;
use crate::render::lists::tests::summary;
use crate::terminal::Terminal;
use crate::testing::{Scripted, now};

fn context() -> Context {
    Context { session: SessionArgs::default(), json: false, profile: None, terminal: Terminal::none() }
}

/// A gateway with one session of this many rows.
fn gateway(rows: usize) -> (Scripted, Link) {
    Scripted::link(move |request, _| match request {
        Request::SessionResolve(params) if params.name.as_deref() == Some("c1") => {
            now(Response::SessionResolved(SessionResolveResponse { session: summary("c1", Some("Old")), note: None }))
        }
        Request::SessionResolve(_) => Box::pin(async {
            Err(RpcError { code: "HM1003".into(), message: "there is no such session".into(), usage: true })
        }),
        Request::SessionShow(params) => {
            let first = usize::try_from(params.after_seq).unwrap() + 1;
            let last = rows.min(first + EXPORT_PAGE_ROWS - 1);
            now(Response::Session(Box::new(SessionShowResponse {
                session: summary("c1", Some("Old")),
                rows: (first..=last).map(row).collect(),
                usage: vec![],
                costs: vec![],
            })))
        }
        Request::SessionRename(params) => now(Response::Renamed { title: params.title }),
        Request::SessionCompress(_) => now(Response::Compressed(Shortened {
            session: SessionId::parse("c1-2").unwrap(),
            before: 9_000,
            after: 1_200,
            rows: 14,
        })),
        Request::SessionUnknown(_) => now(Response::Unknown(vec![UnknownInput {
            admission: AdmissionId::parse("a1").unwrap(),
            generation: Generation(7),
            turn: TurnId::parse("t1").unwrap(),
            text: "transfer it".into(),
            calls: vec![UnknownCall { name: "terminal".into(), arguments: "{}".into(), was_begun: true }],
        }])),
        Request::SessionDecide(_) => now(Response::Decided(Receipt {
            admission: AdmissionId::parse("a1").unwrap(),
            conversation: ConversationId::parse("c1").unwrap(),
            seq: 1,
            status: AdmissionStatus::Terminal,
            outcome: None,
            generation: Some(Generation(7)),
            turn: None,
        })),
        Request::SessionList(_) => now(Response::Sessions(vec![summary("c1", Some("Old"))])),
        _ => now(Response::Deleted),
    })
}

fn row(seq: usize) -> Row {
    Row {
        seq: i64::try_from(seq).unwrap(),
        id: format!("m{seq}"),
        role: "user".into(),
        kind: "normal".into(),
        content: "x".into(),
        calls: vec![],
        tool: None,
        outcome: None,
        call: None,
        created_at_ms: 0,
    }
}

async fn execute_text(what: What, rows: usize) -> (Result<Exit, Fault>, String, Vec<Request>) {
    let (script, mut link) = gateway(rows);
    let mut out = Vec::new();
    let exit = execute(what, &mut link, &context(), &mut out).await;
    (exit, String::from_utf8(out).unwrap(), script.requests())
}

#[tokio::test]
async fn a_long_session_is_exported_page_by_page_whole_and_once() {
    let rows = 2 * EXPORT_PAGE_ROWS + 5;
    let what = What::Export { name: Some("c1".into()), all: false, format: Format::Md, output: None };
    let (exit, text, requests) = execute_text(what, rows).await;
    assert_eq!(exit.unwrap(), Exit::Answered);
    assert_eq!(requests.iter().filter(|request| matches!(request, Request::SessionShow(_))).count(), 3);
    assert_eq!(text.lines().filter(|line| line.starts_with("## ")).count(), rows);
}

#[tokio::test]
async fn an_export_never_overwrites_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.md");
    let export =
        || What::Export { name: Some("c1".into()), all: false, format: Format::Md, output: Some(path.clone()) };
    assert_eq!(execute_text(export(), 1).await.0.unwrap(), Exit::Answered);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# Old\n"));
    let fault = execute_text(export(), 2).await.0.unwrap_err();
    assert_eq!(fault.exit(), Exit::Usage);
    assert!(fault.message().unwrap().contains("name another file with -o"), "{fault:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn deleting_with_yes_deletes_what_was_resolved() {
    let (exit, text, requests) = execute_text(What::Delete { name: "c1".into(), yes: true }, 0).await;
    assert_eq!((exit.unwrap(), text.as_str()), (Exit::Answered, "Deleted c1\n"));
    let conversation = ConversationId::parse("c1").unwrap();
    assert!(requests.contains(&Request::SessionDelete(SessionRefParams { conversation })));
}

#[tokio::test]
async fn a_compression_says_what_it_brought_and_carries_its_focus() {
    let what = What::Compress { name: "c1".into(), focus: Some("the numbers".into()) };
    let (exit, text, requests) = execute_text(what, 0).await;
    assert_eq!((exit.unwrap(), text.as_str()), (Exit::Answered, "About 9000 tokens are now 1200 (14 rows).\n"));
    let conversation = ConversationId::parse("c1").unwrap();
    let params = SessionCompressParams { conversation, focus: Some("the numbers".into()) };
    assert!(requests.contains(&Request::SessionCompress(params)));
}

#[tokio::test]
async fn s13_a_decision_is_about_exactly_what_was_shown() {
    let shown = What::Decide { name: "c1".into(), decision: None };
    let (exit, text, requests) = execute_text(shown, 0).await;
    assert_eq!(exit.unwrap(), Exit::Answered);
    assert!(text.contains("transfer it") && text.contains("terminal {}: may have had an effect"), "{text}");
    assert!(!requests.iter().any(|request| matches!(request, Request::SessionDecide(_))));
    let decided = What::Decide { name: "c1".into(), decision: Some(Decided::GivenUp) };
    let (_, text, requests) = execute_text(decided, 0).await;
    assert_eq!(text, "Decided. The session goes on.\n");
    let admission = AdmissionId::parse("a1").unwrap();
    let params = SessionDecideParams { admission, generation: Generation(7), decision: Decision::GivenUp };
    assert!(requests.contains(&Request::SessionDecide(params)));
}

#[test]
fn deleting_without_a_terminal_needs_yes() {
    let args = Args { what: What::Delete { name: "c1".into(), yes: false } };
    assert_eq!(run(args, &context()).unwrap_err().exit(), Exit::Usage);
}

fn no_filter() -> SearchArgs {
    SearchArgs {
        limit: 20,
        session: None,
        source: None,
        role: None,
        days: None,
        archived: false,
        children: false,
        sort: Sort::Newest,
        context: false,
        after: None,
    }
}

fn search_args(text: &str, change: impl FnOnce(&mut SearchArgs)) -> Vec<String> {
    let mut filter = no_filter();
    change(&mut filter);
    filter.tries(text)
}

#[test]
fn an_empty_search_says_so_and_what_to_try() {
    let page = |hits: &str, next: &str| -> SearchPage {
        serde_json::from_str(&format!(r#"{{"hits":[{hits}],"next":{next},"index":"ready","pending":0}}"#)).unwrap()
    };
    let empty = page("", "null");
    assert_eq!(
        nothing_found(&empty, &search_args("two words", |_| {})).unwrap(),
        "Nothing was found. Try: fewer words, or OR between them (all must stand in one row); the beginning or a part \
         of a word ('pre*', '*part*'); --archived; --children."
    );
    let narrow = search_args("*part*", |filter| {
        filter.archived = true;
        filter.children = true;
        filter.role = Some(Speaker::Tool);
        filter.days = Some(3);
    });
    assert_eq!(nothing_found(&empty, &narrow).unwrap(), "Nothing was found. Try: leave out --role and --days.");
    // A page that looked at many rows is not the end.
    assert!(nothing_found(&page("", r#""x""#), &[]).unwrap().contains("--after"));
    let hit = r#"{"conversation":"c1","title":null,"message":"m1","seq":1,"role":"user","snippet":"x","created_at_ms":0,"before":null,"after":null}"#;
    assert_eq!(nothing_found(&page(hit, "null"), &[]), None);
}

#[tokio::test]
async fn a_search_for_nothing_is_wrong_use() {
    let nothing = What::Search { text: vec![" ".into()], filter: no_filter(), json: true };
    let (exit, _, requests) = execute_text(nothing, 0).await;
    assert_eq!((exit.unwrap_err().exit(), requests.len()), (Exit::Usage, 0));
}

#[tokio::test]
async fn an_unknown_session_is_wrong_use() {
    let (exit, _, _) = execute_text(What::Show { name: "nope".into(), json: false }, 0).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::Usage);
}

#[tokio::test]
async fn json_lists_are_one_object_on_each_line() {
    let (_, text, _) = execute_text(What::List { limit: 5, archived: false, json: true }, 0).await;
    let value: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(value["id"], "c1");
}
