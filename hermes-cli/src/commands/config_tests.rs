//! The configuration commands on a home in a temporary directory.

use super::*;
use crate::args::SessionArgs;
use crate::terminal::Terminal;

struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn with(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.yaml"), text).unwrap();
        Self { directory }
    }

    fn run(&self, what: What) -> (Result<Exit, Fault>, String) {
        let scope = Scope { profile: "default".to_owned(), home: self.directory.path().to_owned() };
        let terminal = Terminal::none();
        let context = Context { session: SessionArgs::default(), json: false, profile: None, terminal };
        let mut out = Vec::new();
        let exit = execute(what, &scope, &context, &mut out);
        (exit, String::from_utf8(out).unwrap().replace(&self.directory.path().display().to_string(), "HOME"))
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("config.yaml")).unwrap()
    }
}

fn get(key: &str) -> What {
    What::Get { key: key.into() }
}

const TEXT: &str =
    "# mine\nmodel:\n  provider: custom # why\n  api_key: sk-very-secret\nagent: {max_turns: 7}\nzzz: 1\n";

#[test]
fn i24_no_secret_is_shown() {
    let home = Home::with(TEXT);
    for what in [What::Show { json: false }, What::Show { json: true }, get("model.api_key"), get("model"), What::Check]
    {
        let (exit, text) = home.run(what);
        assert_eq!(exit.unwrap(), Exit::Answered);
        assert!(!text.contains("very-secret"), "{text}");
    }
}

#[test]
fn a_setting_is_read_from_the_file_or_is_its_default() {
    let home = Home::with(TEXT);
    assert_eq!(home.run(get("agent.max_turns")).1, "7\n");
    assert_eq!(home.run(get("model.provider")).1, "custom\n");
    assert_eq!(home.run(get("database.synchronous")).1, "full\n");
    assert_eq!(home.run(get("zzz")).1, "1\n");
    assert_eq!(home.run(get("model.default")).0.unwrap_err().exit(), Exit::Failed);
    assert_eq!(home.run(get("no.such")).0.unwrap_err().exit(), Exit::Usage);
    let (_, text) = home.run(What::Show { json: false });
    let line = text.lines().find(|line| line.starts_with("agent.max_turns")).unwrap();
    assert!(line.contains('7') && line.contains("line 5"), "{line}");
}

#[test]
fn setting_one_keeps_comments_and_everything_else() {
    let home = Home::with(TEXT);
    let set = What::Set { key: "agent.max_turns".into(), value: "9".into(), text: false };
    assert_eq!(home.run(set).1, "Set agent.max_turns in HOME/config.yaml\n");
    assert_eq!(home.file(), TEXT.replace("max_turns: 7", "max_turns: 9"));
}

#[test]
fn taking_one_out_says_whether_it_was_there() {
    let home = Home::with(TEXT);
    let unset = || What::Unset { key: "zzz".into() };
    assert_eq!(home.run(unset()).1, "Took zzz out of HOME/config.yaml\n");
    assert!(!home.file().contains("zzz"));
    assert_eq!(home.run(unset()).1, "zzz was not set in HOME/config.yaml; nothing was changed\n");
}

#[test]
fn i27_a_section_in_braces_is_no_value() {
    let home = Home::with(TEXT);
    let set = |text| What::Set { key: "model".into(), value: "{}".into(), text };
    let fault = home.run(set(false)).0.unwrap_err();
    assert_eq!((fault.exit(), home.file().as_str()), (Exit::Usage, TEXT));
    assert!(fault.message().unwrap().contains("model.NAME"));
    assert_eq!(home.run(set(true)).0.unwrap(), Exit::Answered);
}

#[test]
fn i27_a_wrong_value_is_refused_and_the_file_stays() {
    let home = Home::with(TEXT);
    let set = What::Set { key: "approvals.mode".into(), value: "perhaps".into(), text: false };
    assert_eq!(home.run(set).0.unwrap_err().exit(), Exit::Usage);
    assert_eq!(home.file(), TEXT);
}

#[test]
fn i27_a_broken_file_is_told_with_its_place() {
    let home = Home::with("model:\n  provider: [a\n");
    let fault = home.run(What::Check).0.unwrap_err();
    let message = fault.message().unwrap();
    assert_eq!(fault.exit(), Exit::Usage);
    assert!(message.starts_with("error[HM0105]: ") && message.contains("config.yaml:"), "{message}");
}

#[test]
fn check_lists_what_has_no_effect_and_is_no_failure() {
    let (exit, text) = Home::with(TEXT).run(What::Check);
    assert_eq!(exit.unwrap(), Exit::Answered);
    assert!(text.contains("line 6, column 1: zzz is not a known setting"), "{text}");
    assert!(text.ends_with("HOME/config.yaml: ok, with 1 note\n"), "{text}");
}

#[test]
fn every_setting_that_is_shown_is_known_to_check() {
    let home = Home::with("providers: {x: {key_env: K}}\n");
    let scope = Scope { profile: "default".to_owned(), home: home.directory.path().to_owned() };
    for key in Config::load(&scope).unwrap().show().into_iter().map(|shown| shown.key) {
        // Written under its shown name it must be read, not reported.
        let mut lines = String::new();
        for (depth, part) in key.split('.').enumerate() {
            lines.push_str(&format!("{}{part}:\n", "  ".repeat(depth)));
        }
        let config = Config::parse(std::path::Path::new("c"), &lines).unwrap();
        assert!(check::check(&config).is_empty(), "{key}: {:?}", check::check(&config));
    }
}
