//! The built-in tools. Adding one is a file and a line in [`all`].

mod arguments;
mod capture;
mod clarify;
mod edit;
mod files;
mod group;
mod leftover;
mod marker;
mod patch;
mod process_manage;
pub(crate) mod processes;
mod read_file;
mod search_files;
mod spawn;
mod terminal;
mod todo_list;
mod write_file;

use std::sync::Arc;

use crate::tool::Tool;

pub use leftover::{CALL_ID_VARIABLE, end_leftovers};
pub use spawn::is_secret_name;

/// Every built-in tool.
#[must_use]
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(clarify::Clarify::new()),
        Arc::new(patch::Patch::new()),
        Arc::new(process_manage::ProcessManage::new()),
        Arc::new(read_file::ReadFile::new()),
        Arc::new(search_files::SearchFiles::new()),
        Arc::new(terminal::Terminal::new()),
        Arc::new(todo_list::TodoList::new()),
        Arc::new(write_file::WriteFile::new()),
    ]
}
