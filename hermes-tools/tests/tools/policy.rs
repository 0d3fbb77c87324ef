//! What is allowed, asked and denied.

use hermes_tools::scripted::{FixedApprover, LedgerTool};
use hermes_tools::{ApprovalAnswer, ApprovalMode, CallOutcome, PolicyConfig, Presence, Risk};
use serde_json::{Value, json};

use crate::bench::{Bench, deny};

fn off() -> PolicyConfig {
    PolicyConfig { mode: ApprovalMode::Off, ..PolicyConfig::default() }
}

fn run(command: &str) -> Value {
    json!({"command": command})
}

async fn denied(bench: &Bench, name: &str, arguments: Value) -> String {
    let report = bench.one(name, arguments).await;
    assert_eq!(report.outcome, CallOutcome::Denied, "{}", report.content);
    report.content
}

/// Commands that never run are judged on a tool that runs nothing: a fault of the policy must not cost a machine.
#[tokio::test]
async fn t27_no_mode_allows_what_never_runs() {
    for command in ["rm -rf /", "nice reboot", "/sbin/reboot", "command systemctl poweroff", "X=rm; $X -rf /"] {
        let mut bench = Bench::with(off(), FixedApprover::new(ApprovalAnswer::Always));
        let risk = Risk::Command { command: command.to_owned(), workdir: bench.work() };
        bench.add(LedgerTool::new("fake_terminal", bench.ledger.clone()).risk(risk));
        assert!(denied(&bench, "fake_terminal", json!({})).await.contains("never allowed"), "{command}");
        assert!(bench.approver.asked().is_empty() && bench.ledger.events().is_empty());
    }
}

#[tokio::test]
async fn a_tool_that_asks_by_itself_runs_only_when_it_is_allowed() {
    let ask = || Risk::Ask { why: "sends a postcard".to_owned() };
    let unattended = PolicyConfig { presence: Presence::Unattended, ..PolicyConfig::default() };
    for (config, answer, asked, runs) in [
        (PolicyConfig::default(), ApprovalAnswer::Session, 1, 2),
        (PolicyConfig::default(), deny(), 2, 0),
        (unattended, ApprovalAnswer::Always, 0, 0),
        (off(), deny(), 0, 2),
    ] {
        let mut bench = Bench::with(config, FixedApprover::new(answer));
        bench.add(LedgerTool::new("postcard", bench.ledger.clone()).risk(ask()));
        for _ in 0..2 {
            bench.one("postcard", json!({})).await;
        }
        assert_eq!((bench.approver.asked().len(), bench.ledger.effects().len()), (asked, runs));
    }
}

#[tokio::test]
async fn t28_deny_globs_hold_in_every_mode() {
    let config = PolicyConfig { deny: vec!["echo secret*".to_owned()], ..off() };
    let bench = Bench::with(config, FixedApprover::new(ApprovalAnswer::Once));
    let text = denied(&bench, "terminal", run("true && env A=1 echo secret thing")).await;
    assert!(text.contains("echo secret*"), "{text}");
    bench.ok("terminal", run("echo public")).await;
}

#[tokio::test]
async fn t29_a_background_command_meets_the_same_gate() {
    let bench = Bench::new();
    denied(&bench, "terminal", json!({"command": "rm -rf build", "background": true})).await;
    assert_eq!(bench.approver.asked().len(), 1);
    let config = PolicyConfig { deny: vec!["echo forbidden*".to_owned()], ..off() };
    let bench = Bench::with(config, FixedApprover::new(ApprovalAnswer::Once));
    denied(&bench, "terminal", json!({"command": "echo forbidden", "background": true})).await;
}

#[tokio::test]
async fn t29_what_is_written_to_a_background_shell_meets_the_same_gate() {
    let config = PolicyConfig { deny: vec!["echo forbidden*".to_owned()], ..off() };
    let bench = Bench::with(config, FixedApprover::new(deny()));
    let started = bench.ok("terminal", json!({"command": "sh", "background": true})).await;
    let id = started["session_id"].as_str().unwrap();
    let write = |action: &str, data: &str| json!({"action": action, "session_id": id, "data": data});
    denied(&bench, "process_manage", write("submit", "echo forbidden")).await;
    bench.ok("process_manage", write("write", "echo forb")).await;
    denied(&bench, "process_manage", write("submit", "idden")).await;
    bench.ok("process_manage", write("submit", "ing; X=forbidden")).await;
    denied(&bench, "process_manage", write("submit", "echo $X")).await;
    bench.context().session.shutdown().await;
}

