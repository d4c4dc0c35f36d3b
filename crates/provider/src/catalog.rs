//! The one list of providers: what each is called, where it is, what it speaks, and which variables of the environment it
//! is known by. A new provider is one line.

use crate::endpoint::AuthScheme;

/// The API that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Chat completions, as OpenAI has them today.
    OpenAiChat,
    /// Chat completions, as everybody else has them.
    CompatibleChat,
    /// Chat completions below a deployment's name.
    AzureChat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Anthropic,
}

/// Where a provider is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// Somewhere on the network; it wants a key.
    Cloud,
    /// On this machine; it wants none.
    Machine,
}

/// Where a server of chat completions wants back what its model thought before calls. None of it is in the API as OpenAI
/// wrote it, and some servers refuse what they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningEcho {
    /// Nowhere.
    Omitted,
    /// The text in `reasoning_content`, empty where there is none: DeepSeek and Kimi refuse an answer without it.
    ReasoningContent,
    /// The list in `reasoning_details`, which OpenRouter needs for models that sign what they think.
    ReasoningDetails,
    /// `extra_content` of each call, where Gemini has its signature: the newer ones refuse calls without it.
    ExtraContent,
}

/// Who says where thoughts are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningEchoRule {
    /// The server, whatever its model.
    Always(ReasoningEcho),
    /// The maker of the model, told by the model's name: behind another address it may be anybody's.
    ByModel,
}

impl ReasoningEchoRule {
    /// Where a model's thoughts are wanted.
    pub(crate) fn for_model(self, model: &str) -> ReasoningEcho {
        if let Self::Always(thinking) = self {
            return thinking;
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

/// The ids of calls that a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIdFormat {
    /// Any that can be seen.
    Printable,
    /// Nine letters and digits: Mistral's own, and no others.
    NineAlphanumeric,
}

/// A provider that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProvider {
    /// Its name, and the word for its kind.
    pub name: &'static str,
    /// What it speaks.
    pub api: Api,
    /// Where it wants thoughts back.
    pub reasoning_echo: ReasoningEchoRule,
    /// Which ids of calls it takes.
    pub call_id_format: CallIdFormat,
    /// Where it is; empty when only its user knows.
    pub base_url: &'static str,
    /// The variable with another address; empty when there is none.
    pub base_url_variable: &'static str,
    /// The variables that may hold its key.
    pub key_variables: &'static [&'static str],
    /// How the key travels.
    pub auth: AuthScheme,
    /// Where it is.
    pub site: Site,
    /// The model that its bare name means; empty when there is none.
    pub default_model: &'static str,
}

/// One that wants nothing of its own.
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
    model_default: &'static str,
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
        default_model: model_default,
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
    const fn with_reasoning_echo(self, thinking: ReasoningEcho) -> Self {
        Self { reasoning_echo: ReasoningEchoRule::Always(thinking), ..self }
    }

    const fn with_reasoning_echo_by_model(self) -> Self {
        Self { reasoning_echo: ReasoningEchoRule::ByModel, ..self }
    }

    const fn with_short_call_ids(self) -> Self {
        Self { call_id_format: CallIdFormat::NineAlphanumeric, ..self }
    }
}

/// The list itself. Where no model is chosen, the first whose key is set is asked.
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

/// The name of the provider that is part of nexus3 itself.
pub const LOCAL: &str = "local";

/// Finds a provider by its name.
#[must_use]
pub fn known_provider(name: &str) -> Option<&'static KnownProvider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

/// Ollama's own variable names a host to listen on, with or without scheme and port.
pub(crate) fn ollama_base_url(host: &str) -> String {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest.trim_end_matches('/');
    let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if is_port(port) => (name, port),
        _ => (authority.trim_end_matches(':'), if scheme == "https" { "443" } else { "11434" }),
    };
    // What is listened on everywhere is asked here.
    let name = if matches!(name, "" | "0.0.0.0" | "[::]") { "127.0.0.1" } else { name };
    let path = if path.is_empty() { "v1" } else { path };
    format!("{scheme}://{name}:{port}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_bases_are_addresses() {
        for (place, provider) in PROVIDERS.iter().enumerate() {
            assert!(PROVIDERS[..place].iter().all(|other| other.name != provider.name), "{}", provider.name);
            assert_ne!(provider.name, LOCAL);
            let secure = provider.base_url.starts_with("https://") || provider.site == Site::Machine;
            assert!(secure || provider.base_url.is_empty(), "{}", provider.name);
        }
    }

    #[test]
    fn ollamas_host_is_read_as_ollama_reads_it() {
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
