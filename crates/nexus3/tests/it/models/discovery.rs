//! Discovery of local model servers by environment variable or configuration. The fake servers respond like real ones.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};
use testkit::{HttpPeer, PeerAction, TestDaemon, http_response, run};

use super::{ModelsFixture, fake_weights};
use crate::support::BIN;

const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"from the machine\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Starts a server with a body for each of its paths and 404 for all others, and returns its port. It ends with the
/// test process.
fn serve(paths: &[(&str, String)]) -> u16 {
    let paths: HashMap<String, String> =
        paths.iter().map(|(path, body)| ((*path).to_owned(), body.clone())).collect();
    let peer = HttpPeer::start_on_thread(move |request| {
        let found = paths.get(request.path());
        let (status, body) = found.map_or(("404 Not Found", "{}"), |body| ("200 OK", body));
        vec![PeerAction::Write(http_response(status, "connection: close\r\n", body)), PeerAction::Close]
    });
    peer.port()
}

fn ollama() -> u16 {
    ollama_with(&["nomic-embed-text:latest", "llama3.2:latest"])
}

fn ollama_with(names: &[&str]) -> u16 {
    let model = |name: &&str| {
        json!({ "name": name, "model": name, "modified_at": "2026-01-05T09:12:01.1+01:00", "size": 2_019_393_189_u64,
            "digest": "a80c4f17acd5", "details": { "format": "gguf", "family": "llama", "parameter_size": "3.2B" } })
    };
    let tags = json!({ "models": names.iter().map(model).collect::<Vec<_>>() });
    serve(&[("/api/tags", tags.to_string()), ("/v1/chat/completions", CHAT.to_owned())])
}

fn lmstudio() -> u16 {
    let model = |id: &str| json!({ "id": id, "object": "model", "owned_by": "organization_owner" });
    let models = json!({ "data": [model("qwen2.5-7b-instruct")], "object": "list" });
    serve(&[("/v1/models", models.to_string())])
}

fn llamacpp() -> u16 {
    let props = json!({ "default_generation_settings": { "id": 0, "n_ctx": 4096 }, "total_slots": 1, "model_path": "/m.gguf" });
    let model = json!({ "id": "/m.gguf", "object": "model", "created": 1, "owned_by": "llamacpp", "meta": { "n_vocab": 128_256 } });
    let models = json!({ "object": "list", "data": [model] });
    serve(&[("/props", props.to_string()), ("/v1/models", models.to_string())])
}

fn vllm() -> u16 {
    let id = "Qwen/Qwen2.5-0.5B-Instruct";
    let model = json!({ "id": id, "object": "model", "created": 1, "owned_by": "vllm", "root": id, "parent": null,
        "max_model_len": 32_768, "permission": [] });
    serve(&[("/v1/models", json!({ "object": "list", "data": [model] }).to_string())])
}

/// The URL of a local port without a listener.
fn unused_address() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    format!("http://127.0.0.1:{}/v1", listener.local_addr().unwrap().port())
}

