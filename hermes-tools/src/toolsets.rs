//! Toolsets as data: which names a user may select, and what they stand for.

use std::collections::BTreeSet;

/// One named set: tools of its own and other sets.
pub(crate) struct Toolset {
    /// The name that configuration and `-t` use.
    pub(crate) name: &'static str,
    /// The tools.
    pub(crate) tools: &'static [&'static str],
    /// Other sets that belong to it.
    pub(crate) includes: &'static [&'static str],
    /// True for the bundles of a platform or a posture: disabling one takes away only what is not core.
    pub(crate) bundle: bool,
}

/// The tools that every full surface has.
const CORE: &[&str] = &[
    "terminal",
    "process_manage",
    "read_file",
    "write_file",
    "patch",
    "search_files",
    "todo_list",
    "clarify",
    "delegate_task",
];

/// The same for a surface that has no way to put a question to its user.
const CORE_UNASKED: &[&str] =
    &["terminal", "process_manage", "read_file", "write_file", "patch", "search_files", "todo_list", "delegate_task"];

const fn elementary(name: &'static str, tools: &'static [&'static str]) -> Toolset {
    Toolset { name, tools, includes: &[], bundle: false }
}

const fn composite(name: &'static str, tools: &'static [&'static str], includes: &'static [&'static str]) -> Toolset {
    Toolset { name, tools, includes, bundle: false }
}

const fn bundle(name: &'static str, tools: &'static [&'static str]) -> Toolset {
    Toolset { name, tools, includes: &[], bundle: true }
}

/// Every toolset that has a tool today. A set whose tools come later gets its line with them.
pub(crate) const TOOLSETS: &[Toolset] = &[
    elementary("terminal", &["terminal", "process_manage"]),
    elementary("file", &["read_file", "write_file", "patch", "search_files"]),
    elementary("todo", &["todo_list"]),
    elementary("clarify", &["clarify"]),
    // The tool is the engine's own (`hermes_core::delegate_tool`).
    elementary("delegation", &["delegate_task"]),
    // `web`, `vision` and `image_gen` join it when they exist: nothing that changes this machine.
    composite("safe", &["todo_list", "clarify"], &[]),
    composite("debugging", &["terminal", "process_manage"], &["file"]),
    bundle("coding", CORE),
    bundle("hermes-acp", CORE_UNASKED),
    bundle("hermes-api-server", CORE_UNASKED),
    // An untrusted input surface: nothing that touches this machine.
    bundle("hermes-webhook", &["clarify"]),
    bundle("hermes-cli", CORE),
    bundle("hermes-cron", CORE),
    bundle("hermes-telegram", CORE),
    bundle("hermes-whatsapp", CORE),
    bundle("hermes-slack", CORE),
    bundle("hermes-signal", CORE),
    bundle("hermes-email", CORE),
    bundle("hermes-matrix", CORE),
    bundle("hermes-mattermost", CORE),
    bundle("hermes-discord", CORE),
    Toolset {
        name: "hermes-gateway",
        tools: &[],
        includes: &["hermes-telegram", "hermes-whatsapp", "hermes-slack", "hermes-signal", "hermes-discord"],
        bundle: true,
    },
];

/// Sets of the Python program that have no tool here yet. A configuration that names one is no mistake.
pub const TOOLSETS_WITHOUT_TOOLS: &[&str] = &[
    "browser",
    "bot_room",
    "catalog",
    "code_execution",
    "computer_use",
    "connections",
    "context_engine",
    "cronjob",
    "desktop_ui",
    "discord",
    "discord_admin",
    "feishu_doc",
    "feishu_drive",
    "image_gen",
    "kanban",
    "memory",
    "mqtt",
    "onboarding",
    "project",
    "search",
    "session_search",
    "skills",
    "tts",
    "video",
    "video_gen",
    "vision",
    "web",
    "x_search",
    "yuanbao",
];

/// Names that stand for every set.
pub(crate) const EVERYTHING: &[&str] = &["all", "*"];

/// Names of older configurations.
const OLD_NAMES: &[(&str, &str)] =
    &[("terminal_tools", "terminal"), ("file_tools", "file"), ("todo_tools", "todo"), ("clarify_tools", "clarify")];

/// The name that is meant by an old one; any other name as it is.
pub(crate) fn modern(name: &str) -> &str {
    OLD_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// The set of that name.
pub(crate) fn find<'a>(table: &'a [Toolset], name: &str) -> Option<&'a Toolset> {
    table.iter().find(|set| set.name == name)
}

/// All tools of a set and of the sets that it includes. Each set is visited once, so cycles end and diamonds do not
/// count twice.
pub(crate) fn resolve(table: &[Toolset], name: &str) -> BTreeSet<&'static str> {
    let mut tools = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(set) = find(table, &name) {
            tools.extend(set.tools.iter().copied());
            open.extend(set.includes.iter().map(|name| (*name).to_owned()));
        }
    }
    tools
}

/// What disabling a set takes away: everything of it, or of a bundle only what is not core.
pub(crate) fn subtracted(table: &[Toolset], name: &str) -> BTreeSet<&'static str> {
    let mut tools = resolve(table, name);
    if find(table, name).is_some_and(|set| set.bundle) {
        tools.retain(|tool| !CORE.contains(tool));
    }
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_cycles_end_and_each_tool_appears_once() {
        const TABLE: &[Toolset] = &[
            composite("a", &["x"], &["b", "c"]),
            composite("b", &["y"], &["a", "d"]),
            composite("c", &["z"], &["d"]),
            composite("d", &["x", "w"], &[]),
        ];
        assert_eq!(resolve(TABLE, "a"), BTreeSet::from(["w", "x", "y", "z"]));
        assert_eq!(resolve(TABLE, "b"), BTreeSet::from(["w", "x", "y", "z"]));
    }

    #[test]
    fn every_include_exists_and_no_name_is_twice() {
        let mut names = BTreeSet::new();
        for set in TOOLSETS {
            assert!(names.insert(set.name), "{} is twice", set.name);
            for include in set.includes {
                assert!(find(TOOLSETS, include).is_some(), "{} includes {include}", set.name);
            }
        }
    }

    #[test]
    fn t5_a_webhook_gets_nothing_that_touches_the_machine() {
        assert_eq!(resolve(TOOLSETS, "hermes-webhook"), BTreeSet::from(["clarify"]));
    }
}
