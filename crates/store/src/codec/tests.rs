//! Round trips of the codec, and texts it has to reject.

use agent::journal::{AgentRecord, AgentState, Record};
use proptest::prelude::*;

use super::*;
use crate::conformance::samples::{
    agent_record, edge_case_texts, every_record, kind_count, ledger, permissions, permissions_with_hosts,
    state, state_with_identities, state_with_plan,
};

#[test]
fn every_record_kind_round_trips_with_edge_case_texts() {
    for text in edge_case_texts() {
        for record in every_record(&text) {
            let encoded = encode_record(&record).unwrap();
            assert!(decode_record(record.kind(), &encoded).unwrap() == record, "{}", record.kind());
        }
    }
}

#[test]
fn agents_permissions_states_and_ledgers_round_trip() {
    for text in edge_case_texts() {
        let record = agent_record(&text);
        let agent = encode_agent(&record).unwrap();
        let permissions = encode_permissions(&permissions(&text)).unwrap();
        assert_eq!(decode_agent(&agent, "worker-1", &permissions).unwrap(), record);
        assert_eq!(decode_agent(&agent, "renamed", &permissions).unwrap().id.as_str(), "renamed");
    }
    let hosts = AgentRecord { permissions: permissions_with_hosts("worker"), ..agent_record("worker") };
    let permissions = encode_permissions(&hosts.permissions).unwrap();
    let agent = encode_agent(&hosts).unwrap();
    assert_eq!(decode_agent(&agent, "worker-1", &permissions).unwrap(), hosts);
    assert!(decode_agent(&agent, "worker-1", &permissions.replace("a.example.com", "a/b")).is_err());
    for state in [state(7), state_with_identities(), state_with_plan()] {
        assert_eq!(decode_state(&encode_state(&state).unwrap()).unwrap(), state);
    }
    assert_eq!(decode_ledger(&encode_ledger(&ledger(u64::MAX)).unwrap()).unwrap(), ledger(u64::MAX));
}

/// Every stored shape, one per line. Stores of earlier versions hold these bytes: a changed line needs a migration.
#[test]
fn stored_format_is_the_golden_one() {
    let text = "a \"text\" \u{1f980}";
    let mut lines: Vec<String> = every_record(text)
        .iter()
        .map(|record| format!("{} {}", record.kind(), encode_record(record).unwrap()))
        .collect();
    lines.push(format!("agent {}", encode_agent(&agent_record(text)).unwrap()));
    lines.push(format!("permissions {}", encode_permissions(&permissions(text)).unwrap()));
    for state in [state(7), AgentState::default()] {
        lines.push(format!("state {}", encode_state(&state).unwrap()));
    }
    for version in [1, 7] {
        lines.push(format!("ledger {}", encode_ledger(&ledger(version)).unwrap()));
    }
    for state in [state_with_identities(), state_with_plan()] {
        lines.push(format!("state {}", encode_state(&state).unwrap()));
    }
    lines.push(format!("permissions {}", encode_permissions(&permissions_with_hosts(text)).unwrap()));
    let golden = include_str!("../../fixtures/stored_format.txt");
    for (line, expected) in lines.iter().zip(golden.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), golden.lines().count());
}

#[test]
fn malformed_texts_are_rejected() {
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
    let agent = encode_agent(&agent_record("x")).unwrap();
    let permissions = encode_permissions(&permissions("x")).unwrap();
    for (from, to) in
        [("/srv/work", "/srv/../work"), ("/srv/work", "work"), ("\"mark\"", "\"forget\""), ("0007", "00")]
    {
        assert!(agent.contains(from), "{from}");
        let changed = agent.replacen(from, to, 1);
        assert!(decode_agent(&changed, "worker-1", &permissions).is_err(), "{from} -> {to}");
    }
}

#[test]
fn checksum_detects_any_flipped_bit() {
    for text in [encode_state(&state(7)).unwrap(), encode_ledger(&ledger(7)).unwrap()] {
        for index in 0..text.len() {
            for bit in [0, 1, 2, 3] {
                let mut bytes = text.clone().into_bytes();
                bytes[index] ^= 1 << bit;
                let Ok(changed) = String::from_utf8(bytes) else { continue };
                assert!(decode_state(&changed).is_err() && decode_ledger(&changed).is_err(), "{changed}");
            }
        }
        assert!(strip_checksum(&text[1..]).is_err() && strip_checksum(&text[..text.len() - 1]).is_err());
    }
    assert!(strip_checksum("").is_err() && strip_checksum("äääääääää").is_err());
}

/// Generates a kind and an encoded record with a few bytes changed.
fn mutated_record() -> impl Strategy<Value = (&'static str, String)> {
    let samples: Vec<_> = every_record("text \u{1f980}")
        .iter()
        .map(|record| (record.kind(), encode_record(record).unwrap()))
        .collect();
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    (proptest::sample::select(samples), changes).prop_map(|((kind, text), changes)| {
        let mut bytes = text.into_bytes();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        (kind, String::from_utf8_lossy(&bytes).into_owned())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoding_arbitrary_text_never_panics(
        kind in "[a-z_]{0,12}",
        text in ".{0,200}",
        (mutated_kind, mutated) in mutated_record(),
    ) {
        let _ = decode_record(&kind, &text);
        let _ = (decode_state(&text), decode_ledger(&text), decode_permissions(&text), decode_agent(&text, &text, &text));
        // A mutated record is either rejected or round-trips.
        if let Ok(record) = decode_record(mutated_kind, &mutated) {
            prop_assert_eq!(decode_record(mutated_kind, &encode_record(&record).unwrap()).unwrap(), record);
        }
    }
}

#[test]
fn samples_cover_every_record_kind() {
    let kinds: std::collections::BTreeSet<_> = every_record("").iter().map(Record::kind).collect();
    assert_eq!(kinds.len(), kind_count(&Record::DaemonStopped));
}
