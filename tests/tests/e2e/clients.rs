//! Several clients of one gateway over real sockets, and of several gateways over one store: they all see what is said into
//! a running turn, and one that comes back gets what it missed, or is told that it must read the transcript.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hermes_gateway::config::Env;
use hermes_gateway::protocol::{
    EndReason, EventKind, PromptSubmitParams, Replay, Request, Response, ServerMessage, SessionEventsParams,
    TurnWaitParams,
};
use hermes_gateway::{CLIENT_BACKLOG_MESSAGES, Gateway, Launch, Overrides, stdio};
use hermes_tests::home::{Home, hermes};
use hermes_tests::server::ModelServer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// Longest wait for something that must come, in seconds; far above what a test needs.
const COMES_MAX_S: u64 = 60;
/// Half of its answer comes, and then nothing.
const STALLS: &str = "count LONG 20 FSTALL";

/// A gateway in this process, on a socket of its own.
struct Served {
    home: Home,
    gateway: Arc<Gateway>,
    accepting: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Served {
    async fn start(server: &ModelServer) -> Self {
        let home = Home::with_server(&server.base_url()).unwrap();
        let vars = [("HERMES_HOME", home.path().display().to_string()), ("HERMES_LOCAL_PORTS", "off".to_owned())];
        let path = std::env::var("PATH").unwrap_or_default();
        let vars: BTreeMap<String, String> =
            vars.into_iter().chain([("PATH", path)]).map(|(name, value)| (name.to_owned(), value)).collect();
        let env = Env { vars, user_home: Some(home.path()), cwd: home.work() };
        let overrides =
            Overrides { attended: true, source: "gateway".into(), serves_all: true, ..Overrides::default() };
        let launch = Launch { env, profile: None, overrides, needs_model: true };
        let gateway = Arc::new(Gateway::start(launch).await.unwrap());
        let listener = UnixListener::bind(home.path().join("test.sock")).unwrap();
        let shared = gateway.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let mut client = shared.connect();
                connections.spawn(async move {
                    let caller = client.caller();
                    let (read, write) = stream.into_split();
                    // A client that goes away is part of the tests.
                    let _ = stdio::serve(&caller, &mut client, BufReader::new(read), write).await;
                });
            }
        });
        Self { home, gateway, accepting }
    }

    async fn connect(&self) -> Peer {
        let (read, write) = UnixStream::connect(self.home.path().join("test.sock")).await.unwrap().into_split();
        Peer::new(read, write)
    }
}

/// A client that speaks lines and keeps the events that it hears.
struct Peer {
    input: Box<dyn AsyncWrite + Unpin>,
    output: Lines<BufReader<Box<dyn AsyncRead + Unpin>>>,
    id: u64,
    heard: Vec<Value>,
}

impl Peer {
    fn new(read: impl AsyncRead + Unpin + 'static, write: impl AsyncWrite + Unpin + 'static) -> Self {
        let read: Box<dyn AsyncRead + Unpin> = Box::new(read);
        Self { input: Box::new(write), output: BufReader::new(read).lines(), id: 0, heard: Vec::new() }
    }

    async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(COMES_MAX_S), self.output.next_line());
        let line = line.await.expect("nothing came").unwrap().expect("the gateway ended");
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["method"] == "event" {
            self.heard.push(line["params"].clone());
        }
        line
    }

    /// Sends a request and waits for its result.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        self.input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        loop {
            let line = self.line().await;
            if line["id"] == json!(self.id) {
                assert!(line["error"].is_null(), "{method}: {line}");
                return line["result"]["value"].clone();
            }
        }
    }

    /// The first event of this type, heard already or to come.
    async fn hears(&mut self, kind: &str) -> Value {
        loop {
            if let Some(event) = self.heard.iter().find(|event| event["type"] == kind) {
                return event.clone();
            }
            self.line().await;
        }
    }

    /// The place of the newest event.
    fn place(&self) -> Value {
        self.heard.last().unwrap()["at"].clone()
    }
}

