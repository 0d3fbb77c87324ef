//! A request to the bytes of its body.
//!
//! The keys have a fixed order and `messages` is the last one. So the body of a request without its closing `]}` is a
//! byte prefix of the body of the next request of the same conversation, which is what prompt caches live on (I18).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chat::{ChatMessage, ChatRequest, Image, Sidecar, ToolCall};
use crate::mode::effort::{clamp_effort, takes_temperature};
use crate::mode::names::{NameMap, wire_id};
use crate::mode::writer::{Writer, data_url};
use crate::mode::{Encoded, WireOptions};
use crate::profile::{EmptyContent, MaxTokensField, ReasoningEcho, ReasoningField, SystemRole};
use crate::schema::{SchemaDialect, clean_listing, clean_tool};

/// Sent where a provider insists on reasoning that is not known.
const REASONING_PAD: &str = " ";

/// The members of an assistant message that are opaque to us. The sidecar's bytes are one JSON object of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Opaque<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<&'a RawValue>,
}

/// The path of the method.
const PATH: &str = "chat/completions";

/// The request for this wire. Pure: the same values give the same bytes.
#[must_use]
pub fn encode(request: &ChatRequest, options: &WireOptions) -> Encoded {
    Encoded {
        path: PATH.to_owned(),
        query: "",
        headers: Vec::new(),
        accept: "text/event-stream, application/json",
        body: body(request, options),
    }
}

fn body(request: &ChatRequest, options: &WireOptions) -> Bytes {
    let names = NameMap::new(&request.tools);
    let mut out = Document { out: Writer::for_request(request), options, names: &names };
    out.head(request);
    out.raw(",\"messages\":[");
    out.messages(request);
    out.raw("]}");
    out.out.finish()
}

struct Document<'a> {
    out: Writer,
    options: &'a WireOptions,
    names: &'a NameMap,
}

