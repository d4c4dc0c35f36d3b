//! Validated base URL of an endpoint and the URLs below it, with its query preserved. Rejects addresses that would send
//! the key unencrypted to another machine.

use agent::{Fault, FaultKind};

use super::EndpointOptions;

/// A validated base URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseUrl(reqwest::Url);

impl BaseUrl {
    pub(crate) fn parse(options: &EndpointOptions) -> Result<Self, Fault> {
        let name = &options.base_url_name;
        let invalid = |why: &str| Fault::new(FaultKind::Invalid, format!("{name} {why}"));
        let mut url = reqwest::Url::parse(&options.base_url)
            .map_err(|fault| invalid(&format!("is not a URL: {fault}")))?;
        let is_safe = is_loopback(&url) || options.allow_insecure_http || options.socket.is_some();
        match url.scheme() {
            "https" => {}
            "http" if is_safe => {}
            "http" => {
                return Err(invalid(
                    "must be https; plain http is only taken for loopback, or with allow_insecure_http",
                ));
            }
            _ => return Err(invalid("must be https; plain http is only taken for loopback")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("must not hold a user name or password; give the key by its own setting"));
        }
        url.set_fragment(None);
        if !options.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&options.query);
        }
        // Ignore trailing slashes of the base.
        let base_path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&base_path);
        if url.cannot_be_a_base() {
            return Err(invalid("is not a URL with a path"));
        }
        Ok(Self(url))
    }

    /// Returns the host, with the port unless it is the default, for error messages.
    pub(crate) fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns the URL of a path at the root of the server.
    pub(crate) fn at_root(&self, path: &str) -> reqwest::Url {
        let mut url = self.0.clone();
        url.set_path(path);
        url.set_query(None);
        url
    }

    /// Returns the URL of an API path below the base, with `prefix` in between. Without a prefix, the first segment is
    /// not repeated if the base already ends with it, as with `v1`.
    pub(crate) fn join(&self, prefix: &[String], api_path: &[&str]) -> reqwest::Url {
        let mut url = self.0.clone();
        let last = url.path_segments().and_then(|mut segments| segments.next_back()).map(str::to_owned);
        let repeats = prefix.is_empty() && api_path.len() > 1 && last.as_deref() == api_path.first().copied();
        let api_path = if repeats { &api_path[1..] } else { api_path };
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(prefix).extend(api_path);
        }
        url
    }
}

/// Whether the host is a loopback address.
pub(crate) fn is_loopback(url: &reqwest::Url) -> bool {
    matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(base_url: &str, query: &[(&str, &str)], prefix: &[&str], api_path: &[&str]) -> String {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let base_url = base_url.to_owned();
        let base = BaseUrl::parse(&EndpointOptions { base_url, query, ..EndpointOptions::default() });
        let prefix: Vec<String> = prefix.iter().map(|segment| (*segment).to_owned()).collect();
        base.unwrap().join(&prefix, api_path).to_string()
    }

    #[test]
    fn api_paths_are_joined_to_the_base_url() {
        let messages = &["v1", "messages"];
        assert_eq!(joined("https://a.example", &[], &[], messages), "https://a.example/v1/messages");
        assert_eq!(joined("https://a.example/v1/", &[], &[], messages), "https://a.example/v1/messages");
        let azure = joined(
            "https://me.example/",
            &[("api-version", "2024-10-21")],
            &["openai", "deployments", "my model"],
            &["chat", "completions"],
        );
        assert_eq!(
            azure,
            "https://me.example/openai/deployments/my%20model/chat/completions?api-version=2024-10-21"
        );
    }

    #[test]
    fn plain_http_to_another_machine_must_be_allowed() {
        let options = EndpointOptions { base_url: "http://10.0.0.1/v1".into(), ..EndpointOptions::default() };
        assert!(BaseUrl::parse(&options).unwrap_err().public.contains("allow_insecure_http"));
        assert!(BaseUrl::parse(&EndpointOptions { allow_insecure_http: true, ..options }).is_ok());
    }
}
