//! Changes of history: rotation, compaction, rewind, branch, and the lock of compressions.

use super::{
    TTL_MS, World, call, call_id, completed, conv, input, is_conflict, is_fenced, is_invalid, is_not_found, message_id,
    new_conversation, ok, session, text, turn_id,
};
use crate::limits::{COMPRESSION_COOLDOWN_MAX_MS, COMPRESSION_LOCK_TTL_MS};
use crate::{
    ChangeId, ChangeKind, ChangeStatus, Compaction, CompressionLock, Fence, LockOutcome, MessageKind, NewBranch,
    NewMessage, NewSession, PromptSnapshot, Rewind, Role, Rotation, RowState, SessionId, Sidecar, StoreError,
    StoredMessage, TakeLock, TitleSource, TurnId, View, ViewMark, ViewRow, nth_last_user_turn,
};

fn change_id(name: &str) -> ChangeId {
    ChangeId::parse(name).unwrap()
}

fn summary(id: &str) -> ViewRow {
    ViewRow::New(NewMessage { kind: MessageKind::Summary, ..text(id, Role::User, "sum") })
}

fn carry(id: &crate::MessageId) -> ViewRow {
    ViewRow::Carry(id.clone())
}

fn is_stale<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(StoreError::Stale { .. }) => true,
        other => panic!("expected Stale, got {other:?}"),
    }
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(StoreError::LockLost) => true,
        other => panic!("expected LockLost, got {other:?}"),
    }
}

fn contents(rows: &[StoredMessage]) -> Vec<&str> {
    rows.iter().map(|row| row.content.as_str()).collect()
}

impl World {
    async fn tip(&self, conversation: &str) -> SessionId {
        self.store.conversation(&conv(conversation)).await.unwrap().tip.unwrap()
    }

    pub(super) async fn mark(&self, conversation: &str) -> ViewMark {
        ViewMark::of(self.tip(conversation).await, &self.rows(conversation, View::Model).await)
    }

    async fn take(&self, fence: &Fence, holder: &str) -> LockOutcome {
        let session = self.tip(fence.conversation().as_str()).await;
        let take = TakeLock { session, holder: holder.to_owned(), ttl_ms: COMPRESSION_LOCK_TTL_MS, force: false };
        self.store.take_compression_lock(fence, take).await.unwrap()
    }

    pub(super) async fn lock(&self, fence: &Fence, holder: &str) -> CompressionLock {
        match self.take(fence, holder).await {
            LockOutcome::Taken(lock) => lock,
            other => panic!("no lock: {other:?}"),
        }
    }

    /// A turn with a question, a round of two calls, and an answer.
    async fn talk(&self, fence: &Fence, turn: &TurnId, name: &str) {
        let id = |part: &str| format!("{name}-{part}");
        let question = text(&id("q"), Role::User, &format!("a long question of {name}"));
        self.store.append(fence, turn, vec![question], None).await.unwrap();
        let (first, second) = (call(&id("k1")), call(&id("k2")));
        self.round(fence, turn, &id("round"), vec![first.clone(), second.clone()]).await;
        for call in [&second.call, &first.call] {
            self.store.settle_call(fence, turn, call, ok(&format!("result of {call}"))).await.unwrap();
        }
        let answer = text(&id("a"), Role::Assistant, &format!("answer of {name}"));
        self.store.append(fence, turn, vec![answer], None).await.unwrap();
    }

    fn rotation(&self, turn: &TurnId, mark: ViewMark, name: &str, rows: Vec<ViewRow>) -> Rotation {
        let child = session("c", Some(mark.session.as_str()), name);
        Rotation { id: change_id(&format!("change-{name}")), turn: turn.clone(), mark, child, rows }
    }

    /// Rotates with a summary and the last `keep` rows.
    pub(super) async fn rotate(&self, fence: &Fence, turn: &TurnId, name: &str, keep: usize) -> Rotation {
        let lock = self.lock(fence, name).await;
        let rows = self.rows(fence.conversation().as_str(), View::Model).await;
        let mark = ViewMark::of(lock.session().clone(), &rows);
        let mut new = vec![summary(&format!("sum-{name}"))];
        new.extend(rows[rows.len() - keep..].iter().map(|row| carry(&row.id)));
        let rotation = self.rotation(turn, mark, name, new);
        self.store.rotate(fence, &lock, rotation.clone()).await.unwrap();
        rotation
    }

