//! Typed reading: what a fault says and which parameter it names.

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
    place: Option<Place>,
    #[serde(default)]
    places: Vec<Place>,
    #[serde(default)]
    weights: BTreeMap<String, f64>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    row: u64,
    seat: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Size {
    Small,
    VeryLarge,
}

/// Reads both ways, which must agree on objects.
fn typed<T: DeserializeOwned + PartialEq + std::fmt::Debug>(text: &str) -> Result<T, String> {
    let value = parse(text.as_bytes()).unwrap().value;
    let whole = from_json::<T>(&value);
    if let Json::Object(members) = &value {
        assert_eq!(from_members::<T>(members), whole, "{text}");
    }
    whole.map_err(|fault| fault.to_string())
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
        place: None,
        places: Vec::new(),
        weights: BTreeMap::new(),
    }
}

#[test]
fn what_is_left_out_or_null_is_none() {
    assert_eq!(typed(r#"{"name":"a"}"#), Ok(plain_order("a")));
    assert_eq!(typed(r#"{"name":"a","count":null,"size":null,"place":null}"#), Ok(plain_order("a")));
}

#[test]
fn every_member_is_read() {
    let text = r#"{"name":"\u0061\n","count":3,"ready":true,"size":"very_large","place":{"row":1},
        "places":[{"row":2,"seat":"x"},{"row":3,"seat":null}],"weights":{"\u0061":0.5,"b":2}}"#;
    let expected = Order {
        count: Some(3),
        ready: true,
        size: Some(Size::VeryLarge),
        place: Some(Place { row: 1, seat: None }),
        places: vec![Place { row: 2, seat: Some("x".to_owned()) }, Place { row: 3, seat: None }],
        weights: BTreeMap::from([("a".to_owned(), 0.5), ("b".to_owned(), 2.0)]),
        ..plain_order("a\n")
    };
    assert_eq!(typed(text), Ok(expected));
}

#[test]
fn a_missing_or_null_parameter_is_named() {
    check::<Order>(&[
        ("{}", "Missing required parameter: name"),
        (r#"{"name":null}"#, "Missing required parameter: name"),
        (r#"{"name":"a","ready":null}"#, "Missing required parameter: ready"),
        (r#"{"name":"a","place":{}}"#, "Missing required parameter: place.row"),
        (r#"{"name":"a","place":{"row":null}}"#, "Missing required parameter: place.row"),
        (r#"{"name":"a","places":[{"row":1},{}]}"#, "Missing required parameter: places[1].row"),
        (r#"{"name":"a","places":[null]}"#, "Missing required parameter: places[0]"),
        ("null", "Missing required parameter: params"),
    ]);
}

#[test]
fn a_wrong_type_is_named_with_what_was_wanted_and_what_came() {
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
        (r#"{"name":"a","places":{}}"#, "places must be list, got: dict"),
        (r#"{"name":"a","places":"x"}"#, "places must be list, got: str"),
        (r#"{"name":"a","weights":[]}"#, "weights must be object, got: list"),
        (r#"{"name":"a","place":{"row":"1"}}"#, "place.row must be integer, got: str"),
        (r#"{"name":"a","place":{"row":1,"seat":7}}"#, "place.seat must be string, got: int"),
        (
            r#"{"name":"a","places":[{"row":1},{"row":2},{"row":{}}]}"#,
            "places[2].row must be integer, got: dict",
        ),
        (r#"{"name":"a","places":[{"row":1},7]}"#, "places[1] must be object, got: int"),
        (r#"{"name":"a","weights":{"x":"y"}}"#, "weights.x must be number, got: str"),
        ("7", "params must be object, got: int"),
        ("\"{}\"", "params must be object, got: str"),
    ]);
}

#[test]
fn a_list_of_lists_is_named_index_by_index() {
    check::<Vec<Vec<u64>>>(&[
        ("[[1],[2,true]]", "[1][1] must be integer, got: bool"),
        ("[[1],2]", "[1] must be list, got: int"),
        ("[[],[],[null]]", "Missing required parameter: [2][0]"),
    ]);
}

#[test]
fn an_unknown_member_is_refused_by_name() {
    check::<Order>(&[
        (r#"{"name":"a","nmae":"b"}"#, "Extra inputs are not permitted: nmae"),
        (r#"{"name":"a","Name":"b"}"#, "Extra inputs are not permitted: Name"),
        (r#"{"name":"a","place":{"row":1,"col":2}}"#, "Extra inputs are not permitted: place.col"),
        (r#"{"name":"a","places":[{"row":1,"col":2}]}"#, "Extra inputs are not permitted: places[0].col"),
        (r#"{"name":"a","__proto__":{"ready":true}}"#, "Extra inputs are not permitted: __proto__"),
    ]);
}

#[test]
fn an_array_never_fills_a_struct_by_position() {
    check::<Order>(&[
        (r#"["a"]"#, "params must be object, got: list"),
        ("[]", "params must be object, got: list"),
        (r#"["a",1,true,"small",{"row":1},[],{}]"#, "params must be object, got: list"),
        (r#"{"name":"a","place":[1,"x"]}"#, "place must be object, got: list"),
        (r#"{"name":"a","places":[[1,"x"]]}"#, "places[0] must be object, got: list"),
    ]);
}

#[test]
fn an_enum_takes_its_words_and_nothing_else() {
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
fn an_enum_with_content_has_no_spelling() {
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
fn a_member_that_nobody_reads_may_hold_anything() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Loose {
        a: u64,
    }
    let text = r#"{"new":[1e400,123456789012345678901234567890,{"x":null}],"a":1,"1e-400":1e-400}"#;
    assert_eq!(typed(text), Ok(Loose { a: 1 }));
}

/// With its feature `raw_value`, `serde_json::Value` reads a string under this key as JSON text of its own.
#[test]
fn json_text_in_a_string_is_never_read_as_json() {
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
fn a_text_without_escapes_is_borrowed() {
    let value = parse(br#"{"plain":"abc","escaped":"a\nc"}"#).unwrap().value;
    let texts: BTreeMap<&str, Json<'_>> = match &value {
        Json::Object(members) => members.iter().map(|(key, value)| (key.as_ref(), value.clone())).collect(),
        _ => panic!("an object was expected"),
    };
    assert!(matches!(texts["plain"], Json::String(Cow::Borrowed("abc"))));
    assert!(matches!(&texts["escaped"], Json::String(Cow::Owned(text)) if text == "a\nc"));
    assert_eq!(from_json::<&str>(&texts["plain"]), Ok("abc"));
}

#[test]
fn a_fault_of_a_types_own_follows_the_parameters_name() {
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
fn a_fault_is_an_error_others_can_carry() {
    let fault: ParamFault = from_json::<u64>(&Json::Bool(true)).unwrap_err();
    let boxed: Box<dyn std::error::Error + Send + Sync> = fault.into();
    assert_eq!(boxed.to_string(), "params must be integer, got: bool");
}
