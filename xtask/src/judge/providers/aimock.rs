//! `@copilotkit/aimock`, a server of others that imitates all five wires, asked by our client.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::script::{self, Answer, Finish, Script};
use super::talk::{self, CHAT, CONVERSE, GEMINI, MESSAGES, Outcome, RESPONSES, Talk, Wire};
use super::verdict::{self, Counts, Known};
use super::{PLACE, place};
use crate::judge::child::{Line, Running};
use crate::shell;

/// The package and its version.
const PACKAGE: (&str, &str) = ("@copilotkit/aimock", "1.43.0");
/// The program in the package.
const PROGRAM: &str = "node_modules/@copilotkit/aimock/dist/cli.js";
/// What it wrote.
const LOG: &str = "server.log";
/// Longest start: it takes under a second.
const START_MAX_S: u64 = 120;
/// What it does with cache marks among tools (see [`marked`]).
const MARK_FAULT: &str = "reading 'name'";

const WIRES: [Wire; 5] = [CHAT, RESPONSES, MESSAGES, GEMINI, CONVERSE];

/// What it does otherwise than the makers.
const KNOWN: &[Known] = &[
    known(RESPONSES, None, "proof", "makes encrypted content of its own, whatever the fixture says"),
    known(
        RESPONSES,
        Some("Write a long story."),
        "finish",
        "says `incomplete` without `incomplete_details`, which OpenAI documents for it",
    ),
    known(
        RESPONSES,
        Some("Say what is withheld."),
        "answer",
        "sends a failed response without an error where OpenAI documents an incomplete one",
    ),
    known(GEMINI, None, "proof", "has no thought signatures"),
    known(CONVERSE, None, "proof", "has no signatures of reasoning"),
];

/// As a stream and whole.
const fn known(wire: Wire, asked: Option<&'static str>, field: &'static str, why: &'static str) -> Known {
    Known { wire, stream: None, asked, field, why }
}

pub(super) fn run() -> Result<()> {
    let place = place("aimock")?;
    let program = install(&place)?;
    let script = without_middles(script::read()?);
    let fixtures = place.join("fixtures.json");
    std::fs::write(&fixtures, fixtures_of(&script).to_string()).context("cannot write the fixtures")?;
    let (_server, address) = serve(&program, &fixtures, &place)?;
    let known = format!("the server's log is {PLACE}/aimock/{LOG}");
    // It refuses cache marks among the tools of Converse, so those requests go without any.
    let talks = talk::talks(&script, &WIRES, &[CONVERSE]);
    let outcomes = talk::hold(&talks, &address, "any").with_context(|| known.clone())?;
    verdict::judge(&script, &talks, &outcomes, Counts::Totals, KNOWN).with_context(|| known.clone())?;
    marked(&script, &address).context(known)
}

/// The script without what this server cannot do: an error behind the beginning of an answer.
fn without_middles(script: Script) -> Script {
    let is_middle = |answer: &Answer| answer.error.is_some() && !answer.text.is_empty();
    script.into_iter().filter(|(_, answers)| !answers.iter().any(is_middle)).collect()
}

/// A cache mark among the tools is answered with a 500: it reads the name of every member of `toolConfig.tools` as of a
/// `toolSpec`. AWS documents a tool as one of `toolSpec`, `systemTool` and `cachePoint` (Bedrock API reference, `Tool`), so
/// the fault is not ours. Told here until it is mended.
fn marked(script: &Script, address: &str) -> Result<()> {
    let asked = script.keys().next().cloned().unwrap_or_default();
    let talk = Talk { wire: CONVERSE, asked, stream: true, caches: true };
    match talk::hold(&[talk], address, "any")?.first().map(Vec::as_slice) {
        Some([Outcome::Failed { error }]) if error.message.contains(MARK_FAULT) => {
            println!("  known: bedrock_converse, a cache mark among the tools is a 500, though AWS documents it");
            Ok(())
        }
        other => bail!("cache marks among tools no longer end in the known 500; take the exception out: {other:?}"),
    }
}

/// Installs the package, without running anything of it; where its program is.
fn install(place: &Path) -> Result<PathBuf> {
    for (tool, least) in [("node", "20.15 or newer"), ("npm", "of the same installation")] {
        if let Err(error) = shell::output(Command::new(tool).arg("--version")) {
            bail!("`{tool}` ({least}) is needed and does not run; install it: {error:#}");
        }
    }
    let (name, version) = PACKAGE;
    let installed = || {
        let text = std::fs::read_to_string(place.join("node_modules").join(name).join("package.json")).ok()?;
        let manifest: Value = serde_json::from_str(&text).ok()?;
        Some(manifest.get("version")?.as_str()? == version)
    };
    if installed() != Some(true) {
        let npm = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"];
        shell::run(Command::new("npm").args(npm).arg("--prefix").arg(place).arg(format!("{name}@{version}")))
            .context("cannot install the pinned package")?;
    }
    println!("  {name} {version}");
    Ok(place.join(PROGRAM))
}

