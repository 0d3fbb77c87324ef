//! Titles, lists, deletion.

use super::{World, completed, conv, input, is_fenced, is_invalid, is_not_found, new_conversation, owner, text};
use crate::limits::TITLE_MAX_CHARS;
use crate::{AdmissionStatus, ConversationFilter, Generation, NewConversation, Role, TitleSource, Token};

pub(super) async fn d4_titles_are_cleaned_and_may_repeat(w: &World) {
    for name in ["c", "d"] {
        w.admit(input(name, "r", "x")).await;
        let fence = w.lease(name, "a").await;
        let held =
            w.store.set_title(&fence, " My\u{202e}\u{0}\u{200b} \n title\u{7} ", TitleSource::User).await.unwrap();
        assert_eq!(held, "My title");
        w.clock.advance(1);
    }
    let same = ConversationFilter { title: Some("My  title".to_owned()), ..ConversationFilter::default() };
    assert_eq!(w.store.conversations(same).await.unwrap().len(), 2);
    let none = ConversationFilter { title: Some("\u{200b}".to_owned()), ..ConversationFilter::default() };
    assert_eq!(w.store.conversations(none).await.unwrap(), []);
    w.admit(input("e", "r", "x")).await;
    let fence = w.lease("e", "a").await;
    let long = w.store.set_title(&fence, &"é".repeat(10_000), TitleSource::User).await.unwrap();
    assert_eq!(long.chars().count(), TITLE_MAX_CHARS);
    assert!(is_invalid(w.store.set_title(&fence, "\u{202e}\u{0}\n ", TitleSource::User).await));
    assert_eq!(w.store.conversation(&conv("e")).await.unwrap().title, Some(long));
    let titled = NewConversation { title: Some("\u{0}Given ".to_owned()), ..new_conversation("f") };
    w.store.create_and_admit(titled, input("f", "r", "x")).await.unwrap();
    let given = w.store.conversation(&conv("f")).await.unwrap();
    assert_eq!((given.title.as_deref(), given.title_source), (Some("Given"), Some(TitleSource::User)));
}

pub(super) async fn a_weaker_title_changes_nothing(w: &World) {
    w.admit(input("c", "r", "x")).await;
    let fence = w.lease("c", "a").await;
    let steps = [
        ("cut", TitleSource::Derived, "cut"),
        ("by a model", TitleSource::Model, "by a model"),
        ("cut again", TitleSource::Derived, "by a model"),
        ("mine", TitleSource::User, "mine"),
        ("by a model again", TitleSource::Model, "mine"),
        ("mine again", TitleSource::User, "mine again"),
    ];
    for (title, source, want) in steps {
        assert_eq!(w.store.set_title(&fence, title, source).await.unwrap(), want);
    }
    assert_eq!(w.store.conversation(&conv("c")).await.unwrap().title.as_deref(), Some("mine again"));
}

pub(super) async fn conversations_are_listed_newest_first(w: &World) {
    for name in ["alpha-1", "alpha-2", "beta"] {
        w.begin(name, "a").await;
        w.clock.advance(1_000);
    }
    let other = NewConversation { profile: "work".to_owned(), ..new_conversation("work-1") };
    w.store.create_and_admit(other, input("work-1", "r", "x")).await.unwrap();
    let list = |filter: ConversationFilter| async move {
        let found = w.store.conversations(filter).await.unwrap();
        found.into_iter().map(|one| one.id.as_str().to_owned()).collect::<Vec<_>>()
    };
    let all = ConversationFilter::default;
    assert_eq!(list(all()).await, ["work-1", "beta", "alpha-2", "alpha-1"]);
    assert_eq!(list(ConversationFilter { limit: 2, ..all() }).await, ["work-1", "beta"]);
    let mine = ConversationFilter { profile: Some("default".to_owned()), ..all() };
    assert_eq!(list(mine).await, ["beta", "alpha-2", "alpha-1"]);
    assert_eq!(list(ConversationFilter { source: Some("api".to_owned()), ..all() }).await, [""; 0]);
    let alpha = ConversationFilter { id_prefix: Some("alpha-".to_owned()), ..all() };
    assert_eq!(list(alpha).await, ["alpha-2", "alpha-1"]);
    for hostile in ["%", "a_pha", "ALPHA", "'"] {
        assert_eq!(list(ConversationFilter { id_prefix: Some(hostile.to_owned()), ..all() }).await, [""; 0]);
    }
    let beta = w.store.conversation(&conv("beta")).await.unwrap();
    let older = ConversationFilter { before_ms: Some(beta.last_activity_ms), ..all() };
    assert_eq!(list(older).await, ["alpha-2", "alpha-1"]);
    assert_eq!((beta.preview.as_deref(), beta.pending), (Some("hello"), Some(AdmissionStatus::Started)));
    assert_eq!((beta.model.as_deref(), beta.cwd.as_deref()), (Some("practice-1"), Some("/tmp")));
    is_not_found(w.store.conversation(&conv("none")).await);
    is_not_found(w.store.queue(&conv("none")).await);
    // A new input makes an old conversation the newest.
    w.clock.advance(1_000);
    w.admit(input("alpha-1", "again", "x")).await;
    assert_eq!(list(all()).await[0], "alpha-1");
}

pub(super) async fn i08_a_deleted_conversation_keeps_its_counters(w: &World) {
    let (fence, turn, receipt) = w.begin("c", "a").await;
    let (other, ..) = w.begin("d", "a").await;
    assert!(is_invalid(w.store.delete_conversation(&fence).await), "a turn is at work");
    w.store.settle_turn(&fence, &turn, completed(), false).await.unwrap();
    let prompt = w.store.session(&conv("c").first_session()).await.unwrap().prompt;
    let tools = w.store.session(&conv("d").first_session()).await.unwrap().tools;
    w.store.delete_conversation(&fence).await.unwrap();
    w.store.delete_conversation(&fence).await.unwrap();
    is_not_found(w.store.conversation(&conv("c")).await);
    is_not_found(w.store.admission(&receipt.admission).await);
    is_not_found(w.store.turn(&turn).await);
    is_not_found(w.store.prompt(&prompt).await);
    assert!(w.store.prompt(&tools).await.is_ok(), "still used by another conversation");
    is_fenced(w.store.set_title(&fence, "late", TitleSource::User).await);
    // The same id again: nothing of the old one, but for what must never be used twice.
    let (again, turn, started) = w.begin("c", "a").await;
    assert!(again.token() > fence.token() && started.generation > receipt.generation && started.seq > receipt.seq);
    assert_eq!(again.token(), Token(fence.token().0 + 1));
    is_fenced(w.store.append(&fence, &turn, vec![text("late", Role::User, "x")], None).await);
    is_fenced(w.store.delete_conversation(&fence).await);
    assert_eq!(w.store.conversation(&conv("d")).await.unwrap().messages, 1);
    w.store.set_title(&other, "untouched", TitleSource::User).await.unwrap();
}

pub(super) async fn route_generations_only_grow(w: &World) {
    assert_eq!(w.store.next_generation("telegram", "1").await.unwrap(), Generation(1));
    assert_eq!(w.another().await.next_generation("telegram", "1").await.unwrap(), Generation(2));
    assert_eq!(w.store.next_generation("telegram", "2").await.unwrap(), Generation(1));
    assert_eq!(w.store.next_generation("discord", "1").await.unwrap(), Generation(1));
    w.store.retire(&owner("nobody")).await.unwrap();
    assert_eq!(w.store.next_generation("telegram", "1").await.unwrap(), Generation(3));
}
