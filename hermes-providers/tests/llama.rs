//! A managed `llama-server`, against an executable that speaks its protocol: this test program, run again as a child.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, Delta, ErrorClass, HttpChatModel, HttpModelConfig, LLAMA_SERVER, LlamaConfig,
    LlamaError, LlamaModel, LlamaRuntime, LlamaServer, OwnWindow, Profiles, ProviderError, describe_local,
};

/// Arguments of the fake server, in its environment: the test program itself would not take them.
const ARGS: &str = "FAKE_LLAMA_ARGS";
/// How long an answer takes that takes long.
const SLOW: Duration = Duration::from_millis(1500);
/// How long a process may take to go; far above what any test needs.
const GONE_MAX: Duration = Duration::from_secs(60);

/// The fake server; a test without anything to do when nobody wants it.
#[test]
fn fake_llama_server() {
    let Ok(args) = std::env::var(ARGS) else { return };
    let args: Vec<&str> = args.split_whitespace().collect();
    let value = |name: &str| args.iter().position(|arg| *arg == name).map(|at| args[at + 1].to_owned()).unwrap();
    let context: u64 = value("--ctx-size").parse().unwrap();
    if args.contains(&"--breaks-above") && context > value("--breaks-above").parse().unwrap() {
        eprintln!("llama_init: out of memory for {context} tokens");
        std::process::exit(3);
    }
    let listener = TcpListener::bind(("127.0.0.1", value("--port").parse().unwrap())).unwrap();
    let mut starts = std::fs::OpenOptions::new().create(true).append(true).open(value("--model")).unwrap();
    writeln!(starts, "{}", std::process::id()).unwrap();
    if !args.contains(&"--mute") {
        eprintln!("main: server is listening on {} - starting the main loop", url(&listener));
    }
    // As `--parallel` and what a model was made for divide and cap it.
    let number = |name: &str, or: u64| if args.contains(&name) { value(name).parse().unwrap() } else { or };
    let window = (context / number("--parallel", 1)).min(number("--trained", u64::MAX));
    let mut looks = 0;
    for stream in listener.incoming() {
        answer(stream.unwrap(), context, window, &mut looks);
    }
}

fn url(listener: &TcpListener) -> String {
    format!("http://{}", listener.local_addr().unwrap())
}

