//! Tests of parser and deserializer, by topic; `suite` covers the grammar.

mod depth;
mod duplicates;
mod faults;
mod numbers;
mod previews;
mod random;
mod typed;

use std::collections::HashMap;

use serde_json::Value;

use super::Json;

/// Whether both values are equal: numbers to the accuracy of a double, members in any order, the last of duplicate
/// keys.
pub(super) fn is_equivalent(ours: &Json<'_>, other: &Value) -> bool {
    match (ours, other) {
        (Json::Null, Value::Null) => true,
        (Json::Bool(ours), Value::Bool(other)) => ours == other,
        (Json::Number(ours), Value::Number(other)) => {
            let other = other.as_f64();
            ours.parse().is_ok_and(|ours| other.is_some_and(|other| is_close(ours, other)))
        }
        (Json::String(ours), Value::String(other)) => ours == other,
        (Json::Array(ours), Value::Array(other)) => {
            ours.len() == other.len()
                && ours.iter().zip(other).all(|(ours, other)| is_equivalent(ours, other))
        }
        (Json::Object(ours), Value::Object(other)) => {
            let last: HashMap<_, _> = ours.iter().map(|(key, value)| (key.as_ref(), value)).collect();
            last.len() == other.len()
                && last
                    .iter()
                    .all(|(&key, ours)| other.get(key).is_some_and(|other| is_equivalent(ours, other)))
        }
        _ => false,
    }
}

/// `serde_json` may be off by one unit from the nearest double.
fn is_close(ours: f64, other: f64) -> bool {
    (ours - other).abs() <= (ours.abs() * 1e-15).max(f64::MIN_POSITIVE)
}