impl Document<'_> {
    fn raw(&mut self, text: &str) {
        self.out.raw(text);
    }

    fn json<T: Serialize + ?Sized>(&mut self, value: &T) {
        self.out.json(value);
    }

    fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        self.out.member(key, value);
    }

    fn head(&mut self, request: &ChatRequest) {
        let quirks = &self.options.quirks;
        self.raw("{\"model\":");
        self.json(&self.options.model);
        self.member("stream", &request.stream);
        if request.stream && quirks.stream_usage {
            self.raw(",\"stream_options\":{\"include_usage\":true}");
        }
        self.tools(request);
        if let Some(temperature) = request.temperature.filter(|_| takes_temperature(&self.options.model, quirks)) {
            self.member("temperature", &temperature);
        }
        if let Some(most) = request.max_output_tokens {
            let field = match quirks.max_tokens_field {
                MaxTokensField::MaxTokens => "max_tokens",
                MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
            };
            self.member(field, &most);
        }
        if let Some(wanted) = request.reasoning_effort.as_deref() {
            self.effort(wanted);
        }
        let model = self.options.model.as_str();
        for extra in
            quirks.extra.iter().filter(|extra| extra.models.iter().any(|start| model.starts_with(start.as_str())))
        {
            for (name, value) in &extra.body {
                self.raw(",");
                self.json(name);
                self.raw(":");
                self.json(value);
            }
        }
        if let Some(key) = request.cache_key.as_deref().filter(|_| quirks.prompt_cache_key) {
            self.member("prompt_cache_key", key);
        }
    }

    fn dialect(&self) -> SchemaDialect {
        self.options.quirks.schema.unwrap_or(SchemaDialect::Plain)
    }

    /// No tools, no field (case W4).
    fn tools(&mut self, request: &ChatRequest) {
        for (at, tool) in request.tools.iter().enumerate() {
            self.raw(if at == 0 { ",\"tools\":[" } else { "," });
            self.raw("{\"type\":\"function\",\"function\":{\"name\":");
            let name = self.names.wire(&tool.name);
            self.json(&*name);
            let clean = clean_tool(tool, self.dialect());
            self.member("description", &*clean.description);
            self.member("parameters", &clean.parameters);
            self.raw("}}");
        }
        if !request.tools.is_empty() {
            self.raw("]");
        }
    }

    fn effort(&mut self, wanted: &str) {
        let quirks = &self.options.quirks;
        let effort = clamp_effort(wanted, &self.options.model, quirks);
        match (quirks.reasoning, effort) {
            (ReasoningField::Thinking, None) => self.raw(",\"thinking\":{\"type\":\"disabled\"}"),
            (ReasoningField::None, _) | (_, None) => {}
            (ReasoningField::Effort, Some(effort)) => self.member("reasoning_effort", effort),
            (ReasoningField::Object, Some(effort)) => {
                self.raw(",\"reasoning\":{\"effort\":");
                self.json(effort);
                self.raw("}");
            }
            (ReasoningField::Thinking, Some(effort)) => {
                self.raw(",\"thinking\":{\"type\":\"enabled\"}");
                self.member("reasoning_effort", effort);
            }
        }
    }

    fn messages(&mut self, request: &ChatRequest) {
        let mut first = true;
        if !request.system.is_empty() {
            self.raw(match self.options.quirks.system_role {
                SystemRole::System => "{\"role\":\"system\",\"content\":",
                SystemRole::Developer => "{\"role\":\"developer\",\"content\":",
            });
            self.json(&*String::from_utf8_lossy(&request.system));
            self.raw("}");
            first = false;
        }
        for message in &request.messages {
            if !std::mem::take(&mut first) {
                self.raw(",");
            }
            self.message(message);
        }
    }

    fn message(&mut self, message: &ChatMessage) {
        match message {
            ChatMessage::User { text, images } => {
                self.raw("{\"role\":\"user\",\"content\":");
                self.content(text, images);
            }
            ChatMessage::Assistant { text, reasoning, sidecar, calls, .. } => {
                self.raw("{\"role\":\"assistant\",\"content\":");
                let null =
                    text.is_empty() && !calls.is_empty() && self.options.quirks.empty_content == EmptyContent::Null;
                if null {
                    self.raw("null");
                } else {
                    self.json(text);
                }
                self.reasoning(reasoning.as_deref(), !calls.is_empty());
                self.sidecar(sidecar.as_ref());
                self.calls(calls);
            }
            ChatMessage::Tool { call_id, name, content, .. } => {
                self.raw("{\"role\":\"tool\",\"tool_call_id\":");
                let id = wire_id(call_id, self.options.quirks.tool_ids);
                self.json(&*id);
                self.member("content", &*clean_listing(name, content, self.dialect()));
            }
        }
        self.raw("}");
    }

    /// Text alone is a string: every server knows that.
    fn content(&mut self, text: &str, images: &[Image]) {
        if images.is_empty() {
            return self.json(text);
        }
        self.raw("[{\"type\":\"text\",\"text\":");
        self.json(text);
        self.raw("}");
        for image in images {
            self.raw(",{\"type\":\"image_url\",\"image_url\":{\"url\":");
            self.json(&data_url(image));
            self.raw("}}");
        }
        self.raw("]");
    }

    fn reasoning(&mut self, reasoning: Option<&str>, has_calls: bool) {
        let quirks = &self.options.quirks;
        let echoed = reasoning.filter(|text| !text.is_empty() && quirks.reasoning_echo != ReasoningEcho::None);
        let padded = has_calls && matches_part(&self.options.model, &quirks.echo_pad_models);
        let Some(text) = echoed.or(padded.then_some(REASONING_PAD)) else { return };
        self.member("reasoning_content", text);
        if quirks.reasoning_echo == ReasoningEcho::All && echoed.is_some() {
            self.member("reasoning", text);
        }
    }

    /// Another issuer's state never goes out; ours goes out byte for byte.
    fn sidecar(&mut self, sidecar: Option<&Sidecar>) {
        let Some(sidecar) = sidecar.filter(|sidecar| sidecar.issuer == self.options.issuer) else { return };
        let Ok(opaque) = serde_json::from_slice::<Opaque<'_>>(&sidecar.bytes) else { return };
        if let Some(details) = opaque.reasoning_details {
            self.raw(",\"reasoning_details\":");
            self.raw(details.get());
        }
    }

    fn calls(&mut self, calls: &[ToolCall]) {
        for (at, call) in calls.iter().enumerate() {
            self.raw(if at == 0 { ",\"tool_calls\":[" } else { "," });
            self.raw("{\"id\":");
            let id = wire_id(&call.id, self.options.quirks.tool_ids);
            self.json(&*id);
            self.raw(",\"type\":\"function\",\"function\":{\"name\":");
            let name = self.names.wire(&call.name);
            self.json(&*name);
            self.member("arguments", &call.arguments);
            self.raw("}}");
        }
        if !calls.is_empty() {
            self.raw("]");
        }
    }
}

