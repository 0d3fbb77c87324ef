//! The makers' own clients for Python against our scripted server.

use std::process::Command;

use anyhow::{Context, Result};

use super::{place, script};
use crate::judge::python;
use crate::shell;

/// The clients.
const PACKAGES: [(&str, &str); 4] =
    [("openai", "3.57.0"), ("anthropic", "2.16.0"), ("google-genai", "3.6.1"), ("boto3", "1.44.8")];
/// What asks and compares, relative to the root of the workspace.
const PROGRAM: &str = "xtask/src/judge/providers/sdks.py";

pub(super) fn run() -> Result<()> {
    let python = python::environment(&place("sdks")?, &PACKAGES, &[])?;
    let (_server, address) = script::serve()?;
    let program = shell::root().join(PROGRAM);
    let mut command = Command::new(&python);
    // Nothing of this process's environment: neither keys nor a proxy, nor settings of AWS.
    command.arg(program).arg(&address).arg(script::file()).env_clear();
    shell::run(&mut command).context("the clients read something else than was meant")
}