    /// Everything that a refused change must leave as it was.
    pub(super) async fn everything(&self, conversation: &str) -> String {
        let id = conv(conversation);
        let summary = self.store.conversation(&id).await.unwrap();
        let session = self.store.session(summary.tip.as_ref().unwrap()).await.unwrap();
        format!(
            "{summary:?} {session:?} {:?} {:?} {:?} {:?}",
            self.rows(conversation, View::Model).await,
            self.rows(conversation, View::Display).await,
            self.store.changes(&id).await.unwrap(),
            self.store.wait_for_change(&id, -1, 0).await.unwrap(),
        )
    }
}

pub(super) async fn i20_a_rotation_moves_the_tip_and_keeps_the_parent(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.store.set_title(&fence, "My title", TitleSource::User).await.unwrap();
    w.talk(&fence, &turn, "one").await;
    w.talk(&fence, &turn, "two").await;
    let before = w.rows("c", View::Display).await;
    let shown = w.store.conversation(&conv("c")).await.unwrap().messages;
    w.clock.advance(5);
    let rotation = w.rotate(&fence, &turn, "c2", 4).await;
    let after = w.store.conversation(&conv("c")).await.unwrap();
    assert_eq!((after.tip.as_ref().unwrap().as_str(), after.title.as_deref()), ("c2", Some("My title")));
    assert_eq!((after.messages, after.preview.as_deref()), (shown + 1, Some("hello")));
    let parent = w.store.session(&SessionId::parse("c").unwrap()).await.unwrap();
    assert_eq!((parent.end_reason.as_deref(), parent.ended_at_ms), (Some("compression"), Some(w.clock_ms())));
    assert_eq!(w.store.turn(&turn).await.unwrap().session, after.tip);
    assert_eq!(w.store.prompt(rotation.child.prompt.hash()).await.unwrap(), rotation.child.prompt);

    let view = w.rows("c", View::Model).await;
    let tail = ["", "result of two-k1", "result of two-k2", "answer of two"];
    assert_eq!(contents(&view), [&["sum"], &tail[..]].concat());
    for (copy, first) in view[1..].iter().zip(&before[before.len() - 4..]) {
        assert_eq!(copy.copy_of.as_ref(), Some(&first.id));
        assert_eq!((&copy.calls, &copy.answers, &copy.turn), (&first.calls, &first.answers, &first.turn));
        assert_eq!((copy.created_at_ms, copy.state), (first.created_at_ms, RowState::Active));
    }
    assert_eq!(view[1].calls.len(), 2);
    // The parent's bytes stay where they were, for people.
    let display = w.rows("c", View::Display).await;
    assert_eq!(contents(&display[..before.len()]), contents(&before));
    assert!(display[..before.len()].iter().all(|row| row.state == RowState::Compacted));
    assert_eq!(contents(&display[before.len()..]), ["sum"]);
    // The conversation goes on.
    w.talk(&fence, &turn, "three").await;
    w.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    assert_eq!(w.store.turn(&turn).await.unwrap().answer.unwrap().id, message_id("three-a"));
    assert_eq!(w.rows("c", View::Model).await.len(), 10);
}

pub(super) async fn i17_a_rotation_may_be_repeated(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    let lock = w.lock(&fence, "me").await;
    let mark = w.mark("c").await;
    let rotation = w.rotation(&turn, mark, "c2", vec![summary("s"), carry(&message_id("one-a"))]);
    let done = w.store.rotate(&fence, &lock, rotation.clone()).await.unwrap();
    assert_eq!((done.kind, done.status, done.rows), (ChangeKind::Rotation, ChangeStatus::Applied, 5));
    w.store.append(&fence, &turn, vec![text("later", Role::User, "later")], None).await.unwrap();
    assert_eq!(w.another().await.rotate(&fence, &lock, rotation.clone()).await.unwrap(), done);
    assert_eq!(contents(&w.rows("c", View::Model).await), ["sum", "answer of one", "later"]);
    let other = Rotation { rows: vec![summary("s2")], ..rotation.clone() };
    assert!(is_conflict(w.store.rotate(&fence, &lock, other).await));
    // A second child of the same parent.
    let second = Rotation { id: change_id("x"), child: session("c", Some("c"), "c3"), ..rotation };
    assert!(is_lost(w.store.rotate(&fence, &lock, second).await));
    is_not_found(w.store.session(&SessionId::parse("c3").unwrap()).await);
    assert_eq!(w.store.changes(&conv("c")).await.unwrap(), [done]);
    is_not_found(w.store.changes(&conv("none")).await);
}