fn answer(mut stream: TcpStream, context: u64, window: u64, looks: &mut u32) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    let (status, body) = match first.split(' ').nth(1).unwrap_or_default() {
        "/health" => {
            *looks += 1;
            // The first looks come while the model is loaded.
            if *looks > 2 { ("200 OK", "{\"status\":\"ok\"}".to_owned()) } else { ("503 Loading", "{}".to_owned()) }
        }
        "/v1/models" => ("200 OK", "{\"data\":[{\"id\":\"m\",\"owned_by\":\"llamacpp\"}]}".to_owned()),
        "/props" => ("200 OK", format!("{{\"default_generation_settings\":{{\"n_ctx\":{window}}}}}")),
        "/v1/chat/completions" if String::from_utf8_lossy(&body).contains("slowly") => {
            std::thread::sleep(SLOW);
            ("200 OK", "{\"choices\":[{\"message\":{\"content\":\"slow\"},\"finish_reason\":\"stop\"}]}".to_owned())
        }
        "/v1/chat/completions" if String::from_utf8_lossy(&body).contains("die") => {
            eprintln!("ggml_abort: that was too much for it");
            std::process::exit(7);
        }
        "/v1/chat/completions" if String::from_utf8_lossy(&body).contains("too long") => {
            let error =
                "{\"error\":{\"code\":400,\"type\":\"exceed_context_size_error\",\"message\":\"x\",\"n_ctx\":3000}}";
            ("400 Bad Request", error.to_owned())
        }
        "/v1/chat/completions" => {
            let choice = format!("{{\"message\":{{\"content\":\"{context}\"}},\"finish_reason\":\"stop\"}}");
            ("200 OK", format!("{{\"choices\":[{choice}]}}"))
        }
        _ => ("404 Not Found", "{}".to_owned()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

/// A program that runs this test program as the server. `deaf` does not listen to a polite signal.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new(deaf: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let trap = if deaf { "trap '' TERM\n" } else { "" };
        let run = format!("exec '{}' --exact fake_llama_server --nocapture\n", exe.display());
        let script = dir.path().join("llama-server");
        std::fs::write(&script, format!("#!/bin/sh\n{trap}{ARGS}=\"$*\"; export {ARGS}\n{run}")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn config(&self, args: &[&str]) -> LlamaConfig {
        LlamaConfig {
            program: self.dir.path().join("llama-server"),
            args: args.iter().map(Into::into).collect(),
            max_context: 16_384,
            start_timeout: Duration::from_secs(60),
            ..LlamaConfig::new(self.pid_file(), 4096)
        }
    }

    fn model(&self, args: &[&str]) -> LlamaModel {
        LlamaModel::new(Arc::new(LlamaRuntime::new(self.config(args))), http())
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.path().join("model.gguf")
    }

    /// The newest server's own process, as it wrote it down.
    fn pid(&self) -> u32 {
        std::fs::read_to_string(self.pid_file()).unwrap().lines().last().unwrap().parse().unwrap()
    }

    /// How many servers have begun.
    fn starts(&self) -> usize {
        std::fs::read_to_string(self.pid_file()).unwrap_or_default().lines().count()
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

fn wait_until_gone(pid: u32) {
    let since = Instant::now();
    while is_there(pid) {
        assert!(since.elapsed() < GONE_MAX, "process {pid} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The same for a process whose end is the work of tasks of this test.
async fn gone(pid: u32) {
    tokio::time::timeout(GONE_MAX, async {
        while is_there(pid) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the process is still there");
}

fn http() -> HttpModelConfig {
    HttpModelConfig::new(Profiles::bundled().unwrap().get(LLAMA_SERVER).unwrap().clone(), "m")
}

async fn ask(server: &LlamaServer) -> String {
    let mut config = http();
    config.base_url = Some(server.base_url());
    ask_model(&HttpChatModel::new(config).unwrap()).await
}

fn request(text: &str) -> ChatRequest {
    ChatRequest { stream: false, ..ChatRequest::new(vec![ChatMessage::user(text)]) }
}

async fn ask_model(model: &dyn ChatModel) -> String {
    say(model, "hello").await.unwrap()
}

/// The whole answer to a text.
async fn say(model: &dyn ChatModel, text: &str) -> Result<String, ProviderError> {
    let mut stream = model.stream(&request(text)).await?;
    loop {
        if let Delta::Done(done) = futures::StreamExt::next(&mut stream).await.unwrap()? {
            return Ok(done.text);
        }
    }
}

fn kill(pid: u32) {
    std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
}

/// What `ask` gives once a rest after a failure is over.
async fn patiently(model: &dyn ChatModel, text: &str) -> Result<String, ProviderError> {
    loop {
        match say(model, text).await {
            Err(error) if error.class == ErrorClass::ServerError && error.retry_after_ms.is_some() => {
                tokio::time::sleep(Duration::from_millis(error.retry_after_ms.unwrap())).await;
            }
            done => return done,
        }
    }
}

#[tokio::test]
async fn a_server_is_started_on_a_free_port_answers_and_is_gone_after_its_stop() {
    let fake = Fake::new(false);
    let mut server = LlamaServer::start(&fake.config(&[]), 4096).await.unwrap();
    assert!(server.is_running() && server.is_healthy().await);
    assert!(server.log().contains("listening"), "{}", server.log());
    assert_eq!((ask(&server).await.as_str(), server.context(), server.window()), ("4096", 4096, 4096));
    let told = describe_local("llamacpp", &server.base_url(), "m", None).await.unwrap();
    assert_eq!(told.context_window, Some(4096));
    let pid = fake.pid();
    server.stop().await.unwrap();
    wait_until_gone(pid);
}

#[tokio::test]
async fn two_servers_do_not_meet() {
    let (one, two) = (Fake::new(false), Fake::new(false));
    let (one, two) = (one.config(&[]), two.config(&[]));
    let (a, b) = tokio::join!(LlamaServer::start(&one, 4096), LlamaServer::start(&two, 4096));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_ne!(a.base_url(), b.base_url());
    a.stop().await.unwrap();
    assert!(b.is_healthy().await);
    b.stop().await.unwrap();
}

#[tokio::test]
async fn a_port_of_the_user_s_is_used_without_being_named_and_not_shared_with_anybody() {
    let fake = Fake::new(false);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = LlamaConfig { port, ..fake.config(&["--mute"]) };
    let error = LlamaServer::start(&config, 4096).await.unwrap_err();
    assert_eq!((error.code(), error.to_string().contains(&port.to_string())), ("HM2035", true), "{error}");
    drop(taken);
    let server = LlamaServer::start(&config, 4096).await.unwrap();
    assert!(server.base_url().contains(&port.to_string()));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_process_gets_the_environment_that_it_is_given_and_nothing_of_ours() {
    let fake = Fake::new(false);
    let path = std::env::var("PATH").unwrap();
    let env = [("PATH".to_owned(), path), ("OF_THE_USER".to_owned(), "yes".to_owned())];
    let seen = fake.dir.path().join("env");
    let program = fake.dir.path().join("wrapper");
    let text = format!("#!/bin/sh\nenv >'{}'\nexec '{}' \"$@\"\n", seen.display(), fake.config(&[]).program.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = LlamaConfig { program, env: Some(env.into()), ..fake.config(&[]) };
    LlamaServer::start(&config, 4096).await.unwrap().stop().await.unwrap();
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("OF_THE_USER=yes") && !seen.contains("CARGO_MANIFEST_DIR="), "{seen}");
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let fake = Fake::new(false);
    let missing = LlamaConfig { program: "/nonexistent/llama-server".into(), ..fake.config(&[]) };
    let error = LlamaServer::start(&missing, 4096).await.unwrap_err();
    assert!(matches!(&error, LlamaError::Ended { log, .. } if log.contains("/nonexistent/llama-server")), "{error}");
    let mute = LlamaConfig { start_timeout: Duration::from_secs(5), ..fake.config(&["--mute"]) };
    let error = LlamaServer::start(&mute, 4096).await.unwrap_err();
    assert_eq!(error.code(), "HM2032");
    if fake.pid_file().exists() {
        wait_until_gone(fake.pid());
    }
}

#[tokio::test]
async fn dropping_it_ends_it_even_when_it_does_not_listen() {
    let fake = Fake::new(true);
    let server = LlamaServer::start(&fake.config(&[]), 4096).await.unwrap();
    let pid = fake.pid();
    drop(server);
    wait_until_gone(pid);
}

#[tokio::test]
async fn a_model_starts_its_server_with_the_first_request_and_closing_waits_for_its_end() {
    let fake = Fake::new(false);
    let runtime = Arc::new(LlamaRuntime::new(fake.config(&[])));
    let (one, two) = (LlamaModel::new(runtime.clone(), http()), LlamaModel::new(runtime.clone(), http()));
    assert_eq!((one.info().provider.as_str(), one.info().context_window), (LLAMA_SERVER, Some(4096)));
    assert!(!fake.pid_file().exists(), "nothing runs before somebody asks");
    let (a, b) = tokio::join!(ask_model(&one), ask_model(&two));
    assert_eq!((a.as_str(), b.as_str()), ("4096", "4096"));
    assert_eq!(fake.starts(), 1, "all models share the process");
    let pid = fake.pid();
    runtime.close().await;
    assert!(!is_there(pid));
    let error = say(&one, "hello").await.unwrap_err();
    assert!(error.class == ErrorClass::Configuration && error.message.contains("ending"), "{error}");
}

#[tokio::test]
async fn a_window_grows_between_requests_up_to_its_limit_and_none_is_cut() {
    let fake = Fake::new(false);
    let model = fake.model(&[]);
    assert_eq!(model.own_window(), Some(OwnWindow { tokens: 4096, max: 16_384 }));
    assert_eq!(ask_model(&model).await, "4096");
    let first = fake.pid();
    let growing = async {
        // The answer is under way by then.
        tokio::time::sleep(SLOW / 3).await;
        model.grow_window(4096, 5000).await
    };
    let (said, grown) = tokio::join!(say(&model, "slowly"), growing);
    assert_eq!((said.unwrap().as_str(), grown.unwrap()), ("slow", 8192), "twice as large");
    assert!(!is_there(first), "the old process is gone before the new one starts");
    assert_eq!((ask_model(&model).await.as_str(), model.own_window().unwrap().tokens), ("8192", 8192));
    kill(fake.pid());
    wait_until_gone(fake.pid());
    assert_eq!(
        model.grow_window(8192, 100_000).await.unwrap(),
        16_384,
        "also when it just ended; no more than allowed"
    );
    assert_eq!(patiently(&model, "hello").await.unwrap(), "16384");
    let error = model.grow_window(16_384, 20_000).await.unwrap_err();
    assert!(error.message.contains("HM2033"), "{error}");
    let pid = fake.pid();
    drop(model);
    gone(pid).await;
}

#[tokio::test]
async fn two_conversations_that_ask_at_once_grow_the_window_once() {
    let fake = Fake::new(false);
    let model = fake.model(&[]);
    assert_eq!(ask_model(&model).await, "4096");
    let (one, two) = tokio::join!(model.grow_window(4096, 5000), model.grow_window(4096, 6000));
    assert_eq!((one.unwrap(), two.unwrap()), (8192, 8192));
    assert_eq!(fake.starts(), 2, "the first one, and the larger one");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_model_that_works() {
    let fake = Fake::new(false);
    let model = fake.model(&[]);
    // Into the middle of a start, and of a growth.
    let _ = tokio::time::timeout(Duration::from_millis(30), say(&model, "hello")).await;
    assert_eq!((ask_model(&model).await.as_str(), fake.starts()), ("4096", 1), "the start went on");
    let _ = tokio::time::timeout(Duration::from_millis(30), model.grow_window(4096, 5000)).await;
    assert_eq!(ask_model(&model).await, "8192", "and so did the growth");
    assert_eq!(model.own_window(), Some(OwnWindow { tokens: 8192, max: 16_384 }));
}

#[tokio::test]
async fn a_window_that_does_not_fit_leaves_the_old_one_and_is_not_tried_again() {
    let fake = Fake::new(false);
    let model = fake.model(&["--breaks-above", "5000"]);
    assert_eq!(ask_model(&model).await, "4096");
    let error = model.grow_window(4096, 8000).await.unwrap_err();
    assert!(error.message.contains("out of memory for 8192"), "{error}");
    assert_eq!(
        (ask_model(&model).await.as_str(), model.own_window()),
        ("4096", Some(OwnWindow { tokens: 4096, max: 4096 }))
    );
    let starts = fake.starts();
    assert!(model.grow_window(4096, 8000).await.is_err());
    assert_eq!(fake.starts(), starts);
}

#[tokio::test]
async fn the_window_is_what_the_server_gives_and_not_what_it_was_asked_for() {
    let fake = Fake::new(false);
    let model = fake.model(&["--parallel", "2", "--trained", "3000"]);
    assert_eq!(ask_model(&model).await, "4096");
    assert_eq!(model.own_window(), Some(OwnWindow { tokens: 2048, max: 8192 }), "two conversations share it");
    assert_eq!(model.grow_window(2048, 2100).await.unwrap(), 3000, "the model was made for no more");
    let error = model.grow_window(3000, 4000).await.unwrap_err();
    assert!(error.message.contains("3000 tokens cannot be grown"), "{error}");
    assert_eq!(model.own_window().map(|own| own.max), Some(3000));
    assert_eq!(say(&model, "too long").await.unwrap_err().class, ErrorClass::ContextOverflow);
    assert_eq!(model.own_window().map(|own| own.tokens), Some(3000), "what it says of itself holds");
}

#[tokio::test]
async fn a_server_s_word_on_its_window_counts_where_its_properties_say_nothing() {
    let fake = Fake::new(false);
    let model = fake.model(&[]);
    assert_eq!(say(&model, "too long").await.unwrap_err().context_limit, Some(3000));
    assert_eq!(model.own_window().map(|own| own.tokens), Some(3000));
}

#[tokio::test]
async fn a_server_that_dies_in_an_answer_says_why_and_is_started_again_after_a_rest() {
    let fake = Fake::new(false);
    let model = fake.model(&[]);
    assert_eq!(ask_model(&model).await, "4096");
    let error = say(&model, "die").await.unwrap_err();
    assert!(error.message.contains("too much for it") && error.message.contains("HM2031"), "{error}");
    let error = say(&model, "hello").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::ServerError, "it has run: the request may be made again");
    assert!(error.retry_after_ms.is_some_and(|ms| ms <= 1_000) && error.message.contains("too much for it"), "{error}");
    assert_eq!(patiently(&model, "hello").await.unwrap(), "4096");
    assert_eq!(fake.starts(), 2);
}

#[tokio::test]
async fn a_server_that_nobody_asks_is_ended_and_begun_anew_with_its_grown_window() {
    let fake = Fake::new(false);
    let config = LlamaConfig { idle_stop: Some(Duration::from_millis(400)), ..fake.config(&[]) };
    let model = LlamaModel::new(Arc::new(LlamaRuntime::new(config)), http());
    assert_eq!(say(&model, "slowly").await.unwrap(), "slow", "an answer under way is not idle");
    assert_eq!(model.grow_window(4096, 5000).await.unwrap(), 8192);
    gone(fake.pid()).await;
    assert_eq!(ask_model(&model).await, "8192");
}

#[tokio::test]
async fn a_model_whose_server_cannot_start_says_why_and_is_not_asked_again_at_once() {
    let fake = Fake::new(false);
    let config = LlamaConfig { program: "/nonexistent/llama-server".into(), ..fake.config(&[]) };
    let model = LlamaModel::new(Arc::new(LlamaRuntime::new(config)), http());
    let error = say(&model, "hello").await.unwrap_err();
    assert_eq!((error.class, error.retry_after_ms), (ErrorClass::Configuration, None));
    assert!(error.message.contains("HM2031") && error.message.contains("/nonexistent"), "{error}");
    let error = say(&model, "hello").await.unwrap_err();
    assert!(error.message.contains("HM2031"), "{error}");
}

/// Starts a server in a process that is then killed; a test without anything to do when nobody wants it.
#[tokio::test]
async fn owner_that_is_killed() {
    let Some(dir) = std::env::var_os("OWNER_DIR") else { return };
    let program = Path::new(&dir).join("llama-server");
    let model = Path::new(&dir).join("model.gguf");
    let config = LlamaConfig { program, ..LlamaConfig::new(model, 4096) };
    let _server = LlamaServer::start(&config, 4096).await.unwrap();
    std::fs::write(Path::new(&dir).join("ready"), "").unwrap();
    std::future::pending::<()>().await;
}

#[test]
fn no_server_is_left_when_its_owner_is_killed() {
    let fake = Fake::new(false);
    let mut owner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner_that_is_killed", "--nocapture"])
        .env("OWNER_DIR", fake.dir.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while !fake.dir.path().join("ready").exists() {
        assert!(since.elapsed() < GONE_MAX, "the owner did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = fake.pid();
    assert!(is_there(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until_gone(pid);
}
