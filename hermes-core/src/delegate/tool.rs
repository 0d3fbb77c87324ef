//! `delegate_task`: what the model calls, and what it is told.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use hermes_store::{DelegationRecord, DelegationState};
use hermes_tools::{
    Authorized, Call, CallOutcome, CallReport, Concurrency, ReplaySafety, Risk, Tool, ToolContext, ToolSpec,
};
use serde_json::{Value, json};

use super::child::{Desk, Entry};
use super::control::Control;
use super::{DelegationSettings, TOOL};
use crate::limits::{GOAL_MAX_CHARS, TASK_CONTEXT_MAX_CHARS};

/// Tools that a child never has: they speak for the user, or outlive the task. [`TOOL`] is kept from it unless it may
/// have children of its own.
const KEPT_FROM_CHILDREN: &[&str] = &[TOOL, "clarify", "memory", "send_message", "cronjob_manage"];
/// Toolsets that a child never has.
const SETS_KEPT_FROM_CHILDREN: &[&str] = &["delegation", "kanban"];

/// Whether a child never has this tool.
pub(crate) fn is_kept_from_children(spec: &ToolSpec) -> bool {
    KEPT_FROM_CHILDREN.contains(&spec.name.as_str()) || SETS_KEPT_FROM_CHILDREN.contains(&spec.toolset)
}

/// One task as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Task {
    pub goal: String,
    pub context: String,
    /// Toolsets that it is narrowed to.
    pub toolsets: Option<Vec<String>>,
}

impl Task {
    /// What the child reads. It sees nothing else of its parent.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "Another conversation of this program has given you a task. You see nothing of that conversation but what \
             stands here, and nobody can answer questions. Do the task with the tools that you have. Your last message is \
             all that the other conversation gets: say in it what you did, what you found, and what is still open.\n\n\
             Task:\n{}",
            self.goal
        );
        if !self.context.is_empty() {
            let _ = write!(text, "\n\nWhat you have to know for it:\n{}", self.context);
        }
        text
    }
}

/// The tool as a host registers it, so that it can be selected and listed like any other. A turn of an engine with
/// [`EngineSettings::delegation`](crate::EngineSettings::delegation) has its own in place of it.
#[must_use]
pub fn delegate_tool(settings: &DelegationSettings) -> Arc<dyn Tool> {
    Arc::new(DelegateTool { spec: spec(settings), desk: None })
}

/// The tool of one turn.
pub(crate) struct DelegateTool {
    spec: ToolSpec,
    /// None in the one that a host registers.
    desk: Option<Arc<Desk>>,
}

impl DelegateTool {
    pub(crate) fn new(settings: &DelegationSettings, desk: Arc<Desk>) -> Self {
        Self { spec: spec(settings), desk: Some(desk) }
    }

    async fn run(&self, call: &Call, cx: &ToolContext) -> Result<CallReport, String> {
        let desk = self.desk.as_ref().ok_or("tasks cannot be given away here")?;
        if let Some(control) = Control::read(&call.arguments)? {
            return desk.control(&call.id, &control).await;
        }
        let tasks = read(&call.arguments, desk.settings.max_concurrent_children)?;
        let background = call.arguments["background"].as_bool().unwrap_or(false);
        if background {
            return in_background(desk, call, &tasks).await;
        }
        let given = given_away(desk, call, &tasks, background).await?;
        let waits = given.into_iter().map(|given| {
            let wait = given.map(|record| desk.hand_in(record, cx.cancel.clone()));
            async {
                match wait {
                    Ok(wait) => Ok(wait.await),
                    Err(why) => Err(why),
                }
            }
        });
        let entries = join_all(waits).await;
        Ok(told(&entries, desk.settings.max_summary_chars))
    }
}

/// Gives the tasks of a call away, each by itself: one that cannot be does not take the others with it.
///
/// # Errors
/// Why none of them was given away.
async fn given_away(
    desk: &Desk,
    call: &Call,
    tasks: &[Task],
    background: bool,
) -> Result<Vec<Result<DelegationRecord, String>>, String> {
    let mut given = Vec::with_capacity(tasks.len());
    for (number, task) in tasks.iter().enumerate() {
        given.push(desk.dispatch(&call.id, number, task, background).await);
    }
    match given.first() {
        Some(Err(why)) if given.iter().all(Result::is_err) => Err(why.clone()),
        _ => Ok(given),
    }
}

