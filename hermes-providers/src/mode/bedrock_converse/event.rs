//! The JSON of an event (and of a whole answer) as loosely typed values.
//!
//! Every field is raw until it is needed, so a field of an unexpected kind costs that field and not the event.

use std::borrow::Cow;

use serde::Deserialize;

use crate::chat::Usage;
use crate::json::{Object, Raw, Text, integer, read, string};

/// The members of all events, and of a whole answer.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    #[serde(borrow, default)]
    pub(super) content_block_index: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) start: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) delta: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) trace: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) output: Raw<'a>,
}

/// The delta that nearly all events are, read in one go.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QuickDelta<'a> {
    pub(super) content_block_index: i64,
    #[serde(borrow)]
    pub(super) delta: Object<QuickPart<'a>>,
}

/// Text or a piece of a call's input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct QuickPart<'a> {
    #[serde(borrow, default)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_use: Option<Object<QuickInput<'a>>>,
}

/// A piece of a call's input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickInput<'a> {
    #[serde(borrow)]
    pub(super) input: Cow<'a, str>,
}

/// A block of content: whole, begun, or more of one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content<'a> {
    #[serde(borrow, default)]
    pub(super) text: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Raw<'a>,
}

/// A call.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    #[serde(borrow, default)]
    pub(super) tool_use_id: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) name: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) input: Raw<'a>,
    /// `server_tool_use` for a tool that the provider runs itself.
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Raw<'a>,
}

impl ToolUse<'_> {
    /// Whether the provider runs the tool itself.
    pub(super) fn is_servers(&self) -> bool {
        self.kind.and_then(string).is_some_and(|kind| kind == "server_tool_use")
    }
}

/// Reasoning: in a delta the members stand alone, in a block in `reasoningText`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reasoning<'a> {
    #[serde(borrow, default)]
    pub(super) text: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) redacted_content: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_text: Raw<'a>,
}

/// `output` of a whole answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Output<'a> {
    #[serde(borrow, default)]
    pub(super) message: Raw<'a>,
}

/// `output.message`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) content: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts<'a> {
    #[serde(borrow, default)]
    input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    output_tokens: Raw<'a>,
    #[serde(borrow, default)]
    cache_read_input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    cache_write_input_tokens: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trace<'a> {
    #[serde(borrow, default)]
    prompt_router: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Router<'a> {
    #[serde(borrow, default)]
    invoked_model_id: Raw<'a>,
}

/// The counts. Input tokens do not contain those of the cache.
pub(super) fn usage(raw: Raw<'_>) -> Option<Usage> {
    let counts: Counts<'_> = read(raw);
    let number = |raw: Raw<'_>| raw.and_then(integer).and_then(|count| u64::try_from(count).ok());
    let usage = Usage {
        input_uncached: number(counts.input_tokens),
        cache_read: number(counts.cache_read_input_tokens),
        cache_write: number(counts.cache_write_input_tokens),
        output: number(counts.output_tokens),
        reasoning: None,
    };
    (usage != Usage::default()).then_some(usage)
}

/// The model that a prompt router chose.
pub(super) fn routed_to(trace: Raw<'_>) -> Option<String> {
    let trace: Trace<'_> = read(trace);
    let router: Router<'_> = read(trace.prompt_router);
    router.invoked_model_id.and_then(string).filter(|model| !model.is_empty())
}