pub(super) async fn s32_a_refused_compression_changes_nothing(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    w.talk(&fence, &turn, "two").await;
    let lock = w.lock(&fence, "me").await;
    let mark = w.mark("c").await;
    let before = w.everything("c").await;
    let c = |id: &str| carry(&message_id(id));
    let fill = ViewRow::New(text("fill", Role::User, &"x".repeat(1_000)));
    let no = |rows: Vec<ViewRow>| w.rotation(&turn, mark.clone(), "c2", rows);
    let invalid = [
        no(vec![c("two-a")]),
        no(vec![summary("s"), c("none")]),
        no(vec![summary("s"), c("two-a"), c("two-q")]),
        no(vec![summary("s"), c("two-a"), c("two-a")]),
        // A round and its results are kept together, in order.
        no(vec![summary("s"), c("two-round")]),
        no(vec![summary("s"), c("two-round"), c("two-k1-result")]),
        no(vec![c("two-round"), c("two-k1-result"), summary("s"), c("two-k2-result")]),
        no(vec![summary("s"), c("two-k1-result")]),
        // Not smaller.
        no(vec![summary("s"), fill]),
    ];
    for rotation in invalid {
        assert!(is_invalid(w.store.rotate(&fence, &lock, rotation.clone()).await), "{:?}", rotation.rows);
        let Rotation { id, turn, mark, rows, .. } = rotation;
        let compaction = Compaction { id, turn, mark, session: None, rows };
        assert!(is_invalid(w.store.compact(&fence, &lock, compaction).await));
    }
    let good = no(vec![summary("s"), c("two-a")]);
    let stale = [
        ViewMark { last_seq: mark.last_seq - 1, ..mark.clone() },
        ViewMark { rows: mark.rows - 1, ..mark.clone() },
        ViewMark { session: SessionId::parse("other").unwrap(), ..mark.clone() },
    ];
    for mark in stale {
        assert!(is_stale(w.store.rotate(&fence, &lock, Rotation { mark, ..good.clone() }).await));
    }
    let elsewhere = Rotation { child: session("c", Some("x"), "c2"), ..good.clone() };
    assert!(is_stale(w.store.rotate(&fence, &lock, elsewhere).await));
    let known = Rotation { rows: vec![summary("one-q")], ..good.clone() };
    assert!(is_conflict(w.store.rotate(&fence, &lock, known).await));
    let not_running = Rotation { turn: turn_id("no-turn"), ..good.clone() };
    assert!(is_invalid(w.store.rotate(&fence, &lock, not_running).await));
    assert_eq!(w.everything("c").await, before);
    // An open call waits for its result.
    w.round(&fence, &turn, "open", vec![call("open-k")]).await;
    let mark = w.mark("c").await;
    let with_open = Rotation { mark: mark.clone(), rows: vec![summary("s"), c("open")], ..good.clone() };
    assert!(is_invalid(w.store.rotate(&fence, &lock, with_open).await));
    // Once it is there, it arrived after the mark, and comes along.
    w.store.settle_call(&fence, &turn, &call_id("open-k"), ok("done")).await.unwrap();
    let closed = Rotation { mark, rows: vec![summary("s"), c("open")], ..good };
    w.store.rotate(&fence, &lock, closed).await.unwrap();
    assert_eq!(contents(&w.rows("c", View::Model).await), ["sum", "", "done"]);
}

pub(super) async fn s33_e41_rows_that_arrive_meanwhile_are_carried_once(w: &World) {
    for (name, in_place) in [("c", false), ("d", true)] {
        let (fence, turn, _) = w.begin(name, "a").await;
        w.talk(&fence, &turn, &format!("{name}-one")).await;
        let lock = w.lock(&fence, "me").await;
        let mark = w.mark(name).await;
        w.talk(&fence, &turn, &format!("{name}-late")).await;
        let before = w.rows(name, View::Display).await;
        let rows = vec![summary(&format!("{name}-sum")), carry(&message_id(&format!("{name}-one-a")))];
        let id = change_id(&format!("{name}-change"));
        let done = if in_place {
            let new = NewSession { prompt: PromptSnapshot::new(&b"new prompt"[..]), ..session(name, None, name) };
            let compaction = Compaction { id, turn: turn.clone(), mark, session: Some(new), rows };
            w.store.compact(&fence, &lock, compaction.clone()).await.unwrap();
            w.store.compact(&fence, &lock, compaction).await.unwrap()
        } else {
            let child = session(name, Some(name), "child");
            w.store.rotate(&fence, &lock, Rotation { id, turn: turn.clone(), mark, child, rows }).await.unwrap()
        };
        let view = w.rows(name, View::Model).await;
        let late = &before[before.len() - 5..];
        assert_eq!(contents(&view[..2]), ["sum", &format!("answer of {name}-one")]);
        assert_eq!(contents(&view[2..]), contents(late));
        assert_eq!(view.last().unwrap().seq, done.last_seq);
        let display = w.rows(name, View::Display).await;
        assert_eq!(contents(&display), [contents(&before), vec!["sum"]].concat());
        let tip = w.store.session(&w.tip(name).await).await.unwrap();
        let prompt = w.store.prompt(&tip.prompt).await.unwrap();
        assert_eq!(prompt.bytes().starts_with(b"new prompt"), in_place);
        w.talk(&fence, &turn, &format!("{name}-next")).await;
        assert_eq!(w.rows(name, View::Model).await.len(), view.len() + 5);
    }
}

