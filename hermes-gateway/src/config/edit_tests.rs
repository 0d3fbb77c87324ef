//! Tests of changing one setting.

use super::*;

fn changed(text: &str, key: &str, word: &str) -> Result<String, ConfigError> {
    edited(Path::new("config.yaml"), text, key, Some(&NewValue::from_word(word)))
}

#[test]
fn only_the_setting_changes() {
    let cases = [
        // Text, key, value, new text.
        ("", "a.b", "1", "a:\n  b: 1\n"),
        ("# mine\n", "a", "x", "# mine\na: x\n"),
        ("a: 1 # why\nb: 2\n", "a", "7", "a: 7 # why\nb: 2\n"),
        ("a: 'x'  # why\r\nb: 2\r\n", "a", "y z", "a: \"y z\"  # why\r\nb: 2\r\n"),
        ("a: 1\r\n", "b.c", "2", "a: 1\r\nb:\r\n  c: 2\r\n"),
        ("a: 1", "b", "2", "a: 1\nb: 2\n"),
        ("a:\n    x: 1\n\n# of b\nb:\n    x: 2\n", "a.w", "3", "a:\n    x: 1\n    w: 3\n\n# of b\nb:\n    x: 2\n"),
        ("a:\n  x: 1\nb:\n  x: 2\n", "b.x", "3", "a:\n  x: 1\nb:\n  x: 3\n"),
        ("a:\nb: 1\n", "a.x", "3", "a:\n  x: 3\nb: 1\n"),
        ("a: # later\nb: 1\n", "a", "3", "a: 3 # later\nb: 1\n"),
        ("a: {x: 1, y: 2}\n", "a.x", "3", "a: {x: 3, y: 2}\n"),
        ("a: {x: 1}\n", "a.z", "off", "a: {x: 1, z: \"off\"}\n"),
        ("a: {}\n", "a.z.q", "1", "a: {z: {q: 1}}\n"),
        ("t: [a, b] # c\n", "t", "[c]", "t: [c] # c\n"),
        ("a:\n  t: |\n    x\n    y\nb: 1\n", "a.z", "1", "a:\n  t: |\n    x\n    y\n  z: 1\nb: 1\n"),
        ("a:\n  l:\n  - 1\n  - 2 # two\nb: 1\n", "a.z", "1", "a:\n  l:\n  - 1\n  - 2 # two\n  z: 1\nb: 1\n"),
        ("model: gpt-5 # m\n", "model.default", "gpt-6", "model: gpt-6 # m\n"),
        ("model: gpt-5 # m\n", "model.provider", "groq", "model: {default: gpt-5, provider: groq} # m\n"),
        ("model:\n  default: a\n", "model", "b", "model:\n  default: b\n"),
        ("a: x\n", "a", "012", "a: \"012\"\n"),
        ("é: ü\na: ö # ä\n", "a", "1", "é: ü\na: 1 # ä\n"),
        ("---\na: 1\n", "b", "2", "---\na: 1\nb: 2\n"),
    ];
    for (text, key, word, expected) in cases {
        match changed(text, key, word) {
            Ok(new) => assert_eq!(new, expected, "{text:?} {key}"),
            Err(error) => panic!("{text:?} {key}: {error}"),
        }
    }
}

#[test]
fn i27_what_cannot_be_changed_safely_is_refused() {
    let cases = [
        ("a: &x {p: 1}\nb: *x\n", "b.p"),
        ("a: &x {p: 1}\nb: *x\n", "a.p"),
        ("a: &x 1\nb: *x\n", "a"),
        ("a: &x {p: 1}\nb:\n  <<: *x\n", "b.p"),
        ("a: 1\na: 2\n", "a"),
        ("a:\n  x: 1\na:\n  x: 2\n", "a.x"),
        ("a:\n  - 1\n", "a"),
        ("a:\n  x: 1\n", "a"),
        ("a: |\n  x\n", "a"),
        ("a: [1]\n", "a.x"),
        ("a: text\n", "a.x"),
        ("a: 1\n", "a b"),
        ("a: 1\n", "a..b"),
    ];
    for (text, key) in cases {
        let error = changed(text, key, "5").err().unwrap_or_else(|| panic!("{text:?} {key} must be refused"));
        assert_eq!(error.code(), "HM0107", "{text:?} {key}");
    }
    assert_eq!(changed("a:\n\tb: 1\n", "a.b", "5").unwrap_err().code(), "HM0105");
}

