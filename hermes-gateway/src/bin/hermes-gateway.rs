//! A gateway that speaks JSON-RPC lines on its standard streams (`docs/protocol.md`).
//!
//! Ends when stdin does, or at SIGINT, SIGTERM or SIGHUP: turns are stopped in order first.

use std::process::ExitCode;

use hermes_gateway::config::Env;
use hermes_gateway::{Gateway, Launch, Overrides, stdio};
use tokio::io::BufReader;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

const HELP: &str = "\
Speaks the gateway protocol as JSON-RPC 2.0 lines on stdin and stdout; logs go to stderr (RUST_LOG).

Usage: hermes-gateway [-p PROFILE]

Options:
  -p, --profile NAME  Use the home of this profile
  -h, --help          Print help
  -V, --version       Print version

Exit codes:
  0    stdin ended, everything was stopped in order
  1    a stream failed
  2    wrong use or configuration
  130  interrupted; everything was stopped in order
";

/// What was typed.
enum Typed {
    Run { profile: Option<String> },
    Print(String),
    Wrong(String),
}

fn typed(arguments: impl Iterator<Item = std::ffi::OsString>) -> Typed {
    let mut profile = None;
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("-h" | "--help") => return Typed::Print(HELP.to_owned()),
            Some("-V" | "--version") => return Typed::Print(format!("hermes-gateway {}\n", env!("CARGO_PKG_VERSION"))),
            Some("-p" | "--profile") => match arguments.next().map(std::ffi::OsString::into_string) {
                Some(Ok(name)) => profile = Some(name),
                _ => return Typed::Wrong("-p needs the name of a profile".to_owned()),
            },
            _ => return Typed::Wrong(format!("{} is not known; see --help", argument.to_string_lossy())),
        }
    }
    Typed::Run { profile }
}

/// How the program ends.
const FAILED: u8 = 1;
const WRONG_USE: u8 = 2;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let profile = match typed(std::env::args_os()) {
        Typed::Run { profile } => profile,
        Typed::Print(text) => {
            // A reader that went away is no reason to complain.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Typed::Wrong(text) => {
            eprintln!("error: {text}");
            return ExitCode::from(WRONG_USE);
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let code = runtime.block_on(run(profile));
    // A thread that still reads stdin cannot be waited for.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn run(profile: Option<String>) -> u8 {
    let launch = Launch {
        env: Env::of_process(),
        profile,
        overrides: Overrides {
            attended: true,
            source: "gateway".to_owned(),
            serves_all: true,
            titles: true,
            ..Overrides::default()
        },
        needs_model: true,
    };
    let gateway = match Gateway::start(launch).await {
        Ok(gateway) => gateway,
        Err(error) => {
            eprintln!("error[{}]: {error}", error.code);
            return if error.usage { WRONG_USE } else { FAILED };
        }
    };
    let mut client = gateway.connect();
    let caller = client.caller();
    let code = tokio::select! {
        served = stdio::serve(&caller, &mut client, BufReader::new(tokio::io::stdin()), tokio::io::stdout()) => {
            match served {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("error: {error}");
                    FAILED
                }
            }
        }
        () = told_to_stop() => INTERRUPTED,
    };
    // A second signal ends a shutdown that takes too long.
    tokio::select! {
        () = gateway.shutdown() => code,
        () = told_to_stop() => INTERRUPTED,
    }
}

/// Returns at the next SIGINT, SIGTERM or SIGHUP; never when the system does not tell.
async fn told_to_stop() {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
