//! `hermes auth`. Reads and writes the home's files itself; no gateway is started.

use std::io::{BufRead as _, Read as _, Write};

use hermes_gateway::auth::{Auth, AuthRow};
use hermes_gateway::config::{Env, Scope};

use crate::context::Context;
use crate::echo::NoEcho;
use crate::exit::{Exit, Fault};
use crate::render::lists::table;
use crate::text::{harmless, one_line};

/// Longest key that is read, in bytes.
const KEY_MAX_BYTES: u64 = 64 * 1024;

/// Arguments of `hermes auth`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Every credential, in the order in which they are asked with; never a secret
    #[command(visible_alias = "status")]
    List {
        /// Only those of this provider
        provider: Option<String>,
        /// As one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Add a key; it is read from the terminal without showing it, or from a pipe
    Add {
        /// The provider
        provider: String,
        /// What to call it
        #[arg(long)]
        label: Option<String>,
    },
    /// Log in with a code that is typed in a browser
    Login {
        /// The provider
        provider: String,
        /// What to call it
        #[arg(long)]
        label: Option<String>,
    },
    /// Take a credential out; one of a variable stays out
    Remove {
        /// The provider
        provider: String,
        /// Its id, its label, or the variable
        which: String,
    },
    /// Forget rests and failures: ask again now
    Reset {
        /// The provider
        provider: String,
        /// Its id, its label, or the variable; all without it
        which: Option<String>,
    },
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    let env = Env::of_process();
    let scope = Scope::resolve(&env, context.profile.as_deref())?;
    let auth = Auth::of(&scope, env)?;
    let out = &mut std::io::stdout();
    match args.what {
        What::List { provider, json } => {
            let rows = auth.list(provider.as_deref())?;
            if json || context.json {
                context.write_json(out, &rows)?;
            } else if rows.is_empty() {
                writeln!(
                    out,
                    "There is no credential. `hermes auth add PROVIDER` adds a key; a variable in .env does too."
                )?;
            } else {
                out.write_all(listed(&rows, context).as_bytes())?;
            }
        }
        What::Add { provider, label } => {
            let key = read_key(context)?;
            let row = auth.add_key(&provider, label.as_deref(), &key)?;
            writeln!(out, "Added {} ({}) to {}", harmless(&row.label), row.id, row.provider)?;
        }
        What::Login { provider, label } => {
            let row = context.block_on(async {
                let pending = auth.begin_login(&provider, label.as_deref()).await?;
                eprintln!("Open {} and type {}", harmless(pending.address()), harmless(pending.code()));
                eprintln!("Waiting; Ctrl-C gives up.");
                Ok(auth.finish_login(pending).await?)
            })?;
            writeln!(out, "Logged in: {} ({}) of {}", harmless(&row.label), row.id, row.provider)?;
        }
        What::Remove { provider, which } => {
            let row = auth.remove(&provider, &which)?;
            writeln!(out, "Removed {} from {}", harmless(&row.label), row.provider)?;
        }
        What::Reset { provider, which } => {
            let rows = auth.reset(&provider, which.as_deref())?;
            out.write_all(listed(&rows, context).as_bytes())?;
        }
    }
    Ok(Exit::Answered)
}

fn listed(rows: &[AuthRow], context: &Context) -> String {
    let mut cells = vec![["PROVIDER", "ID", "LABEL", "KIND", "FROM", "STATUS"].map(String::from).to_vec()];
    for row in rows {
        let until =
            row.until_ms.map(|until| format!(", free in {}", hermes_gateway::auth::wait(until))).unwrap_or_default();
        let models = if row.resting_models.is_empty() {
            String::new()
        } else {
            format!(", not for {}", row.resting_models.join(", "))
        };
        let unused = if row.used { "" } else { ", not used: another goes before it" };
        let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
        let status = one_line(&format!("{}{unused}{until}{models}{why}", row.status), context.terminal.width.max(40));
        let cell = |text: &str| one_line(text, 40);
        cells.push(vec![
            cell(&row.provider),
            cell(&row.id),
            cell(&row.label),
            cell(&row.kind),
            cell(&row.source),
            status,
        ]);
    }
    table(&cells, context.terminal.out_style())
}

/// One line, which is not shown while it is typed. A key on the command line would stand in the shell's history.
fn read_key(context: &Context) -> Result<String, Fault> {
    let stdin = std::io::stdin();
    let _quiet = context.terminal.stdin.then(|| {
        eprint!("Key: ");
        NoEcho::begin()
    });
    let mut line = String::new();
    stdin.lock().take(KEY_MAX_BYTES).read_line(&mut line)?;
    if context.terminal.stdin {
        eprintln!();
    }
    if line.trim().is_empty() {
        return Err(Fault::Usage("no key was given".to_owned()));
    }
    Ok(line)
}
