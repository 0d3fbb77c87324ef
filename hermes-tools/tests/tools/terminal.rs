//! Commands and background processes.

use std::time::{Duration, Instant};

use hermes_tools::{CallOutcome, CallProgress};
use serde_json::{Value, json};

use crate::bench::{Bench, Witness, eventually, is_alive};

fn run(command: &str) -> Value {
    json!({"command": command})
}

fn pid_in(path: &std::path::Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[tokio::test]
async fn output_exit_code_and_both_streams_are_reported() {
    let bench = Bench::new();
    let done = bench.ok("terminal", run("echo out; echo err >&2")).await;
    assert_eq!((done["output"].as_str(), done["exit_code"].as_i64()), (Some("out\nerr\n"), Some(0)));
    let report = bench.one("terminal", run("echo x; exit 3")).await;
    assert_eq!(report.outcome, CallOutcome::Failed);
    assert!(report.content.contains("\"exit_code\":3"), "{}", report.content);
    let report = bench.one("terminal", run("echo a | grep b")).await;
    assert!(report.content.contains("no line matched"), "{}", report.content);
    let done = bench.ok("terminal", run("printf '\\033[31mred\\033[0m\\000'; cat")).await;
    assert_eq!(done["output"], "red␀", "no colours, no NUL, empty input");
}

#[tokio::test]
async fn t41_the_working_directory_carries_over() {
    let bench = Bench::new();
    let sub = bench.work().join("a b");
    std::fs::create_dir(&sub).unwrap();
    let pwd =
        async |arguments: Value| bench.ok("terminal", arguments).await["output"].as_str().unwrap().trim().to_owned();
    bench.ok("terminal", run("cd 'a b'")).await;
    assert_eq!(pwd(run("pwd")).await, sub.to_str().unwrap());
    assert_eq!(pwd(json!({"command": "pwd", "workdir": "/"})).await, "/");
    assert_eq!(pwd(json!({"command": "cd /usr; pwd", "workdir": "/"})).await, "/usr");
    assert_eq!(pwd(run("pwd")).await, sub.to_str().unwrap());
    bench.one("terminal", run("cd ..; exit 4")).await;
    assert_eq!(pwd(run("pwd")).await, bench.work().to_str().unwrap());
    std::fs::write(sub.join("f.txt"), "x").unwrap();
    bench.ok("terminal", run("cd 'a b'")).await;
    bench.ok("read_file", json!({"path": "f.txt"})).await;
    std::fs::remove_dir_all(&sub).unwrap();
    // Said, and no end of all later commands.
    let told = pwd(run("pwd")).await;
    assert!(told.contains("is gone") && told.ends_with(bench.work().to_str().unwrap()), "{told}");
}

#[tokio::test]
async fn i27_names_that_are_not_utf8_are_no_obstacle() {
    let bench = Bench::new();
    bench.ok("terminal", run("mkdir $'d\\xff'; echo needle > $'d\\xff/f\\xfe.txt'; cd $'d\\xff'")).await;
    let done = bench.ok("terminal", run("ls; pwd | od -c | head -3")).await;
    assert!(done["output"].as_str().unwrap().contains("377"), "{done}");
    for arguments in [
        json!({"pattern": "needle"}),
        json!({"pattern": "needle", "output_mode": "count"}),
        json!({"pattern": "*.txt", "target": "files"}),
    ] {
        let found = bench.ok("search_files", arguments).await;
        assert!(found.to_string().contains('\u{fffd}'), "{found}");
    }
}

#[tokio::test]
async fn t40_secrets_are_not_in_the_environment() {
    let bench = Bench::new();
    let done = bench.ok("terminal", run("env")).await;
    let output = done["output"].as_str().unwrap();
    assert!(
        output.contains("HOME=") && !output.contains("OPENAI_API_KEY") && !output.contains("sk-secret"),
        "{output}"
    );
}

#[tokio::test]
async fn t42_a_command_whose_time_runs_out_is_gone_with_its_group() {
    let bench = Bench::new();
    let begin = Instant::now();
    let command = "echo begun; sleep 100 & echo $! > child; (trap '' TERM; sleep 100) & echo $! > stubborn; sleep 100";
    let report = bench.one("terminal", json!({"command": command, "timeout": 1})).await;
    assert_eq!(report.outcome, CallOutcome::TimedOut);
    assert!(report.content.contains("\"exit_code\":124") && report.content.contains("begun"), "{}", report.content);
    assert!(begin.elapsed() < Duration::from_secs(60), "it did not wait for the command");
    for name in ["child", "stubborn"] {
        let pid = pid_in(&bench.work().join(name)).unwrap();
        eventually("the process is gone", || !is_alive(pid)).await;
    }
}

#[tokio::test]
async fn t42_a_command_that_never_stops_printing_is_ended_too() {
    let bench = Bench::new();
    let report = bench.one("terminal", json!({"command": "yes", "timeout": 1})).await;
    assert_eq!(report.outcome, CallOutcome::TimedOut);
    let report = bench.one("terminal", json!({"command": "yes & echo $! > pid; exit 7", "timeout": 60})).await;
    assert!(report.content.contains("\"exit_code\":7"));
    let pid = pid_in(&bench.work().join("pid")).unwrap();
    eventually("its writer is gone with the pipe", || !is_alive(pid)).await;
}

#[tokio::test]
async fn t43_a_process_that_holds_the_output_is_not_waited_for() {
    let bench = Bench::new();
    let begin = Instant::now();
    let done = bench.ok("terminal", run("(sleep 60 & echo $! > pid) ; echo hi")).await;
    assert_eq!(done["output"], "hi\n");
    assert!(begin.elapsed() < Duration::from_secs(30));
    let pid = pid_in(&bench.work().join("pid")).unwrap();
    std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
}

#[tokio::test]
async fn t44_a_long_output_is_cut_in_the_middle_and_whole_in_a_file() {
    let bench = Bench::new();
    let report = bench.one("terminal", run("echo BEGIN; head -c 1000000 /dev/zero | tr '\\0' a; echo; echo END")).await;
    let content: Value = serde_json::from_str(&report.content).unwrap();
    let output = content["output"].as_str().unwrap();
    assert!(output.starts_with("BEGIN\n") && output.ends_with("END\n"));
    assert!(output.len() < 50_400, "{}", output.len());
    let path = content["full_output"].as_str().unwrap();
    let whole = std::fs::read_to_string(path).unwrap();
    assert_eq!(whole, format!("BEGIN\n{}\nEND\n", "a".repeat(1_000_000)));
    assert!(path.starts_with(bench.hermes_home().to_str().unwrap()));
}

#[tokio::test]
async fn c2_a_stopped_command_is_really_gone() {
    let bench = Bench::new();
    let cancel = bench.context().cancel.clone();
    let pid_file = bench.work().join("pid");
    let stop = async {
        eventually("the command runs", || pid_in(&pid_file).is_some()).await;
        cancel.cancel();
    };
    let witness = Witness::default();
    let calls = [("terminal", run("echo before; sleep 100 & echo $! > pid; wait")), ("terminal", run("touch never"))];
    let (result, ()) = tokio::join!(bench.run(&calls, &witness), stop);
    result.unwrap();
    assert_eq!(witness.outcomes(), [CallOutcome::Interrupted, CallOutcome::Skipped]);
    assert!(witness.report(0).content.contains("may have had a part of its effect"));
    assert!(witness.report(0).content.contains("before"));
    let pid = pid_in(&pid_file).unwrap();
    eventually("the process is gone", || !is_alive(pid)).await;
    assert!(!bench.work().join("never").exists());
}

#[tokio::test]
async fn a_dropped_round_leaves_no_process() {
    let bench = Bench::new();
    let pid_file = bench.work().join("pid");
    let calls = [("terminal", run("sleep 100 & echo $! > pid; wait"))];
    let witness = Witness::default();
    tokio::select! {
        result = bench.run(&calls, &witness) => panic!("it ended: {result:?}"),
        () = eventually("the command runs", || pid_in(&pid_file).is_some()) => {}
    }
    let pid = pid_in(&pid_file).unwrap();
    eventually("the process is gone", || !is_alive(pid)).await;
}

#[tokio::test]
async fn output_is_shown_while_the_command_runs() {
    let bench = Bench::new();
    let witness = Witness::default();
    bench.run(&[("terminal", run("echo one; echo two"))], &witness).await.unwrap();
    let shown = witness.shown();
    assert_eq!(shown[0], (0, CallProgress::Started { label: "echo one; echo two".to_owned() }));
    let text: String = shown
        .iter()
        .filter_map(|(_, shown)| if let CallProgress::Output { text } = shown { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(text, "one\ntwo\n");
}

#[tokio::test]
async fn what_would_be_left_behind_is_refused() {
    let bench = Bench::new();
    for command in ["sleep 60 &", "nohup sleep 60"] {
        let report = bench.one("terminal", run(command)).await;
        assert_eq!(report.outcome, CallOutcome::Failed);
        assert!(report.content.contains("background=true"), "{}", report.content);
    }
}

async fn manage(bench: &Bench, id: &str, action: &str, more: Value) -> Value {
    let mut arguments = json!({"action": action, "session_id": id});
    if let (Some(arguments), Value::Object(more)) = (arguments.as_object_mut(), more) {
        arguments.extend(more);
    }
    bench.ok("process_manage", arguments).await
}

#[tokio::test]
async fn a_background_process_is_polled_fed_and_ended() {
    let bench = Bench::new();
    let command = "while read line; do echo got $line; done; echo closed; exit 5";
    let started = bench.ok("terminal", json!({"command": command, "background": true})).await;
    let id = started["session_id"].as_str().unwrap().to_owned();
    manage(&bench, &id, "submit", json!({"data": "a"})).await;
    manage(&bench, &id, "write", json!({"data": "b\n"})).await;
    manage(&bench, &id, "close", json!({})).await;
    let ended = manage(&bench, &id, "wait", json!({"timeout": 60})).await;
    assert_eq!((ended["status"].as_str(), ended["exit_code"].as_i64()), (Some("exited"), Some(5)));
    assert_eq!(ended["output"], "got a\ngot b\nclosed\n");
    assert_eq!(manage(&bench, &id, "poll", json!({})).await["output"], "");
    assert_eq!(manage(&bench, "proc", "log", json!({"offset": 1, "limit": 1})).await["output"], "got b");
    let list = bench.ok("process_manage", json!({"action": "list"})).await;
    assert_eq!(list["processes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_background_process_is_killed_with_its_children() {
    let bench = Bench::new();
    let started = bench.ok("terminal", json!({"command": "sleep 100 & echo $! > pid; wait", "background": true})).await;
    let file = bench.work().join("pid");
    eventually("the process runs", || pid_in(&file).is_some()).await;
    let killed = manage(&bench, started["session_id"].as_str().unwrap(), "kill", json!({})).await;
    assert_eq!(killed["status"], "exited");
    let pid = pid_in(&file).unwrap();
    eventually("the child is gone", || !is_alive(pid)).await;
}

#[tokio::test]
async fn t45_background_processes_end_with_the_session() {
    for orderly in [true, false] {
        let bench = Bench::new();
        bench.ok("terminal", json!({"command": "sleep 100 & echo $! > pid; wait", "background": true})).await;
        let file = bench.work().join("pid");
        eventually("the process runs", || pid_in(&file).is_some()).await;
        let pid = pid_in(&file).unwrap();
        if orderly {
            bench.context().session.shutdown().await;
            let report = bench.one("terminal", json!({"command": "sleep 1", "background": true})).await;
            assert_eq!(report.outcome, CallOutcome::Failed);
        }
        let dir = bench.dir;
        drop(bench.cx);
        eventually("the process is gone", || !is_alive(pid)).await;
        drop(dir);
    }
}

#[tokio::test]
async fn a_longer_time_than_the_foreground_allows_runs_in_the_background() {
    let bench = Bench::new();
    let started = bench.ok("terminal", json!({"command": "echo hi", "timeout": 5_000})).await;
    assert_eq!(started["status"], "running");
}

#[tokio::test]
async fn t42_what_a_command_moved_into_a_session_of_its_own_is_ended_with_it() {
    let bench = Bench::new();
    // Hidden in a script: written in the command itself it is refused.
    std::fs::write(bench.work().join("detach.sh"), "setsid bash -c 'echo $$ > pid; exec sleep 600' &\n").unwrap();
    let command = "bash detach.sh; while [ ! -s pid ]; do sleep 0.01; done; sleep 600";
    let report = bench.one("terminal", json!({"command": command, "timeout": 2})).await;
    assert_eq!(report.outcome, CallOutcome::TimedOut, "{}", report.content);
    let pid = pid_in(&bench.work().join("pid")).unwrap();
    eventually("the end of the other session", || !is_alive(pid)).await;
}
