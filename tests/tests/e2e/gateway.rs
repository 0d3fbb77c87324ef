//! The program that serves clients: what it looks after while they are busy with other things.

use std::process::Stdio;
use std::time::{Duration, Instant};

use hermes_store::sqlite::{SqliteOptions, SqliteStore};
use hermes_store::{HostClock, IndexState, SearchStore as _};
use hermes_tests::home::{Home, finish, hermes};
use hermes_tests::server::ModelServer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Longest wait for an answer or for the index, in seconds; far above what a test needs.
const COMES_MAX_S: u64 = 60;
/// A shutdown with nothing at work takes no longer, in seconds, on a machine that is busy.
const SHUTDOWN_MAX_S: u64 = 20;

/// A running `hermes-gateway`, spoken to by lines.
pub struct Gateway {
    pub child: Child,
    pub input: ChildStdin,
    pub output: Lines<BufReader<ChildStdout>>,
    id: u64,
}

impl Gateway {
    pub fn start(home: &Home) -> Self {
        let mut child = Command::new(hermes().unwrap().with_file_name("hermes-gateway"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("HERMES_HOME", home.path())
            .env("HERMES_LOCAL_PORTS", "off")
            .current_dir(home.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("`hermes-gateway` is built beside the tests");
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output, id: 0 }
    }

    /// Sends a request and waits for its result.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        self.input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let answer = async {
            loop {
                let line = self.output.next_line().await.unwrap().expect("the gateway ended");
                let line: Value = serde_json::from_str(&line).unwrap();
                if line["id"] == json!(self.id) {
                    assert!(line["error"].is_null(), "{method}: {line}");
                    return line["result"]["value"].clone();
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(COMES_MAX_S), answer).await.expect("no answer came")
    }
}

#[tokio::test]
async fn a_gateway_indexes_what_was_said_by_itself_and_ends_at_once() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let mut gateway = Gateway::start(&home);
    let sent = gateway.call("prompt/submit", json!({"text": "RUN_TOOLS 2 pomegranate"})).await;
    let turn = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    assert_eq!(turn["reason"], "answered", "{turn}");

    // A look from outside, which indexes nothing itself; no search and no reindex was asked for.
    let mut options = SqliteOptions::new(home.path().join("hermes.db"), std::sync::Arc::new(HostClock::new()));
    options.create = false;
    let outside = SqliteStore::open(options).await.unwrap();
    let indexed = async {
        loop {
            let status = outside.index_status().await.unwrap();
            if status.state == IndexState::Ready && status.pending == 0 && status.rows > 0 {
                return status.rows;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let rows = tokio::time::timeout(Duration::from_secs(COMES_MAX_S), indexed).await.expect("nothing was indexed");
    // The input, two rounds with a result each, the answer.
    assert!(rows >= 4, "{rows}");
    outside.close().await;

    let found = gateway.call("session/search", json!({"query": "pomegranate"})).await;
    assert_eq!((&found["pending"], &found["index"]), (&json!(0), &json!("ready")), "{found}");
    assert_eq!(found["hits"][0]["conversation"], sent["receipt"]["conversation"], "{found}");
    // Several words need no quotes, and what stands behind them is no word.
    let words = ["sessions", "search", "neverseen", "OR", "pomegranate", "--limit", "5"];
    let cli = home.run(&words).await.unwrap();
    assert!(cli.code == Some(0) && cli.stdout.contains("pomegranate"), "{cli:?}");

    // Its tasks wait for minutes; the end of its input ends them at once.
    let Gateway { child, input, output, .. } = gateway;
    let begun = Instant::now();
    drop((input, output));
    let run = finish(child).await.unwrap();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(begun.elapsed() < Duration::from_secs(SHUTDOWN_MAX_S), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_gateway_gives_a_title_behind_the_answer_and_shortens_a_session_on_request() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let mut gateway = Gateway::start(&home);
    let sent = gateway.call("prompt/submit", json!({"text": "hello there"})).await;
    let conversation = sent["receipt"]["conversation"].clone();
    let turn = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    assert_eq!(turn["answer"], "ok, short answer", "{turn}");
    let titled = async {
        loop {
            let list = gateway.call("session/list", json!({})).await;
            if let Some(title) = list[0]["title"].as_str() {
                return (title.to_owned(), list[0]["title_source"].clone());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let titled = tokio::time::timeout(Duration::from_secs(COMES_MAX_S), titled).await.expect("no title came");
    assert_eq!(titled, ("ok, short answer".to_owned(), json!("model")));

    for _ in 0..4 {
        let params = json!({"conversation": conversation, "text": "LONG 7000"});
        let sent = gateway.call("prompt/submit", params).await;
        let turn = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
        assert_eq!(turn["reason"], "answered", "{turn}");
    }
    let done = gateway.call("session/compress", json!({"conversation": conversation, "focus": "the numbers"})).await;
    assert!(done["after"].as_u64().unwrap() < done["before"].as_u64().unwrap(), "{done}");
    let asked = String::from_utf8(server.seen().pop().unwrap().body).unwrap();
    assert!(asked.contains("Give most of the room to this: the numbers"), "{}", asked.len());
    let shown = gateway.call("session/show", json!({"conversation": conversation})).await;
    assert_eq!(shown["session"]["title"], "ok, short answer");
    let tasks: Vec<&str> = shown["usage"].as_array().unwrap().iter().filter_map(|sums| sums["task"].as_str()).collect();
    assert!(tasks.contains(&"title_generation") && tasks.contains(&"compression"), "{tasks:?}");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
}

#[tokio::test]
async fn i24_each_task_has_its_own_server_and_key_and_a_judge_spares_the_question() {
    let (main, judge, titles) = (ModelServer::start(), ModelServer::start(), ModelServer::start());
    let (main, judge, titles) = (main.await.unwrap(), judge.await.unwrap(), titles.await.unwrap());
    let home = Home::empty().unwrap();
    let yaml = format!(
        "model: {{provider: custom, base_url: \"{}\", default: fake-model, api_key: test-key-1}}
auxiliary:
  approval: {{base_url: \"{}\", model: judge-model, api_key: test-key-2, timeout: 60}}
  title_generation: {{base_url: \"{}\", model: title-model, api_key: test-key-3, timeout: 60}}
",
        main.base_url(),
        judge.base_url(),
        titles.base_url()
    );
    home.configure(&yaml).unwrap();
    std::fs::create_dir(home.work().join("gone")).unwrap();
    let mut gateway = Gateway::start(&home);
    let text = "CMD{rm -r gone && echo SAY{APPROVE}SAY > done}CMD";
    let sent = gateway.call("prompt/submit", json!({"text": text})).await;
    let turn = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    assert_eq!(turn["reason"], "answered", "{turn}");
    assert!(!home.work().join("gone").exists() && home.work().join("done").exists(), "it did not run: {turn}");

    let titled = async {
        while titles.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(COMES_MAX_S), titled).await.expect("no title was asked for");
    for (server, model, key) in [
        (&main, "fake-model", "test-key-1"),
        (&judge, "judge-model", "test-key-2"),
        (&titles, "title-model", "test-key-3"),
    ] {
        for seen in server.seen() {
            let body: Value = serde_json::from_slice(&seen.body).unwrap();
            assert_eq!(body["model"], model);
            assert_eq!(seen.authorization, Some(format!("Bearer {key}")), "{model}");
        }
    }
    assert_eq!((main.seen().len(), judge.seen().len()), (2, 1), "the judge was asked once, at its own server");
    let asked = String::from_utf8(judge.seen()[0].body.clone()).unwrap();
    assert!(asked.contains("<call>") && asked.contains("rm -r gone"), "{asked}");
    let params = json!({"conversation": sent["receipt"]["conversation"]});
    let shown = gateway.call("session/show", params).await;
    let tasks: Vec<&str> = shown["usage"].as_array().unwrap().iter().filter_map(|sums| sums["task"].as_str()).collect();
    assert!(tasks.contains(&"approval"), "{tasks:?}");
    // The key of a task is in the file, and nowhere that a client sees.
    let told = home.run(&["config", "show"]).await.unwrap();
    assert!(told.stdout.contains("auxiliary.approval.api_key") && !told.stdout.contains("test-key-2"), "{told:?}");
}

#[tokio::test]
async fn a_gateway_gives_tasks_to_children_and_brings_what_was_done_in_the_background() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let mut gateway = Gateway::start(&home);
    let effect = home.file("effect");
    let goal = format!("CMD{{echo child >> {}}}CMD", effect.display());
    let call = json!({"tasks": [{"goal": goal}, {"goal": "look around"}]});
    let sent = gateway.call("prompt/submit", json!({"text": format!("ASK{{delegate_task {call}}}ASK")})).await;
    let turn = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    assert_eq!((&turn["reason"], &turn["answer"]), (&json!("answered"), &json!("done")), "{turn}");
    assert_eq!(hermes_tests::home::lines(&effect), ["child"], "once, and not by the parent");
    let params = json!({"conversation": sent["receipt"]["conversation"]});
    let shown = gateway.call("session/show", params.clone()).await.to_string();
    assert!(shown.contains("ok, short answer") && shown.contains("completed"), "{shown}");

    let call = json!({"goal": "look around", "background": true});
    let text = format!("ASK{{delegate_task {call}}}ASK");
    let sent =
        gateway.call("prompt/submit", json!({"text": text, "conversation": sent["receipt"]["conversation"]})).await;
    let turn = gateway.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    assert_eq!(turn["reason"], "answered", "{turn}");
    let brought = async {
        loop {
            let shown = gateway.call("session/show", params.clone()).await.to_string();
            // The news is an input, and the parent has answered it.
            if let Some((_, after)) = shown.rsplit_once("a task that you gave away in the background")
                && after.contains("\"assistant\"")
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(COMES_MAX_S), brought).await.expect("no result was brought");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
}

/// A call of `delegate_task` whose child is slow. The blank is escaped, so that the parent is not slow too.
fn slow_child(background: bool) -> String {
    let background = if background { ", \"background\": true" } else { "" };
    format!("ASK{{delegate_task {{\"goal\": \"look SLOW\\u00201500\"{background}}}}}ASK")
}

/// Waits until a child has asked its model.
async fn child_asks(server: &ModelServer) {
    let asks = |body: &[u8]| String::from_utf8_lossy(body).contains("Task:\\nlook SLOW 1500");
    let asked = async {
        while !server.seen().iter().any(|seen| asks(&seen.body)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(COMES_MAX_S), asked).await.expect("no child asked its model");
}

#[tokio::test]
async fn i14_kill_9_of_a_gateway_costs_neither_a_child_nor_its_report() {
    for background in [false, true] {
        let server = ModelServer::start().await.unwrap();
        let home = Home::with_server(&server.base_url()).unwrap();
        let mut gateway = Gateway::start(&home);
        let sent = gateway.call("prompt/submit", json!({"text": slow_child(background)})).await;
        let conversation = sent["receipt"]["conversation"].clone();
        child_asks(&server).await;
        gateway.child.kill().await.unwrap();

        let mut gateway = Gateway::start(&home);
        let params = json!({"conversation": conversation});
        if !background {
            let turn = gateway.call("turn/resume", params.clone()).await;
            assert_eq!((&turn["reason"], &turn["answer"]), (&json!("answered"), &json!("done")), "{turn}");
        }
        let marker = if background { "a task that you gave away in the background" } else { "completed" };
        let brought = async {
            loop {
                let shown = gateway.call("session/show", params.clone()).await.to_string();
                if shown.contains(marker) {
                    return shown;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let shown = tokio::time::timeout(Duration::from_secs(COMES_MAX_S), brought).await.expect("no report came");
        assert_eq!(shown.matches(marker).count(), 1, "{shown}");
        assert!(shown.contains("ok, short answer"), "{shown}");
    }
}