fn matches_part(model: &str, parts: &[String]) -> bool {
    let model = model.to_lowercase();
    parts.iter().any(|part| model.contains(part.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ToolSchema;
    use crate::profile::{Profiles, ToolIds};
    use serde_json::{Value, json};

    fn options(profile: &str) -> WireOptions {
        let quirks = Profiles::bundled().unwrap().get(profile).unwrap().quirks.clone();
        WireOptions { model: "m".into(), issuer: "chat_completions/x/m".into(), quirks }
    }

    fn request(messages: Vec<ChatMessage>) -> ChatRequest {
        ChatRequest { system: Bytes::from_static("You are ünï.".as_bytes()), ..ChatRequest::new(messages) }
    }

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(text)
    }

    fn call(id: &str, name: &str, arguments: &str) -> ChatMessage {
        ChatMessage::Assistant {
            text: String::new(),
            reasoning: None,
            sidecar: None,
            calls: vec![ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }],
        }
    }

    fn result(id: &str) -> ChatMessage {
        ChatMessage::Tool {
            call_id: id.into(),
            name: "t".into(),
            content: "ok\u{0}".into(),
            is_error: false,
            images: Vec::new(),
        }
    }

    fn body(request: &ChatRequest, profile: &str) -> Value {
        serde_json::from_slice(&encode(request, &options(profile)).body).unwrap()
    }

    #[test]
    fn i18_each_body_is_a_byte_prefix_of_the_next() {
        let mut all = request(Vec::new());
        all.tools =
            vec![ToolSchema { name: "a b".into(), description: "d".into(), parameters: json!({"type": "object"}) }]
                .into();
        all.max_output_tokens = Some(100);
        let history =
            [user("hi 🦀"), call("c1", "a b", "{ \"x\" : 1.0 }"), result("c1"), user("go"), call("c2", "gone", "")];
        for profile in ["openai", "openrouter", "deepseek", "mistral", "custom"] {
            let mut before: Option<Bytes> = None;
            for message in &history {
                all.messages.push(message.clone());
                let now = encode(&all, &options(profile)).body;
                if let Some(before) = before {
                    let prefix = before.strip_suffix(b"]}").unwrap();
                    assert!(now.starts_with(prefix), "{profile}");
                }
                before = Some(now);
            }
            all.messages.clear();
        }
    }

    #[test]
    fn the_keys_have_a_fixed_order() {
        let mut full = request(vec![user("hi")]);
        full.temperature = Some(0.7);
        full.max_output_tokens = Some(9);
        full.reasoning_effort = Some("high".into());
        let text = String::from_utf8(encode(&full, &options("custom")).body.to_vec()).unwrap();
        assert_eq!(
            text,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":0.7,"max_tokens":9,"#
                .to_owned()
                + r#""reasoning_effort":"high","messages":[{"role":"system","content":"You are ünï."},"#
                + r#"{"role":"user","content":"hi"}]}"#
        );
    }

    #[test]
    fn members_of_the_profile_go_to_the_models_that_they_name() {
        let of = |model: &str| {
            let options = WireOptions { model: model.into(), ..options("alibaba") };
            serde_json::from_slice::<Value>(&encode(&request(vec![user("hi")]), &options).body).unwrap()
        };
        assert_eq!(of("qwen3.7-max")["preserve_thinking"], true);
        assert_eq!(of("glm-5.1")["clear_thinking"], false);
        assert_eq!(of("qwen-plus").get("preserve_thinking"), None);
    }

    #[test]
    fn w4_no_tools_means_no_field() {
        let body = body(&request(vec![user("hi")]), "openai");
        assert!(body.get("tools").is_none() && body.get("tool_choice").is_none());
    }

    #[test]
    fn i19_arguments_keep_their_bytes() {
        for arguments in ["{ \"b\":1.50, \"a\" : \"\\u00e9\" }", "{\"cut", "", "nul \u{0} \u{2028}"] {
            let body = body(&request(vec![user("x"), call("c", "t", arguments), result("c")]), "custom");
            assert_eq!(body["messages"][2]["tool_calls"][0]["function"]["arguments"], arguments);
            assert_eq!(body["messages"][3]["content"], "ok\u{0}");
        }
    }

    #[test]
    fn content_without_text_follows_the_profile() {
        let history = vec![user("x"), call("c", "t", "{}"), result("c")];
        assert_eq!(body(&request(history.clone()), "openai")["messages"][2]["content"], Value::Null);
        assert_eq!(body(&request(history), "ollama")["messages"][2]["content"], "");
    }

    fn thinking(reasoning: Option<&str>, issuer: &str) -> ChatMessage {
        ChatMessage::Assistant {
            text: "t".into(),
            reasoning: reasoning.map(Into::into),
            sidecar: Some(Sidecar {
                issuer: issuer.into(),
                bytes: Bytes::from_static(b"{\"reasoning_details\":[ {\"n\":1.0,\"s\":\"\\u00e9\"} ]}"),
            }),
            calls: vec![ToolCall { id: "c".into(), name: "t".into(), arguments: "{}".into() }],
        }
    }

    #[test]
    fn reasoning_goes_back_as_the_profile_says() {
        let keys = |profile: &str, reasoning| {
            let body = body(&request(vec![user("x"), thinking(reasoning, "other")]), profile);
            let message = body["messages"][2].as_object().unwrap().clone();
            (message.get("reasoning_content").cloned(), message.get("reasoning").cloned())
        };
        assert_eq!(keys("groq", Some("r")), (None, None));
        assert_eq!(keys("custom", Some("r")), (Some("r".into()), None));
        assert_eq!(keys("openrouter", Some("r")), (Some("r".into()), Some("r".into())));
        assert_eq!(keys("deepseek", None), (Some(" ".into()), None));
        assert_eq!(keys("custom", None), (None, None));
    }

    #[test]
    fn i19_i21_a_sidecar_goes_back_byte_for_byte_and_to_its_issuer_only() {
        let text = |issuer: &str| {
            let request = request(vec![user("x"), thinking(None, issuer)]);
            String::from_utf8(encode(&request, &options("openrouter")).body.to_vec()).unwrap()
        };
        assert!(text("chat_completions/x/m").contains(r#""reasoning_details":[ {"n":1.0,"s":"\u00e9"} ]"#));
        assert!(!text("chat_completions/y/m").contains("reasoning_details"));
    }

    #[test]
    fn mistral_gets_nine_character_ids_in_pairs() {
        let history = vec![user("x"), call("call_long_1", "t", "{}"), result("call_long_1")];
        let body = body(&request(history), "mistral");
        let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
        assert_eq!(id.len(), 9);
        assert_eq!(body["messages"][3]["tool_call_id"], id);
        assert!(body.get("stream_options").is_none());
        assert_eq!(options("mistral").quirks.tool_ids, ToolIds::Alnum9);
    }
}
