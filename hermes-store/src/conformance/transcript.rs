//! The transcript: recorded before it runs, one result for each call, the same bytes for ever.

use bytes::Bytes;
use serde_json::json;

use super::{
    World, call, call_id, completed, conv, end, is_conflict, is_invalid, is_not_found, message_id, ok, session, text,
    turn_id, usage,
};
use crate::{
    AdmissionOutcome, ApiContent, CallOutcome, CallResult, ClaimOutcome, JournalState, MessageKind, MessagePage,
    NewCall, NewMessage, PromptHash, ReplaySafety, Role, Round, SessionId, Sidecar, UsageDelta, View,
};

pub(super) async fn i12_a_recorded_round_is_seen_before_anything_runs(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let round = w.round(&fence, &turn, "round", vec![call("k1"), call("k2")]).await;
    assert!(round.calls().iter().all(|call| call.state == JournalState::Recorded));
    let rows = w.another().await.messages(&conv("c"), View::Model, MessagePage::default()).await.unwrap();
    let row = rows.last().unwrap();
    assert_eq!((row.id.as_str(), row.calls.len()), ("round", 2));
    assert_eq!((row.calls[1].call.as_str(), row.calls[1].provider_id.as_str()), ("k2", "provider-k2"));
    assert_eq!(row.calls[0].arguments, "{\"command\": \"ls\"}");
    assert!(round.settle(&[]).is_err(), "no result, no settled round");
}

pub(super) async fn i13_a_turn_with_an_open_call_cannot_end(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let round = w.round(&fence, &turn, "round", vec![call("k1"), call("k2")]).await;
    let one = w.store.settle_call(&fence, &turn, &call_id("k1"), ok("1")).await.unwrap();
    for release in [false, true] {
        assert!(is_invalid(w.store.settle_turn(&fence, &turn, completed(), release).await));
    }
    assert!(round.clone().settle(std::slice::from_ref(&one)).is_err());
    let two = w.store.settle_call(&fence, &turn, &call_id("k2"), ok("2")).await.unwrap();
    assert!(round.settle(&[one, two]).is_ok());
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
}

pub(super) async fn i13_s30_results_stand_in_call_order(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let invalid = CallResult { outcome: CallOutcome::Invalid, content: "no such tool".to_owned(), meta: None };
    let preset = NewCall { preset: Some(invalid), ..call("k2") };
    let round = w.round(&fence, &turn, "round", vec![call("k1"), preset, call("k3")]).await;
    assert_eq!(round.calls()[1].state, JournalState::Settled);
    let shown = |rows: Vec<crate::StoredMessage>| -> Vec<String> {
        rows.into_iter().filter_map(|row| row.answers).map(|call| call.call.as_str().to_owned()).collect()
    };
    assert_eq!(shown(w.rows("c", View::Model).await), ["k2"], "an open call has no row yet");
    assert_eq!(shown(w.rows("c", View::Display).await), ["k2"]);
    w.store.settle_call(&fence, &turn, &call_id("k3"), ok("3")).await.unwrap();
    w.store.append(&fence, &turn, vec![text("next", Role::Assistant, "next")], None).await.unwrap();
    w.store.settle_call(&fence, &turn, &call_id("k1"), ok("1")).await.unwrap();
    let rows = w.rows("c", View::Model).await;
    let ids: Vec<_> = rows.iter().skip(1).map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["round", "k1-result", "k2-result", "k3-result", "next"]);
    assert!(rows.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let outcomes: Vec<_> = rows[1].calls.iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Some(CallOutcome::Ok), Some(CallOutcome::Invalid), Some(CallOutcome::Ok)]);
    assert_eq!(rows[2].answers.as_ref().unwrap().provider_id, "provider-k1");
    // Exactly one each: the invalid call gets no second one, whoever ran it all the same.
    assert!(is_invalid(w.store.start_calls(&fence, &turn, &[call_id("k2")]).await));
    assert!(is_conflict(w.store.settle_call(&fence, &turn, &call_id("k2"), ok("ran")).await));
    assert_eq!(w.rows("c", View::Model).await, rows);
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, 6);
}

