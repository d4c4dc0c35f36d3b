//! Deserialized numbers: a value out of range is an error, never infinity, zero or a wrapped integer.

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
fn integers_are_accepted_up_to_the_bounds_of_their_type() {
    assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
    assert_eq!(number("9223372036854775807"), Ok(i64::MAX));
    assert_eq!(number("-9223372036854775808"), Ok(i64::MIN));
    assert_eq!(number("255"), Ok(u8::MAX));
    assert_eq!(number("-128"), Ok(i8::MIN));
    assert_eq!(number("-0"), Ok(0_u64));
    assert_eq!(number("-0"), Ok(0_i64));
}

#[test]
fn integer_out_of_range_is_rejected_not_wrapped() {
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
fn fraction_or_exponent_is_never_an_integer() {
    for text in ["1.0", "1e2", "1E2", "0.0", "-0.0", "1e400", "1e-400", "100e-2"] {
        assert_eq!(rejection::<u64>(text), "params must be integer, got: float", "{text}");
        assert_eq!(rejection::<i64>(text), "params must be integer, got: float", "{text}");
    }
}

#[test]
fn doubles_are_rounded_to_the_nearest() {
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
fn double_overflow_is_rejected() {
    for text in ["1e400", "-1e400", "1.8e308", "1E99999999999999999999", &"9".repeat(100_000)] {
        assert_eq!(rejection::<f64>(text), OUT_OF_RANGE);
        assert_eq!(rejection::<f32>(text), OUT_OF_RANGE);
    }
    assert_eq!(rejection::<f32>("1e39"), OUT_OF_RANGE);
    assert_eq!(rejection::<f32>("-3.5e38"), OUT_OF_RANGE);
    assert_eq!(number("3.5"), Ok(3.5_f32));
}

#[test]
fn double_underflow_is_rejected() {
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
fn untyped_value_rejects_numbers_out_of_range() {
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
fn number_is_rejected_as_any_other_type() {
    assert_eq!(rejection::<String>("1"), "params must be string, got: int");
    assert_eq!(rejection::<String>("1e400"), "params must be string, got: float");
    assert_eq!(rejection::<bool>("0"), "params must be boolean, got: int");
    assert_eq!(rejection::<Vec<u64>>("1.5"), "params must be list, got: float");
    assert_eq!(rejection::<u64>("\"1\""), "params must be integer, got: str");
    assert_eq!(rejection::<f64>("\"1\""), "params must be number, got: str");
    assert_eq!(rejection::<f64>("true"), "params must be number, got: bool");
}
