//! Which crate may depend on which, and which lints and features their manifests set.
//!
//! The layer of a crate stands in its manifest: `[package.metadata.hermes] layer = "leaf"`.

use toml::{Table, Value};

use super::{Finding, TextFile};

/// A layer and the layers below it that it may use. A crate never uses another crate of its own layer.
const LAYERS: &[(&str, &[&str])] = &[
    ("leaf", &[]),
    ("core", &["leaf"]),
    ("gateway", &["core", "leaf"]),
    ("cli", &["gateway"]),
    ("side", &["leaf", "core", "gateway", "cli"]),
];

/// Features of the leaves that bring in SQL, HTTP or the operating system. The core does not switch them on.
const HEAVY_FEATURES: &[&str] = &["sqlite", "http", "builtin"];

/// One manifest of a package.
struct Package<'a> {
    path: &'a str,
    text: &'a str,
    name: String,
    layer: String,
    table: Table,
}

impl Package<'_> {
    /// A finding at the first line that has the word.
    fn finding(&self, word: &str, text: String) -> Finding {
        let line = self.text.lines().position(|line| line.contains(word)).map_or(1, |index| index + 1);
        Finding::new(self.path, line, text)
    }

    /// All dependencies: the table's name, the package's name, the entry.
    fn dependencies(&self) -> Vec<(&str, &str, &Value)> {
        let mut all = Vec::new();
        let targets = self.table.get("target").and_then(Value::as_table);
        let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
        for table in std::iter::once(&self.table).chain(tables) {
            for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
                for (key, entry) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                    let name = entry.get("package").and_then(Value::as_str).unwrap_or(key);
                    all.push((kind, name, entry));
                }
            }
        }
        all
    }
}

/// Checks all manifests; `files` may hold other files too.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut packages = Vec::new();
    let mut pins = Table::new();
    for file in files.iter().filter(|file| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml")) {
        let table: Table = match toml::from_str(&file.text) {
            Ok(table) => table,
            Err(error) => {
                findings.push(Finding::new(&file.path, 1, format!("not TOML: {error}; repair the manifest")));
                continue;
            }
        };
        let workspace = table.get("workspace");
        if workspace.is_some() && file.path != "Cargo.toml" {
            // A workspace of its own, like the fuzz targets: no build of this one holds it.
            continue;
        }
        if let Some(workspace) = workspace {
            findings.extend(check_workspace_lints(&file.path, workspace));
            pins = workspace.get("dependencies").and_then(Value::as_table).cloned().unwrap_or_default();
        }
        if let Some(name) = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str) {
            let layer = table["package"].get("metadata").and_then(|value| value.get("hermes")?.get("layer")?.as_str());
            let (name, layer) = (name.to_owned(), layer.unwrap_or_default().to_owned());
            packages.push(Package { path: &file.path, text: &file.text, name, layer, table });
        }
    }
    for package in &packages {
        findings.extend(check_package(package, &packages, &pins));
    }
    findings
}

/// The root manifest demands docs of public items.
fn check_workspace_lints(path: &str, workspace: &Value) -> Option<Finding> {
    let level = workspace.get("lints").and_then(|lints| lints.get("rust")?.get("missing_docs")?.as_str());
    let text = "the lint `missing_docs` is off; set it to \"warn\" in [workspace.lints.rust]";
    (!matches!(level, Some("warn" | "deny" | "forbid"))).then(|| Finding::new(path, 1, text))
}

/// One package: its lints, its layer, its edges.
fn check_package(package: &Package<'_>, all: &[Package<'_>], pins: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    let inherits = package.table.get("lints").and_then(|lints| lints.get("workspace")?.as_bool()) == Some(true);
    if !inherits {
        findings.push(
            package.finding("[lints]", "does not take the workspace's lints; add `[lints] workspace = true`".into()),
        );
    }
    let Some((_, below)) = LAYERS.iter().find(|(layer, _)| *layer == package.layer) else {
        let text = format!("layer `{}` is unknown; set one of leaf, core, gateway, cli, side", package.layer);
        findings.push(package.finding("layer", text));
        return findings;
    };
    for (kind, name, entry) in package.dependencies() {
        // Only packages of this workspace have a layer. A package names itself to switch on its test features.
        let Some(other) = all.iter().find(|other| other.name == name && other.name != package.name) else { continue };
        if !below.contains(&other.layer.as_str()) {
            let text = format!(
                "{} ({}) may not depend on {name} ({}); move the code or turn the edge around with a trait",
                package.name, package.layer, other.layer
            );
            findings.push(package.finding(name, text));
        } else if package.layer == "core" && kind != "dev-dependencies" {
            findings.extend(check_lean(package, name, entry, pins));
        }
    }
    if package.layer == "core" {
        findings.extend(check_features(package));
    }
    findings
}

