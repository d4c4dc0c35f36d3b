//! Names, specifications and schemas of the whole catalog.

use std::collections::BTreeSet;

use agent::{Concurrency, ToolClass};
use serde_json::Value;
use testkit::{CountingEntropy, TestClock};

use super::*;

fn registry() -> ToolRegistry {
    let (clock, entropy) = (Arc::new(TestClock::default()), Arc::new(CountingEntropy::default()));
    ToolRegistry::new(ToolDependencies { clock, entropy })
}

fn schemas() -> Vec<(String, Value)> {
    let read = |tool: &Arc<dyn Tool>| {
        let spec = tool.spec();
        (spec.name.to_string(), serde_json::from_str(&spec.input_schema).unwrap())
    };
    registry().all().iter().map(read).collect()
}

#[test]
fn names_are_unique_and_find_their_tool() {
    let catalog = registry();
    let mut seen = BTreeSet::new();
    for tool in catalog.all() {
        for name in lookup_names(&**tool) {
            assert!(seen.insert(Arc::clone(&name)), "{name} names two tools");
            assert_eq!(catalog.find(&name).unwrap().spec().name, tool.spec().name);
            assert!(!name.is_empty() && name.len() <= 64, "{name}");
        }
        let model_name = &tool.spec().model_name;
        assert!(model_name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{model_name}");
    }
    for name in ["", "fs", "fs.read", "FS.READ_FILE", "fs-read_file"] {
        assert!(catalog.find(name).is_none(), "{name:?}");
    }
}

#[test]
fn catalog_lists_the_expected_tools() {
    use Concurrency::{Ordered, Parallel, Waiting};
    use ToolClass::{Once, Pure};
    let catalog = registry();
    let listed = catalog.all().iter().map(|tool| {
        let spec = tool.spec();
        (&*spec.name, spec.aliases.join(" "), spec.concurrency, spec.class, spec.time_ms_max)
    });
    let expected = [
        ("echo", "", Parallel, Pure, 30_000),
        ("get_time", "", Parallel, Pure, 30_000),
        ("base64.encode", "", Parallel, Pure, 30_000),
        ("base64.decode", "", Parallel, Pure, 30_000),
        ("json.parse", "", Parallel, Pure, 30_000),
        ("json.query", "", Parallel, Pure, 30_000),
        ("uuid.generate", "", Parallel, Pure, 30_000),
        ("hash.sha256", "", Parallel, Pure, 30_000),
        ("regex.match", "", Parallel, Pure, 30_000),
        ("regex.replace", "", Parallel, Pure, 30_000),
        ("fs.read_file", "read_file", Parallel, Pure, 30_000),
        ("fs.write_file", "write_file", Ordered, Once, 30_000),
        ("fs.append_file", "append_file", Ordered, Once, 30_000),
        ("result.read", "read_result", Parallel, Pure, 30_000),
        ("agent_create", "nexus_create", Waiting, Once, 3_600_000),
        ("agent_send", "nexus_send", Waiting, Once, 3_600_000),
        ("agent_status", "nexus_status", Parallel, Pure, 30_000),
        ("agent_cancel", "nexus_cancel", Ordered, Once, 30_000),
        ("agent_destroy", "nexus_destroy", Ordered, Once, 30_000),
        ("agent_list", "", Parallel, Pure, 30_000),
    ];
    let expected = expected.map(|(name, aliases, concurrency, class, time)| {
        (name, aliases.to_owned(), concurrency, class, time)
    });
    assert_eq!(listed.collect::<Vec<_>>(), expected);
}

#[test]
fn schemas_are_closed_and_simple() {
    for (name, schema) in schemas() {
        assert_eq!(schema["type"], "object", "{name}");
        assert_eq!(schema["additionalProperties"], false, "{name}");
        let text = schema.to_string();
        for noise in ["$schema", "$ref", "$defs", "\"title\"", "\"format\"", "\"null\""] {
            assert!(!text.contains(noise), "{name} has {noise}: {text}");
        }
    }
}

#[test]
fn tools_and_fields_have_descriptions() {
    for tool in registry().all() {
        let spec = tool.spec();
        assert!(spec.description.len() > 20 && !spec.description.contains('\n'), "{}", spec.name);
        let size = spec.name.len() + spec.description.chars().count() + spec.input_schema.chars().count();
        assert_eq!(spec.tokens, size as u64 / 4, "{}", spec.name);
    }
    for (name, schema) in schemas() {
        for (field, property) in schema["properties"].as_object().unwrap() {
            let description = property["description"].as_str().unwrap_or_default();
            assert!(description.len() > 5 && !description.contains('\n'), "{name}.{field}");
        }
    }
}

#[test]
fn schema_is_serialized_as_models_see_it() {
    let catalog = registry();
    let schema = &catalog.find("fs_write_file").unwrap().spec().input_schema;
    assert_eq!(
        &**schema,
        concat!(
            r#"{"additionalProperties":false,"properties":{"#,
            r#""append":{"default":false,"#,
            r#""description":"Whether to append to the old content.","type":"boolean"},"#,
            r#""content":{"description":"The new content, at most 10 MiB.","type":"string"},"#,
            r#""path":{"description":"The file, relative to your working directory or absolute.","type":"string"}},"#,
            r#""required":["path","content"],"type":"object"}"#,
        )
    );
    let nothing = &catalog.find("agent_list").unwrap().spec().input_schema;
    assert_eq!(&**nothing, r#"{"additionalProperties":false,"properties":{},"type":"object"}"#);
}
