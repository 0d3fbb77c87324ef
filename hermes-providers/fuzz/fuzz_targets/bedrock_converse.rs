//! Any events as an answer over `bedrock_converse`: each line is the type of an event, a blank and its payload. Bytes that
//! begin like a frame, or like a document, go in as they are.
#![no_main]

use hermes_providers::ApiMode;
use hermes_providers::mode::bedrock_converse::writing::event;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if matches!(bytes.first(), Some(0 | 1 | b'{' | b'[' | b'<')) {
        return targets::decoder_holds(ApiMode::BedrockConverse, bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    let frames = text.lines().map(|line| {
        let (kind, payload) = line.split_once(' ').unwrap_or((line, ""));
        event(kind, payload)
    });
    targets::decoder_holds(ApiMode::BedrockConverse, &frames.flatten().collect::<Vec<u8>>());
});
