//! Deserializer: error texts and the parameters they name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::{Json, ParamFault, from_json, from_members, parse};

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    name: String,
    count: Option<u64>,
    #[serde(default)]
    ready: bool,
    size: Option<Size>,
    cell: Option<Cell>,
    #[serde(default)]
    cells: Vec<Cell>,
    #[serde(default)]
    weights: BTreeMap<String, f64>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    row: u64,
    column: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Size {
    Small,
    VeryLarge,
}

/// Deserializes with `from_json` and, for objects, checks that `from_members` agrees.
fn typed<T: DeserializeOwned + PartialEq + std::fmt::Debug>(text: &str) -> Result<T, String> {
    let value = parse(text.as_bytes()).unwrap().value;
    let result = from_json::<T>(&value);
    if let Json::Object(members) = &value {
        assert_eq!(from_members::<T>(members), result, "{text}");
    }
    result.map_err(|fault| fault.to_string())
}

fn check<T: DeserializeOwned + PartialEq + std::fmt::Debug>(cases: &[(&str, &str)]) {
    for (text, message) in cases {
        assert_eq!(typed::<T>(text), Err((*message).to_owned()), "{text}");
    }
}

fn plain_order(name: &str) -> Order {
    let name = name.to_owned();
    Order {
        name,
        count: None,
        ready: false,
        size: None,
        cell: None,
        cells: Vec::new(),
        weights: BTreeMap::new(),
    }
}

