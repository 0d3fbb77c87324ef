//! Any text as a waiting time: in each header that says one, and in the body of a refusal. The first byte is the status.
#![no_main]

use std::time::{Duration, SystemTime};

use hermes_providers::{Failure, MAX_RESET_MS, MAX_RETRY_AFTER_MS, classify};
use libfuzzer_sys::fuzz_target;

/// A day in 2026.
const NOW: Duration = Duration::from_secs(1_780_000_000);
/// Longest message of an error.
const MESSAGE_MAX: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let Some((status, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let value = text.lines().next().unwrap_or_default().to_owned();
    for status in [None, Some(400 + u16::from(*status)), Some(429)] {
        for in_headers in [false, true] {
            let headers = |_: &str| in_headers.then(|| value.clone());
            let error = classify(&Failure {
                status,
                headers: &headers,
                body: rest,
                aggregator: status.is_none(),
                now: SystemTime::UNIX_EPOCH + NOW,
                route: "p/m",
                secrets: &["secret-key-of-a-person"],
            });
            assert!(error.retry_after_ms.is_none_or(|wait| wait <= MAX_RETRY_AFTER_MS.max(MAX_RESET_MS)));
            assert!(error.message.len() < MESSAGE_MAX, "a message of {} bytes", error.message.len());
            assert!(!error.message.contains("secret-key-of-a-person"));
        }
    }
});
