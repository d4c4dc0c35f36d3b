//! Names, specifications and schemas of the whole catalog.

use std::collections::BTreeSet;

use agent::ToolSpec;
use agent::outside::{CallSite, PreparedCall};
use serde_json::Value;
use testkit::{CountingEntropy, TestClock};

use super::*;
use crate::builtin_specs;

fn registry() -> ToolRegistry {
    let (clock, entropy) = (Arc::new(TestClock::default()), Arc::new(CountingEntropy::default()));
    let commands = Arc::new(crate::CommandRunner::refusing("this test runs no commands"));
    ToolRegistry::new(ToolDependencies { clock, entropy, commands, network: Arc::default() })
}

fn schemas() -> Vec<(String, Value)> {
    let read =
        |spec: Arc<ToolSpec>| (spec.name.to_string(), serde_json::from_str(&spec.input_schema).unwrap());
    builtin_specs().into_iter().map(read).collect()
}

#[test]
fn names_are_unique_and_find_their_tool() {
    let catalog = registry().snapshot();
    let mut seen = BTreeSet::new();
    for tool in catalog.all() {
        for name in tool.spec().lookup_names().collect::<BTreeSet<_>>() {
            assert!(seen.insert(Arc::clone(name)), "{name} names two tools");
            assert_eq!(catalog.find(name).unwrap().spec().name, tool.spec().name);
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
    for spec in builtin_specs() {
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
    let catalog = registry().snapshot();
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

/// The built-in `echo` under another name and alias.
struct RenamedEcho(Arc<ToolSpec>);

fn renamed_echo(name: &str, alias: &str) -> Arc<dyn Tool> {
    let echo = Arc::clone(registry().snapshot().find("echo").unwrap().spec());
    let aliases = vec![Arc::from(alias)];
    let spec = ToolSpec { name: name.into(), model_name: name.into(), aliases, ..(*echo).clone() };
    Arc::new(RenamedEcho(Arc::new(spec)))
}

impl Tool for RenamedEcho {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn prepare(&self, _: &str, _: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String> {
        Err("not called".to_owned())
    }
}

#[test]
fn added_tool_is_last_and_removed_tool_is_gone() {
    let registry = registry();
    let before = registry.snapshot();
    registry.add(renamed_echo("parrot", "polly")).unwrap();
    let with_parrot = registry.snapshot();
    assert_eq!(with_parrot.all().len(), before.all().len() + 1);
    assert_eq!(&*with_parrot.all().last().unwrap().spec().name, "parrot");
    assert!(with_parrot.find("polly").is_some());
    assert!(!registry.remove("polly"), "a tool is removed by its name");
    assert!(registry.remove("parrot"));
    assert!(!registry.remove("parrot"));
    assert!(registry.snapshot().find("polly").is_none());
    assert!(with_parrot.find("polly").is_some() && before.find("polly").is_none(), "a snapshot is immutable");
}

#[test]
fn tool_with_a_name_of_another_is_not_added() {
    let registry = registry();
    for (name, alias, taken, taken_by) in [
        ("echo", "other", "echo", "echo"),
        ("fs_read_file", "other", "fs_read_file", "fs.read_file"),
        ("parrot", "read_file", "read_file", "fs.read_file"),
    ] {
        let expected = NameTaken { tool: name.into(), name: taken.into(), taken_by: taken_by.into() };
        assert_eq!(registry.add(renamed_echo(name, alias)), Err(expected));
    }
}