/// The core takes a leaf without its heavy features.
fn check_lean(package: &Package<'_>, name: &str, entry: &Value, pins: &Table) -> Option<Finding> {
    let switch = |value: &Value| value.get("default-features").and_then(Value::as_bool);
    let pin = pins.get(name).filter(|_| entry.get("workspace").is_some());
    let defaults = switch(entry).or_else(|| pin.and_then(switch)).unwrap_or(true);
    let heavy = [Some(entry), pin]
        .into_iter()
        .flatten()
        .filter_map(|value| value.get("features")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .find(|feature| HEAVY_FEATURES.contains(feature));
    let text = match (defaults, heavy) {
        (true, _) => format!("{name} comes with its default features; set `default-features = false`"),
        (false, Some(feature)) => format!("{name} comes with `{feature}`; the gateway switches it on, not the core"),
        (false, None) => return None,
    };
    Some(package.finding(name, text))
}

/// No feature of the core switches on a heavy feature of a leaf.
fn check_features(package: &Package<'_>) -> Vec<Finding> {
    let features = package.table.get("features").and_then(Value::as_table);
    let parts = features.into_iter().flat_map(Table::values).filter_map(Value::as_array).flatten();
    let heavy = parts
        .filter_map(Value::as_str)
        .filter(|part| part.split_once('/').is_some_and(|(_, feature)| HEAVY_FEATURES.contains(&feature)));
    heavy
        .map(|part| package.finding(part, format!("a feature switches on `{part}`; leave that to the gateway")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]\nhermes-store = { path = \"s\", default-features = false }\n\
        hermes-tools = { path = \"t\" }\n[workspace.lints.rust]\nmissing_docs = \"warn\"\n";

    /// A manifest of the given layer with more text behind it.
    fn package(name: &str, layer: &str, more: &str) -> TextFile {
        let text = format!(
            "[package]\nname = \"{name}\"\n[package.metadata.hermes]\nlayer = \"{layer}\"\n[lints]\nworkspace = true\n{more}"
        );
        TextFile::new(&format!("{name}/Cargo.toml"), &text)
    }

    /// The findings about a tree of two leaves and one more package.
    #[track_caller]
    fn check_with(extra: TextFile, expect: &[&str]) {
        let leaves = [package("hermes-store", "leaf", ""), package("hermes-tools", "leaf", "")];
        let files: Vec<_> = [TextFile::new("Cargo.toml", ROOT), extra].into_iter().chain(leaves).collect();
        let found: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found}");
        }
    }

    #[test]
    fn allowed_edges_pass() {
        check_with(package("c", "core", "[dependencies]\nhermes-store.workspace = true\n"), &[]);
        check_with(package("c", "core", "[dev-dependencies]\nc = { workspace = true, features = [\"x\"] }\n"), &[]);
        check_with(package("t", "side", "[dev-dependencies]\nhermes-store = { workspace = true }\n"), &[]);
        check_with(package("g", "gateway", "[dependencies]\nhermes-tools.workspace = true\n"), &[]);
    }

    #[test]
    fn wrong_edges_are_found_in_every_table() {
        for table in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let more = format!("[{table}]\nhermes-store.workspace = true\n");
            check_with(
                package("p", "leaf", &more),
                &["p/Cargo.toml:8: p (leaf) may not depend on hermes-store (leaf)"],
            );
            check_with(package("p", "cli", &more), &["p (cli) may not depend on hermes-store (leaf)"]);
        }
        let renamed = "[dependencies]\ns = { package = \"hermes-store\", path = \"s\" }\n";
        check_with(package("p", "leaf", renamed), &["may not depend on hermes-store"]);
    }

    #[test]
    fn nobody_depends_on_a_side_package() {
        let files = [
            package("x", "side", ""),
            package("g", "gateway", "[dependencies]\nx.workspace = true\n"),
            package("y", "side", "[dependencies]\nx.workspace = true\n"),
        ];
        assert_eq!(check(&files).len(), 2);
    }

    #[test]
    fn the_core_takes_leaves_without_heavy_features() {
        let store = |entry: &str| package("c", "core", &format!("[dependencies]\nhermes-store = {entry}\n"));
        check_with(store("{ workspace = true, features = [\"sqlite\"] }"), &["comes with `sqlite`"]);
        check_with(store("{ path = \"s\" }"), &["default features"]);
        check_with(package("c", "core", "[dependencies]\nhermes-tools.workspace = true\n"), &["default features"]);
        check_with(package("c", "core", "[features]\nall = [\"hermes-store/sqlite\"]\n"), &["hermes-store/sqlite"]);
    }

    #[test]
    fn a_workspace_of_its_own_has_no_layer() {
        let own = "[workspace]\n[package]\nname = \"f\"\n[dependencies]\nhermes-store = { path = \"..\" }\n";
        check_with(TextFile::new("hermes-store/fuzz/Cargo.toml", own), &[]);
    }

    #[test]
    fn lints_and_layer_must_be_set() {
        check_with(
            TextFile::new("p/Cargo.toml", "[package]\nname = \"p\"\n"),
            &["workspace's lints", "layer `` is unknown"],
        );
        let root = TextFile::new("Cargo.toml", "[workspace]\nmembers = []\n");
        assert!(check(&[root])[0].to_string().contains("missing_docs"));
    }

    /// The same check on the real manifests, so that a wrong edge fails the tests too.
    #[test]
    fn the_edges_of_this_tree_are_allowed() {
        let root = crate::shell::root();
        let mut files = vec![TextFile::new("Cargo.toml", &std::fs::read_to_string(root.join("Cargo.toml")).unwrap())];
        for entry in std::fs::read_dir(&root).unwrap() {
            let path = entry.unwrap().path().join("Cargo.toml");
            if let Ok(text) = std::fs::read_to_string(&path) {
                files.push(TextFile::new(path.strip_prefix(&root).unwrap().to_str().unwrap(), &text));
            }
        }
        assert!(files.len() > 2, "no manifests found");
        let found: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}
