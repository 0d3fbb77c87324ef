//! What holds for the decoder of every wire, whatever bytes it is fed: no panic, no growth beyond what came in, exactly
//! one end. The fuzz targets look for the same with more patience and another toolchain.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail the test")]

use hermes_providers::mode::{DecodeContext, Decoder, StreamEnd, decoder};
use hermes_providers::{ApiMode, Delta, ErrorClass, ProviderError};
use proptest::prelude::*;

/// A byte that is no UTF-8 is shown as a sign of three bytes, and the answer stands in the deltas and in the completion.
const MOST_TEXT_PER_BYTE: usize = 3;

fn fresh(mode: ApiMode) -> Box<dyn Decoder> {
    decoder(mode, DecodeContext { route: "p/m".into(), stream: true, ..DecodeContext::default() })
}

/// Feeds everything and ends; the deltas before the end, and the end.
fn run(mode: ApiMode, pieces: &[&[u8]], end: StreamEnd) -> (Vec<Delta>, Result<Delta, ProviderError>) {
    let mut decoder = fresh(mode);
    let mut out = Vec::new();
    let mut error = None;
    for piece in pieces {
        if let Err(found) = decoder.push(piece, &mut out) {
            error = Some(found);
            break;
        }
    }
    if error.is_none()
        && let Err(found) = decoder.finish(end, &mut out)
    {
        error = Some(found);
    }
    let ends = out.iter().filter(|delta| matches!(delta, Delta::Done(_))).count();
    match error {
        Some(error) => {
            assert_eq!(ends, 0, "{mode:?}: an error behind the end");
            (out, Err(error))
        }
        None => {
            assert_eq!(ends, 1, "{mode:?}: not one end");
            let done = out.pop().unwrap();
            assert!(matches!(done, Delta::Done(_)), "{mode:?}: something behind the end");
            (out, Ok(done))
        }
    }
}

fn shown_bytes(deltas: &[Delta]) -> usize {
    let of = |delta: &Delta| match delta {
        Delta::Text(text) | Delta::Reasoning(text) => text.len(),
        Delta::CallArguments { bytes, .. } => *bytes,
        _ => 0,
    };
    deltas.iter().map(of).sum()
}

/// Everything that must hold; `bytes` in the pieces that `cuts` make.
fn check(mode: ApiMode, bytes: &[u8], cuts: &[usize]) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut pieces = Vec::new();
    let mut start = 0;
    for cut in cuts {
        pieces.push(&bytes[start..cut]);
        start = cut;
    }
    pieces.push(&bytes[start..]);
    for end in [StreamEnd::Closed, StreamEnd::Broken] {
        let (deltas, last) = run(mode, &pieces, end);
        assert!(deltas.len() <= bytes.len() + 1, "{mode:?}: more deltas than bytes");
        assert!(shown_bytes(&deltas) <= MOST_TEXT_PER_BYTE * bytes.len(), "{mode:?}: more text than bytes");
        let (whole_deltas, whole_last) = run(mode, &[bytes], end);
        assert_eq!((&deltas, last.as_ref().ok()), (&whole_deltas, whole_last.as_ref().ok()), "{mode:?}: cuts matter");
        if let (Err(error), Err(whole)) = (last, whole_last) {
            assert_eq!((error.class, &error.message), (whole.class, &whole.message), "{mode:?}: cuts matter");
            assert!(error.message.len() < 4096, "{mode:?}: {}", error.message.len());
        }
    }
}

/// Words that the wires know, so that random streams reach deep.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "null",
    "0",
    "-1",
    "1e999",
    "true",
    "\n",
    "\n\n",
    "\r\n",
    "data: ",
    "data:",
    "event: ",
    "\"type\":",
    "\"index\":0",
    "\"index\":1",
    "\"id\":\"a\"",
    "\"name\":\"t\"",
    "\"choices\":[{\"delta\":",
    "\"content\":\"x\"",
    "\"tool_calls\":[",
    "\"function\":{",
    "\"arguments\":\"{\"",
    "\"finish_reason\":\"stop\"",
    "[DONE]",
    "\"error\":",
    "\"usage\":{",
    "\"content_block_start\"",
    "\"content_block_delta\"",
    "\"message_stop\"",
    "\"message_delta\"",
    "\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}",
    "\"content_block\":{\"type\":\"tool_use\"",
    "\"candidates\":[{",
    "\"parts\":[{",
    "\"functionCall\":{",
    "\"finishReason\":\"STOP\"",
    "\"promptFeedback\":{",
    "\"response.output_item.added\"",
    "\"response.completed\"",
    "\"item\":{\"type\":\"function_call\"",
    "\"output_index\":0",
    "\u{fffd}",
    "\\ud83e",
    "é",
    "🦀",
];

