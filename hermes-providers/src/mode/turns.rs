//! The history as turns of blocks, for the wires whose messages alternate between user and assistant and consist of
//! blocks: Anthropic's and Bedrock's.

use crate::chat::{ChatMessage, ChatRequest, Image, Sidecar, ToolCall};

/// Some wires want a user's message first; said when the history begins with an answer.
pub(super) const EARLIER: &str = "(Earlier messages are not shown.)";

/// A block of an earlier answer of our own issuer, which goes back byte for byte.
pub(super) trait KeptBlock {
    /// Whether it is a call.
    fn is_call(&self) -> bool;
    /// The id of a call; `None` for a call without one.
    fn call_id(&self) -> Option<String>;
    /// Whether it is what the model thought.
    fn is_thinking(&self) -> bool;
}

/// One block as it goes out.
#[derive(Debug, Clone)]
pub(super) enum Piece<'a, K> {
    Text(&'a str),
    Image(&'a Image),
    Call(&'a ToolCall),
    /// A block of our own issuer, byte for byte.
    Kept(K),
    Result {
        id: &'a str,
        /// The tool's real name.
        name: &'a str,
        content: &'a str,
        is_error: bool,
        images: &'a [Image],
    },
}

impl<K: KeptBlock> Piece<'_, K> {
    pub(super) fn is_result(&self) -> bool {
        matches!(self, Self::Result { .. })
    }

    pub(super) fn is_thinking(&self) -> bool {
        matches!(self, Self::Kept(block) if block.is_thinking())
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::Call(_)) || matches!(self, Self::Kept(block) if block.is_call())
    }
}

/// Messages of one role, as one.
#[derive(Debug)]
pub(super) struct Turn<'a, K> {
    pub(super) is_user: bool,
    /// Each with whether a cache may end behind it.
    pub(super) pieces: Vec<(Piece<'a, K>, bool)>,
}

/// The history as turns of alternating roles. Results stand first in theirs: directly behind their calls. A cache may end
/// behind the user's messages whose place is in `ends`; `kept` gives the blocks of a sidecar of our own issuer, `goes_back`
/// says which of them the wire takes.
pub(super) fn turns<'a, K: KeptBlock>(
    request: &'a ChatRequest,
    issuer: &str,
    ends: &[usize],
    kept: impl Fn(&'a [u8]) -> Vec<K>,
    goes_back: impl Fn(&K) -> bool,
) -> Vec<Turn<'a, K>> {
    let mut all: Vec<Turn<'a, K>> = Vec::new();
    for (at, message) in request.messages.iter().enumerate() {
        let is_user = !matches!(message, ChatMessage::Assistant { .. });
        let mut pieces = Vec::new();
        match message {
            ChatMessage::User { text, images } => said(text, images, &mut pieces),
            ChatMessage::Assistant { text, sidecar, calls, .. } => {
                let own = sidecar.as_ref().filter(|sidecar| &*sidecar.issuer == issuer);
                let blocks = own.map(|Sidecar { bytes, .. }| kept(bytes)).unwrap_or_default();
                answer(text, blocks, calls, &goes_back, &mut pieces);
            }
            ChatMessage::Tool { call_id, name, content, is_error, images } => {
                pieces.push(Piece::Result { id: call_id, name, content, is_error: *is_error, images });
            }
        }
        if pieces.is_empty() {
            continue;
        }
        if all.is_empty() && !is_user {
            all.push(Turn { is_user: true, pieces: vec![(Piece::Text(EARLIER), false)] });
        }
        if all.last().is_none_or(|turn| turn.is_user != is_user) {
            all.push(Turn { is_user, pieces: Vec::new() });
        }
        let Some(turn) = all.last_mut() else { continue };
        let results = turn.pieces.iter().take_while(|(piece, _)| piece.is_result()).count();
        let mut place = if pieces.first().is_some_and(Piece::is_result) { results } else { turn.pieces.len() };
        for piece in pieces {
            turn.pieces.insert(place, (piece, false));
            place += 1;
        }
        // The blocks of an answer go back as they came, so no mark stands in them.
        if is_user && ends.contains(&at) {
            turn.pieces[place - 1].1 = true;
        }
    }
    all
}

/// Blank text is refused by these wires, so it is never sent.
pub(super) fn said<'a, K>(text: &'a str, images: &'a [Image], pieces: &mut Vec<Piece<'a, K>>) {
    if !text.trim().is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces.extend(images.iter().map(Piece::Image));
}

/// An answer: from its own blocks where there are some, else from what everybody can read.
fn answer<'a, K: KeptBlock>(
    text: &'a str,
    kept: Vec<K>,
    calls: &'a [ToolCall],
    goes_back: impl Fn(&K) -> bool,
    pieces: &mut Vec<Piece<'a, K>>,
) {
    if kept.is_empty() {
        said(text, &[], pieces);
        pieces.extend(calls.iter().map(Piece::Call));
        return;
    }
    let uses = kept.iter().filter(|block| block.is_call()).count();
    let mut left: Vec<&ToolCall> = calls.iter().collect();
    let mut nth = 0;
    for block in kept {
        if !block.is_call() {
            pieces.extend(goes_back(&block).then_some(Piece::Kept(block)));
            continue;
        }
        let id = block.call_id();
        let known = left.iter().position(|call| Some(&call.id) == id.as_ref());
        let renamed = calls.get(nth).filter(|_| known.is_none() && uses == calls.len());
        nth += 1;
        if let Some(at) = known {
            left.remove(at);
            pieces.push(Piece::Kept(block));
        } else if let Some(call) = renamed {
            // It got another id from us, which its result has too.
            left.retain(|other| other.id != call.id);
            pieces.push(Piece::Call(call));
        }
        // A call that is not in the history has no result: it cannot go back.
    }
    pieces.extend(left.into_iter().map(Piece::Call));
    // Thinking alone is no message of these wires.
    if pieces.iter().all(Piece::is_thinking) {
        pieces.clear();
    }
}

/// Whether the newest answer made calls without thinking first: another issuer's, whose thinking is not ours to send.
/// With a budget for thinking the models refuse that.
pub(super) fn calls_unthought<K: KeptBlock>(turns: &[Turn<'_, K>]) -> bool {
    let Some(turn) = turns.iter().rev().find(|turn| !turn.is_user) else { return false };
    let calls = turn.pieces.iter().any(|(piece, _)| piece.is_call());
    calls && !turn.pieces.first().is_some_and(|(piece, _)| piece.is_thinking())
}
