//! `todo`: replaces the agent's plan.

use std::sync::Arc;

use agent::outside::{CallSite, PlanKeeper};
use agent::{
    TODO_CHARS_MAX, TODO_ITEMS_MAX, TODO_TOOL, TodoItem, TodoStatus, ToolClass, ToolOutcome, render_todo,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed, invalid_input};
use crate::effects::PlanChange;

pub(crate) struct Todo;

/// Keeps your plan for a task of several steps. Replaces the whole list: send all steps each time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The steps, at most 50; an empty list clears the plan.
    items: Vec<Item>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    /// One step, on one line of at most 300 characters.
    text: String,
    status: Status,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Status {
    Pending,
    InProgress,
    Done,
}

impl Item {
    fn parse(self, index: usize) -> Result<TodoItem, ToolOutcome> {
        let text = self.text.trim();
        let invalid = |why: String| invalid_input(format!("field `items[{index}].text`: {why}"));
        if text.is_empty() {
            return Err(invalid("the step is empty".to_owned()));
        }
        if text.contains(char::is_control) {
            return Err(invalid("a step is one line without control characters".to_owned()));
        }
        let chars = text.chars().count();
        if chars > TODO_CHARS_MAX {
            return Err(invalid(format!(
                "the step has {chars} characters; the limit is {TODO_CHARS_MAX} characters"
            )));
        }
        let status = match self.status {
            Status::Pending => TodoStatus::Pending,
            Status::InProgress => TodoStatus::InProgress,
            Status::Done => TodoStatus::Done,
        };
        Ok(TodoItem { text: text.to_owned(), status })
    }
}

impl ToolDefinition for Todo {
    type Input = Input;
    type Effects = PlanChange;
    const NAME: &'static str = TODO_TOOL;
    const CLASS: ToolClass = ToolClass::Keyed;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<PlanChange, String> {
        Ok(PlanChange)
    }

    async fn run(input: Input, plan: Arc<dyn PlanKeeper>, _call: Invocation) -> ToolResult {
        let count = input.items.len();
        if count > TODO_ITEMS_MAX {
            let text =
                format!("field `items`: the plan has {count} steps; the limit is {TODO_ITEMS_MAX} steps");
            return Err(invalid_input(text));
        }
        let items = input.items.into_iter().enumerate().map(|(index, item)| item.parse(index));
        let items: Vec<TodoItem> = items.collect::<Result<_, _>>()?;
        let text = if items.is_empty() { "The plan is empty.".to_owned() } else { render_todo(&items) };
        plan.replace(items).map_err(execution_failed)?;
        Ok(text)
    }
}
