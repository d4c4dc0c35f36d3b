//! Tests of `[providers.NAME]`, `[models.NAME]` and `[custom_tools.NAME]`: parsing, redaction and problem texts.

use provider::{AuthScheme, KeySource};
use serde_json::json;

use crate::config::{Config, file, show};

const GOOD: &str = r#"
fallback = ["backup"]

[providers.work]
kind = "openai"
base_url = "https://models.example.org/v1"
key_command = ["pass", "show", "models"]
auth = "api-key"
headers = { "X-Team" = "hush-hush-team" }
ca_file = "~/ca.pem"
concurrency = 8
tries_max = 2

[providers.openai]
key_file = "/keys/openai"

[models.fast]
model = "work/small"
window_tokens = 32000
price_input = 150000
images = true
extra = { temperature = 0.2, reasoning = { effort = "high" }, stop = ["a", "b"], seed = 7 }
fallback = ["backup", "openai/gpt-4o-mini"]

[models.backup]
model = "anthropic/claude-haiku-4-5"
"#;

fn read(text: &str) -> Result<Config, Vec<String>> {
    let layer = file::parse(text, Some("/home/user"));
    if !layer.problems.is_empty() {
        return Err(layer.problems);
    }
    Ok(Config { named: layer.named_tables, ..Config::default() })
}

#[test]
fn tables_become_provider_and_model_settings() {
    let config = read(GOOD).unwrap();
    let providers = config.provider_settings();
    let work = &providers["work"];
    assert_eq!((work.kind.as_deref(), work.auth), (Some("openai"), Some(AuthScheme::ApiKey)));
    let command = ["pass", "show", "models"].map(str::to_owned).to_vec();
    assert_eq!(work.key, Some(KeySource::Command(command)));
    assert_eq!(work.ca_file.as_deref(), Some(std::path::Path::new("/home/user/ca.pem")));
    assert_eq!((work.concurrency, work.tries_max, work.headers.len()), (Some(8), Some(2), 1));
    assert_eq!(providers["openai"].key, Some(KeySource::File("/keys/openai".into())));
    let models = config.model_settings();
    let fast = &models["fast"];
    assert_eq!(
        (fast.model.as_str(), fast.window_tokens, fast.images),
        ("work/small", Some(32_000), Some(true))
    );
    assert_eq!(fast.prices, [Some(150_000), None, None, None]);
    let extra = json!({"temperature": 0.2, "reasoning": {"effort": "high"}, "stop": ["a", "b"], "seed": 7});
    assert_eq!(serde_json::Value::Object(fast.extra.clone()), extra);
    assert_eq!(fast.fallback.as_deref().map(<[String]>::len), Some(2));
    assert_eq!(models["backup"].fallback, None);
}

#[test]
fn header_values_are_never_shown() {
    let config = read(GOOD).unwrap();
    let shown = format!("{} {config:?} {:?}", show(&config), config.provider_settings());
    assert!(!shown.contains("hush-hush"), "{shown}");
    assert!(shown.contains("X-Team"));
    let problems = read("[providers.openai]\nheaders = { A = \"hush\\nhush\", B = 7 }\n").unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(!problems.join(" ").contains("hush"), "{problems:?}");
}

#[test]
fn shown_config_parses_to_the_same_settings() {
    let config = read(GOOD).unwrap();
    let reparsed = read(&show(&config)).unwrap();
    assert_eq!(reparsed.model_settings(), config.model_settings());
    assert_eq!(reparsed.provider_settings().len(), 2);
}

