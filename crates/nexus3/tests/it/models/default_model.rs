//! `nexus3 models use`: it changes one line of config.toml, and only to a usable model.

use std::fs;

use testkit::run;

use super::{ModelsFixture, fake_weights};
use crate::support::{BIN, Fixture};

fn fixture_with_model() -> ModelsFixture {
    let fixture = ModelsFixture::new();
    let file = fixture.write("mine.gguf", &fake_weights(100));
    fixture.run_ok(&["pull", &file, "--yes"]);
    fixture
}

#[test]
fn use_writes_the_model_and_retains_the_rest() {
    let fixture = fixture_with_model();
    let config = fixture.home().join("config.toml");
    let before = "# my settings\nport = 8800 # a good one\n\n[log]\nlevel = \"warn\"\n";
    fs::write(&config, before).unwrap();
    let stdout = fixture.run_ok(&["use", "local/mine"]);
    assert!(
        stdout.contains("model = \"local/mine\" in ") && stdout.contains("from its next start"),
        "{stdout}"
    );
    let after = before.replace("one\n\n", "one\nmodel = \"local/mine\"\n\n");
    assert_eq!(fs::read_to_string(&config).unwrap(), after);
    // The name without the provider selects the same model.
    fixture.run_ok(&["use", "mine"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), after);
    let shown = run(BIN, &["config", "show"], &[], &fixture.home());
    assert!(shown.stdout.contains("local/mine"), "{shown:?}");
    assert!(
        fixture
            .models_with(&[("NEXUS3_MODEL", "a/b")], &["use", "mine"])
            .stdout
            .contains("NEXUS3_MODEL in the environment overrides it")
    );
}

#[test]
fn use_takes_an_alias_of_the_configuration() {
    let fixture = fixture_with_model();
    let config = fixture.home().join("config.toml");
    let before = "[models.brief]\nmodel = \"local/mine\"\nanswer_tokens_max = 8\n";
    fs::write(&config, before).unwrap();
    fixture.run_ok(&["use", "brief"]);
    let after = fs::read_to_string(&config).unwrap();
    assert!(after.starts_with("model = \"brief\"\n") && after.ends_with(before), "{after}");
    assert_eq!(run(BIN, &["config", "show"], &[], &fixture.home()).code, 0);
}

#[test]
fn use_creates_a_missing_configuration() {
    let fixture = fixture_with_model();
    fixture.run_ok(&["use", "mine"]);
    assert_eq!(fs::read_to_string(fixture.home().join("config.toml")).unwrap(), "model = \"local/mine\"\n");
}

#[test]
fn unusable_model_is_rejected_and_nothing_is_written() {
    let fixture = fixture_with_model();
    let file = fixture.write("vectors.onnx", &[8, 1, 2]);
    fixture.run_ok(&["pull", &file, "--yes"]);
    for (name, expected) in [
        ("nothing", "unknown model \"nothing\""),
        ("local/nothing", "local/nothing is neither downloaded nor in the catalog"),
        ("smollm2-135m", "local/smollm2-135m is not downloaded: run nexus3 models pull smollm2-135m"),
        ("local/../x", "is not a valid model name"),
        ("vectors", "it is an embedding model"),
        ("unknown/x", "unknown/x"),
        ("openai/", "must be \"provider/name\""),
        ("openai/gpt-4o-mini", "OPENAI_API_KEY"),
    ] {
        let failed = fixture.models(&["use", name]);
        assert_eq!((failed.code, failed.stdout.as_str()), (2, ""), "{name}: {failed:?}");
        assert!(failed.stderr.contains(expected), "{name}: {failed:?}");
    }
    assert!(!fixture.home().join("config.toml").exists());
}

#[test]
fn broken_configuration_is_not_overwritten() {
    let fixture = fixture_with_model();
    let config = fixture.home().join("config.toml");
    fs::write(&config, "port = \n").unwrap();
    let failed = fixture.models(&["use", "mine"]);
    assert_eq!(failed.code, 2, "{failed:?}");
    assert!(failed.stderr.contains("config.toml:1"), "{failed:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "port = \n");
}

#[test]
fn use_reports_that_a_running_daemon_needs_a_restart() {
    let Fixture { daemon, model: _model } = Fixture::start();
    let port = daemon.port().to_string();
    let env = [("NEXUS3_PORT", port.as_str()), ("OPENAI_API_KEY", "sk-test")];
    let finished = run(BIN, &["models", "use", "openai/other"], &env, daemon.home());
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(
        finished.stdout.contains(&format!("The daemon on port {port} still uses its current model")),
        "{finished:?}"
    );
    assert!(!finished.stdout.contains("sk-test") && !finished.stderr.contains("sk-test"));
}