pub(super) async fn i14_the_journal_tells_what_began(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.round(&fence, &turn, "round", vec![call("k1"), call("k2")]).await;
    w.store.start_calls(&fence, &turn, &[call_id("k1")]).await.unwrap();
    w.store.start_calls(&fence, &turn, &[call_id("k1")]).await.unwrap();
    let states = |rows: &[crate::StoredMessage]| -> Vec<JournalState> {
        rows.last().unwrap().calls.iter().map(|call| call.state).collect()
    };
    assert_eq!(states(&w.rows("c", View::Model).await), [JournalState::Started, JournalState::Recorded]);
    w.store.settle_call(&fence, &turn, &call_id("k2"), ok("2")).await.unwrap();
    // One of the two may not begin: neither does.
    assert!(is_invalid(w.store.start_calls(&fence, &turn, &[call_id("k1"), call_id("k2")]).await));
    is_not_found(w.store.start_calls(&fence, &turn, &[call_id("none")]).await);
    is_not_found(w.store.settle_call(&fence, &turn, &call_id("none"), ok("x")).await);
}

pub(super) async fn i16_a_turn_ends_once(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.store.append(&fence, &turn, vec![text("answer", Role::Assistant, "hi")], None).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let failed = end("failed", AdmissionOutcome::Failed);
    assert!(is_invalid(w.store.settle_turn(&fence, &turn, failed, true).await));
    let record = w.store.turn(&turn).await.unwrap();
    assert_eq!((record.reason.as_deref(), record.api_calls), (Some("completed"), 1));
    assert_eq!(record.answer.unwrap().content, "hi");
    assert_eq!(w.claim("c", "a").await, ClaimOutcome::Empty);
    let lease = w.lease("c", "a").await;
    assert!(is_invalid(w.store.append(&lease, &turn, vec![text("late", Role::Assistant, "x")], None).await));
    assert!(is_invalid(w.store.requeue(&lease, &turn).await));
    assert!(is_invalid(w.store.lose_turn(&lease, &turn).await));
    assert!(is_invalid(w.store.adopt_turn(&lease, &turn).await));
    assert!(is_invalid(w.store.settle_turn(&lease, &turn_id("none"), completed(), true).await));
    is_not_found(w.store.turn(&turn_id("none")).await);
}

pub(super) async fn i17_s28_the_same_row_twice_is_one_row(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let row = || text("row", Role::User, "x");
    w.store.append(&fence, &turn, vec![row(), row()], Some(usage("a1"))).await.unwrap();
    w.store.append(&fence, &turn, vec![row()], Some(usage("a1"))).await.unwrap();
    assert_eq!(w.rows("c", View::Model).await.len(), 2);
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, 2);
    assert_eq!(w.store.usage(&conv("c")).await.unwrap()[0].requests, 1);
    let again = session("c", None, "c");
    w.store.open_session(&fence, &turn, again, vec![row()]).await.unwrap();
    assert_eq!(w.rows("c", View::Model).await.len(), 2);
    let other = crate::NewSession { model: "another".to_owned(), ..session("c", None, "c") };
    assert!(is_conflict(w.store.open_session(&fence, &turn, other, vec![]).await));
}

