//! Inputs that say where they were written.

use std::sync::Arc;

use hermes_core::{Input, Submission};
use hermes_providers::{ChatMessage, Script, ScriptedModel};
use hermes_store::View;

use crate::support::{World, check_prefix, submission};

#[tokio::test]
async fn e30_i18_a_platform_change_leaves_the_prompt_alone_and_rides_the_user_row_once() {
    let world = World::new();
    let model = Arc::new(ScriptedModel::new(ScriptedModel::test_info()));
    let places = [Some("terminal"), Some("terminal"), Some("telegram"), Some("telegram"), None, Some("telegram")];
    let engine = world.engine("e", model.clone());
    let mut conversation = None;
    for (at, place) in places.into_iter().enumerate() {
        model.push(Script::text("done"));
        let plain = Input::text(format!("input {at}"));
        let input = place.map_or_else(|| plain.clone(), |place| plain.clone().from_platform(place));
        let sent = Submission { input, ..submission(conversation.as_ref(), &format!("r{at}"), "") };
        let receipt = engine.submit(sent).await.unwrap().receipt().clone();
        engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
        conversation = Some(receipt.conversation);
    }
    let requests = model.requests();
    for pair in requests.windows(2) {
        check_prefix(&pair[0], &pair[1]);
    }
    let said: Vec<&str> = requests.last().unwrap().messages.iter().filter_map(user).collect();
    let noted: Vec<usize> = (0..said.len()).filter(|at| said[*at].contains("another platform")).collect();
    assert_eq!(noted, [2], "{said:?}");
    assert!(said[2].starts_with("input 2\n\n[") && said[2].contains("telegram"), "{}", said[2]);
    // People read what they wrote.
    let rows = world.rows(conversation.as_ref().unwrap(), View::Display).await;
    assert!(rows.iter().any(|row| row.content == "input 2"));
}

fn user(message: &ChatMessage) -> Option<&str> {
    match message {
        ChatMessage::User { text, .. } => Some(text),
        _ => None,
    }
}
