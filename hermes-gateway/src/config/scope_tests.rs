//! Tests of [`super::Scope`].

use std::path::Path;

use super::*;

fn env(home: &Path, hermes_home: Option<&str>) -> Env {
    let vars = hermes_home.map(|value| ("HERMES_HOME".to_owned(), value.to_owned())).into_iter().collect();
    Env { vars, user_home: Some(home.to_owned()), cwd: home.join("work") }
}

#[test]
fn the_default_home_is_dot_hermes() {
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope::resolve(&env(dir.path(), None), None).unwrap();
    assert_eq!(scope.profile, "default");
    assert_eq!(scope.home, dir.path().join(".hermes"));
    assert_eq!(scope.database(), dir.path().join(".hermes/hermes.db"));
    assert_eq!(scope.memory_md(), dir.path().join(".hermes/memories/MEMORY.md"));
}

#[test]
fn hermes_home_may_be_relative_or_begin_with_a_tilde() {
    let dir = tempfile::tempdir().unwrap();
    for (value, wanted) in [("./h", "work/h"), ("~/h", "h"), ("~", ""), ("", ".hermes"), ("  ", ".hermes")] {
        let scope = Scope::resolve(&env(dir.path(), Some(value)), None).unwrap();
        assert_eq!(scope.home, dir.path().join(wanted), "{value:?}");
    }
}

#[test]
fn without_any_home_there_is_an_error() {
    let nothing = Env { cwd: "/".into(), ..Env::default() };
    assert!(matches!(Scope::resolve(&nothing, None), Err(ConfigError::NoHome)));
}

#[test]
fn a_profile_lives_under_profiles() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join(".hermes/profiles/work")).unwrap();
    let env = env(dir.path(), None);
    let scope = Scope::resolve(&env, Some("work")).unwrap();
    assert_eq!((scope.profile.as_str(), scope.home), ("work", dir.path().join(".hermes/profiles/work")));
    let root = Scope::resolve(&env, Some("default")).unwrap();
    assert_eq!(root.home, dir.path().join(".hermes"));
}

#[test]
fn an_unknown_profile_says_which_exist_and_how_to_make_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join(".hermes/profiles/work")).unwrap();
    let error = Scope::resolve(&env(dir.path(), None), Some("wrk")).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), "HM0102");
    assert!(text.contains("default, work") && text.contains("mkdir -p"), "{text}");
}

#[test]
fn i27_a_hostile_profile_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let long = "a".repeat(65);
    for name in ["", "..", "../x", "a/b", "A", "-x", "a b", "é", "a\0", long.as_str()] {
        let error = Scope::resolve(&env(dir.path(), None), Some(name)).unwrap_err();
        assert_eq!(error.code(), "HM0101", "{name:?}");
    }
}

#[test]
fn a_home_inside_profiles_is_that_profile_and_others_are_its_siblings() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("r");
    std::fs::create_dir_all(root.join("profiles/b")).unwrap();
    let inside = root.join("profiles/a");
    let env = env(dir.path(), inside.to_str());
    assert_eq!(Scope::resolve(&env, None).unwrap(), Scope { profile: "a".into(), home: inside });
    assert_eq!(Scope::resolve(&env, Some("b")).unwrap().home, root.join("profiles/b"));
    assert_eq!(Scope::resolve(&env, Some("default")).unwrap().home, root);
}

#[test]
fn the_active_profile_file_decides_when_nothing_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join(".hermes");
    std::fs::create_dir_all(root.join("profiles/work")).unwrap();
    let env = env(dir.path(), None);
    for (text, wanted) in [("work\n", "work"), ("default", "default"), ("\n", "default")] {
        std::fs::write(root.join("active_profile"), text).unwrap();
        assert_eq!(Scope::resolve(&env, None).unwrap().profile, wanted, "{text:?}");
    }
    std::fs::write(root.join("active_profile"), "gone").unwrap();
    let text = Scope::resolve(&env, None).unwrap_err().to_string();
    assert!(text.contains("active_profile"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_new_home_is_private_and_an_old_one_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { profile: "default".into(), home: dir.path().join("a/b") };
    scope.ensure_home().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scope.home), 0o700);
    std::fs::set_permissions(&scope.home, std::fs::Permissions::from_mode(0o750)).unwrap();
    scope.ensure_home().unwrap();
    assert_eq!(mode(&scope.home), 0o750);
}
