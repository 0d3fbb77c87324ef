//! Pruning against a scripted gateway.

use super::*;
use crate::args::SessionArgs;
use crate::exit::Exit;
use crate::render::lists::tests::summary;
use crate::terminal::Terminal;
use crate::testing::{Scripted, now};

/// A gateway whose only unpinned session was last used at this time, and whose rules apply to one session.
fn gateway(last_activity_ms: i64) -> (Scripted, Link) {
    Scripted::link(move |request, _| match request {
        Request::SessionList(params) => {
            assert!(params.archived, "an archived session is one that could stay, too");
            let mut pinned = summary("c0", None);
            pinned.flags.pinned = true;
            pinned.last_activity_ms = i64::MAX;
            let mut plain = summary("c1", None);
            plain.last_activity_ms = last_activity_ms;
            now(Response::Sessions(vec![pinned, plain]))
        }
        Request::SessionPrune(_) => {
            let report = r#"{"is_due":true,"has_more":false,"done":[
                {"conversation":"c1","step":"removed","title":"Old","messages":2,"last_activity_ms":0}]}"#;
            now(Response::Pruned(serde_json::from_str(report).unwrap()))
        }
        other => panic!("{other:?}"),
    })
}

/// What was said, and how often something was really pruned.
async fn pruned(wish: Wish, last_activity_ms: i64) -> (Result<(), Fault>, String, usize) {
    let (script, mut link) = gateway(last_activity_ms);
    let context = Context { session: SessionArgs::default(), json: false, profile: None, terminal: Terminal::none() };
    let mut out = Vec::new();
    let done = prune(wish, &mut link, &context, &mut out).await;
    let is_real = |request: &&Request| matches!(request, Request::SessionPrune(params) if !params.dry_run);
    (done, String::from_utf8(out).unwrap(), script.requests().iter().filter(is_real).count())
}

const WISH: Wish = Wish { dry_run: false, days: Some(30), yes: false };

#[tokio::test]
async fn what_would_leave_nothing_needs_yes_and_tells_the_count_first() {
    for (wish, last) in [(WISH, 0), (Wish { days: Some(0), ..WISH }, i64::MAX), (Wish { days: None, ..WISH }, 0)] {
        let (refused, text, times) = pruned(wish, last).await;
        let fault = refused.unwrap_err();
        assert_eq!((fault.exit(), text.as_str(), times), (Exit::Usage, "", 0), "{wish:?}");
        let told = fault.message().unwrap();
        assert!(told.contains("1 would be removed for good") && told.contains("--yes"), "{told}");
        let (done, text, times) = pruned(Wish { yes: true, ..wish }, last).await;
        done.unwrap();
        assert_eq!((text.lines().count(), times), (2, 1), "{text}");
    }
}

#[tokio::test]
async fn nobody_is_asked_when_another_session_stays() {
    let (done, text, times) = pruned(WISH, i64::MAX).await;
    done.unwrap();
    assert_eq!((text.as_str(), times), ("c1 removed (2 rows) Old\n1 sessions were removed, ended or archived.\n", 1));
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_never_asks() {
    let (done, text, times) = pruned(Wish { dry_run: true, days: Some(0), ..WISH }, 0).await;
    done.unwrap();
    assert!(text.ends_with("1 sessions would be removed, ended or archived.\n") && times == 0, "{text}");
}