pub(super) async fn s34_one_of_two_compressors_commits(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    let first = w.lock(&fence, "first").await;
    assert!(matches!(w.take(&fence, "second").await, LockOutcome::Held { holder, .. } if holder == "first"));
    assert_eq!(w.lock(&fence, "first").await, first, "the same holder again");
    w.store.renew_compression_lock(&fence, &first, 1_000).await.unwrap();
    // It slept: the second one takes over.
    w.clock.advance(1_001);
    let second = w.lock(&fence, "second").await;
    assert!(second.token() > first.token());
    let mark = w.mark("c").await;
    let rotation = w.rotation(&turn, mark, "c2", vec![summary("s"), carry(&message_id("one-a"))]);
    let before = w.everything("c").await;
    assert!(is_lost(w.store.rotate(&fence, &first, rotation.clone()).await));
    assert!(is_lost(w.store.renew_compression_lock(&fence, &first, 1_000).await));
    assert!(is_lost(w.store.fail_compression(&fence, &first, 1_000, "late").await));
    assert_eq!(w.everything("c").await, before, "the loser changes nothing");
    w.store.release_compression_lock(&fence, &first).await.unwrap();
    // Expired, and nobody took it: it holds.
    w.clock.advance(i64::try_from(COMPRESSION_LOCK_TTL_MS).unwrap() + 1);
    w.store.rotate(&fence, &second, rotation.clone()).await.unwrap();
    let again = Rotation { id: change_id("again"), child: session("c", Some("c"), "c3"), ..rotation };
    assert!(is_lost(w.store.rotate(&fence, &second, again).await));
    // The new session has a lock of its own, and the old one is no tip.
    assert_eq!(w.lock(&fence, "third").await.session().as_str(), "c2");
    let old = TakeLock { session: first.session().clone(), holder: "x".to_owned(), ttl_ms: 1_000, force: false };
    assert!(is_stale(w.store.take_compression_lock(&fence, old).await));
}

pub(super) async fn s34_a_lock_ends_with_its_lease(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    let lock = w.lock(&fence, "me").await;
    w.store.release(&fence).await.unwrap();
    let crate::ClaimOutcome::Recover { fence: next, open } = w.claim("c", "b").await else { panic!("no recovery") };
    let mark = w.mark("c").await;
    let rotation = w.rotation(&open.id, mark, "c2", vec![summary("s")]);
    assert!(is_fenced(w.store.rotate(&fence, &lock, rotation.clone()).await));
    assert!(is_lost(w.store.rotate(&next, &lock, rotation.clone()).await), "a lock of another lease");
    let taken = w.lock(&next, "next").await;
    assert!(taken.token() > lock.token());
    w.store.rotate(&next, &taken, rotation).await.unwrap();
    assert!(is_fenced(w.store.renew_compression_lock(&fence, &lock, TTL_MS).await));
    assert!(is_fenced(w.store.release_compression_lock(&fence, &lock).await));
}

