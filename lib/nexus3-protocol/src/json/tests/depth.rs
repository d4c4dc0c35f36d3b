//! Nesting depth: the limit, and that deeper input costs neither stack nor time.

use std::thread;

use super::super::{DEPTH_MAX, SyntaxFault, parse, parse_members};
use crate::envelope::{EnvelopeRules, Incoming, Response, ResponseFault};

fn nested(open: &str, inside: &str, close: &str, times: usize) -> Vec<u8> {
    [open.repeat(times).as_str(), inside, close.repeat(times).as_str()].concat().into_bytes()
}

/// Runs `test` with far less stack than a thread of the daemon has.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(192 * 1024).spawn(test).unwrap().join().unwrap();
}

#[test]
fn depth_64_is_accepted_and_65_is_rejected() {
    assert_eq!(DEPTH_MAX, 64);
    for (open, inside, close) in [("[", "", "]"), ("{\"a\":", "1", "}"), (" [ ", "{}", " ] ")] {
        let levels = DEPTH_MAX - usize::from(inside == "{}");
        let passes = nested(open, inside, close, levels);
        assert!(parse(&passes).is_ok() && parse_members(&passes).is_ok(), "{open}");
        let deeper = nested(open, inside, close, levels + 1);
        assert_eq!(parse(&deeper).unwrap_err(), SyntaxFault::Depth, "{open}");
        assert_eq!(parse_members(&deeper).unwrap_err(), SyntaxFault::Depth, "{open}");
    }
}

#[test]
fn batch_array_counts_as_a_level_of_depth() {
    let batch = |levels| [b"[", nested("{\"a\":", "1", "}", levels).as_slice(), b"]"].concat();
    assert!(parse(&batch(DEPTH_MAX - 1)).is_ok() && parse_members(&batch(DEPTH_MAX - 1)).is_ok());
    assert_eq!(parse(&batch(DEPTH_MAX)).unwrap_err(), SyntaxFault::Depth);
    assert_eq!(parse_members(&batch(DEPTH_MAX)).unwrap_err(), SyntaxFault::Depth);
}

#[test]
fn sibling_values_do_not_add_depth() {
    let siblings = nested("[[],", "0", ",[]]", DEPTH_MAX - 1);
    assert!(parse(&siblings).is_ok());
    assert_eq!(parse(&nested("[[],", "0", "]", DEPTH_MAX)).unwrap_err(), SyntaxFault::Depth);
}

#[test]
fn deepest_value_is_parsed_on_a_small_stack() {
    on_small_stack(|| {
        assert!(parse(&nested("[{\"\":", "[]", "}]", 31)).is_ok());
        assert!(parse_members(&nested("{\"\":[", "{}", "]}", 31)).is_ok());
        assert!(parse(&nested("{\"a\":", "1", "}", DEPTH_MAX)).is_ok());
    });
}

#[test]
fn every_parser_rejects_100_000_levels_on_a_small_stack() {
    on_small_stack(|| {
        for (part, times) in [("[{\"\":", 50_000), ("[", 100_000), ("{\"a\":", 100_000), ("[[{\"\":", 40_000)]
        {
            let bytes = nested(part, "", "", times);
            assert_eq!(parse(&bytes).unwrap_err(), SyntaxFault::Depth, "{part}");
            assert_eq!(parse_members(&bytes).unwrap_err(), SyntaxFault::Depth, "{part}");
            assert_eq!(
                Response::parse(&bytes).unwrap_err(),
                ResponseFault::Syntax(SyntaxFault::Depth),
                "{part}"
            );
            let request = [br#"{"jsonrpc":"2.0","id":1,"method":"m","params":"#, bytes.as_slice()].concat();
            for rules in [EnvelopeRules::HTTP, EnvelopeRules::FULL] {
                for bytes in [&bytes, &request] {
                    let rejected = Incoming::parse(bytes, rules).unwrap_err();
                    assert_eq!(
                        rejected.error.message, "Invalid JSON: nested deeper than 64 levels",
                        "{part}"
                    );
                    assert_eq!((rejected.error.code, rejected.id.raw()), (-32700, "null"), "{part}");
                }
            }
        }
    });
}

#[test]
fn long_flat_array_is_accepted() {
    on_small_stack(|| {
        let text = format!("[0{}]", ",0".repeat(999_999));
        let document = parse(text.as_bytes()).unwrap();
        assert!(matches!(document.value, super::Json::Array(items) if items.len() == 1_000_000));
    });
}
