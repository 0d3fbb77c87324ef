//! Each fault of a provider ends as its user would want.

use hermes_providers::ApiMode;
use hermes_providers::fake::{FakeAnswer, FakeError, FakeErrorKind, FakeServer};
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

/// A server that answers each of these questions once.
async fn fake<const N: usize>(answers: [(&str, FakeAnswer); N]) -> FakeServer {
    let script = answers.into_iter().map(|(asked, answer)| (asked.to_owned(), vec![answer])).collect();
    FakeServer::start(script).await.unwrap()
}

/// A key that is refused.
fn refused() -> FakeAnswer {
    let message = "no such key".to_owned();
    let error = FakeError { kind: FakeErrorKind::Unauthorized, message, retry_after_s: None };
    FakeAnswer { error: Some(error), ..FakeAnswer::default() }
}

#[tokio::test]
async fn a_model_of_fallback_providers_stands_in_and_the_session_stays_the_chosen_model_s() {
    let chosen = fake([("hello", refused())]).await;
    let server = ModelServer::start().await.unwrap();
    let home = Home::empty().unwrap();
    home.configure(&format!(
        "model: {{provider: custom, base_url: \"{}\", default: chosen-model, api_key: test-key-1}}\n\
         fallback_providers:\n  - {{provider: custom, base_url: \"{}\", model: stand-in, api_key: test-key-2}}\n\
         approvals: {{mode: \"off\"}}\n",
        chosen.base_url(),
        server.base_url()
    ))
    .unwrap();
    let run = home.run(&["-z", "hello"]).await.unwrap();
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "ok, short answer"), "{run:?}");
    assert_eq!((chosen.seen().len(), server.seen().len()), (1, 1));
    let list = home.run(&["sessions", "list", "--json"]).await.unwrap().stdout;
    assert!(list.contains("chosen-model") && !list.contains("stand-in"), "{list}");
    let told = home.run(&["model"]).await.unwrap().stdout;
    assert!(told.contains("fallback") && told.contains("stand-in") && !told.contains("test-key"), "{told}");
}

#[tokio::test]
async fn b54_b55_a_stand_in_has_its_own_address_wire_and_key_and_nothing_private_of_the_chosen_model() {
    const PROOF: &str = "cHJvb2Ytb2YtdGhlLWNob3Nlbi1vbmU=";
    let first = FakeAnswer {
        reasoning: "thought".to_owned(),
        proof: PROOF.to_owned(),
        text: "the first answer".to_owned(),
        ..FakeAnswer::default()
    };
    let chosen = fake([("one", first), ("two", refused())]).await;
    let keyless = fake([("two", refused())]).await;
    let other = fake([("two", FakeAnswer { text: "the stand-in".to_owned(), ..FakeAnswer::default() })]).await;
    let home = Home::empty().unwrap();
    home.configure(&format!(
        "model: {{provider: custom, base_url: \"{}\", default: chosen-model, api_key: key-of-a, api_mode: responses}}\n\
         fallback_providers:\n  - {{provider: custom, base_url: \"{}\", model: keyless-model}}\n\
         \x20 - {{provider: gemini, base_url: \"{}\", model: gemini-2.5-flash, api_key: key-of-c}}\n\
         approvals: {{mode: \"off\"}}\n",
        chosen.base_url(),
        keyless.base_url(),
        other.base_url()
    ))
    .unwrap();
    let run = home.run(&["-z", "one"]).await.unwrap();
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "the first answer"), "{run:?}");
    let run = home.run(&["-c", "-z", "two"]).await.unwrap();
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "the stand-in"), "{run:?}");

    let all = |server: &FakeServer| server.seen().iter().map(|seen| format!("{seen:?}")).collect::<Vec<_>>();
    assert!(chosen.seen().iter().all(|seen| seen.mode == ApiMode::Responses));
    assert!(all(&chosen)[1].contains(PROOF), "the chosen model gets its own state back: {:?}", all(&chosen));
    let [seen] = &keyless.seen()[..] else { panic!("{:?}", all(&keyless)) };
    let is_key = |name: &str| matches!(name, "authorization" | "x-api-key" | "x-goog-api-key" | "api-key");
    assert!(!seen.headers.iter().any(|(name, _)| is_key(name)), "{:?}", seen.headers);
    let [seen] = &other.seen()[..] else { panic!("{:?}", all(&other)) };
    assert_eq!((seen.mode, seen.model.as_str()), (ApiMode::Gemini, "gemini-2.5-flash"));
    assert!(seen.headers.contains(&("x-goog-api-key".to_owned(), "key-of-c".to_owned())), "{:?}", seen.headers);
    for said in [all(&keyless), all(&other)].concat() {
        assert!(said.contains("the first answer") && !said.contains(PROOF) && !said.contains("key-of-a"), "{said}");
    }
}
