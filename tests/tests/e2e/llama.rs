//! The server that this program runs itself: begun, shared, grown, begun anew and ended by the real gateway.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_tests::home::{Home, finish, lines};
use serde_json::{Value, json};

use crate::gateway::Gateway;

/// The executable that speaks as a `llama-server` does.
const PROGRAM: &str = env!("CARGO_BIN_EXE_llama_server");
/// How long a process may take to go; far above what any test needs.
const GONE_MAX: Duration = Duration::from_secs(60);
/// The window at the start, in tokens.
const WINDOW: u64 = 16_384;

/// A home whose model is run by the program.
struct Own {
    home: Home,
}

impl Own {
    /// `more` are further lines of `llama_server`.
    fn new(args: &str, more: &str) -> Self {
        let own = Self { home: Home::empty().unwrap() };
        std::fs::write(own.home.path().join("tiny.gguf"), "no weights").unwrap();
        let log = own.log();
        let yaml = format!(
            "model: {{provider: llama-server}}
approvals: {{mode: \"off\"}}
toolsets: [terminal]
auxiliary: {{title_generation: {{enabled: false}}}}
llama_server:
  program: {PROGRAM}
  model_file: tiny.gguf
  context_length: {WINDOW}
  args: [--log, '{}'{args}]
{more}",
            log.display()
        );
        own.home.configure(&yaml).unwrap();
        own
    }

    fn log(&self) -> PathBuf {
        self.home.work().join("starts")
    }

    /// Process and window of each start so far.
    fn starts(&self) -> Vec<(u32, u64)> {
        let number = |text: &str| text.parse::<u64>().unwrap();
        let lines = lines(&self.log()).into_iter();
        let pairs =
            lines.map(|line| line.split_once(' ').map(|(pid, context)| (number(pid), number(context))).unwrap());
        pairs.map(|(pid, context)| (u32::try_from(pid).unwrap(), context)).collect()
    }

    fn pid(&self) -> u32 {
        self.starts().last().expect("nothing was started").0
    }
}

fn is_there(pid: u32) -> bool {
    // A process that ended and was not waited for by its parent is gone for our purposes.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if Path::new("/proc/self/stat").exists() {
        return stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'));
    }
    std::process::Command::new("kill").args(["-0", &pid.to_string()]).status().unwrap().success()
}

async fn gone(pid: u32) {
    let wait = async {
        while is_there(pid) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(GONE_MAX, wait).await.expect("the server is still there");
}

fn kill(pid: u32) {
    assert!(std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// One turn; its conversation and its result.
async fn turn(gateway: &mut Gateway, conversation: Option<&Value>, text: &str) -> (Value, Value) {
    let sent = gateway.call("prompt/submit", json!({"conversation": conversation, "text": text})).await;
    let ended = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    (sent["receipt"]["conversation"].clone(), ended)
}

#[tokio::test]
async fn one_server_serves_all_conversations_is_grown_before_a_history_is_shortened_and_ends_with_the_gateway() {
    let own = Own::new("", "  max_context_length: 32768\n");
    let mut gateway = Gateway::start(&own.home);
    let (first, ended) = turn(&mut gateway, None, "hello").await;
    assert_eq!(ended["answer"], "ok, short answer", "{ended}");
    assert_eq!(ended["model"], "llama-server/tiny");
    let (_, ended) = turn(&mut gateway, None, "hello, you too").await;
    assert_eq!(ended["reason"], "answered", "{ended}");
    let starts = own.starts();
    assert_eq!(starts.iter().map(|(_, window)| *window).collect::<Vec<_>>(), [WINDOW], "one process");

    // Each answer is about 4,000 tokens: the fourth one leaves no room for a fifth.
    let mut told = Vec::new();
    for _ in 0..5 {
        let place = gateway.call("session/events", json!({"conversation": first})).await["until"].clone();
        let (_, ended) = turn(&mut gateway, Some(&first), "LONG 2000").await;
        assert_eq!(ended["reason"], "answered", "{ended}");
        let events = gateway.call("session/events", json!({"conversation": first, "after": place})).await;
        told.extend(events["events"].as_array().unwrap().iter().cloned());
    }
    let of = |kind: &str| told.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>();
    let [grown] = &of("window_grown")[..] else { panic!("grown once: {told:?}") };
    assert_eq!((&grown["before"], &grown["after"]), (&json!(WINDOW), &json!(32_768)));
    assert!(of("compressed").is_empty() && of("prefix_broken").is_empty(), "{told:?}");
    assert_eq!(own.starts().iter().map(|(_, window)| *window).collect::<Vec<_>>(), [WINDOW, 32_768]);
    assert!(!is_there(starts[0].0), "the small one is gone");

    // At its limit the history is shortened as ever.
    let place = gateway.call("session/events", json!({"conversation": first})).await["until"].clone();
    for _ in 0..5 {
        let (_, ended) = turn(&mut gateway, Some(&first), "LONG 2000").await;
        assert_eq!(ended["reason"], "answered", "{ended}");
    }
    let events = gateway.call("session/events", json!({"conversation": first, "after": place})).await;
    let kinds: Vec<&str> =
        events["events"].as_array().unwrap().iter().filter_map(|event| event["type"].as_str()).collect();
    assert!(kinds.contains(&"compressed") && !kinds.contains(&"window_growing"), "{kinds:?}");

    let pid = own.pid();
    let Gateway { child, input, output, .. } = gateway;
    drop(input);
    let run = finish(child).await.unwrap();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    // Until now: what a gateway still says to a client that is gone is an error of its own.
    drop(output);
    assert!(!is_there(pid), "an orderly end waits for the server");
}

#[tokio::test]
async fn a_window_that_does_not_fit_is_told_of_and_the_history_is_shortened() {
    let own = Own::new(", --breaks-above, '20000'", "  max_context_length: 32768\n");
    let mut gateway = Gateway::start(&own.home);
    let (first, _) = turn(&mut gateway, None, "hello").await;
    let place = gateway.call("session/events", json!({"conversation": first})).await["until"].clone();
    for _ in 0..5 {
        let (_, ended) = turn(&mut gateway, Some(&first), "LONG 2000").await;
        assert_eq!(ended["reason"], "answered", "{ended}");
    }
    let events = gateway.call("session/events", json!({"conversation": first, "after": place})).await;
    let text = events.to_string();
    assert!(text.contains("out of memory for 32768 tokens") && text.contains("\"compressed\""), "{text}");
    assert_eq!(
        own.starts().iter().map(|(_, window)| *window).collect::<Vec<_>>(),
        [WINDOW, WINDOW],
        "the old one again"
    );
}

#[tokio::test]
async fn no_server_outlives_a_gateway_that_is_killed() {
    let own = Own::new("", "");
    let mut gateway = Gateway::start(&own.home);
    let (_, ended) = turn(&mut gateway, None, "hello").await;
    assert_eq!(ended["reason"], "answered", "{ended}");
    let pid = own.pid();
    assert!(is_there(pid));
    gateway.child.start_kill().unwrap();
    gateway.child.wait().await.unwrap();
    gone(pid).await;
}

#[tokio::test]
async fn a_server_that_died_is_begun_anew_within_the_turn() {
    let own = Own::new("", "");
    let mut gateway = Gateway::start(&own.home);
    let (first, _) = turn(&mut gateway, None, "hello").await;
    kill(own.pid());
    gone(own.pid()).await;
    let (_, ended) = turn(&mut gateway, Some(&first), "and now?").await;
    assert_eq!(ended["reason"], "answered", "{ended}");
    // In the middle of an answer.
    let sent = gateway.call("prompt/submit", json!({"conversation": first, "text": "SLOW 1500 go on"})).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    kill(own.pid());
    let ended = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    assert_eq!(ended["reason"], "answered", "{ended}");
    assert_eq!(own.starts().len(), 3);
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why_in_its_own_words() {
    let own = Own::new(", --breaks-above, '1'", "");
    let run = own.home.run(&["-z", "hello"]).await.unwrap();
    assert_ne!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("HM2031") && run.stderr.contains("out of memory for 16384"), "{run:?}");
}

#[tokio::test]
async fn what_is_told_of_it_is_what_is_set_up() {
    let own = Own::new("", "  max_context_length: 32768\n");
    let run = own.home.run(&["providers", "show", "llama-server"]).await.unwrap();
    for part in [PROGRAM, "home/tiny.gguf", "16384 tokens, grown to 32768 at most", "config.yaml, line 7"] {
        assert!(run.stdout.contains(part), "{part}: {run:?}");
    }
    assert!(!run.stdout.contains("not ready"), "{run:?}");
    let run = own.home.run(&["doctor"]).await.unwrap();
    assert!(run.code == Some(0) && run.stdout.contains("tiny at llama-server"), "{run:?}");
    assert!(run.stdout.contains("it is started with the first request"), "{run:?}");
    let run = own.home.run(&["model"]).await.unwrap();
    assert!(run.stdout.contains("tiny") && run.stdout.contains("this computer, by a server"), "{run:?}");
    assert!(own.starts().is_empty(), "nobody has asked it anything");

    std::fs::remove_file(own.home.path().join("tiny.gguf")).unwrap();
    let run = own.home.run(&["doctor"]).await.unwrap();
    assert!(run.code == Some(1) && run.stdout.contains("llama_server.model_file) is no file"), "{run:?}");
    let run = own.home.run(&["providers", "show", "llama-server"]).await.unwrap();
    assert!(run.stdout.contains("not ready") && run.stdout.contains("is no file"), "{run:?}");
    own.home.configure("model: {provider: llama-server}\n").unwrap();
    let run = own.home.run(&["-z", "hello"]).await.unwrap();
    assert!(run.code == Some(2) && run.stderr.contains("HM0215"), "{run:?}");
}
