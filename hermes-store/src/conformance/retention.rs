//! Flags, ends, names, lists by page, and what is let go.

use super::{World, completed, conv, input, is_conflict, is_fenced, is_invalid, is_not_found, new_conversation};
use crate::limits::{END_REASON_MAX_BYTES, PRUNE_EMPTY_MS, PRUNE_EVERY_MS, PRUNE_IDLE_MS, RESOLVE_MAX};
use crate::{
    ChangeId, ConversationFilter, ConversationFlags, FlagChange, NewBranch, NewConversation, PruneReport, PruneRules,
    PruneStep, Resolved, ResolvedBy, Rewind, SessionId, StoreError, TitleSource, View, ViewMark,
};

fn ms(limit: u64) -> i64 {
    i64::try_from(limit).unwrap()
}

fn session_id(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

fn archived(flag: bool) -> FlagChange {
    FlagChange { archived: Some(flag), ..FlagChange::default() }
}

fn pinned(flag: bool) -> FlagChange {
    FlagChange { pinned: Some(flag), ..FlagChange::default() }
}

/// Rules that are due whenever they are asked.
fn now() -> PruneRules {
    PruneRules { every_ms: 0, ..PruneRules::default() }
}

fn steps(report: &PruneReport) -> Vec<(&str, PruneStep)> {
    report.done.iter().map(|one| (one.conversation.as_str(), one.step)).collect()
}

impl World {
    /// A conversation with one turn that is over, and nobody who holds it.
    async fn over(&self, name: &str) {
        let (fence, turn, _) = self.begin(name, "a").await;
        self.store.settle_turn(&fence, &turn, completed(), true).await.unwrap();
    }

    async fn flag(&self, name: &str, change: FlagChange) -> ConversationFlags {
        let fence = self.lease(name, "a").await;
        let flags = self.store.set_flags(&fence, change).await.unwrap();
        self.store.release(&fence).await.unwrap();
        flags
    }

    async fn end(&self, name: &str) {
        let fence = self.lease(name, "a").await;
        self.store.end_conversation(&fence, "done").await.unwrap();
        self.store.release(&fence).await.unwrap();
    }

    async fn names(&self, filter: ConversationFilter) -> Vec<String> {
        let found = self.store.conversations(filter).await.unwrap();
        found.into_iter().map(|one| one.id.as_str().to_owned()).collect()
    }

    async fn is_there(&self, name: &str) -> bool {
        match self.store.conversation(&conv(name)).await {
            Ok(_) => true,
            Err(StoreError::NotFound { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) async fn flags_stay_until_they_are_changed(w: &World) {
    w.over("c").await;
    let before = w.store.conversation(&conv("c")).await.unwrap();
    assert_eq!(before.flags, ConversationFlags::default());
    w.clock.advance(5);
    assert_eq!(w.flag("c", archived(true)).await, ConversationFlags { archived: true, ..before.flags });
    let both = FlagChange { pinned: Some(true), hidden: Some(true), archived: None };
    let all = ConversationFlags { archived: true, auto_archived: false, pinned: true, hidden: true };
    assert_eq!(w.flag("c", both).await, all);
    assert_eq!(w.flag("c", FlagChange::default()).await, all);
    let after = w.another().await.conversation(&conv("c")).await.unwrap();
    assert_eq!((after.flags, after.last_activity_ms), (all, before.last_activity_ms), "a mark is no activity");
    // What a person archived stays archived when it goes on.
    w.over("c").await;
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().flags, all);
    let old = w.lease("c", "a").await;
    w.store.release(&old).await.unwrap();
    assert!(is_fenced(w.store.set_flags(&old, archived(false)).await));
    assert!(is_fenced(w.store.end_conversation(&old, "x").await));
    assert!(is_fenced(w.store.add_alias(&old, &session_id("x")).await));
}

pub(super) async fn an_ended_conversation_is_opened_by_its_next_input(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    assert!(is_invalid(w.store.end_conversation(&fence, "x").await), "a turn is open");
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    let long = "x".repeat(END_REASON_MAX_BYTES + 1);
    assert!(matches!(w.store.end_conversation(&fence, &long).await, Err(StoreError::Limit { .. })));
    let ended = async || w.store.conversation(&conv("c")).await.unwrap().ended_at_ms;
    assert_eq!(ended().await, None);
    w.store.end_conversation(&fence, "first").await.unwrap();
    let first = ended().await;
    assert_eq!(first, Some(w.clock_ms()));
    w.clock.advance(5);
    w.store.end_conversation(&fence, "second").await.unwrap();
    assert_eq!(ended().await, first, "the first one stays");
    w.store.release(&fence).await.unwrap();
    w.over("c").await;
    assert_eq!(ended().await, None);
}

pub(super) async fn pages_of_a_list_lose_nothing(w: &World) {
    // All of one millisecond: only the id tells them apart.
    for number in 0..7 {
        w.over(&format!("c{number}")).await;
    }
    let mut seen = Vec::new();
    let mut filter = ConversationFilter { limit: 2, ..ConversationFilter::default() };
    loop {
        let page = w.store.conversations(filter.clone()).await.unwrap();
        let Some(last) = page.last() else { break };
        (filter.before_ms, filter.before_id) = (Some(last.last_activity_ms), Some(last.id.clone()));
        seen.extend(page.into_iter().map(|one| one.id.as_str().to_owned()));
    }
    assert_eq!(seen, ["c6", "c5", "c4", "c3", "c2", "c1", "c0"]);
}

pub(super) async fn lists_are_narrowed_by_what_is_asked(w: &World) {
    let all = ConversationFilter::default;
    for name in ["c0", "c1", "c2"] {
        w.over(name).await;
        w.clock.advance(1);
    }
    w.over("c2").await;
    w.flag("c0", archived(true)).await;
    w.flag("c1", pinned(true)).await;
    w.flag("c2", FlagChange { hidden: Some(true), ..FlagChange::default() }).await;
    assert_eq!(w.names(ConversationFilter { archived: Some(true), ..all() }).await, ["c0"]);
    assert_eq!(w.names(ConversationFilter { archived: Some(false), ..all() }).await, ["c2", "c1"]);
    assert_eq!(w.names(ConversationFilter { pinned: Some(true), ..all() }).await, ["c1"]);
    assert_eq!(w.names(ConversationFilter { hidden: Some(false), ..all() }).await, ["c1", "c0"]);
    assert_eq!(w.names(ConversationFilter { min_messages: 2, ..all() }).await, ["c2"]);
    for (dir, count) in [("/tmp", 3), ("/tmp/", 3), ("/", 3), ("/tm", 0), ("/tmp/x", 0), ("tmp", 0)] {
        let below = ConversationFilter { cwd: Some(dir.to_owned()), ..all() };
        assert_eq!(w.names(below).await.len(), count, "{dir}");
    }
    let fence = w.lease("c0", "a").await;
    w.store.set_title(&fence, r"The 100% _plan_ \o/", TitleSource::User).await.unwrap();
    w.store.release(&fence).await.unwrap();
    let texts =
        [("PLAN", 1), ("100%", 1), ("0% _p", 1), (r"\O", 1), ("C1", 1), ("c", 3), ("%", 1), ("_", 1), ("no", 0)];
    for (text, count) in texts {
        let found = w.names(ConversationFilter { text: Some(text.to_owned()), ..all() }).await;
        assert_eq!(found.len(), count, "{text}: {found:?}");
    }
}

pub(super) async fn s36_every_id_of_a_lineage_leads_to_one_tip(w: &World) {
    let (fence, turn, _) = w.begin("c", "a").await;
    w.rotate(&fence, &turn, "c2", 0).await;
    let more = super::text("more", crate::Role::User, "and so on, at length");
    w.store.append(&fence, &turn, vec![more], None).await.unwrap();
    w.rotate(&fence, &turn, "c3", 0).await;
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    for _ in 0..2 {
        w.store.add_alias(&fence, &session_id("old-name")).await.unwrap();
        w.store.add_alias(&fence, &session_id("c2")).await.unwrap();
    }
    let lineage = w.store.lineage(&conv("c")).await.unwrap();
    assert_eq!(lineage.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["c", "c2", "c3"]);
    is_not_found(w.store.lineage(&conv("none")).await);
    let listed = w.store.conversation(&conv("c")).await.unwrap();
    assert_eq!(listed.tip, lineage.last().map(|one| one.id.clone()));
    for id in ["c", "c2", "c3", "old-name"] {
        assert_eq!(w.another().await.tip(id).await.unwrap(), listed, "{id}");
        let one = Resolved::One { by: ResolvedBy::Id, found: Box::new(listed.clone()) };
        assert_eq!(w.store.resolve(id, Some("default")).await.unwrap(), one);
        assert_eq!(w.store.resolve(id, Some("work")).await.unwrap(), Resolved::Nothing);
    }
    for none in ["none", "", "a b", "\0", "%"] {
        is_not_found(w.store.tip(none).await);
    }
    // The id of another conversation is not to be had.
    w.store.create_and_admit(new_conversation("d"), input("d", "r", "x")).await.unwrap();
    assert!(is_conflict(w.store.add_alias(&fence, &session_id("d")).await));
    let other = w.lease("d", "a").await;
    assert!(is_conflict(w.store.add_alias(&other, &session_id("old-name")).await));
    assert_eq!(w.store.tip("d").await.unwrap().tip, None, "it has no session yet");
    w.store.delete_conversation(&fence).await.unwrap();
    is_not_found(w.store.tip("old-name").await);
}

pub(super) async fn an_ambiguous_name_is_told_with_its_candidates(w: &World) {
    for name in ["alpha-1", "alpha-2", "beta"] {
        w.over(name).await;
        let fence = w.lease(name, "a").await;
        w.store.set_title(&fence, "The same", TitleSource::User).await.unwrap();
        w.store.release(&fence).await.unwrap();
        w.clock.advance(1);
    }
    let elsewhere = NewConversation {
        profile: "work".to_owned(),
        title: Some("Only here".to_owned()),
        ..new_conversation("gamma")
    };
    w.store.create_and_admit(elsewhere, input("gamma", "r", "x")).await.unwrap();
    let resolve = async |text: &str| match w.store.resolve(text, Some("default")).await.unwrap() {
        Resolved::One { by, found } => (Some(by), vec![found.id.as_str().to_owned()]),
        Resolved::Many { by, candidates } => {
            (Some(by), candidates.iter().map(|one| one.id.as_str().to_owned()).collect())
        }
        Resolved::Nothing => (None, vec![]),
    };
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(resolve("alpha-2").await, (Some(ResolvedBy::Id), ids(&["alpha-2"])));
    assert_eq!(resolve("be").await, (Some(ResolvedBy::Prefix), ids(&["beta"])));
    assert_eq!(resolve("alpha").await, (Some(ResolvedBy::Prefix), ids(&["alpha-2", "alpha-1"])));
    assert_eq!(resolve(" The  same").await, (Some(ResolvedBy::Title), ids(&["beta", "alpha-2", "alpha-1"])));
    for none in ["gamma", "Only here", "nothing", "", "the same"] {
        assert_eq!(resolve(none).await, (None, vec![]), "{none}");
    }
    for number in 0..RESOLVE_MAX {
        w.over(&format!("many-{number}")).await;
    }
    w.over("many-last").await;
    assert_eq!(resolve("many").await.1.len(), RESOLVE_MAX);
}

pub(super) async fn s39_what_is_kept_is_never_pruned(w: &World) {
    for name in ["gone", "pinned", "leased", "waiting", "unknown", "running", "open"] {
        w.over(name).await;
    }
    for name in ["gone", "pinned", "leased", "waiting", "unknown", "running"] {
        w.end(name).await;
    }
    w.flag("pinned", pinned(true)).await;
    w.clock.advance(ms(PRUNE_IDLE_MS) + 1);
    let _held = w.lease("leased", "a").await;
    // Inputs that are not over; what was ended is open again with them.
    w.admit(input("waiting", "again", "x")).await;
    let (lost, turn, _) = w.begin("unknown", "a").await;
    w.store.lose_turn(&lost, &turn).await.unwrap();
    let _running = w.begin("running", "a").await;
    w.over("young").await;
    w.end("young").await;
    let before = w.store.conversation(&conv("gone")).await.unwrap();

    let dry = w.store.prune(PruneRules { dry_run: true, ..PruneRules::default() }).await.unwrap();
    assert_eq!(steps(&dry), [("gone", PruneStep::Removed), ("open", PruneStep::Ended)]);
    assert_eq!((dry.done[0].messages, dry.done[0].last_activity_ms), (before.messages, before.last_activity_ms));
    assert!(w.is_there("gone").await, "a dry run changes nothing");
    assert_eq!(w.store.prune(PruneRules::default()).await.unwrap(), dry);
    assert!(!w.is_there("gone").await);
    // Once a day.
    assert!(!w.store.prune(PruneRules::default()).await.unwrap().is_due);
    w.clock.advance(ms(PRUNE_EVERY_MS));
    let next = w.another().await.prune(PruneRules::default()).await.unwrap();
    assert_eq!(steps(&next), [("leased", PruneStep::Removed)], "its lease was over long ago");
    // Its counters are never used again (I08).
    let old = w.begin("other", "a").await.0;
    let (fence, ..) = w.begin("gone", "a").await;
    assert!(fence.token() > old.token());
    // What a rule ended has its whole time again.
    w.clock.advance(ms(PRUNE_IDLE_MS) - ms(PRUNE_EVERY_MS) - 1);
    assert!(!steps(&w.store.prune(now()).await.unwrap()).contains(&("open", PruneStep::Removed)));
    w.clock.advance(1);
    assert!(steps(&w.store.prune(now()).await.unwrap()).contains(&("open", PruneStep::Removed)));
    for kept in ["pinned", "waiting", "unknown", "running"] {
        assert!(w.is_there(kept).await, "{kept}");
    }
}

pub(super) async fn pruning_goes_on_where_its_limit_stopped_it(w: &World) {
    for number in 0..5 {
        w.over(&format!("c{number}")).await;
        w.end(&format!("c{number}")).await;
        w.clock.advance(1);
    }
    w.clock.advance(ms(PRUNE_IDLE_MS));
    let rules = || PruneRules { limit: 2, ..PruneRules::default() };
    let dry = w.store.prune(PruneRules { dry_run: true, ..rules() }).await.unwrap();
    assert!(dry.has_more);
    for (want, has_more) in [(vec!["c0", "c1"], true), (vec!["c2", "c3"], true), (vec!["c4"], false)] {
        let report = w.store.prune(rules()).await.unwrap();
        assert_eq!(report.done.iter().map(|one| one.conversation.as_str()).collect::<Vec<_>>(), want);
        assert_eq!(report.has_more, has_more);
    }
    assert!(!w.store.prune(rules()).await.unwrap().is_due);
}

pub(super) async fn empty_conversations_go_and_idle_ones_are_put_aside(w: &World) {
    // A branch of a conversation that was undone from its first row on has nothing in it.
    w.over("c").await;
    let fence = w.lease("c", "a").await;
    let rows = w.rows("c", View::Model).await;
    let mark = ViewMark::of(conv("c").first_session(), &rows);
    let rewind = Rewind { id: ChangeId::parse("undo").unwrap(), mark, from: rows[0].id.clone() };
    w.store.rewind(&fence, rewind).await.unwrap();
    w.store.release(&fence).await.unwrap();
    let branch = NewBranch { conversation: new_conversation("empty"), from: conv("c"), view: View::Model, up_to: None };
    w.store.branch(branch).await.unwrap();
    w.clock.advance(ms(PRUNE_EMPTY_MS) - 1);
    assert_eq!(steps(&w.store.prune(now()).await.unwrap()), []);
    w.clock.advance(1);
    assert_eq!(steps(&w.store.prune(now()).await.unwrap()), [("empty", PruneStep::Empty)], "not what was undone");

    let rules = || PruneRules { archive_ms: Some(PRUNE_EMPTY_MS), ..now() };
    assert_eq!(steps(&w.store.prune(rules()).await.unwrap()), [("c", PruneStep::Archived)]);
    let put_aside = ConversationFlags { archived: true, auto_archived: true, ..ConversationFlags::default() };
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().flags, put_aside);
    assert_eq!(steps(&w.store.prune(rules()).await.unwrap()), []);
    // The next input takes it out; what a person archived stays.
    w.over("c").await;
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().flags, ConversationFlags::default());
    w.clock.advance(ms(PRUNE_EMPTY_MS));
    w.store.prune(rules()).await.unwrap();
    w.flag("c", archived(true)).await;
    w.over("c").await;
    assert!(w.store.conversation(&conv("c")).await.unwrap().flags.archived);
}
