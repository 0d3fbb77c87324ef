//! What is known of models, asked of the real program.

use hermes_tests::home::Home;
use hermes_tests::server::ModelServer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn shown(home: &Home, args: &[&str]) -> Value {
    let run = home.run(args).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

#[tokio::test]
async fn a_search_needs_no_set_up_and_no_network() {
    let home = Home::empty().unwrap();
    let found = shown(&home, &["model", "search", "anthropic", "OPUS", "4.5", "--json"]).await;
    assert_eq!(found["total"], 1);
    let model = &found["models"][0];
    assert_eq!((&model["provider"], &model["model"]), (&json!("anthropic"), &json!("claude-opus-4-5")));
    assert_eq!((&model["context_window"], &model["source"]), (&json!(200_000), &json!("snapshot")));
    assert_eq!(model["prices"]["cache_read"], "0.50");
    let run = home.run(&["model", "search", "opus-4-5"]).await.unwrap();
    assert!(run.stdout.contains("5.00 / 25.00"), "{run:?}");
    let run = home.run(&["model", "search", "no-such-model"]).await.unwrap();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(!home.path().join("cache").exists(), "a question writes nothing");
}

#[tokio::test]
async fn a_model_is_shown_by_any_of_its_names_with_the_source_of_its_facts() {
    let home = Home::empty().unwrap();
    let by_date = shown(&home, &["model", "show", "claude-haiku-4-5-20251001", "--json"]).await;
    assert_eq!(
        (&by_date["provider"], &by_date["known"]["known_as"]),
        (&json!("anthropic"), &json!("claude-haiku-4-5"))
    );
    assert_eq!(by_date["known"]["context_window"], json!({"value": 200_000, "source": "snapshot"}));
    // The same model somewhere else: its prices there are not known.
    let elsewhere =
        shown(&home, &["model", "show", "anthropic/claude-haiku-4.5", "--provider", "openrouter", "--json"]).await;
    assert_eq!(elsewhere["known"]["context_window"]["value"], 200_000);
    assert_eq!(elsewhere["known"].get("prices"), None);
    let run = home.run(&["model", "show", "nobody-knows-this-one"]).await.unwrap();
    assert!(run.stdout.contains("window    unknown"), "{run:?}");
}

#[tokio::test]
async fn what_the_configuration_says_goes_first() {
    let home = Home::empty().unwrap();
    home.configure(
        "model: {provider: anthropic, default: claude-opus-4-5, context_length: 90000, api_key: sk-test-1}\n",
    )
    .unwrap();
    let known = shown(&home, &["model", "show", "--json"]).await["known"].clone();
    assert_eq!(known["context_window"], json!({"value": 90_000, "source": "config"}));
    assert_eq!(known["max_output_tokens"], json!({"value": 64_000, "source": "snapshot"}));
}

#[tokio::test]
async fn a_provider_s_list_is_asked_for_once_and_kept() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let run = home.run(&["model", "refresh"]).await.unwrap();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "custom lists 1 models\n"), "{run:?}");
    let kept = std::fs::read_to_string(home.path().join("cache/models/custom.json")).unwrap();
    assert!(kept.contains("fake-model") && !kept.contains("test-key-1"), "{kept}");
    drop(server);
    let found = shown(&home, &["model", "search", "fake-model", "--json"]).await;
    assert_eq!(found["models"][0]["source"], "provider");
    let run = home.run(&["model", "refresh"]).await.unwrap();
    assert_eq!(run.code, Some(1), "the server is gone: {run:?}");
    let again = shown(&home, &["model", "search", "fake-model", "--json"]).await;
    assert_eq!(again["total"], 1, "what was known stays");
}

/// A server that says of itself what llama.cpp's says, for as long as it is held.
fn llama(window: u64) -> (String, tokio::task::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let task = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let read = socket.read(&mut head).await.unwrap_or(0);
            let body = match String::from_utf8_lossy(&head[..read]).split(' ').nth(1) {
                Some("/v1/models") => json!({"data": [{"id": "smol", "owned_by": "llamacpp"}]}),
                _ => json!({"default_generation_settings": {"n_ctx": window}, "modalities": {"vision": true}}),
            };
            let body = body.to_string();
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (base_url, task)
}

#[tokio::test]
async fn a_local_server_is_asked_what_its_window_really_is() {
    let (base_url, task) = llama(4096);
    let home = Home::empty().unwrap();
    home.configure(&format!("model: {{provider: llamacpp, base_url: \"{base_url}\", default: smol}}\n")).unwrap();
    let known = shown(&home, &["model", "show", "--json"]).await["known"].clone();
    assert_eq!(known["context_window"], json!({"value": 4096, "source": "provider"}));
    assert_eq!((&known["inputs"]["value"], &known["local"]), (&json!(["text", "image"]), &json!(true)));
    task.abort();
}

/// What `sessions show` says of the only session of a home.
async fn session(home: &Home) -> (Value, String) {
    let run = home.run(&["sessions", "list", "--json"]).await.unwrap();
    let list: Value = serde_json::from_str(run.stdout.lines().next().unwrap()).unwrap();
    let id = list["id"].as_str().unwrap().to_owned();
    let text = home.run(&["sessions", "show", &id]).await.unwrap().stdout;
    (shown(home, &["sessions", "show", &id, "--json"]).await, text)
}

#[tokio::test]
async fn a_conversation_shows_what_it_cost_where_that_is_known() {
    let home = Home::empty().unwrap();
    home.run(&["-z", "hello"]).await.unwrap();
    let (practice, _) = session(&home).await;
    assert_eq!(practice["costs"][0]["status"], "included", "{practice}");

    let server = ModelServer::start().await.unwrap();
    for (model, want) in [("llama-3.3-70b-versatile", ", about $0.000067"), ("fake-model", ", cost unknown")] {
        let home = Home::empty().unwrap();
        let key = "api_key: sk-test-1";
        let yaml = format!("model: {{provider: groq, base_url: \"{}\", default: {model}, {key}}}\n", server.base_url());
        home.configure(&yaml).unwrap();
        let run = home.run(&["-z", "hello"]).await.unwrap();
        assert_eq!(run.code, Some(0), "{run:?}");
        let (_, text) = session(&home).await;
        assert!(text.contains(want), "{text}");
    }
}
