//! What a test can observe of the scripted model: requests, stalls, aborts, releases, shutdown.

use std::net::TcpListener;
use std::thread;

use serde_json::Value;
use testkit::{ModelOptions, RawConnection, ScriptedModel};

use crate::support::{
    chat_request, deltas, post, post_with, send_chat, start_chat, stream_events, without_stream,
};

/// Reads until the stream contains this text.
fn read_until(connection: &mut RawConnection, text: &str) {
    use std::io::Read as _;
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(text) {
        let mut chunk = [0; 4096];
        let read = connection.stream().read(&mut chunk).expect("the stream goes on");
        assert_ne!(read, 0, "the stream ended without {text:?}");
        received.extend_from_slice(&chunk[..read]);
    }
}

#[test]
fn requests_are_recorded_with_headers_and_body() {
    let model = ScriptedModel::start();
    let request = chat_request("!status 500");
    let mut connection = RawConnection::open(model.port());
    connection.send(&post_with("X-Trace: seven\r\n", request.to_string().as_bytes()));
    model.wait_requests(1);
    connection.read_response();
    connection.send(&post_with("", b"no json"));
    connection.read_response();
    let recorded = model.requests();
    assert_eq!(recorded.len(), 2);
    assert_eq!((recorded[0].method.as_str(), recorded[0].path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(recorded[0].header("X-TRACE"), Some("seven"));
    assert_eq!(recorded[0].body, request);
    assert_eq!(recorded[1].body, Value::Null);
}

#[test]
fn request_recording_can_be_disabled() {
    let options = ModelOptions { record_requests: false, ..ModelOptions::default() };
    let model = ScriptedModel::open(options).expect("a free port");
    send_chat(&model, &chat_request("Hello"));
    model.wait_requests(1);
    assert!(model.requests().is_empty());
}

#[test]
fn stall_streams_text_and_detects_disconnect() {
    let model = ScriptedModel::start();
    let mut connection = start_chat(&model, "!stall so far");
    read_until(&mut connection, "so far");
    model.wait_stalled(1);
    drop(connection);
    model.wait_aborted(1);
}

#[test]
fn hanging_requests_are_counted_and_disconnects_abort() {
    let model = ScriptedModel::start();
    let mut waiting: Vec<_> =
        ["!stall", "!silent", "!hold a", "!hold b so far"].map(|command| start_chat(&model, command)).into();
    let mut connection = RawConnection::open(model.port());
    connection.send(&post(&without_stream(chat_request("!stall"))));
    waiting.push(connection);
    model.wait_stalled(5);
    waiting.remove(0).reset();
    model.wait_aborted(1);
    waiting.remove(0).shutdown_write();
    model.wait_aborted(2);
    drop(waiting);
    model.wait_aborted(5);
    assert_eq!(send_chat(&model, &chat_request("still here")).status, 200);
}

#[test]
fn slow_response_detects_disconnect() {
    let model = ScriptedModel::start();
    let mut connection = start_chat(&model, "!slow 600000 one two");
    read_until(&mut connection, "one ");
    drop(connection);
    model.wait_aborted(1);
}

#[test]
fn finished_response_is_no_abort() {
    let model = ScriptedModel::start();
    for command in ["Hello", "!cut x", "!status 500", "!status 204", "!garbage", "!html", "!slow 1 a b"] {
        start_chat(&model, command).try_read_response().ok();
    }
    let silent = start_chat(&model, "!silent");
    // The model has one thread: a request that stalls now was received after the earlier ones had ended.
    model.wait_stalled(1);
    assert_eq!(model.aborted(), 0);
    drop(silent);
    model.wait_aborted(1);
    assert_eq!(model.aborted(), 1);
}

#[test]
fn hold_continues_when_released() {
    let model = ScriptedModel::start();
    let mut held = start_chat(&model, "!hold gate so far");
    let mut other = start_chat(&model, "!hold other");
    model.wait_stalled(2);
    model.release("gate");
    assert_eq!(deltas(&stream_events(&held.read_response())), ["so far", " released gate"]);
    model.release("other");
    assert_eq!(deltas(&stream_events(&other.read_response())), [" released other"]);
}

#[test]
fn hold_released_earlier_does_not_wait() {
    let model = ScriptedModel::start();
    model.release("gate");
    assert_eq!(deltas(&stream_events(&send_chat(&model, &chat_request("!hold gate")))), [" released gate"]);
    let completion = send_chat(&model, &without_stream(chat_request("!hold gate so far"))).json();
    assert_eq!(completion["choices"][0]["message"]["content"], "so far released gate");
}

#[test]
fn waits_see_requests_of_other_threads() {
    let model = ScriptedModel::start();
    thread::scope(|scope| {
        for index in 0..20 {
            let model = &model;
            scope.spawn(move || send_chat(model, &chat_request(&format!("!hold gate {index}"))));
        }
        model.wait_stalled(20);
        model.release("gate");
    });
    model.wait_requests(20);
    assert_eq!(model.connections(), 20);
}

#[test]
fn dropped_model_closes_connections_and_frees_port() {
    let model = ScriptedModel::start();
    let port = model.port();
    let mut stalled = start_chat(&model, "!stall");
    let mut idle = RawConnection::open(port);
    model.wait_stalled(1);
    drop(model);
    assert!(stalled.try_read_response().is_err());
    assert_eq!(idle.read_to_end(), b"");
    let model =
        ScriptedModel::open(ModelOptions { port, ..ModelOptions::default() }).expect("the port is free");
    assert_eq!(model.base_url(), format!("http://127.0.0.1:{port}/v1"));
    assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
}
