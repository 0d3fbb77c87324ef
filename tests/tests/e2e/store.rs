//! The store through the program: export and import, backup and restore, PostgreSQL.

use hermes_tests::home::{Home, Run};
use hermes_tests::server::ModelServer;

async fn talk(home: &Home, text: &str) -> Run {
    let run = home.run(&["-z", text]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    run
}

async fn ok(home: &Home, arguments: &[&str]) -> String {
    let run = home.run(arguments).await.unwrap();
    assert_eq!(run.code, Some(0), "{arguments:?}: {run:?}");
    run.stdout
}

#[tokio::test]
async fn what_is_exported_can_be_imported_elsewhere_gone_on_with_and_exported_the_same() {
    let server = ModelServer::start().await.unwrap();
    let (first, second) =
        (Home::with_server(&server.base_url()).unwrap(), Home::with_server(&server.base_url()).unwrap());
    talk(&first, "RUN_TOOLS 2 #101").await;
    talk(&first, "hello").await;
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).into_os_string().into_string().unwrap();
    ok(&first, &["sessions", "export", "--all", "-o", &path("all.jsonl")]).await;
    let told = ok(&second, &["import", &path("all.jsonl")]).await;
    assert!(told.contains("conversations: 2 imported now, 0 here before, 0 left out"), "{told}");
    ok(&second, &["sessions", "export", "--all", "-o", &path("again.jsonl")]).await;
    let (out, again) = (std::fs::read(path("all.jsonl")).unwrap(), std::fs::read(path("again.jsonl")).unwrap());
    assert!(out == again, "an export of an import differs from the export");
    let told = ok(&second, &["import", &path("all.jsonl")]).await;
    assert!(told.contains("conversations: 0 imported now, 2 here before, 0 left out"), "{told}");
    assert!(ok(&second, &["store", "check", "--full"]).await.contains("Everything is as it must be."));
    let next = second.run(&["-c", "-z", "hello"]).await.unwrap();
    assert_eq!((next.code, next.stdout.trim()), (Some(0), "ok, short answer"), "{next:?}");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
}

#[tokio::test]
async fn a_backup_can_be_brought_back() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    talk(&home, "hello").await;
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).into_os_string().into_string().unwrap();
    ok(&home, &["store", "backup", &path("b.db")]).await;
    let twice = home.run(&["store", "backup", &path("b.db")]).await.unwrap();
    assert!(twice.code == Some(2) && twice.stderr.contains("HM1015"), "{twice:?}");
    let before = ok(&home, &["sessions", "export", "--all"]).await;
    talk(&home, "hello").await;
    let refused = home.run(&["store", "restore", &path("b.db")]).await.unwrap();
    assert!(refused.code == Some(2) && refused.stderr.contains("--yes"), "{refused:?}");
    ok(&home, &["store", "restore", &path("b.db"), "--yes"]).await;
    assert_eq!(ok(&home, &["sessions", "export", "--all"]).await, before);
    // What the restore put aside is told with the command that removes it, and stays.
    let told = ok(&home, &["doctor"]).await;
    assert!(told.contains("hermes.db.replaced-") && told.contains("rm -- "), "{told}");
    assert!(ok(&home, &["doctor"]).await.contains("hermes.db.replaced-"));
    // Neither a backup nor the store itself is imported; each is told what to do instead.
    let own = home.path().join("hermes.db").display().to_string();
    let dir = home.path().display().to_string();
    let in_use = "is the store that is in use";
    for (file, wanted) in [(path("b.db"), "hermes store restore "), (own, in_use), (dir, in_use)] {
        let refused = home.run(&["sessions", "import", &file]).await.unwrap();
        assert!(refused.code == Some(2) && refused.stderr.contains(wanted), "{refused:?}");
    }
    assert!(ok(&home, &["store", "check"]).await.contains("Everything is as it must be."));
    ok(&home, &["store", "vacuum", "--force"]).await;
    talk(&home, "hello").await;
}

