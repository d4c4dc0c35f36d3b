//! Arrays of requests: each answered for itself, none run when the whole is refused.

use super::super::{EnvelopeRules, Id, Incoming, Params, RejectedRequest, Request};
use super::parse_rejected;

fn parse_batch(text: &str) -> Vec<Result<Request<'_>, RejectedRequest<'_>>> {
    match Incoming::parse(text.as_bytes(), EnvelopeRules::FULL) {
        Ok(Incoming::Batch(items)) => items,
        other => panic!("{text} was expected to be a batch, got {other:?}"),
    }
}

fn valid_request(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#)
}

fn valid_batch(count: usize) -> String {
    format!("[{}]", (0..count).map(valid_request).collect::<Vec<_>>().join(","))
}

#[test]
fn an_empty_batch_is_refused_once() {
    for text in ["[]", " [ \n ] "] {
        let refused = parse_rejected(text, EnvelopeRules::FULL);
        assert_eq!((refused.error.code, refused.id), (-32600, Id::NULL));
        assert_eq!(refused.error.message, "Batch must not be empty");
    }
}

#[test]
fn items_that_are_no_objects_are_refused_each() {
    for (text, count) in [("[1]", 1), ("[1,2,3]", 3), ("[[]]", 1), (r#"[null,"a",true,[1],[[{"id":1}]]]"#, 5)]
    {
        let items = parse_batch(text);
        assert_eq!(items.len(), count, "{text}");
        for item in items {
            let refused = item.unwrap_err();
            assert_eq!((refused.error.code, refused.id), (-32600, Id::NULL), "{text}");
            assert_eq!(refused.error.message, "Request must be a JSON object", "{text}");
        }
    }
}

#[test]
fn good_and_bad_items_keep_their_places_and_ids() {
    let text = r#"[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b"},5,
        {"jsonrpc":"1.0","method":"c","id":"x"},{"jsonrpc":"2.0","method":"d","id":null,"params":[1]},{}]"#;
    let told: Vec<(String, String)> = parse_batch(text)
        .into_iter()
        .map(|item| match item {
            Ok(request) => {
                (request.method.into_owned(), request.id.map_or("-".to_owned(), |id| id.raw().to_owned()))
            }
            Err(refused) => (refused.error.message, refused.id.raw().to_owned()),
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
    assert_eq!(told, expected.map(|(what, id)| (what.to_owned(), id.to_owned())));
}

#[test]
fn a_batch_may_be_as_large_as_the_rules_say_and_no_larger() {
    assert_eq!(EnvelopeRules::FULL.batch_max, 100);
    assert_eq!(parse_batch(&valid_batch(100)).len(), 100);
    for (count, message) in [(101, "Batch too large: 101 > 100"), (100_000, "Batch too large: 100000 > 100")]
    {
        let text = valid_batch(count);
        let refused = parse_rejected(&text, EnvelopeRules::FULL);
        assert_eq!((refused.error.code, refused.id.raw()), (-32600, "null"));
        assert_eq!(refused.error.message, message);
    }
    let one = EnvelopeRules { batch_max: 1, positional: false };
    assert_eq!(parse_rejected(&valid_batch(2), one).error.message, "Batch too large: 2 > 1");
    assert!(Incoming::parse(valid_batch(1).as_bytes(), one).is_ok());
}

#[test]
fn a_key_that_stands_twice_in_one_item_refuses_the_whole_batch() {
    let good = valid_request(1);
    let shapes = [
        format!(r#"[{good},{{"jsonrpc":"2.0","method":"m","id":2,"id":3}}]"#),
        format!(r#"[{{"jsonrpc":"2.0","method":"m","id":2,"\u0069d":3}},{good}]"#),
        format!(r#"[{good},[{{"id":1,"id":2}}]]"#),
        format!(r#"[{good},{{"jsonrpc":"2.0","method":"m","params":[{{"id":1,"id":2}}]}}]"#),
    ];
    for text in &shapes {
        let refused = parse_rejected(text, EnvelopeRules::FULL);
        assert_eq!((refused.error.code, refused.id.raw()), (-32600, "null"), "{text}");
        assert_eq!(refused.error.message, "Duplicate key in request: 'id'", "{text}");
    }
}

#[test]
fn the_same_key_or_id_in_two_items_is_no_duplicate() {
    let text = format!("[{},{}]", valid_request(1), valid_request(1));
    assert!(parse_batch(&text).into_iter().all(|item| item.is_ok()));
}

#[test]
fn each_item_is_held_to_the_doors_rules() {
    let named_only = EnvelopeRules { batch_max: 10, positional: false };
    let text = r#"[{"jsonrpc":"2.0","method":"m","id":1,"params":[1]}]"#;
    let Ok(Incoming::Batch(items)) = Incoming::parse(text.as_bytes(), named_only) else {
        panic!("a batch was expected");
    };
    let message = "Positional params (array) not supported, use named params (object)";
    assert_eq!(items[0].as_ref().unwrap_err().error.message, message);
    assert_eq!(items[0].as_ref().unwrap_err().id.raw(), "1");
    assert!(matches!(parse_batch(text)[0].as_ref().unwrap().params, Params::Positional(_)));
}

#[test]
fn a_batch_that_is_not_json_is_refused_once_without_id() {
    for text in [r#"[{"jsonrpc":"2.0","method":"m","id":1},{"#, "[1,]", "[1] 2", "["] {
        let refused = parse_rejected(text, EnvelopeRules::FULL);
        assert_eq!((refused.error.code, refused.id.raw()), (-32700, "null"), "{text}");
    }
}
