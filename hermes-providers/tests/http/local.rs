//! The look for servers on this computer.

use hermes_providers::{LocalPorts, LocalServer, describe_local, probe_local};

use crate::server::{Act, Server, response};

/// A port that nobody listens on.
fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn nobody() -> LocalPorts {
    LocalPorts { ollama: closed_port(), lmstudio: closed_port(), llamacpp: closed_port(), vllm: closed_port() }
}

fn json(body: &str) -> Vec<Act> {
    vec![response("200 OK", "Content-Type: application/json\r\n", body)]
}

fn shown(server: &LocalServer) -> (String, Vec<(String, Option<u64>)>) {
    let models = server.models.iter().map(|model| (model.id.clone(), model.context_window)).collect();
    (server.provider.clone(), models)
}

/// The whole look has a limit, so a busy machine may miss an answer; a second look finds it.
async fn probe_until(ports: LocalPorts, count: usize) -> Vec<LocalServer> {
    let mut found = probe_local(ports).await;
    for _ in 0..20 {
        let full = found.iter().all(|server| server.models.first().is_some_and(|model| model.context_window.is_some()));
        if found.len() == count && full {
            break;
        }
        found = probe_local(ports).await;
    }
    found
}

#[tokio::test]
async fn nobody_is_found_where_nobody_is() {
    assert_eq!(probe_local(nobody()).await, []);
}

#[tokio::test]
async fn servers_are_told_apart_by_what_they_say() {
    let llama = Server::start(|seen| {
        if seen.head.starts_with("get /props") {
            json(r#"{"default_generation_settings":{"n_ctx":4096}}"#)
        } else {
            json(r#"{"data":[{"id":"smol.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":8192}}]}"#)
        }
    })
    .await;
    let vllm = Server::always(json(r#"{"data":[{"id":"big","owned_by":"vllm","max_model_len":32768}]}"#)).await;
    let studio = Server::start(|seen| {
        if seen.head.starts_with("get /api/v0/models") {
            json(
                r#"{"data":[{"id":"e","type":"embeddings"},{"id":"a","type":"llm","max_context_length":100000},
                   {"id":"b","type":"llm","state":"loaded","loaded_context_length":9000,"max_context_length":100000}]}"#,
            )
        } else {
            json(r#"{"data":[{"id":"e"},{"id":"a"},{"id":"b","owned_by":"organization_owner"}]}"#)
        }
    })
    .await;
    // llama.cpp on vLLM's port is still llama.cpp.
    let ports = LocalPorts { vllm: llama.port, llamacpp: vllm.port, lmstudio: studio.port, ..nobody() };
    let found = probe_until(ports, 3).await;
    let shown: Vec<_> = found.iter().map(shown).collect();
    assert_eq!(
        shown,
        [
            ("lmstudio".to_owned(), vec![("b".to_owned(), Some(9000)), ("a".to_owned(), None)]),
            ("vllm".to_owned(), vec![("big".to_owned(), Some(32_768))]),
            ("llamacpp".to_owned(), vec![("smol.gguf".to_owned(), Some(4096))]),
        ]
    );
    assert_eq!(found[2].base_url, llama.base_url());
}

#[tokio::test]
async fn what_can_be_talked_to_and_is_loaded_stands_first() {
    let ollama = Server::start(|seen| {
        if seen.head.starts_with("get /api/ps") {
            json(r#"{"models":[{"model":"loaded:latest","context_length":4096}]}"#)
        } else {
            json(r#"{"data":[{"id":"nomic-embed-text:latest"},{"id":"other:latest"},{"id":"loaded:latest"}]}"#)
        }
    })
    .await;
    let found = probe_until(LocalPorts { ollama: ollama.port, ..nobody() }, 1).await;
    let want = [("loaded:latest", Some(4096)), ("other:latest", None), ("nomic-embed-text:latest", None)];
    let want = want.map(|(id, window)| (id.to_owned(), window)).to_vec();
    assert_eq!(shown(&found[0]), ("ollama".to_owned(), want));
}

#[tokio::test]
async fn a_server_is_described_by_what_it_says_of_itself_and_with_the_key_that_it_wants() {
    let router = Server::start(|seen| {
        if !seen.head.contains("authorization: bearer k-1") {
            return vec![response("401 Unauthorized", "", "{}")];
        }
        if seen.head.starts_with("get /props?model=a%2fb&autoload=false") {
            json(r#"{"default_generation_settings":{"n_ctx":4096},"chat_template_caps":{"supports_tools":true}}"#)
        } else if seen.head.starts_with("get /props") {
            json(r#"{"role":"router","default_generation_settings":{"n_ctx":0}}"#)
        } else {
            json(r#"{"data":[{"id":"a/b","owned_by":"llamacpp"},{"id":"c","owned_by":"llamacpp"}]}"#)
        }
    })
    .await;
    let url = router.base_url();
    assert_eq!(describe_local("custom", &url, "a/b", None).await, None);
    let key = "k-1".into();
    let told = describe_local("custom", &url, "a/b", Some(&key)).await.unwrap();
    assert_eq!((told.context_window, told.tools), (Some(4096), Some(true)));
    let told = describe_local("llamacpp", &url, "c", Some(&key)).await.unwrap();
    assert_eq!(told.context_window, None, "a router has no window of its own");
}

#[tokio::test]
async fn web_servers_and_silent_ones_are_no_models() {
    let web = Server::always(vec![response("200 OK", "", "<html>hello</html>")]).await;
    let silent = Server::always(vec![Act::AwaitClose]).await;
    let other = Server::always(json(r#"{"status":"ok"}"#)).await;
    let ports = LocalPorts { ollama: web.port, vllm: silent.port, llamacpp: other.port, ..nobody() };
    assert_eq!(probe_local(ports).await, []);
}
