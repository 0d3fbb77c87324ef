//! Any headers and payloads in frames of AWS's event stream whose checksums are right: two bytes say how long the headers
//! are, one how long the payload.
#![no_main]

use hermes_providers::ApiMode;
use hermes_providers::mode::bedrock_converse::writing::raw;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let mut stream = Vec::new();
    while let [high, low, payload, after @ ..] = rest {
        let headers = (usize::from(*high) << 8 | usize::from(*low)).min(after.len());
        let (headers, after) = after.split_at(headers);
        let (payload, after) = after.split_at(usize::from(*payload).min(after.len()));
        stream.extend(raw(headers, payload));
        rest = after;
    }
    targets::decoder_holds(ApiMode::BedrockConverse, &stream);
});
