//! Prints the reference page of the tools, from their specifications. `cargo xtask schema` writes it to
//! `docs/reference`.

use std::fmt::Write;

use agent::{Concurrency, ToolClass, ToolSpec};
use serde_json::Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut page = String::from(
        "# Tools\n\nGenerated from the code; do not edit. Tools that a model may call if its agent's permissions allow them. Models\n\
         that allow no dots in names see underscores instead; `tools` and `disable_tools` accept any name of a tool.\n",
    );
    for spec in tools::builtin_specs() {
        describe(&mut page, &spec)?;
    }
    print!("{page}");
    Ok(())
}

fn describe(page: &mut String, spec: &ToolSpec) -> Result<(), Box<dyn std::error::Error>> {
    write!(page, "\n## `{}`\n\n{}\n\n", spec.name, spec.description)?;
    if !spec.aliases.is_empty() {
        writeln!(page, "Also known as `{}`.", spec.aliases.join("`, `"))?;
    }
    if !spec.is_offered_by_default {
        writeln!(page, "Offered to models only if a list `tools` of the agent or its preset names it.")?;
    }
    let concurrency = match spec.concurrency {
        Concurrency::Parallel => "Runs in parallel with other calls",
        Concurrency::Ordered => "Runs alone, in call order",
        Concurrency::Waiting => "Runs in parallel with other calls and may wait for other agents",
    };
    let class = match spec.class {
        ToolClass::Pure => "may be repeated after a crash",
        ToolClass::Keyed => "may be repeated with the same key",
        ToolClass::Once => "is never repeated",
    };
    writeln!(page, "{concurrency}; {class}; at most {} s.", spec.time_ms_max / 1000)?;
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
