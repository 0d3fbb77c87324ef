//! The makers' own clients for Python against our scripted server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::talk::{self, CONVERSE, Outcome, Talk, Wire};
use super::{place, script};
use crate::judge::child::{Line, Running};
use crate::judge::python;
use crate::shell;

/// The clients.
const PACKAGES: [(&str, &str); 4] =
    [("openai", "3.57.0"), ("anthropic", "2.16.0"), ("google-genai", "3.6.1"), ("boto3", "1.44.8")];
/// What asks and compares, relative to the root of the workspace.
const PROGRAM: &str = "xtask/src/judge/providers/sdks.py";

/// The server that checks signatures with botocore, relative to the root of the workspace.
const SIGNATURES: &str = "xtask/src/judge/providers/signatures.py";
/// Longest start of that server, which imports botocore: under a second on an idle core.
const SIGNATURES_START_MAX_S: u64 = 120;
/// What that server answers to a request whose signature is right.
const SIGNED: &str = "signed";
/// Models whose names have other signs in the path: a colon, and the slash of an ARN.
const SIGNED_MODELS: [&str; 2] =
    [CONVERSE.model, "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc123"];

pub(super) fn run() -> Result<()> {
    let python = python::environment(&place("sdks")?, &PACKAGES, &[])?;
    for (name, version) in PACKAGES {
        println!("  {name} {version}");
    }
    read(&python).context("the clients read something else than was meant")?;
    signed(&python).context("botocore signs otherwise than our client")
}

/// The clients ask, read and compare.
fn read(python: &Path) -> Result<()> {
    let (_server, address) = script::serve()?;
    let mut command = Command::new(python);
    // Nothing of this process's environment: neither keys nor a proxy, nor settings of AWS.
    command.arg(shell::root().join(PROGRAM)).arg(&address).arg(script::file()).env_clear();
    shell::run(&mut command)
}

/// Our client asks a server that signs each request once more, as Amazon's client does, and answers only when both
/// signatures are the same.
fn signed(python: &Path) -> Result<()> {
    let mut command = Command::new(python);
    let server = Running::start("the checker of signatures", command.arg(shell::root().join(SIGNATURES)).env_clear())?;
    let Some(Line { text: address, .. }) = server.line(Duration::from_secs(SIGNATURES_START_MAX_S))? else {
        bail!("the checker of signatures ended before it answered");
    };
    let talk =
        |model, stream| Talk { wire: Wire { model, ..CONVERSE }, asked: "Signed?".to_owned(), stream, caches: true };
    let talks: Vec<Talk> =
        SIGNED_MODELS.into_iter().flat_map(|model| [true, false].map(|stream| talk(model, stream))).collect();
    for (talk, outcomes) in talks.iter().zip(talk::hold(&talks, &address, "")?) {
        match outcomes.as_slice() {
            [Outcome::Answered(answered)] if answered.text == SIGNED => {}
            other => bail!("{} (stream: {}): {other:?}", talk.wire.model, talk.stream),
        }
    }
    println!("  {} signatures are what botocore makes of the same requests", talks.len());
    Ok(())
}
