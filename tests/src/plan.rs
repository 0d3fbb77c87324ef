//! What the scripted model answers: a pure function of the request.
//!
//! The last user message that holds a directive is read; the number of assistant messages with calls after it is the
//! round. Directives: `RUN_TOOLS n` (rounds of one `terminal` call), `PAR k` (calls in each round), `CMD{...}CMD` (the
//! command; `{i}` is the round, `{j}` the call), `ASK{tool arguments}ASK` (another tool in place of `terminal`, once), `LONG m` (the final text has m words), `SAY{...}SAY` (the final text), `SLOW ms`
//! (wait before each answer). Faults, each for the first n requests with the same text (1 by default): `F429 F500 F503 FCUT FCTX FHANG FSTALL
//! FBADJSON FEMPTY FAUTH`, and `FAT r`: only from round r on.

use serde_json::Value;

/// A way in which a request goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// 429 with `Retry-After: 1`.
    F429,
    /// 500.
    F500,
    /// 503.
    F503,
    /// Half of the chunks, then the connection is closed.
    FCut,
    /// 400 `context_length_exceeded`.
    FCtx,
    /// Headers, then nothing.
    FHang,
    /// Half of the chunks, then nothing.
    FStall,
    /// Arguments that are not JSON.
    FBadJson,
    /// 200 with an empty message.
    FEmpty,
    /// 401.
    FAuth,
}

const FAULTS: &[(&str, Fault)] = &[
    ("F429", Fault::F429),
    ("F500", Fault::F500),
    ("F503", Fault::F503),
    ("FCUT", Fault::FCut),
    ("FCTX", Fault::FCtx),
    ("FHANG", Fault::FHang),
    ("FSTALL", Fault::FStall),
    ("FBADJSON", Fault::FBadJson),
    ("FEMPTY", Fault::FEmpty),
    ("FAUTH", Fault::FAuth),
];

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The user's text, the key of fault budgets.
    pub key: String,
    /// Faults that may apply, with the number of requests that each applies to.
    pub faults: Vec<(Fault, u32)>,
    /// Calls of this round: id and command, or whole arguments of another tool.
    pub calls: Vec<(String, String)>,
    /// The tool that is called; none for `terminal`.
    pub tool: Option<String>,
    /// Chunks of text when there are no calls.
    pub chunks: Vec<String>,
    /// Wait before the answer, in milliseconds.
    pub slow_ms: u64,
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

fn has_directive(text: &str) -> bool {
    words(text).any(|(word, _)| word == "RUN_TOOLS" || word == "PAR" || word == "LONG" || word.starts_with('F'))
        || text.contains("CMD{")
        || text.contains("ASK{")
}

/// Directives with their number.
fn words(text: &str) -> impl Iterator<Item = (&str, Option<u32>)> {
    const KNOWN: &[&str] = &["RUN_TOOLS", "PAR", "LONG", "SLOW", "FAT"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let numbered: Vec<(&str, Option<u32>)> =
        words.iter().enumerate().map(|(at, word)| (*word, words.get(at + 1).and_then(|n| n.parse().ok()))).collect();
    numbered.into_iter().filter(|(word, _)| KNOWN.contains(word) || FAULTS.iter().any(|(name, _)| name == word))
}

/// Decides over a request.
pub fn plan(request: &Value, serial: u64) -> Plan {
    let empty = Vec::new();
    let messages = request["messages"].as_array().unwrap_or(&empty);
    let mut chosen = None;
    for (at, message) in messages.iter().enumerate().rev() {
        let is_call = message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        match message["role"].as_str() {
            Some("user") => {
                let text = text_of(message);
                if has_directive(&text) {
                    chosen = Some((at, text));
                    break;
                }
                chosen.get_or_insert((at, text));
            }
            Some("assistant") if !is_call && chosen.is_some() => break,
            _ => {}
        }
    }
    let (at, text) = chosen.unwrap_or_default();
    let round = messages[at.min(messages.len())..]
        .iter()
        .filter(|message| message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty()))
        .count();
    let number = |name: &str| words(&text).find(|(word, _)| *word == name).map(|(_, n)| n);
    let command = text.split_once("CMD{").and_then(|(_, rest)| rest.split_once("}CMD")).map(|(command, _)| command);
    let asked = text.split_once("ASK{").and_then(|(_, rest)| rest.split_once("}ASK"));
    let asked = asked.and_then(|(call, _)| call.split_once(' '));
    let command = asked.map_or(command, |(_, arguments)| Some(arguments));
    let said = text.split_once("SAY{").and_then(|(_, rest)| rest.split_once("}SAY")).map(|(said, _)| said);
    let par = number("PAR").flatten().unwrap_or(1) as usize;
    let default_rounds = usize::from(number("PAR").is_some() || command.is_some());
    let rounds = number("RUN_TOOLS").flatten().map_or(default_rounds, |n| n as usize);
    let from_round = number("FAT").flatten().unwrap_or(0) as usize;
    let faults = words(&text)
        .filter_map(|(word, n)| {
            FAULTS.iter().find(|(name, _)| *name == word).map(|(_, fault)| (*fault, n.unwrap_or(1)))
        })
        .filter(|_| round >= from_round)
        .collect();
    let calls: Vec<(String, String)> = if round < rounds {
        (0..par)
            .map(|call| {
                let command = command.unwrap_or(if par == 1 { "echo hi-{i}" } else { "echo hi-{i}-{j}" });
                let command = command.replace("{i}", &round.to_string()).replace("{j}", &call.to_string());
                (format!("call_{serial}_{round}_{call}"), command)
            })
            .collect()
    } else {
        Vec::new()
    };
    let chunks = match (calls.is_empty(), number("LONG")) {
        (false, _) => Vec::new(),
        (true, _) if said.is_some() => said.map(str::to_owned).into_iter().collect(),
        (true, Some(words)) => (0..words.unwrap_or(100)).map(|n| format!("tok{n} ")).collect(),
        (true, None) if rounds > 0 => vec!["do".to_owned(), "ne".to_owned()],
        (true, None) => ["ok, ", "short ", "answer"].map(str::to_owned).to_vec(),
    };
    let tool = asked.map(|(tool, _)| tool.to_owned());
    Plan { key: text.clone(), faults, calls, tool, chunks, slow_ms: number("SLOW").flatten().unwrap_or(0).into() }
}