pub(super) async fn a_failed_compression_is_waited_out(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    let lock = w.lock(&fence, "me").await;
    assert!(!lock.is_after_wait());
    let until = w.store.fail_compression(&fence, &lock, 60_000, "no\nanswer").await.unwrap();
    assert_eq!(until, w.clock_ms() + 60_000);
    let cooling = LockOutcome::Cooling { until_ms: until, error: Some("noanswer".to_owned()) };
    assert_eq!(w.take(&fence, "next").await, cooling);
    let force = TakeLock { session: w.tip("c").await, holder: "person".to_owned(), ttl_ms: 1_000, force: true };
    let LockOutcome::Taken(forced) = w.store.take_compression_lock(&fence, force).await.unwrap() else {
        panic!("a person need not wait")
    };
    // The longer wait stays, and none is longer than the limit.
    assert_eq!(w.store.fail_compression(&fence, &forced, 1, "again").await.unwrap(), until);
    w.clock.advance(60_000);
    let lock = w.lock(&fence, "later").await;
    assert!(forced.is_after_wait() && lock.is_after_wait(), "who comes behind a wait knows that there was one");
    let until = w.store.fail_compression(&fence, &lock, u64::MAX, "x").await.unwrap();
    assert_eq!(until, w.clock_ms() + i64::try_from(COMPRESSION_COOLDOWN_MAX_MS).unwrap());
    // A clock that went back lengthens no wait.
    w.clock.advance(-50_000_000);
    let longest = w.clock_ms() + i64::try_from(COMPRESSION_COOLDOWN_MAX_MS).unwrap();
    assert!(matches!(w.take(&fence, "y").await, LockOutcome::Cooling { until_ms, .. } if until_ms == longest));
    w.clock.advance(60_000_000);
    let lock = w.lock(&fence, "well").await;
    let mark = w.mark("c").await;
    let compaction = Compaction { id: change_id("x"), turn, mark, session: None, rows: vec![summary("s")] };
    w.store.compact(&fence, &lock, compaction).await.unwrap();
    w.lock(&fence, "after").await;
}

pub(super) async fn s35_after_many_compressions_each_row_is_seen_once(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    let mut session = "c".to_owned();
    for number in 0..4 {
        w.talk(&fence, &turn, &format!("needle{number}")).await;
        if number % 2 == 0 {
            session = format!("c{number}");
            w.rotate(&fence, &turn, &session, 5).await;
            continue;
        }
        let lock = w.lock(&fence, "me").await;
        let rows = w.rows("c", View::Model).await;
        let mark = ViewMark::of(SessionId::parse(&session).unwrap(), &rows);
        let mut new = vec![summary(&format!("s{number}"))];
        let tail = &rows[rows.len() - 5..];
        new.push(carry(&tail[0].id));
        new.push(carry(&tail[1].id));
        // An old result, shortened for the model.
        new.push(ViewRow::Shorten { row: tail[2].id.clone(), content: "cut".to_owned() });
        new.extend(tail[3..].iter().map(|row| carry(&row.id)));
        let id = change_id(&format!("in-place-{number}"));
        let compaction = Compaction { id, turn: turn.clone(), mark, session: None, rows: new };
        w.store.compact(&fence, &lock, compaction).await.unwrap();
        let view = w.rows("c", View::Model).await;
        assert_eq!(view[3].content, "cut");
        assert_eq!(view[3].sidecar, None);
        assert_eq!(view[2].calls.len(), 2);
    }
    let display = w.rows("c", View::Display).await;
    let shown: Vec<_> = display.iter().filter(|row| row.kind != MessageKind::Summary).collect();
    assert_eq!(shown.len(), 1 + 5 * 5);
    assert!(shown.iter().all(|row| row.copy_of.is_none() && row.content != "cut"));
    assert_eq!(display.len() - shown.len(), 4);
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, display.len() as u64);
    for number in 0..4 {
        let hits = w.store.search(crate::SearchQuery::text(format!("question of needle{number}"))).await.unwrap().hits;
        assert_eq!(hits.iter().map(|hit| hit.message.as_str()).collect::<Vec<_>>(), [format!("needle{number}-q")]);
    }
    // A copy of a copy knows the first row.
    let view = w.rows("c", View::Model).await;
    assert_eq!(view[1].copy_of, Some(message_id("needle3-q")));
}

