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
use std::time::{Duration, Instant};

use hermes_providers::{
    ChatMessage, ChatModel, ChatRequest, Delta, HttpChatModel, HttpModelConfig, LLAMA_SERVER, LlamaError, LlamaModel,
    LlamaServer, LlamaServerConfig, Profiles, describe_local,
};

/// Arguments of the fake server, in its environment: the test program itself would not take them.
const ARGS: &str = "FAKE_LLAMA_ARGS";
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
    std::fs::write(value("--model"), std::process::id().to_string()).unwrap();
    if !args.contains(&"--mute") {
        eprintln!("main: server is listening on {} - starting the main loop", url(&listener));
    }
    let mut looks = 0;
    for stream in listener.incoming() {
        answer(stream.unwrap(), context, &mut looks);
    }
}

fn url(listener: &TcpListener) -> String {
    format!("http://{}", listener.local_addr().unwrap())
}

fn answer(mut stream: TcpStream, context: u64, looks: &mut u32) {
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
        "/props" => ("200 OK", format!("{{\"default_generation_settings\":{{\"n_ctx\":{context}}}}}")),
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

    fn config(&self, args: &[&str]) -> LlamaServerConfig {
        LlamaServerConfig {
            program: self.dir.path().join("llama-server"),
            args: args.iter().map(Into::into).collect(),
            max_context: 16_384,
            start_timeout: Duration::from_secs(60),
            ..LlamaServerConfig::new(self.pid_file(), 4096)
        }
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.path().join("model.gguf")
    }

    /// The server's own process, as it wrote it down.
    fn pid(&self) -> u32 {
        std::fs::read_to_string(self.pid_file()).unwrap().parse().unwrap()
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

fn http() -> HttpModelConfig {
    HttpModelConfig::new(Profiles::bundled().unwrap().get("llamacpp").unwrap().clone(), "m")
}

async fn ask(server: &LlamaServer) -> String {
    let mut config = http();
    config.base_url = Some(server.base_url());
    ask_model(&HttpChatModel::new(config).unwrap()).await
}

fn request() -> ChatRequest {
    ChatRequest { stream: false, ..ChatRequest::new(vec![ChatMessage::user("hello")]) }
}

async fn ask_model(model: &dyn ChatModel) -> String {
    let request = request();
    let mut stream = model.stream(&request).await.unwrap();
    loop {
        if let Delta::Done(done) = futures::StreamExt::next(&mut stream).await.unwrap().unwrap() {
            return done.text;
        }
    }
}

#[tokio::test]
async fn a_server_is_started_on_a_free_port_answers_and_is_gone_after_its_stop() {
    let fake = Fake::new(false);
    let mut server = LlamaServer::start(fake.config(&[])).await.unwrap();
    assert!(server.is_running() && server.is_healthy().await);
    assert!(server.log().contains("listening"), "{}", server.log());
    assert_eq!((ask(&server).await.as_str(), server.context()), ("4096", 4096));
    let told = describe_local("llamacpp", &server.base_url(), "m").await.unwrap();
    assert_eq!(told.context_window, Some(4096));
    let pid = fake.pid();
    server.stop().await.unwrap();
    wait_until_gone(pid);
}

#[tokio::test]
async fn two_servers_do_not_meet() {
    let (one, two) = (Fake::new(false), Fake::new(false));
    let (a, b) = tokio::join!(LlamaServer::start(one.config(&[])), LlamaServer::start(two.config(&[])));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_ne!(a.base_url(), b.base_url());
    a.stop().await.unwrap();
    assert!(b.is_healthy().await);
    b.stop().await.unwrap();
}

#[tokio::test]
async fn the_window_grows_at_the_same_address_up_to_its_limit() {
    let fake = Fake::new(false);
    let mut server = LlamaServer::start(fake.config(&[])).await.unwrap();
    let (address, first) = (server.base_url(), fake.pid());
    assert_eq!(server.grow(5000).await, Ok(8192));
    assert_eq!((server.base_url(), ask(&server).await.as_str()), (address, "8192"));
    assert!(!is_there(first), "the old process is gone before the new one starts");
    assert_eq!(server.grow(100_000).await, Ok(16_384), "no more than allowed");
    let error = server.grow(1).await.unwrap_err();
    assert_eq!((error.code(), server.context()), ("HM2033", 16_384));
    assert!(server.is_healthy().await, "it stays as it is");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_window_that_does_not_fit_leaves_the_old_one() {
    let fake = Fake::new(false);
    let mut server = LlamaServer::start(fake.config(&["--breaks-above", "5000"])).await.unwrap();
    let error = server.grow(8000).await.unwrap_err();
    assert_eq!(error.code(), "HM2031");
    assert!(error.to_string().contains("out of memory for 8192"), "{error}");
    assert_eq!((server.context(), ask(&server).await.as_str()), (4096, "4096"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let fake = Fake::new(false);
    let missing = LlamaServerConfig { program: "/nonexistent/llama-server".into(), ..fake.config(&[]) };
    let error = LlamaServer::start(missing).await.unwrap_err();
    assert!(matches!(&error, LlamaError::Ended { log, .. } if log.contains("/nonexistent/llama-server")), "{error}");
    let mute = LlamaServerConfig { start_timeout: Duration::from_secs(5), ..fake.config(&["--mute"]) };
    let error = LlamaServer::start(mute).await.unwrap_err();
    assert_eq!(error.code(), "HM2032");
    if fake.pid_file().exists() {
        wait_until_gone(fake.pid());
    }
}

#[tokio::test]
async fn one_that_ended_is_started_again() {
    let fake = Fake::new(false);
    let mut server = LlamaServer::start(fake.config(&[])).await.unwrap();
    let (address, pid) = (server.base_url(), fake.pid());
    std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    let since = Instant::now();
    while server.is_running() {
        assert!(since.elapsed() < GONE_MAX);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.revive().await.unwrap();
    assert_eq!((server.base_url(), ask(&server).await.as_str()), (address, "4096"));
    server.revive().await.unwrap();
    let pid = fake.pid();
    drop(server);
    wait_until_gone(pid);
}

#[tokio::test]
async fn dropping_it_ends_it_even_when_it_does_not_listen() {
    let fake = Fake::new(true);
    let server = LlamaServer::start(fake.config(&[])).await.unwrap();
    let pid = fake.pid();
    drop(server);
    wait_until_gone(pid);
}

#[tokio::test]
async fn a_model_starts_its_server_with_the_first_request_and_grows_between_requests() {
    let fake = Fake::new(false);
    let model = LlamaModel::new(fake.config(&[]), http());
    assert_eq!((model.info().provider.as_str(), model.info().context_window), (LLAMA_SERVER, Some(4096)));
    assert_eq!(model.grow_window(8192).await, None, "what does not run yet is not grown");
    let (one, two) = tokio::join!(ask_model(&model), ask_model(&model));
    assert_eq!((one.as_str(), two.as_str(), model.grown_window()), ("4096", "4096", None));
    assert_eq!(model.grow_window(8192).await, Some(8192));
    assert_eq!((ask_model(&model).await.as_str(), model.grown_window()), ("8192", Some(8192)));
    std::process::Command::new("kill").args(["-KILL", &fake.pid().to_string()]).status().unwrap();
    wait_until_gone(fake.pid());
    assert_eq!(model.grow_window(16_384).await, Some(16_384), "also when it just ended");
    assert_eq!(ask_model(&model).await, "16384");
    assert_eq!(model.grow_window(1).await, None, "no more is allowed");
    let pid = fake.pid();
    drop(model);
    wait_until_gone(pid);
}

#[tokio::test]
async fn a_model_whose_server_cannot_start_says_why() {
    let fake = Fake::new(false);
    let config = LlamaServerConfig { program: "/nonexistent/llama-server".into(), ..fake.config(&[]) };
    let model = LlamaModel::new(config, http());
    let error = model.stream(&request()).await.err().unwrap();
    assert!(error.message.contains("HM2031") && error.message.contains("/nonexistent"), "{error}");
}

/// Starts a server in a process that is then killed; a test without anything to do when nobody wants it.
#[tokio::test]
async fn owner_that_is_killed() {
    let Some(dir) = std::env::var_os("OWNER_DIR") else { return };
    let program = Path::new(&dir).join("llama-server");
    let model = Path::new(&dir).join("model.gguf");
    let config = LlamaServerConfig { program, ..LlamaServerConfig::new(model, 4096) };
    let _server = LlamaServer::start(config).await.unwrap();
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