#[test]
fn every_problem_names_its_key_and_position() {
    for (text, expected) in [
        (
            "[providers.mine]\nbase_url = \"https://x\"\n",
            "1:12: providers.mine.kind is missing; it must be one of",
        ),
        (
            "[providers.openai]\nbase_ulr = \"x\"\n",
            "2:1: unknown key 'providers.openai.base_ulr'; did you mean 'providers.openai.base_url'?",
        ),
        (
            "[providers.openai]\nkey_env = \"A\"\nkey_file = \"/a\"\n",
            "must have at most one of key_env, key_file and key_command",
        ),
        (
            "[providers.openai]\nkey_file = \"keys/a\"\n",
            "2:12: providers.openai.key_file must be an absolute path",
        ),
        (
            "[providers.openai]\nkey_command = \"pass show\"\n",
            "providers.openai.key_command must be a program and its arguments",
        ),
        (
            "[providers.openai]\nkey_command = []\n",
            "2:15: providers.openai.key_command must be a program and its arguments as a list, like",
        ),
        ("[providers.openai]\nkey_command = [\"\", \"x\"]\n", "must be a program and its arguments"),
        ("[providers.local]\nkind = \"openai\"\n", "a name in providers must be"),
        ("[providers]\nopenai = 7\n", "providers.openai must be a table, got an integer 7"),
        ("[models.Fast]\nmodel = \"openai/x\"\n", "a name in models must be"),
        ("[models.fast]\nwindow_tokens = 32000\n", "models.fast.model is missing"),
        (
            "[models.fast]\nmodel = \"openai/x\"\nwindow_tokens = \"big\"\n",
            "3:17: models.fast.window_tokens must be an integer",
        ),
        (
            "[models.fast]\nmodel = \"openai/x\"\nextra = { at = 2026-01-01 }\n",
            "models.fast.extra must be a table",
        ),
        (
            "[models.fast]\nmodel = \"openai/x\"\nfallback = [\"\"]\n",
            "models.fast.fallback must be a list of models",
        ),
        ("[modles.fast]\n", "unknown table 'modles'; did you mean 'models'?"),
    ] {
        let problems = read(text).unwrap_err().join("\n");
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
}

const TOOLS: &str = r#"
[custom_tools.history]
description = "Shows the history of a file."
command = "git"
args_template = ["log", "-n${count}", "--", "${path}"]
working_dir = "~/src"
env = { GIT_AUTHOR = "hush-hush ${path}" }
timeout_secs = 5
output_mode = "json"

[custom_tools.history.input_schema]
required = ["path"]
properties.path = { type = "string", description = "The file." }
properties.count = { type = "integer", default = 10, minimum = 1 }

[custom_tools.now]
description = "Prints the time."
command = "/usr/bin/date"
"#;

#[test]
fn custom_tools_are_read_in_order_and_variables_not_shown() {
    let config = read(TOOLS).unwrap();
    let tools = config.custom_tools().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
    assert_eq!(names, ["history", "now"]);
    let spec = tools[0].spec();
    assert_eq!((spec.program.as_deref(), spec.time_ms_max), (Some("git"), 20_000));
    assert!(spec.input_schema.contains(r#""required":["path"]"#), "{}", spec.input_schema);
    let shown = format!("{} {config:?}", show(&config));
    assert!(!shown.contains("hush-hush") && shown.contains("GIT_AUTHOR"), "{shown}");
    let reparsed = read(&show(&config)).unwrap();
    assert_eq!(reparsed.custom_tools().unwrap()[0].spec(), spec);
}

#[test]
fn every_problem_of_a_custom_tool_names_its_key_and_the_fix() {
    let tool = |rest: &str| format!("[custom_tools.mine]\ndescription = \"x\"\ncommand = \"git\"\n{rest}\n");
    let properties = "input_schema.properties.path.type = \"string\"";
    for (text, expected) in [
        ("[custom_tools.Mine]\n".to_owned(), "1:15: a name in custom_tools must be 1 to 63 characters"),
        ("[custom_tools.\"my.tool\"]\n".to_owned(), "a name in custom_tools must be"),
        (
            tool("").replace("mine", "echo"),
            "custom_tools.echo: the built-in tool echo has this name; choose another",
        ),
        (tool("").replace("mine", "fs_read_file"), "the built-in tool fs.read_file has this name"),
        (tool("").replace("mine", "read_file"), "the built-in tool fs.read_file has this name"),
        (tool("").replace("mine", "shell"), "the built-in tool shell.exec has this name"),
        (
            "[custom_tools.mine]\ncommand = \"git\"\n".to_owned(),
            "custom_tools.mine.description is missing; set it",
        ),
        (
            "[custom_tools.mine]\ndescription = \"x\"\n".to_owned(),
            "custom_tools.mine.command is missing; set it",
        ),
        (tool("args = []"), "4:1: unknown key 'custom_tools.mine.args'"),
        (tool("arg_template = []"), "did you mean 'custom_tools.mine.args_template'?"),
        (tool("args_template = \"x\""), "args_template must be a list of arguments, like"),
        (
            tool("args_template = [\"${path}\"]"),
            "4:17: custom_tools.mine.args_template has ${path}, but there is no such",
        ),
        (
            tool(properties),
            "custom_tools.mine.input_schema.properties.path is not used; write ${path} in args_template",
        ),
        (
            tool("input_schema = { anyOf = [] }"),
            "4:1: custom_tools.mine.input_schema.anyOf is not supported; the keys",
        ),
        (tool("input_mode = \"pipe\""), "input_mode must be one of args, stdin, env"),
        (tool("timeout_secs = 301"), "timeout_secs must be an integer from 1 to 300"),
        (tool("working_dir = \"sub\""), "working_dir must be an absolute path"),
        (tool("env = { PATH = \"/x\" }"), "custom_tools.mine.env must not set PATH"),
        (tool("env = { \"A B\" = \"x\" }"), "env must be a table of variables"),
        (
            tool("").replace("\"git\"", "\"./git\""),
            "3:11: custom_tools.mine.command must be the name of a program or an",
        ),
    ] {
        let problems = read(&text).unwrap_err().join("\n");
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
}