pub(super) async fn a_shortened_copy_goes_without_what_was_beside_its_text(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    let sidecar = Sidecar { issuer: "pictures".to_owned(), bytes: vec![7; 500].into() };
    for (id, role) in [("q1", Role::User), ("a1", Role::Assistant), ("q2", Role::User), ("a2", Role::Assistant)] {
        let row = NewMessage { sidecar: Some(sidecar.clone()), ..NewMessage::text(message_id(id), role, id) };
        w.store.append(&fence, &turn, vec![row], None).await.unwrap();
    }
    let lock = w.lock(&fence, "me").await;
    let mark = w.mark("c").await;
    let cut = ViewRow::Shorten { row: message_id("q1"), content: "q1 without".to_owned() };
    let rows = vec![summary("s"), cut, carry(&message_id("a1")), carry(&message_id("q2")), carry(&message_id("a2"))];
    let compaction = Compaction { id: change_id("x"), turn, mark, session: None, rows };
    w.store.compact(&fence, &lock, compaction).await.unwrap();
    let view = w.rows("c", View::Model).await;
    let kept: Vec<_> = view.iter().map(|row| row.sidecar.clone()).collect();
    assert_eq!(kept, [None, None, Some(sidecar.clone()), Some(sidecar.clone()), Some(sidecar.clone())]);
    assert_eq!((view[1].content.as_str(), view[1].copy_of.clone()), ("q1 without", Some(message_id("q1"))));
    let shown = w.rows("c", View::Display).await;
    assert!(shown.iter().any(|row| row.id == message_id("q1") && row.sidecar == Some(sidecar.clone())));
}

pub(super) async fn s38_a_rewind_is_taken_back_whole(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    w.rotate(&fence, &turn, "c2", 5).await;
    w.talk(&fence, &turn, "two").await;
    let refused = Rewind { id: change_id("r"), mark: w.mark("c").await, from: message_id("two-q") };
    assert!(is_invalid(w.store.rewind(&fence, refused).await), "a turn is open");
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    let before = (w.rows("c", View::Model).await, w.rows("c", View::Display).await);
    let count = w.store.conversation(&conv("c")).await.unwrap().messages;
    let view = &before.0;
    assert_eq!(nth_last_user_turn(view, 1).unwrap().id, message_id("two-q"));
    let from = nth_last_user_turn(view, 2).unwrap();
    assert_eq!(from.copy_of, Some(message_id("one-q")), "undone beyond the place where it was carried");
    assert_eq!(nth_last_user_turn(view, 0), None);
    assert_eq!(nth_last_user_turn(view, 3), None);
    let mark = w.mark("c").await;
    let rewind = Rewind { id: change_id("r"), mark: mark.clone(), from: from.id.clone() };
    for (change, from) in [("x", "two-k1-result"), ("x", "none"), ("x", "sum-c2")] {
        let bad = Rewind { id: change_id(change), mark: mark.clone(), from: message_id(from) };
        assert!(is_invalid(w.store.rewind(&fence, bad).await), "{from}");
    }
    let old = Rewind { mark: ViewMark { rows: mark.rows - 1, ..mark.clone() }, ..rewind.clone() };
    assert!(is_stale(w.store.rewind(&fence, old).await));
    let done = w.store.rewind(&fence, rewind.clone()).await.unwrap();
    assert_eq!((done.rows, done.status), (10, ChangeStatus::Applied));
    assert_eq!(contents(&w.rows("c", View::Model).await), ["sum"]);
    assert_eq!(contents(&w.rows("c", View::Display).await), ["hello", "sum"]);
    let after = w.store.conversation(&conv("c")).await.unwrap();
    assert_eq!((after.messages, after.preview.as_deref()), (count - 10, Some("hello")));
    assert_eq!(w.store.search(crate::SearchQuery::text("question")).await.unwrap().hits, []);
    assert_eq!(w.store.rewind(&fence, rewind.clone()).await.unwrap(), done, "repeated");
    let other = Rewind { from: message_id("two-q"), ..rewind };
    assert!(is_conflict(w.store.rewind(&fence, other).await));

    is_not_found(w.store.restore(&fence, &change_id("none")).await);
    assert!(is_invalid(w.store.restore(&fence, &change_id("change-c2")).await));
    for _ in 0..2 {
        let back = w.store.restore(&fence, &done.id).await.unwrap();
        assert_eq!(back.status, ChangeStatus::Restored);
        assert_eq!((w.rows("c", View::Model).await, w.rows("c", View::Display).await), before);
        assert_eq!(w.store.conversation(&conv("c")).await.unwrap().messages, count);
    }
    assert_eq!(w.store.search(crate::SearchQuery::text("question")).await.unwrap().hits.len(), 2);
}

