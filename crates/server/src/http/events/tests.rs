//! Tests of paths, content negotiation and cursors of event streams.

use hyper::Request;

use super::*;

fn parts(target: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::get(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn event_paths_are_recognized_only_with_get() {
    for (path, expected) in [
        ("/events", Some(EventPath::All)),
        ("/agent/a/events", Some(EventPath::Agent("a"))),
        ("/agent/../events", Some(EventPath::Agent(".."))),
        ("/agent/events/events", Some(EventPath::Agent("events"))),
        ("/agent//events", None),
        ("/agent/events", None),
        ("/agent/a/b/events", None),
        ("/agent/a/events/", None),
        ("/agent/a", None),
        ("/events/", None),
        ("/Events", None),
        ("//events", None),
        ("/rpc/events", None),
        ("/", None),
        ("*", None),
    ] {
        assert_eq!(EventPath::parse(&Method::GET, path), expected, "{path}");
        for method in [Method::POST, Method::HEAD, Method::PUT, Method::OPTIONS, Method::DELETE] {
            assert_eq!(EventPath::parse(&method, path), None, "{method} {path}");
        }
    }
}

#[test]
fn an_event_stream_needs_an_explicit_accept_header() {
    for (accept, expected) in [
        ("text/event-stream", true),
        ("Text/Event-Stream", true),
        ("application/json, text/event-stream;q=0.9", true),
        ("text/event-stream ; charset=utf-8", true),
        ("application/json", false),
        ("*/*", false),
        ("text/*", false),
        ("text/event-streams", false),
        ("", false),
    ] {
        assert_eq!(accepts_event_stream(&parts("/", &[("accept", accept)]).headers), expected, "{accept}");
    }
    assert!(accepts_event_stream(&parts("/", &[("accept", "a/b"), ("accept", "text/event-stream")]).headers));
    assert!(!accepts_event_stream(&HeaderMap::new()));
}

#[test]
fn last_event_id_overrides_the_query() {
    let after = |target: &str, headers: &[(&str, &str)]| {
        parse_query(&parts(target, headers)).map(|query| query.after)
    };
    assert_eq!(after("/events", &[]), Ok(None));
    assert_eq!(after("/events?", &[]), Ok(None));
    assert_eq!(after("/events?after=5", &[]), Ok(Some(5)));
    assert_eq!(after("/events?after=5", &[("last-event-id", "7")]), Ok(Some(7)));
    assert_eq!(after("/events", &[("Last-Event-ID", "0")]), Ok(Some(0)));
}

#[test]
fn an_invalid_cursor_is_rejected_in_header_and_query() {
    let problem = |target: &str, headers: &[(&str, &str)]| {
        parse_query(&parts(target, headers)).unwrap_err().to_string()
    };
    for invalid in ["", "x", "-1", "1 2", "\u{e9}"] {
        let text = problem("/events?after=5", &[("last-event-id", invalid)]);
        assert!(text.starts_with("Last-Event-ID must be a sequence number, got: '"), "{text}");
    }
    let text = problem("/events?after=x", &[("last-event-id", "7")]);
    assert_eq!(text, "after must be a sequence number, got: 'x'");
    let twice = [("last-event-id", "7"), ("last-event-id", "7")];
    assert_eq!(problem("/events", &twice), "Last-Event-ID is given twice");
}

#[test]
fn stream_errors_map_to_http_statuses() {
    let text = || "why".to_owned();
    for (fault, status) in [
        (StreamError::Denied(text()), 403),
        (StreamError::AgentNotFound(text()), 404),
        (StreamError::Busy(text()), 503),
        (StreamError::Failed(text()), 500),
    ] {
        let refusal = stream_refusal(fault);
        assert_eq!(
            (refusal.status.as_u16(), refusal.message.as_ref(), refusal.closes_connection),
            (status, "why", false)
        );
    }
}
