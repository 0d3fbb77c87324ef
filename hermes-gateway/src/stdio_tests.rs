//! A client and a scripted gateway over pipes in memory.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt, BufReader, DuplexStream, duplex};
use tokio::sync::{mpsc, watch};

use super::*;
use crate::protocol::{AdmissionId, AdmissionStatus, ApprovalRequest, Event, EventKind, PromptSubmitResponse, Receipt};

#[derive(Clone)]
struct Script {
    seen: Arc<Mutex<Vec<Request>>>,
    interrupted: watch::Sender<bool>,
}

impl Script {
    fn new() -> Self {
        Self { seen: Arc::default(), interrupted: watch::channel(false).0 }
    }

    fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn conversation() -> ConversationId {
    ConversationId::parse("c1").unwrap()
}

impl Caller for Script {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Response, RpcError>> {
        self.seen.lock().unwrap().push(request.clone());
        let interrupted = self.interrupted.clone();
        Box::pin(async move {
            match request {
                Request::SessionList(_) => Ok(Response::Sessions(vec![])),
                Request::ModelStatus => {
                    Err(RpcError { code: "HM0208".into(), message: "no model".into(), usage: true })
                }
                Request::PromptSubmit(_) => Ok(Response::Submitted(PromptSubmitResponse {
                    receipt: Receipt {
                        admission: AdmissionId::parse("a1").unwrap(),
                        conversation: conversation(),
                        seq: 1,
                        status: AdmissionStatus::Queued,
                        outcome: None,
                        generation: None,
                        turn: None,
                    },
                    replayed: false,
                })),
                // Ends only when the turn is stopped.
                Request::TurnWait(_) => {
                    let _ = interrupted.subscribe().wait_for(|stopped| *stopped).await;
                    Ok(Response::Turn(None))
                }
                Request::TurnInterrupt(_) => {
                    interrupted.send_replace(true);
                    Ok(Response::Interrupted { running: true })
                }
                _ => Ok(Response::Deleted),
            }
        })
    }
}

struct Queue(mpsc::Receiver<ServerMessage>);

impl Inbox for Queue {
    fn next(&mut self) -> BoxFuture<'_, Option<ServerMessage>> {
        Box::pin(self.0.recv())
    }
}