#[test]
fn omitted_and_null_members_are_none() {
    assert_eq!(typed(r#"{"name":"a"}"#), Ok(plain_order("a")));
    assert_eq!(typed(r#"{"name":"a","count":null,"size":null,"cell":null}"#), Ok(plain_order("a")));
}

#[test]
fn every_member_is_deserialized() {
    let text = r#"{"name":"\u0061\n","count":3,"ready":true,"size":"very_large","cell":{"row":1},
        "cells":[{"row":2,"column":"x"},{"row":3,"column":null}],"weights":{"\u0061":0.5,"b":2}}"#;
    let expected = Order {
        count: Some(3),
        ready: true,
        size: Some(Size::VeryLarge),
        cell: Some(Cell { row: 1, column: None }),
        cells: vec![Cell { row: 2, column: Some("x".to_owned()) }, Cell { row: 3, column: None }],
        weights: BTreeMap::from([("a".to_owned(), 0.5), ("b".to_owned(), 2.0)]),
        ..plain_order("a\n")
    };
    assert_eq!(typed(text), Ok(expected));
}

#[test]
fn missing_or_null_parameter_is_named() {
    check::<Order>(&[
        ("{}", "Missing required parameter: name"),
        (r#"{"name":null}"#, "Missing required parameter: name"),
        (r#"{"name":"a","ready":null}"#, "Missing required parameter: ready"),
        (r#"{"name":"a","cell":{}}"#, "Missing required parameter: cell.row"),
        (r#"{"name":"a","cell":{"row":null}}"#, "Missing required parameter: cell.row"),
        (r#"{"name":"a","cells":[{"row":1},{}]}"#, "Missing required parameter: cells[1].row"),
        (r#"{"name":"a","cells":[null]}"#, "Missing required parameter: cells[0]"),
        ("null", "Missing required parameter: params"),
    ]);
}

#[test]
fn wrong_type_is_reported_with_expected_and_actual() {
    check::<Order>(&[
        (r#"{"name":5}"#, "name must be string, got: int"),
        (r#"{"name":5.0}"#, "name must be string, got: float"),
        (r#"{"name":true}"#, "name must be string, got: bool"),
        (r#"{"name":[]}"#, "name must be string, got: list"),
        (r#"{"name":{}}"#, "name must be string, got: dict"),
        (r#"{"name":"a","count":"1"}"#, "count must be integer, got: str"),
        (r#"{"name":"a","count":true}"#, "count must be integer, got: bool"),
        (r#"{"name":"a","ready":1}"#, "ready must be boolean, got: int"),
        (r#"{"name":"a","ready":"true"}"#, "ready must be boolean, got: str"),
        (r#"{"name":"a","cells":{}}"#, "cells must be list, got: dict"),
        (r#"{"name":"a","cells":"x"}"#, "cells must be list, got: str"),
        (r#"{"name":"a","weights":[]}"#, "weights must be object, got: list"),
        (r#"{"name":"a","cell":{"row":"1"}}"#, "cell.row must be integer, got: str"),
        (r#"{"name":"a","cell":{"row":1,"column":7}}"#, "cell.column must be string, got: int"),
        (
            r#"{"name":"a","cells":[{"row":1},{"row":2},{"row":{}}]}"#,
            "cells[2].row must be integer, got: dict",
        ),
        (r#"{"name":"a","cells":[{"row":1},7]}"#, "cells[1] must be object, got: int"),
        (r#"{"name":"a","weights":{"x":"y"}}"#, "weights.x must be number, got: str"),
        ("7", "params must be object, got: int"),
        ("\"{}\"", "params must be object, got: str"),
    ]);
}

#[test]
fn nested_list_path_has_every_index() {
    check::<Vec<Vec<u64>>>(&[
        ("[[1],[2,true]]", "[1][1] must be integer, got: bool"),
        ("[[1],2]", "[1] must be list, got: int"),
        ("[[],[],[null]]", "Missing required parameter: [2][0]"),
    ]);
}

#[test]
fn unknown_member_is_rejected_by_name() {
    check::<Order>(&[
        (r#"{"name":"a","nmae":"b"}"#, "Extra inputs are not permitted: nmae"),
        (r#"{"name":"a","Name":"b"}"#, "Extra inputs are not permitted: Name"),
        (r#"{"name":"a","cell":{"row":1,"col":2}}"#, "Extra inputs are not permitted: cell.col"),
        (r#"{"name":"a","cells":[{"row":1,"col":2}]}"#, "Extra inputs are not permitted: cells[0].col"),
        (r#"{"name":"a","__proto__":{"ready":true}}"#, "Extra inputs are not permitted: __proto__"),
    ]);
}

#[test]
fn array_never_fills_a_struct_by_position() {
    check::<Order>(&[
        (r#"["a"]"#, "params must be object, got: list"),
        ("[]", "params must be object, got: list"),
        (r#"["a",1,true,"small",{"row":1},[],{}]"#, "params must be object, got: list"),
        (r#"{"name":"a","cell":[1,"x"]}"#, "cell must be object, got: list"),
        (r#"{"name":"a","cells":[[1,"x"]]}"#, "cells[0] must be object, got: list"),
    ]);
}

#[test]
fn enum_accepts_only_its_variants() {
    let choices = "size must be one of 'small', 'very_large'";
    check::<Order>(&[
        (r#"{"name":"a","size":"Small"}"#, choices),
        (r#"{"name":"a","size":""}"#, choices),
        (r#"{"name":"a","size":"small "}"#, choices),
        (r#"{"name":"a","size":0}"#, "size must be string, got: int"),
        (r#"{"name":"a","size":{"small":null}}"#, "size must be string, got: dict"),
        (r#"{"name":"a","size":["small"]}"#, "size must be string, got: list"),
    ]);
    assert_eq!(typed(r#"["small","very_\u006carge"]"#), Ok(vec![Size::Small, Size::VeryLarge]));
}

#[test]
fn enum_variant_with_content_is_rejected() {
    #[derive(Debug, PartialEq, Deserialize)]
    enum Shape {
        Round(u64),
        Square { side: u64 },
    }
    for text in [r#""Round""#, r#""Square""#] {
        assert_eq!(typed::<Shape>(text), Err("params must be a plain word".to_owned()), "{text}");
    }
    check::<Vec<Shape>>(&[(r#"[{"Round":1}]"#, "[0] must be string, got: dict")]);
}

#[test]
fn ignored_member_accepts_any_value() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Loose {
        a: u64,
    }
    let text = r#"{"new":[1e400,123456789012345678901234567890,{"x":null}],"a":1,"1e-400":1e-400}"#;
    assert_eq!(typed(text), Ok(Loose { a: 1 }));
}

/// With the feature `raw_value`, `serde_json::Value` parses a string under this key as JSON text.
#[test]
fn json_text_in_a_string_is_never_parsed() {
    let smuggled = r#"{"$serde_json::private::RawValue":"{\"a\":1,\"a\":2}"}"#;
    assert_eq!(
        typed::<Value>(smuggled),
        Err("Extra inputs are not permitted: $serde_json::private::RawValue".to_owned())
    );
    assert_eq!(
        typed::<Value>(&format!(r#"{{"a":[{smuggled}]}}"#)),
        Err("Extra inputs are not permitted: a[0].$serde_json::private::RawValue".to_owned())
    );
    let text = r#"{"a":"$serde_json::private::RawValue"}"#;
    assert_eq!(typed(text), Ok(serde_json::from_str::<Value>(text).unwrap()));
}

#[test]
fn string_without_escapes_is_borrowed() {
    let value = parse(br#"{"plain":"abc","escaped":"a\nc"}"#).unwrap().value;
    let texts: BTreeMap<&str, Json<'_>> = match &value {
        Json::Object(members) => members.iter().map(|(key, value)| (key.as_ref(), value.clone())).collect(),
        _ => panic!("not an object"),
    };
    assert!(matches!(texts["plain"], Json::String(Cow::Borrowed("abc"))));
    assert!(matches!(&texts["escaped"], Json::String(Cow::Owned(text)) if text == "a\nc"));
    assert_eq!(from_json::<&str>(&texts["plain"]), Ok("abc"));
}

#[test]
fn custom_error_follows_the_parameter_name() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(try_from = "String")]
    struct Even(String);
    impl TryFrom<String> for Even {
        type Error = &'static str;

        fn try_from(text: String) -> Result<Self, Self::Error> {
            if text.len().is_multiple_of(2) { Ok(Self(text)) } else { Err("must have an even length") }
        }
    }
    assert_eq!(typed(r#"["ab"]"#), Ok(vec![Even("ab".to_owned())]));
    check::<Vec<Even>>(&[(r#"["ab","a"]"#, "[1] must have an even length")]);
    check::<BTreeMap<String, Even>>(&[(r#"{"a":{}}"#, "a must be string, got: dict")]);
}

#[test]
fn fault_converts_to_a_boxed_error() {
    let fault: ParamFault = from_json::<u64>(&Json::Bool(true)).unwrap_err();
    let boxed: Box<dyn std::error::Error + Send + Sync> = fault.into();
    assert_eq!(boxed.to_string(), "params must be integer, got: bool");
}
