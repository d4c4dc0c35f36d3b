//! Tests of all decoders: limits, malformed calls, and that nothing follows a fault.

use super::*;
use crate::anthropic::Anthropic;
use crate::chat::Chat;
use crate::dialect::Dialect;
use crate::responses::Responses;

fn decode_events(
    dialect: &dyn Dialect,
    events: impl Iterator<Item = String>,
) -> Vec<Result<ModelEvent, Fault>> {
    let mut items = Vec::new();
    let mut decoder = dialect.decoder();
    for event in events {
        decoder.decode(event.as_bytes(), &mut |item| items.push(item));
    }
    assert!(decoder.is_complete(), "a fault completes the response");
    decoder.finish(&mut |item| items.push(item));
    items
}

/// Event that starts the call of this number.
type CallStart = fn(usize) -> String;

/// Event with a delta of the first call's arguments.
type CallDelta = fn(&str) -> String;

fn dialects() -> [(Box<dyn Dialect>, CallStart, CallDelta); 3] {
    [
        (
            Box::new(Chat::OPENAI),
            |n| {
                format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{n},"id":"c{n}","function":{{"name":"x","arguments":""}}}}]}}}}]}}"#
                )
            },
            |more| {
                format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{{"arguments":"{more}"}}}}]}}}}]}}"#
                )
            },
        ),
        (
            Box::new(Responses),
            |n| {
                format!(
                    r#"{{"type":"response.output_item.added","output_index":{n},"item":{{"type":"function_call","call_id":"c{n}","name":"x"}}}}"#
                )
            },
            |more| {
                format!(
                    r#"{{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{more}"}}"#
                )
            },
        ),
        (
            Box::new(Anthropic),
            |n| {
                format!(
                    r#"{{"type":"content_block_start","index":{n},"content_block":{{"type":"tool_use","id":"c{n}","name":"x","input":{{}}}}}}"#
                )
            },
            |more| {
                format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":"{more}"}}}}"#
                )
            },
        ),
    ]
}

#[test]
fn too_many_calls_are_a_fault_without_any_call() {
    for (dialect, call_start, _) in dialects() {
        let items = decode_events(dialect.as_ref(), (0..300).map(call_start));
        let fault = model_fault("The model made more than 128 tool calls.".to_owned());
        assert_eq!(items, [Err(fault)]);
    }
}

#[test]
fn oversized_call_is_a_fault() {
    let piece = "x".repeat(1024 * 1024);
    for (dialect, call_start, call_delta) in dialects() {
        let items = decode_events(
            dialect.as_ref(),
            [call_start(0)].into_iter().chain((0..5).map(|_| call_delta(&piece))),
        );
        let fault = model_fault("The model made a tool call of more than 4194304 bytes.".to_owned());
        assert_eq!(items, [Err(fault)]);
    }
}