/// Texts of a conversation that people see, with their kind.
fn rows(shown: &Value) -> Vec<String> {
    let rows = shown["rows"].as_array().unwrap().iter();
    let short = |row: &Value| {
        let (role, kind) = (row["role"].as_str().unwrap(), row["kind"].as_str().unwrap());
        format!("{role}/{kind}:{}", row["content"].as_str().unwrap().chars().take(12).collect::<String>())
    };
    rows.map(short).collect()
}

/// Every event by its place, without the pieces of texts, and the whole of these.
fn told(events: &[Value]) -> (BTreeMap<u64, Value>, String) {
    let (pieces, others): (Vec<&Value>, Vec<&Value>) = events.iter().partition(|event| event["type"] == "text_delta");
    let text = pieces.iter().filter_map(|event| event["text"].as_str()).collect();
    (others.into_iter().map(|event| (event["at"]["seq"].as_u64().unwrap(), event.clone())).collect(), text)
}

#[tokio::test]
async fn i04_i28_a_redirect_from_another_client_is_seen_by_all_and_one_that_was_away_gets_what_it_missed() {
    let server = ModelServer::start().await.unwrap();
    let served = Served::start(&server).await;
    let (mut first, mut second, mut third) = (served.connect().await, served.connect().await, served.connect().await);
    let sent = first.call("prompt/submit", json!({"text": STALLS})).await;
    let conversation = sent["receipt"]["conversation"].clone();
    first.hears("text_delta").await;
    third.hears("text_delta").await;
    // The third one goes while the answer is being written, and knows where it was.
    let left_at = third.place();
    let had = third.heard.clone();
    drop(third);

    // The second one is new here: it has no place, reads the transcript, and speaks.
    let begun = second.call("session/events", json!({"conversation": conversation})).await;
    assert_eq!((&begun["replay"], &begun["why"]), (&json!("gap"), &json!("other_epoch")), "{begun}");
    let said = json!({"conversation": conversation, "text": "go south", "intent": "redirect"});
    let redirect = second.call("prompt/submit", said).await;
    for peer in [&mut first, &mut second] {
        let event = peer.hears("redirected").await;
        assert_eq!(event["kept"], true, "{event}");
        let input = json!([{"admission": redirect["receipt"]["admission"], "text": "go south"}]);
        assert_eq!(event["inputs"], input, "{event}");
        let ended = peer.hears("turn_ended").await;
        assert_eq!(
            (&ended["result"]["reason"], &ended["result"]["answer"]),
            (&json!("answered"), &json!("ok, short answer"))
        );
    }
    // Both inputs ended with the one turn that read them.
    for (peer, receipt) in [(&mut first, &sent), (&mut second, &redirect)] {
        let turn = peer.call("turn/wait", json!({"admission": receipt["receipt"]["admission"]})).await;
        assert_eq!((&turn["reason"], &turn["answer"]), (&json!("answered"), &json!("ok, short answer")), "{turn}");
    }
    let shown = first.call("session/show", json!({"conversation": conversation})).await;
    let want = [
        "user/normal:count LONG 2",
        "assistant/partial:tok0 tok1 to",
        "user/steer:go south",
        "assistant/normal:ok, short an",
    ];
    assert_eq!(rows(&shown), want);

    // Who was away has every event after it: those that the first one heard, each once.
    let mut third = served.connect().await;
    let missed = third.call("session/events", json!({"conversation": conversation, "after": left_at})).await;
    assert_eq!(missed["replay"], "events", "{missed}");
    let events = [had, missed["events"].as_array().unwrap().clone()].concat();
    let of_it: Vec<Value> = first.heard.iter().filter(|event| event["conversation"] == conversation).cloned().collect();
    assert_eq!(told(&events), told(&of_it));
    // From where it is now on there is nothing; a place that was never told is a gap.
    let until = missed["until"].clone();
    let again = third.call("session/events", json!({"conversation": conversation, "after": until})).await;
    assert_eq!((&again["events"], &again["until"]), (&json!([]), &until));
    let ahead = json!({"epoch": until["epoch"], "seq": until["seq"].as_u64().unwrap() + 1});
    let gap = third.call("session/events", json!({"conversation": conversation, "after": ahead})).await;
    assert_eq!((&gap["replay"], &gap["why"]), (&json!("gap"), &json!("dropped")), "{gap}");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
    drop((first, second, third));
    assert!(served.gateway.model_line().contains("fake-model"));
}

