//! `memory.*`: result texts, any JSON value, expiry, pages and limits.

use std::time::Duration;

use agent::ToolOutcome;
use agent::outside::{ENTRIES_MAX, KEY_BYTES_MAX, KEYS_PAGE_MAX, VALUE_BYTES_MAX};
use serde_json::{Value, json};

use crate::fixture::{Fixture, done, failed};

fn fixture() -> Fixture {
    Fixture::confined_to("/work")
}

async fn store(fixture: &Fixture, key: &str, value: &Value) -> ToolOutcome {
    fixture.call("memory.store", &json!({ "key": key, "value": value })).await
}

async fn json_result(fixture: &Fixture, tool: &str, arguments: &Value) -> Value {
    match fixture.call(tool, arguments).await {
        ToolOutcome::Done(text) => serde_json::from_str(&text).expect("JSON"),
        outcome => Value::String(format!("{tool} {arguments}: {outcome:?}")),
    }
}

#[tokio::test]
async fn result_texts_are_those_of_the_original() {
    let fixture = fixture();
    let name = json!({ "key": "user_name" });
    assert_eq!(
        store(&fixture, "user_name", &json!("Alice")).await,
        done(r#"{"key":"user_name","stored":true,"success":true}"#)
    );
    fixture.clock.advance(Duration::from_secs(1));
    store(&fixture, "user_name", &json!({ "b": 2, "a": [null, 1.5] })).await;
    assert_eq!(
        fixture.call("memory_recall", &name).await,
        done(concat!(
            r#"{"created_at":"2023-11-14T22:13:20.123456000+00:00","found":true,"key":"user_name","#,
            r#""updated_at":"2023-11-14T22:13:21.123456000+00:00","value":{"a":[null,1.5],"b":2}}"#
        ))
    );
    assert_eq!(
        fixture.call("memory.list", &json!({ "prefix": "user_" })).await,
        done(r#"{"count":1,"keys":["user_name"]}"#)
    );
    assert_eq!(
        fixture.call("memory.delete", &name).await,
        done(r#"{"deleted":true,"key":"user_name","success":true}"#)
    );
    assert_eq!(
        fixture.call("memory.delete", &name).await,
        done(r#"{"deleted":false,"key":"user_name","success":true}"#)
    );
    assert_eq!(fixture.call("memory.recall", &name).await, done(r#"{"found":false,"key":"user_name"}"#));
    assert_eq!(fixture.call_text("memory.list", "").await, done(r#"{"count":0,"keys":[]}"#));
}

#[tokio::test]
async fn every_json_value_round_trips() {
    let fixture = fixture();
    let text = "\0 \u{1f980} %_";
    for value in
        [json!(null), json!(false), json!(-1), json!(1.5e300), json!(u64::MAX), json!([[], {}]), json!(text)]
    {
        store(&fixture, text, &value).await;
        assert_eq!(json_result(&fixture, "memory.recall", &json!({ "key": text })).await["value"], value);
    }
    assert!(matches!(fixture.call("memory.store", &json!({ "key": "k" })).await, ToolOutcome::Failed(text)
        if text.starts_with("Invalid input: ") && text.contains("value")));
}

#[tokio::test]
async fn expired_value_is_not_found() {
    let fixture = fixture();
    fixture.call("memory.store", &json!({ "key": "k", "value": 1, "ttl_secs": 60 })).await;
    fixture.clock.advance(Duration::from_secs(59));
    assert_eq!(json_result(&fixture, "memory.recall", &json!({ "key": "k" })).await["found"], true);
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(json_result(&fixture, "memory.recall", &json!({ "key": "k" })).await["found"], false);
    assert_eq!(json_result(&fixture, "memory.list", &json!({})).await["count"], 0);
    assert_eq!(json_result(&fixture, "memory.delete", &json!({ "key": "k" })).await["deleted"], false);
}

#[tokio::test]
async fn long_list_is_read_in_pages() {
    let fixture = fixture();
    for number in 0..KEYS_PAGE_MAX + 2 {
        store(&fixture, &format!("a{number:04}"), &json!(number)).await;
    }
    let page = json_result(&fixture, "memory.list", &json!({ "prefix": "a" })).await;
    assert_eq!((&page["count"], &page["next"]), (&json!(500), &json!("a0499")));
    let page = json_result(&fixture, "memory.list", &json!({ "prefix": "a", "after": "a0499" })).await;
    assert_eq!(page, json!({ "count": 2, "keys": ["a0500", "a0501"] }));
}

#[tokio::test]
async fn limits_are_named_and_nothing_is_stored() {
    let fixture = fixture();
    let key = "k".repeat(KEY_BYTES_MAX + 1);
    let text = "Invalid input: the key has 513 bytes; the limit is 512 bytes: use a shorter key";
    assert_eq!(store(&fixture, &key, &json!(1)).await, failed(text));
    let value = json!("v".repeat(VALUE_BYTES_MAX - 1));
    let text = "Invalid input: the JSON text of the value has 65537 bytes; the limit is 65536 bytes: split it over \
                several keys, or write it to a file";
    assert_eq!(store(&fixture, "k", &value).await, failed(text));
    for ttl in [0, u64::MAX] {
        let outcome = fixture.call("memory.store", &json!({ "key": "k", "value": 1, "ttl_secs": ttl })).await;
        let text = format!("Invalid input: ttl_secs is {ttl}; it must be from 1 to 315360000");
        assert_eq!(outcome, failed(text));
    }
    assert_eq!(json_result(&fixture, "memory.list", &json!({})).await["count"], 0);
    for number in 0..ENTRIES_MAX {
        store(&fixture, &number.to_string(), &json!(1)).await;
    }
    let text = "Invalid input: the namespace has 2000 entries, which is the limit: delete some, or store several values \
                under one key";
    assert_eq!(store(&fixture, "more", &json!(1)).await, failed(text));
}
