//! Records a conversation with a real server, or replays it: `cassette FILE BASE_URL MODEL [TEXT]`.
//!
//! The first run asks the server at BASE_URL (with the key in `EXAMPLE_KEY`, when it needs one) and writes FILE; every later
//! run answers from FILE, offline. The key is not in it.
//!
//! ```text
//! cargo run -p hermes-providers --features test-util --example cassette -- hello.json http://127.0.0.1:11434/v1 qwen3
//! ```

use futures::StreamExt as _;
use hermes_providers::cassette::Cassette;
use hermes_providers::{ChatMessage, ChatModel, ChatRequest, Delta, HttpChatModel, HttpModelConfig, Profiles};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, upstream, model, rest @ ..] = args.as_slice() else {
        return Err("usage: cassette FILE BASE_URL MODEL [TEXT]".into());
    };
    let cassette = Cassette::open(file, upstream, &[]).await?;
    eprintln!("{} {file}", if cassette.is_recording() { "recording" } else { "replaying" });

    let profile = Profiles::bundled()?.get("custom").ok_or("the profile `custom` is missing")?.clone();
    let mut config = HttpModelConfig::new(profile, model);
    config.base_url = Some(cassette.base_url());
    config.key = std::env::var("EXAMPLE_KEY").ok().map(Into::into);
    let model = HttpChatModel::new(config)?;
    let request = ChatRequest {
        system: "Answer in one sentence.".into(),
        ..ChatRequest::new(vec![ChatMessage::user(rest.first().map_or("What is a cassette?", String::as_str))])
    };
    let mut answer = model.stream(&request).await?;
    while let Some(delta) = answer.next().await {
        if let Delta::Done(done) = delta? {
            println!("{}", done.text);
        }
    }
    let report = cassette.finish().await?;
    eprintln!("{} exchanges, {} unused", report.exchanges, report.unused);
    Ok(())
}
