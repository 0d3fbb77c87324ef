//! Plain requests to steps.

use serde_json::{Value, json};

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Run(String),
    Read(String),
    Write { path: String, content: String },
    Search(String),
    Todo(Vec<String>),
}

impl Step {
    /// The tool that does it.
    pub(super) fn tool(&self) -> &'static str {
        match self {
            Self::Run(_) => "terminal",
            Self::Read(_) => "read_file",
            Self::Write { .. } => "write_file",
            Self::Search(_) => "search_files",
            Self::Todo(_) => "todo_list",
        }
    }

    /// The tool's arguments.
    pub(super) fn arguments(&self) -> Value {
        match self {
            Self::Run(command) => json!({"command": command}),
            Self::Read(path) => json!({"path": path}),
            Self::Write { path, content } => json!({"path": path, "content": content}),
            Self::Search(pattern) => json!({"pattern": pattern}),
            Self::Todo(items) => {
                let item = |(at, text): (usize, &String)| json!({"id": (at + 1).to_string(), "content": text, "status": "pending"});
                json!({"todos": items.iter().enumerate().map(item).collect::<Vec<_>>()})
            }
        }
    }

    /// One line of a request; `None` when it is none of ours.
    fn read(line: &str) -> Option<Self> {
        let (verb, rest) = line.split_once(':')?;
        let rest = rest.trim();
        if rest.is_empty() {
            return None;
        }
        match verb.trim().to_lowercase().as_str() {
            "run" => Some(Self::Run(rest.to_owned())),
            "read" => Some(Self::Read(rest.to_owned())),
            "write" => {
                // A blank must follow the colon, so that a path may hold one.
                let (path, content) = rest.split_once(": ").or_else(|| Some((rest.strip_suffix(':')?, "")))?;
                Some(Self::Write { path: path.trim().to_owned(), content: content.trim_start().to_owned() })
            }
            "search" => Some(Self::Search(rest.to_owned())),
            "todo" => {
                let items: Vec<String> =
                    rest.split(';').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect();
                (!items.is_empty()).then_some(Self::Todo(items))
            }
            _ => None,
        }
    }
}

/// What a message asks for: rounds of steps; the steps of a round go out together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) rounds: Vec<Vec<Step>>,
    /// Lines that were not understood.
    pub(super) unknown: Vec<String>,
}

impl Plan {
    /// Reads a message. A line `then`, or `then` before a step, begins the next round.
    pub(super) fn read(text: &str) -> Self {
        let mut plan = Self { rounds: vec![Vec::new()], unknown: Vec::new() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let step = match after_then(line) {
                Some(rest) => {
                    plan.rounds.push(Vec::new());
                    rest
                }
                None => line,
            };
            match (Step::read(step), plan.rounds.last_mut()) {
                (Some(step), Some(round)) => round.push(step),
                _ if step.is_empty() => {}
                _ => plan.unknown.push(line.to_owned()),
            }
        }
        plan.rounds.retain(|round| !round.is_empty());
        plan
    }

    /// All steps in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.rounds.iter().flatten()
    }
}

fn after_then(line: &str) -> Option<&str> {
    let head = line.get(..4).filter(|head| head.eq_ignore_ascii_case("then"))?;
    let rest = &line[head.len()..];
    let rest = rest.strip_prefix([':', ',', ' ', '\t']).or(rest.is_empty().then_some(""))?;
    Some(rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parallel_and_then_is_next() {
        let plan = Plan::read(
            "run: a: b\nRead: x.txt\n\nthen\nwrite: a:b.txt: hello: you\nthen search: p\ntodo: a; b;\nthenx",
        );
        assert_eq!(
            plan.rounds,
            [
                vec![Step::Run("a: b".into()), Step::Read("x.txt".into())],
                vec![Step::Write { path: "a:b.txt".into(), content: "hello: you".into() }],
                vec![Step::Search("p".into()), Step::Todo(vec!["a".into(), "b".into()])],
            ]
        );
        assert_eq!(plan.unknown, ["thenx"]);
    }

    #[test]
    fn other_text_is_no_plan() {
        for text in ["", "hello", "run:", "write: x", "then", "what: is this?", "日本"] {
            assert!(Plan::read(text).rounds.is_empty(), "{text}");
        }
    }
}
