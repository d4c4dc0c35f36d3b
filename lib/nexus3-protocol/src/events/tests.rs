//! Events: exact JSON of every kind, encoding on a stream, and the query string.

mod query;
mod shapes;

use std::collections::HashSet;

use super::*;
use crate::sse::SseDecoder;

#[test]
fn names_are_unique_and_can_be_looked_up() {
    let mut names = HashSet::new();
    for &kind in EventKind::ALL {
        assert!(names.insert(kind.name()) && kind.name() != RESPONSE_EVENT, "{}", kind.name());
        assert_eq!(EventKind::find(kind.name()), Some(kind));
        assert!(kind.doc().ends_with('.'), "{}", kind.name());
    }
    for name in ["", "Message", "message ", "response", "agent-created"] {
        assert_eq!(EventKind::find(name), None, "{name:?}");
    }
}

#[test]
fn only_journalled_events_have_an_id_on_the_stream() {
    for (event, json) in shapes::all() {
        let mut bytes = Vec::new();
        event.encode(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let kind = event.kind();
        let id = if kind.is_journalled() { "id: 9\n" } else { "" };
        assert_eq!(text, format!("{id}event: {}\ndata: {json}\n\n", kind.name()));
    }
}

#[test]
fn every_event_round_trips_through_a_stream() {
    let mut bytes = Vec::new();
    let events = shapes::all();
    for (event, _) in &events {
        event.encode(&mut bytes).unwrap();
    }
    let mut decoder = SseDecoder::new(bytes.len());
    decoder.feed(&bytes);
    for (event, _) in &events {
        let read = decoder.next_event().unwrap().unwrap();
        assert_eq!(Event::decode(&read.event, &read.data).unwrap().as_ref(), Some(event));
    }
    assert_eq!(decoder.next_event(), Ok(None));
    assert_eq!(decoder.last_event_id(), Some("9"));
}

#[test]
fn unknown_kinds_and_members_are_skipped() {
    assert_eq!(Event::decode("weather", "{}").unwrap(), None);
    assert_eq!(Event::decode(RESPONSE_EVENT, "{}").unwrap(), None);
    let data =
        r#"{"sequence":9,"agent_id":"a","number":4,"at":"t","kind":"turn_begun","turn":2,"weather":[9]}"#;
    let Some(Event::Journalled(event)) = Event::decode("turn_begun", data).unwrap() else {
        panic!("not a journalled event")
    };
    assert_eq!(event.record, JournalRecord::TurnBegun(TurnBegun { turn: 2 }));
}

#[test]
fn data_that_does_not_fit_its_kind_is_an_error() {
    for (kind, data) in [
        ("turn_begun", "{}"),
        ("turn_begun", "nonsense"),
        ("turn_begun", r#"{"sequence":1,"agent_id":"a","number":1,"at":"t","kind":"turn_begun"}"#),
        ("gap", r#"{"kind":"gap","journalled":true,"first":1,"last":2}"#),
    ] {
        let fault = Event::decode(kind, data).unwrap_err();
        assert!(fault.to_string().starts_with(&format!("cannot decode event {kind}: ")), "{fault}");
    }
}

#[cfg(feature = "schema")]
#[test]
fn reference_page_describes_every_kind_and_member() {
    let page = crate::schema::events_markdown();
    for (event, json) in shapes::all() {
        let kind = event.kind();
        let heading = format!("\n## {}\n", kind.name());
        let (_, section) = page.split_once(&heading).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let (head, _) = page.split_once("\n## ").unwrap();
        let members: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&json).unwrap();
        for member in members.keys() {
            let row = format!("| `{member}` |");
            assert!(section.contains(&row) || head.contains(&row), "{member} of {} is missing", kind.name());
        }
    }
    assert!(page.contains("\n## response\n") && page.contains("\n## MessageEvent\n"));
}
