//! Tests of `[providers.NAME]` and `[models.NAME]`: parsing, redaction and problem texts.

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
