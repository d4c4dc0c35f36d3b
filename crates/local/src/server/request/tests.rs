//! Tests: parsing of chat requests, and the error responses to invalid ones.

use super::*;

fn parse(request: &Value) -> Result<ChatRequest, Refusal> {
    ChatRequest::from_body(&serde_json::to_vec(request).unwrap())
}

/// Returns the error object of a request that must be rejected.
fn parse_error(request: &Value) -> Value {
    let refusal = parse(request).unwrap_err();
    assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
    serde_json::from_slice::<Value>(&refusal.body()).unwrap()["error"].take()
}

fn request_with(field: &str, value: Value) -> Value {
    let mut request = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    request[field] = value;
    request
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object"}}})
}

#[test]
fn minimal_request_gets_defaults() {
    let request = parse(&request_with("user", json!("ann"))).unwrap();
    assert_eq!((request.model.as_deref(), request.response_mode), (Some("m"), ResponseMode::Complete));
    let chat = request.chat;
    assert_eq!((chat.temperature, chat.top_p, chat.tool_choice), (0.0, 1.0, ToolChoice::None));
    assert!(chat.tools.is_empty() && chat.schema.is_none() && chat.stop.is_empty());
    assert_eq!(chat.answer_tokens_max, None);
}

#[test]
fn conversation_with_calls_is_parsed_in_order() {
    let request = parse(&json!({"messages": [
        {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "what is in a.txt?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a.txt\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    ]}))
    .unwrap();
    let [system, _, assistant, tool] = &request.chat.messages[..] else { panic!("four messages") };
    assert_eq!((system.role, system.text.as_str()), (ChatRole::System, "be brief"));
    assert_eq!((assistant.text.as_str(), assistant.tool_calls[0].name.as_str()), ("", "read"));
    assert_eq!(assistant.tool_calls[0].arguments, "{\"path\":\"a.txt\"}");
    assert_eq!((tool.role, tool.tool_call_id.as_deref()), (ChatRole::Tool, Some("c1")));
}

#[test]
fn every_parameter_is_parsed() {
    let request = parse(&json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "max_completion_tokens": 7,
        "temperature": 0.5, "top_p": 0.25, "seed": -1, "stop": "END", "stream": true,
        "stream_options": {"include_usage": true},
    }))
    .unwrap();
    let chat = request.chat;
    assert_eq!(request.response_mode, ResponseMode::StreamWithUsage);
    assert_eq!((chat.answer_tokens_max, chat.seed), (Some(7), u64::MAX));
    assert_eq!((chat.temperature, chat.top_p), (0.5, 0.25));
    assert_eq!(chat.stop, ["END"]);
    assert_eq!(parse(&request_with("stream", json!(true))).unwrap().response_mode, ResponseMode::Stream);
}

#[test]
fn every_form_of_tool_choice_is_parsed() {
    let parse_choice = |choice: Value| {
        let mut request = request_with("tools", json!([tool("a"), tool("b")]));
        request["tool_choice"] = choice;
        parse(&request).map(|request| request.chat.tool_choice)
    };
    assert_eq!(parse_choice(Value::Null).unwrap(), ToolChoice::Auto);
    assert_eq!(parse_choice(json!("auto")).unwrap(), ToolChoice::Auto);
    assert_eq!(parse_choice(json!("none")).unwrap(), ToolChoice::None);
    assert_eq!(parse_choice(json!("required")).unwrap(), ToolChoice::Required);
    let named = json!({"type": "function", "function": {"name": "b"}});
    assert_eq!(parse_choice(named).unwrap(), ToolChoice::Named("b".to_owned()));
    assert!(parse_choice(json!({"type": "function", "function": {"name": "c"}})).is_err());
    assert!(parse_choice(json!("sometimes")).is_err());
    assert!(parse_choice(json!(3)).is_err());
    assert!(parse(&request_with("tool_choice", json!("required"))).is_err());
}

#[test]
fn response_format_becomes_a_schema() {
    let schema =
        |format: Value| parse(&request_with("response_format", format)).map(|request| request.chat.schema);
    assert_eq!(schema(json!({"type": "text"})).unwrap(), None);
    assert_eq!(schema(json!({"type": "json_object"})).unwrap(), Some(json!({"type": "object"})));
    let named = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}});
    assert_eq!(schema(named).unwrap(), Some(json!({"type": "integer"})));
    assert!(schema(json!({"type": "json_schema"})).is_err());
    assert!(schema(json!({"type": "json_schema", "json_schema": {"schema": 3}})).is_err());
    assert!(schema(json!({"type": "yaml"})).is_err());
}

#[test]
fn images_and_audio_are_rejected() {
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]);
    let error = parse_error(&request_with("messages", image));
    assert_eq!((&error["code"], &error["param"]), (&json!("images_not_supported"), &json!("messages[0]")));
    let audio = json!([{"role": "user", "content": [{"type": "input_audio"}]}]);
    assert!(
        parse_error(&request_with("messages", audio))["message"].as_str().unwrap().contains("input_audio")
    );
}

#[test]
fn error_names_the_invalid_parameter() {
    for (field, value, param) in [
        ("messages", json!([]), "messages"),
        ("messages", json!([{"role": "user", "content": "a"}, {"role": "robot"}]), "messages[1]"),
        ("messages", json!([{"role": "tool", "content": "a"}]), "messages[0]"),
        ("messages", json!([{"role": "user", "content": 3}]), "messages[0].content"),
        ("messages", json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0]"),
        ("messages", json!("hi"), "messages"),
        ("temperature", json!(3), "temperature"),
        ("temperature", json!("warm"), "temperature"),
        ("top_p", json!(-0.1), "top_p"),
        ("max_tokens", json!(0), "max_completion_tokens"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("n", json!(2), "n"),
        ("stop", json!([""]), "stop"),
        ("stop", json!(vec!["x"; STOPS_MAX + 1]), "stop"),
        ("tools", json!([tool("a"), tool("a")]), "tools[1]"),
        ("tools", json!([{"type": "web_search"}]), "tools[0]"),
        ("tools", json!([{"type": "function", "function": {"name": ""}}]), "tools[0]"),
        ("tools", json!([{"type": "function", "function": {"name": "a", "parameters": 1}}]), "tools[0]"),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}]),
            "tools[0]",
        ),
    ] {
        assert_eq!(parse_error(&request_with(field, value.clone()))["param"], param, "{field}: {value}");
    }
}

#[test]
fn body_that_is_not_a_request_is_rejected() {
    for body in [&b""[..], b"{", b"[]", b"null", b"{\"messages\":[{\"role\":\"user\"}]} x", b"\xff"] {
        assert_eq!(ChatRequest::from_body(body).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
    let deep = format!("{{\"messages\":{}", "[".repeat(100_000));
    assert!(ChatRequest::from_body(deep.as_bytes()).is_err());
}

#[test]
fn request_for_another_model_is_rejected() {
    assert!(check_model(None, "m").is_ok() && check_model(Some("m"), "m").is_ok());
    let refusal = check_model(Some("gpt"), "m").unwrap_err();
    assert_eq!(refusal.status, StatusCode::NOT_FOUND);
}