#[tokio::test]
async fn i28_a_client_that_was_too_slow_is_told_and_gets_every_word_that_it_missed() {
    let server = ModelServer::start().await.unwrap();
    let served = Served::start(&server).await;
    let mut slow = served.gateway.connect();
    // More pieces than a client may be behind. Its first message is read, the rest only when all is over.
    let text = format!("LONG {}", CLIENT_BACKLOG_MESSAGES + 1_000);
    let params = PromptSubmitParams {
        conversation: None,
        request_id: None,
        text,
        images: Vec::new(),
        intent: None,
        platform: None,
    };
    let Response::Submitted(sent) = slow.call(Request::PromptSubmit(params)).await.unwrap() else { panic!("refused") };
    let Some(ServerMessage::Event(first)) = slow.next().await else { panic!("no event") };
    let wait = Request::TurnWait(TurnWaitParams { admission: sent.receipt.admission });
    let Response::Turn(Some(turn)) = slow.call(wait).await.unwrap() else { panic!("no turn") };
    assert_eq!(turn.reason, EndReason::Answered);
    assert_eq!(slow.next().await, Some(ServerMessage::EventsMissed {}));

    let conversation = sent.receipt.conversation;
    let params = SessionEventsParams { conversation: conversation.clone(), after: first.at };
    let Response::Events(missed) = slow.call(Request::SessionEvents(params)).await.unwrap() else { panic!("none") };
    let Replay::Events { events, until } = missed.replay else { panic!("{:?}", missed.replay) };
    let text: String = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TextDelta { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text.trim(), turn.answer.trim());
    // What is still on its way to it is a part of that, in the order of its places.
    let mut last = first.at.seq;
    while let Some(ServerMessage::Event(event)) = slow.next().await {
        assert!(event.at.seq > last && event.at.seq <= until.seq, "{event:?}");
        last = event.at.seq;
        if matches!(event.kind, EventKind::TurnEnded { .. }) {
            break;
        }
    }
    assert_eq!(last, until.seq);
}

