//! Files, the todo list and questions.

use hermes_tools::scripted::NoClarifier;
use hermes_tools::{CallOutcome, CallReport, Clarifier, ClarifyQuestion, SessionConfig, ToolSession};
use serde_json::{Value, json};

use crate::bench::Bench;

async fn fails(bench: &Bench, name: &str, arguments: Value) -> String {
    let report: CallReport = bench.one(name, arguments).await;
    assert_eq!(report.outcome, CallOutcome::Failed, "{}", report.content);
    report.content
}

fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content})
}

fn patch(old: &str, new: &str) -> Value {
    json!({"path": "a.txt", "old_string": old, "new_string": new})
}

#[tokio::test]
async fn a_file_is_made_with_its_directories_and_read_back() {
    let bench = Bench::new();
    let made = bench.ok("write_file", write("d/e/a.txt", "one\ntwo\n")).await;
    assert_eq!(made["status"], "created");
    let read = bench.ok("read_file", json!({"path": "d/e/a.txt"})).await;
    assert_eq!((read["content"].as_str(), read["total_lines"].as_u64()), (Some("1|one\n2|two"), Some(2)));
    let same = bench.ok("write_file", write("d/e/a.txt", "one\ntwo\n")).await;
    assert_eq!(same["status"], "already had this content");
}

#[tokio::test]
async fn t47_a_file_that_changed_after_it_was_read_is_not_overwritten() {
    let bench = Bench::new();
    let path = bench.work().join("a.txt");
    std::fs::write(&path, "first\n").unwrap();
    bench.ok("read_file", json!({"path": "a.txt"})).await;
    std::fs::write(&path, "of somebody else\n").unwrap();
    assert!(fails(&bench, "write_file", write("a.txt", "mine\n")).await.contains("changed on disk"));
    assert!(fails(&bench, "patch", patch("somebody", "me")).await.contains("changed on disk"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "of somebody else\n");
    bench.ok("read_file", json!({"path": "a.txt"})).await;
    bench.ok("patch", patch("somebody", "me")).await;
    bench.ok("write_file", write("a.txt", "mine\n")).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine\n");
}

#[tokio::test]
async fn a_file_that_was_not_read_completely_is_not_overwritten() {
    let bench = Bench::new();
    std::fs::write(bench.work().join("a.txt"), "1\n2\n3\n").unwrap();
    assert!(fails(&bench, "write_file", write("a.txt", "x")).await.contains("read it first"));
    bench.ok("read_file", json!({"path": "a.txt", "limit": 1})).await;
    assert!(fails(&bench, "write_file", write("a.txt", "x")).await.contains("read it first"));
}

#[tokio::test]
async fn t48_a_patched_file_keeps_mark_line_ends_mode_and_link() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let real = bench.work().join("real.txt");
    std::fs::write(&real, b"\xef\xbb\xbfone\r\ntwo\r\n\xff\r\n").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o754)).unwrap();
    std::os::unix::fs::symlink(&real, bench.work().join("a.txt")).unwrap();
    let done = bench.ok("patch", patch("one\ntwo\n", "1\n2\n3\n")).await;
    assert!(done["diff"].as_str().unwrap().contains("+3"), "{done}");
    assert_eq!(std::fs::read(&real).unwrap(), b"\xef\xbb\xbf1\r\n2\r\n3\r\n\xff\r\n");
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o754);
    assert!(std::fs::symlink_metadata(bench.work().join("a.txt")).unwrap().is_symlink());
    let left: Vec<_> = std::fs::read_dir(bench.work()).unwrap().collect();
    assert_eq!(left.len(), 2, "no temporary file is left");
}

