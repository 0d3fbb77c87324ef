//! Tests of what is done with credentials.

use super::*;

fn auth(dir: &std::path::Path, vars: &[(&str, &str)]) -> Auth {
    let scope = Scope { profile: "default".to_owned(), home: dir.to_owned() };
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Auth::of(&scope, Env { vars, user_home: None, cwd: "/".into() }).unwrap()
}

fn ids(rows: &[AuthRow]) -> Vec<String> {
    rows.iter().map(|row| format!("{} {} {}", row.provider, row.label, row.status)).collect()
}

#[test]
fn keys_of_variables_and_added_ones_are_listed_without_their_secret() {
    let dir = tempfile::tempdir().unwrap();
    let auth = auth(dir.path(), &[("OPENAI_API_KEY", "sk-marked-1"), ("OPENAI_API_KEY_2", "changeme")]);
    auth.add_key("groq", Some("mine"), " gsk_marked_2\n").unwrap();
    let rows = auth.list(None).unwrap();
    assert_eq!(ids(&rows), ["openai OPENAI_API_KEY ok", "groq mine ok"]);
    let said = format!("{rows:?}{}", serde_json::to_string(&rows).unwrap());
    assert!(!said.contains("marked"), "{said}");
    assert!(auth.add_key("groq", None, "your_api_key").is_err());
    assert!(auth.add_key("nobody", None, "sk-marked-3").is_err());
}

#[test]
fn b48_a_removed_variable_stays_away_until_a_reset() {
    let dir = tempfile::tempdir().unwrap();
    let vars = [("OPENAI_API_KEY", "sk-marked-1")];
    auth(dir.path(), &vars).remove("openai", "OPENAI_API_KEY").unwrap();
    assert!(auth(dir.path(), &vars).list(Some("openai")).unwrap().is_empty());
    assert_eq!(ids(&auth(dir.path(), &vars).reset("openai", None).unwrap()), ["openai OPENAI_API_KEY ok"]);
}

#[test]
fn a_reset_forgets_rests_and_deaths_and_a_removal_takes_one() {
    let dir = tempfile::tempdir().unwrap();
    let auth = auth(dir.path(), &[]);
    let row = auth.add_key("openai", Some("a"), "sk-marked-1").unwrap();
    auth.add_key("openai", Some("b"), "sk-marked-2").unwrap();
    let change = |doc: &mut AuthDoc| {
        let mut entry = doc.entry("openai", &row.id).unwrap();
        entry.health.status = Status::Dead;
        entry.health.why = "token_revoked".into();
        (doc.put("openai", &entry), true)
    };
    auth.file.update(change).unwrap();
    let rows = auth.list(Some("openai")).unwrap();
    let dead = rows.iter().find(|found| found.id == row.id).unwrap();
    assert_eq!((dead.status.as_str(), dead.why.as_str()), ("dead", "token_revoked"));
    assert!(auth.reset("openai", Some("a")).unwrap().iter().all(|row| row.status == "ok"));
    auth.remove("openai", &row.id).unwrap();
    assert_eq!(ids(&auth.list(Some("openai")).unwrap()), ["openai b ok"]);
    assert!(auth.remove("openai", "nothing").is_err());
}

#[test]
fn everything_that_lets_a_provider_in_is_listed_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("model-providers");
    std::fs::create_dir(&folder).unwrap();
    let profile = "id = 'mine'\nname = 'Mine'\napi_mode = 'chat_completions'\nbase_url = 'https://x.example/v1'\n\
                   env_keys = ['MINE_KEY']\nkey = 'optional'\n[external_login]\nfile = 'tool.json'\n";
    std::fs::write(folder.join("mine.toml"), profile).unwrap();
    let listed = |vars: &[(&str, &str)], only| {
        let rows = auth(dir.path(), vars).list(only).unwrap();
        let said = format!("{rows:?}");
        assert!(!said.contains("marked"), "{said}");
        let show = |row: &AuthRow| format!("{} {} {}", row.kind, row.status, if row.used { "used" } else { "spare" });
        rows.iter().map(show).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[], Some("mine")), ["external_file missing used"]);
    assert!(listed(&[], None).is_empty());
    std::fs::write(dir.path().join("tool.json"), "marked-0").unwrap();
    assert_eq!(listed(&[], None), ["external_file ok used"]);
    let vars = [("MINE_KEY", "sk-marked-1")];
    assert_eq!(listed(&vars, None), ["api_key ok used", "external_file ok spare"]);
    std::fs::write(dir.path().join("config.yaml"), "providers: {mine: {api_key: sk-marked-2}}\n").unwrap();
    assert_eq!(listed(&vars, None), ["api_key ok used", "api_key ok spare", "external_file ok spare"]);
    assert_eq!(auth(dir.path(), &vars).remove("mine", "-").unwrap_err().code, "HM0214");
    // A token that has ended and that nothing renews is not well.
    let ended = Entry {
        id: "e".into(),
        kind: EntryKind::OAuth,
        access_token: Some("at-marked".into()),
        expires_at_ms: Some(1),
        ..Entry::default()
    };
    auth(dir.path(), &[]).file.update(|doc| (doc.put("groq", &ended), true)).unwrap();
    assert_eq!(listed(&[], Some("groq")), ["oauth ended used"]);
    let other = tempfile::tempdir().unwrap();
    assert!(auth(other.path(), &[]).list(None).unwrap().is_empty(), "another home has nothing of it");
}

#[test]
fn b50_a_damaged_file_is_told_and_left() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("auth.json"), "{\"x").unwrap();
    let auth = auth(dir.path(), &[]);
    assert_eq!(auth.list(None).unwrap_err().code, "HM2022");
    assert_eq!(auth.add_key("openai", None, "sk-marked-1").unwrap_err().code, "HM2022");
    assert_eq!(std::fs::read_to_string(dir.path().join("auth.json")).unwrap(), "{\"x");
}
