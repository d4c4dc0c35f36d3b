//! Error texts for invalid parameters.

use serde_json::Value;

use super::*;

fn check(method: Method, cases: &[(&str, &str)]) {
    for (params, message) in cases {
        let fault = parse_params(method, params).unwrap_err();
        assert_eq!(fault.to_string(), *message, "{} {params}", method.name());
    }
}

#[test]
fn send_names_the_invalid_parameter() {
    check(
        Method::Send,
        &[
            ("{}", "Missing required parameter: content"),
            (r#"{"request_id":"r"}"#, "Missing required parameter: content"),
            (r#"{"content":null}"#, "Missing required parameter: content"),
            (r#"{"content":5}"#, "content must be string, got: int"),
            (r#"{"content":5.5}"#, "content must be string, got: float"),
            (r#"{"content":true}"#, "content must be string, got: bool"),
            (r#"{"content":["hi"]}"#, "content must be string, got: list"),
            (r#"{"content":{"text":"hi"}}"#, "content must be string, got: dict"),
            (r#"{"content":"hi","source":5}"#, "source must be string, got: int"),
            (r#"{"content":"hi","source":[]}"#, "source must be string, got: list"),
            (
                r#"{"content":"hi","source_agent_id":true}"#,
                "source_agent_id must be string or integer, got: bool",
            ),
            (r#"{"content":"hi","source_agent_id":""}"#, "source_agent_id cannot be empty"),
            (r#"{"content":"hi","stream":true}"#, "Extra inputs are not permitted: stream"),
            (r#"{"content":"hi","Content":"hi"}"#, "Extra inputs are not permitted: Content"),
        ],
    );
}

#[test]
fn request_id_is_a_short_string_or_an_integer() {
    let long = format!("\"{}\"", "é".repeat(129));
    let digits = "9".repeat(100_000);
    let cases = [
        (r#""""#, "request_id cannot be empty"),
        (long.as_str(), "request_id must be at most 256 bytes"),
        ("true", "request_id must be string or integer, got: bool"),
        ("1.5", "request_id must be string or integer, got: float"),
        ("1.0", "request_id must be string or integer, got: float"),
        ("1e2", "request_id must be string or integer, got: float"),
        ("[]", "request_id must be string or integer, got: list"),
        ("{}", "request_id must be string or integer, got: dict"),
        ("9223372036854775808", "request_id must be an integer of at most 63 bits"),
        ("18446744073709551616", "request_id must be an integer of at most 64 bits"),
        (digits.as_str(), "request_id must be an integer of at most 64 bits"),
        ("1e400", "request_id must be a number in the range of a double"),
    ];
    for (id, message) in cases {
        check(Method::Cancel, &[(&format!(r#"{{"request_id":{id}}}"#), message)]);
        check(Method::Send, &[(&format!(r#"{{"content":"hi","request_id":{id}}}"#), message)]);
    }
    check(
        Method::Cancel,
        &[
            ("{}", "Missing required parameter: request_id"),
            (r#"{"request_id":null}"#, "Missing required parameter: request_id"),
            (r#"{"request_id":1,"force":true}"#, "Extra inputs are not permitted: force"),
        ],
    );
    assert_eq!(parse_params(Method::Send, r#"{"content":"hi","request_id":null}"#), Ok(()));
}

#[test]
fn invalid_page_has_the_original_error_texts() {
    let digits = "9".repeat(100_000);
    let never = ["-1", "1.0", "1e2", "1e400", "1e-400", "true", "\"1\"", "[]", "{}", "[1]", digits.as_str()];
    for value in never.into_iter().chain(["18446744073709551616", "-9223372036854775809"]) {
        let text = format!(r#"{{"offset":{value}}}"#);
        check(Method::GetMessages, &[(&text, "offset must be a non-negative integer")]);
        check(Method::ListAgents, &[(&text, "offset must be a non-negative integer")]);
    }
    for value in never.into_iter().chain(["0", "-0", "2001", "18446744073709551615"]) {
        let text = format!(r#"{{"limit":{value}}}"#);
        check(Method::GetMessages, &[(&text, "limit must be an integer between 1 and 2000")]);
        check(Method::ListAgents, &[(&text, "limit must be an integer between 1 and 2000")]);
    }
    check(
        Method::GetMessages,
        &[(r#"{"offset":0,"limit":1,"order":"desc"}"#, "Extra inputs are not permitted: order")],
    );
}

#[test]
fn agent_ids_must_be_strings() {
    for (value, kind) in [("5", "int"), ("1.5", "float"), ("true", "bool"), ("[]", "list"), ("{}", "dict")] {
        let text = format!(r#"{{"agent_id":{value}}}"#);
        let message = format!("agent_id must be string, got: {kind}");
        check(Method::CreateAgent, &[(&text, &message)]);
        check(Method::DestroyAgent, &[(&text, &message)]);
    }
    check(
        Method::DestroyAgent,
        &[
            ("{}", "Missing required parameter: agent_id"),
            (r#"{"agent_id":null}"#, "Missing required parameter: agent_id"),
        ],
    );
    check(Method::CreateAgent, &[(r#"{"system_prompt":[]}"#, "system_prompt must be string, got: list")]);
}

#[test]
fn steer_names_the_invalid_parameter() {
    check(
        Method::Steer,
        &[
            ("{}", "Missing required parameter: content"),
            (r#"{"content":[]}"#, "content must be string, got: list"),
            (r#"{"content":"hi","source":5}"#, "source must be string, got: int"),
            (r#"{"content":"hi","source_agent_id":""}"#, "source_agent_id cannot be empty"),
            (r#"{"content":"hi","request_id":"r"}"#, "Extra inputs are not permitted: request_id"),
        ],
    );
}

#[test]
fn flags_must_be_booleans() {
    for (value, kind) in [("1", "int"), ("\"yes\"", "str"), ("[]", "list"), ("{}", "dict"), ("1.0", "float")]
    {
        for name in ["temporary", "wait_for_initial_response"] {
            let text = format!(r#"{{"{name}":{value}}}"#);
            check(Method::CreateAgent, &[(&text, &format!("{name} must be boolean, got: {kind}"))]);
        }
        let text = format!(r#"{{"agent_id":"a","orphan":{value}}}"#);
        check(Method::DestroyAgent, &[(&text, &format!("orphan must be boolean, got: {kind}"))]);
    }
}

#[test]
fn list_error_names_the_invalid_item() {
    let lists = [
        "tools",
        "disable_tools",
        "allowed_write_paths",
        "allowed_commands",
        "allowed_hosts",
        "denied_hosts",
    ];
    for name in lists.into_iter().chain(["may_create"]) {
        let cases = [
            (r#""a""#, format!("{name} must be list, got: str")),
            ("5", format!("{name} must be list, got: int")),
            (r#"{"0":"a"}"#, format!("{name} must be list, got: dict")),
            (r#"["a",5]"#, format!("{name}[1] must be string, got: int")),
            (r#"[["a"]]"#, format!("{name}[0] must be string, got: list")),
            ("[null]", format!("Missing required parameter: {name}[0]")),
        ];
        for (value, message) in cases {
            check(Method::CreateAgent, &[(&format!(r#"{{"{name}":{value}}}"#), &message)]);
            let nested = format!(r#"{{"may_grant":{{"{name}":{value}}}}}"#);
            check(
                Method::CreateAgent,
                &[(&nested, &message.replacen(name, &format!("may_grant.{name}"), 1))],
            );
            if name != "may_create" {
                check(Method::SetPermissions, &[(&format!(r#"{{"{name}":{value}}}"#), &message)]);
            }
        }
    }
    check(
        Method::SetPermissions,
        &[(r#"{"unlimited":["turns",7]}"#, "unlimited[1] must be string, got: int")],
    );
}

#[test]
fn nested_parameters_are_accepted_by_name_only() {
    let cases = [
        ("may_grant", "[]", "may_grant must be object, got: list"),
        ("may_grant", r#"["sandboxed",[],[],[]]"#, "may_grant must be object, got: list"),
        ("may_grant", r#""trusted""#, "may_grant must be object, got: str"),
        ("may_grant", r#"{"preset":5}"#, "may_grant.preset must be string, got: int"),
        ("may_grant", r#"{"budget":{}}"#, "Extra inputs are not permitted: may_grant.budget"),
        ("budget", "[]", "budget must be object, got: list"),
        ("budget", "[1,2,3,4,5]", "budget must be object, got: list"),
        ("budget", "5", "budget must be object, got: int"),
        ("budget", r#"{"time":5}"#, "Extra inputs are not permitted: budget.time"),
    ];
    for (name, value, message) in cases {
        check(Method::CreateAgent, &[(&format!(r#"{{"{name}":{value}}}"#), message)]);
        if name == "budget" {
            check(Method::SetPermissions, &[(&format!(r#"{{"{name}":{value}}}"#), message)]);
        }
    }
}

#[test]
fn budget_errors_name_no_rust_types() {
    let wrong = ["-1", "1.5", "1e2", "true", "\"5\"", "[]", "[5]", "{}", "18446744073709551616"];
    for resource in ["turns", "tool_calls", "tokens", "wall_ms", "children"] {
        for value in wrong {
            let text = format!(r#"{{"budget":{{"{resource}":{value}}}}}"#);
            let message = format!("budget.{resource} must be a non-negative integer");
            check(Method::CreateAgent, &[(&text, &message)]);
            check(Method::SetPermissions, &[(&text, &message)]);
        }
    }
}

#[test]
fn every_method_rejects_an_unknown_parameter() {
    for &method in Method::ALL {
        check(
            method,
            &[(r#"{"no_such_parameter":null}"#, "Extra inputs are not permitted: no_such_parameter")],
        );
    }
}

/// Returns the JSON types a parameter may have, with references and choices resolved.
fn types(schema: &Value, document: &Value) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#')).unwrap();
        return types(target, document);
    }
    for choices in ["anyOf", "allOf", "oneOf"] {
        if let Some(choices) = schema[choices].as_array() {
            return choices.iter().flat_map(|choice| types(choice, document)).collect();
        }
    }
    match &schema["type"] {
        Value::String(name) => vec![name.clone()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        other => panic!("a parameter without a type: {other}"),
    }
}

#[test]
fn every_parameter_rejects_every_wrong_type_by_name() {
    let samples = [
        ("boolean", "true"),
        ("integer", "7"),
        ("integer", "123456789012345678901234567890"),
        ("number", "1.5"),
        ("number", "1e400"),
        ("string", "\"7\""),
        ("array", "[]"),
        ("object", "{}"),
    ];
    let document: Value = serde_json::from_str(crate::OPENRPC).unwrap();
    let mut rejected = 0;
    for entry in document["methods"].as_array().unwrap() {
        let method = Method::find(entry["name"].as_str().unwrap()).unwrap();
        for param in entry["params"].as_array().unwrap() {
            let name = param["name"].as_str().unwrap();
            let types = types(&param["schema"], &document);
            for (kind, sample) in samples.iter().filter(|(kind, _)| !types.iter().any(|known| known == kind))
            {
                let fault =
                    parse_params(method, &format!(r#"{{"{name}":{sample}}}"#)).unwrap_err().to_string();
                assert!(fault.starts_with(&format!("{name} must be ")), "{kind}: {fault}");
                rejected += 1;
            }
            let null =
                parse_params(method, &format!(r#"{{"{name}":null}}"#)).err().map(|fault| fault.to_string());
            let missing = format!("Missing required parameter: {name}");
            assert_eq!(
                param["required"] == Value::Bool(true),
                null.is_some_and(|fault| fault == missing),
                "{name}"
            );
        }
    }
    assert!(rejected >= 50, "only {rejected} samples were rejected");
}

#[test]
fn long_unknown_parameter_name_is_truncated() {
    let name = "x".repeat(100_000);
    let fault = parse_params(Method::ListAgents, &format!(r#"{{"{name}":1}}"#)).unwrap_err();
    assert_eq!(fault.to_string(), format!("Extra inputs are not permitted: {}", "x".repeat(200)));
}