/// What is wrong with the pairs of a request, as the strictest provider would see it.
pub fn pair_error(request: &Value) -> Option<String> {
    let messages = request["messages"].as_array()?;
    let mut open: Vec<String> = Vec::new();
    let mut last = "";
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or("");
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or("");
            if open.first().map(String::as_str) != Some(id) {
                return Some(format!("message {at}: a result for {id:?}, and {open:?} are open"));
            }
            open.remove(0);
        } else {
            if !open.is_empty() {
                return Some(format!("message {at}: the calls {open:?} have no result"));
            }
            if role == "user" && last == "user" {
                return Some(format!("message {at}: two user messages in a row"));
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let arguments = call["function"]["arguments"].as_str().unwrap_or("");
                if serde_json::from_str::<Value>(arguments).is_err() {
                    return Some(format!("message {at}: arguments that are not JSON: {arguments}"));
                }
                open.push(call["id"].as_str().unwrap_or("").to_owned());
            }
        }
        last = role;
    }
    (!open.is_empty()).then(|| format!("the calls {open:?} have no result"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_depends_on_the_request_alone() {
        let call = json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]});
        let result = json!({"role": "tool", "tool_call_id": "a", "content": "x"});
        let user = json!({"role": "user", "content": "RUN_TOOLS 2 CMD{echo {i}}CMD FAT 1 F500 3"});
        let first = plan(&json!({"messages": [user]}), 1);
        assert_eq!(first.calls, [("call_1_0_0".to_owned(), "echo 0".to_owned())]);
        assert!(first.faults.is_empty());
        let second = plan(&json!({"messages": [user, call, result]}), 2);
        assert_eq!((second.calls[0].1.as_str(), &second.faults[..]), ("echo 1", &[(Fault::F500, 3)][..]));
        let third = plan(&json!({"messages": [user, call, result, call, result]}), 3);
        assert_eq!(third.chunks.concat(), "done");
        let plain = json!({"role": "assistant", "content": "done"});
        let later = plan(&json!({"messages": [user, call, result, plain, {"role": "user", "content": "hello"}]}), 4);
        assert_eq!(later.chunks.concat(), "ok, short answer");
    }

    #[test]
    fn unpaired_requests_are_seen() {
        let call = json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]});
        let result = json!({"role": "tool", "tool_call_id": "a", "content": "x"});
        let user = json!({"role": "user", "content": "x"});
        assert_eq!(pair_error(&json!({"messages": [user, call, result]})), None);
        for bad in [json!([user, call]), json!([user, result]), json!([user, call, user]), json!([user, user])] {
            assert!(pair_error(&json!({"messages": bad})).is_some(), "{bad}");
        }
    }
}