pub(super) async fn s38_a_rewind_that_something_followed_stays(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    w.talk(&fence, &turn, "two").await;
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    let undo = async |change: &str, from: &str| {
        let rewind = Rewind { id: change_id(change), mark: w.mark("c").await, from: message_id(from) };
        w.store.rewind(&fence, rewind).await.unwrap()
    };
    undo("last", "two-q").await;
    undo("both", "one-q").await;
    assert!(is_stale(w.store.restore(&fence, &change_id("last")).await), "a later change holds");
    w.store.restore(&fence, &change_id("both")).await.unwrap();
    w.store.restore(&fence, &change_id("last")).await.unwrap();
    assert_eq!(w.rows("c", View::Model).await.len(), 11);
    // All of it, with the first input.
    let first = w.rows("c", View::Model).await.remove(0);
    undo("all", first.id.as_str()).await;
    let empty = w.store.conversation(&conv("c")).await.unwrap();
    assert_eq!((empty.messages, empty.preview), (0, None));
    w.store.release(&fence).await.unwrap();
    let (next, turn, _) = w.begin("c", "a").await;
    let again = w.store.conversation(&conv("c")).await.unwrap();
    assert_eq!((again.messages, again.preview.as_deref()), (1, Some("hello")));
    assert!(is_fenced(w.store.restore(&fence, &change_id("all")).await));
    assert!(is_invalid(w.store.restore(&next, &change_id("all")).await), "a turn is open");
    w.store.settle_turn(&next, &turn, completed(), false).await.unwrap();
    let before = w.everything("c").await;
    assert!(is_stale(w.store.restore(&next, &change_id("all")).await), "the conversation went on");
    assert_eq!(w.everything("c").await, before);
}

pub(super) async fn s38_a_retry_is_an_undo_and_an_input_or_neither(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    let rewind = Rewind { id: change_id("r"), mark: w.mark("c").await, from: message_id("one-q") };
    // Whatever keeps one of the two from being done keeps both.
    let taken = w.admit(input("c", "taken", "something else")).await;
    w.store.cancel(&taken.admission).await.unwrap();
    let before = w.everything("c").await;
    assert!(is_conflict(w.store.retry(&fence, rewind.clone(), input("c", "taken", "question one")).await));
    assert!(is_invalid(w.store.retry(&fence, rewind.clone(), input("d", "again", "question one")).await));
    let nowhere = Rewind { from: message_id("none"), ..rewind.clone() };
    assert!(is_invalid(w.store.retry(&fence, nowhere, input("c", "again", "question one")).await));
    assert_eq!(w.everything("c").await, before);
    assert_eq!(w.store.queue(&conv("c")).await.unwrap(), []);

    let again = input("c", "again", "question one");
    let (done, receipt) = w.store.retry(&fence, rewind.clone(), again.clone()).await.unwrap();
    assert_eq!((done.status, &receipt.admission), (ChangeStatus::Applied, &again.id));
    assert!(w.rows("c", View::Model).await.iter().all(|row| row.id != message_id("one-q")));
    let queue = w.store.queue(&conv("c")).await.unwrap();
    assert_eq!(queue.iter().map(|record| &record.receipt).collect::<Vec<_>>(), [&receipt]);

    assert_eq!(w.store.retry(&fence, rewind.clone(), again.clone()).await.unwrap(), (done, receipt), "repeated");
    assert_eq!(w.store.queue(&conv("c")).await.unwrap(), queue);
    assert!(is_conflict(w.store.rewind(&fence, rewind.clone()).await), "under its id nothing else is done");
    assert!(is_conflict(w.store.retry(&fence, rewind, input("c", "more", "question one")).await));
}

pub(super) async fn s38_history_is_not_changed_under_an_input(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    w.store.requeue(&fence, &turn).await.unwrap();
    w.store.release(&fence).await.unwrap();
    // What waits has written its row; it must be seen when it runs.
    let row = receipt.admission.input_row();
    let (fence, turn, _) = w.start("c", "b").await;
    w.store.append(&fence, &turn, vec![NewMessage::text(row.clone(), Role::User, "hello again")], None).await.unwrap();
    w.store.requeue(&fence, &turn).await.unwrap();
    let rewind = Rewind { id: change_id("r"), mark: w.mark("c").await, from: row.clone() };
    assert!(is_invalid(w.store.rewind(&fence, rewind).await));
    let lock = w.lock(&fence, "me").await;
    let rotation = w.rotation(&turn_id("fresh"), w.mark("c").await, "c2", vec![summary("s")]);
    assert!(is_invalid(w.store.rotate(&fence, &lock, rotation.clone()).await));
    let keep = Rotation { rows: vec![summary("s"), carry(&row)], ..rotation };
    w.store.rotate(&fence, &lock, keep).await.unwrap();
    w.store.release(&fence).await.unwrap();
    let (fence, turn, _) = w.start("c", "b").await;
    w.store.append(&fence, &turn, vec![NewMessage::text(row, Role::User, "hello again")], None).await.unwrap();
    assert_eq!(contents(&w.rows("c", View::Model).await), ["sum", "hello again"]);
    // Nor while nobody knows what became of one.
    w.store.lose_turn(&fence, &turn).await.unwrap();
    let last = w.rows("c", View::Model).await.remove(1);
    let rewind = Rewind { id: change_id("r"), mark: w.mark("c").await, from: last.id };
    assert!(is_invalid(w.store.rewind(&fence, rewind).await));
}

