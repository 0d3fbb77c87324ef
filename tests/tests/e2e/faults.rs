//! Each fault of a provider ends as its user would want.

use hermes_tests::home::{Home, Run};
use hermes_tests::server::ModelServer;

async fn run(prompt: &str) -> (Run, usize) {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let yaml = format!(
        "model: {{provider: mine, default: fake-model}}\nproviders:\n  mine: {{base_url: \"{}\", api_key: test-key-1, stale_timeout_seconds: 2}}\napprovals: {{mode: \"off\"}}\n",
        server.base_url()
    );
    home.configure(&yaml).unwrap();
    let run = home.run(&["-z", prompt]).await.unwrap();
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
    // Whatever happened, the session can go on.
    let next = home.run(&["-c", "-z", "hello"]).await.unwrap();
    assert_eq!((next.code, next.stdout.trim()), (Some(0), "ok, short answer"), "after {prompt}: {next:?}");
    (run, server.seen().len() - 1)
}

async fn recovers(prompt: &str, requests: usize) {
    let (run, seen) = run(prompt).await;
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "ok, short answer"), "{prompt}: {run:?}");
    assert_eq!(seen, requests, "{prompt}");
}

async fn ends(prompt: &str, requests: usize, code: &str) {
    let (run, seen) = run(prompt).await;
    assert_eq!(run.code, Some(1), "{prompt}: {run:?}");
    assert!(run.stderr.contains(code), "{prompt}: {run:?}");
    assert!(run.stdout.trim().is_empty(), "{prompt}: {run:?}");
    assert_eq!(seen, requests, "{prompt}");
}

#[tokio::test]
async fn a_rate_limit_is_waited_out() {
    recovers("F429 #1", 2).await;
}

#[tokio::test]
async fn a_server_error_is_tried_again() {
    recovers("F500 #2", 2).await;
}

#[tokio::test]
async fn an_overloaded_server_is_tried_again() {
    recovers("F503 #3", 2).await;
}

#[tokio::test]
async fn a_cut_stream_is_asked_again_and_the_answer_is_whole() {
    recovers("FCUT #4", 2).await;
}

#[tokio::test]
async fn a_hanging_server_is_given_up_after_the_configured_time_and_asked_again() {
    recovers("FHANG #5", 2).await;
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    recovers("SLOW 1200 #12", 1).await;
}

#[tokio::test]
async fn an_empty_answer_is_asked_again() {
    recovers("FEMPTY #6", 2).await;
}

#[tokio::test]
async fn empty_answers_for_ever_are_an_error_and_not_an_empty_success() {
    ends("FEMPTY 99 #7", 4, "HM2009").await;
}

#[tokio::test]
async fn a_refused_key_ends_at_once_and_says_so() {
    ends("FAUTH 99 #8", 1, "HM2001").await;
}

#[tokio::test]
async fn an_input_that_does_not_fit_ends_with_what_to_do() {
    ends("FCTX 99 #9", 1, "HM2010").await;
}

#[tokio::test]
async fn arguments_that_are_not_json_are_asked_again_and_nothing_runs_twice() {
    let (run, seen) = run("RUN_TOOLS 1 FBADJSON #10").await;
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "done"), "{run:?}");
    assert_eq!(seen, 3);
}

#[tokio::test]
async fn a_fault_in_the_middle_of_a_turn_keeps_what_was_done() {
    let (run, seen) = run("RUN_TOOLS 3 F500 1 FAT 2 #11").await;
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "done"), "{run:?}");
    assert_eq!(seen, 5);
}

/// A server that refuses every key, and counts who came.
async fn refuses() -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>, tokio::task::JoinHandle<()>) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let task = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 65_536];
            if socket.read(&mut head).await.unwrap_or(0) == 0 {
                continue;
            }
            count.fetch_add(1, Ordering::SeqCst);
            let body = r#"{"error":{"message":"bad key","code":"invalid_api_key"}}"#;
            let answer = format!(
                "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (url, asked, task)
}

#[tokio::test]
async fn a_model_of_fallback_providers_stands_in_and_the_session_stays_the_chosen_model_s() {
    let (refusing, asked, task) = refuses().await;
    let server = ModelServer::start().await.unwrap();
    let home = Home::empty().unwrap();
    home.configure(&format!(
        "model: {{provider: custom, base_url: \"{refusing}\", default: chosen-model, api_key: test-key-1}}\n\
         fallback_providers:\n  - {{provider: custom, base_url: \"{}\", model: stand-in, api_key: test-key-2}}\n\
         approvals: {{mode: \"off\"}}\n",
        server.base_url()
    ))
    .unwrap();
    let run = home.run(&["-z", "hello"]).await.unwrap();
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "ok, short answer"), "{run:?}");
    assert_eq!((asked.load(std::sync::atomic::Ordering::SeqCst), server.seen().len()), (1, 1));
    let list = home.run(&["sessions", "list", "--json"]).await.unwrap().stdout;
    assert!(list.contains("chosen-model") && !list.contains("stand-in"), "{list}");
    let told = home.run(&["model"]).await.unwrap().stdout;
    assert!(told.contains("fallback") && told.contains("stand-in") && !told.contains("test-key"), "{told}");
    task.abort();
}
