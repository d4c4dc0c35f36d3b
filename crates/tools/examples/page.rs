//! Prints the reference page of the tools, made from their descriptions and schemas. `cargo xtask schema` keeps it.

use std::fmt::Write;
use std::sync::Arc;

use agent::outside::{Clock, Entropy, Timestamp, Toolbox};
use agent::{Concurrency, Fault, ToolClass, ToolSpec};
use serde_json::Value;
use tools::{ToolDependencies, ToolRegistry};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parts = ToolDependencies { clock: Arc::new(StubOutside), entropy: Arc::new(StubOutside) };
    let mut page = String::from(
        "# Tools\n\nGenerated from the code; do not edit. What a model may call, as far as its agent's grant goes. Models \
         that allow no dots\nin names are shown underscores; `disable_tools` takes every name of a tool.\n",
    );
    for tool in ToolRegistry::new(parts).all() {
        describe(&mut page, tool.spec())?;
    }
    print!("{page}");
    Ok(())
}

fn describe(page: &mut String, spec: &ToolSpec) -> Result<(), Box<dyn std::error::Error>> {
    write!(page, "\n## `{}`\n\n{}\n\n", spec.name, spec.description)?;
    if !spec.aliases.is_empty() {
        writeln!(page, "Also known as `{}`.", spec.aliases.join("`, `"))?;
    }
    let pace = match spec.concurrency {
        Concurrency::Parallel => "Runs beside other calls",
        Concurrency::Ordered => "Runs alone, in the order of the calls",
        Concurrency::Waiting => "Runs beside other calls and may wait for other agents",
    };
    let class = match spec.class {
        ToolClass::Pure => "may run again",
        ToolClass::Keyed => "may run again with the same key",
        ToolClass::Once => "is never repeated",
    };
    writeln!(page, "{pace}; {class}; at most {} s.", spec.time_ms_max / 1000)?;
    let schema: Value = serde_json::from_str(&spec.input_schema)?;
    let Some(fields) = schema["properties"].as_object().filter(|fields| !fields.is_empty()) else {
        page.push_str("\nTakes no arguments.\n");
        return Ok(());
    };
    page.push_str("\n| argument | type | meaning |\n|---|---|---|\n");
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in fields {
        let star = if required.contains(&Value::from(name.as_str())) { "*" } else { "" };
        let kind = field["type"].as_str().unwrap_or("any");
        let meaning = field["description"].as_str().unwrap_or_default().replace('\n', " ");
        let default = field.get("default").filter(|value| !value.is_null());
        let default = default.map(|value| format!(" Default: `{value}`.")).unwrap_or_default();
        writeln!(page, "| `{name}`{star} | {kind} | {meaning}{default} |")?;
    }
    Ok(())
}

/// The page needs neither time nor chance.
struct StubOutside;

impl Clock for StubOutside {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

impl Entropy for StubOutside {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        bytes.fill(0);
        Ok(())
    }
}
