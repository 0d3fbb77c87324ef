//! The bytes of an answer to deltas, in any split.
//!
//! What a `finishReason` becomes, and what the caller's loop makes of it:
//!
//! | reason | here |
//! |---|---|
//! | `STOP` | [`Finish::Stop`], with calls [`Finish::ToolCalls`] |
//! | `MAX_TOKENS` | [`Finish::Length`]; a call beside it is not whole, so nobody runs it (B33) |
//! | `SAFETY` and the other words of withheld content | [`Finish::ContentFilter`] |
//! | `MALFORMED_FUNCTION_CALL`, `UNEXPECTED_TOOL_CALL` | [`Finish::MalformedCall`]: asked once more, then an error (B31); no call beside it is whole |
//! | `MISSING_THOUGHT_SIGNATURE` | an error of class `SidecarRefused`: the same request would fail again, without our state it may not |
//! | `MALFORMED_RESPONSE` | an error of class `BadResponse` |
//! | anything else | [`Finish::Other`] with the word in lower case |
//!
//! `promptFeedback.blockReason` without a candidate is an error of class `ContentPolicy` (B30).

use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat::{Delta, Finish};
use crate::error::{ErrorClass, ProviderError};
use crate::json::{items, read, string};
use crate::mode::answer::Answer;
use crate::mode::body::{Body, Rest};
use crate::mode::context::DecodeContext;
use crate::mode::gemini::frame::{Candidate, Chunk, Content, Feedback, chunk};
use crate::mode::gemini::parts::{Kept, Part};
use crate::mode::gemini::usage::Counts;
use crate::mode::{Decoder, StreamEnd};
use crate::sse::Frame;

/// The maker sends no such mark; servers that imitate the wire do.
const DONE: &str = "[DONE]";
/// The word for a whole answer. Older models put it into every chunk, so it never replaces another one.
const STOP: &str = "STOP";

/// Words for content that was withheld.
const WITHHELD: [&str; 9] = [
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MODEL_ARMOR",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
];
/// Words for a call that the model meant to make and did not.
const NO_CALL: [&str; 2] = ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"];

/// Decodes one answer.
#[derive(Debug)]
pub struct GeminiDecoder {
    body: Body,
    context: DecodeContext,
    answer: Answer,
    kept: Kept,
    counts: Counts,
    /// The calls that arrived whole.
    whole_calls: Vec<usize>,
    /// `finishReason`, once there was one, and what was said about it.
    reason: Option<(String, String)>,
    /// A mark of the end, or the end of a whole document.
    end_seen: bool,
    /// The last frame was cut.
    is_cut: bool,
    done: bool,
}

impl Decoder for GeminiDecoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.done {
            return Ok(());
        }
        let mut frames = Vec::new();
        let fed = self.body.push(bytes, &mut frames);
        for frame in frames {
            self.frame(&frame, out)?;
            if self.end_seen {
                out.push(self.complete(false)?);
                return Ok(());
            }
        }
        fed.map_err(|limit| self.context.error(ErrorClass::Limit, &limit))
    }

    fn finish(&mut self, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.done {
            return Ok(());
        }
        match self.body.finish() {
            Rest::Nothing => {}
            Rest::Frame(frame) => self.last_frame(&frame, end, out)?,
            Rest::Json(body) => self.whole_body(&body, out)?,
            Rest::Text(body) => {
                let said = self.context.clean(&crate::classify::ErrorBody::parse(&body).message);
                return Err(self.no_answer(&said));
            }
        }
        out.push(self.complete(end == StreamEnd::Broken || self.is_cut)?);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.done || self.reason.is_some()
    }

    fn progress(&self) -> u64 {
        self.answer.progress
    }
}

