//! The HTTP transport against servers that split, stall, cut, redirect and lie.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test may fail the test")]

#[path = "http/answers.rs"]
mod answers;
#[path = "http/bedrock.rs"]
mod bedrock;
#[cfg(feature = "test-util")]
#[path = "http/cassette.rs"]
mod cassette;
#[path = "http/connections.rs"]
mod connections;
#[cfg(feature = "test-util")]
#[path = "http/device.rs"]
mod device;
#[cfg(feature = "test-util")]
#[path = "http/fake.rs"]
mod fake;
#[path = "http/gemini.rs"]
mod gemini;
#[path = "http/http2.rs"]
mod http2;
#[path = "http/lists.rs"]
mod lists;
#[path = "http/local.rs"]
mod local;
#[path = "http/messages.rs"]
mod messages;
#[path = "http/network.rs"]
mod network;
#[path = "http/pool.rs"]
mod pool;
#[path = "http/proxy.rs"]
mod proxy;
#[path = "http/refresh.rs"]
mod refresh;
#[path = "http/responses.rs"]
mod responses;
#[path = "http/secrets.rs"]
mod secrets;
#[path = "http/server.rs"]
mod server;
#[path = "http/service_account.rs"]
mod service_account;
#[path = "http/tls.rs"]
mod tls;
#[path = "http/tokens.rs"]
mod tokens;

#[test]
fn every_test_file_is_a_module() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let wired = std::fs::read_to_string(folder.join("http.rs")).unwrap();
    for entry in std::fs::read_dir(folder.join("http")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".rs") {
            continue;
        }
        assert!(wired.contains(&format!("http/{name}")), "{name} is not wired");
    }
}