fn serve(program: &Path, fixtures: &Path, place: &Path) -> Result<(Running, String)> {
    let log = place.join(LOG);
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("node");
    command.arg(program).args(["--host", "127.0.0.1", "--port", "0", "--strict", "--validate-on-load", "--fixtures"]);
    let server = Running::start("aimock", command.arg(fixtures).stderr(file))?;
    while let Some(Line { text, .. }) = server.line(Duration::from_secs(START_MAX_S))? {
        if let Some((_, address)) = text.split_once("listening on ") {
            ensure!(address.starts_with("http://127.0.0.1:"), "aimock listens on {address}");
            return Ok((server, address.trim().to_owned()));
        }
    }
    bail!("aimock ended before it answered; see {}", log.display())
}

/// The script as its fixtures: one for each wire and answer, with that wire's own words.
fn fixtures_of(script: &Script) -> Value {
    let mut fixtures = Vec::new();
    for wire in WIRES {
        for (asked, answers) in script {
            let mut before: Option<&Answer> = None;
            for answer in answers {
                let mut matches = json!({"model": model_of(wire), "userMessage": asked});
                match before.and_then(|before| before.calls.last()) {
                    Some(call) => matches["toolCallId"] = json!(call.id),
                    None => matches["hasToolResult"] = json!(false),
                }
                fixtures.push(json!({"match": matches, "response": response_of(wire, answer)}));
                before = Some(answer);
            }
        }
    }
    json!({"fixtures": fixtures})
}

/// The model's name as it compares it: in the path of Converse it takes `%3A` as it is.
fn model_of(wire: Wire) -> String {
    if wire == CONVERSE { wire.model.replace(':', "%3A") } else { wire.model.to_owned() }
}

fn response_of(wire: Wire, answer: &Answer) -> Value {
    if let Some(error) = &answer.error {
        let mut response = json!({
            "error": {"message": error.message, "type": "judged"},
            "status": error.kind.status_and_class().0,
        });
        if let Some(seconds) = error.retry_after_s {
            response["retryAfter"] = json!(seconds);
        }
        return response;
    }
    let (prompt, output) = (answer.usage.prompt(), answer.usage.output.unwrap_or(0));
    let mut response = json!({"usage": match wire {
        CHAT => json!({"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}),
        GEMINI => json!({
            "promptTokenCount": prompt, "candidatesTokenCount": output, "totalTokenCount": prompt + output,
        }),
        _ => json!({"input_tokens": prompt, "output_tokens": output}),
    }});
    let mut put = |name: &str, value: Value| response[name] = value;
    if !answer.text.is_empty() {
        put("content", json!(answer.text));
    }
    if !answer.reasoning.is_empty() {
        put("reasoning", json!(answer.reasoning));
        put("reasoningSignature", json!(answer.proof));
    }
    if !answer.calls.is_empty() {
        let call = |call: &script::Call| json!({"id": call.id, "name": call.name, "arguments": call.arguments});
        put("toolCalls", answer.calls.iter().map(call).collect());
    }
    let finish = match (answer.finish, wire) {
        // Its own word for calls, `FUNCTION_CALL`, is none of Google's.
        (Finish::Whole, GEMINI) => Some("stop"),
        (Finish::Whole, _) => None,
        (Finish::Length, _) => Some("length"),
        // Words that it does not know go out as they are.
        (Finish::Filtered, MESSAGES) => Some("refusal"),
        (Finish::Filtered, CONVERSE) => Some("content_filtered"),
        (Finish::Filtered, _) => Some("content_filter"),
    };
    if let Some(finish) = finish {
        put("finishReason", json!(finish));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_script_is_a_fixture_on_every_wire() {
        let script = without_middles(script::read().unwrap());
        let fixtures = fixtures_of(&script);
        let fixtures = fixtures["fixtures"].as_array().unwrap();
        assert_eq!(fixtures.len(), WIRES.len() * script.values().map(Vec::len).sum::<usize>());
        let of = |wire: Wire, key: &str| {
            fixtures
                .iter()
                .filter(|one| one["match"]["model"] == model_of(wire) && one["response"].get(key).is_some())
                .count()
        };
        for wire in WIRES {
            assert!(of(wire, "toolCalls") > 1 && of(wire, "reasoning") > 1 && of(wire, "error") == 4, "{wire:?}");
        }
    }
}