fn servers(fixture: &ModelsFixture, env: &[(&str, &str)]) -> Vec<Value> {
    let listed = fixture.models_with(env, &["list", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["servers"].as_array().unwrap().clone()
}

#[test]
fn every_kind_of_server_is_found_by_its_variable() {
    let fixture = ModelsFixture::new();
    let base_url = |port: u16| format!("http://127.0.0.1:{port}/v1");
    let (ollama, lmstudio, llamacpp, vllm) =
        (ollama(), base_url(lmstudio()), base_url(llamacpp()), base_url(vllm()));
    let env = [
        ("OLLAMA_HOST", &*format!("127.0.0.1:{ollama}")),
        ("LMSTUDIO_BASE_URL", &lmstudio),
        ("LLAMACPP_BASE_URL", &llamacpp),
        ("VLLM_BASE_URL", &vllm),
    ];
    let ollama = base_url(ollama);
    let found = [
        ("ollama/llama3.2:latest", &ollama),
        ("ollama/nomic-embed-text:latest", &ollama),
        ("lmstudio/qwen2.5-7b-instruct", &lmstudio),
        ("llamacpp//m.gguf", &llamacpp),
        ("vllm/Qwen/Qwen2.5-0.5B-Instruct", &vllm),
    ];
    let expected: Vec<Value> = found.iter().map(|(name, url)| json!({ "name": name, "url": url })).collect();
    assert_eq!(servers(&fixture, &env), expected);
    let listed = fixture.models_with(&env, &[]);
    for (name, url) in found {
        assert!(listed.stdout.contains(&format!("  {name}  {url}\n")), "{name} in {listed:?}");
    }
}

#[test]
fn server_is_found_by_its_configured_address() {
    let fixture = ModelsFixture::new();
    let (unused, vllm) = (unused_address(), format!("http://localhost:{}/v1/", vllm()));
    let env = ["OLLAMA_HOST", "LMSTUDIO_BASE_URL", "LLAMACPP_BASE_URL", "VLLM_BASE_URL"];
    let env = env.map(|name| (name, unused.as_str()));
    assert_eq!(servers(&fixture, &env), Vec::<Value>::new());
    fs::create_dir_all(fixture.home()).unwrap();
    fs::write(fixture.home().join("config.toml"), format!("[providers.vllm]\nbase_url = \"{vllm}\"\n"))
        .unwrap();
    let expected = json!({ "name": "vllm/Qwen/Qwen2.5-0.5B-Instruct", "url": vllm.trim_end_matches('/') });
    assert_eq!(servers(&fixture, &env), [expected]);
}

#[test]
fn unrelated_server_on_the_port_is_not_listed() {
    let fixture = ModelsFixture::new();
    let other = serve(&[("/v1/models", "<html></html>".to_owned()), ("/api/tags", "[]".to_owned())]);
    let other = format!("http://127.0.0.1:{other}/v1");
    let env = ["OLLAMA_HOST", "LMSTUDIO_BASE_URL", "LLAMACPP_BASE_URL", "VLLM_BASE_URL"];
    assert_eq!(servers(&fixture, &env.map(|name| (name, other.as_str()))), Vec::<Value>::new());
    // Another server with the same API is not llama.cpp.
    let vllm = format!("http://127.0.0.1:{}/v1", vllm());
    let unused = unused_address();
    let env =
        env.map(|name| (name, if name == "LLAMACPP_BASE_URL" { vllm.as_str() } else { unused.as_str() }));
    assert_eq!(servers(&fixture, &env), Vec::<Value>::new());
}

#[test]
fn unconfigured_daemon_uses_the_server_it_finds() {
    let daemon = TestDaemon::builder(BIN).env("OLLAMA_HOST", format!(":{}", ollama())).start();
    let response = daemon.call_result("/", "send", json!({ "content": "hi" }));
    assert_eq!(response["content"], "from the machine");
}

#[test]
fn running_server_takes_priority_over_pulled_weights() {
    let fixture = ModelsFixture::new();
    let file = fixture.write("mine.gguf", &fake_weights(100));
    fixture.run_ok(&["pull", &file, "--yes"]);
    let daemon =
        TestDaemon::builder(BIN).home(fixture.home()).env("OLLAMA_HOST", format!(":{}", ollama())).start();
    let response = daemon.call_result("/", "send", json!({ "content": "hi" }));
    assert_eq!(response["content"], "from the machine");
}

#[test]
fn server_without_a_chat_model_leads_to_the_pull_offer() {
    let unused = unused_address();
    let port = unused.trim_start_matches("http://127.0.0.1:").trim_end_matches("/v1");
    for names in [[].as_slice(), &["nomic-embed-text:latest"]] {
        let fixture = ModelsFixture::new();
        let ollama = format!("127.0.0.1:{}", ollama_with(names));
        let others = ["LMSTUDIO_BASE_URL", "LLAMACPP_BASE_URL", "VLLM_BASE_URL"];
        let mut env = others.map(|name| (name, unused.as_str())).to_vec();
        env.push(("OLLAMA_HOST", &ollama));
        let finished = run(BIN, &["ask", "hi", "-p", port], &env, &fixture.home());
        // Stops a daemon that the command should not have started, which would outlive the test.
        run(BIN, &["rpc", "-p", port, "shutdown"], &[], &fixture.home());
        assert_eq!(finished.code, 2, "{finished:?}");
        assert!(finished.stderr.contains("No model found"), "{finished:?}");
        assert!(
            finished.stderr.contains("smollm2-135m") && finished.stderr.contains("pass --yes"),
            "{finished:?}"
        );
    }
}
