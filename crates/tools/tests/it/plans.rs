//! `todo` and `sleep`: the plan is replaced as a whole, and a sleep ends at its time or when it is dropped.

use std::time::Duration;

use agent::{TODO_CHARS_MAX, TODO_ITEMS_MAX, TodoItem, TodoStatus, ToolOutcome};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fixture::{Fixture, done, failed};

fn fixture() -> Fixture {
    Fixture::confined_to("/work")
}

fn plan(fixture: &Fixture) -> Vec<TodoItem> {
    fixture.plan.items.lock().expect("no test panics with the lock").clone()
}

#[tokio::test]
async fn plan_is_replaced_and_returned() {
    let fixture = fixture();
    let items = json!([
        { "text": " read the code ", "status": "done" },
        { "text": "write the test", "status": "in_progress" },
        { "text": "fix it", "status": "pending" },
    ]);
    let text = "[x] read the code\n[>] write the test\n[ ] fix it";
    assert_eq!(fixture.call("todo", &json!({ "items": items })).await, done(text));
    let item = TodoItem { text: "write the test".to_owned(), status: TodoStatus::InProgress };
    assert_eq!((plan(&fixture).len(), &plan(&fixture)[1]), (3, &item));
    assert_eq!(fixture.call("todo", &json!({ "items": [] })).await, done("The plan is empty."));
    assert!(plan(&fixture).is_empty());
}

#[tokio::test]
async fn invalid_plan_is_refused_and_changes_nothing() {
    let fixture = fixture();
    let item = |text: &str| json!({ "text": text, "status": "pending" });
    fixture.call("todo", &json!({ "items": [item("keep")] })).await;
    let many = vec![item("step"); TODO_ITEMS_MAX + 1];
    let long = "x".repeat(TODO_CHARS_MAX + 1);
    for (items, why) in [
        (json!(many), "field `items`: the plan has 51 steps; the limit is 50 steps"),
        (
            json!([item("a"), item(&long)]),
            "field `items[1].text`: the step has 301 characters; the limit is 300 characters",
        ),
        (json!([item(" ")]), "field `items[0].text`: the step is empty"),
        (json!([item("a\nb")]), "field `items[0].text`: a step is one line without control characters"),
    ] {
        let outcome = fixture.call("todo", &json!({ "items": items })).await;
        assert_eq!(outcome, failed(format!("Invalid input: {why}")));
    }
    let unknown: Value = json!({ "items": [{ "text": "a", "status": "maybe" }] });
    assert!(
        matches!(fixture.call("todo", &unknown).await, ToolOutcome::Failed(text) if text.contains("maybe"))
    );
    assert_eq!(plan(&fixture).len(), 1, "the plan is unchanged");
}

#[tokio::test(start_paused = true)]
async fn sleep_ends_at_its_time() {
    let began = Instant::now();
    assert_eq!(fixture().call("sleep", &json!({ "seconds": 300 })).await, done("Waited 300 seconds"));
    assert_eq!(began.elapsed().as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn dropped_sleep_ends_at_once() {
    let began = Instant::now();
    let (fixture, arguments) = (fixture(), json!({ "seconds": 300 }));
    let sleep = fixture.call("sleep", &arguments);
    tokio::time::timeout(Duration::from_secs(1), sleep).await.expect_err("it sleeps longer");
    assert_eq!(began.elapsed().as_secs(), 1);
}

#[tokio::test]
async fn sleep_is_bounded() {
    for seconds in [0, 301] {
        let text = format!("Invalid input: field `seconds`: {seconds} is not from 1 to 300");
        assert_eq!(fixture().call("sleep", &json!({ "seconds": seconds })).await, failed(text));
    }
}
