//! Catalog of known providers: name, base URL, API, and the environment variables with the key and the base URL. A new
//! provider is one line.

use crate::endpoint::AuthScheme;

/// API that a provider serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Chat completions of OpenAI.
    OpenAiChat,
    /// Chat completions of compatible servers.
    CompatibleChat,
    /// Chat completions below the path of an Azure deployment.
    AzureChat,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's Messages API.
    Anthropic,
}

/// Location of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// A remote service, which requires a key.
    Cloud,
    /// A server on this machine, which requires none.
    Machine,
}

/// Where a chat-completions server expects the reasoning that preceded tool calls to be sent back. No such field is
/// part of OpenAI's API, and some servers reject unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningEcho {
    /// Reasoning is not sent back.
    Omitted,
    /// The text in `reasoning_content`, empty if there is none: DeepSeek and Kimi reject assistant messages without it.
    ReasoningContent,
    /// The list in `reasoning_details`, which OpenRouter needs for models with signed reasoning.
    ReasoningDetails,
    /// `extra_content` of each call, which holds Gemini's signature: newer models reject calls without it.
    ExtraContent,
}

/// How `ReasoningEcho` is chosen for a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningEchoRule {
    /// The same for all models of the server.
    Always(ReasoningEcho),
    /// By the vendor, derived from the model's name: another base URL may serve models of any vendor.
    ByModel,
}

impl ReasoningEchoRule {
    /// Returns where a model expects its reasoning.
    pub(crate) fn for_model(self, model: &str) -> ReasoningEcho {
        if let Self::Always(echo) = self {
            return echo;
        }
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        if name.starts_with("gemini") {
            ReasoningEcho::ExtraContent
        } else if name.starts_with("deepseek") || name.starts_with("kimi") {
            ReasoningEcho::ReasoningContent
        } else {
            ReasoningEcho::Omitted
        }
    }
}

/// Format of tool call ids that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIdFormat {
    /// Any printable ASCII characters.
    Printable,
    /// Exactly nine letters and digits, as Mistral requires.
    NineAlphanumeric,
}

/// A catalog entry of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProvider {
    /// Provider name, also the value of `kind` in the settings.
    pub name: &'static str,
    /// API it serves.
    pub api: Api,
    /// Where it expects reasoning to be sent back.
    pub reasoning_echo: ReasoningEchoRule,
    /// Format of tool call ids it accepts.
    pub call_id_format: CallIdFormat,
    /// Default base URL; empty if the user must set one.
    pub base_url: &'static str,
    /// Environment variable that overrides the base URL; empty if there is none.
    pub base_url_variable: &'static str,
    /// Environment variables that may hold the key.
    pub key_variables: &'static [&'static str],
    /// How the key is sent.
    pub auth: AuthScheme,
    /// Location of the server.
    pub site: Site,
    /// Model that the bare provider name stands for; empty if there is none.
    pub default_model: &'static str,
}

/// Base for the entries below.
const DEFAULTS: KnownProvider = KnownProvider {
    name: "",
    api: Api::CompatibleChat,
    reasoning_echo: ReasoningEchoRule::Always(ReasoningEcho::Omitted),
    call_id_format: CallIdFormat::Printable,
    base_url: "",
    base_url_variable: "",
    key_variables: &[],
    auth: AuthScheme::Bearer,
    site: Site::Machine,
    default_model: "",
};

const fn cloud(
    name: &'static str,
    api: Api,
    base_url: &'static str,
    base_url_variable: &'static str,
    key_variables: &'static [&'static str],
    default_model: &'static str,
) -> KnownProvider {
    let auth = match api {
        Api::AzureChat => AuthScheme::ApiKey,
        Api::Anthropic => AuthScheme::XApiKey,
        Api::OpenAiChat | Api::CompatibleChat | Api::Responses => AuthScheme::Bearer,
    };
    let site = Site::Cloud;
    KnownProvider {
        name,
        api,
        base_url,
        base_url_variable,
        key_variables,
        auth,
        site,
        default_model,
        ..DEFAULTS
    }
}

const fn machine(
    name: &'static str,
    base_url: &'static str,
    base_url_variable: &'static str,
    key_variables: &'static [&'static str],
) -> KnownProvider {
    KnownProvider { name, base_url, base_url_variable, key_variables, ..DEFAULTS }
}

impl KnownProvider {
    const fn with_reasoning_echo(self, echo: ReasoningEcho) -> Self {
        Self { reasoning_echo: ReasoningEchoRule::Always(echo), ..self }
    }

    const fn with_reasoning_echo_by_model(self) -> Self {
        Self { reasoning_echo: ReasoningEchoRule::ByModel, ..self }
    }

    const fn with_short_call_ids(self) -> Self {
        Self { call_id_format: CallIdFormat::NineAlphanumeric, ..self }
    }
}

