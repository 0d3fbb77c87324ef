//! Several processes on one home.

use hermes_tests::home::{Home, finish, lines};
use hermes_tests::server::ModelServer;
use serde_json::Value;

#[tokio::test]
async fn i03_two_processes_submit_to_one_session_and_both_are_answered_in_order() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let first = home.run(&["-z", "hello"]).await.unwrap();
    assert_eq!(first.code, Some(0), "{first:?}");
    let prompts = ["RUN_TOOLS 5 CMD{echo one-{i} >> log.txt}CMD", "RUN_TOOLS 5 CMD{echo two-{i} >> log.txt}CMD"];
    let children: Vec<_> = prompts.iter().map(|prompt| home.spawn(&["-c", "-z", prompt]).unwrap()).collect();
    for child in children {
        let run = finish(child).await.unwrap();
        assert_eq!((run.code, run.stdout.trim()), (Some(0), "done"), "{run:?}");
    }
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
    let log = lines(&home.file("log.txt"));
    assert_eq!(log.len(), 10, "{log:?}");
    let who: Vec<&str> = log.iter().map(|line| &line[..3]).collect();
    assert!(who[..5].iter().all(|w| *w == who[0]) && who[5..].iter().all(|w| *w == who[5]), "interleaved: {log:?}");
    // The last request holds both turns, one after the other.
    let body: Value = serde_json::from_slice(&server.seen().last().unwrap().body).unwrap();
    let roles: Vec<&str> = body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "user").count(), 3, "{roles:?}");
}

#[tokio::test]
async fn many_processes_begin_sessions_of_their_own_at_once() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let children: Vec<_> = (0..6).map(|n| home.spawn(&["-z", &format!("RUN_TOOLS 2 #{n}")]).unwrap()).collect();
    for child in children {
        let run = finish(child).await.unwrap();
        assert_eq!((run.code, run.stdout.trim()), (Some(0), "done"), "{run:?}");
    }
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_in_order_with_130() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let child = home.spawn(&["-z", "CMD{echo begun >> begun.txt; sleep 60}CMD"]).unwrap();
    while lines(&home.file("begun.txt")).is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let pid = child.id().unwrap().to_string();
    assert!(tokio::process::Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    let run = finish(child).await.unwrap();
    assert_eq!(run.code, Some(130), "{run:?}");
    let next = home.run(&["-c", "-z", "hello"]).await.unwrap();
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(server.pair_errors().is_empty(), "{:?}", server.pair_errors());
    assert!(String::from_utf8_lossy(&server.seen().last().unwrap().body).contains("not finished"));
}

#[tokio::test]
async fn i14_after_kill_9_a_running_command_does_not_go_on_behind_the_next_owner() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    let forever = "CMD{while :; do echo x >> ticks.txt; sleep 0.05; done}CMD";
    let mut child = home.spawn(&["-z", forever]).unwrap();
    while lines(&home.file("ticks.txt")).is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    child.kill().await.unwrap();
    let next = home.run(&["-c", "-z", "hello"]).await.unwrap();
    assert_eq!(next.code, Some(0), "{next:?}");
    let now = lines(&home.file("ticks.txt")).len();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(lines(&home.file("ticks.txt")).len(), now, "the command goes on");
    assert!(String::from_utf8_lossy(&server.seen().last().unwrap().body).contains("Outcome unknown"));
}
