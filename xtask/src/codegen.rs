//! `cargo xtask codegen`: files that are written from other files of the tree.
//!
//! To add one: write its `render` function, add one line to [`GENERATED`]. `cargo xtask tidy` compares.

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::tidy::{self, Finding, TextFile};

/// A file that is generated.
struct Generated {
    /// Path from the root of the repository.
    path: &'static str,
    /// The text, from the files of the tree.
    render: fn(&[TextFile]) -> String,
}

/// Every generated file.
const GENERATED: &[Generated] = &[Generated { path: "docs/errors/README.md", render: error_index }];

/// Writes every generated file whose text changed.
///
/// # Errors
/// The tree cannot be listed or a file cannot be written.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("`codegen` takes no argument, got `{argument}`");
    }
    let files = tidy::files()?;
    for Generated { path, render } in GENERATED {
        let text = render(&files);
        if files.iter().any(|file| file.path == *path && file.text == text) {
            continue;
        }
        std::fs::write(shell::root().join(path), text).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// A finding for each generated file that is missing or old.
#[must_use]
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let is_current = |generated: &&Generated| {
        let text = (generated.render)(files);
        files.iter().any(|file| file.path == generated.path && file.text == text)
    };
    let old = GENERATED.iter().filter(|generated| !is_current(generated));
    old.map(|generated| Finding::new(generated.path, 1, "is not up to date; run `cargo xtask codegen`")).collect()
}

/// The list of error pages.
fn error_index(files: &[TextFile]) -> String {
    let mut text = String::from(
        "# Error codes\n\nWritten by `cargo xtask codegen` from the first line of each page.\n\n\
         | Code | What happened |\n| --- | --- |\n",
    );
    for (code, title, _) in tidy::codes::pages(files) {
        text.push_str(&format!("| [{code}]({code}.md) | {} |\n", title.unwrap_or_default()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_lists_the_pages_by_code() {
        let files = [
            TextFile::new("docs/errors/HM2001.md", "# HM2001 It broke\n\nx\n"),
            TextFile::new("docs/errors/HM1002.md", "# HM1002 It is gone\n"),
        ];
        let rows: Vec<String> = error_index(&files).lines().skip(6).map(str::to_owned).collect();
        assert_eq!(rows, ["| [HM1002](HM1002.md) | It is gone |", "| [HM2001](HM2001.md) | It broke |"]);
    }

    #[test]
    fn a_missing_or_old_file_is_found_and_a_current_one_is_not() {
        let page = TextFile::new("docs/errors/HM2001.md", "# HM2001 It broke\n");
        let index = |text: &str| TextFile::new("docs/errors/README.md", text);
        assert_eq!(check(std::slice::from_ref(&page)).len(), 1);
        assert_eq!(check(&[page.clone(), index("old\n")]).len(), 1);
        let text = error_index(std::slice::from_ref(&page));
        assert_eq!(check(&[page, index(&text)]), []);
    }
}
