//! Any bytes as `auth.json`: they are read or refused, and a file that is refused is never written.
#![no_main]

use std::cell::RefCell;

use hermes_providers::credential::file::AuthFile;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

thread_local! {
    static HOME: RefCell<TempDir> = RefCell::new(tempfile::tempdir().expect("a directory for the file"));
}

fuzz_target!(|bytes: &[u8]| {
    HOME.with_borrow(|home| {
        let path = home.path().join("auth.json");
        std::fs::write(&path, bytes).expect("the file can be written");
        let file = AuthFile::at(&path);
        let read = file.read();
        if let Ok(doc) = &read {
            for provider in doc.providers() {
                for entry in doc.entries(provider) {
                    let _ = entry.row(0);
                }
            }
        }
        assert_eq!(std::fs::read(&path).ok().as_deref(), Some(bytes), "reading changed the file");
    });
});
