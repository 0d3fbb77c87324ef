//! How large a request is, in tokens: an estimate, corrected by what the provider last reported.
//!
//! No tokenizer is linked: its tables would cost a second of start-up and be wrong for the next model. The estimate
//! errs on the large side for code and on the small side for rare scripts; the anchor takes the error out as soon as a
//! provider has reported real usage.

use hermes_providers::{ChatMessage, ToolSchema};
use hermes_store::{Role, StoredMessage};

use crate::limits::IMAGE_TOKENS;
use crate::{image, projection};

/// ASCII characters that one token stands for (engine reference, 6.5).
const ASCII_CHARS_PER_TOKEN: u64 = 4;
/// Bytes of other scripts that one token stands for (engine reference, 6.5).
const OTHER_BYTES_PER_TOKEN: u64 = 4;
/// What a message costs beyond its text: role, separators.
const MESSAGE_TOKENS: u64 = 4;

/// Tokens of a text: four ASCII characters, one CJK character, or four bytes of any other script.
pub(crate) fn of_text(text: &str) -> u64 {
    let (mut ascii, mut wide, mut other_bytes) = (0_u64, 0_u64, 0_u64);
    for c in text.chars() {
        if c.is_ascii() {
            ascii += 1;
        } else if is_wide(c) {
            wide += 1;
        } else {
            other_bytes += c.len_utf8() as u64;
        }
    }
    ascii.div_ceil(ASCII_CHARS_PER_TOKEN) + wide + other_bytes.div_ceil(OTHER_BYTES_PER_TOKEN)
}

/// Scripts whose characters are about one token each: Han, Hangul, Kana.
fn is_wide(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{9fff}' | '\u{a960}'..='\u{a97f}' | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}' | '\u{20000}'..='\u{3ffff}')
}

/// Tokens of one message. Opaque provider state is not counted: how much of it is replayed is the provider's affair.
pub(crate) fn of_message(message: &ChatMessage) -> u64 {
    MESSAGE_TOKENS
        + match message {
            ChatMessage::User { text, images } => of_text(text) + IMAGE_TOKENS * images.len() as u64,
            ChatMessage::Assistant { text, reasoning, calls, .. } => {
                let calls: u64 = calls.iter().map(|call| of_text(&call.name) + of_text(&call.arguments)).sum();
                of_text(text) + reasoning.as_deref().map_or(0, of_text) + calls
            }
            ChatMessage::Tool { content, images, .. } => of_text(content) + IMAGE_TOKENS * images.len() as u64,
        }
}

/// Tokens of a list of messages.
pub(crate) fn of_messages(messages: &[ChatMessage]) -> u64 {
    messages.iter().map(of_message).sum()
}

/// Tokens of what a row shows the model, with another content when there is one. Nothing is copied, so that a long
/// history can be looked at where it is held.
pub(crate) fn of_row(row: &StoredMessage, content: Option<&str>) -> u64 {
    if row.role == Role::Tool && row.answers.is_none() {
        return 0;
    }
    let text = content.map_or_else(|| of_text(&projection::text_of(row)), of_text);
    if row.role != Role::Assistant {
        // With another content it goes without its pictures.
        let images = if content.is_none() { image::count(row) } else { 0 };
        return MESSAGE_TOKENS + text + IMAGE_TOKENS * images as u64;
    }
    let calls: u64 = row.calls.iter().map(|call| of_text(&call.name) + of_text(&call.arguments)).sum();
    MESSAGE_TOKENS + text + row.reasoning.as_deref().map_or(0, of_text) + calls
}

/// Tokens of rows, each counted as a message of its own: the few that the projection joins cost a little less.
pub(crate) fn of_rows(rows: &[StoredMessage]) -> u64 {
    rows.iter().map(|row| of_row(row, None)).sum()
}

/// Tokens of a tool list.
pub(crate) fn of_tools(tools: &[ToolSchema]) -> u64 {
    let one =
        |tool: &ToolSchema| of_text(&tool.name) + of_text(&tool.description) + of_text(&tool.parameters.to_string());
    tools.iter().map(one).sum()
}

/// The known size of a prefix of the history: what a provider reported of a request, or an estimate that is not to be
/// made again. Only what was added since is counted for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Messages that the request had.
    pub messages: usize,
    /// Its input tokens, system prompt and tools among them.
    pub input: u64,
    /// True when a provider reported it.
    pub measured: bool,
}

/// The size of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Tokens.
    pub tokens: u64,
    /// True when most of it was reported by a provider; false for a mere estimate.
    pub measured: bool,
}

/// The size of a request of `system`, `tools` and `messages`. With an anchor, only what came after it is estimated
/// (E35).
pub(crate) fn load(system: &[u8], tools: &[ToolSchema], messages: &[ChatMessage], anchor: Option<Anchor>) -> Load {
    match anchor.filter(|anchor| anchor.messages <= messages.len()) {
        Some(Anchor { messages: known, input, measured }) => {
            Load { tokens: input + of_messages(&messages[known..]), measured }
        }
        None => {
            let system = of_text(&String::from_utf8_lossy(system));
            Load { tokens: system + of_tools(tools) + of_messages(messages), measured: false }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection::user;

    #[test]
    fn scripts_are_counted_as_the_reference_says() {
        assert_eq!(of_text(""), 0);
        assert_eq!(of_text("abcd"), 1);
        assert_eq!(of_text("abcde"), 2);
        assert_eq!(of_text("漢字かな"), 4);
        assert_eq!(of_text("한국"), 2);
        assert_eq!(of_text("äöüß"), 2);
        assert_eq!(of_text("ab漢"), 2);
    }

    #[test]
    fn e35_real_usage_wins_over_the_estimate() {
        let history: Vec<_> = (0..10).map(|n| user(format!("{n} {}", "x".repeat(396)))).collect();
        let estimate = load(b"", &[], &history, None);
        assert!(!estimate.measured);
        let anchor = Anchor { messages: 8, input: estimate.tokens * 2, measured: true };
        let real = load(b"", &[], &history, Some(anchor));
        assert_eq!(real, Load { tokens: anchor.input + of_messages(&history[8..]), measured: true });
        // An anchor of a longer history than this one (it was compressed since) says nothing.
        assert!(!load(b"", &[], &history[..4], Some(anchor)).measured);
    }

    #[test]
    fn an_estimate_that_goes_on_from_an_earlier_one_is_the_same() {
        let history: Vec<_> = (0..10).map(|n| user("x漢ö".repeat(n))).collect();
        let mut anchor = None;
        for end in 0..=history.len() {
            let (step, whole) = (load(b"abc", &[], &history[..end], anchor), load(b"abc", &[], &history[..end], None));
            assert_eq!(step, whole, "{end}");
            anchor = Some(Anchor { messages: end, input: step.tokens, measured: step.measured });
        }
    }
}
