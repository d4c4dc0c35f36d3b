//! Event streams from a scripted server.

use nexus3_protocol::events::{EventKind, EventKindFilter};

use super::*;
use crate::Token;
use crate::scripted_server::{ScriptedServer, error_response, http_response};

fn event_stream_response(body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn message() -> SendParams {
    SendParams { content: "hello".to_owned(), ..SendParams::default() }
}

fn query(after: Option<u64>, kinds: &[EventKind]) -> EventQuery {
    let kinds = (!kinds.is_empty()).then(|| kinds.iter().copied().collect());
    EventQuery { after, filter: EventKindFilter { kinds, deltas: true } }
}

#[tokio::test]
async fn subscription_is_a_get_with_token_and_filter() {
    let mut server = ScriptedServer::respond_once(event_stream_response(
        "id: 4\n\n: hi\n\nid: 5\nevent: message\ndata: {}\n\n",
    ));
    let client = Client::new(server.endpoint.clone(), Some(Token::parse("nxk_a").unwrap()));
    let query = query(Some(4), &[EventKind::MessageEvent, EventKind::TurnEnded]);
    let mut stream =
        client.subscribe(&EventSubscription { agent_id: Some("a".to_owned()), query }).await.unwrap();
    assert_eq!(stream.cursor(), None);
    let expected = SseEvent { event: "message".to_owned(), data: "{}".to_owned() };
    assert_eq!(stream.next().await.unwrap(), Some(expected));
    assert_eq!((stream.next().await.unwrap(), stream.cursor()), (None, Some(5)));
    let request = server.next_request().await;
    let target = "GET /agent/a/events?after=4&kind=message,turn_ended HTTP/1.1\r\n";
    assert!(request.starts_with(target), "{request}");
    assert!(request.contains(": Bearer nxk_a\r\n"), "{request}");
    assert!(request.to_ascii_lowercase().contains("accept: text/event-stream\r\n"), "{request}");
}

#[test]
fn agent_id_that_could_change_the_path_is_rejected() {
    let with = |agent_id: Option<&str>| {
        events_path(&EventSubscription {
            agent_id: agent_id.map(str::to_owned),
            query: EventQuery::default(),
        })
    };
    assert_eq!(with(None).unwrap(), "/events");
    assert_eq!(with(Some("a")).unwrap(), "/agent/a/events");
    for id in ["", "a/b", "a?b", "a b"] {
        assert!(matches!(with(Some(id)), Err(ClientFault::Request(_))), "{id:?}");
    }
}

#[tokio::test]
async fn invalid_utf8_in_an_event_is_a_protocol_fault() {
    let mut bytes = event_stream_response("data: xx\n\n");
    let index = bytes.windows(2).position(|pair| pair == b"xx").unwrap();
    bytes[index] = 0xff;
    let server = ScriptedServer::respond_once(bytes);
    let mut stream =
        Client::new(server.endpoint.clone(), None).subscribe(&EventSubscription::default()).await.unwrap();
    assert!(matches!(stream.next().await, Err(ClientFault::Protocol { method: "events", .. })));
}

#[tokio::test]
async fn response_other_than_a_stream_is_an_error() {
    let server = ScriptedServer::respond_once(error_response(403, "Invalid API key"));
    let fault = Client::new(server.endpoint.clone(), None)
        .subscribe(&EventSubscription::default())
        .await
        .err()
        .unwrap();
    assert!(matches!(&fault, ClientFault::Rpc { status: 403, error } if error.message == "Invalid API key"));
    for body in ["<html>", r#"{"jsonrpc":"2.0","id":0,"result":{}}"#] {
        let server = ScriptedServer::respond_once(http_response(200, body));
        let fault = Client::new(server.endpoint.clone(), None)
            .subscribe(&EventSubscription::default())
            .await
            .err()
            .unwrap();
        assert!(matches!(&fault, ClientFault::Protocol { status: 200, .. }), "{fault}");
    }
}

#[tokio::test]
async fn streamed_send_yields_events_then_the_response() {
    let body = "event: text_delta\ndata: {\"text\":\"hi\"}\n\nevent: response\n\
                data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":\"hi\",\"request_id\":\"r\"}}\n\n";
    let mut server = ScriptedServer::respond_once(event_stream_response(body));
    let client = Client::new(server.endpoint.clone(), None);
    let mut stream = client.agent("a").send_streamed(&message()).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), SendStep::Event(event) if event.event == "text_delta"));
    assert!(matches!(stream.next().await.unwrap(), SendStep::Response(output) if output.content == "hi"));
    let request = server.next_request().await;
    assert!(request.starts_with("POST /agent/a HTTP/1.1\r\n"), "{request}");
    assert!(request.to_ascii_lowercase().contains("accept: text/event-stream\r\n"), "{request}");
}

#[tokio::test]
async fn rejected_or_truncated_streamed_send_is_an_error() {
    let refused = r#"event: response
data: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}

"#;
    let other = r#"event: response
data: {"jsonrpc":"2.0","id":2,"result":{"content":"","request_id":"r"}}

"#;
    for (body, text) in [(refused, "no (-32602)"), (other, "instead of 1"), ("", "ended before the response")]
    {
        let server = ScriptedServer::respond_once(event_stream_response(body));
        let client = Client::new(server.endpoint.clone(), None);
        let mut stream = client.agent("a").send_streamed(&message()).await.unwrap();
        let fault = stream.next().await.unwrap_err().to_string();
        assert!(fault.contains(text), "{fault}");
    }
}
