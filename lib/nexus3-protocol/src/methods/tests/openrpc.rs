//! The checked-in OpenRPC document: up to date, without dangling references, and complete.

use std::collections::HashSet;

use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::from_str(crate::OPENRPC).unwrap()
}

/// Returns the values of all members with this name, at any depth.
fn members<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match value {
        Value::Array(items) => items.iter().flat_map(|item| members(item, name)).collect(),
        Value::Object(object) => {
            let inside = object.values().flat_map(|value| members(value, name));
            object.get(name).into_iter().chain(inside).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(feature = "schema")]
#[test]
fn checked_in_document_matches_the_method_list() {
    let generated = format!("{:#}\n", crate::schema::openrpc());
    assert!(generated == crate::OPENRPC, "openrpc.json is stale: run `cargo xtask schema`");
}

#[cfg(feature = "schema")]
#[test]
fn reference_page_has_a_heading_for_every_method() {
    let page = crate::schema::methods_markdown();
    for &method in Method::ALL {
        assert!(page.contains(&format!("\n## {}\n\n`POST {}`\n", method.name(), method.door().path())));
    }
}

#[test]
fn document_lists_every_method_in_order() {
    let document = document();
    let listed: Vec<(&str, &str)> = document["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| (method["name"].as_str().unwrap(), method["x-door"].as_str().unwrap()))
        .collect();
    let expected: Vec<(&str, &str)> =
        Method::ALL.iter().map(|method| (method.name(), method.door().path())).collect();
    assert_eq!(listed, expected);
}

#[test]
fn every_reference_resolves_and_every_schema_is_used() {
    let document = document();
    let references: HashSet<&str> =
        members(&document, "$ref").into_iter().map(|reference| reference.as_str().unwrap()).collect();
    assert!(!references.is_empty());
    for reference in &references {
        let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        assert!(target.is_some_and(Value::is_object), "{reference} does not resolve");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(references.contains(format!("#/components/schemas/{name}").as_str()), "{name} is unused");
    }
}

#[test]
fn every_method_and_parameter_has_a_description() {
    for method in document()["methods"].as_array().unwrap() {
        let has_description =
            |value: &Value| value["description"].as_str().is_some_and(|text| !text.is_empty());
        assert!(has_description(method), "{}", method["name"]);
        assert_eq!(method["paramStructure"], "by-name");
        for param in method["params"].as_array().unwrap() {
            assert!(has_description(param), "{} of {}", param["name"], method["name"]);
        }
    }
}

#[test]
fn nested_parameters_are_described_in_full() {
    let document = document();
    let schema = |name: &str| document.pointer(&format!("/components/schemas/{name}")).unwrap();
    let members = |name: &str| {
        let properties = schema(name)["properties"].as_object().unwrap();
        for (member, property) in properties {
            assert!(property["description"].is_string(), "{name}.{member}");
        }
        properties.keys().cloned().collect::<HashSet<String>>()
    };
    let expected = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
    let budget = expected(&["turns", "tool_calls", "tokens", "wall_ms", "children"]);
    assert_eq!(members("BudgetParams"), budget);
    let lists = [
        "tools",
        "disable_tools",
        "allowed_write_paths",
        "allowed_commands",
        "allowed_hosts",
        "denied_hosts",
        "may_create",
    ];
    let mut grant = expected(&lists);
    grant.insert("preset".to_owned());
    assert_eq!(members("MayGrantParams"), grant);
    for name in ["BudgetParams", "MayGrantParams"] {
        assert_eq!(schema(name)["additionalProperties"], false, "{name} accepts no other members");
    }
    for (name, property) in schema("BudgetParams")["properties"].as_object().unwrap() {
        assert_eq!(property["minimum"], 0, "{name}: {property}");
    }
}