/// A `hermes-gateway` and its client.
fn gateway(home: &Home) -> (Child, Peer) {
    let mut child = Command::new(hermes().unwrap().with_file_name("hermes-gateway"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("HERMES_HOME", home.path())
        .env("HERMES_LOCAL_PORTS", "off")
        .current_dir(home.work())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .expect("`hermes-gateway` is built beside the tests");
    let peer = Peer::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    (child, peer)
}

#[tokio::test]
async fn i04_a_turn_of_one_gateway_is_redirected_from_another_and_both_know_how_it_ended() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let ((_one, mut first), (_two, mut second)) = (gateway(&home), gateway(&home));
    let sent = first.call("prompt/submit", json!({"text": STALLS})).await;
    let conversation = sent["receipt"]["conversation"].clone();
    first.hears("text_delta").await;
    let said = json!({"conversation": conversation, "text": "go south", "intent": "redirect"});
    let redirect = second.call("prompt/submit", said).await;
    assert_eq!(first.hears("redirected").await["inputs"][0]["text"], "go south");
    for (peer, receipt) in [(&mut first, &sent), (&mut second, &redirect)] {
        let turn = peer.call("turn/wait", json!({"admission": receipt["receipt"]["admission"]})).await;
        assert_eq!((&turn["reason"], &turn["answer"]), (&json!("answered"), &json!("ok, short answer")), "{turn}");
    }
    let shown = second.call("session/show", json!({"conversation": conversation})).await;
    assert_eq!(rows(&shown).iter().filter(|row| row.ends_with("go south")).count(), 1, "{shown}");
}

#[tokio::test]
async fn i04_i28_kill_9_of_a_gateway_loses_no_word_of_a_redirect_and_its_clients_are_told_of_the_gap() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let (mut child, mut client) = gateway(&home);
    let sent = client.call("prompt/submit", json!({"text": STALLS})).await;
    let conversation = sent["receipt"]["conversation"].clone();
    client.hears("text_delta").await;
    let place = client.place();
    // It is accepted: whatever happens now, it is read once.
    let said = json!({"conversation": conversation, "text": "go south", "intent": "redirect", "request_id": "r2"});
    let redirect = client.call("prompt/submit", said.clone()).await;
    child.kill().await.unwrap();

    let (_child, mut client) = gateway(&home);
    let missed = client.call("session/events", json!({"conversation": conversation, "after": place})).await;
    assert_eq!((&missed["replay"], &missed["why"]), (&json!("gap"), &json!("other_epoch")), "{missed}");
    // The client does not know whether it was accepted, and says it again.
    let again = client.call("prompt/submit", said).await;
    assert_eq!((&again["replayed"], &again["receipt"]["admission"]), (&json!(true), &redirect["receipt"]["admission"]));
    for receipt in [&sent, &redirect] {
        let turn = client.call("turn/wait", json!({"admission": receipt["receipt"]["admission"]})).await;
        assert_eq!(turn["reason"], "answered", "{turn}");
    }
    let shown = client.call("session/show", json!({"conversation": conversation})).await;
    let rows = rows(&shown);
    for said in ["count LONG 2", "go south"] {
        assert_eq!(rows.iter().filter(|row| row.ends_with(said)).count(), 1, "{rows:?}");
    }
    assert!(rows.last().unwrap().starts_with("assistant/normal:"), "{rows:?}");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
}

#[tokio::test]
async fn children_are_listed_and_stopped_through_the_gateway_and_found_only_when_asked_for() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let (_child, mut client) = gateway(&home);
    let call = r#"{"goal": "look at the pomegranate FHANG", "background": true}"#;
    // The blank is escaped, so that the parent does not hang too.
    let call = call.replace(" FHANG", "\\u0020FHANG");
    let sent = client.call("prompt/submit", json!({"text": format!("ASK{{delegate_task {call}}}ASK")})).await;
    let conversation = sent["receipt"]["conversation"].clone();
    let turn = client.call("turn/wait", json!({"admission": sent["receipt"]["admission"]})).await;
    assert_eq!(turn["reason"], "answered", "{turn}");
    let of = json!({"conversation": conversation});
    let child = loop {
        let children = client.call("session/children", of.clone()).await;
        if children[0]["state"] == "running" {
            break children[0].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(child["task"], "look at the pomegranate FHANG");
    let name = conversation.as_str().unwrap();
    let listed = home.run(&["sessions", "children", name]).await.unwrap();
    assert!(listed.code == Some(0) && listed.stdout.contains("running    look at the pomegranate"), "{listed:?}");

    let stop = json!({"conversation": conversation, "delegation": child["delegation"]});
    assert_eq!(client.call("session/stop_child", stop.clone()).await, "stopped");
    let news = async {
        loop {
            let shown = client.call("session/show", of.clone()).await.to_string();
            if shown.contains("Status: interrupted") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(COMES_MAX_S), news).await.expect("the parent was not told");
    assert_eq!(client.call("session/stop_child", stop).await, "over");

    let ids = |found: &Value| -> Vec<String> {
        found["hits"].as_array().unwrap().iter().map(|hit| hit["conversation"].as_str().unwrap().to_owned()).collect()
    };
    let found = ids(&client.call("session/search", json!({"query": "pomegranate"})).await);
    assert!(!found.is_empty() && found.iter().all(|id| id == name), "{found:?}");
    let all = ids(&client.call("session/search", json!({"query": "pomegranate", "children": true})).await);
    assert!(all.iter().any(|id| id == child["conversation"].as_str().unwrap()), "{all:?}");
}
