//! Which requests are for an event stream, and from where on.

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
fn two_paths_can_be_watched_and_only_with_get() {
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
fn a_caller_takes_a_stream_when_it_says_so() {
    for (accept, takes) in [
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
        assert_eq!(accepts_event_stream(&parts("/", &[("accept", accept)]).headers), takes, "{accept}");
    }
    assert!(accepts_event_stream(&parts("/", &[("accept", "a/b"), ("accept", "text/event-stream")]).headers));
    assert!(!accepts_event_stream(&HeaderMap::new()));
}

#[test]
fn the_header_counts_before_the_query() {
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
fn a_cursor_that_is_none_is_refused_wherever_it_stands() {
    let said = |target: &str, headers: &[(&str, &str)]| {
        parse_query(&parts(target, headers)).unwrap_err().to_string()
    };
    for bad in ["", "x", "-1", "1 2", "\u{e9}"] {
        let text = said("/events?after=5", &[("last-event-id", bad)]);
        assert!(text.starts_with("Last-Event-ID must be a sequence number, got: '"), "{text}");
    }
    let text = said("/events?after=x", &[("last-event-id", "7")]);
    assert_eq!(text, "after must be a sequence number, got: 'x'");
    let twice = [("last-event-id", "7"), ("last-event-id", "7")];
    assert_eq!(said("/events", &twice), "Last-Event-ID is given twice");
}

#[test]
fn what_the_desk_says_becomes_a_status() {
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