pub(super) async fn s37_a_branch_goes_its_own_way(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    w.rotate(&fence, &turn, "c2", 5).await;
    w.talk(&fence, &turn, "two").await;
    let branch = |id: &str, view, up_to: Option<&str>| NewBranch {
        conversation: new_conversation(id),
        from: conv("c"),
        view,
        up_to: up_to.map(message_id),
    };
    let before = w.everything("c").await;
    let origin = w.store.branch(branch("d", View::Model, None)).await.unwrap();
    assert_eq!(w.store.branch(branch("d", View::Model, None)).await.unwrap(), origin, "repeated");
    assert!(is_conflict(w.store.branch(branch("d", View::Display, None)).await));
    assert!(is_conflict(w.store.branch(branch("c", View::Model, None)).await));
    is_not_found(w.store.branch(NewBranch { from: conv("none"), ..branch("e", View::Model, None) }).await);
    is_not_found(w.store.branch(branch("e", View::Model, Some("none"))).await);
    assert!(is_invalid(w.store.branch(branch("e", View::Display, Some("two-round"))).await), "splits a round");
    is_not_found(w.store.conversation(&conv("e")).await);
    assert_eq!(w.everything("c").await, before, "the source is only read");

    let (old, new) = (w.rows("c", View::Model).await, w.rows("d", View::Model).await);
    assert_eq!(contents(&old), contents(&new));
    assert_eq!(origin.seq, old.last().unwrap().seq);
    for (old, new) in old.iter().zip(&new) {
        assert!(old.id != new.id && old.turn != new.turn && new.copy_of.is_none());
        assert_eq!((old.role, old.kind, old.created_at_ms), (new.role, new.kind, new.created_at_ms));
        assert_eq!(old.calls.len(), new.calls.len());
        for (old, new) in old.calls.iter().zip(&new.calls) {
            assert!(old.call != new.call);
            assert_eq!(
                (&old.provider_id, &old.arguments, old.outcome),
                (&new.provider_id, &new.arguments, new.outcome)
            );
        }
    }
    let summary = w.store.conversation(&conv("d")).await.unwrap();
    assert_eq!((summary.messages, summary.preview.as_deref()), (11, Some("sum")));
    let (tip, source) = (w.tip("d").await, w.tip("c").await);
    let (tip, source) = (w.store.session(&tip).await.unwrap(), w.store.session(&source).await.unwrap());
    assert_eq!((tip.parent, tip.prompt, tip.tools), (None, source.prompt, source.tools));

    // What people see, up to a row, without the summary.
    w.store.branch(branch("f", View::Display, Some("one-a"))).await.unwrap();
    assert_eq!(w.rows("f", View::Model).await.len(), 6);
    w.store.branch(branch("g", View::Display, None)).await.unwrap();
    let all = w.rows("g", View::Display).await;
    assert_eq!(all.len(), 11);
    assert!(all.iter().all(|row| row.kind != MessageKind::Summary));
    // Both go on, and neither is the tip of the other.
    let (other, turn_d, _) = w.begin("d", "a").await;
    w.talk(&other, &turn_d, "three").await;
    assert_eq!(w.tip("c").await.as_str(), "c2");
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    assert_eq!(w.rows("d", View::Model).await.len(), 17);
    assert!(w.store.prompt(&w.store.session(&w.tip("d").await).await.unwrap().prompt).await.is_ok());
}

pub(super) async fn i08_a_deleted_history_leaves_nothing_behind(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.talk(&fence, &turn, "one").await;
    w.rotate(&fence, &turn, "c2", 1).await;
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    let (fence, turn, _) = w.begin("c", "a").await;
    assert_eq!(w.store.changes(&conv("c")).await.unwrap(), []);
    w.talk(&fence, &turn, "one").await;
    w.rotate(&fence, &turn, "c2", 1).await;
    assert_eq!(w.store.changes(&conv("c")).await.unwrap().len(), 1);
}
