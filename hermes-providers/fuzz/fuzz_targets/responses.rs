//! Any bytes as an answer over `responses`.
#![no_main]

use hermes_providers::ApiMode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| targets::decoder_holds(ApiMode::Responses, bytes));
