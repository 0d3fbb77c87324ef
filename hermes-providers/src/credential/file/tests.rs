//! Tests of the file of credentials: what it keeps, and what it refuses to overwrite.

use std::io;

use super::write::Step;
use super::*;
use crate::credential::pool::{Rest, RestReason, Status};

const OLD: &str = r#"{"version":1,"active_provider":"x","credential_pool":{"p":[{"id":"a1b2c3","label":"mine",
"auth_type":"api_key","access_token":"sk-marked-1","extra":{"tls":{"x":1}},"strange":[1,2]}]},"more":{"y":null}}"#;

fn file(text: Option<&str>) -> (tempfile::TempDir, AuthFile) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.json");
    if let Some(text) = text {
        std::fs::write(&path, text).unwrap();
    }
    (dir, AuthFile::at(path))
}

fn entry(id: &str, key: &str) -> Entry {
    Entry { id: id.into(), label: id.into(), access_token: Some(key.into()), ..Entry::default() }
}

fn add(file: &AuthFile) -> Result<(), AuthFileError> {
    file.update(|doc| (doc.put("p", &entry("new", "sk-marked-2")), true))
}

#[cfg(unix)]
fn mode(file: &AuthFile) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777
}

#[test]
fn b50_a_file_that_cannot_be_understood_is_left_as_it_is_and_told_without_its_content() {
    for bad in [
        "",
        "{\"credential_pool\": {\"p\": [{\"access_token\": \"sk-marked-1",
        "[]",
        "\"sk-marked-1\"",
        r#"{"credential_pool": []}"#,
        r#"{"credential_pool": {"p": "sk-marked-1"}}"#,
        r#"{"version": 2, "credential_pool": {}}"#,
    ] {
        let (dir, file) = file(Some(bad));
        for error in [file.read().unwrap_err(), add(&file).unwrap_err()] {
            assert!(matches!(error, AuthFileError::Damaged { .. }), "{bad:?}: {error}");
            assert!(!error.to_string().contains("marked"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), bad);
        assert!(std::fs::read_dir(dir.path()).unwrap().count() <= 2, "the file and its lock");
    }
}

#[test]
fn unknown_fields_stay_wherever_they_are() {
    let (_dir, file) = file(Some(OLD));
    let mut known = file.read().unwrap().entry("p", "a1b2c3").unwrap();
    known.label = "renamed".into();
    file.update(|doc| (doc.put("p", &known), true)).unwrap();
    let now: Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
    let row = &now["credential_pool"]["p"][0];
    assert_eq!((&row["extra"]["tls"]["x"], &row["strange"][1]), (&1.into(), &2.into()));
    assert_eq!((&row["label"], &now["active_provider"]), (&"renamed".into(), &"x".into()));
    assert!(now["more"].get("y").is_some());
}

#[test]
fn b51_a_crash_at_any_step_of_a_write_leaves_the_old_or_the_new_file() {
    for old in [None, Some(OLD)] {
        for fails in [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncDir] {
            let (dir, file) = file(old);
            let mut step = |now| if now == fails { Err(io::Error::other("injected")) } else { Ok(()) };
            let change = |doc: &mut AuthDoc| (doc.put("p", &entry("new", "sk-marked-2")), true);
            assert!(matches!(file.update_with(change, &mut step), Err(AuthFileError::Unwritable { .. })), "{fails:?}");
            let is_new = fails == Step::SyncDir;
            assert_eq!(file.read().unwrap().entry("p", "new").is_some(), is_new, "{fails:?}");
            if !is_new {
                assert_eq!(std::fs::read_to_string(file.path()).ok().as_deref(), old, "{fails:?}");
            }
            let left = std::fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(left, 1 + usize::from(old.is_some() || is_new), "no temporary file is left");
        }
    }
}

#[cfg(unix)]
#[test]
fn b51_the_file_is_its_owner_s_only_whatever_it_was_before() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_dir, file) = file(None);
    add(&file).unwrap();
    assert_eq!(mode(&file), 0o600);
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    add(&file).unwrap();
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn b44_health_survives_and_belongs_to_the_secret() {
    let (_dir, file) = file(None);
    let mut dead = entry("dead", "sk-marked-1");
    dead.health.status = Status::Dead;
    dead.health.why = "invalid_grant".into();
    let mut tired = entry("tired", "sk-marked-2");
    tired.health.status = Status::Exhausted(Rest { until_ms: 1_900_000_000_123, reason: RestReason::Billing });
    file.update(|doc| {
        doc.put("p", &dead);
        doc.put("p", &tired);
        ((), true)
    })
    .unwrap();
    let read = file.read().unwrap();
    assert_eq!(read.entry("p", "dead").unwrap().health, dead.health);
    assert_eq!(read.entry("p", "tired").unwrap().health, tired.health);
    // Somebody put another secret in, by hand.
    let text = std::fs::read_to_string(file.path()).unwrap().replace("sk-marked-1", "sk-marked-3");
    std::fs::write(file.path(), text).unwrap();
    assert_eq!(file.read().unwrap().entry("p", "dead").unwrap().health.status, Status::Ok);
}

#[test]
fn what_was_removed_is_remembered_until_it_is_wanted_again() {
    let mut doc = AuthDoc::default();
    doc.suppress("p", "env:KEY", true);
    assert!(doc.is_suppressed("p", "env:KEY") && !doc.is_suppressed("p", "env:KEY_2"));
    doc.suppress("p", "env:KEY", false);
    assert!(!doc.is_suppressed("p", "env:KEY"));
    doc.put("p", &entry("a", "sk-1"));
    assert!(doc.remove("p", "a") && !doc.remove("p", "a"));
    assert_eq!(doc.providers().count(), 0);
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let (_dir, file) = file(None);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for number in 0..5 {
                    let entry = entry(&format!("{thread}-{number}"), "sk-marked");
                    file.update(|doc| (doc.put("p", &entry), true)).unwrap();
                }
            });
        }
    });
    assert_eq!(file.read().unwrap().entries("p").len(), 20);
}

#[test]
fn i24_no_secret_is_in_what_debug_says() {
    let (_dir, file) = file(Some(OLD));
    let doc = file.read().unwrap();
    let said = format!("{doc:?} {:?} {file:?}", doc.entries("p"));
    assert!(!said.contains("marked"), "{said}");
}
