//! Providers, as people read them.

use hermes_gateway::protocol::{ProviderDetail, ProvidersListResponse, RpcError};

use super::lists::table;
use crate::style::Style;
use crate::text::{harmless, pad};

/// Every provider on one line.
pub(crate) fn list(found: &ProvidersListResponse, style: Style) -> String {
    let mut rows = vec![["PROVIDER", "READY", "WIRE", "ADDRESS", "FROM"].map(String::from).to_vec()];
    for provider in &found.providers {
        rows.push(vec![
            harmless(&provider.id),
            if provider.ready { "yes" } else { "no" }.to_owned(),
            harmless(value(provider, "wire")),
            harmless(value(provider, "address")),
            harmless(&from(provider)),
        ]);
    }
    table(&rows, style) + &problems(&found.problems)
}

/// One provider, value by value.
pub(crate) fn show(found: &ProvidersListResponse, style: Style) -> String {
    let mut out = String::new();
    for provider in &found.providers {
        let head = format!("{} ({})", harmless(&provider.id), harmless(&provider.name));
        out.push_str(&format!("{}\n", style.bold(&head)));
        if !provider.aliases.is_empty() {
            out.push_str(&format!("{}  {}\n", pad("also", 13), harmless(&provider.aliases.join(", "))));
        }
        out.push_str(&format!("{}  {}\n", pad("profile", 13), harmless(&from(provider))));
        for value in provider.values.iter().filter(|value| !value.value.is_empty()) {
            let source = style.dim(&format!("({})", harmless(&value.source)));
            out.push_str(&format!("{}  {}  {source}\n", pad(&harmless(&value.name), 13), harmless(&value.value)));
        }
        if !provider.lacks.is_empty() {
            out.push_str(&format!("{}  {}\n", pad("not ready", 13), harmless(&provider.lacks)));
        }
    }
    out
}

/// What is wrong with the user's files.
pub(crate) fn check(found: &ProvidersListResponse, _style: Style) -> String {
    let own = found.providers.iter().filter(|provider| provider.source != "bundled").count();
    let folder = harmless(&found.folder);
    let summary = match (own, found.problems.len()) {
        (0, 0) => format!("{folder} has no profiles; {} are bundled.\n", found.providers.len()),
        (own, 0) => {
            format!("{own} of {} providers are from {folder}; all of its files are right.\n", found.providers.len())
        }
        (own, bad) => format!(
            "{own} of {} providers are from {folder}; {bad} of its files cannot be used.\n",
            found.providers.len()
        ),
    };
    summary + &problems(&found.problems)
}

fn problems(list: &[RpcError]) -> String {
    list.iter().map(|problem| format!("not used: {}: {}\n", problem.code, harmless(&problem.message))).collect()
}

fn from(provider: &ProviderDetail) -> String {
    let more = if provider.hides_bundled { ", instead of the bundled one" } else { "" };
    format!("{}{more}", provider.source)
}

fn value<'a>(provider: &'a ProviderDetail, name: &str) -> &'a str {
    provider.values.iter().find(|value| value.name == name).map_or("", |value| value.value.as_str())
}
