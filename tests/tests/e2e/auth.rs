//! Several keys of one provider, and `hermes auth`.

use hermes_tests::home::Home;
use hermes_tests::server::ModelServer;
use serde_json::Value;

/// A home whose provider has its keys in `.env`.
fn home(server: &ModelServer, keys: &str) -> Home {
    let home = Home::empty().unwrap();
    let url = server.base_url();
    home.configure(&format!(
        "model: {{provider: mine, default: fake-model}}\nproviders: {{mine: {{base_url: \"{url}\", key_env: MY_KEY}}}}\napprovals: {{mode: \"off\"}}\n"
    ))
    .unwrap();
    std::fs::write(home.path().join(".env"), keys).unwrap();
    home
}

fn used(server: &ModelServer) -> Vec<String> {
    server.seen().into_iter().map(|seen| seen.authorization.unwrap_or_default()).collect()
}

#[tokio::test]
async fn b56_a_limited_or_refused_key_gives_way_to_the_next_one_within_the_request() {
    for fault in ["F429", "FAUTH"] {
        let server = ModelServer::start().await.unwrap();
        let home = home(&server, "MY_KEY=marked-key-1\nMY_KEY_2=marked-key-2\n");
        let run = home.run(&["-z", &format!("{fault} hello")]).await.unwrap();
        assert_eq!(run.code, Some(0), "{fault}: {run:?}");
        assert_eq!(used(&server), ["Bearer marked-key-1", "Bearer marked-key-2"], "{fault}");
    }
}

#[tokio::test]
async fn credentials_are_added_listed_used_and_removed_and_never_shown() {
    let server = ModelServer::start().await.unwrap();
    let home = home(&server, "MY_KEY=marked-key-1\n");
    let added = home.run_with(&["auth", "add", "mine", "--label", "second"], b"marked-key-2\n").await.unwrap();
    assert_eq!(added.code, Some(0), "{added:?}");
    let listed = home.run(&["auth", "list", "--json"]).await.unwrap();
    let rows: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((rows[0]["source"].as_str(), rows[1]["label"].as_str()), (Some("env:MY_KEY"), Some("second")));
    let removed = home.run(&["auth", "remove", "mine", "MY_KEY"]).await.unwrap();
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let run = home.run(&["-z", "hello"]).await.unwrap();
    assert_eq!((run.code, used(&server)), (Some(0), vec!["Bearer marked-key-2".to_owned()]), "{run:?}");
    let status = home.run(&["auth", "status"]).await.unwrap();
    assert!(status.stdout.contains("second") && !status.stdout.contains("MY_KEY"), "{status:?}");
    let reset = home.run(&["auth", "reset", "mine"]).await.unwrap();
    assert!(reset.stdout.contains("MY_KEY"), "{reset:?}");
    for run in [&added, &listed, &removed, &run, &status, &reset] {
        assert!(!format!("{run:?}").contains("marked"), "{run:?}");
    }
    let wrong = home.run(&["auth", "remove", "mine", "nothing"]).await.unwrap();
    assert!(wrong.code == Some(2) && wrong.stderr.contains("HM0214"), "{wrong:?}");
}

#[tokio::test]
async fn b50_a_damaged_auth_file_stops_no_other_command_and_is_left_as_it_is() {
    let server = ModelServer::start().await.unwrap();
    let home = home(&server, "MY_KEY=marked-key-1\n");
    let file = home.path().join("auth.json");
    std::fs::write(&file, "{\"cred").unwrap();
    for args in [&["-z", "hello"][..], &["sessions", "list"], &["model"]] {
        let run = home.run(args).await.unwrap();
        assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
    }
    let run = home.run(&["auth", "list"]).await.unwrap();
    assert!(run.code == Some(1) && run.stderr.contains("HM2022"), "{run:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"cred");
}

/// Every file below a directory, as text.
fn everything(dir: &std::path::Path, skip: &str, out: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            everything(&path, skip, out);
        } else if !path.ends_with(skip) {
            out.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default()));
        }
    }
}

#[tokio::test]
async fn i24_b52_no_marked_secret_is_in_any_output_of_a_turn_at_trace_level() {
    let server = ModelServer::start().await.unwrap();
    let home = home(&server, "MY_KEY=marked-key-1\nMY_KEY_2=marked-key-2\n");
    home.run_with(&["auth", "add", "mine"], b"marked-key-3\n").await.unwrap();
    for prompt in ["FAUTH RUN_TOOLS 1", "F429 hello", "F500 hello again"] {
        let mut command = home.command(&["--json", "-z", prompt]).unwrap();
        command.env("RUST_LOG", "trace").env("HERMES_LOG", "trace").env("RUST_BACKTRACE", "1");
        let run = hermes_tests::home::finish(command.spawn().unwrap()).await.unwrap();
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(!said.contains("marked-key"), "{prompt}: {said}");
    }
    let mut files = Vec::new();
    // `.env` is the user's own, `auth.json` is where the added key belongs.
    everything(&home.path(), ".env", &mut files);
    for (path, bytes) in files {
        let text = String::from_utf8_lossy(&bytes);
        let allowed = path.ends_with("auth.json");
        assert!(!text.contains("marked-key-1") && !text.contains("marked-key-2"), "{path}");
        assert!(allowed || !text.contains("marked-key"), "{path}");
    }
}

