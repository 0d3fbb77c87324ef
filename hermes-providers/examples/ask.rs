//! Asks an OpenAI-compatible server and prints the answer as it comes.
//!
//! `cargo run -p hermes-providers --example ask -- http://127.0.0.1:8080/v1 MODEL "Why is the sky blue?" [KEY]`

use std::io::Write;

use bytes::Bytes;
use futures::StreamExt;
use hermes_providers::{CUSTOM, ChatMessage, ChatModel, ChatRequest, Delta, HttpChatModel, HttpModelConfig, Profiles};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [base_url, model, question, rest @ ..] = arguments.as_slice() else {
        return Err("use: ask BASE_URL MODEL QUESTION [KEY]".into());
    };
    let profile = Profiles::bundled()?.get(CUSTOM).cloned().ok_or("no custom profile")?;
    let mut config = HttpModelConfig::new(profile, model.as_str());
    config.base_url = Some(base_url.clone());
    config.key = rest.first().map(|key| key.clone().into());
    let model = HttpChatModel::new(config)?;
    let request = ChatRequest {
        system: Bytes::from_static(b"You are a helpful assistant."),
        ..ChatRequest::new(vec![ChatMessage::user(question.clone())])
    };
    let mut answer = model.stream(&request).await?;
    let mut out = std::io::stdout();
    while let Some(delta) = answer.next().await {
        match delta? {
            Delta::Text(text) => write!(out, "{text}").and_then(|()| out.flush())?,
            Delta::Done(done) => writeln!(out, "\n[{:?}, {:?}]", done.finish, done.usage)?,
            _ => {}
        }
    }
    Ok(())
}
