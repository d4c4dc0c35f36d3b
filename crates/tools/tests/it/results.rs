//! Reading on in a result that was cut.

use agent::ToolOutcome;
use serde_json::json;

use crate::fixture::Fixture;

#[tokio::test]
async fn a_result_is_read_in_parts_and_says_where_it_is() {
    let world = Fixture::confined_to("/nowhere");
    let outcome = world.call("result.read", &json!({ "handle": "r1", "offset": 2, "limit": 3 })).await;
    assert_eq!(outcome, ToolOutcome::Done("234\n[bytes 2 to 5 of 10]".to_owned()));
    let outcome = world.call("result_read", &json!({ "handle": "r1", "offset": 8 })).await;
    assert_eq!(outcome, ToolOutcome::Done("89\n[bytes 8 to 10 of 10]".to_owned()));
}

#[tokio::test]
async fn a_result_that_is_gone_says_so() {
    let outcome =
        Fixture::confined_to("/nowhere").call("result.read", &json!({ "handle": "r9", "offset": 0 })).await;
    let text = "Execution failed: there is no result 'r9' any more".to_owned();
    assert_eq!(outcome, ToolOutcome::Failed(text));
}
