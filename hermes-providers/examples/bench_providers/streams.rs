//! One long answer for each wire, as a server would send it, and the plain parse it is compared with.

use std::borrow::Cow;

use hermes_providers::ApiMode;
use hermes_providers::mode::bedrock_converse::writing::event;
use serde::Deserialize;
use serde_json::{Value, json};

/// Chunks of each stream: two of four are text, one is reasoning, one is arguments of a call.
pub(crate) const CHUNKS: usize = 50_000;
/// Calls of Gemini, where a call arrives whole and 1,024 are the most: the other chunks are text and thoughts.
const GEMINI_CALLS: usize = 500;

/// What models write, a token each; one in eight has an escape, one is no ASCII.
const TOKENS: [&str; 8] = [" the", " lease", "\n", " of", " größer", " transaction", " \"quoted\"", " turn."];
/// Pieces of arguments, escaped inside a string of JSON.
const PIECES: [&str; 4] = [r#""path": "#, r#""src/lib.rs", "#, "12345, ", r#"" line\n""#];

/// A stream.
pub(crate) struct Stream {
    pub(crate) mode: ApiMode,
    /// What arrives.
    pub(crate) bytes: Vec<u8>,
    /// The JSON in it, chunk by chunk.
    pub(crate) payloads: Vec<String>,
}

/// What a chunk adds.
enum Kind {
    Reasoning,
    Text,
    Arguments,
}

/// The chunk of this number: reasoning first, then text, then one call.
fn chunk(nth: usize) -> (Kind, &'static str) {
    match nth * 4 / CHUNKS {
        0 => (Kind::Reasoning, TOKENS[nth % TOKENS.len()]),
        1 | 2 => (Kind::Text, TOKENS[nth % TOKENS.len()]),
        _ => (Kind::Arguments, PIECES[nth % PIECES.len()]),
    }
}

/// The stream of a wire.
pub(crate) fn stream(mode: ApiMode) -> Stream {
    let events = match mode {
        ApiMode::ChatCompletions => chat(),
        ApiMode::AnthropicMessages => messages(),
        ApiMode::Responses => responses(),
        ApiMode::Gemini => gemini(),
        _ => converse(),
    };
    let mut bytes = Vec::new();
    for (name, payload) in &events {
        match mode {
            ApiMode::BedrockConverse => bytes.extend(event(name, payload)),
            ApiMode::ChatCompletions | ApiMode::Gemini => bytes.extend(format!("data: {payload}\n\n").into_bytes()),
            _ => bytes.extend(format!("event: {name}\ndata: {payload}\n\n").into_bytes()),
        }
    }
    let mut payloads: Vec<String> = events.into_iter().map(|(_, payload)| payload).collect();
    if mode == ApiMode::ChatCompletions {
        bytes.extend_from_slice(b"data: [DONE]\n\n");
    }
    payloads.shrink_to_fit();
    Stream { mode, bytes, payloads }
}

type Events = Vec<(&'static str, String)>;

fn text(text: &str) -> Value {
    Value::from(text)
}

fn chat() -> Events {
    let head = r#"{"id":"chatcmpl-C9f1kzPq2v","object":"chat.completion.chunk","created":1780000000,"model":"m-large","system_fingerprint":"fp_44709d6fcb""#;
    let one = |delta: String, finish: &str| {
        ("", format!(r#"{head},"choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]}}"#))
    };
    let call =
        r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"write","arguments":""}}]}"#;
    let mut all = vec![one(call.to_owned(), "null")];
    all.extend((0..CHUNKS).map(|nth| match chunk(nth) {
        (Kind::Reasoning, more) => one(format!(r#"{{"reasoning_content":{}}}"#, text(more)), "null"),
        (Kind::Text, more) => one(format!(r#"{{"content":{}}}"#, text(more)), "null"),
        (Kind::Arguments, more) => {
            one(format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{}}}}}]}}"#, text(more)), "null")
        }
    }));
    all.push(one("{}".to_owned(), r#""length""#));
    all
}

fn messages() -> Events {
    let delta = |index: u8, kind: &str, member: &str, more: &str| {
        let delta = format!(r#"{{"type":"{kind}","{member}":{}}}"#, text(more));
        ("content_block_delta", format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#))
    };
    let start = |index: u8, block: Value| {
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        ("content_block_start", start.to_string())
    };
    let mut all = vec![
        ("message_start", json!({"type": "message_start", "message": {"model": "m-large", "usage": {}}}).to_string()),
        start(0, json!({"type": "thinking", "thinking": ""})),
        start(1, json!({"type": "text", "text": ""})),
        start(2, json!({"type": "tool_use", "id": "toolu_1", "name": "write", "input": {}})),
    ];
    all.extend((0..CHUNKS).map(|nth| match chunk(nth) {
        (Kind::Reasoning, more) => delta(0, "thinking_delta", "thinking", more),
        (Kind::Text, more) => delta(1, "text_delta", "text", more),
        (Kind::Arguments, more) => delta(2, "input_json_delta", "partial_json", more),
    }));
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}});
    all.push(("message_delta", end.to_string()));
    all.push(("message_stop", r#"{"type":"message_stop"}"#.to_owned()));
    all
}

fn responses() -> Events {
    let mut sequence = 0;
    let mut delta = |index: u8, kind: &'static str, more: &str| {
        sequence += 1;
        let place = if index == 0 { "summary_index" } else { "content_index" };
        let payload = format!(
            r#"{{"type":"{kind}","sequence_number":{sequence},"item_id":"item_{index}_68af40","output_index":{index},"{place}":0,"delta":{},"obfuscation":"xK2v"}}"#,
            text(more)
        );
        (kind, payload)
    };
    let added = |index: u8, item: Value| {
        let kind = "response.output_item.added";
        (kind, json!({"type": kind, "output_index": index, "item": item}).to_string())
    };
    let mut all = vec![
        added(0, json!({"type": "reasoning", "id": "item_0_68af40", "summary": []})),
        added(1, json!({"type": "message", "id": "item_1_68af40", "content": []})),
        added(2, json!({"type": "function_call", "id": "item_2_68af40", "call_id": "call_1", "name": "write"})),
    ];
    all.extend((0..CHUNKS).map(|nth| match chunk(nth) {
        (Kind::Reasoning, more) => delta(0, "response.reasoning_summary_text.delta", more),
        (Kind::Text, more) => delta(1, "response.output_text.delta", more),
        (Kind::Arguments, more) => delta(2, "response.function_call_arguments.delta", more),
    }));
    let reason = json!({"reason": "max_output_tokens"});
    let response = json!({"status": "incomplete", "incomplete_details": reason, "output": []});
    all.push(("response.incomplete", json!({"type": "response.incomplete", "response": response}).to_string()));
    all
}

fn gemini() -> Events {
    let one = |part: String, end: &str| {
        let content = format!(r#"{{"parts":[{part}],"role":"model"}}"#);
        let counts = r#"{"promptTokenCount":900,"candidatesTokenCount":20,"totalTokenCount":920}"#;
        let payload = format!(
            r#"{{"candidates":[{{"content":{content}{end},"index":0}}],"usageMetadata":{counts},"modelVersion":"m-large","responseId":"r-1"}}"#
        );
        ("", payload)
    };
    let every = CHUNKS / 4 / GEMINI_CALLS;
    let mut all: Events = (0..CHUNKS)
        .map(|nth| match chunk(nth) {
            (Kind::Reasoning, more) => one(format!(r#"{{"text":{},"thought":true}}"#, text(more)), ""),
            (Kind::Arguments, more) if nth % every == 0 => {
                one(format!(r#"{{"functionCall":{{"name":"write","args":{{"path":{}}}}}}}"#, text(more)), "")
            }
            (_, more) => one(format!(r#"{{"text":{}}}"#, text(more)), ""),
        })
        .collect();
    all.push(one(r#"{"text":""}"#.to_owned(), r#","finishReason":"STOP""#));
    all
}

fn converse() -> Events {
    let delta = |index: u8, delta: String| {
        ("contentBlockDelta", format!(r#"{{"contentBlockIndex":{index},"delta":{delta},"p":"abcdefghijkl"}}"#))
    };
    let start = json!({"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t", "name": "write"}}});
    let mut all = vec![("contentBlockStart", start.to_string())];
    all.extend((0..CHUNKS).map(|nth| match chunk(nth) {
        (Kind::Reasoning, more) => delta(0, format!(r#"{{"reasoningContent":{{"text":{}}}}}"#, text(more))),
        (Kind::Text, more) => delta(1, format!(r#"{{"text":{}}}"#, text(more))),
        (Kind::Arguments, more) => delta(2, format!(r#"{{"toolUse":{{"input":{}}}}}"#, text(more))),
    }));
    all.push(("messageStop", r#"{"stopReason":"max_tokens"}"#.to_owned()));
    all.push(("metadata", r#"{"usage":{"inputTokens":9,"outputTokens":9}}"#.to_owned()));
    all
}

/// Parses all payloads as values: what a program does that has no types for them. Returns how many there were.
pub(crate) fn as_values(stream: &Stream) -> usize {
    stream.payloads.iter().filter(|payload| serde_json::from_str::<Value>(payload).is_ok()).count()
}

/// Parses all payloads into borrowed types that hold what grows and nothing else: the least that a typed program does.
/// Returns the bytes that grew.
pub(crate) fn as_types(stream: &Stream) -> usize {
    let all = stream.payloads.iter();
    match stream.mode {
        ApiMode::ChatCompletions => all.map(|text| sum::<Chat<'_>>(text)).sum(),
        ApiMode::AnthropicMessages => all.map(|text| sum::<Block<'_>>(text)).sum(),
        ApiMode::Responses => all.map(|text| sum::<Plain<'_>>(text)).sum(),
        ApiMode::Gemini => all.map(|text| sum::<Candidates<'_>>(text)).sum(),
        _ => all.map(|text| sum::<Converse<'_>>(text)).sum(),
    }
}

/// What is in a payload.
trait Grown {
    fn bytes(&self) -> usize;
}

fn sum<'a, T: Grown + Deserialize<'a>>(text: &'a str) -> usize {
    serde_json::from_str::<T>(text).map_or(0, |all| all.bytes())
}

/// Borrowed when it has no escapes; a `Cow` inside an `Option` would always be owned.
#[derive(Deserialize)]
#[serde(transparent)]
struct Grows<'a>(#[serde(borrow)] Cow<'a, str>);

type Text<'a> = Option<Grows<'a>>;

fn size(text: &Text<'_>) -> usize {
    text.as_ref().map_or(0, |text| text.0.len())
}

#[derive(Deserialize)]
struct Chat<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: ChatDelta<'a>,
}

#[derive(Deserialize)]
struct ChatDelta<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    arguments: Text<'a>,
}

impl Grown for Chat<'_> {
    fn bytes(&self) -> usize {
        let of = |delta: &ChatDelta<'_>| {
            let calls: usize = delta.tool_calls.iter().map(|call| size(&call.function.arguments)).sum();
            size(&delta.content) + size(&delta.reasoning_content) + calls
        };
        self.choices.iter().map(|choice| of(&choice.delta)).sum()
    }
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    delta: BlockDelta<'a>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    partial_json: Text<'a>,
}

impl Grown for Block<'_> {
    fn bytes(&self) -> usize {
        size(&self.delta.text) + size(&self.delta.thinking) + size(&self.delta.partial_json)
    }
}

#[derive(Deserialize)]
struct Plain<'a> {
    #[serde(borrow)]
    delta: Text<'a>,
}

impl Grown for Plain<'_> {
    fn bytes(&self) -> usize {
        size(&self.delta)
    }
}

#[derive(Deserialize)]
struct Candidates<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
}

#[derive(Deserialize)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

impl Grown for Candidates<'_> {
    fn bytes(&self) -> usize {
        self.candidates.iter().flat_map(|candidate| &candidate.content.parts).map(|part| size(&part.text)).sum()
    }
}

#[derive(Deserialize)]
struct Converse<'a> {
    #[serde(borrow)]
    delta: ConverseDelta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConverseDelta<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    reasoning_content: Option<Part<'a>>,
    #[serde(borrow, default)]
    tool_use: Option<Input<'a>>,
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    input: Text<'a>,
}

impl Grown for Converse<'_> {
    fn bytes(&self) -> usize {
        let reasoning = self.delta.reasoning_content.as_ref().map_or(0, |part| size(&part.text));
        size(&self.delta.text) + reasoning + self.delta.tool_use.as_ref().map_or(0, |input| size(&input.input))
    }
}