#[tokio::test]
async fn t30_unattended_means_no_without_a_question() {
    let config = PolicyConfig { presence: Presence::Unattended, ..PolicyConfig::default() };
    let bench = Bench::with(config, FixedApprover::new(ApprovalAnswer::Once));
    let text = denied(&bench, "terminal", run("rm -rf build")).await;
    assert!(text.contains("nobody is there"), "{text}");
    assert!(bench.approver.asked().is_empty());
    bench.ok("terminal", run("echo hi")).await;
}

#[tokio::test(start_paused = true)]
async fn t33_silence_means_no() {
    let config = PolicyConfig { timeout_ms: 1_000, ..PolicyConfig::default() };
    let bench = Bench::with(config, FixedApprover::new(ApprovalAnswer::Once).thinking_ms(3_600_000));
    let text = denied(&bench, "terminal", run("rm -rf build")).await;
    assert!(text.contains("nobody answered in time"), "{text}");
    assert_eq!(bench.approver.asked()[0].timeout_ms, 1_000);
}

#[tokio::test]
async fn t34_session_allows_the_same_pattern_in_this_session_only() {
    let answers = [ApprovalAnswer::Session, deny()];
    let bench = Bench::with(PolicyConfig::default(), FixedApprover::sequence(answers));
    bench.ok("terminal", run("rm -rf a")).await;
    bench.ok("terminal", run("rm -rf b")).await;
    assert_eq!(bench.approver.asked().len(), 1);
    assert_eq!(bench.approver.asked()[0].pattern, "rm: recursive");
    denied(&bench, "terminal", run("git reset --hard")).await;
    let other = Bench::new();
    denied(&other, "terminal", run("rm -rf a")).await;
}

#[tokio::test]
async fn always_is_remembered_and_the_list_is_used() {
    let answers = [ApprovalAnswer::Always, deny()];
    let bench = Bench::with(PolicyConfig::default(), FixedApprover::sequence(answers));
    bench.ok("terminal", run("rm -rf a")).await;
    bench.ok("terminal", run("rm -rf b")).await;
    assert_eq!(bench.approver.remembered(), ["rm: recursive"]);
    let config = PolicyConfig { allow_list: bench.approver.remembered(), ..PolicyConfig::default() };
    let later = Bench::with(config, FixedApprover::new(deny()));
    later.ok("terminal", run("rm -rf c")).await;
    assert!(later.approver.asked().is_empty());
}

#[tokio::test]
async fn once_allows_one_call_and_a_reason_reaches_the_model() {
    let answers = [ApprovalAnswer::Once, ApprovalAnswer::Deny { reason: "use make clean".to_owned() }];
    let bench = Bench::with(PolicyConfig::default(), FixedApprover::sequence(answers));
    bench.ok("terminal", run("rm -rf a")).await;
    assert!(denied(&bench, "terminal", run("rm -rf a")).await.contains("use make clean"));
}

#[tokio::test]
async fn t37_protected_files_are_not_written_through_links() {
    let bench = Bench::with(off(), FixedApprover::new(ApprovalAnswer::Always));
    std::fs::create_dir(bench.user_home().join(".ssh")).unwrap();
    std::os::unix::fs::symlink(bench.user_home().join(".ssh/authorized_keys"), bench.work().join("notes")).unwrap();
    std::os::unix::fs::symlink(bench.user_home(), bench.work().join("h")).unwrap();
    for path in ["~/.ssh/authorized_keys", "notes", "h/.ssh/authorized_keys", "h/.netrc", "../home/.ssh/x"] {
        denied(&bench, "write_file", json!({"path": path, "content": "x"})).await;
        denied(&bench, "patch", json!({"path": path, "old_string": "a", "new_string": "b"})).await;
    }
    assert_eq!(std::fs::read_dir(bench.user_home().join(".ssh")).unwrap().count(), 0);
}

#[tokio::test]
async fn hermes_own_files_are_not_written_and_its_secrets_not_read() {
    let bench = Bench::with(off(), FixedApprover::new(ApprovalAnswer::Always));
    for name in ["config.yaml", ".env", "hermes.db", "run/x"] {
        denied(&bench, "write_file", json!({"path": bench.hermes_home().join(name), "content": "x"})).await;
    }
    std::fs::write(bench.hermes_home().join(".env"), "K=v").unwrap();
    denied(&bench, "read_file", json!({"path": bench.hermes_home().join(".env")})).await;
    std::fs::write(bench.work().join(".env"), "K=v").unwrap();
    denied(&bench, "read_file", json!({"path": ".env"})).await;
}

#[tokio::test]
async fn instruction_files_are_asked_about() {
    let bench = Bench::new();
    let text = denied(&bench, "write_file", json!({"path": "AGENTS.md", "content": "x"})).await;
    assert!(text.contains("did not allow"), "{text}");
    let asked = bench.approver.asked();
    assert!(asked[0].reasons[0].contains("instruction file"), "{asked:?}");
    assert!(!bench.work().join("AGENTS.md").exists());
}
