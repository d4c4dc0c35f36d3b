//! Reading chunks of a truncated result.

use agent::ToolOutcome;
use serde_json::json;

use crate::fixture::Fixture;

#[tokio::test]
async fn result_chunk_has_its_byte_range() {
    let fixture = Fixture::confined_to("/nowhere");
    let outcome = fixture.call("result.read", &json!({ "handle": "r1", "offset": 2, "limit": 3 })).await;
    assert_eq!(outcome, ToolOutcome::Done("234\n[bytes 2 to 5 of 10]".to_owned()));
    let outcome = fixture.call("result_read", &json!({ "handle": "r1", "offset": 8 })).await;
    assert_eq!(outcome, ToolOutcome::Done("89\n[bytes 8 to 10 of 10]".to_owned()));
}

#[tokio::test]
async fn unknown_result_handle_is_an_error() {
    let outcome =
        Fixture::confined_to("/nowhere").call("result.read", &json!({ "handle": "r9", "offset": 0 })).await;
    let text = "Execution failed: there is no result 'r9' any more".to_owned();
    assert_eq!(outcome, ToolOutcome::Failed(text));
}
