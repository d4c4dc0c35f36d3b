//! `nexus3 models use`: one line of config.toml changes, and only to what can work.

use std::fs;

use testkit::run;

use super::{ModelsFixture, fake_weights};
use crate::support::{BIN, Fixture};

fn fixture_with_model() -> ModelsFixture {
    let desk = ModelsFixture::new();
    let file = desk.write("mine.gguf", &fake_weights(100));
    desk.run_ok(&["pull", &file, "--yes"]);
    desk
}

#[test]
fn the_model_is_written_and_the_rest_stays() {
    let desk = fixture_with_model();
    let config = desk.home().join("config.toml");
    let before = "# my settings\nport = 8800 # a good one\n\n[log]\nlevel = \"warn\"\n";
    fs::write(&config, before).unwrap();
    let told = desk.run_ok(&["use", "local/mine"]);
    assert!(told.contains("model = \"local/mine\" in ") && told.contains("from its next start"), "{told}");
    let after = before.replace("one\n\n", "one\nmodel = \"local/mine\"\n\n");
    assert_eq!(fs::read_to_string(&config).unwrap(), after);
    // The short name means the same.
    desk.run_ok(&["use", "mine"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), after);
    let shown = run(BIN, &["config", "show"], &[], &desk.home());
    assert!(shown.stdout.contains("local/mine"), "{shown:?}");
    assert!(
        desk.models_with(&[("NEXUS3_MODEL", "a/b")], &["use", "mine"])
            .stdout
            .contains("NEXUS3_MODEL in the environment overrides it")
    );
}

#[test]
fn a_model_can_be_named_as_in_the_configuration() {
    let desk = fixture_with_model();
    let config = desk.home().join("config.toml");
    let before = "[models.brief]\nmodel = \"local/mine\"\nanswer_tokens_max = 8\n";
    fs::write(&config, before).unwrap();
    desk.run_ok(&["use", "brief"]);
    let after = fs::read_to_string(&config).unwrap();
    assert!(after.starts_with("model = \"brief\"\n") && after.ends_with(before), "{after}");
    assert_eq!(run(BIN, &["config", "show"], &[], &desk.home()).code, 0);
}

#[test]
fn a_home_without_a_configuration_gets_one() {
    let desk = fixture_with_model();
    desk.run_ok(&["use", "mine"]);
    assert_eq!(fs::read_to_string(desk.home().join("config.toml")).unwrap(), "model = \"local/mine\"\n");
}

#[test]
fn a_name_that_cannot_work_is_refused_and_nothing_is_written() {
    let desk = fixture_with_model();
    let file = desk.write("vectors.onnx", &[8, 1, 2]);
    desk.run_ok(&["pull", &file, "--yes"]);
    for (name, told) in [
        ("nothing", "unknown model \"nothing\""),
        ("local/nothing", "local/nothing is neither downloaded nor in the catalog"),
        ("smollm2-135m", "local/smollm2-135m is not downloaded: run nexus3 models pull smollm2-135m"),
        ("local/../x", "is not a valid model name"),
        ("vectors", "it is an embedding model"),
        ("nobody/x", "nobody/x"),
        ("openai/", "must be \"provider/name\""),
        ("openai/gpt-4o-mini", "OPENAI_API_KEY"),
    ] {
        let refused = desk.models(&["use", name]);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{name}: {refused:?}");
        assert!(refused.stderr.contains(told), "{name}: {refused:?}");
    }
    assert!(!desk.home().join("config.toml").exists());
}

#[test]
fn a_broken_configuration_is_not_written_over() {
    let desk = fixture_with_model();
    let config = desk.home().join("config.toml");
    fs::write(&config, "port = \n").unwrap();
    let refused = desk.models(&["use", "mine"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("config.toml:1"), "{refused:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "port = \n");
}

#[test]
fn a_running_daemon_has_to_be_restarted() {
    let Fixture { daemon, model: _model } = Fixture::start();
    let port = daemon.port().to_string();
    let env = [("NEXUS3_PORT", port.as_str()), ("OPENAI_API_KEY", "sk-test")];
    let told = run(BIN, &["models", "use", "openai/other"], &env, daemon.home());
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        told.stdout.contains(&format!("The daemon on port {port} still uses its current model")),
        "{told:?}"
    );
    assert!(!told.stdout.contains("sk-test") && !told.stderr.contains("sk-test"));
}
