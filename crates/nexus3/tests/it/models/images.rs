//! Messages with images: they reach every API and are stored with the agent; an invalid image changes nothing.

use std::fs;

use serde_json::{Value, json};
use testkit::ScriptedModel;

use super::conversations::builder_with_all_providers;
use crate::support::folder::TestDirectory;
use crate::support::program::Program;
use crate::support::{ExpectError as _, Fixture, agent_path};

/// Images of one white pixel, in base64 and as bytes.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAG7buVgAAAABJRU5ErkJggg==";
const PNG_BYTES: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc\xf8\x0f\0\x01\x01\x01\0\x1b\xb6\xeeV\0\0\0\0IEND\xaeB`\x82";
const GIF: &str = "R0lGODlhAQABAIAAAP///wAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==";
const GIF_BYTES: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

const VISION_CONFIG: &str = r#"
[models.eyes]
model = "openai/scripted"
images = true
[models.anthropic-eyes]
model = "anthropic/scripted"
images = true
[models.responses-eyes]
model = "openai-responses/scripted"
images = true
"#;

fn vision_fixture(home: &TestDirectory) -> Fixture {
    let model = ScriptedModel::start();
    Fixture {
        daemon: builder_with_all_providers(&model, home.path(), "eyes").config(VISION_CONFIG).start(),
        model,
    }
}

fn send_images_call(agent: &str, images: &Value) -> (String, Value) {
    (agent_path(agent), json!({ "content": "look", "request_id": "r", "images": images }))
}

fn last_request_body(fixture: &Fixture) -> String {
    fixture.model.requests().pop().expect("the model got a request").body.to_string()
}

#[test]
fn images_reach_every_api_as_data_and_from_files() {
    let (home, folder) = (TestDirectory::new(), TestDirectory::new());
    let fixture = vision_fixture(&home);
    fs::write(folder.path_of("a.gif"), GIF_BYTES).unwrap();
    let kinds = [
        (
            "eyes",
            format!(r#""image_url":{{"url":"data:image/png;base64,{PNG}"}}"#),
            format!("image/gif;base64,{GIF}"),
        ),
        ("anthropic-eyes", format!(r#""data":"{PNG}""#), format!(r#""data":"{GIF}""#)),
        (
            "responses-eyes",
            format!(r#""image_url":"data:image/png;base64,{PNG}""#),
            format!("image/gif;base64,{GIF}"),
        ),
    ];
    for (model, first, second) in kinds {
        fixture.create_with(json!({ "agent_id": model, "model": model, "cwd": folder.path_str() }));
        let images = json!([{ "data": PNG }, { "path": "a.gif", "media_type": "image/gif" }]);
        let (path, params) = send_images_call(model, &images);
        assert_eq!(fixture.daemon.call_result(&path, "send", params)["content"], "echo: look", "{model}");
        let request = last_request_body(&fixture);
        assert!(request.contains(&first) && request.contains(&second), "{model}: {request}");
        let shown =
            fixture.daemon.call_result(&path, "get_messages", json!({}))["messages"][0]["images"].take();
        let expected = json!([
            { "media_type": "image/png", "bytes": PNG_BYTES.len() },
            { "media_type": "image/gif", "bytes": GIF_BYTES.len() },
        ]);
        assert_eq!(shown, expected, "the message shows images without their data");
    }
}

#[test]
fn images_are_stored_and_part_of_the_idempotency_check() {
    let home = TestDirectory::new();
    let fixture = vision_fixture(&home);
    fixture.create("a");
    let (path, params) = send_images_call("a", &json!([{ "data": PNG }]));
    let response = fixture.daemon.call_result(&path, "send", params.clone());
    let Fixture { daemon, model } = fixture;
    daemon.kill();
    let fixture = Fixture {
        daemon: builder_with_all_providers(&model, home.path(), "eyes").config(VISION_CONFIG).start(),
        model,
    };
    assert_eq!(
        fixture.daemon.call_result(&path, "send", params),
        response,
        "the repeated send returns the stored response"
    );
    assert_eq!(fixture.model.requests().len(), 1);
    let (_, other) = send_images_call("a", &json!([{ "data": GIF }]));
    assert_eq!(fixture.daemon.error(&path, "send", other)["code"], -32602, "other images are other content");
    fixture.send("a", "and now?");
    assert!(last_request_body(&fixture).contains(PNG), "the image is still in the context");
    let snapshot =
        fixture.daemon.call_result("/", "export_agent", json!({ "agent_id": "a" }))["session"].take();
    fixture.daemon.call_result("/", "import_agent", json!({ "session": snapshot, "agent_id": "b" }));
    fixture.send("b", "and you?");
    assert!(last_request_body(&fixture).contains(PNG), "the snapshot contains the image");
    fixture.daemon.stop();
    let Fixture { model, .. } = fixture;
    // The same agents with a model without image input: a note replaces the image, and nothing fails.
    let fixture =
        Fixture { daemon: builder_with_all_providers(&model, home.path(), "openai/scripted").start(), model };
    fixture.send("a", "still there?");
    let request = last_request_body(&fixture);
    let note = "[1 picture left out: this model takes none]";
    assert!(!request.contains(PNG) && request.contains(note), "{request}");
}

#[test]
fn invalid_images_are_rejected_and_change_nothing() {
    let (home, folder, elsewhere) = (TestDirectory::new(), TestDirectory::new(), TestDirectory::new());
    let fixture = vision_fixture(&home);
    folder.write("notes.txt", "no image");
    fs::write(elsewhere.path_of("a.png"), PNG_BYTES).unwrap();
    fs::write(folder.path_of("large.png"), [PNG_BYTES, &vec![0; 5 << 20]].concat()).unwrap();
    folder.link("link.png", &elsewhere.path_of("a.png"));
    fixture.create_with(json!({ "agent_id": "a", "preset": "sandboxed", "cwd": folder.path_str() }));
    fixture.create_with(json!({ "agent_id": "blind", "model": "openai/scripted", "cwd": folder.path_str() }));
    fs::write(folder.path_of("cut.gif"), &GIF_BYTES[..20]).unwrap();
    fs::write(folder.path_of("wide.png"), [PNG_BYTES, &vec![0; 9 << 19]].concat()).unwrap();
    let too_large: Vec<Value> = (0..5).map(|_| json!({ "path": "wide.png" })).collect();
    let too_many: Vec<Value> = (0..21).map(|_| json!({ "data": PNG })).collect();
    for (agent, images, expected) in [
        ("a", json!([{ "data": "no base64!" }]), "images[0].data is not base64"),
        ("a", json!([{ "data": PNG }, { "data": "aGVsbG8=" }]), "images[1].data is not a supported image"),
        (
            "a",
            json!([{ "data": PNG, "media_type": "image/gif" }]),
            "'image/gif', but the bytes are image/png",
        ),
        ("a", json!([{ "data": PNG, "path": "a.png" }]), "images[0] must have either data or path"),
        ("a", json!([{}]), "images[0] must have either data or path"),
        ("a", json!([{ "path": "nothing.png" }]), "images[0].path: File not found: nothing.png"),
        (
            "a",
            json!([{ "path": "notes.txt" }]),
            "notes.txt is not a supported image: use PNG, JPEG, GIF or WebP",
        ),
        ("a", json!([{ "path": "large.png" }]), "large.png has more than 5242880 bytes"),
        ("a", json!([{ "path": elsewhere.path_of("a.png") }]), "images[0].path: "),
        ("a", json!([{ "path": "link.png" }]), "images[0].path: "),
        ("a", json!([{ "data": "iVBORw0KGgo=" }]), "images[0].data is image/png, but truncated or damaged"),
        (
            "a",
            json!([{ "path": "cut.gif" }]),
            "images[0].path: cut.gif is image/gif, but truncated or damaged",
        ),
        ("a", Value::from(too_many), "images: at most 20, got: 21"),
        ("a", Value::from(too_large), "images: at most 20971520 bytes together"),
        (
            "blind",
            json!([{ "data": PNG }]),
            "the model openai/scripted takes no images: use a model that does",
        ),
    ] {
        let (path, params) = send_images_call(agent, &images);
        let error = fixture.daemon.error(&path, "send", params);
        let text = error["message"].as_str().unwrap_or_default();
        assert!(error["code"] == -32602 && text.contains(expected), "{expected}: {error}");
    }
    for agent in ["a", "blind"] {
        assert_eq!(fixture.daemon.call_result(&agent_path(agent), "get_messages", json!({}))["total"], 0);
    }
    assert!(fixture.model.requests().is_empty());
}

#[test]
fn command_line_sends_images() {
    let (home, folder) = (TestDirectory::new(), TestDirectory::new());
    let fixture = vision_fixture(&home);
    fs::write(folder.path_of("a.png"), PNG_BYTES).unwrap();
    fs::write(folder.path_of("large.gif"), [GIF_BYTES, &vec![0; 700 << 10]].concat()).unwrap();
    fixture.create_with(json!({ "agent_id": "a", "cwd": folder.path_str() }));
    let port = fixture.daemon.port().to_string();
    let (small, large) = (folder.path_of("a.png"), folder.path_of("large.gif"));
    let args = ["rpc", "-p", &port, "send", "a", "look", "--image", &small, "--image", &large];
    let finished = Program::start(&args, &[], fixture.daemon.home(), b"").finish();
    assert_eq!(finished.code, 0, "{finished:?}");
    let request = last_request_body(&fixture);
    assert!(request.contains(PNG) && request.contains("data:image/gif;base64,"), "{}", request.len());
    let args = ["rpc", "-p", &port, "send", "a", "look", "--image", "/nowhere.png"];
    let finished = Program::start(&args, &[], fixture.daemon.home(), b"").finish();
    assert!(finished.code == 1 && finished.stderr.contains("cannot read image /nowhere.png"), "{finished:?}");
}
