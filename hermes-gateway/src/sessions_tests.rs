//! Undo, redo and retry over a real store and the practice model.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::compose::{Launch, Overrides};
use crate::config::Env;
use crate::protocol::{
    EndReason, PromptSubmitParams, Request, Response, SessionRefParams, SessionShowParams, SessionUndoParams,
    TurnWaitParams,
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
    let refused = gateway.connect().call(Request::SessionRedo(named)).await.unwrap_err();
    assert!(refused.usage && refused.message.contains("that of a retry"), "{refused:?}");
    gateway.shutdown().await;
}

#[tokio::test]
async fn what_was_undone_comes_back_whole_while_nothing_was_written_since() {
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(launch(home.path())).await.unwrap();
    let conversation = say(&gateway, None, "hello").await;
    say(&gateway, Some(conversation.clone()), "again").await;
    let before = rows(&gateway, &conversation).await;
    let undo = |turns| Request::SessionUndo(SessionUndoParams { conversation: conversation.clone(), turns });
    let redo = || Request::SessionRedo(SessionRefParams { conversation: conversation.clone() });
    let Response::Undone(done) = call(&gateway, undo(2)).await else { panic!("not undone") };
    assert_eq!((done.rows, done.text.as_str()), (4, "hello"));
    assert!(rows(&gateway, &conversation).await.is_empty());
    let refused = gateway.connect().call(undo(1)).await.unwrap_err();
    assert!(refused.message.contains("nothing that could be undone"), "{refused:?}");
    let Response::Redone { rows: 4 } = call(&gateway, redo()).await else { panic!("not redone") };
    assert_eq!(rows(&gateway, &conversation).await, before);
    let refused = gateway.connect().call(redo()).await.unwrap_err();
    assert!(refused.message.contains("no undo"), "{refused:?}");
    gateway.shutdown().await;
}
