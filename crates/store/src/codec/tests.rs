//! What is written is read back, and what was not written is refused.

use agent::journal::Record;
use proptest::prelude::*;

use super::*;
use crate::conformance::samples::{
    agent_record, edge_case_texts, every_record, kind_count, ledger, permissions, state,
};

#[test]
fn every_record_reads_back_with_every_text() {
    for text in edge_case_texts() {
        for record in every_record(&text) {
            let written = encode_record(&record).unwrap();
            assert!(decode_record(record.kind(), &written).unwrap() == record, "{}", record.kind());
        }
    }
}

#[test]
fn agents_rights_states_and_ledgers_read_back() {
    for text in edge_case_texts() {
        let record = agent_record(&text);
        let (written, given) =
            (encode_agent(&record).unwrap(), encode_permissions(&permissions(&text)).unwrap());
        assert_eq!(decode_agent(&written, "worker-1", &given).unwrap(), record);
        assert_eq!(decode_agent(&written, "renamed", &given).unwrap().id.as_str(), "renamed");
    }
    assert_eq!(decode_state(&encode_state(&state(7)).unwrap()).unwrap(), state(7));
    assert_eq!(decode_ledger(&encode_ledger(&ledger(u64::MAX)).unwrap()).unwrap(), ledger(u64::MAX));
}

#[test]
fn the_words_are_those_of_the_domain() {
    let written = |record: Record| encode_record(&record).unwrap();
    assert_eq!(written(Record::TurnBegun { turn: 3 }), r#"{"turn":3}"#);
    assert_eq!(written(Record::DaemonStopped), "{}");
    let user = agent::Message::user("hi", agent::MessageSource::default());
    assert_eq!(written(Record::MessageAdded(Box::new(user))), r#"{"role":"user","text":"hi"}"#);
}

#[test]
fn what_was_not_written_is_refused() {
    for (kind, text) in [
        ("turn_begun", r#"{"turn":1,"more":2}"#),
        ("turn_begun", r#"{"turn":1,"turn":2}"#),
        ("turn_begun", r#"{"turn":-1}"#),
        ("turn_begun", r#"{"turn":1.0}"#),
        ("turn_begun", r#"{"turn":"1"}"#),
        ("turn_begun", "{}"),
        ("turn_begun", ""),
        ("turn_begun", r#"{"turn":1"#),
        ("turn_begun", r#"{"turn":1}{}"#),
        ("daemon_stopped", r#"{"a":1}"#),
        ("agent_renamed", r#"{"by":"a","id":"../x"}"#),
        ("message", r#"{"role":"system","text":""}"#),
        ("tool_done", r#"{"turn":1,"place":0,"outcome":{"lost":"x"}}"#),
        ("turn_exploded", "{}"),
        ("", ""),
    ] {
        assert!(decode_record(kind, text).is_err(), "{kind} {text}");
    }
    let plain = encode_agent(&agent_record("x")).unwrap();
    let given = encode_permissions(&permissions("x")).unwrap();
    for (from, to) in
        [("/srv/work", "/srv/../work"), ("/srv/work", "work"), ("\"mark\"", "\"forget\""), ("0007", "00")]
    {
        assert!(plain.contains(from), "{from}");
        assert!(decode_agent(&plain.replacen(from, to, 1), "worker-1", &given).is_err(), "{from} -> {to}");
    }
}

#[test]
fn no_letter_of_a_sealed_text_can_be_changed() {
    for text in [encode_state(&state(7)).unwrap(), encode_ledger(&ledger(7)).unwrap()] {
        for place in 0..text.len() {
            for bit in [0, 1, 2, 3] {
                let mut bytes = text.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                let Ok(changed) = String::from_utf8(bytes) else { continue };
                assert!(decode_state(&changed).is_err() && decode_ledger(&changed).is_err(), "{changed}");
            }
        }
        assert!(strip_checksum(&text[1..]).is_err() && strip_checksum(&text[..text.len() - 1]).is_err());
    }
    assert!(strip_checksum("").is_err() && strip_checksum("äääääääää").is_err());
}

/// A kind and a text that was once right, with a few bytes changed.
fn mutated_record() -> impl Strategy<Value = (&'static str, String)> {
    let samples: Vec<_> = every_record("text \u{1f980}")
        .iter()
        .map(|record| (record.kind(), encode_record(record).unwrap()))
        .collect();
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    (proptest::sample::select(samples), changes).prop_map(|((kind, text), changes)| {
        let mut bytes = text.into_bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        (kind, String::from_utf8_lossy(&bytes).into_owned())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_is_read_panics(kind in "[a-z_]{0,12}", text in ".{0,200}", (near, almost) in mutated_record()) {
        let _ = decode_record(&kind, &text);
        let _ = (decode_state(&text), decode_ledger(&text), decode_permissions(&text), decode_agent(&text, &text, &text));
        // What is read is written as it was meant, or refused.
        if let Ok(record) = decode_record(near, &almost) {
            prop_assert_eq!(decode_record(near, &encode_record(&record).unwrap()).unwrap(), record);
        }
    }
}

#[test]
fn there_is_a_sample_of_every_kind() {
    let there: std::collections::BTreeSet<_> = every_record("").iter().map(Record::kind).collect();
    assert_eq!(there.len(), kind_count(&Record::DaemonStopped));
}
