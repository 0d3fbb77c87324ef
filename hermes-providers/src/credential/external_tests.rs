//! External logins with real programs and real files.

use super::*;
use crate::credential::{Credentials as _, FetchedCredentials, Next, Outcome};
use secrecy::ExposeSecret as _;

fn login(toml: &str) -> Result<ExternalLogin, String> {
    toml::from_str(toml).map_err(|error| error.message().to_owned())
}

fn source(toml: &str) -> ExternalSource {
    let path = ("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    ExternalSource::new(login(toml).unwrap(), |file| PathBuf::from(file), vec![path, ("GIVEN".into(), "given".into())])
}

fn shell(script: &str, more: &str) -> ExternalSource {
    source(&format!("command = ['sh', '-c', '''{script}''']\n{more}"))
}

async fn token(source: ExternalSource) -> Result<String, String> {
    match source.fetch().await {
        Ok(Fetched { secret: Secret::Key(key), .. }) => Ok(key.expose_secret().to_owned()),
        Ok(other) => panic!("{:?}", other.secret),
        Err(error) => Err(format!("{:?} {} {}", error.class, error.code.unwrap_or_default(), error.message)),
    }
}

const JSON: &str = "token = '/a/0/token'\nexpires = '/a/0/until'";

#[test]
fn a_table_that_makes_no_sense_is_refused_with_what_is_wrong() {
    for (wrong, told) in [
        ("", "either"),
        ("command = ['a']\nfile = 'b'", "either"),
        ("command = []", "no program"),
        ("file = ''", "either"),
        ("file = 'x'\ntoken = 'a'", "begin with a slash"),
        ("file = 'x'\nexpires = '/a'", "needs `token`"),
        ("command = ['x']\ntimeout_seconds = 0", "between 1 and 300"),
        ("command = ['x']\ntimeout_seconds = 301", "between 1 and 300"),
        ("file = 'x'\ntimeout_seconds = 3", "are for a `command`"),
        ("file = 'x'\nwrite = true", "unknown field"),
    ] {
        let error = login(wrong).unwrap_err();
        assert!(error.contains(told), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn a_command_prints_the_token_and_sees_only_what_it_is_given() {
    assert_eq!(token(shell("echo tok-1; echo noise >&2", "")).await.unwrap(), "tok-1");
    assert_eq!(token(shell("echo $GIVEN-$HOME-$CARGO", "")).await.unwrap(), "given--");
    let later = "printf '{\"a\":[{\"token\":\"tok-2\",\"until\":\"2100-01-01T00:00:00Z\"}]}'";
    assert_eq!(token(shell(later, JSON)).await.unwrap(), "tok-2");
}

#[tokio::test]
async fn every_failure_of_a_command_has_its_code_and_shows_no_secret() {
    for (script, more, told) in [
        ("echo tok; echo not logged in >&2; exit 3", "login = 'tool login'", "Auth external_login_failed"),
        ("sleep 30", "timeout_seconds = 1", "Timeout external_login_late"),
        ("head -c 70000 /dev/zero", "", "Limit external_login_too_large"),
        ("head -c 70000 /dev/zero; sleep 30", "", "Limit external_login_too_large"),
        ("printf '\\377'", "", "Configuration external_login_unreadable"),
        (":", "", "Auth external_login_missing"),
        ("echo marked-1 marked-2", "", "Configuration external_login_unreadable"),
        ("echo marked-1", JSON, "Configuration external_login_unreadable"),
        ("echo '{\"a\":[{\"token\":null}]}'", JSON, "Auth external_login_missing"),
        ("echo '{\"a\":[{\"token\":\"marked-1\",\"until\":5}]}'", JSON, "Auth external_login_ended"),
        (
            "echo '{\"a\":[{\"token\":\"marked-1\",\"until\":\"soon\"}]}'",
            JSON,
            "Configuration external_login_unreadable",
        ),
    ] {
        let error = token(shell(script, more)).await.unwrap_err();
        assert!(error.starts_with(told) && !error.contains("marked"), "{script}: {error}");
    }
    let error = token(shell("echo not logged in >&2; exit 3", "login = 'tool login'")).await.unwrap_err();
    assert!(error.contains("not logged in") && error.contains("run `tool login`"), "{error}");
    let error = token(source("command = ['/no/such/program']")).await.unwrap_err();
    assert!(error.starts_with("Configuration external_login_missing"), "{error}");
}

#[tokio::test]
async fn a_program_that_is_given_up_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let begun = dir.path().join("begun");
    let script = format!("echo $$ > {0}.part && mv {0}.part {0}; exec sleep 60", begun.display());
    let credentials = FetchedCredentials::new(shell(&script, ""));
    let started = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = credentials.take("m") => panic!("it sleeps"),
        () = started => {}
    }
    let pid = std::fs::read_to_string(&begun).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    // The runner of the tests ends one that waits for ever.
    while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_file_is_read_again_when_its_token_is_refused_and_is_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other-tool.json");
    let write = |token: &str, until: i64| {
        std::fs::write(&path, format!(r#"{{"a":[{{"token":"{token}","until":{until},"more":1}}]}}"#)).unwrap();
    };
    write("tok-1", 4_102_444_800);
    let credentials = FetchedCredentials::new(source(&format!("file = '{}'\n{JSON}", path.display())));
    let first = credentials.take("m").await.unwrap();
    write("tok-2", 4_102_444_800);
    assert_eq!(credentials.take("m").await.unwrap().id, first.id, "nobody looks without a reason");
    let refused = ProviderError::new(ErrorClass::Auth, "no");
    assert_eq!(credentials.report(&first, "m", Outcome::Failed(&refused)), Next::Another);
    let second = credentials.take("m").await.unwrap();
    assert_ne!(second.id, first.id);
    // The late answer to another request with the first token says nothing of the second.
    assert_eq!(credentials.report(&first, "m", Outcome::Failed(&refused)), Next::Same);
    assert_eq!(credentials.take("m").await.unwrap().id, second.id);
    let before = std::fs::read(&path).unwrap();
    assert_eq!(credentials.report(&second, "m", Outcome::Failed(&refused)), Next::Another);
    let third = credentials.take("m").await.unwrap();
    assert_eq!(credentials.report(&third, "m", Outcome::Failed(&refused)), Next::Same, "the same token twice");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was put beside it");
}

#[tokio::test]
async fn a_token_near_its_end_is_looked_for_again_and_one_without_an_end_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let soon = SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 60;
    std::fs::write(&path, format!(r#"{{"a":[{{"token":"tok-1","until":{soon}}}]}}"#)).unwrap();
    let near = FetchedCredentials::new(source(&format!("file = '{}'\n{JSON}", path.display())));
    let first = near.take("m").await.unwrap().id;
    std::fs::write(&path, format!(r#"{{"a":[{{"token":"tok-2","until":{soon}}}]}}"#)).unwrap();
    let second = near.take("m").await.unwrap().id;
    assert_ne!(first, second);
    // The other tool is writing: what was there is good until it ends.
    std::fs::write(&path, "{").unwrap();
    assert_eq!(near.take("m").await.unwrap().id, second);
    std::fs::write(&path, "tok-3").unwrap();
    let plain = FetchedCredentials::new(source(&format!("file = '{}'", path.display())));
    let third = plain.take("m").await.unwrap().id;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(plain.take("m").await.unwrap().id, third);
}

#[tokio::test]
async fn what_is_no_file_is_told_and_does_not_hold_the_reader() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &std::path::Path| source(&format!("file = '{}'", path.display()));
    assert!(token(at(dir.path())).await.unwrap_err().starts_with("Configuration external_login_unreadable"));
    let missing = token(at(&dir.path().join("nothing"))).await.unwrap_err();
    assert!(missing.starts_with("Auth external_login_missing"), "{missing}");
    let large = dir.path().join("large");
    std::fs::write(&large, "x".repeat(2 * 1024 * 1024)).unwrap();
    assert!(token(at(&large)).await.unwrap_err().starts_with("Configuration external_login_unreadable"));
}
