//! The commands: one file each, one line each in the registry below.
//!
//! To add one: write its file with `Args` and `run`, name the module, and add its line to `registry!`.

mod auth;
mod chat;
mod completion;
mod config;
mod doctor;
mod import;
mod model;
mod sessions;
mod store;
mod tools;
mod version;

use crate::context::Context;
use crate::exit::{Exit, Fault};

/// Makes the enum that the parser reads and the one place that runs what it read.
macro_rules! registry {
    ($($name:ident => $module:ident, $help:literal;)*) => {
        /// What can be done.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Command {
            $(#[doc = $help] $name($module::Args),)*
        }

        impl Command {
            /// Does it.
            ///
            /// # Errors
            /// Why it was not done.
            pub(crate) fn run(self, context: &Context) -> Result<Exit, Fault> {
                match self {
                    $(Self::$name(args) => $module::run(args, context),)*
                }
            }
        }
    };
}

registry! {
    Chat => chat, "Talk, or answer one text with -q";
    Sessions => sessions, "List, show, search, rename, export and delete sessions";
    Import => import, "Bring conversations in: the Python program's, or an export";
    Store => store, "Check, back up, restore and shrink the store";
    Auth => auth, "Show, add, remove and log in credentials of providers";
    Model => model, "Show which model is used and why; find models, their windows and prices";
    Config => config, "Show, check and change the configuration";
    Tools => tools, "Show the tools";
    Doctor => doctor, "Check the installation";
    Completion => completion, "Print a completion script for a shell";
    Version => version, "Print the version";
}
