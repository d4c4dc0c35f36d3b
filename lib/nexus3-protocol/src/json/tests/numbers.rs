//! Numbers read into types: what does not fit is a typed fault, never infinity, zero or a wrapped integer.

use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::super::{from_json, parse};

fn number<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    from_json(&parse(text.as_bytes()).unwrap().value).map_err(|fault| fault.to_string())
}

fn rejection<T: DeserializeOwned + Debug>(text: &str) -> String {
    number::<T>(text).unwrap_err()
}

const TOO_LONG: &str = "params must be an integer of at most 64 bits";
const OUT_OF_RANGE: &str = "params must be a number in the range of a double";

#[test]
fn integers_pass_up_to_their_types_ends() {
    assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
    assert_eq!(number("9223372036854775807"), Ok(i64::MAX));
    assert_eq!(number("-9223372036854775808"), Ok(i64::MIN));
    assert_eq!(number("255"), Ok(u8::MAX));
    assert_eq!(number("-128"), Ok(i8::MIN));
    assert_eq!(number("-0"), Ok(0_u64));
    assert_eq!(number("-0"), Ok(0_i64));
}

#[test]
fn an_integer_beyond_its_type_is_refused_and_not_wrapped() {
    assert_eq!(rejection::<u64>("18446744073709551616"), TOO_LONG);
    assert_eq!(rejection::<i64>("-9223372036854775809"), TOO_LONG);
    assert_eq!(rejection::<u64>(&"9".repeat(100_000)), TOO_LONG);
    assert_eq!(rejection::<i64>(&format!("-{}", "9".repeat(100_000))), TOO_LONG);
    assert_eq!(rejection::<u64>("-1"), "params must be u64");
    assert_eq!(rejection::<i64>("9223372036854775808"), "params must be i64");
    assert_eq!(rejection::<u8>("256"), "params must be u8");
    assert_eq!(rejection::<i8>("-129"), "params must be i8");
}

#[test]
fn a_fraction_or_an_exponent_is_no_integer_even_when_its_value_is() {
    for text in ["1.0", "1e2", "1E2", "0.0", "-0.0", "1e400", "1e-400", "100e-2"] {
        assert_eq!(rejection::<u64>(text), "params must be integer, got: float", "{text}");
        assert_eq!(rejection::<i64>(text), "params must be integer, got: float", "{text}");
    }
}

#[test]
fn doubles_are_read_to_the_nearest() {
    let cases = [
        ("0.1", 0.1),
        ("5", 5.0),
        ("1e2", 100.0),
        ("-0", -0.0),
        ("1.7976931348623157e308", f64::MAX),
        ("2.2250738585072014e-308", f64::MIN_POSITIVE),
        ("5e-324", 5e-324),
        ("9007199254740993", 9_007_199_254_740_992.0),
        ("0.1000000000000000055511151231257827", 0.1),
    ];
    for (text, expected) in cases {
        assert_eq!(number::<f64>(text).map(f64::to_bits), Ok(expected.to_bits()), "{text}");
    }
}

#[test]
fn a_number_that_a_double_cannot_hold_is_never_infinite() {
    for text in ["1e400", "-1e400", "1.8e308", "1E99999999999999999999", &"9".repeat(100_000)] {
        assert_eq!(rejection::<f64>(text), OUT_OF_RANGE);
        assert_eq!(rejection::<f32>(text), OUT_OF_RANGE);
    }
    assert_eq!(rejection::<f32>("1e39"), OUT_OF_RANGE);
    assert_eq!(rejection::<f32>("-3.5e38"), OUT_OF_RANGE);
    assert_eq!(number("3.5"), Ok(3.5_f32));
}

#[test]
fn a_number_too_small_for_a_double_is_never_zero() {
    let tiny = format!("0.{}1", "0".repeat(100_000));
    for text in ["1e-400", "-1e-400", "0.1e-400", "1e-99999999999999999999", tiny.as_str()] {
        assert_eq!(rejection::<f64>(text), OUT_OF_RANGE);
    }
    assert_eq!(rejection::<f32>("1e-60"), OUT_OF_RANGE);
    for text in ["0", "0.0", "0e5", "-0.00e-999", "0E99999999999999999999"] {
        assert_eq!(number(text), Ok(0.0_f64), "{text}");
    }
}

#[test]
fn a_value_of_any_kind_refuses_the_numbers_it_cannot_hold() {
    use serde_json::{Value, json};
    assert_eq!(number("18446744073709551615"), Ok(json!(u64::MAX)));
    assert_eq!(number("-5"), Ok(json!(-5)));
    assert_eq!(number("1.5e3"), Ok(json!(1500.0)));
    assert_eq!(rejection::<Value>("18446744073709551616"), TOO_LONG);
    assert_eq!(rejection::<Value>("1e400"), OUT_OF_RANGE);
    assert_eq!(rejection::<Value>("1e-400"), OUT_OF_RANGE);
    assert_eq!(rejection::<Value>("{\"a\":[0,1e400]}"), "a[1] must be a number in the range of a double");
}

#[test]
fn a_number_is_no_other_kind() {
    assert_eq!(rejection::<String>("1"), "params must be string, got: int");
    assert_eq!(rejection::<String>("1e400"), "params must be string, got: float");
    assert_eq!(rejection::<bool>("0"), "params must be boolean, got: int");
    assert_eq!(rejection::<Vec<u64>>("1.5"), "params must be list, got: float");
    assert_eq!(rejection::<u64>("\"1\""), "params must be integer, got: str");
    assert_eq!(rejection::<f64>("\"1\""), "params must be number, got: str");
    assert_eq!(rejection::<f64>("true"), "params must be number, got: bool");
}
