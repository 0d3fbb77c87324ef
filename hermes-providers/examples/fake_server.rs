//! Serves scripted answers on all five wires, for the clients of others: `fake_server SCRIPT`.
//!
//! SCRIPT is a JSON object: for the text of each question a list of answers, one for each round of calls (see
//! `hermes_providers::fake`; `tests/fake.json` is one). Writes its address as its only line, and ends when its input ends.
//!
//! ```text
//! cargo run -p hermes-providers --features test-util --example fake_server -- hermes-providers/tests/fake.json
//! ```

use hermes_providers::fake::{FakeScript, FakeServer};
use tokio::io::AsyncReadExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file] = arguments.as_slice() else { return Err("use: fake_server SCRIPT".into()) };
    let script: FakeScript = serde_json::from_slice(&std::fs::read(file)?)?;
    let server = FakeServer::start(script).await?;
    println!("{}", server.base_url());
    let mut rest = [0; 256];
    while tokio::io::stdin().read(&mut rest).await? > 0 {}
    Ok(())
}
