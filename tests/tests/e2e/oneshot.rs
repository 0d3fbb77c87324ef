//! One input, one answer: what is printed where, and the exit code.

use hermes_tests::home::{Home, lines};
use hermes_tests::server::ModelServer;
use serde_json::Value;

#[tokio::test]
async fn the_first_command_of_the_readme_answers_without_any_set_up() {
    let home = Home::empty().unwrap();
    let run = home.run(&["-z", "run: echo hello"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("hello"), "{run:?}");
}

#[tokio::test]
async fn the_practice_model_reads_and_writes_files_and_says_what_it_is() {
    let home = Home::empty().unwrap();
    let run = home.run(&["-z", "write: notes.txt: hello\nthen\nread: notes.txt"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(lines(&home.file("notes.txt")), ["hello"]);
    let run = home.run(&["-z", "who are you?"]).await.unwrap();
    assert!(run.stdout.to_lowercase().contains("practice"), "{run:?}");
}

#[tokio::test]
async fn an_openai_wire_server_is_used_as_configured() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    for (prompt, want, requests) in [
        ("RUN_TOOLS 10", "done".to_owned(), 11),
        ("PAR 4", "done".to_owned(), 2),
        ("LONG 5000", (0..5000).map(|n| format!("tok{n} ")).collect::<String>(), 1),
    ] {
        server.forget();
        let run = home.run(&["-z", prompt]).await.unwrap();
        assert_eq!((run.code, run.stdout.trim()), (Some(0), want.trim()), "{prompt}: {}", run.stderr);
        assert_eq!(server.seen().len(), requests, "{prompt}");
    }
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
}

#[tokio::test]
async fn i13_e07_parallel_calls_keep_the_order_of_the_calls() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let prompt = "PAR 4 CMD{sleep 0.$((4-{j})); echo out-{j}}CMD";
    let run = home.run(&["-z", prompt]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let last: Value = serde_json::from_slice(&server.seen().last().unwrap().body).unwrap();
    let results: Vec<&str> = last["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    for (at, result) in results.iter().enumerate() {
        assert!(result.contains(&format!("out-{at}")), "{results:?}");
    }
}

#[tokio::test]
async fn quiet_prints_the_answer_and_names_the_session_last() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let run = home.run(&["chat", "-q", "hello", "-Q"]).await.unwrap();
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "ok, short answer"), "{run:?}");
    let last = run.stderr.lines().last().unwrap();
    let id = last.strip_prefix("session_id: ").unwrap_or_else(|| panic!("{run:?}"));
    let again = home.run(&["--resume", id, "-z", "hello again"]).await.unwrap();
    assert_eq!(again.code, Some(0), "{again:?}");
    let body: Value = serde_json::from_slice(&server.seen().last().unwrap().body).unwrap();
    assert_eq!(body["messages"].as_array().unwrap().len(), 4, "system, user, assistant, user");
}

#[tokio::test]
async fn json_prints_one_event_a_line_and_the_result_last() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let run = home.run(&["--json", "-z", "RUN_TOOLS 1"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let events: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().any(|event| event["type"] == "call_finished"), "{}", run.stdout);
    assert!(events.last().unwrap().to_string().contains("answered"), "{}", run.stdout);
}

#[tokio::test]
async fn piped_input_is_appended_and_wrong_use_is_2() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let run = home.run_with(&["-z", "look at this:"], b"some piped text").await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(String::from_utf8_lossy(&server.seen()[0].body).contains("some piped text"));
    for args in
        [&["--no-such-flag"][..], &["-z", ""], &["--resume", "nobody", "-z", "x"], &["--provider", "nobody", "-z", "x"]]
    {
        let run = home.run(args).await.unwrap();
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{args:?}: {run:?}");
    }
}

#[tokio::test]
async fn i27_a_broken_configuration_names_file_line_and_column() {
    let home = Home::empty().unwrap();
    home.configure("model:\n  default: [a\n").unwrap();
    let run = home.run(&["-z", "hello"]).await.unwrap();
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("config.yaml:"), "{run:?}");
    home.configure("model: {provider: practice}\nsome_future_key: {a: 1}\n").unwrap();
    let run = home.run(&["-z", "run: echo fine"]).await.unwrap();
    assert_eq!(run.code, Some(0), "an unknown key is no error: {run:?}");
}

#[tokio::test]
async fn i22_without_anybody_to_ask_a_dangerous_command_is_denied() {
    let home = Home::empty().unwrap();
    std::fs::write(home.file("keep.txt"), "x").unwrap();
    let run = home.run(&["-z", "run: rm -rf ."]).await.unwrap();
    assert!(home.file("keep.txt").exists(), "{run:?}");
    let run = home.run(&["--yolo", "-z", "run: rm -rf /"]).await.unwrap();
    assert!(home.file("keep.txt").exists(), "{run:?}");
    assert_eq!(run.code, Some(0), "the denial is told, the turn goes on: {run:?}");
}

#[tokio::test]
async fn i24_a_key_appears_in_no_output_and_no_file_but_the_user_s_own() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::empty().unwrap();
    std::fs::write(home.path().join(".env"), "HERMES_TEST_KEY=sk-marked-5ecret-0987654321\n").unwrap();
    home.configure(&format!(
        "model: {{provider: mine, default: m}}\nproviders: {{mine: {{base_url: \"{}\", key_env: HERMES_TEST_KEY}}}}\napprovals: {{mode: off}}\n",
        server.base_url()
    ))
    .unwrap();
    for prompt in ["RUN_TOOLS 1 CMD{env}CMD", "FAUTH 9"] {
        let mut command = home.command(&["-z", prompt, "--json"]).unwrap();
        command.env("RUST_LOG", "trace").env("OPENAI_API_KEY", "sk-marked-5ecret-0987654321");
        let run = hermes_tests::home::finish(command.spawn().unwrap()).await.unwrap();
        assert!(!run.stdout.contains("5ecret") && !run.stderr.contains("5ecret"), "{run:?}");
    }
    for seen in server.seen() {
        assert!(!String::from_utf8_lossy(&seen.body).contains("5ecret"));
    }
    for entry in std::fs::read_dir(home.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && path.file_name().unwrap() != ".env" {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(6).any(|window| window == b"5ecret"), "{}", path.display());
        }
    }
}

#[tokio::test]
async fn pictures_go_to_the_model_and_again_with_a_retry() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    std::fs::write(home.file("a.png"), b"\x89PNG\r\n\x1a\n1").unwrap();
    std::fs::write(home.file("b.txt"), b"no picture").unwrap();
    let file = |name: &str| home.file(name).to_str().unwrap().to_owned();
    let run = home.run(&["-z", "look", "--image", &file("a.png")]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let run = home.run(&["sessions", "list", "--json"]).await.unwrap();
    let line: Value = serde_json::from_str(run.stdout.lines().next().unwrap()).unwrap();
    let id = line["id"].as_str().unwrap().to_owned();
    let run = home.run(&["sessions", "retry", &id]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    for request in seen {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let content = body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
        assert_eq!(content[0]["text"], "look");
        assert_eq!(content[1]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgox");
    }
    for (name, code) in [("b.txt", "HM4106"), ("c.png", "c.png")] {
        let run = home.run(&["-z", "look", "--image", &file(name)]).await.unwrap();
        assert_ne!(run.code, Some(0));
        assert!(run.stderr.contains(code), "{}", run.stderr);
    }
}