/// All known providers. Without a configured model, the first provider with a key is the default.
#[rustfmt::skip]
pub static PROVIDERS: &[KnownProvider] = &[
    cloud("anthropic", Api::Anthropic, "https://api.anthropic.com", "ANTHROPIC_BASE_URL", &["ANTHROPIC_API_KEY"], "claude-sonnet-4-5"),
    cloud("openai", Api::OpenAiChat, "https://api.openai.com/v1", "OPENAI_BASE_URL", &["OPENAI_API_KEY"], "gpt-5-mini").with_reasoning_echo_by_model(),
    cloud("openai-responses", Api::Responses, "https://api.openai.com/v1", "OPENAI_BASE_URL", &["OPENAI_API_KEY"], "gpt-5-mini"),
    cloud("openrouter", Api::CompatibleChat, "https://openrouter.ai/api/v1", "OPENROUTER_BASE_URL", &["OPENROUTER_API_KEY"], "anthropic/claude-sonnet-4.5").with_reasoning_echo(ReasoningEcho::ReasoningDetails),
    cloud("gemini", Api::CompatibleChat, "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_BASE_URL", &["GEMINI_API_KEY", "GOOGLE_API_KEY"], "gemini-2.5-flash").with_reasoning_echo(ReasoningEcho::ExtraContent),
    cloud("xai", Api::CompatibleChat, "https://api.x.ai/v1", "XAI_BASE_URL", &["XAI_API_KEY"], "grok-4"),
    cloud("deepseek", Api::CompatibleChat, "https://api.deepseek.com/v1", "DEEPSEEK_BASE_URL", &["DEEPSEEK_API_KEY"], "deepseek-chat").with_reasoning_echo(ReasoningEcho::ReasoningContent),
    cloud("mistral", Api::CompatibleChat, "https://api.mistral.ai/v1", "MISTRAL_BASE_URL", &["MISTRAL_API_KEY"], "mistral-large-latest").with_short_call_ids(),
    cloud("groq", Api::CompatibleChat, "https://api.groq.com/openai/v1", "GROQ_BASE_URL", &["GROQ_API_KEY"], "llama-3.3-70b-versatile"),
    cloud("together", Api::CompatibleChat, "https://api.together.xyz/v1", "TOGETHER_BASE_URL", &["TOGETHER_API_KEY"], "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
    cloud("azure", Api::AzureChat, "", "AZURE_OPENAI_ENDPOINT", &["AZURE_OPENAI_API_KEY", "AZURE_OPENAI_KEY"], ""),
    machine("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_HOST", &["OLLAMA_API_KEY"]),
    machine("lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO_BASE_URL", &["LMSTUDIO_API_KEY"]),
    machine("llamacpp", "http://127.0.0.1:8080/v1", "LLAMACPP_BASE_URL", &["LLAMACPP_API_KEY"]),
    machine("vllm", "http://127.0.0.1:8000/v1", "VLLM_BASE_URL", &["VLLM_API_KEY"]),
];

/// Provider name of the embedded model.
pub const LOCAL: &str = "local";

/// Finds a provider by its name.
#[must_use]
pub fn known_provider(name: &str) -> Option<&'static KnownProvider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

/// Converts `OLLAMA_HOST`, a listen address with or without scheme and port, to a base URL.
pub(crate) fn ollama_base_url(host: &str) -> String {
    let (scheme, remainder) = host.split_once("://").unwrap_or(("http", host));
    let remainder = remainder.trim_end_matches('/');
    let (authority, path) =
        remainder.split_once('/').map_or((remainder, ""), |(authority, path)| (authority, path));
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if is_port(port) => (name, port),
        _ => (authority.trim_end_matches(':'), if scheme == "https" { "443" } else { "11434" }),
    };
    // A wildcard listen address is reached over loopback.
    let name = if matches!(name, "" | "0.0.0.0" | "[::]") { "127.0.0.1" } else { name };
    let path = if path.is_empty() { "v1" } else { path };
    format!("{scheme}://{name}:{port}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_names_are_unique_and_cloud_urls_use_https() {
        for (index, provider) in PROVIDERS.iter().enumerate() {
            assert!(PROVIDERS[..index].iter().all(|other| other.name != provider.name), "{}", provider.name);
            assert_ne!(provider.name, LOCAL);
            let secure = provider.base_url.starts_with("https://") || provider.site == Site::Machine;
            assert!(secure || provider.base_url.is_empty(), "{}", provider.name);
        }
    }

    #[test]
    fn ollama_host_is_parsed_like_ollama_does() {
        for (host, base_url) in [
            ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            (":5000", "http://127.0.0.1:5000/v1"),
            ("localhost", "http://localhost:11434/v1"),
            ("[::1]:7", "http://[::1]:7/v1"),
            ("[::1]", "http://[::1]:11434/v1"),
            ("https://models.example.org/", "https://models.example.org:443/v1"),
            ("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1"),
        ] {
            assert_eq!(ollama_base_url(host), base_url, "{host}");
        }
    }
}
