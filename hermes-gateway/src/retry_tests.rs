//! A retry at every place where it can be cut off, over a real store and the practice model.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::compose::{Launch, Overrides};
use crate::config::Env;
use crate::protocol::{
    EndReason, PromptSubmitParams, Request, Response, SessionRefParams, SessionResolveParams, SessionResolveResponse,
    SessionShowParams, TurnWaitParams,
};
use crate::service::Gateway;

fn launch(home: &Path) -> Launch {
    let vars = [("HERMES_HOME", home.to_str().unwrap()), ("HERMES_LOCAL_PORTS", "off")];
    let vars: BTreeMap<String, String> = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env { vars, user_home: None, cwd: home.to_owned() };
    Launch { env, profile: None, overrides: Overrides::default(), needs_model: true }
}

async fn call(gateway: &Gateway, request: Request) -> Response {
    gateway.connect().call(request).await.unwrap()
}

/// Waits for the end of what was accepted; its conversation.
async fn answered(gateway: &Gateway, submitted: Response) -> ConversationId {
    let Response::Submitted(submitted) = submitted else { panic!("{submitted:?}") };
    let wait = TurnWaitParams { admission: submitted.receipt.admission };
    let Response::Turn(Some(result)) = call(gateway, Request::TurnWait(wait)).await else { panic!("no turn") };
    assert_eq!(result.reason, EndReason::Answered, "{result:?}");
    result.conversation
}

async fn say(gateway: &Gateway, conversation: Option<ConversationId>, text: &str) -> ConversationId {
    let params = PromptSubmitParams {
        conversation,
        request_id: None,
        text: text.to_owned(),
        images: Vec::new(),
        intent: None,
        platform: None,
    };
    let submitted = call(gateway, Request::PromptSubmit(params)).await;
    answered(gateway, submitted).await
}

/// Who said what, as people see it.
async fn rows(gateway: &Gateway, conversation: &ConversationId) -> Vec<String> {
    let params = SessionShowParams { conversation: conversation.clone(), after_seq: 0, limit: 0 };
    let Response::Session(shown) = call(gateway, Request::SessionShow(params)).await else { panic!("no session") };
    shown.rows.into_iter().map(|row| format!("{}: {}", row.role, row.content)).collect()
}

async fn resolve(gateway: &Gateway, conversation: &ConversationId) -> SessionResolveResponse {
    let params = SessionResolveParams { last: false, name: Some(conversation.to_string()), exact: true };
    let Response::SessionResolved(found) = call(gateway, Request::SessionResolve(params)).await else { panic!("none") };
    found
}

/// A process that is killed between the undo and the acceptance: its lease is that of a dead owner, and free.
async fn killed_in_a_retry(home: &Path, conversation: &ConversationId) {
    let (parts, _hub) = Parts::gather(launch(home)).await.unwrap();
    let undone = Undone::of(&parts, conversation).await.unwrap();
    assert_eq!(undone.text, "hello");
    parts.store().await.unwrap().release(&undone.fence).await.unwrap();
    parts.close().await;
}

#[tokio::test]
async fn i01_a_retry_that_was_killed_before_its_input_was_accepted_is_taken_back_and_told_once() {
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(launch(home.path())).await.unwrap();
    let conversation = say(&gateway, None, "hello").await;
    let before = rows(&gateway, &conversation).await;
    assert_eq!(before.len(), 2, "{before:?}");

    killed_in_a_retry(home.path(), &conversation).await;
    assert!(rows(&gateway, &conversation).await.is_empty());
    let found = resolve(&gateway, &conversation).await;
    assert_eq!((found.note.as_deref(), found.session.messages), (Some(MENDED), 2));
    assert_eq!(rows(&gateway, &conversation).await, before);
    assert_eq!(resolve(&gateway, &conversation).await.note, None, "told once");

    // A client that does not ask first loses nothing either.
    killed_in_a_retry(home.path(), &conversation).await;
    say(&gateway, Some(conversation.clone()), "again").await;
    let after = rows(&gateway, &conversation).await;
    assert_eq!((after.len(), &after[..2]), (4, &before[..]));
    gateway.shutdown().await;
}

#[tokio::test]
async fn a_retry_is_answered_once_and_the_first_answer_does_not_come_back() {
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(launch(home.path())).await.unwrap();
    let conversation = say(&gateway, None, "hello").await;
    let before = rows(&gateway, &conversation).await;
    let named = SessionRefParams { conversation: conversation.clone() };
    let submitted = call(&gateway, Request::SessionRetry(named.clone())).await;
    assert_eq!(answered(&gateway, submitted).await, conversation);
    assert_eq!(rows(&gateway, &conversation).await, before, "the practice model says the same again");
    // What was accepted is not taken for a retry that was cut off.
    assert_eq!(resolve(&gateway, &conversation).await.note, None);
    let refused = gateway.connect().call(Request::SessionRedo(named)).await.unwrap_err();
    assert!(refused.usage && refused.message.contains("that of a retry"), "{refused:?}");
    gateway.shutdown().await;
}

#[tokio::test]
async fn an_input_that_is_not_accepted_again_is_back_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(launch(home.path())).await.unwrap();
    let conversation = say(&gateway, None, "hello").await;
    let before = rows(&gateway, &conversation).await;
    let (parts, _hub) = Parts::gather(launch(home.path())).await.unwrap();
    let undone = Undone::of(&parts, &conversation).await.unwrap();
    // One that is at work is not taken for one that was killed.
    assert_eq!(resolve(&gateway, &conversation).await.note, None);
    let full = RpcError { code: "HM1004".to_owned(), message: "full".to_owned(), usage: false };
    let store = parts.store().await.unwrap();
    let refused = undone.settle(store.as_ref(), Err::<(), _>(full.clone())).await.unwrap_err();
    assert_eq!(refused, full);
    assert_eq!(rows(&gateway, &conversation).await, before);
    assert_eq!(resolve(&gateway, &conversation).await.note, None);
    parts.close().await;
    gateway.shutdown().await;
}
