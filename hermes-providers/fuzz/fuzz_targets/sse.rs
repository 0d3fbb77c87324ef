//! Any bytes as server-sent events.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| targets::sse_holds(bytes));
