//! Names that must not stand in some code: the outer world in the core, a sibling in a leaf, panics in the product.

use super::source::{Source, TestModules, has_word};
use super::{Finding, TextFile};

/// What the core does not know, and what to use instead.
const NOT_IN_CORE: &[(&str, &str)] = &[
    ("std::env", "take the value from the configuration"),
    ("SystemTime", "ask the clock seam"),
    ("Instant::now", "ask the clock seam"),
    ("tokio::time", "ask the clock seam"),
    ("tokio::spawn", "let the turn own the future, or use a `JoinSet`"),
    ("sqlx", "go through the store's traits"),
    ("reqwest", "go through the model trait"),
    ("std::process", "go through a tool"),
    ("std::fs", "go through a seam"),
    ("tokio::fs", "go through a seam"),
    ("tokio::process", "go through a tool"),
    ("rand::", "ask the id seam"),
    ("Uuid", "ask the id seam"),
];

/// The leaves: directory and the name in code.
const LEAVES: &[(&str, &str)] =
    &[("hermes-store/", "hermes_store"), ("hermes-providers/", "hermes_providers"), ("hermes-tools/", "hermes_tools")];

/// What product code does not say, and what to do instead.
const NOT_IN_PRODUCT: &[(&str, &str)] = &[
    (".unwrap()", "return an error"),
    (".expect(", "return an error"),
    ("todo!(", "write it or leave it out"),
    ("unimplemented!(", "write it or leave it out"),
    ("dbg!(", "remove it or use `tracing`"),
];

/// How text gets to the terminal, which belongs to the programs.
const PRINTS: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];

/// Checks all Rust files.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let modules = TestModules::of(files);
    let rust = files.iter().filter(|file| file.is_rust());
    rust.flat_map(|file| check_source(&Source::new(file, &modules))).collect()
}

/// Checks one file.
fn check_source(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let path = source.path;
    let in_core = path.starts_with("hermes-core/src/");
    for (line, code) in source.product_lines() {
        let core = NOT_IN_CORE.iter().filter(|(name, _)| in_core && has_word(code, name));
        findings.extend(
            core.map(|(name, instead)| source.finding(line, format!("the core does not know `{name}`; {instead}"))),
        );
        let product = NOT_IN_PRODUCT.iter().filter(|(name, _)| has_word(code, name));
        findings.extend(
            product.map(|(name, instead)| source.finding(line, format!("`{name}` in product code; {instead}"))),
        );
        let prints = PRINTS.iter().filter(|name| has_word(code, name) && !may_print(path));
        findings.extend(
            prints.map(|name| source.finding(line, format!("`{name}` in a library; use `tracing` or return the text"))),
        );
    }
    let leaf = LEAVES.iter().find(|(directory, _)| path.starts_with(directory));
    for (line, code) in source.all_lines() {
        if code.contains("#[ignore") {
            findings.push(source.finding(line, "an ignored test; repair it or remove it"));
        }
        let siblings = LEAVES.iter().filter(|sibling| leaf.is_some_and(|leaf| leaf != *sibling));
        for (_, name) in siblings.filter(|(_, name)| has_word(code, name)) {
            findings.push(source.finding(line, format!("a leaf does not know `{name}`; leaves meet in the core")));
        }
    }
    findings
}

/// Programs print; libraries do not.
fn may_print(path: &str) -> bool {
    path.starts_with("hermes-cli/")
        || path.starts_with("xtask/")
        || path.contains("/src/bin/")
        || path.ends_with("/main.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines with a finding.
    #[track_caller]
    fn check_lines(path: &str, text: &str, expect: &[usize]) {
        let found = check(&[TextFile::new(path, text)]);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), expect, "{found:?}");
    }

    #[test]
    fn the_core_does_not_name_the_outer_world() {
        for (name, _) in NOT_IN_CORE {
            let name = if name.ends_with("::") { format!("{name}random()") } else { (*name).to_owned() };
            check_lines("hermes-core/src/x.rs", &format!("//! {name}\nuse a;\nlet x = {name};\n"), &[3]);
            check_lines("hermes-gateway/src/x.rs", &format!("let x = {name};\n"), &[]);
            check_lines("hermes-core/src/x.rs", &format!("#[cfg(test)]\nmod tests {{ use {name}; }}\n"), &[]);
        }
        check_lines("hermes-core/src/x.rs", "let x = fastrand::u64(..) + my_std::fs;\n", &[]);
    }

    #[test]
    fn leaves_do_not_name_each_other() {
        check_lines(
            "hermes-tools/src/x.rs",
            "use hermes_store::Id;\n#[cfg(test)]\nuse hermes_providers::X;\n",
            &[1, 3],
        );
        check_lines("hermes-tools/tests/x.rs", "use hermes_tools::Id; // hermes_store\n", &[]);
        check_lines("hermes-core/src/x.rs", "use hermes_store::Id;\n", &[]);
    }

    #[test]
    fn product_code_neither_panics_nor_prints() {
        check_lines("hermes-store/src/x.rs", "a.unwrap();\nb.expect(\"c\");\ntodo!();\ndbg!(d);\n", &[1, 2, 3, 4]);
        check_lines("hermes-store/src/x.rs", "a.unwrap_or(1);\nb.expect_err(2);\n", &[]);
        check_lines("hermes-store/src/x.rs", "println!();\neprintln!();\n", &[1, 2]);
        check_lines("hermes-cli/src/x.rs", "println!();\n", &[]);
        check_lines("hermes-store/tests/x.rs", "a.unwrap();\n", &[]);
    }

    #[test]
    fn no_test_is_ignored() {
        check_lines("hermes-store/tests/x.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n", &[2]);
    }
}