/// Whole frames that mean something on one wire; any order, any number.
const FRAMES: &[&str] = &[
    r#"{"choices":[{"index":0,"delta":{"content":"é🦀"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"reasoning_content":"r","tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{\"a"}}]}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"\":1}"}}]},"finish_reason":"tool_calls"}]}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":18446744073709551615}}"#,
    "[DONE]",
    r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}"#,
    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"t","input":{}}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
    r#"{"type":"content_block_stop","index":1}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":2}}"#,
    r#"{"type":"message_stop"}"#,
    r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#,
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"a","thought":true},{"functionCall":{"name":"t","args":{}}}]}}]}"#,
    r#"{"candidates":[{"finishReason":"MAX_TOKENS"}],"usageMetadata":{"promptTokenCount":1}}"#,
    r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#,
    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"x","call_id":"c","name":"t","arguments":""}}"#,
    r#"{"type":"response.function_call_arguments.delta","item_id":"y","output_index":0,"delta":"{}"}"#,
    r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"é"}"#,
    r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":1}}}"#,
    r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded"}}}"#,
];

proptest! {
    #[test]
    fn i27_random_bytes_end_every_decoder_once(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        cuts in proptest::collection::vec(any::<usize>(), 0..6),
    ) {
        for mode in ApiMode::ALL {
            check(*mode, &bytes, &cuts);
        }
    }

    #[test]
    fn i27_words_of_the_wires_in_any_order_end_every_decoder_once(
        words in proptest::collection::vec(0..WORDS.len(), 0..120),
        cuts in proptest::collection::vec(any::<usize>(), 0..6),
    ) {
        let text: String = words.iter().map(|at| WORDS[*at]).collect();
        for mode in ApiMode::ALL {
            check(*mode, text.as_bytes(), &cuts);
        }
    }

    #[test]
    fn i27_frames_of_all_wires_in_any_order_end_every_decoder_once(
        frames in proptest::collection::vec((0..FRAMES.len(), 0usize..4, any::<usize>()), 0..16),
        cuts in proptest::collection::vec(any::<usize>(), 0..6),
    ) {
        let mut bytes = Vec::new();
        for (at, change, place) in frames {
            let mut frame = FRAMES[at].as_bytes().to_vec();
            let place = place % frame.len();
            match change {
                0 => frame.truncate(place),
                1 => frame[place] ^= 1,
                _ => {}
            }
            bytes.extend_from_slice(b"data: ");
            bytes.extend_from_slice(&frame);
            bytes.extend_from_slice(b"\n\n");
        }
        for mode in ApiMode::ALL {
            check(*mode, &bytes, &cuts);
        }
    }
}

#[test]
fn i26_a_line_without_an_end_is_refused_and_not_kept() {
    let block = vec![b'x'; 1024 * 1024];
    for mode in ApiMode::ALL {
        let mut decoder = fresh(*mode);
        let mut out = Vec::new();
        let _ = decoder.push(b"data: ", &mut out);
        let refused = (0..128).find_map(|_| decoder.push(&block, &mut out).err());
        assert_eq!(refused.map(|error| error.class), Some(ErrorClass::Limit), "{mode:?}");
        assert!(out.is_empty(), "{mode:?}");
    }
}

#[test]
fn i26_a_document_without_an_end_is_refused_and_not_kept() {
    let block = vec![b' '; 4 * 1024 * 1024];
    for mode in ApiMode::ALL {
        let mut decoder = fresh(*mode);
        let mut out = Vec::new();
        let _ = decoder.push(b"{", &mut out);
        let refused = (0..32).find_map(|_| decoder.push(&block, &mut out).err());
        assert_eq!(refused.map(|error| error.class), Some(ErrorClass::Limit), "{mode:?}");
    }
}