#[test]
fn malformed_delta_of_a_call_is_a_fault() {
    let lone = r#"{\"a\":\"\ud800\"}"#;
    let raw = [r#"{"choices":[{"delta":{"tool_calls":"#, "\0", "no JSON"].map(str::to_owned);
    for (dialect, call_start, call_delta) in dialects() {
        let fault = model_fault("The model sent a piece of a tool call that cannot be read.".to_owned());
        for broken in raw.iter().cloned().chain([call_delta(lone), call_delta(r"\ud800")]) {
            let events = [call_start(0), call_delta(r#"{\"a\":1}"#), broken.clone()].into_iter();
            assert_eq!(decode_events(dialect.as_ref(), events), [Err(fault.clone())], "{broken}");
        }
        let mut items = Vec::new();
        dialect.decoder().decode(b"no JSON", &mut |item| items.push(item));
        assert_eq!(items, [], "ignored before the first call");
    }
}

#[test]
fn malformed_chunk_after_a_call_is_a_fault() {
    let (dialect, call_start, _) = &dialects()[0];
    for odd in [r#"{"choices":"x"}"#, r#"{"choices":["x"]}"#, r#"{"choices":[{"delta":"x"}]}"#] {
        let fault = model_fault("The model sent a piece of a tool call that cannot be read.".to_owned());
        assert_eq!(
            decode_events(dialect.as_ref(), [call_start(0), odd.to_owned()].into_iter()),
            [Err(fault)],
            "{odd}"
        );
    }
}

#[test]
fn malformed_call_name_or_input_is_a_fault() {
    let cases: [(Box<dyn Dialect>, &str); 6] = [
        (Box::new(Chat::OPENAI), r#"{"choices":[{"delta":{"tool_calls":"x"}}]}"#),
        (Box::new(Chat::OPENAI), r#"{"choices":[{"delta":{"tool_calls":["x"]}}]}"#),
        (Box::new(Chat::OPENAI), r#"{"choices":[{"delta":{"tool_calls":[{"function":"x"}]}}]}"#),
        (
            Box::new(Chat::OPENAI),
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"\ud800"}}]}}]}"#,
        ),
        (
            Box::new(Responses),
            r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"\ud800"}}"#,
        ),
        (
            Box::new(Anthropic),
            r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"\ud800"}}"#,
        ),
    ];
    for (dialect, event) in cases {
        let fault = model_fault("The model sent a piece of a tool call that cannot be read.".to_owned());
        assert_eq!(decode_events(dialect.as_ref(), [event.to_owned()].into_iter()), [Err(fault)], "{event}");
    }
    let events = [
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"c","name":"x","input":{"a":"\ud800"}}}"#,
        r#"{"type":"content_block_stop"}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let fault = model_fault("The model's answer was cut off in the middle of a tool call.".to_owned());
    assert_eq!(decode_events(&Anthropic, events.map(str::to_owned).into_iter()), [Err(fault)]);
}

#[test]
fn json_object_must_be_complete_with_valid_strings() {
    for object in [r#"{}"#, r#" {"a":"\ud83d\ude00"} "#] {
        assert!(is_json_object(object), "{object}");
    }
    for other in [r#"{"a":"\ud800"}"#, r#"{"\udc00":1}"#, "[]", "1", "{}{}", r#"{"a""#, ""] {
        assert!(!is_json_object(other), "{other}");
    }
}

#[test]
fn implausible_token_counts_are_ignored() {
    let count = |text: &str| parse_token_count(Some(serde_json::from_str(text).unwrap()));
    assert_eq!([count("0"), count("9007199254740992")], [Some(0), Some(9_007_199_254_740_992)]);
    for absurd in ["-1", "1.5", "1e3", "9007199254740993", "1e300", "\"7\"", "{}", "null", "true"] {
        assert_eq!(count(absurd), None, "{absurd}");
    }
}

#[test]
fn server_error_is_truncated_and_its_type_is_the_cause() {
    let fault_of = |text: &str| fault_from_error(Some(serde_json::from_str(text).unwrap()));
    let fault = fault_of(r#"{"message":"Overloaded","type":"overloaded_error"}"#);
    assert_eq!(
        (fault.public.as_ref(), fault.cause.as_deref()),
        ("API request failed: Overloaded", Some("\"overloaded_error\""))
    );
    assert_eq!(fault_of("\"no\"").public, "API request failed: no");
    assert_eq!(fault_of("[]").public, "API request failed: no reason given");
    let long = fault_of(&format!(r#"{{"message":"{}"}}"#, "\u{e4}".repeat(5000)));
    assert!(long.public.len() < 4100);
}

#[test]
fn generated_call_ids_are_unique_across_responses() {
    let event = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"x","arguments":"{}"}},{"index":1,"function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let ids = || {
        let items = decode_events(&Chat::OPENAI, [event, "[DONE]"].map(str::to_owned).into_iter());
        items.into_iter().filter_map(|item| match item {
            Ok(ModelEvent::ToolCall(call)) => Some(call.id),
            _ => None,
        })
    };
    let all: std::collections::BTreeSet<_> = ids().chain(ids()).chain(ids()).collect();
    assert_eq!(all.len(), 6, "{all:?}");
}
