//! The body of a response as a stream of deltas, under the clocks of a request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use reqwest::Response;
use tokio::time::{Instant, timeout, timeout_at};

use crate::chat::{Delta, DeltaStream};
use crate::error::{ErrorClass, ProviderError};
use crate::http::config::Timeouts;
use crate::http::transport::Host;
use crate::mode::{Decoder, StreamEnd};

/// How long to wait for usage and `[DONE]` once the finish reason is known.
const POST_FINISH_MS: u64 = 3000;
/// How long to wait for the end of the body after the answer, so that the connection can be used again.
const DRAIN_MS: u64 = 20;
/// Most bytes that are read for that.
const DRAIN_BYTES: usize = 64 * 1024;

/// A response that is being read. Dropping it closes the connection.
pub(super) struct Reader {
    response: Response,
    decoder: Box<dyn Decoder>,
    timeouts: Timeouts,
    host: Arc<Host>,
    stream: bool,
    route: String,
    ready: VecDeque<Result<Delta, ProviderError>>,
    ended: bool,
    left_bytes: usize,
    /// The end of everything.
    total_at: Instant,
    byte_at: Instant,
    progress_at: Instant,
    progress: u64,
}

/// Which clock runs out first.
enum Clock {
    Idle,
    Progress,
    Whole,
    Total,
    AfterFinish,
}

/// How an answer is read.
pub(super) struct Reading {
    pub(super) timeouts: Timeouts,
    pub(super) host: Arc<Host>,
    /// Whether it comes in parts.
    pub(super) stream: bool,
    /// Provider and model, for messages.
    pub(super) route: String,
    /// Longest body that is read.
    pub(super) max_bytes: usize,
    /// When the request began.
    pub(super) started: Instant,
}

impl Reader {
    pub(super) fn new(response: Response, decoder: Box<dyn Decoder>, reading: Reading) -> Self {
        let Reading { timeouts, host, stream, route, max_bytes, started } = reading;
        let now = Instant::now();
        Self {
            response,
            decoder,
            timeouts,
            host,
            stream,
            route,
            ready: VecDeque::new(),
            ended: false,
            left_bytes: max_bytes,
            total_at: started + timeouts.total,
            byte_at: now,
            progress_at: now,
            progress: 0,
        }
    }

    pub(super) fn into_stream(self) -> DeltaStream {
        stream::unfold(self, |mut reader| async move {
            loop {
                if let Some(item) = reader.ready.pop_front() {
                    return Some((item, reader));
                }
                if reader.ended {
                    return None;
                }
                reader.read().await;
            }
        })
        .boxed()
    }

    /// Waits for the next piece of the body and decodes it.
    async fn read(&mut self) {
        let (clock, at) = self.next_clock();
        let mut out = Vec::new();
        let result = match timeout_at(at, self.response.chunk()).await {
            Ok(Ok(Some(bytes))) => self.take(&bytes, &mut out),
            Ok(Ok(None)) => {
                self.ended = true;
                self.decoder.finish(StreamEnd::Closed, &mut out)
            }
            Ok(Err(_)) => {
                self.ended = true;
                self.decoder.finish(StreamEnd::Broken, &mut out)
            }
            Err(_) if self.decoder.is_finished() => {
                self.ended = true;
                self.decoder.finish(StreamEnd::Broken, &mut out)
            }
            Err(_) => {
                self.host.stale();
                Err(self.late(&clock))
            }
        };
        if matches!(out.last(), Some(Delta::Done(_))) {
            self.host.answered();
            if !self.ended {
                self.ended = true;
                self.drain().await;
            }
        }
        self.ready.extend(out.into_iter().map(Ok));
        if let Err(error) = result {
            self.ended = true;
            self.ready.push_back(Err(error));
        }
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let now = Instant::now();
        self.byte_at = now;
        let Some(left) = self.left_bytes.checked_sub(bytes.len()) else {
            return Err(self.error(ErrorClass::Limit, "the answer is larger than this program accepts"));
        };
        self.left_bytes = left;
        let result = self.decoder.push(bytes, out);
        if self.decoder.progress() != self.progress {
            self.progress = self.decoder.progress();
            self.progress_at = now;
        }
        result
    }

    fn next_clock(&self) -> (Clock, Instant) {
        let total = (Clock::Total, self.total_at);
        let mut clocks = vec![total];
        if self.decoder.is_finished() {
            clocks.push((Clock::AfterFinish, self.progress_at + Duration::from_millis(POST_FINISH_MS)));
        } else if self.stream {
            clocks.push((Clock::Idle, self.byte_at + self.timeouts.idle));
            clocks.push((Clock::Progress, self.progress_at + self.timeouts.progress));
        } else {
            clocks.push((Clock::Whole, self.progress_at + self.timeouts.whole));
        }
        clocks.into_iter().min_by_key(|(_, at)| *at).unwrap_or((Clock::Total, self.total_at))
    }

    fn late(&self, clock: &Clock) -> ProviderError {
        let (what, limit) = match clock {
            Clock::Idle => ("nothing arrived", self.timeouts.idle),
            Clock::Progress => ("the answer did not grow (only signs of life arrived)", self.timeouts.progress),
            Clock::Whole => ("the answer did not arrive", self.timeouts.whole),
            Clock::Total | Clock::AfterFinish => ("the answer did not end", self.timeouts.total),
        };
        self.error(ErrorClass::Timeout, &format!("{what} for {:.1} s; try again", limit.as_secs_f64()))
    }

    fn error(&self, class: ErrorClass, what: &str) -> ProviderError {
        let mut error = ProviderError::new(class, format!("{}: {what}", self.route));
        error.route.clone_from(&self.route);
        error
    }

    /// Reads to the end of the body when it is near: only then the connection serves the next request.
    async fn drain(&mut self) {
        let read = async {
            let mut left = DRAIN_BYTES;
            while let Ok(Some(bytes)) = self.response.chunk().await {
                left = left.saturating_sub(bytes.len());
                if left == 0 {
                    break;
                }
            }
        };
        // When it takes longer, the connection is closed with the response; nothing else is lost.
        let _ = timeout(Duration::from_millis(DRAIN_MS), read).await;
    }
}
