//! The plan of an agent: a list of steps that its model maintains with a tool. Part of the agent's state.

/// The name of the tool that replaces the plan.
pub const TODO_TOOL: &str = "todo";

/// Maximum number of steps.
pub const TODO_ITEMS_MAX: usize = 50;

/// Maximum length of a step's text, in characters.
pub const TODO_CHARS_MAX: usize = 300;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoItem {
    /// What to do.
    pub text: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// The progress of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Finished.
    Done,
}

impl TodoStatus {
    /// All values.
    pub const ALL: [TodoStatus; 3] = [TodoStatus::Pending, TodoStatus::InProgress, TodoStatus::Done];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TodoStatus::Pending => "pending",
            TodoStatus::InProgress => "in_progress",
            TodoStatus::Done => "done",
        }
    }
}

/// Renders a plan for the model, one step per line.
#[must_use]
pub fn render_todo(items: &[TodoItem]) -> String {
    let mark = |status| match status {
        TodoStatus::Pending => "[ ]",
        TodoStatus::InProgress => "[>]",
        TodoStatus::Done => "[x]",
    };
    let lines: Vec<_> = items.iter().map(|item| format!("{} {}", mark(item.status), item.text)).collect();
    lines.join("\n")
}
