//! Measures the decoders: `cargo xtask bench providers`.
//!
//! Throughput of each wire's decoder on one long answer beside plain parses of the same JSON (as values; into borrowed
//! types that hold the text and nothing else), and the time from a server's write to the delta, over a socket.
//! Allocations are counted all the time, on both sides; a count is two atomic additions.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a bench"
)]

mod latency;
mod streams;

use std::alloc::System;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hermes_providers::mode::{DecodeContext, Decoder, StreamEnd, decoder};
use hermes_providers::{ApiMode, Delta};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::streams::{CHUNKS, Stream, as_types, as_values, stream};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How many times each side is measured, in turns; the median counts.
const RUNS: usize = 9;
/// What a busy socket gives in one read.
const READ_BYTES: usize = 16 * 1024;

fn main() {
    println!("{CHUNKS} chunks a stream, reads of {READ_BYTES} bytes, median of {RUNS}");
    let word = "wire";
    println!("{word:<20} MB/s   ns/chunk   values   types   to values   to types   allocations/chunk");
    for mode in ApiMode::ALL {
        let stream = stream(*mode);
        check(&stream);
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..RUNS {
            times[0].push(timed(|| decode(&stream)));
            times[1].push(timed(|| as_values(&stream)));
            times[2].push(timed(|| as_types(&stream)));
        }
        let [ours, values, types] = times.map(median);
        let chunk = |time: Duration| time.as_nanos() as f64 / CHUNKS as f64;
        let region = Region::new(ALLOCATOR);
        black_box(decode(&stream));
        let change = region.change();
        let allocations = (change.allocations + change.reallocations) as f64 / CHUNKS as f64;
        println!(
            "{:<20} {:>4.0} {:>10.0} {:>8.0} {:>7.0} {:>11.2} {:>10.2} {allocations:>12.2}",
            mode.as_str(),
            stream.bytes.len() as f64 / ours.as_secs_f64() / 1e6,
            chunk(ours),
            chunk(values),
            chunk(types),
            ours.as_secs_f64() / values.as_secs_f64(),
            ours.as_secs_f64() / types.as_secs_f64(),
        );
    }
    latency::run();
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(work());
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn fresh(mode: ApiMode) -> Box<dyn Decoder> {
    decoder(mode, DecodeContext { stream: true, issuer: "bench".into(), ..DecodeContext::default() })
}

/// Decodes a whole stream; the deltas are dropped read by read, as a reader does. Returns how many there were.
fn decode(stream: &Stream) -> usize {
    let mut decoder = fresh(stream.mode);
    let mut out = Vec::new();
    let mut deltas = 0;
    for read in stream.bytes.chunks(READ_BYTES) {
        decoder.push(read, &mut out).unwrap();
        deltas += out.len();
        out.clear();
    }
    decoder.finish(StreamEnd::Closed, &mut out).unwrap();
    deltas + out.len()
}

/// The stream means what it should: a bench of an error would be fast.
fn check(stream: &Stream) {
    let mut decoder = fresh(stream.mode);
    let mut out = Vec::new();
    decoder.push(&stream.bytes, &mut out).unwrap();
    decoder.finish(StreamEnd::Closed, &mut out).unwrap();
    assert!(out.len() > CHUNKS, "{:?}: {} deltas", stream.mode, out.len());
    let Some(Delta::Done(done)) = out.last() else { panic!("{:?}: no end", stream.mode) };
    assert!(!done.text.is_empty() && done.reasoning.is_some() && !done.calls.is_empty(), "{:?}", stream.mode);
    assert_eq!(as_values(stream), stream.payloads.len());
}