pub(super) async fn i17_other_bytes_under_the_same_id_are_refused(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.store.append(&fence, &turn, vec![text("row", Role::User, "x")], None).await.unwrap();
    w.round(&fence, &turn, "round", vec![call("k")]).await;
    let api = NewMessage { api_content: Some(ApiContent(Bytes::from_static(b"y"))), ..text("row", Role::User, "x") };
    let kind = NewMessage { kind: MessageKind::Hidden, ..text("row", Role::User, "x") };
    for other in [text("row", Role::User, "y"), text("row", Role::Assistant, "x"), api, kind] {
        assert!(is_conflict(w.store.append(&fence, &turn, vec![other], None).await));
    }
    assert!(is_conflict(w.store.append(&fence, &turn, vec![text("round", Role::Assistant, "")], None).await));
    // A place that waits for its result is nobody else's.
    assert!(is_conflict(w.store.append(&fence, &turn, vec![text("k-result", Role::User, "x")], None).await));
    for (id, calls) in [
        ("round", vec![NewCall { arguments: "{}".to_owned(), ..call("k") }]),
        ("round", vec![call("k"), call("k9")]),
        ("round2", vec![call("k")]),
        ("round3", vec![NewCall { result: message_id("row"), ..call("k8") }]),
        ("round4", vec![call("k7"), call("k7")]),
    ] {
        let round = Round::plan(turn.clone(), text(id, Role::Assistant, ""), calls, None);
        assert!(is_conflict(w.store.record_round(&fence, round).await));
    }
    w.store.settle_call(&fence, &turn, &call_id("k"), ok("1")).await.unwrap();
    w.store.settle_call(&fence, &turn, &call_id("k"), ok("1")).await.unwrap();
    assert!(is_conflict(w.store.settle_call(&fence, &turn, &call_id("k"), ok("2")).await));
    let failed = CallResult { outcome: CallOutcome::Failed, ..ok("1") };
    assert!(is_conflict(w.store.settle_call(&fence, &turn, &call_id("k"), failed).await));
    // The id of a row of another conversation.
    let (fence, turn, _) = w.begin("d", "a").await;
    assert!(is_conflict(w.store.append(&fence, &turn, vec![text("row", Role::User, "x")], None).await));
}

pub(super) async fn i17_a_round_may_be_repeated(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let plan = || {
        let calls = vec![call("k1"), NewCall { preset: Some(ok("preset")), ..call("k2") }];
        Round::plan(turn.clone(), text("round", Role::Assistant, "x"), calls, Some(usage("a1")))
    };
    w.store.record_round(&fence, plan()).await.unwrap();
    w.store.start_calls(&fence, &turn, &[call_id("k1")]).await.unwrap();
    let before = w.rows("c", View::Display).await;
    let again = w.another().await.record_round(&fence, plan()).await.unwrap();
    let states: Vec<_> = again.calls().iter().map(|call| call.state).collect();
    assert_eq!(states, [JournalState::Started, JournalState::Settled]);
    assert_eq!(w.rows("c", View::Display).await, before);
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, before.len() as u64);
    assert_eq!(w.store.usage(&conv("c")).await.unwrap()[0].requests, 1);
}

pub(super) async fn s29_a_refused_batch_leaves_nothing(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.store.append(&fence, &turn, vec![text("row", Role::User, "x")], None).await.unwrap();
    let batch = vec![text("new", Role::User, "new"), text("row", Role::User, "other")];
    assert!(is_conflict(w.store.append(&fence, &turn, batch, Some(usage("a1"))).await));
    let tool = vec![text("new", Role::User, "new"), text("tool", Role::Tool, "forged")];
    assert!(is_invalid(w.store.append(&fence, &turn, tool, None).await));
    let round = Round::plan(turn.clone(), text("r", Role::Assistant, ""), vec![], None);
    assert!(is_invalid(w.store.record_round(&fence, round).await));
    assert_eq!(w.rows("c", View::Model).await.len(), 2);
    assert_eq!(w.store.usage(&conv("c")).await.unwrap(), []);
    // The id of the rolled-back row is free.
    w.store.append(&fence, &turn, vec![text("new", Role::User, "second try")], None).await.unwrap();
}

