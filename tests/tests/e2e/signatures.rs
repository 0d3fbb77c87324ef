//! B26 over a socket: an engine, the real HTTP model, and a server that does not take its own signature back.

use std::sync::{Arc, Mutex};

use hermes_core::testing::{FastClock, RecordedEvents, parts};
use hermes_core::{EndReason, Engine, Input, Submission, TurnResult};
use hermes_providers::{HttpChatModel, HttpModelConfig, Profiles};
use hermes_store::memory::MemoryStore;
use hermes_store::{ConversationId, Intent};
use hermes_tools::ToolRegistry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const SIGNED: &str = r#"{"type":"message","content":[{"type":"thinking","thinking":"hm","signature":"SIG"},{"type":"text","text":"hello"}],"stop_reason":"end_turn"}"#;
const REFUSED: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#;

/// Reads one request and gives its body.
async fn body_of(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
            if body.len() >= length.trim().parse().unwrap() {
                return body.to_owned();
            }
        }
        let read = socket.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the request was cut");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// Answers with status and body by what was asked, one request for each connection.
async fn serve(listener: TcpListener, seen: Arc<Mutex<Vec<String>>>, answer: fn(&str) -> (u16, &'static str)) {
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        let body = Box::pin(body_of(&mut socket)).await;
        let (status, text) = answer(&body);
        seen.lock().unwrap().push(body);
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            text.len()
        );
        socket.write_all(format!("{head}{text}").as_bytes()).await.unwrap();
    }
}

async fn ask(engine: &Engine, conversation: Option<&ConversationId>, id: &str) -> TurnResult {
    let submission = Submission {
        principal: "tester".to_owned(),
        conversation: conversation.cloned(),
        request_id: Some(id.to_owned()),
        intent: Intent::Queue,
        input: Input::text(id),
    };
    let receipt = engine.submit(submission).await.unwrap().receipt().clone();
    engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap()
}

/// Three turns; gives the bodies that were sent and how the turns ended.
async fn turns(answer: fn(&str) -> (u16, &'static str)) -> (Vec<String>, Vec<EndReason>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = tokio::spawn(serve(listener, Arc::clone(&seen), answer));
    let profile = Profiles::bundled().unwrap().get("anthropic").unwrap().clone();
    let mut config = HttpModelConfig::new(profile, "claude-sonnet-4-6");
    config.base_url = Some(format!("http://{address}"));
    config.key = Some("key-of-the-test".to_owned().into());
    let model = Arc::new(HttpChatModel::new(config).unwrap());
    let clock = FastClock::new(1);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let events = Arc::new(RecordedEvents::default());
    let engine = Engine::new(parts("e", store, model, ToolRegistry::new(), clock, events));
    let first = ask(&engine, None, "first").await;
    let mut ends = vec![first.reason];
    ends.push(ask(&engine, Some(&first.conversation), "second").await.reason);
    server.abort();
    let seen = seen.lock().unwrap().clone();
    (seen, ends)
}

#[tokio::test]
async fn b26_a_refused_signature_costs_one_resend_without_thinking_and_a_second_refusal_is_the_end() {
    let is_signed = |body: &str| body.contains("SIG");
    let (seen, ends) = turns(|body| if body.contains("SIG") { (400, REFUSED) } else { (200, SIGNED) }).await;
    assert_eq!(ends, [EndReason::Answered, EndReason::Answered]);
    assert_eq!(seen.iter().map(|body| is_signed(body)).collect::<Vec<_>>(), [false, true, false]);
    assert!(seen[2].contains("hello") && !seen[2].contains("\"thinking\":\"hm\""), "{}", seen[2]);

    let (seen, ends) = turns(|body| if body.contains("second") { (400, REFUSED) } else { (200, SIGNED) }).await;
    assert_eq!(ends, [EndReason::Answered, EndReason::RequestRefused]);
    assert_eq!(seen.iter().map(|body| is_signed(body)).collect::<Vec<_>>(), [false, true, false]);
}
