//! `todo_list`: the model's list of what is to be done.

use std::collections::HashSet;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{done, failed, flag};
use crate::approval::{Authorized, Risk};
use crate::session::{TodoItem, TodoStatus, ToolSession};
use crate::tool::{Call, CallReport, Concurrency, ReplaySafety, Tool, ToolContext, ToolSpec};

/// Items of a list (tools reference, 2.1).
const ITEMS_MAX: usize = 256;

/// Longest text of an item, in characters.
const CONTENT_MAX_CHARS: usize = 4_000;

/// Keeps the todo list.
pub(super) struct TodoList {
    spec: ToolSpec,
}

/// What a result says, as far as an earlier one is read back.
#[derive(Deserialize)]
struct Saved {
    todos: Vec<TodoItem>,
    revision: u64,
}

impl TodoList {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "todos": {"type": "array", "description": "The whole list, or with merge=true the items that change.",
                    "items": {"type": "object", "required": ["id", "content", "status"], "properties": {
                        "id": {"type": "string"},
                        "content": {"type": "string"},
                        "status": {"type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"]},
                        "parent": {"type": "string", "description": "Id of the item that this is a part of."}
                    }}},
                "merge": {"type": "boolean", "default": false,
                    "description": "Change or add the given items and keep the others."}
            },
            "required": []
        });
        Self {
            spec: ToolSpec {
                name: "todo_list".to_owned(),
                toolset: "todo",
                description:
                    "Your list of what is to be done in this conversation. Without arguments it is shown. Keep \
                    one item in_progress at a time and mark items as soon as they are done."
                        .to_owned(),
                parameters,
                replay: ReplaySafety::Idempotent,
                concurrency: Concurrency::Barrier,
                timed: true,
                result_max_chars: Some(usize::MAX),
            },
        }
    }
}

#[async_trait]
impl Tool for TodoList {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self, _call: &Call, _cx: &ToolContext) -> Risk {
        Risk::None
    }

    fn label(&self, call: &Call) -> String {
        match call.arguments["todos"].as_array() {
            Some(items) => format!("todo list: {} items", items.len()),
            None => "todo list".to_owned(),
        }
    }

    async fn call(&self, call: Authorized<Call>, cx: &ToolContext) -> CallReport {
        let call = call.into_inner();
        let given = &call.arguments["todos"];
        if given.is_null() {
            let (todos, revision) = cx.session.todos();
            return answer(&todos, revision);
        }
        let items: Vec<TodoItem> = match serde_json::from_value(given.clone()) {
            Ok(items) => items,
            Err(error) => return failed(format!("the list is not valid: {error}; nothing was changed")),
        };
        let list = if flag(&call, "merge") { merged(cx.session.todos().0, items) } else { items };
        if let Err(why) = check(&list) {
            return failed(format!("{why}; nothing was changed"));
        }
        let revision = cx.session.set_todos(list.clone());
        answer(&list, revision)
    }

    fn hydrate(&self, session: &ToolSession, result: &str) {
        if let Ok(saved) = serde_json::from_str::<Saved>(result) {
            session.restore_todos(saved.todos, saved.revision);
        }
    }
}

fn merged(mut list: Vec<TodoItem>, items: Vec<TodoItem>) -> Vec<TodoItem> {
    for item in items {
        match list.iter_mut().find(|old| old.id == item.id) {
            Some(old) => *old = item,
            None => list.push(item),
        }
    }
    list
}

fn check(list: &[TodoItem]) -> Result<(), String> {
    if list.len() > ITEMS_MAX {
        return Err(format!("{} items are more than {ITEMS_MAX}", list.len()));
    }
    let mut ids = HashSet::new();
    for item in list {
        if item.id.trim().is_empty() || item.content.trim().is_empty() {
            return Err("an item has no id or no content".to_owned());
        }
        if !ids.insert(item.id.as_str()) {
            return Err(format!("the id {:?} is there twice", item.id));
        }
        if item.content.chars().count() > CONTENT_MAX_CHARS {
            return Err(format!("item {:?} is longer than {CONTENT_MAX_CHARS} characters", item.id));
        }
    }
    Ok(())
}

fn answer(list: &[TodoItem], revision: u64) -> CallReport {
    let count = |status| list.iter().filter(|item| item.status == status).count();
    let finished = count(TodoStatus::Completed);
    let content = json!({
        "todos": list,
        "revision": revision,
        "summary": {
            "total": list.len(),
            "pending": count(TodoStatus::Pending),
            "in_progress": count(TodoStatus::InProgress),
            "completed": finished,
            "cancelled": count(TodoStatus::Cancelled),
        },
    });
    done(&content, format!("{finished} of {} done", list.len()))
}
