//! The wire of Bedrock over a real socket: binary frames in single bytes, signatures, clocks, bearer keys.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hermes_providers::aws::{AwsCredentials, AwsEnvKeys, AwsSources};
use hermes_providers::{ErrorClass, HttpChatModel, HttpModelConfig, Profiles};

use crate::server::{Act, Seen, Server, ask, chunk, response, send};

const MODEL: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const PATH: &str = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3a0/converse-stream";
const SECRET: &str = "sekrit-key-of-the-test";
const TOKEN: &str = "sekrit-token-of-the-test";
const FRAMES: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// CRC-32 bit by bit, not the product's.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

fn frame(kind: &str, name: &str, payload: &str) -> Vec<u8> {
    let mut headers = Vec::new();
    for (key, value) in [(format!(":{kind}-type"), name), (":message-type".to_owned(), kind)] {
        headers.push(u8::try_from(key.len()).unwrap());
        headers.extend_from_slice(key.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let whole = u32::try_from(headers.len() + payload.len() + 16).unwrap();
    let mut out = [whole.to_be_bytes(), u32::try_from(headers.len()).unwrap().to_be_bytes()].concat();
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out.extend_from_slice(&headers);
    out.extend_from_slice(payload.as_bytes());
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out
}

fn text() -> Vec<u8> {
    [
        frame("event", "messageStart", r#"{"role":"assistant"}"#),
        frame("event", "contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"ü→🦀"},"p":"ab"}"#),
    ]
    .concat()
}

fn answer() -> Vec<u8> {
    [
        text(),
        frame("event", "contentBlockStop", r#"{"contentBlockIndex":0}"#),
        frame("event", "messageStop", r#"{"stopReason":"end_turn"}"#),
        frame("event", "metadata", r#"{"usage":{"inputTokens":3,"outputTokens":4,"totalTokens":7}}"#),
    ]
    .concat()
}

fn good() -> Vec<Act> {
    vec![send(FRAMES), chunk(&answer()), send("0\r\n\r\n")]
}

fn config(server: &Server) -> HttpModelConfig {
    let profile = Profiles::bundled().unwrap().get("aws").unwrap().clone();
    let mut config = HttpModelConfig::new(profile, MODEL);
    config.base_url = Some(format!("http://127.0.0.1:{}", server.port));
    config
}

fn signing(server: &Server) -> HttpChatModel {
    let mut config = config(server);
    config.credentials = Some(Arc::new(AwsCredentials::new(AwsSources {
        keys: Some(AwsEnvKeys {
            access_key_id: "AKTEST".into(),
            secret_access_key: SECRET.to_owned().into(),
            session_token: Some(TOKEN.to_owned().into()),
        }),
        region: Some("eu-west-1".into()),
        runtime_url: config.base_url.clone(),
        ..AwsSources::default()
    })));
    HttpChatModel::new(config).unwrap()
}

fn header<'a>(seen: &'a Seen, name: &str) -> &'a str {
    seen.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
}

#[tokio::test]
async fn b28_frames_in_single_bytes_are_whole_and_the_request_is_signed() {
    let mut acts = vec![send(FRAMES)];
    acts.extend(answer().chunks(1).map(chunk));
    acts.push(send("0\r\n\r\n"));
    let server = Server::always(acts).await;
    let (text, done) = ask(&signing(&server)).await;
    let done = done.unwrap();
    assert_eq!((text.as_str(), done.text.as_str()), ("ü→🦀", "ü→🦀"));
    assert_eq!(done.usage.unwrap().output, Some(4));
    let seen = server.seen().pop().unwrap();
    assert!(seen.head.starts_with(&format!("post {PATH} http/1.1")), "{}", seen.head);
    let authorization = header(&seen, "authorization");
    let date = header(&seen, "x-amz-date");
    let start = format!("aws4-hmac-sha256 credential=aktest/{}/eu-west-1/bedrock/aws4_request, ", &date[..8]);
    assert!(authorization.starts_with(&start), "{authorization}");
    assert!(
        authorization.contains("signedheaders=content-type;host;x-amz-date;x-amz-security-token, "),
        "{authorization}"
    );
    assert_eq!(header(&seen, "x-amz-security-token"), TOKEN);
    assert!(!seen.head.contains(SECRET) && !seen.body.contains(SECRET));
    assert!(header(&seen, "accept").starts_with("application/vnd.amazon.eventstream"));
}

#[tokio::test]
async fn b28_an_exception_inside_a_200_keeps_the_text_and_its_class() {
    let slow = frame("exception", "throttlingException", r#"{"message":"Too many requests"}"#);
    let server = Server::always(vec![send(FRAMES), chunk(&[text(), slow].concat()), Act::Close]).await;
    let (shown, end) = ask(&signing(&server)).await;
    assert_eq!((shown.as_str(), end.unwrap_err().class), ("ü→🦀", ErrorClass::RateLimit));
    // A cut in the middle of a frame is no end.
    let half = text();
    let server = Server::always(vec![send(FRAMES), chunk(&half[..half.len() - 3]), Act::Close]).await;
    assert_eq!(ask(&signing(&server)).await.1.unwrap_err().class, ErrorClass::Incomplete);
}

#[tokio::test]
async fn a_bearer_key_needs_no_signature() {
    let server = Server::start(|_| good()).await;
    let mut config = config(&server);
    config.key = Some(SECRET.to_owned().into());
    let (text, done) = ask(&HttpChatModel::new(config).unwrap()).await;
    assert!(text == "ü→🦀" && done.is_ok());
    let seen = server.seen().pop().unwrap();
    assert_eq!(header(&seen, "authorization"), format!("bearer {SECRET}"));
    assert_eq!(header(&seen, "x-amz-date"), "");
}

fn refusal(date: SystemTime) -> Vec<Act> {
    let headers =
        format!("x-amzn-ErrorType: InvalidSignatureException:http://x/\r\nDate: {}\r\n", httpdate::fmt_http_date(date));
    vec![response("403 Forbidden", &headers, r#"{"message":"Signature expired"}"#)]
}

#[tokio::test]
async fn a_wrong_clock_is_put_right_by_the_servers_date_and_once_only() {
    let ahead = SystemTime::now() + Duration::from_secs(86_400 * 40);
    let server = Server::start(move |seen| if seen.nth == 0 { refusal(ahead) } else { good() }).await;
    let model = signing(&server);
    assert!(ask(&model).await.1.is_ok());
    assert!(ask(&model).await.1.is_ok());
    let dates: Vec<String> = server.seen().iter().map(|seen| header(seen, "x-amz-date")[..8].to_owned()).collect();
    assert_eq!(dates.len(), 3);
    assert!(dates[0] < dates[1] && dates[1] <= dates[2], "{dates:?}");

    // A server whose date runs away gets two requests and no more.
    let server = Server::start(move |seen| refusal(ahead + Duration::from_secs(86_400 * seen.nth as u64))).await;
    assert_eq!(ask(&signing(&server)).await.1.unwrap_err().class, ErrorClass::Auth);
    assert_eq!(server.seen().len(), 2);
    // With a right clock it is the key that is wrong.
    let server = Server::start(|_| refusal(SystemTime::now())).await;
    assert_eq!(ask(&signing(&server)).await.1.unwrap_err().class, ErrorClass::Auth);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn i24_a_server_that_echoes_the_keys_does_not_get_them_into_an_error() {
    let body = format!(r#"{{"message":"bad {SECRET} and {TOKEN}"}}"#);
    let said = frame("exception", "validationException", &body);
    for acts in [vec![response("403 No", "", &body)], vec![send(FRAMES), chunk(&said), Act::Close]] {
        let server = Server::always(acts).await;
        let error = ask(&signing(&server)).await.1.unwrap_err();
        let shown = format!("{error:?} {error}");
        assert!(!shown.contains(SECRET) && !shown.contains(TOKEN), "{shown}");
    }
}

#[tokio::test]
async fn an_error_answer_of_aws_has_the_class_of_its_type() {
    for (status, kind, message, class) in [
        ("429 X", "ThrottlingException", "Too many tokens, please wait before trying again.", ErrorClass::RateLimit),
        ("503 X", "ServiceUnavailableException", "Bedrock is unable to process your request.", ErrorClass::Overloaded),
        ("424 X", "ModelErrorException", "The model failed.", ErrorClass::ServerError),
        ("408 X", "ModelTimeoutException", "Too slow.", ErrorClass::Timeout),
        ("429 X", "ModelNotReadyException", "The model is not ready.", ErrorClass::Overloaded),
        ("404 X", "ResourceNotFoundException", "Gone.", ErrorClass::ModelNotFound),
        ("400 X", "ValidationException", "Input is too long for requested model.", ErrorClass::ContextOverflow),
        ("400 X", "ValidationException", "The provided model identifier is invalid.", ErrorClass::ModelNotFound),
        (
            "403 X",
            "AccessDeniedException",
            "You don't have access to the model with the specified model ID.",
            ErrorClass::ModelNotFound,
        ),
        ("403 X", "AccessDeniedException", "User is not authorized to perform: bedrock:InvokeModel", ErrorClass::Auth),
        ("403 X", "ExpiredTokenException", "The security token included in the request is expired", ErrorClass::Auth),
    ] {
        let headers = format!("x-amzn-ErrorType: {kind}:http://internal.amazon.com/coral/com.amazon.bedrock/\r\n");
        let body = format!(r#"{{"message":"{message}"}}"#);
        let server = Server::always(vec![response(status, &headers, &body)]).await;
        let error = ask(&signing(&server)).await.1.unwrap_err();
        assert_eq!(error.class, class, "{kind}: {message}");
        assert!(error.message.contains(message.trim_end_matches('.')), "{error}");
    }
}

#[tokio::test]
async fn where_streams_are_not_allowed_the_answer_comes_whole_from_then_on() {
    const DENIED: &str = r#"{"message":"User: arn:aws:iam::1:user/u is not authorized to perform: bedrock:InvokeModelWithResponseStream"}"#;
    const WHOLE: &str =
        r#"{"output":{"message":{"role":"assistant","content":[{"text":"whole"}]}},"stopReason":"end_turn"}"#;
    let headers = "x-amzn-ErrorType: AccessDeniedException\r\n";
    let server = Server::start(move |seen| {
        let is_stream = seen.head.contains("/converse-stream ");
        vec![if is_stream { response("403 No", headers, DENIED) } else { response("200 OK", "", WHOLE) }]
    })
    .await;
    let model = signing(&server);
    for _ in 0..2 {
        let (text, done) = ask(&model).await;
        assert_eq!((text.as_str(), done.unwrap().text.as_str()), ("whole", "whole"));
    }
    let ends: Vec<bool> = server.seen().iter().map(|seen| seen.head.contains("/converse-stream ")).collect();
    assert_eq!(ends, [true, false, false]);

    // Where nothing is allowed, the key is refused, and streams are asked for again next time.
    let server = Server::start(move |_| vec![response("403 No", headers, DENIED)]).await;
    let model = signing(&server);
    assert_eq!(ask(&model).await.1.unwrap_err().class, ErrorClass::Auth);
    assert_eq!(server.seen().len(), 2);
    assert_eq!(ask(&model).await.1.unwrap_err().class, ErrorClass::Auth);
    assert!(server.seen()[2].head.contains("/converse-stream "));
}
