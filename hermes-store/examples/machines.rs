//! Writes the page of state machines (`src/machines.md`) from the tables of the crate.

fn main() -> std::io::Result<()> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/machines.md");
    std::fs::write(page, hermes_store::machines::page())
}
