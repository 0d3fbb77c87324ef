//! A LiteLLM proxy between our client and our scripted server, for the wires that it translates.
//!
//! What it reads of the scripted server is chat completions, and Responses for requests that came as messages; what it
//! writes to our client is its own idea of four wires.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::script;
use super::talk::{self, CHAT, GEMINI, MESSAGES, RESPONSES, Wire};
use super::verdict::{self, Counts, Known};
use super::{PLACE, place};
use crate::judge::child::Running;
use crate::judge::python;

/// The package with the one extra that the proxy needs.
const PACKAGE: (&str, &str) = ("litellm[proxy]", "1.106.12");
/// What it wrote.
const LOG: &str = "server.log";
/// The key that it wants of its own clients; it must begin like this.
const KEY: &str = "sk-judge";
/// Longest start: it imports for 15 s on an idle core and for two minutes on a busy machine.
const START_MAX_S: u64 = 300;
/// How often it is asked whether it runs.
const LOOK_EVERY_MS: u64 = 500;
/// Longest answer to that.
const LOOK_MAX_S: u64 = 5;

const WIRES: [Wire; 4] = [CHAT, RESPONSES, MESSAGES, GEMINI];

/// The questions whose answer is an error, and how LiteLLM changes them.
const LIMITED: &str = "Too many.";
const BUSY: &str = "Too busy.";
const WRONG_KEY: &str = "Wrong key.";
const WRONG_REQUEST: &str = "Wrong request.";
const BROKEN: &str = "Break in the middle.";
const WITHHELD: &str = "Say what is withheld.";

const fn known(
    wire: Wire,
    stream: Option<bool>,
    asked: Option<&'static str>,
    field: &'static str,
    why: &'static str,
) -> Known {
    Known { wire, stream, asked, field, why }
}

/// What it does otherwise.
const KNOWN: &[Known] = &[
    known(CHAT, None, Some(LIMITED), "wait", "passes no `retry-after` on"),
    known(RESPONSES, None, Some(LIMITED), "wait", "passes no `retry-after` on"),
    known(MESSAGES, None, Some(LIMITED), "wait", "passes no `retry-after` on"),
    known(GEMINI, None, Some(LIMITED), "wait", "passes no `retry-after` on"),
    known(CHAT, Some(true), Some(BROKEN), "class", "makes a 500 of an error inside a stream"),
    known(RESPONSES, None, None, "proof", "made of chat completions, which have no proof of reasoning"),
    known(RESPONSES, Some(true), Some(BROKEN), "class", "makes a 500 of an error inside a stream"),
    known(MESSAGES, None, None, "reasoning tokens", "counts no thinking in messages"),
    known(
        MESSAGES,
        None,
        Some(WITHHELD),
        "finish",
        "makes `max_tokens` of an incomplete response, whatever its reason",
    ),
    known(MESSAGES, Some(true), Some(BROKEN), "class", "makes a server's error of any error inside a stream"),
    known(MESSAGES, Some(true), Some(BROKEN), "message", "hides the words of an error inside a stream"),
    known(GEMINI, None, None, "reasoning", "drops reasoning"),
    known(GEMINI, None, None, "proof", "drops reasoning"),
    known(GEMINI, None, None, "ids of calls", "drops the ids of calls"),
    known(GEMINI, Some(true), None, "prompt tokens", "asks for no counts of a stream and says nought"),
    known(GEMINI, Some(true), None, "output tokens", "asks for no counts of a stream and says nought"),
    known(GEMINI, None, None, "cached tokens", "drops the count"),
    known(GEMINI, None, None, "reasoning tokens", "drops the count"),
    known(GEMINI, None, Some(BUSY), "class", "makes a 500 of it"),
    known(GEMINI, None, Some(WRONG_KEY), "class", "makes a 500 of it"),
    known(GEMINI, None, Some(WRONG_REQUEST), "class", "makes a 500 of it"),
    known(GEMINI, None, Some(BROKEN), "class", "makes a 500 of it"),
];

pub(super) fn run() -> Result<()> {
    let place = place("litellm")?;
    let python = python::environment(&place, &[PACKAGE], &[])?;
    println!("  {} {}", PACKAGE.0, PACKAGE.1);
    let script = script::read()?;
    let (_backend, backend) = script::serve()?;
    let config = place.join("config.yaml");
    std::fs::write(&config, config_of(&backend).to_string()).context("cannot write its configuration")?;
    let (_proxy, address) = serve(&python, &config, &place)?;
    let log = || format!("the proxy's log is {PLACE}/litellm/{LOG}");
    let talks = talk::talks(&script, &WIRES, &[]);
    let outcomes = talk::hold(&talks, &address, KEY).with_context(log)?;
    verdict::judge(&script, &talks, &outcomes, Counts::All, KNOWN).with_context(log)
}

/// Every model name that our client asks for leads to the scripted server. JSON is YAML.
fn config_of(backend: &str) -> Value {
    let models = WIRES.map(|wire| {
        let mut to = json!({"model": "openai/gpt-5-mini", "api_base": format!("{backend}/v1"), "api_key": "any"});
        // Its other way would be to pass Responses on as they are.
        if wire == RESPONSES {
            to["use_chat_completions_api"] = json!(true);
        }
        json!({"model_name": wire.model, "litellm_params": to})
    });
    json!({
        "model_list": models,
        "litellm_settings": {"telemetry": false, "num_retries": 0, "drop_params": true},
        "router_settings": {"num_retries": 0, "disable_cooldowns": true},
    })
}

fn serve(python: &Path, config: &Path, place: &Path) -> Result<(Running, String)> {
    let log = place.join(LOG);
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let program = python.with_file_name("litellm");
    // It takes no port 0. Whoever takes this one in between makes the start fail, which is said.
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).context("no free port")?.port();
    let mut command = Command::new(program);
    command
        .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--telemetry", "False", "--config"])
        .arg(config)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", place)
        .env("LITELLM_MASTER_KEY", KEY)
        .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true")
        // Its list of prices comes from the package, not from the network.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .stderr(file);
    let mut proxy = Running::start("LiteLLM", &mut command)?;
    let until = Instant::now() + Duration::from_secs(START_MAX_S);
    while !lives(port) {
        if Instant::now() > until {
            bail!("LiteLLM did not answer within {START_MAX_S} s; see {}", log.display());
        }
        if proxy.has_ended()? {
            bail!("LiteLLM ended before it answered; see {}", log.display());
        }
        thread::sleep(Duration::from_millis(LOOK_EVERY_MS));
    }
    Ok((proxy, format!("http://127.0.0.1:{port}")))
}

/// Whether something answers well on the port.
fn lives(port: u16) -> bool {
    let asked = || -> std::io::Result<[u8; 12]> {
        let limit = Duration::from_secs(LOOK_MAX_S);
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"GET /health/liveliness HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        Ok(start)
    };
    asked().is_ok_and(|start| start.ends_with(b" 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_has_a_model_of_its_own() {
        let config = config_of("http://127.0.0.1:1");
        let names: std::collections::BTreeSet<&str> =
            config["model_list"].as_array().unwrap().iter().map(|one| one["model_name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), WIRES.len());
    }

    #[test]
    fn a_port_without_a_server_does_not_live() {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        assert!(!lives(port));
    }
}