pub(super) async fn a_session_may_be_changed_on_purpose_and_keeps_its_rows(w: &World) {
    w.admit(super::input("c", "first", "x")).await;
    let (fence, turn, _) = w.start("c", "a").await;
    let rows = vec![text("m1", Role::User, "hi")];
    w.store.open_session(&fence, &turn, session("c", None, "c"), rows).await.unwrap();
    let changed = crate::NewSession {
        model: "other".to_owned(),
        tools: crate::PromptSnapshot::new(&b"[1]"[..]),
        ..session("c", None, "c")
    };
    w.store.change_session(&fence, &turn, changed.clone()).await.unwrap();
    let stored = w.store.session(&changed.id).await.unwrap();
    assert_eq!((stored.model.as_str(), &stored.tools), ("other", changed.tools.hash()));
    assert_eq!(w.store.prompt(&stored.tools).await.unwrap(), changed.tools);
    assert_eq!(w.rows("c", View::Model).await.len(), 1);
    let elsewhere = session("c", None, "not-the-tip");
    assert!(matches!(w.store.change_session(&fence, &turn, elsewhere).await, Err(crate::StoreError::Conflict { .. })));
}

pub(super) async fn i20_a_session_has_one_child(w: &World) {
    w.admit(super::input("c", "first", "x")).await;
    let (fence, turn, _) = w.start("c", "a").await;
    assert!(is_invalid(w.store.append(&fence, &turn, vec![text("row", Role::User, "x")], None).await));
    assert_eq!(w.rows("c", View::Model).await, []);
    assert!(is_invalid(w.store.open_session(&fence, &turn, session("c", None, "other"), vec![]).await));
    assert!(is_conflict(w.store.open_session(&fence, &turn, session("c", Some("x"), "c"), vec![]).await));
    let rows = vec![text("u", Role::User, "hello")];
    w.store.open_session(&fence, &turn, session("c", None, "c"), rows).await.unwrap();
    // A child is opened by a rotation only.
    assert!(is_invalid(w.store.open_session(&fence, &turn, session("c", Some("c"), "c2"), vec![]).await));
    assert!(is_conflict(w.store.open_session(&fence, &turn, session("c", Some("x"), "c2"), vec![]).await));
    w.rotate(&fence, &turn, "c2", 0).await;
    assert!(is_conflict(w.store.open_session(&fence, &turn, session("c", Some("c"), "c3"), vec![]).await));
    let parent = w.store.session(&SessionId::parse("c").unwrap()).await.unwrap();
    assert_eq!(parent.end_reason.as_deref(), Some("compression"));
    let tip = w.store.conversation(&conv("c")).await.unwrap().tip.unwrap();
    assert_eq!(tip.as_str(), "c2");
    assert_eq!(w.store.turn(&turn).await.unwrap().session, Some(tip));
    let texts = |rows: Vec<crate::StoredMessage>| rows.into_iter().map(|row| row.content).collect::<Vec<_>>();
    assert_eq!(texts(w.rows("c", View::Model).await), ["sum"]);
    assert_eq!(texts(w.rows("c", View::Display).await), ["hello", "sum"]);
    is_not_found(w.store.session(&SessionId::parse("c3").unwrap()).await);
}

