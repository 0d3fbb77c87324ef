//! Bundles: out of a store, into one.

use std::collections::VecDeque;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;

use super::{World, call, completed, conv, input, message_id, ok, text, turn_id};
use crate::transfer::bundle::{
    BundleAnswer, BundleCall, BundleConversation, BundleEnd, BundlePart, BundlePrompt, BundleRow, BundleSession,
    BundleSidecar, BundleSource, Exact, ImportKey, ImportOutcome, RowCounts,
};
use crate::{
    ApiContent, CallId, CallOutcome, JournalState, MessageKind, NewMessage, PromptSnapshot, ReplaySafety, Role,
    RowState, SessionId, Sidecar, StoreError, TitleSource, UsageTotals, View,
};

/// Parts that are there, with an error behind them if one is wanted.
struct Parts(VecDeque<BundlePart>, Option<StoreError>);

#[async_trait]
impl BundleSource for Parts {
    async fn next(&mut self) -> Result<Option<BundlePart>, StoreError> {
        match (self.0.pop_front(), self.1.take_if(|_| true)) {
            (Some(part), error) => {
                self.1 = error;
                Ok(Some(part))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }
}

fn key(id: &str, fingerprint: &str) -> ImportKey {
    ImportKey { source: "elsewhere".to_owned(), id: id.to_owned(), fingerprint: fingerprint.to_owned() }
}

async fn import(w: &World, parts: Vec<BundlePart>, fingerprint: &str) -> ImportOutcome {
    let id = match &parts[0] {
        BundlePart::Conversation(new) => new.id.to_string(),
        other => panic!("{other:?}"),
    };
    w.store.import(&key(&id, fingerprint), &mut Parts(parts.into(), None)).await.unwrap()
}

async fn export(w: &World, name: &str) -> Vec<BundlePart> {
    let (mut parts, mut cursor) = (Vec::new(), None);
    loop {
        let page = w.store.export(&conv(name), cursor).await.unwrap();
        parts.extend(page.parts);
        cursor = page.next;
        if cursor.is_none() {
            return parts;
        }
    }
}

fn head(name: &str) -> BundleConversation {
    BundleConversation {
        id: conv(name),
        profile: "default".to_owned(),
        source: "telegram".to_owned(),
        title: Some("Old times #2".to_owned()),
        title_source: Some(TitleSource::Model),
        preview: None,
        archived: true,
        pinned: false,
        hidden: false,
        created_at_ms: 1_600_000_000_000,
        last_activity_ms: 1_600_000_100_000,
        aliases: vec![format!("{name} of old")],
        origin: Some(json!({"edge": "branch", "parent": "x"})),
    }
}

fn row(name: &str, session: &str, role: Role, state: RowState) -> BundleRow {
    BundleRow {
        id: message_id(name),
        session: SessionId::parse(session).unwrap(),
        turn: turn_id(&format!("turn-of-{session}")),
        role,
        kind: MessageKind::Normal,
        state,
        copy_of: None,
        content: format!("text of {name}"),
        api_content: None,
        reasoning: None,
        sidecar: None,
        finish: None,
        calls: vec![],
        answers: None,
        meta: None,
        created_at_ms: 1_600_000_000_500,
    }
}

fn bundle_call(name: &str) -> BundleCall {
    BundleCall {
        id: CallId::parse(name).unwrap(),
        result: message_id(&format!("{name}-result")),
        provider_id: format!("provider-{name}"),
        name: "terminal".to_owned(),
        arguments: "{\"a\":  1}".to_owned(),
        replay: ReplaySafety::Once,
        open: None,
    }
}

/// Two sessions, a round, a compacted, an undone and a copied row, prompts, usage.
fn bundle(name: &str) -> Vec<BundlePart> {
    let tip = format!("{name}.2");
    let prompts = [PromptSnapshot::new(&b"be good"[..]), PromptSnapshot::new(&b"[]"[..])];
    let session = |id: &str, ended: Option<i64>| {
        BundlePart::Session(BundleSession {
            id: SessionId::parse(id).unwrap(),
            provider: "p".to_owned(),
            model: "m".to_owned(),
            cwd: Some("/tmp".to_owned()),
            prompt: prompts[0].hash().clone(),
            tools: prompts[1].hash().clone(),
            started_at_ms: 1_600_000_000_000,
            ended_at_ms: ended,
            end_reason: ended.map(|_| "compression".to_owned()),
        })
    };
    let of = |n: &str| format!("{name}-{n}");
    let mut round = row(&of("2"), name, Role::Assistant, RowState::Active);
    round.calls = vec![bundle_call(&of("call"))];
    round.sidecar = Some(BundleSidecar { issuer: "p".to_owned(), bytes: Exact(Bytes::from_static(b"\xff\x00")) });
    let mut result = row(&of("call-result"), name, Role::Tool, RowState::Active);
    result.answers = Some(BundleAnswer { call: CallId::parse(&of("call")).unwrap(), outcome: CallOutcome::Failed });
    let mut first = row(&of("1"), name, Role::User, RowState::Compacted);
    first.api_content = Some(Exact(Bytes::from_static(b"sent\0so")));
    let mut copy = row(&of("6"), &tip, Role::User, RowState::Active);
    copy.copy_of = Some(message_id(&of("3")));
    let mut summary = row(&of("5"), &tip, Role::User, RowState::Active);
    summary.kind = MessageKind::Summary;
    let rows = [
        first,
        round,
        result,
        row(&of("3"), name, Role::User, RowState::Active),
        row(&of("4"), name, Role::Assistant, RowState::Superseded),
        summary,
        copy,
    ];
    let mut parts = vec![BundlePart::Conversation(Box::new(head(name)))];
    parts.extend(prompts.iter().map(|prompt| {
        BundlePart::Prompt(BundlePrompt { hash: prompt.hash().clone(), bytes: Exact(prompt.bytes().clone()) })
    }));
    parts.extend([session(name, Some(1_600_000_050_000)), session(&tip, None)]);
    parts.extend(rows.map(|row| BundlePart::Row(Box::new(row))));
    parts.push(BundlePart::Usage(UsageTotals {
        provider: "p".to_owned(),
        model: "m".to_owned(),
        requests: 7,
        unknown: 2,
        input: 100,
        output: 50,
        ..UsageTotals::default()
    }));
    parts.push(BundlePart::End(BundleEnd { rows: 7 }));
    parts
}

pub(super) async fn s50_an_import_brings_everything_as_it_was(w: &World) {
    let outcome = import(w, bundle("c"), "1").await;
    let rows = RowCounts { active: 5, compacted: 1, superseded: 1 };
    assert_eq!(outcome, ImportOutcome::Imported { conversation: conv("c"), rows, added: 0 });
    let summary = w.store.conversation(&conv("c")).await.unwrap();
    assert_eq!(summary.title.as_deref(), Some("Old times #2"));
    assert_eq!((summary.messages, summary.preview.as_deref()), (5, Some("text of c-1")));
    assert_eq!((summary.created_at_ms, summary.last_activity_ms), (1_600_000_000_000, 1_600_000_100_000));
    assert_eq!(summary.tip.as_ref().map(SessionId::as_str), Some("c.2"));
    let model = w.rows("c", View::Model).await;
    assert_eq!(model.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["c-5", "c-6"]);
    let shown = w.rows("c", View::Display).await;
    let shown: Vec<_> = shown.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(shown, ["c-1", "c-2", "c-call-result", "c-3", "c-5"]);
    let usage = w.store.usage(&conv("c")).await.unwrap();
    assert_eq!((usage[0].requests, usage[0].unknown, usage[0].input), (7, 2, 100));
    let tip = w.store.session(&SessionId::parse("c.2").unwrap()).await.unwrap();
    assert_eq!(w.store.prompt(&tip.prompt).await.unwrap().bytes().as_ref(), b"be good");
}

pub(super) async fn i17_an_import_is_done_once(w: &World) {
    import(w, bundle("c"), "1").await;
    let before = export(w, "c").await;
    let again = import(w, bundle("c"), "1").await;
    assert_eq!(again, ImportOutcome::Same { conversation: conv("c") });
    assert_eq!(import(w, bundle("c"), "2").await, ImportOutcome::Changed { conversation: conv("c") });
    assert_eq!(export(w, "c").await, before);
}

pub(super) async fn an_import_that_fails_leaves_nothing(w: &World) {
    let broken = |change: &dyn Fn(&mut Vec<BundlePart>)| {
        let mut parts = bundle("c");
        change(&mut parts);
        parts
    };
    let bad = [
        broken(&|parts| parts.truncate(9)),
        broken(&|parts| parts.swap(5, 6)),
        broken(&|parts| drop(parts.remove(1))),
        broken(&|parts| drop(parts.remove(3))),
        broken(&|parts| {
            parts.pop();
            parts.push(BundlePart::End(BundleEnd { rows: 8 }));
        }),
    ];
    for (number, parts) in bad.into_iter().enumerate() {
        let refused = w.store.import(&key("c", "1"), &mut Parts(parts.into(), None)).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{number}: {refused:?}");
        assert!(w.store.conversation(&conv("c")).await.is_err(), "{number}");
    }
    let failing = Some(StoreError::Retryable { detail: "a disk".to_owned() });
    let mut parts = bundle("c");
    parts.truncate(8);
    let refused = w.store.import(&key("c", "1"), &mut Parts(parts.into(), failing)).await;
    assert!(matches!(refused, Err(StoreError::Retryable { .. })), "{refused:?}");
    assert_eq!(w.store.conversation_named("c.2").await.unwrap(), None);
    assert!(matches!(import(w, bundle("c"), "1").await, ImportOutcome::Imported { .. }));
}

pub(super) async fn an_import_touches_nothing_of_another_key(w: &World) {
    w.begin("c", "a").await;
    let before = export(w, "c").await;
    assert!(matches!(import(w, bundle("c"), "1").await, ImportOutcome::Taken { .. }));
    assert_eq!(export(w, "c").await, before);
    // Another conversation whose rows, session or call are those of one that is here.
    import(w, bundle("d"), "1").await;
    let here = export(w, "d").await;
    let mut parts = bundle("e");
    let clash = parts.iter().position(|part| matches!(part, BundlePart::Row(_))).unwrap();
    if let BundlePart::Row(row) = &mut parts[clash] {
        row.id = message_id("d-1");
    }
    assert!(matches!(import(w, parts, "1").await, ImportOutcome::Taken { .. }));
    assert!(w.store.conversation(&conv("e")).await.is_err());
    assert_eq!(export(w, "d").await, here);
}

/// The Python program mends what it sends and leaves what it stored. Here what comes in is mended once, in the store, so that
/// every request is made of whole rounds.
pub(super) async fn i14_e16_a_call_without_a_result_gets_one_that_says_so(w: &World) {
    let mut parts = bundle("c");
    let is_result = |part: &BundlePart| matches!(part, BundlePart::Row(row) if row.role == Role::Tool);
    parts.remove(parts.iter().position(is_result).unwrap());
    for part in &mut parts {
        match part {
            BundlePart::Row(row) if !row.calls.is_empty() => {
                let open = BundleCall { open: Some(JournalState::Recorded), ..bundle_call("c-other") };
                row.calls.push(open);
            }
            BundlePart::End(end) => end.rows = 6,
            _ => {}
        }
    }
    let outcome = import(w, parts, "1").await;
    assert!(matches!(outcome, ImportOutcome::Imported { added: 2, .. }), "{outcome:?}");
    let rows = w.rows("c", View::Display).await;
    let results: Vec<_> =
        rows.iter().filter_map(|row| row.answers.as_ref()).map(|call| (call.call.as_str(), call.outcome)).collect();
    let want = [("c-call", Some(CallOutcome::OutcomeUnknown)), ("c-other", Some(CallOutcome::Skipped))];
    assert_eq!(results, want);
}

pub(super) async fn i08_what_is_imported_again_after_a_deletion_goes_on_counting(w: &World) {
    import(w, bundle("c"), "1").await;
    let before = w.rows("c", View::Display).await.last().unwrap().seq;
    w.admit(input("c", "r", "x")).await;
    let (fence, turn, receipt) = w.start("c", "a").await;
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let fence = w.lease("c", "a").await;
    w.store.delete_conversation(&fence).await.unwrap();
    assert_eq!(w.store.conversation_named("c of old").await.unwrap(), None);
    assert!(matches!(import(w, bundle("c"), "1").await, ImportOutcome::Imported { .. }));
    assert!(w.rows("c", View::Display).await[0].seq > before);
    w.admit(input("c", "r2", "x")).await;
    let (again, _, started) = w.start("c", "a").await;
    assert!(again.token() > fence.token() && started.generation > receipt.generation);
    assert!(started.seq > receipt.seq);
}

pub(super) async fn i19_what_is_exported_is_what_was_imported(w: &World) {
    import(w, bundle("c"), "1").await;
    let mut want = bundle("c");
    if let BundlePart::Conversation(head) = &mut want[0] {
        head.preview = Some("text of c-1".to_owned());
    }
    assert_eq!(export(w, "c").await, want);
    // And what was written here comes back from a bundle, byte for byte.
    let (fence, turn, _) = w.begin("d", "a").await;
    w.round(&fence, &turn, "d-round", vec![call("d-1"), call("d-2")]).await;
    for name in ["d-2", "d-1"] {
        w.store.settle_call(&fence, &turn, &CallId::parse(name).unwrap(), ok(name)).await.unwrap();
    }
    let answer = NewMessage {
        api_content: Some(ApiContent(Bytes::from_static(b"\xfe"))),
        sidecar: Some(Sidecar { issuer: "i".to_owned(), bytes: Bytes::from_static(b"{ }") }),
        finish: Some("stop".to_owned()),
        meta: Some(json!({"a": [1, 2.5, null]})),
        ..text("d-answer", Role::Assistant, "done \0 \u{10FFFD}")
    };
    w.store.append(&fence, &turn, vec![answer], Some(super::usage("u"))).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let native = export(w, "d").await;
    let fence = w.lease("d", "a").await;
    w.store.delete_conversation(&fence).await.unwrap();
    assert!(matches!(import(w, native.clone(), "1").await, ImportOutcome::Imported { added: 0, .. }));
    assert_eq!(export(w, "d").await, native);
}

pub(super) async fn s36_an_old_id_finds_the_conversation(w: &World) {
    import(w, bundle("c"), "1").await;
    for name in ["c", "c.2", "c of old"] {
        assert_eq!(w.store.conversation_named(name).await.unwrap(), Some(conv("c")), "{name}");
    }
    assert_eq!(w.store.conversation_named("other").await.unwrap(), None);
    import(w, bundle("b"), "1").await;
    assert_eq!(w.store.export_list(None, 10).await.unwrap(), [conv("b"), conv("c")]);
    assert_eq!(w.store.export_list(Some(&conv("b")), 10).await.unwrap(), [conv("c")]);
}

pub(super) async fn an_imported_conversation_goes_on(w: &World) {
    import(w, bundle("c"), "1").await;
    w.admit(input("c", "r", "x")).await;
    let (fence, turn, _) = w.start("c", "a").await;
    w.store.append(&fence, &turn, vec![text("new", Role::User, "go on")], None).await.unwrap();
    w.round(&fence, &turn, "round", vec![call("k")]).await;
    w.store.settle_call(&fence, &turn, &CallId::parse("k").unwrap(), ok("fine")).await.unwrap();
    w.store.append(&fence, &turn, vec![text("answer", Role::Assistant, "done")], None).await.unwrap();
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    let model = w.rows("c", View::Model).await;
    let ids: Vec<_> = model.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["c-5", "c-6", "new", "round", "k-result", "answer"]);
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, 9);
    // What has gone on here is not overwritten.
    assert_eq!(import(w, bundle("c"), "2").await, ImportOutcome::Changed { conversation: conv("c") });
}

pub(super) async fn i25_a_long_conversation_is_exported_page_by_page(w: &World) {
    let mut parts = bundle("c");
    let end = parts.len() - 2;
    let many = crate::limits::EXPORT_PAGE_ROWS + 20;
    parts.splice(
        end..end,
        (0..many).map(|n| BundlePart::Row(Box::new(row(&format!("m{n}"), "c.2", Role::User, RowState::Active)))),
    );
    if let Some(BundlePart::End(end)) = parts.last_mut() {
        end.rows += many as u64;
    }
    import(w, parts.clone(), "1").await;
    let first = w.store.export(&conv("c"), None).await.unwrap();
    let cursor = first.next.unwrap();
    // Rows that come later are not part of it.
    w.admit(input("c", "r", "x")).await;
    let (fence, turn, _) = w.start("c", "a").await;
    w.store.append(&fence, &turn, vec![text("late", Role::User, "late")], None).await.unwrap();
    let rest = w.store.export(&conv("c"), Some(cursor)).await.unwrap();
    assert_eq!(rest.next, None);
    let all: Vec<_> = first.parts.into_iter().chain(rest.parts).skip(1).collect();
    assert_eq!(all, parts.split_off(1));
}