#[test]
fn unset_takes_the_line_and_empty_sections() {
    let cases = [
        ("a: 1\nb: 2 # x\nc: 3\n", "b", Some("a: 1\nc: 3\n")),
        ("# top\na:\n  b:\n    c: 1\nd: 2\n", "a.b.c", Some("# top\nd: 2\n")),
        ("a:\n  x: 1\n  y: 2\n", "a.x", Some("a:\n  y: 2\n")),
        ("a: {x: 1, y: 2}\n", "a.x", Some("a: {y: 2}\n")),
        ("a: {x: 1, y: 2}\n", "a.y", Some("a: {x: 1}\n")),
        ("a:\n  - 1\n  - 2\nb: 1\n", "a", Some("b: 1\n")),
        ("a: 1\n", "zz.y", Some("a: 1\n")),
        ("a: 1\n", "a", Some("")),
        ("a:\n  # keep\n  x: 1\nb: 1\n", "a", None),
        ("a: &x 1\nb: *x\n", "a", None),
    ];
    for (text, key, expected) in cases {
        let new = edited(Path::new("c"), text, key, None);
        assert_eq!(new.as_deref().ok(), expected, "{text:?} {key} {new:?}");
    }
}

#[cfg(unix)]
#[test]
fn the_file_is_made_private_keeps_its_mode_and_links_are_followed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { profile: "default".into(), home: dir.path().join("home") };
    let mode = || std::fs::metadata(scope.config_yaml()).unwrap().permissions().mode() & 0o777;
    set(&scope, "agent.max_turns", &NewValue::from_word("9")).unwrap();
    assert_eq!(
        (std::fs::read_to_string(scope.config_yaml()).unwrap().as_str(), mode()),
        ("agent:\n  max_turns: 9\n", 0o600)
    );
    let real = dir.path().join("real.yaml");
    std::fs::rename(scope.config_yaml(), &real).unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&real, scope.config_yaml()).unwrap();
    set(&scope, "approvals.mode", &NewValue::from_word("off")).unwrap();
    assert_eq!(mode(), 0o644);
    assert!(std::fs::symlink_metadata(scope.config_yaml()).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "agent:\n  max_turns: 9\napprovals:\n  mode: \"off\"\n");
    // A value that the setting cannot have is not written.
    assert_eq!(set(&scope, "approvals.mode", &NewValue::from_word("maybe")).unwrap_err().code(), "HM0106");
    assert!(unset(&scope, "approvals.mode").unwrap());
    assert!(!unset(&scope, "approvals.mode").unwrap(), "it is not there any more");
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "agent:\n  max_turns: 9\n");
}

#[test]
fn a_name_that_nobody_reads_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { profile: "default".into(), home: dir.path().into() };
    let text = "mine: {own: 1}\nproviders: {a.b: {key_env: K}}\n";
    std::fs::write(scope.config_yaml(), text).unwrap();
    let one = NewValue::from_word("x");
    for (key, hints) in [
        ("agent.max_turn", "; did you mean `agent.max_turns`?"),
        ("model.defualt", "; did you mean `model.default`?"),
        ("providers.groq.apikey", "; did you mean `providers.groq.api_key`?"),
        ("approvals", "; did you mean `approvals.mode` or `approvals.timeout` or `approvals.deny`?"),
        ("compression.treshold", "; did you mean `compression.threshold`?"),
        ("nonsense", ""),
        ("mine.other", ""),
        ("a b", ""),
    ] {
        let error = set(&scope, key, &one).unwrap_err();
        assert_eq!((error.code(), error.to_string().split('`').count() > 1), ("HM0109", true), "{error}");
        assert!(error.to_string().ends_with(&format!("`{key}`{hints}")), "{error}");
    }
    assert_eq!(set(&scope, "providers.a.b.key_env", &one).unwrap_err().code(), "HM0107");
    assert_eq!(std::fs::read_to_string(scope.config_yaml()).unwrap(), text);
    // Of this program, of the Python program, below a section that takes any name, and in the file.
    for key in [
        "model",
        "terminal.cwd",
        "compression.micro_compact",
        "mcp_servers.x.command",
        "model.openai_runtime",
        "mine.own",
    ] {
        set(&scope, key, &one).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}