pub(super) async fn i19_bytes_come_back_as_they_were(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let signed = Bytes::from_static(&[0, 0xff, 0xfe, b'{', b'"']);
    let row = NewMessage {
        kind: MessageKind::Partial,
        api_content: Some(ApiContent(Bytes::from_static(b"wire \xf0\x28 bytes"))),
        reasoning: Some("because".to_owned()),
        sidecar: Some(Sidecar { issuer: "anthropic".to_owned(), bytes: signed.clone() }),
        finish: Some("stop".to_owned()),
        meta: Some(json!({"z": 1, "a": [null, 1.5, "x"]})),
        ..text("row", Role::Assistant, "text")
    };
    w.store.append(&fence, &turn, vec![row.clone()], None).await.unwrap();
    let call =
        NewCall { arguments: "{ \"b\":1,\n\"a\" : 1e2 ".to_owned(), replay: ReplaySafety::Idempotent, ..call("k") };
    let round = NewMessage { id: message_id("round"), sidecar: row.sidecar.clone(), ..row.clone() };
    let plan = Round::plan(turn.clone(), round, vec![call.clone()], None);
    w.store.record_round(&fence, plan).await.unwrap();
    let rows = w.another().await.messages(&conv("c"), View::Model, MessagePage::default()).await.unwrap();
    for stored in &rows[1..] {
        assert_eq!(stored.api_content, row.api_content);
        assert_eq!((&stored.sidecar, &stored.reasoning, &stored.finish), (&row.sidecar, &row.reasoning, &row.finish));
        assert_eq!(stored.meta.as_ref().unwrap().to_string(), row.meta.as_ref().unwrap().to_string());
        assert_eq!((stored.kind, &stored.content), (MessageKind::Partial, &row.content));
    }
    assert_eq!((&rows[2].calls[0].arguments, rows[2].calls[0].replay), (&call.arguments, call.replay));
    let opened = w.store.session(&SessionId::parse("c").unwrap()).await.unwrap();
    let prompt = w.another().await.prompt(&opened.prompt).await.unwrap();
    assert_eq!(prompt.bytes().as_ref(), b"prompt of c");
    assert_eq!(w.store.prompt(&opened.tools).await.unwrap().bytes().as_ref(), b"[]");
    is_not_found(w.store.prompt(&PromptHash::of(b"none")).await);
}

pub(super) async fn s40_usage_is_counted_once(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.store.append(&fence, &turn, vec![text("a", Role::Assistant, "a")], Some(usage("a1"))).await.unwrap();
    let plan = Round::plan(turn.clone(), text("b", Role::Assistant, ""), vec![call("k")], Some(usage("a2")));
    w.store.record_round(&fence, plan).await.unwrap();
    for _ in 0..2 {
        let unknown = UsageDelta { known: false, input: 0, output: 0, ..usage("a3") };
        w.store.count_usage(&fence, unknown).await.unwrap();
        w.store.count_usage(&fence, UsageDelta { task: "title".to_owned(), ..usage("a4") }).await.unwrap();
    }
    let totals = w.store.usage(&conv("c")).await.unwrap();
    assert_eq!(totals.len(), 2);
    assert_eq!((totals[0].task.as_str(), totals[0].requests, totals[0].unknown), ("", 3, 1));
    assert_eq!((totals[0].input, totals[0].output, totals[0].cache_read), (20, 10, 9));
    assert_eq!((totals[1].task.as_str(), totals[1].requests, totals[1].reasoning), ("title", 1, 1));
    is_not_found(w.store.usage(&conv("none")).await);
}

pub(super) async fn pages_and_views_show_what_they_say(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let rows: Vec<_> = (0..9).map(|number| text(&format!("m{number}"), Role::User, "x")).collect();
    w.store.append(&fence, &turn, rows, None).await.unwrap();
    let nudge = NewMessage { kind: MessageKind::Hidden, ..text("nudge", Role::User, "go on") };
    w.store.append(&fence, &turn, vec![nudge], None).await.unwrap();
    assert_eq!(w.rows("c", View::Model).await.len(), 11);
    assert_eq!(w.rows("c", View::Display).await.len(), 10);
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, 10);
    let page = |after_seq, limit, from_end| {
        let page = MessagePage { after_seq, limit, from_end };
        async move { w.store.messages(&conv("c"), View::Display, page).await.unwrap() }
    };
    let first = page(0, 4, false).await;
    let second = page(first[3].seq, 100, false).await;
    assert_eq!((first.len(), second.len()), (4, 6));
    assert_eq!(second[0].id.as_str(), "m3");
    let last = page(0, 2, true).await;
    assert_eq!(last.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["m7", "m8"]);
    assert_eq!(page(last[1].seq, 5, true).await, []);
    is_not_found(w.store.messages(&conv("none"), View::Model, MessagePage::default()).await);
}
