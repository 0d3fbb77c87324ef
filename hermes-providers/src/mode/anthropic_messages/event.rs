//! One event of a stream, or one whole message, as loosely typed values.
//!
//! Every field is raw until it is needed, so a field of an unexpected kind costs that field and not the event.

use std::borrow::Cow;

use serde::Deserialize;

use crate::json::{Object, Raw, Text};

/// The top level of an event, and of a whole message.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) index: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) message: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) content_block: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) delta: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) error: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) model: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) content: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Raw<'a>,
}

/// A block's delta in the shape that nearly all of them have, read in one go.
#[derive(Debug, Deserialize)]
pub(super) struct QuickDelta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    pub(super) index: u64,
    #[serde(borrow)]
    pub(super) delta: Object<QuickPart<'a>>,
}

/// One of the three that grow.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickPart<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) partial_json: Option<Text<'a>>,
}