impl GeminiDecoder {
    /// A decoder for the answer to one request.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            body: Body::default(),
            context,
            answer: Answer::default(),
            kept: Kept::default(),
            counts: Counts::default(),
            whole_calls: Vec::new(),
            reason: None,
            end_seen: false,
            is_cut: false,
            done: false,
        }
    }

    fn frame(&mut self, frame: &Frame, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(&frame.data);
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        if frame.event == "error" {
            return Err(self.context.classified(text));
        }
        if text == DONE {
            self.end_seen = true;
            return Ok(());
        }
        if let Some(chunk) = chunk(text) {
            return self.chunk(&chunk, text, out);
        }
        // Servers that forget the blank line between frames: each line is a payload.
        if text.lines().count() > 1 && text.lines().all(is_payload) {
            return text.lines().try_for_each(|line| self.payload(line, out));
        }
        Err(self.context.not_json(text))
    }

    /// The mark of the end or one chunk; nothing counts after the end.
    fn payload(&mut self, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.end_seen {
            return Ok(());
        }
        match chunk(text) {
            Some(chunk) => self.chunk(&chunk, text, out),
            None => {
                self.end_seen = true;
                Ok(())
            }
        }
    }

    /// A frame without its closing blank line: what is whole in it is used, the rest is where the connection was cut.
    fn last_frame(&mut self, frame: &Frame, end: StreamEnd, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(&frame.data);
        let text = text.trim();
        // Text that never was JSON is an error message and not a cut chunk.
        let never_json = end == StreamEnd::Closed && !text.starts_with(['{', '[']);
        if is_payload(text) || never_json {
            return self.frame(frame, out);
        }
        self.is_cut = true;
        text.lines().take_while(|line| is_payload(line)).try_for_each(|line| self.payload(line, out))
    }

    /// One document, or a list of chunks: what a stream is without `alt=sse`.
    fn whole_body(&mut self, body: &[u8], out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}').trim();
        let parsed: Result<Vec<&RawValue>, _> = if text.starts_with('[') {
            serde_json::from_str(text)
        } else {
            serde_json::from_str(text).map(|one| vec![one])
        };
        let Ok(chunks) = parsed else {
            return Err(self.context.error(ErrorClass::Incomplete, "the answer ended before it was whole"));
        };
        for raw in chunks {
            match chunk(raw.get()).filter(|chunk| chunk.is_error() || chunk.is_answer()) {
                Some(chunk) => self.chunk(&chunk, raw.get(), out)?,
                None => return Err(self.no_answer(&self.context.clean(raw.get()))),
            }
        }
        self.end_seen = true;
        Ok(())
    }

    fn no_answer(&self, said: &str) -> ProviderError {
        self.context.error(ErrorClass::BadResponse, &format!("the answer is none of this wire: {said}"))
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, text: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if chunk.is_error() {
            return Err(self.context.classified(text));
        }
        if self.answer.served_model.is_none() {
            self.answer.served_model = chunk.model_version.and_then(string).filter(|model| !model.is_empty());
        }
        if let Some(raw) = chunk.usage_metadata {
            self.counts.take(&serde_json::from_str::<Value>(raw.get()).unwrap_or_default());
            let usage = self.counts.usage();
            self.answer.progress += u64::from(self.answer.usage != usage);
            self.answer.usage = usage;
        }
        let candidates = items(chunk.candidates);
        if candidates.is_empty() && self.reason.is_none() && self.answer.is_empty() {
            self.blocked(&read(chunk.prompt_feedback))?;
        }
        let candidate: Candidate<'_> = read(candidates.first().copied());
        let content: Content<'_> = read(candidate.content);
        for raw in items(content.parts) {
            if let Ok(part) = serde_json::from_str::<Part<'_>>(raw.get()) {
                self.part(raw, &part, out)?;
            }
        }
        let word = candidate.finish_reason.and_then(string).map(|word| word.trim().to_uppercase());
        if let Some(word) = word.filter(|word| !word.is_empty() && word != "FINISH_REASON_UNSPECIFIED") {
            self.answer.progress += 1;
            if word != STOP || self.reason.is_none() {
                self.reason = Some((word, candidate.finish_message.and_then(string).unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// There is no answer because of what was asked.
    fn blocked(&self, feedback: &Feedback<'_>) -> Result<(), ProviderError> {
        let word = feedback.block_reason.and_then(string).unwrap_or_default();
        if word.is_empty() || word == "BLOCK_REASON_UNSPECIFIED" {
            return Ok(());
        }
        let message = feedback.block_reason_message.and_then(string).unwrap_or_default();
        Err(self.refused(ErrorClass::ContentPolicy, "the request was blocked", &word, &message))
    }

    fn refused(&self, class: ErrorClass, what: &str, word: &str, message: &str) -> ProviderError {
        let word = self.context.clean(word);
        let message = self.context.clean(message.trim().trim_end_matches('.'));
        let message = if message.is_empty() { message } else { format!(": {message}") };
        let mut error = self.context.error(class, &format!("{what} ({word}){message}"));
        error.code = Some(word.to_lowercase());
        error
    }

    fn part(&mut self, raw: &RawValue, part: &Part<'_>, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let before = self.answer.progress;
        self.kept.add(raw, part);
        let text = part.text();
        if part.is_thought {
            self.answer.reasoning(&self.context, &text, out);
        } else {
            self.answer.text(&self.context, &text, out);
        }
        if let Some(call) = part.call() {
            if call.name.is_empty() {
                return Err(self.context.error(ErrorClass::BadResponse, "the answer holds a tool call without a name"));
            }
            let at = self.answer.start_call(&self.context, call.id, &call.name, out)?;
            self.answer.arguments(&self.context, at, &call.arguments, out);
            if call.is_whole {
                self.whole_calls.push(at);
            }
        }
        // A signature or a part of another kind shows nothing and is progress all the same.
        let silent = self.answer.progress == before && !part.is_empty();
        self.answer.progress += u64::from(silent);
        Ok(())
    }

    /// The completion, or why there is none.
    fn complete(&mut self, is_broken: bool) -> Result<Delta, ProviderError> {
        self.done = true;
        let Some((word, message)) = self.reason.take() else {
            return Err(self.answer.cut(&self.context, is_broken));
        };
        let finish = match word.as_str() {
            STOP => Finish::Stop,
            "MAX_TOKENS" => Finish::Length,
            "MISSING_THOUGHT_SIGNATURE" => {
                let what = "the provider misses a thought signature in the request";
                return Err(self.refused(ErrorClass::SidecarRefused, what, &word, &message));
            }
            "MALFORMED_RESPONSE" => {
                let what = "the model's answer was malformed";
                return Err(self.refused(ErrorClass::BadResponse, what, &word, &message));
            }
            word if WITHHELD.contains(&word) => Finish::ContentFilter,
            word if NO_CALL.contains(&word) => Finish::MalformedCall,
            _ => Finish::Other(word.to_lowercase()),
        };
        // Where anything went wrong the provider does not vouch for the calls, and a call that is not closed is not run.
        if finish == Finish::Stop {
            for at in std::mem::take(&mut self.whole_calls) {
                self.answer.close_call(&self.context, at, None, &mut Vec::new());
            }
        }
        Ok(self.answer.complete(self.kept.sidecar(&self.context.issuer), finish))
    }
}

fn is_payload(text: &str) -> bool {
    text == DONE || chunk(text).is_some()
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