async fn in_background(desk: &Desk, call: &Call, tasks: &[Task]) -> Result<CallReport, String> {
    desk.check_background(&call.id, tasks.len()).await?;
    let given = given_away(desk, call, tasks, true).await?;
    desk.wake_background();
    let told = given.iter().enumerate().map(|(at, given)| match given {
        Ok(record) => json!({"task_index": at, "status": "dispatched", "subagent_id": record.id.as_str(),
            "conversation": record.child.as_str()}),
        Err(why) => not_begun(at, why),
    });
    let told: Vec<Value> = told.collect();
    let note = "Go on with something else, or answer. Each result comes later as an input of its own.";
    let mut report = CallReport::new(CallOutcome::Ok, json!({ "results": told, "note": note }).to_string());
    let ids: Vec<&str> = given.iter().flatten().map(|record| record.id.as_str()).collect();
    report.summary = format!("{} tasks in the background", ids.len());
    report.meta = Some(json!({ "delegations": ids }));
    Ok(report)
}

fn not_begun(at: usize, why: &str) -> Value {
    json!({"task_index": at, "status": "not_begun", "summary": why})
}

/// The results in the order of the tasks.
fn told(entries: &[Result<Option<Entry>, String>], max: usize) -> CallReport {
    let results = entries.iter().enumerate().map(|(at, entry)| match entry {
        Ok(entry) => worded(at, entry.as_ref(), max),
        Err(why) => not_begun(at, why),
    });
    let results: Vec<Value> = results.collect();
    let ended = || entries.iter().flatten().flatten();
    let count = |state| ended().filter(|entry| entry.record.state == state).count();
    let completed = count(DelegationState::Completed);
    let outcome = match completed {
        0 if count(DelegationState::Cancelled) > 0 => CallOutcome::Interrupted,
        0 => CallOutcome::Failed,
        _ => CallOutcome::Ok,
    };
    let mut report = CallReport::new(outcome, json!({ "results": results }).to_string());
    report.summary = format!("{completed} of {} tasks done", entries.len());
    let ids: Vec<&str> = ended().map(|entry| entry.record.id.as_str()).collect();
    report.meta = Some(json!({ "delegations": ids }));
    report
}

fn worded(at: usize, entry: Option<&Entry>, max_chars: usize) -> Value {
    let Some(Entry { record, turn }) = entry else {
        return json!({"task_index": at, "status": "unknown",
            "summary": "What became of it could not be stored. It may have been done in part."});
    };
    let status = match record.state {
        DelegationState::Completed => "completed",
        DelegationState::Failed => "failed",
        DelegationState::Cancelled => "interrupted",
        DelegationState::Running | DelegationState::Unknown => "unknown",
    };
    let text = record.result.as_deref().unwrap_or_default();
    let cut = text.char_indices().nth(max_chars).map(|(at, _)| at);
    json!({
        "task_index": at,
        "status": status,
        "summary": text.get(..cut.unwrap_or(text.len())).unwrap_or(text),
        "truncated": cut.is_some(),
        "exit_reason": turn.as_ref().and_then(|turn| turn.reason.clone()),
        "api_calls": turn.as_ref().map_or(0, |turn| turn.api_calls),
        "conversation": record.child.as_str(),
    })
}

fn spec(settings: &DelegationSettings) -> ToolSpec {
    let task = json!({
        "goal": {"type": "string", "description": "What is to be done, and what to report."},
        "context": {"type": "string",
            "description": "Everything the child has to know: it does not see this conversation."},
        "toolsets": {"type": "array", "items": {"type": "string"},
            "description": "Only these toolsets; left out: all that you have and a child may have."},
    });
    let mut properties = task.clone();
    properties["tasks"] = json!({"type": "array", "maxItems": settings.max_concurrent_children,
        "items": {"type": "object", "required": ["goal"], "properties": task},
        "description": "Several tasks at once, in place of goal, context and toolsets."});
    properties["background"] = json!({"type": "boolean",
        "description": "Do not wait: the results come later as an input of their own."});
    properties["action"] = json!({"type": "string", "enum": ["spawn", "list", "steer", "stop"],
        "description": "Left out or spawn: give tasks away. list: the children of this conversation and how far they are. \
                        steer: tell one something. stop: end one."});
    properties["subagent_id"] =
        json!({"type": "string", "description": "The child, for steer and stop, as list shows it."});
    properties["message"] =
        json!({"type": "string", "description": "For steer: what the child reads with its next step."});
    ToolSpec {
        name: TOOL.to_owned(),
        toolset: "delegation",
        description: format!(
            "Gives a task, or up to {} independent tasks at once, to child agents that work beside each other with your \
             tools and their own context, and returns their reports. For work that would fill your context, or that can \
             be done in parallel. A child sees only its goal and context, and asks nobody. Children in the background can be listed, steered and \
             stopped (action).",
            settings.max_concurrent_children
        ),
        parameters: json!({"type": "object", "properties": properties}),
        replay: ReplaySafety::Idempotent,
        concurrency: Concurrency::Shared,
        timed: false,
        result_max_chars: None,
    }
}

