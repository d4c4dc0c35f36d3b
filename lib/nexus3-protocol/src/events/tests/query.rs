//! Query string of the event streams: parsing, serializing and error texts.

use super::*;

fn kinds(kinds: &[EventKind]) -> Option<std::collections::BTreeSet<EventKind>> {
    Some(kinds.iter().copied().collect())
}

fn query(
    after: Option<u64>,
    kinds: Option<std::collections::BTreeSet<EventKind>>,
    deltas: bool,
) -> EventQuery {
    EventQuery { after, filter: EventKindFilter { kinds, deltas } }
}

#[test]
fn query_has_a_cursor_and_a_filter() {
    use EventKind::{MessageEvent, TurnEnded};
    for (text, expected) in [
        ("", query(None, None, true)),
        ("&&", query(None, None, true)),
        ("after=0", query(Some(0), None, true)),
        ("after=18446744073709551615", query(Some(u64::MAX), None, true)),
        ("after=007", query(Some(7), None, true)),
        ("kind=message", query(None, kinds(&[MessageEvent]), true)),
        ("kind=message,turn_ended", query(None, kinds(&[MessageEvent, TurnEnded]), true)),
        ("kind=message%2Cturn_ended", query(None, kinds(&[MessageEvent, TurnEnded]), true)),
        ("kind=turn_ended&kind=message&kind=message", query(None, kinds(&[MessageEvent, TurnEnded]), true)),
        ("deltas=true", query(None, None, true)),
        ("deltas=false&after=%31", query(Some(1), None, false)),
    ] {
        assert_eq!(EventQuery::parse(text), Ok(expected), "{text}");
    }
}

#[test]
fn query_round_trips() {
    for original in [
        query(None, None, true),
        query(Some(7), None, false),
        query(Some(0), kinds(EventKind::ALL), true),
        query(None, kinds(&[EventKind::Denied]), false),
    ] {
        let text = original.to_query_string();
        assert_eq!(EventQuery::parse(text.strip_prefix('?').unwrap_or(&text)), Ok(original), "{text}");
    }
    assert_eq!(query(None, None, true).to_query_string(), "");
    assert_eq!(
        query(Some(7), kinds(&[EventKind::Denied]), false).to_query_string(),
        "?after=7&kind=denied&deltas=false"
    );
}

#[test]
fn invalid_query_is_reported_with_the_choices() {
    let error_text = |text: &str| EventQuery::parse(text).unwrap_err().to_string();
    for text in ["-1", "+1", "", "1.0", "abc", "18446744073709551616", "1%00", "%"] {
        assert!(
            error_text(&format!("after={text}")).starts_with("after must be a sequence number, got: '"),
            "{text}"
        );
    }
    let choices = EventKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    for (text, got) in
        [("kind=weather", "weather"), ("kind=", ""), ("kind=message,", ""), ("kind=response", "response")]
    {
        assert_eq!(error_text(text), format!("kind must be one of {choices}, got: '{got}'"));
    }
    assert_eq!(error_text("deltas=no"), "deltas must be true or false, got: 'no'");
    assert_eq!(error_text("after=1&after=2"), "after is given twice");
    assert_eq!(error_text("deltas=true&deltas=true"), "deltas is given twice");
    assert_eq!(error_text("limit=5"), "unknown query parameter 'limit': use after, kind and deltas");
    assert_eq!(error_text("After=5"), "unknown query parameter 'After': use after, kind and deltas");
    assert!(error_text(&format!("deltas={}", "x".repeat(10_000))).len() < 200);
    assert!(!error_text("deltas=%0A%1b").contains('\n'));
}

#[test]
fn filter_always_passes_gap_and_lagged() {
    let only = query(None, kinds(&[EventKind::MessageEvent]), true).filter;
    let passing: Vec<_> = EventKind::ALL.iter().copied().filter(|kind| only.matches(*kind)).collect();
    assert_eq!(passing, [EventKind::MessageEvent, EventKind::Gap, EventKind::Lagged]);
    let quiet = query(None, None, false).filter;
    let hidden: Vec<_> = EventKind::ALL.iter().copied().filter(|kind| !quiet.matches(*kind)).collect();
    assert_eq!(hidden, [EventKind::TextDelta, EventKind::ReasoningDelta, EventKind::ToolOutputDelta]);
    let both = query(None, kinds(&[EventKind::TextDelta]), false).filter;
    assert!(!both.matches(EventKind::TextDelta));
    assert!(EventKind::ALL.iter().all(|kind| EventKindFilter::default().matches(*kind)));
}