/// Sends lines, closes, and returns every answer.
async fn talk(script: &Script, lines: &[u8], messages: Vec<ServerMessage>) -> Vec<Value> {
    let (sender, inbox) = mpsc::channel(16);
    for message in messages {
        sender.send(message).await.unwrap();
    }
    drop(sender);
    let (mut near, far) = duplex(1 << 16);
    let (mut out_near, out_far) = duplex(1 << 16);
    let client = async {
        near.write_all(lines).await.unwrap();
        // Answers may be read only after the client has closed its end.
        drop(near);
        let mut text = String::new();
        out_near.read_to_string(&mut text).await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut queue = Queue(inbox);
    let server = async {
        serve(script, &mut queue, BufReader::new(far), out_far).await.unwrap();
    };
    let (answers, ()) = tokio::join!(client, server);
    answers
}

async fn answer(line: &str) -> Value {
    let answers = talk(&Script::new(), format!("{line}\n").as_bytes(), vec![]).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

#[tokio::test]
async fn a_request_gets_its_result_under_its_id() {
    let got = answer(r#"{"jsonrpc":"2.0","id":"x","method":"session/list","params":{"limit":3}}"#).await;
    assert_eq!(got, json!({"jsonrpc":"2.0","id":"x","result":{"kind":"sessions","value":[]}}));
}

#[tokio::test]
async fn params_may_be_left_out_when_none_is_needed() {
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"method":"session/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"session/list","params":null}"#,
    ] {
        assert_eq!(answer(line).await["result"]["kind"], "sessions", "{line}");
    }
    let got = answer(r#"{"jsonrpc":"2.0","id":1,"method":"model/status","params":{}}"#).await;
    assert_eq!(
        got["error"],
        json!({"code": APPLICATION_ERROR, "message": "no model", "data": {"code": "HM0208", "usage": true}})
    );
}

#[tokio::test]
async fn every_wrong_line_gets_the_error_that_fits() {
    for (line, code, id) in [
        (r#"{"jsonrpc":"2.0","id":1,"#, PARSE_ERROR, json!(null)),
        ("nonsense", PARSE_ERROR, json!(null)),
        ("[]", INVALID_REQUEST, json!(null)),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#, INVALID_REQUEST, json!(null)),
        ("3", INVALID_REQUEST, json!(null)),
        (r#"{"id":1,"method":"tools/list"}"#, INVALID_REQUEST, json!(1)),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, INVALID_REQUEST, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, INVALID_REQUEST, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST, json!(1)),
        (r#"{"jsonrpc":"2.0","id":"a","method":"no/such"}"#, METHOD_NOT_FOUND, json!("a")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"prompt/submit"}"#, INVALID_PARAMS, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"prompt/submit","params":[1]}"#, INVALID_PARAMS, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":1}}"#, INVALID_PARAMS, json!(1)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"session/delete","params":{"conversation":"../../etc"}}"#,
            INVALID_PARAMS,
            json!(1),
        ),
    ] {
        let got = answer(line).await;
        assert_eq!((&got["error"]["code"], &got["id"]), (&json!(code), &id), "{line}: {got}");
    }
}

#[tokio::test]
async fn i27_a_broken_line_loses_nothing_that_comes_after_it() {
    let mut lines = b"\xff\xfe\n{\n\n".to_vec();
    lines.extend_from_slice(br#"{"jsonrpc":"2.0","id":7,"method":"session/list"}"#);
    // No line end: the last line counts all the same.
    let answers = talk(&Script::new(), &lines, vec![]).await;
    let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].clone()).collect();
    assert_eq!(codes, [json!(PARSE_ERROR), json!(PARSE_ERROR), json!(null)]);
    assert_eq!(answers[2]["id"], 7);
}

#[tokio::test]
async fn i26_a_line_that_is_too_long_is_skipped_without_being_kept() {
    let mut lines = vec![b'x'; LINE_LIMIT_BYTES + 1];
    lines.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/list\"}\n");
    let answers = talk(&Script::new(), &lines, vec![]).await;
    assert_eq!(answers[0]["error"]["code"], PARSE_ERROR);
    assert!(answers[0]["error"]["message"].as_str().unwrap().contains("longer"));
    assert_eq!(answers[1]["result"]["kind"], "sessions");
}

#[tokio::test]
async fn a_notification_is_done_and_not_answered() {
    let script = Script::new();
    let line = br#"{"jsonrpc":"2.0","method":"turn/interrupt","params":{"conversation":"c1"}}"#;
    assert!(talk(&script, line, vec![]).await.is_empty());
    assert_eq!(script.seen(), [Request::TurnInterrupt(TurnInterruptParams { conversation: conversation() })]);
}

#[tokio::test]
async fn messages_of_the_gateway_are_notifications() {
    let event = Event::new(conversation(), None, EventKind::TextDelta { text: "hi".into() });
    let request = ApprovalRequest {
        id: "q".into(),
        call_id: "k".into(),
        tool: "terminal".into(),
        subject: "rm x".into(),
        reasons: vec![],
        pattern: "rm".into(),
        timeout_ms: 5,
    };
    let messages =
        vec![ServerMessage::Event(event), ServerMessage::ApprovalRequested { conversation: conversation(), request }];
    let (sender, inbox) = mpsc::channel(16);
    for message in messages {
        sender.send(message).await.unwrap();
    }
    let (near, far) = duplex(1 << 16);
    let (out_near, out_far) = duplex(1 << 16);
    let script = Script::new();
    let mut queue = Queue(inbox);
    let client = async {
        let mut lines = BufReader::new(out_near).lines();
        let first: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        let second: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        drop(near);
        (first, second)
    };
    let ((first, second), served) = tokio::join!(client, serve(&script, &mut queue, BufReader::new(far), out_far));
    served.unwrap();
    assert_eq!(
        first,
        json!({"jsonrpc":"2.0","method":"event",
            "params":{"conversation":"c1","turn":null,"type":"text_delta","text":"hi"}})
    );
    assert_eq!((&second["method"], &second["params"]["request"]["id"]), (&json!("approval/request"), &json!("q")));
}

#[tokio::test]
async fn the_end_of_input_stops_the_running_turn_and_its_waiter_is_answered() {
    let script = Script::new();
    let submit = r#"{"jsonrpc":"2.0","id":1,"method":"prompt/submit","params":{"text":"hi"}}"#;
    let wait = r#"{"jsonrpc":"2.0","id":2,"method":"turn/wait","params":{"admission":"a1"}}"#;
    let answers = talk(&script, format!("{submit}\n{wait}\n").as_bytes(), vec![]).await;
    let mut ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    ids.sort_by_key(Value::as_i64);
    assert_eq!(ids, [json!(1), json!(2)]);
    assert!(script.seen().contains(&Request::TurnInterrupt(TurnInterruptParams { conversation: conversation() })));
}

#[tokio::test]
async fn i26_too_many_requests_at_once_are_refused_by_name() {
    let script = Script::new();
    let submit = r#"{"jsonrpc":"2.0","id":"s","method":"prompt/submit","params":{"text":"hi"}}"#;
    let mut lines = String::new();
    for id in 0..=IN_FLIGHT_LIMIT {
        lines.push_str(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"turn/wait\",\"params\":{{\"admission\":\"a1\"}}}}\n"
        ));
    }
    let (near, far): (DuplexStream, DuplexStream) = duplex(1 << 16);
    let (out_near, out_far) = duplex(1 << 16);
    let (_sender, inbox) = mpsc::channel(1);
    let mut queue = Queue(inbox);
    let client = async {
        let mut near = near;
        near.write_all(lines.as_bytes()).await.unwrap();
        let mut answers = BufReader::new(out_near).lines();
        let refused: Value = serde_json::from_str(&answers.next_line().await.unwrap().unwrap()).unwrap();
        // The others still run; a submitted input gives the end something to stop, which ends them all.
        script.interrupted.send_replace(true);
        let mut count = 0;
        near.write_all(format!("{submit}\n").as_bytes()).await.unwrap();
        drop(near);
        while answers.next_line().await.unwrap().is_some() {
            count += 1;
        }
        (refused, count)
    };
    let ((refused, count), served) = tokio::join!(client, serve(&script, &mut queue, BufReader::new(far), out_far));
    served.unwrap();
    assert_eq!(refused["error"]["data"]["code"], "HM0290");
    assert_eq!(count, IN_FLIGHT_LIMIT + 1);
}

#[tokio::test]
async fn a_client_that_went_away_has_its_turn_stopped() {
    let script = Script::new();
    let (mut near, far) = duplex(1 << 16);
    let (out_near, out_far) = duplex(64);
    drop(out_near);
    let (_sender, inbox) = mpsc::channel(1);
    let mut queue = Queue(inbox);
    near.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompt/submit\",\"params\":{\"text\":\"a\"}}\n")
        .await
        .unwrap();
    assert!(serve(&script, &mut queue, BufReader::new(far), out_far).await.is_err());
    assert!(script.seen().contains(&Request::TurnInterrupt(TurnInterruptParams { conversation: conversation() })));
    drop(near);
}

#[test]
fn every_method_of_the_protocol_is_served() {
    for method in METHODS {
        // A known method fails for its params at most, never for its name.
        if let Err(message) = read_request(method, Map::new()) {
            assert!(!message.contains("variant"), "{method}: {message}");
        }
    }
    // The parser knows no more methods than the list.
    let error = serde_json::from_value::<Request>(json!({"method": "no/such", "params": {}})).unwrap_err().to_string();
    assert_eq!(error.matches('/').count(), METHODS.len() + 1, "{error}");
}