/// The tasks of a call.
fn read(arguments: &Value, width: usize) -> Result<Vec<Task>, String> {
    let tasks: Vec<&Value> = match arguments["tasks"].as_array() {
        Some(tasks) if !tasks.is_empty() => {
            if arguments["goal"].is_string() {
                return Err("give either goal or tasks, not both".to_owned());
            }
            tasks.iter().collect()
        }
        _ => vec![arguments],
    };
    if tasks.len() > width {
        return Err(format!(
            "{} tasks were given, and at most {width} may be given at once; make several calls",
            tasks.len()
        ));
    }
    tasks.into_iter().map(read_one).collect()
}

fn read_one(value: &Value) -> Result<Task, String> {
    let text = |name: &str| value[name].as_str().unwrap_or_default().trim().to_owned();
    let (goal, context) = (text("goal"), text("context"));
    if goal.is_empty() {
        return Err("a task needs a goal".to_owned());
    }
    for (name, text, max) in [("goal", &goal, GOAL_MAX_CHARS), ("context", &context, TASK_CONTEXT_MAX_CHARS)] {
        let chars = text.chars().count();
        if chars > max {
            return Err(format!("the {name} of a task has {chars} characters, and {max} are allowed"));
        }
    }
    let names = value["toolsets"].as_array().filter(|names| !names.is_empty());
    let toolsets = names.map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    Ok(Task { goal, context, toolsets })
}

#[async_trait]
impl Tool for DelegateTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// What a child does is judged when it does it.
    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::None
    }

    fn label(&self, call: &Call) -> String {
        if let Ok(Some(control)) = Control::read(&call.arguments) {
            return match control {
                Control::List => "list".to_owned(),
                Control::Steer { child, message } => {
                    format!("steer {child}: {}", message.lines().next().unwrap_or_default())
                }
                Control::Stop { child } => format!("stop {child}"),
            };
        }
        match call.arguments["tasks"].as_array() {
            Some(tasks) if !tasks.is_empty() => format!("{} tasks", tasks.len()),
            _ => call.arguments["goal"].as_str().and_then(|goal| goal.lines().next()).unwrap_or_default().to_owned(),
        }
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        match self.run(&call, cx).await {
            Ok(report) => report,
            Err(why) => {
                let text = json!({ "error": format!("{TOOL}: {why}") }).to_string();
                CallReport::new(CallOutcome::Failed, text).with_summary("not delegated")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_holds_one_task_or_a_batch_within_its_limits() {
        let one = read(&json!({"goal": " look ", "context": "here", "toolsets": ["file"]}), 2).unwrap();
        let want = Task { goal: "look".into(), context: "here".into(), toolsets: Some(vec!["file".into()]) };
        assert_eq!(one, [want]);
        let batch = read(&json!({"tasks": [{"goal": "a"}, {"goal": "b"}]}), 2).unwrap();
        assert_eq!(batch.iter().map(|task| task.goal.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        for (arguments, part) in [
            (json!({}), "needs a goal"),
            (json!({"tasks": []}), "needs a goal"),
            (json!({"tasks": [{"goal": "a"}, {"goal": "  "}]}), "needs a goal"),
            (json!({"goal": "x", "tasks": [{"goal": "a"}]}), "not both"),
            (json!({"tasks": [{"goal": "a"}, {"goal": "b"}, {"goal": "c"}]}), "at most 2"),
            (json!({"goal": "x".repeat(GOAL_MAX_CHARS + 1)}), "characters"),
            (json!({"goal": "x", "context": "x".repeat(TASK_CONTEXT_MAX_CHARS + 1)}), "characters"),
        ] {
            let error = read(&arguments, 2).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
