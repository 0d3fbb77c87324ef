//! Any name of a refused field and any body: what is left is JSON whenever the body was, and other names stay.
#![no_main]

use hermes_providers::mode::Repairs;
use hermes_providers::{ChatRequest, Remedy};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(3, '\n');
    let (Some(name), Some(new), Some(body)) = (lines.next(), lines.next(), lines.next()) else { return };
    let request = ChatRequest::new(Vec::new());
    let remedy = if new.is_empty() {
        Remedy::DropField(name.to_owned())
    } else {
        Remedy::RenameField { from: name.to_owned(), to: new.to_owned() }
    };
    let Some(repairs) = Repairs::default().with(&remedy, &request) else { return };
    let repaired = repairs.body(body.as_bytes().to_vec().into());
    let Ok(before) = serde_json::from_str::<Value>(body) else { return };
    let after = serde_json::from_slice::<Value>(&repaired).expect("the repaired body is no JSON");
    for needed in ["model", "messages", "tools", "stream"] {
        let is_new = new.contains(needed);
        assert!(is_new || before.get(needed) == after.get(needed), "{needed} was changed");
    }
});
