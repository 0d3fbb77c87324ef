//! Pictures from an input to the model, and out of its view again.

use std::sync::Arc;

use hermes_core::{EndReason, EngineError, Input, InputImage, Submission};
use hermes_providers::{ChatMessage, ChatRequest, ErrorClass, Image, ProviderError, Script, ScriptedModel};
use hermes_store::{ConversationId, Intent, View};

use crate::support::{World, check_prefix, submission};

fn picture(name: u8, bytes: usize) -> InputImage {
    let mut data = b"\x89PNG\r\n\x1a\n".to_vec();
    data.resize(bytes, name);
    InputImage::new(data)
}

fn input(conversation: Option<&ConversationId>, id: &str, images: Vec<InputImage>) -> Submission {
    Submission { input: Input::text(format!("look {id}")).with_images(images), ..submission(conversation, id, "") }
}

fn pictures(request: &ChatRequest) -> Vec<Image> {
    let of = |message: &ChatMessage| match message {
        ChatMessage::User { images, .. } => images.clone(),
        _ => Vec::new(),
    };
    request.messages.iter().flat_map(of).collect()
}

#[tokio::test]
async fn i18_pictures_are_replayed_byte_for_byte_in_every_process() {
    let world = World::new();
    let model = Arc::new(ScriptedModel::new(ScriptedModel::test_info()));
    let mut conversation = None;
    for (at, images) in [vec![picture(1, 300), picture(2, 40)], vec![], vec![picture(3, 9)]].into_iter().enumerate() {
        model.push(Script::text("seen"));
        // Another process each time.
        let engine = world.engine(&format!("e{at}"), model.clone());
        let sent = input(conversation.as_ref(), &format!("r{at}"), images);
        let receipt = engine.submit(sent).await.unwrap().receipt().clone();
        let result = engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
        assert_eq!(result.reason, EndReason::Answered);
        engine.shutdown().await;
        conversation = Some(receipt.conversation);
    }
    let requests = model.requests();
    requests.windows(2).for_each(|pair| check_prefix(&pair[0], &pair[1]));
    let shown = pictures(requests.last().unwrap());
    let sent = [picture(1, 300), picture(2, 40), picture(3, 9)];
    assert_eq!(
        shown.iter().map(|image| &image.data).collect::<Vec<_>>(),
        sent.iter().map(|i| &i.data).collect::<Vec<_>>()
    );
    assert!(shown.iter().all(|image| &*image.media_type == "image/png"));
}

#[tokio::test]
async fn a_steer_and_an_input_without_words_may_be_pictures_and_what_is_none_is_refused() {
    let world = World::new();
    let model = Arc::new(ScriptedModel::new(ScriptedModel::test_info()));
    let engine = world.engine("e", model.clone());
    model.push(Script::calls([("a", "act", "{}")]));
    model.push(Script::text("seen"));
    let silent = Submission { input: Input::text("").with_images(vec![picture(1, 20)]), ..submission(None, "r", "") };
    let receipt = engine.submit(silent).await.unwrap().receipt().clone();
    let steer = input(Some(&receipt.conversation), "s", vec![picture(2, 20)]);
    engine.submit(Submission { intent: Intent::Steer, ..steer }).await.unwrap();
    engine.run_until(&receipt.conversation, &receipt.admission).await.unwrap();
    assert_eq!(pictures(model.requests().last().unwrap()).len(), 2);
    for (images, code) in [(vec![picture(1, 9); 11], "HM4105"), (vec![InputImage::new(b"text".as_slice())], "HM4106")] {
        let error: EngineError = engine.submit(input(None, "x", images)).await.unwrap_err();
        assert_eq!(error.code(), code);
    }
}

/// The provider takes no request with so many bytes of pictures, however few tokens they are.
#[tokio::test]
async fn e42_a_compression_that_frees_only_pictures_is_progress() {
    let world = World::new();
    let model = Arc::new(ScriptedModel::new(ScriptedModel::test_info()));
    let engine = world.engine("e", model.clone());
    model.push(Script::text("seen"));
    let first = engine.submit(input(None, "r0", vec![picture(1, 400_000)])).await.unwrap().receipt().clone();
    engine.run_until(&first.conversation, &first.admission).await.unwrap();
    model.push(Script::error(ProviderError::new(ErrorClass::PayloadTooLarge, "413")));
    model.push(Script::text("seen too"));
    let sent = input(Some(&first.conversation), "r1", vec![picture(2, 300_000)]);
    let second = engine.submit(sent).await.unwrap().receipt().clone();
    let result = engine.run_until(&second.conversation, &second.admission).await.unwrap();
    assert_eq!(result.reason, EndReason::Answered, "{:?}", result.error);
    let last = model.requests().last().unwrap().clone();
    assert_eq!(pictures(&last).iter().map(|image| image.data.len()).collect::<Vec<_>>(), [300_000]);
    let said: Vec<&str> = last.messages.iter().filter_map(user).collect();
    assert!(said.iter().any(|text| text.contains("look r0") && text.contains("A picture was here")), "{said:?}");
    // People still see what they sent.
    let rows = world.rows(&first.conversation, View::Display).await;
    assert!(rows.iter().any(|row| row.content == "look r0" && row.sidecar.is_some()));
}

fn user(message: &ChatMessage) -> Option<&str> {
    match message {
        ChatMessage::User { text, .. } => Some(text),
        _ => None,
    }
}