/// An issuer that gives tokens at the second question, over raw sockets; keeps what was asked.
async fn issuer() -> (String, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = std::sync::Arc::clone(&seen);
    // Ends with the runtime of the test.
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (mut text, mut buffer) = (String::new(), [0; 4096]);
            while !text.contains("client_id=") {
                let Ok(got @ 1..) = socket.read(&mut buffer).await else { break };
                text.push_str(&String::from_utf8_lossy(&buffer[..got]));
            }
            let polls = log.lock().unwrap().iter().filter(|seen: &&String| seen.contains("/token")).count();
            let (status, body) = match (text.starts_with("POST /device"), polls) {
                (true, _) => (
                    "200 OK",
                    r#"{"device_code":"d","user_code":"WXYZ-1234","verification_uri":"https://issuer.example/go","interval":1}"#,
                ),
                (false, 0) => ("400 Bad Request", r#"{"error":"authorization_pending"}"#),
                (false, _) => {
                    ("200 OK", r#"{"access_token":"marked-at","refresh_token":"marked-rt","expires_in":3600}"#)
                }
            };
            log.lock().unwrap().push(text);
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (address, seen)
}

#[tokio::test]
async fn a_login_of_a_profile_in_the_home_works_from_its_code_to_the_request() {
    let server = ModelServer::start().await.unwrap();
    let (issuer, asked) = issuer().await;
    let home = Home::empty().unwrap();
    home.configure("model: {provider: ours, default: fake-model}\napprovals: {mode: \"off\"}\n").unwrap();
    std::fs::create_dir(home.path().join("model-providers")).unwrap();
    let profile = format!(
        "id = 'ours'\nname = 'Ours'\napi_mode = 'chat_completions'\nbase_url = '{}'\nkey = 'optional'\n[oauth]\n\
         device_url = '{issuer}/device'\ntoken_url = '{issuer}/token'\nclient_id = 'client-1'\npkce = true\n",
        server.base_url()
    );
    std::fs::write(home.path().join("model-providers/ours.toml"), profile).unwrap();
    let login = home.run(&["auth", "login", "ours", "--label", "work"]).await.unwrap();
    assert_eq!(login.code, Some(0), "{login:?}");
    assert!(login.stderr.contains("https://issuer.example/go") && login.stderr.contains("WXYZ-1234"), "{login:?}");
    let run = home.run(&["-z", "hello"]).await.unwrap();
    assert_eq!((run.code, used(&server)), (Some(0), vec!["Bearer marked-at".to_owned()]), "{run:?}");
    let listed = home.run(&["auth", "list"]).await.unwrap();
    assert!(listed.stdout.contains("work") && listed.stdout.contains("oauth"), "{listed:?}");
    let shown = home.run(&["providers", "show", "ours"]).await.unwrap();
    assert!(shown.stdout.contains("auth.json"), "{shown:?}");
    for run in [&login, &run, &listed, &shown] {
        assert!(!format!("{run:?}").contains("marked"), "{run:?}");
    }
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 3);
    assert!(asked[0].contains("code_challenge=") && asked[2].contains("code_verifier="), "{asked:?}");
}

#[tokio::test]
async fn a_login_that_another_program_owns_is_used_and_read_again_when_it_is_refused() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::empty().unwrap();
    home.configure("model: {provider: ours, default: fake-model}\napprovals: {mode: \"off\"}\n").unwrap();
    std::fs::create_dir(home.path().join("model-providers")).unwrap();
    let profile = format!(
        "id = 'ours'\nname = 'Ours'\napi_mode = 'chat_completions'\nbase_url = '{}'\nkey = 'optional'\n[external_login]\n\
         command = ['sh', '-c', 'echo run >> runs; echo marked-$(wc -l < runs | tr -d \" \")']\n",
        server.base_url()
    );
    std::fs::write(home.path().join("model-providers/ours.toml"), profile).unwrap();
    let run = home.run(&["-z", "FAUTH hello"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(used(&server), ["Bearer marked-1", "Bearer marked-2"]);
    let shown = home.run(&["providers", "show", "ours"]).await.unwrap();
    assert!(shown.stdout.contains("external_command"), "{shown:?}");
    assert!(!format!("{run:?}{shown:?}").contains("marked"));
}
