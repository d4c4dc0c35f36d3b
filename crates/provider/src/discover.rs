//! Discovery of model servers on this machine (Ollama, LM Studio, llama.cpp, vLLM) at their default or configured
//! addresses. Probes all of them concurrently, each with a short timeout, and lists their models.

use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::catalog::{PROVIDERS, Site};
use crate::endpoint::is_loopback;
use crate::registry::is_model_name;

/// Most bytes read of a server's model list.
const LIST_BYTES_MAX: usize = 1024 * 1024;

/// Most models reported per server.
const MODELS_MAX: usize = 1_000;

/// Options of server discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoverOptions {
    /// Providers to probe, by name.
    pub providers: Vec<&'static str>,
    /// Timeout per server.
    pub timeout: Duration,
}

impl Default for DiscoverOptions {
    fn default() -> Self {
        let machine = PROVIDERS.iter().filter(|known| known.site == Site::Machine);
        Self { providers: machine.map(|known| known.name).collect(), timeout: Duration::from_millis(300) }
    }
}

/// A model server found on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredServer {
    /// Provider name.
    pub provider: &'static str,
    /// Base URL of the server.
    pub base_url: String,
    /// Its models in the server's order, embedding models last.
    pub models: Vec<DiscoveredModel>,
}

impl DiscoveredServer {
    /// Returns the model to use when none is named.
    pub(crate) fn first_chat_model(&self) -> Option<&DiscoveredModel> {
        self.models.iter().find(|model| !model.is_embedding_model())
    }
}

/// A model of a discovered server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredModel {
    /// Model name on the server.
    pub name: String,
    /// Context window in tokens, if the server reports it.
    pub window_tokens: Option<u64>,
}

impl DiscoveredModel {
    /// Whether the name marks an embedding model, which cannot chat.
    #[must_use]
    pub fn is_embedding_model(&self) -> bool {
        self.name.to_ascii_lowercase().contains("embed")
    }
}

/// Probes the servers and returns those that respond in time. The HTTP client is created only after a TCP connection
/// succeeds: it would cost an idle daemon a megabyte.
pub(crate) async fn discover(servers: &[(&'static str, String)], timeout: Duration) -> Vec<DiscoveredServer> {
    let http = OnceLock::new();
    let probes = servers
        .iter()
        .filter_map(|(provider, base_url)| Some((provider, base_url, loopback_address(base_url)?)));
    let probes = probes.map(|(provider, base_url, address)| {
        let probe = async {
            TcpStream::connect(address).await.ok()?;
            probe(http.get_or_init(client).as_ref()?, provider, base_url).await
        };
        tokio::time::timeout(timeout, probe)
    });
    join_all(probes).await.into_iter().filter_map(Result::ok).flatten().collect()
}

/// Returns host and port of a loopback URL. Discovery contacts no other machine: the user must name such a model first.
fn loopback_address(base_url: &str) -> Option<(String, u16)> {
    let url = reqwest::Url::parse(base_url).ok().filter(|url| url.scheme() == "http" && is_loopback(url))?;
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), url.port_or_known_default()?))
}

/// Creates an HTTP client without root certificates, because probes never use TLS.
fn client() -> Option<reqwest::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    match builder.tls_certs_only([]).build() {
        Ok(http) => Some(http),
        Err(fault) => {
            tracing::warn!("discovery of model servers skipped: cannot create an HTTP client: {fault}");
            None
        }
    }
}

async fn probe(http: &reqwest::Client, provider: &'static str, base_url: &str) -> Option<DiscoveredServer> {
    let base_url = base_url.trim_end_matches('/');
    let root = base_url.strip_suffix("/v1").unwrap_or(base_url);
    let models = match provider {
        "ollama" => parse_models(&get_json(http, &format!("{root}/api/tags")).await?, "models", "name")?,
        "llamacpp" => {
            // Many programs listen on port 8080; only llama.cpp serves `/props`.
            let properties = get_json(http, &format!("{root}/props")).await?;
            let window = properties.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
            let window = window.filter(|tokens| *tokens > 0);
            let mut models =
                parse_models(&get_json(http, &format!("{base_url}/models")).await?, "data", "id")?;
            models.iter_mut().for_each(|model| model.window_tokens = model.window_tokens.or(window));
            models
        }
        _ => parse_models(&get_json(http, &format!("{base_url}/models")).await?, "data", "id")?,
    };
    Some(DiscoveredServer { provider, base_url: base_url.to_owned(), models })
}

async fn get_json(http: &reqwest::Client, url: &str) -> Option<Value> {
    let mut response = http.get(url).send().await.ok().filter(|response| response.status().is_success())?;
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.ok()? {
        body.extend_from_slice(&bytes);
        if body.len() > LIST_BYTES_MAX {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
}

/// Parses a server's model list.
fn parse_models(body: &Value, list: &str, name: &str) -> Option<Vec<DiscoveredModel>> {
    let entries = body.get(list)?.as_array()?;
    let model = |entry: &Value| {
        let window =
            entry.get("max_model_len").or_else(|| entry.pointer("/meta/n_ctx")).and_then(Value::as_u64);
        // Any program may listen on the port: names that cannot be requested are not shown.
        let name = entry.get(name)?.as_str().filter(|name| is_model_name(name))?;
        Some(DiscoveredModel { name: name.to_owned(), window_tokens: window })
    };
    let mut models: Vec<DiscoveredModel> = entries.iter().filter_map(model).take(MODELS_MAX).collect();
    models.sort_by_key(DiscoveredModel::is_embedding_model);
    Some(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_probed() {
        let address = |host: &str, port| Some((host.to_owned(), port));
        for (base_url, expected) in [
            ("http://127.0.0.1:11434/v1", address("127.0.0.1", 11434)),
            ("http://localhost/v1", address("localhost", 80)),
            ("http://[::1]:8000/v1", address("::1", 8000)),
            ("https://127.0.0.1:1/v1", None),
            ("http://10.0.0.1:11434/v1", None),
            ("nowhere", None),
        ] {
            assert_eq!(loopback_address(base_url), expected, "{base_url}");
        }
    }

    #[test]
    fn model_lists_of_all_servers_are_parsed() {
        let ollama = serde_json::json!({"models": [
            {"name": "nomic-embed-text:latest", "size": 1}, {"name": "llama3.2:latest", "model": "llama3.2:latest"}
        ]});
        let names = parse_models(&ollama, "models", "name").unwrap();
        assert_eq!(names[0].name, "llama3.2:latest");
        assert!(names[1].is_embedding_model());
        let forged =
            serde_json::json!({"models": [{"name": "bad\u{1b}[31m"}, {"name": "two\nlines"}, {"name": ""}]});
        assert_eq!(parse_models(&forged, "models", "name"), Some(Vec::new()));
        let vllm = serde_json::json!({"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]});
        assert_eq!(parse_models(&vllm, "data", "id").unwrap()[0].window_tokens, Some(4_096));
        for invalid in [serde_json::json!({"data": 1}), serde_json::json!([]), serde_json::json!("<html>")] {
            assert_eq!(parse_models(&invalid, "data", "id"), None);
        }
    }
}
