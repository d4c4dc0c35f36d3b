//! `events`: output formats, and reconnecting when the daemon stops.

use super::*;

const TWO_EVENTS: &str = "id: 6\n\n: hello\n\nid: 7\nevent: turn_begun\n\
data: {\"sequence\":7,\"agent_id\":\"a\",\"number\":3,\"at\":\"2026-11-16T02:00:00.000001Z\",\"kind\":\"turn_begun\",\"turn\":1}\n\n\
event: text_delta\ndata: {\"kind\":\"text_delta\",\"journalled\":false,\"agent_id\":\"a\",\"request_id\":\"r\",\"turn\":1,\"text\":\"hi\\n\"}\n\n";

const STOPPED: &str = "id: 8\nevent: daemon_stopped\n\
data: {\"sequence\":8,\"agent_id\":null,\"number\":1,\"at\":\"2026-11-16T02:00:00.000002Z\",\"kind\":\"daemon_stopped\"}\n\n";

const UNKNOWN_KIND: &str = "id: 9\nevent: slept\ndata: {\"kind\":\"slept\",\"sequence\":9}\n\n";

fn agent_not_found_reply() -> Reply {
    Reply::HttpRefusal(404, "Agent not found: a")
}

#[tokio::test]
async fn events_are_printed_as_text_lines() {
    let daemon =
        ScriptedDaemon::start(&[("events", Reply::Stream(TWO_EVENTS)), ("events", agent_not_found_reply())]);
    let outcome = rpc(&daemon, &["events"]).await;
    let expected = "     7 2026-11-16T02:00:00.000001Z a turn_begun turn 1\n     - a text_delta \"hi\\n\"\n";
    assert_eq!((outcome.code, outcome.output.as_str()), (1, expected));
    let lost = "the daemon closed the stream; reconnecting until Ctrl-C\nAgent not found: a (-32600)\n";
    assert_eq!(outcome.errors, lost);
}

#[tokio::test]
async fn events_are_printed_as_json_lines() {
    let both = [
        ("events", Reply::Stream(STOPPED)),
        ("events", Reply::Stream(UNKNOWN_KIND)),
        ("events", agent_not_found_reply()),
    ];
    let daemon = ScriptedDaemon::start(&both);
    let outcome = rpc(&daemon, &["events", "--json"]).await;
    let lines: Vec<Value> = outcome.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines[0]["kind"].as_str(), lines[0]["sequence"].as_u64()), (Some("daemon_stopped"), Some(8)));
    assert_eq!(lines[1], json!({ "kind": "slept", "sequence": 9 }));
}

#[tokio::test]
async fn reconnect_continues_after_the_last_event() {
    let replies = [
        ("events", Reply::Stream(TWO_EVENTS)),
        ("events", Reply::Stream(STOPPED)),
        ("events", agent_not_found_reply()),
    ];
    let daemon = ScriptedDaemon::start(&replies);
    rpc(
        &daemon,
        &["events", "--agent", "a", "--kind", "turn_begun,message", "--kind", "denied", "--no-deltas"],
    )
    .await;
    let paths: Vec<String> = daemon.received().into_iter().map(|request| request.path).collect();
    let filter = "kind=turn_begun,message,denied&deltas=false";
    let expected = [format!("/agent/a/events?{filter}"), format!("/agent/a/events?after=7&{filter}")];
    assert_eq!(paths[..2], expected);
    assert!(paths[2].starts_with("/agent/a/events?after=8&"), "{}", paths[2]);
}

#[tokio::test]
async fn ctrl_c_ends_events_with_exit_0() {
    let daemon =
        ScriptedDaemon::start(&[("events", Reply::Stream(STOPPED)), ("events", Reply::OpenStream(""))]);
    let outcome = CommandRun::new(&daemon, &["events", "--after", "0"])
        .finish_with_interrupt(daemon.subscription_arrived(2))
        .await;
    assert_eq!((outcome.code, outcome.output.lines().count()), (0, 1));
    assert_eq!(daemon.received()[0].path, "/events?after=0");
}

#[tokio::test]
async fn restarted_daemon_gets_its_new_token() {
    let rejection = Reply::HttpRefusal(403, "Invalid API key");
    let replies =
        [("events", Reply::Stream(STOPPED)), ("events", rejection), ("events", Reply::OpenStream(""))];
    let daemon = ScriptedDaemon::start(&replies);
    let (home, path) = home_with_token_file(0o600);
    let change = async {
        daemon.subscription_arrived(1).await;
        fs::write(&path, "nxk_new").unwrap();
        daemon.subscription_arrived(3).await;
    };
    let outcome = CommandRun { home: Some(home.path()), ..CommandRun::new(&daemon, &["events"]) }
        .finish_with_interrupt(change)
        .await;
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    let heads: Vec<String> = daemon.received().into_iter().map(|request| request.head).collect();
    assert!(heads[0].contains("Bearer nxk_secret") && heads[2].contains("Bearer nxk_new"));
}

#[tokio::test]
async fn daemon_that_never_answered_is_not_retried() {
    let daemon = ScriptedDaemon::start(&[("events", Reply::HttpRefusal(403, "Invalid API key"))]);
    let outcome = rpc(&daemon, &["events"]).await;
    assert_eq!((outcome.code, daemon.received().len()), (1, 1));
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = reserved.local_addr().unwrap().port();
    let outcome = CommandRun { port, ..CommandRun::new(&daemon, &["events"]) }.finish().await;
    assert!(outcome.errors.starts_with("no nexus3 daemon at "), "{}", outcome.errors);
}
