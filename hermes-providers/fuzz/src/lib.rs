//! What the fuzz targets share: an input is the bytes of a stream as they stand, so that a recorded stream is a seed and
//! a finding is a stream that can be looked at. Where they are cut follows from the bytes themselves.

use std::hash::{DefaultHasher, Hash, Hasher};

use hermes_providers::mode::{DecodeContext, StreamEnd, decoder};
use hermes_providers::sse::{Frame, SseDecoder};
use hermes_providers::{ApiMode, Delta, ErrorClass};

/// Most random cuts of one input.
const CUTS_MAX: usize = 12;
/// Longest input that is also fed byte by byte.
const BYTEWISE_MAX: usize = 4096;
/// Longest message of an error, twice what is shown of a server's text.
const MESSAGE_MAX: usize = 4096;

/// Everything an answer turned out to be.
type Told = (Vec<Delta>, Result<(), (ErrorClass, String)>);

/// The ways in which an input is cut beside being whole: at random places, and at every byte.
fn splits(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let mut random = fastrand::Rng::with_seed(hasher.finish());
    let mut places: Vec<usize> = (0..random.usize(1..=CUTS_MAX)).map(|_| random.usize(0..=bytes.len())).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    let mut all = vec![places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()];
    if bytes.len() <= BYTEWISE_MAX {
        all.push(bytes.chunks(1).collect());
    }
    all
}

fn decode(mode: ApiMode, pieces: &[&[u8]], end: StreamEnd) -> Told {
    let mut decoder = decoder(mode, DecodeContext { route: "p/m".into(), stream: true, ..DecodeContext::default() });
    let mut out = Vec::new();
    let fed = pieces.iter().try_for_each(|piece| decoder.push(piece, &mut out));
    let fed = fed.and_then(|()| decoder.finish(end, &mut out));
    (out, fed.map_err(|error| (error.class, error.message)))
}

/// What must hold of every answer: one end, and in it what was shown before.
fn check(mode: ApiMode, (deltas, end): &Told) {
    let ends = deltas.iter().filter(|delta| matches!(delta, Delta::Done(_))).count();
    match (end, deltas.last()) {
        (Ok(()), Some(Delta::Done(done))) => {
            assert_eq!(ends, 1, "{mode:?}: more than one end");
            let (mut text, mut reasoning) = (String::new(), String::new());
            for delta in deltas {
                match delta {
                    Delta::Text(more) => text.push_str(more),
                    Delta::Reasoning(more) => reasoning.push_str(more),
                    _ => {}
                }
            }
            assert_eq!(text, done.text, "{mode:?}: other text was shown");
            assert_eq!(reasoning, done.reasoning.clone().unwrap_or_default(), "{mode:?}: other reasoning was shown");
            for call in done.calls.iter().filter(|call| call.whole) {
                assert!(serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok() || is_odd(&call.arguments));
            }
        }
        (Err((_, message)), _) => {
            assert_eq!(ends, 0, "{mode:?}: an error behind the end");
            assert!(message.len() < MESSAGE_MAX, "{mode:?}: a message of {} bytes", message.len());
        }
        _ => panic!("{mode:?}: no end"),
    }
}

/// JSON that a reader of values does not take although its grammar is right: very deep, a very large number, half a pair.
fn is_odd(arguments: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(arguments).is_ok()
}

/// Decodes the bytes whole and cut, ended in order and broken: what comes out must not depend on the cuts.
pub fn decoder_holds(mode: ApiMode, bytes: &[u8]) {
    for end in [StreamEnd::Closed, StreamEnd::Broken] {
        let whole = decode(mode, &[bytes], end);
        check(mode, &whole);
        for pieces in splits(bytes) {
            assert_eq!(decode(mode, &pieces, end), whole, "{mode:?}: cuts matter");
        }
    }
}

/// The same for server-sent events.
pub fn sse_holds(bytes: &[u8]) {
    let whole = frames(&[bytes]);
    for pieces in splits(bytes) {
        assert_eq!(frames(&pieces), whole, "cuts matter");
    }
    let size: usize = whole.0.iter().map(|frame| frame.data.len()).sum();
    assert!(size <= bytes.len(), "more data than bytes");
}

fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, bool) {
    let mut decoder = SseDecoder::new();
    let mut out = Vec::new();
    let fed = pieces.iter().try_for_each(|piece| decoder.push(piece, &mut out));
    out.extend(decoder.finish());
    (out, fed.is_ok())
}