#[tokio::test]
async fn t49_t50_a_doubtful_edit_changes_nothing() {
    let bench = Bench::new();
    let path = bench.work().join("a.txt");
    let text = "fn a() {\n    one();\n}\nfn b() {\n    one();\n}\n";
    std::fs::write(&path, text).unwrap();
    assert!(fails(&bench, "patch", patch("    one();", "    two();")).await.contains("line 2, line 5"));
    assert!(fails(&bench, "patch", patch("fn a() {\n  one();\n}", "x")).await.contains("are similar"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let all = json!({"path": "a.txt", "old_string": "one", "new_string": "two", "replace_all": true});
    assert_eq!(bench.ok("patch", all).await["places"], 2);
}

#[tokio::test]
async fn t52_broken_json_is_not_written() {
    let bench = Bench::new();
    assert!(fails(&bench, "write_file", write("config.json", "{")).await.contains("not valid JSON"));
    assert!(!bench.work().join("config.json").exists());
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_with_a_reason() {
    let bench = Bench::new();
    std::fs::write(bench.work().join("b.bin"), b"a\0b").unwrap();
    assert!(fails(&bench, "read_file", json!({"path": "b.bin"})).await.contains("binary"));
    assert!(fails(&bench, "read_file", json!({"path": "."})).await.contains("directory"));
    std::fs::write(bench.work().join("Readme.md"), "x").unwrap();
    assert!(fails(&bench, "read_file", json!({"path": "readme.MD"})).await.contains("similar: Readme.md"));
}

#[tokio::test]
async fn a_search_finds_lines_files_and_counts_and_leaves_secrets_out() {
    let bench = Bench::new();
    let work = bench.work();
    std::fs::create_dir(work.join("src")).unwrap();
    std::fs::write(work.join("src/a.rs"), "needle one\nother\nneedle two\n").unwrap();
    std::fs::write(work.join("src/b.py"), "a needle\n").unwrap();
    std::fs::write(work.join("id_rsa"), "needle\n").unwrap();
    std::fs::write(work.join(".gitignore"), "skip/\n").unwrap();
    std::fs::create_dir(work.join("skip")).unwrap();
    std::fs::write(work.join("skip/c.rs"), "needle\n").unwrap();
    let found = bench.ok("search_files", json!({"pattern": "needle \\w+"})).await;
    assert_eq!(found["total_count"], 2);
    assert_eq!(found["matches"], json!([{"file": "src/a.rs", "lines": ["1:needle one", "3:needle two"]}]));
    let found = bench.ok("search_files", json!({"pattern": "needle", "output_mode": "count"})).await;
    assert_eq!(found["counts"], json!({"src/a.rs": 2, "src/b.py": 1}));
    let found = bench.ok("search_files", json!({"pattern": "*.rs", "target": "files"})).await;
    assert_eq!(found["files"], json!(["src/a.rs"]));
    let found =
        bench.ok("search_files", json!({"pattern": "needle", "file_glob": "*.py", "output_mode": "files_only"})).await;
    assert_eq!(found["files"], json!(["src/b.py"]));
    let found = bench.ok("search_files", json!({"pattern": "needle", "limit": 1, "offset": 1})).await;
    assert_eq!((found["truncated"].as_bool(), found["next_offset"].as_u64()), (Some(true), Some(2)));
    assert_eq!(found["matches"][0]["lines"], json!(["3:needle two"]));
    assert!(fails(&bench, "search_files", json!({"pattern": "("})).await.contains("not a valid regular expression"));
}

#[tokio::test]
async fn a_todo_list_is_kept_merged_and_given_back_after_a_restart() {
    let bench = Bench::new();
    let item = |id: &str, status: &str| json!({"id": id, "content": "do", "status": status});
    bench.ok("todo_list", json!({"todos": [item("a", "pending"), item("b", "pending")]})).await;
    let merged = bench.one("todo_list", json!({"todos": [item("a", "completed")], "merge": true})).await;
    let list: Value = serde_json::from_str(&merged.content).unwrap();
    assert_eq!((list["revision"].as_u64(), list["summary"]["completed"].as_u64()), (Some(2), Some(1)));
    assert!(
        fails(&bench, "todo_list", json!({"todos": [item("a", "pending"), item("a", "pending")]}))
            .await
            .contains("twice")
    );
    let session = ToolSession::new(SessionConfig::new(bench.work(), std::collections::BTreeMap::new()));
    bench.registry.get("todo_list").unwrap().hydrate(&session, &merged.content);
    assert_eq!(session.todos(), bench.context().session.todos());
}

#[tokio::test]
async fn nobody_to_ask_is_said() {
    let bench = Bench::new();
    let answer = bench.ok("clarify", json!({"questions": [{"question": "Which?", "choices": ["a", "b"]}]})).await;
    assert_eq!(answer["responses"][0]["status"], "unanswered");
    assert_eq!(answer["outcome"], "undelivered");
    assert!(fails(&bench, "clarify", json!({"questions": []})).await.contains("nobody was asked"));
    let question = ClarifyQuestion { question: "q".to_owned(), choices: Vec::new(), multi_select: false };
    assert_eq!(NoClarifier.clarify(vec![question]).await.len(), 1);
}
