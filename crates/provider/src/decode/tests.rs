//! Tests of what all readers hold to: limits, and nothing behind a fault.

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
    let mut reader = dialect.decoder();
    for event in events {
        reader.decode(event.as_bytes(), &mut |item| items.push(item));
    }
    assert!(reader.is_complete(), "nothing behind a fault matters");
    reader.finish(&mut |item| items.push(item));
    items
}

/// The start of a call in each API, by its number.
type CallStart = fn(usize) -> String;

/// More of the first call's arguments.
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
fn too_many_calls_are_a_fault_and_none_of_them_runs() {
    for (dialect, open, _) in dialects() {
        let items = decode_events(dialect.as_ref(), (0..300).map(open));
        let fault = model_fault("The model made more than 128 tool calls.".to_owned());
        assert_eq!(items, [Err(fault)]);
    }
}

#[test]
fn an_endless_call_is_a_fault() {
    let piece = "x".repeat(1024 * 1024);
    for (dialect, open, grow) in dialects() {
        let items =
            decode_events(dialect.as_ref(), [open(0)].into_iter().chain((0..5).map(|_| grow(&piece))));
        let fault = model_fault("The model made a tool call of more than 4194304 bytes.".to_owned());
        assert_eq!(items, [Err(fault)]);
    }
}

#[test]
fn no_call_runs_without_a_piece_that_cannot_be_read() {
    let lone = r#"{\"a\":\"\ud800\"}"#;
    let raw = [r#"{"choices":[{"delta":{"tool_calls":"#, "\0", "no JSON"].map(str::to_owned);
    for (dialect, open, grow) in dialects() {
        let fault = model_fault("The model sent a piece of a tool call that cannot be read.".to_owned());
        for broken in raw.iter().cloned().chain([grow(lone), grow(r"\ud800")]) {
            let events = [open(0), grow(r#"{\"a\":1}"#), broken.clone()].into_iter();
            assert_eq!(decode_events(dialect.as_ref(), events), [Err(fault.clone())], "{broken}");
        }
        let mut items = Vec::new();
        dialect.decoder().decode(b"no JSON", &mut |item| items.push(item));
        assert_eq!(items, [], "before there is a call, it costs nothing but itself");
    }
}

#[test]
fn a_chunk_with_calls_before_it_is_read_whole() {
    let (dialect, open, _) = &dialects()[0];
    for odd in [r#"{"choices":"x"}"#, r#"{"choices":["x"]}"#, r#"{"choices":[{"delta":"x"}]}"#] {
        let fault = model_fault("The model sent a piece of a tool call that cannot be read.".to_owned());
        assert_eq!(
            decode_events(dialect.as_ref(), [open(0), odd.to_owned()].into_iter()),
            [Err(fault)],
            "{odd}"
        );
    }
}

#[test]
fn a_name_or_an_input_that_cannot_be_read_is_a_fault() {
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
fn an_object_has_only_texts_that_can_be_read() {
    for object in [r#"{}"#, r#" {"a":"\ud83d\ude00"} "#] {
        assert!(is_json_object(object), "{object}");
    }
    for other in [r#"{"a":"\ud800"}"#, r#"{"\udc00":1}"#, "[]", "1", "{}{}", r#"{"a""#, ""] {
        assert!(!is_json_object(other), "{other}");
    }
}

#[test]
fn counts_that_cannot_be_are_not_counted() {
    let count = |text: &str| parse_token_count(Some(serde_json::from_str(text).unwrap()));
    assert_eq!([count("0"), count("9007199254740992")], [Some(0), Some(9_007_199_254_740_992)]);
    for absurd in ["-1", "1.5", "1e3", "9007199254740993", "1e300", "\"7\"", "{}", "null", "true"] {
        assert_eq!(count(absurd), None, "{absurd}");
    }
}

#[test]
fn a_fault_of_the_server_is_cut_and_names_its_kind_for_the_log() {
    let told = |text: &str| fault_from_error(Some(serde_json::from_str(text).unwrap()));
    let fault = told(r#"{"message":"Overloaded","type":"overloaded_error"}"#);
    assert_eq!(
        (fault.public.as_ref(), fault.cause.as_deref()),
        ("API request failed: Overloaded", Some("\"overloaded_error\""))
    );
    assert_eq!(told("\"no\"").public, "API request failed: no");
    assert_eq!(told("[]").public, "API request failed: no reason given");
    let long = told(&format!(r#"{{"message":"{}"}}"#, "\u{e4}".repeat(5000)));
    assert!(long.public.len() < 4100);
}

#[test]
fn calls_without_ids_get_some_that_no_other_answer_has() {
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
