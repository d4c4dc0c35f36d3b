//! Property tests: encoded requests, results and errors parse to the same values.

use proptest::prelude::*;
use serde_json::Value;

use super::super::{
    EnvelopeRules, Id, Incoming, Params, Response, RpcError, encode_error, encode_request, encode_result,
};
use crate::json::{from_json, from_members};

fn config() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() }
}

fn ids() -> impl Strategy<Value = Id<'static>> {
    prop_oneof![
        any::<u64>().prop_map(Id::from),
        any::<String>().prop_map(|text| Id::from(text.as_str())),
        Just(Id::NULL),
    ]
}

fn params() -> impl Strategy<Value = serde_json::Map<String, Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value =
        leaf.prop_recursive(4, 24, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::from));
    prop::collection::btree_map(any::<String>(), value, 0..10)
        .prop_map(|members| members.into_iter().collect())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_request_round_trips(
        method in "\\PC{1,20}", params in params(), id in prop::option::of(ids())
    ) {
        let bytes = encode_request(id.as_ref(), &method, &params).unwrap();
        for rules in [EnvelopeRules::HTTP, EnvelopeRules::FULL] {
            let Ok(Incoming::Single(request)) = Incoming::parse(&bytes, rules) else {
                return Err(TestCaseError::fail("not a single request"));
            };
            prop_assert_eq!(&request.method, &method);
            prop_assert_eq!(&request.id, &id);
            let Params::Named(members) = &request.params else {
                return Err(TestCaseError::fail("named parameters were expected"));
            };
            let back: serde_json::Map<String, Value> = from_members(members).unwrap();
            prop_assert_eq!(&back, &params);
        }
    }

    #[test]
    fn any_result_round_trips(id in ids(), result in params()) {
        let result = Value::Object(result);
        let bytes = encode_result(&id, &result).unwrap();
        let response = Response::parse(&bytes).unwrap();
        prop_assert_eq!(&response.id, &id);
        let back: Value = from_json(&response.outcome.unwrap()).unwrap();
        prop_assert_eq!(&back, &result);
    }

    #[test]
    fn any_error_round_trips(
        id in ids(), code in any::<i64>(), message in "\\PC{1,20}", data in prop::option::of(params())
    ) {
        let error = RpcError { code, message, data: data.map(Value::Object) };
        let bytes = encode_error(&id, &error);
        let response = Response::parse(&bytes).unwrap();
        prop_assert_eq!(&response.id, &id);
        prop_assert_eq!(response.outcome.unwrap_err(), error);
    }
}
