//! Batches: each request has its own outcome, and none is accepted when the batch is rejected.

use super::super::{EnvelopeRules, Id, Incoming, Params, RejectedRequest, Request};
use super::parse_rejected;

fn parse_batch(text: &str) -> Vec<Result<Request<'_>, RejectedRequest<'_>>> {
    match Incoming::parse(text.as_bytes(), EnvelopeRules::FULL) {
        Ok(Incoming::Batch(items)) => items,
        other => panic!("{text} is not a batch: {other:?}"),
    }
}

fn valid_request(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#)
}

fn valid_batch(count: usize) -> String {
    format!("[{}]", (0..count).map(valid_request).collect::<Vec<_>>().join(","))
}

#[test]
fn empty_batch_gets_one_error() {
    for text in ["[]", " [ \n ] "] {
        let rejected = parse_rejected(text, EnvelopeRules::FULL);
        assert_eq!((rejected.error.code, rejected.id), (-32600, Id::NULL));
        assert_eq!(rejected.error.message, "Batch must not be empty");
    }
}

#[test]
fn batch_items_that_are_not_objects_are_rejected_each() {
    for (text, count) in [("[1]", 1), ("[1,2,3]", 3), ("[[]]", 1), (r#"[null,"a",true,[1],[[{"id":1}]]]"#, 5)]
    {
        let items = parse_batch(text);
        assert_eq!(items.len(), count, "{text}");
        for item in items {
            let rejected = item.unwrap_err();
            assert_eq!((rejected.error.code, rejected.id), (-32600, Id::NULL), "{text}");
            assert_eq!(rejected.error.message, "Request must be a JSON object", "{text}");
        }
    }
}

#[test]
fn batch_items_keep_their_order_and_ids() {
    let text = r#"[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b"},5,
        {"jsonrpc":"1.0","method":"c","id":"x"},{"jsonrpc":"2.0","method":"d","id":null,"params":[1]},{}]"#;
    let outcomes: Vec<(String, String)> = parse_batch(text)
        .into_iter()
        .map(|item| match item {
            Ok(request) => {
                (request.method.into_owned(), request.id.map_or("-".to_owned(), |id| id.raw().to_owned()))
            }
            Err(rejected) => (rejected.error.message, rejected.id.raw().to_owned()),
        })
        .collect();
    let expected = [
        ("a", "1"),
        ("b", "-"),
        ("Request must be a JSON object", "null"),
        ("jsonrpc must be '2.0', got: '1.0'", "\"x\""),
        ("d", "null"),
        ("jsonrpc must be '2.0', got: None", "null"),
    ];
    assert_eq!(outcomes, expected.map(|(what, id)| (what.to_owned(), id.to_owned())));
}

#[test]
fn batch_size_is_limited_by_the_rules() {
    assert_eq!(EnvelopeRules::FULL.batch_max, 100);
    assert_eq!(parse_batch(&valid_batch(100)).len(), 100);
    for (count, message) in [(101, "Batch too large: 101 > 100"), (100_000, "Batch too large: 100000 > 100")]
    {
        let text = valid_batch(count);
        let rejected = parse_rejected(&text, EnvelopeRules::FULL);
        assert_eq!((rejected.error.code, rejected.id.raw()), (-32600, "null"));
        assert_eq!(rejected.error.message, message);
    }
    let one = EnvelopeRules { batch_max: 1, positional: false };
    assert_eq!(parse_rejected(&valid_batch(2), one).error.message, "Batch too large: 2 > 1");
    assert!(Incoming::parse(valid_batch(1).as_bytes(), one).is_ok());
}

#[test]
fn duplicate_key_in_one_item_rejects_the_batch() {
    let good = valid_request(1);
    let shapes = [
        format!(r#"[{good},{{"jsonrpc":"2.0","method":"m","id":2,"id":3}}]"#),
        format!(r#"[{{"jsonrpc":"2.0","method":"m","id":2,"\u0069d":3}},{good}]"#),
        format!(r#"[{good},[{{"id":1,"id":2}}]]"#),
        format!(r#"[{good},{{"jsonrpc":"2.0","method":"m","params":[{{"id":1,"id":2}}]}}]"#),
    ];
    for text in &shapes {
        let rejected = parse_rejected(text, EnvelopeRules::FULL);
        assert_eq!((rejected.error.code, rejected.id.raw()), (-32600, "null"), "{text}");
        assert_eq!(rejected.error.message, "Duplicate key in request: 'id'", "{text}");
    }
}

#[test]
fn same_key_or_id_in_two_items_is_accepted() {
    let text = format!("[{},{}]", valid_request(1), valid_request(1));
    assert!(parse_batch(&text).into_iter().all(|item| item.is_ok()));
}

#[test]
fn batch_items_follow_the_envelope_rules() {
    let named_only = EnvelopeRules { batch_max: 10, positional: false };
    let text = r#"[{"jsonrpc":"2.0","method":"m","id":1,"params":[1]}]"#;
    let Ok(Incoming::Batch(items)) = Incoming::parse(text.as_bytes(), named_only) else {
        panic!("not a batch");
    };
    let message = "Positional params (array) not supported, use named params (object)";
    assert_eq!(items[0].as_ref().unwrap_err().error.message, message);
    assert_eq!(items[0].as_ref().unwrap_err().id.raw(), "1");
    assert!(matches!(parse_batch(text)[0].as_ref().unwrap().params, Params::Positional(_)));
}

#[test]
fn batch_with_a_syntax_error_gets_one_error_without_id() {
    for text in [r#"[{"jsonrpc":"2.0","method":"m","id":1},{"#, "[1,]", "[1] 2", "["] {
        let rejected = parse_rejected(text, EnvelopeRules::FULL);
        assert_eq!((rejected.error.code, rejected.id.raw()), (-32700, "null"), "{text}");
    }
}