#[tokio::test]
async fn a_store_in_postgresql_is_gone_on_with_by_another_process() {
    let url = std::env::var("HERMES_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("HERMES_TEST_POSTGRES names no server; run `cargo xtask test`, or `cargo xtask postgres COMMAND`")
    });
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let yaml = format!(
        "model: {{provider: mine, default: fake-model}}\nproviders:\n  mine: {{base_url: \"{}\", api_key: test-key-1}}\n\
         approvals: {{mode: \"off\"}}\ndatabase: {{url: \"{url}\"}}\n",
        server.base_url()
    );
    home.configure(&yaml).unwrap();
    talk(&home, "RUN_TOOLS 2 #102").await;
    let next = home.run(&["-c", "-z", "hello"]).await.unwrap();
    assert_eq!((next.code, next.stdout.trim()), (Some(0), "ok, short answer"), "{next:?}");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
    assert!(ok(&home, &["store", "check"]).await.contains("Everything is as it must be."));
    let backup = home.run(&["store", "backup", "x.db"]).await.unwrap();
    assert!(backup.code == Some(2) && backup.stderr.contains("pg_dump"), "{backup:?}");
}

#[tokio::test]
async fn sessions_are_undone_done_again_branched_marked_and_named_exactly() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    talk(&home, "RUN_TOOLS 1 #103").await;
    ok(&home, &["-c", "-z", "hello"]).await;
    let list = ok(&home, &["sessions", "list", "--json"]).await;
    let id = serde_json::from_str::<serde_json::Value>(list.lines().next().unwrap()).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let before = ok(&home, &["sessions", "export", &id, "--format", "md"]).await;
    let told = ok(&home, &["sessions", "undo", &id]).await;
    assert!(told.contains("2 rows are undone; the input was: hello"), "{told}");
    assert_ne!(ok(&home, &["sessions", "export", &id, "--format", "md"]).await, before);
    ok(&home, &["sessions", "redo", &id]).await;
    let again = ok(&home, &["sessions", "export", &id, "--format", "md"]).await;
    assert_eq!(again.lines().count(), before.lines().count());
    // The last input once more: what the model sees has it once, and the server gets the same bytes as the first time.
    let told = ok(&home, &["sessions", "retry", &id]).await;
    assert!(told.contains("ok, short answer"), "{told}");
    let seen = server.seen();
    let [.., first, second] = seen.as_slice() else { panic!("{} requests", seen.len()) };
    assert_eq!(first.body, second.body);
    let retried = ok(&home, &["sessions", "export", &id, "--format", "md"]).await;
    assert_eq!(retried.lines().count(), before.lines().count());
    let branch = ok(&home, &["sessions", "branch", &id, "--title", "twice"]).await;
    let next = home.run(&["--resume", branch.trim(), "-z", "hello"]).await.unwrap();
    assert_eq!((next.code, next.stdout.trim()), (Some(0), "ok, short answer"), "{next:?}");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
    ok(&home, &["sessions", "rename", &id, "twice"]).await;
    let refused = home.run(&["sessions", "delete", "twice", "--yes"]).await.unwrap();
    assert!(refused.code == Some(2) && refused.stderr.contains("HM0205"), "{refused:?}");
    ok(&home, &["sessions", "archive", &id]).await;
    // Its branch names it too, as where it comes from.
    let named = format!("\"id\":\"{id}\"");
    assert!(!ok(&home, &["sessions", "list", "--json"]).await.contains(&named));
    assert!(ok(&home, &["sessions", "list", "--json", "--archived"]).await.contains(&named));
    ok(&home, &["sessions", "archive", &id, "--undo"]).await;
    ok(&home, &["sessions", "pin", &id]).await;
    assert!(ok(&home, &["sessions", "prune", "--dry-run"]).await.contains("0 sessions would be"));
    ok(&home, &["sessions", "delete", &id, "--yes"]).await;
    let checked = ok(&home, &["store", "check"]).await;
    assert!(checked.contains("Everything is as it must be."), "{checked}");
}
