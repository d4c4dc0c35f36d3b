//! URLs of the hub: https only, or http on loopback. Redirects must not drop the encryption.

use reqwest::Url;

use crate::source::HubFile;

/// Returns the download URL of a hub file.
pub(super) fn file_url(base: &str, file: &HubFile) -> Result<Url, String> {
    let mut url = Url::parse(base.trim_end_matches('/'))
        .map_err(|fault| format!("HF_ENDPOINT is not a URL: {fault}; set it like https://HOST"))?;
    if !is_safe(&url) || url.query().is_some() || url.fragment().is_some() {
        return Err("HF_ENDPOINT must be https://HOST, or http:// on this machine".to_owned());
    }
    {
        let mut path =
            url.path_segments_mut().map_err(|()| "HF_ENDPOINT must be like https://HOST".to_owned())?;
        path.pop_if_empty().extend(file.repository.split('/')).push("resolve").push(&file.revision);
        path.extend(file.file.split('/'));
    }
    Ok(url)
}

/// Resolves and validates the target of a redirect.
pub(super) fn redirect_target(from: &Url, location: &str) -> Result<Url, String> {
    let to =
        from.join(location).map_err(|fault| format!("the server redirects to an invalid URL: {fault}"))?;
    let encrypted = to.scheme() == "https" && to.username().is_empty() && to.password().is_none();
    if encrypted || (from.scheme() == "http" && is_safe(&to)) {
        return Ok(to);
    }
    Err("the server redirects to an address without encryption".to_owned())
}

/// Whether a URL is https or loopback http, and without credentials, which would appear in messages.
fn is_safe(url: &Url) -> bool {
    let is_loopback = match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
        None => false,
    };
    let has_no_credentials = url.username().is_empty() && url.password().is_none();
    has_no_credentials && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> HubFile {
        HubFile::new("owner/repo", "main", "a/b.gguf").unwrap()
    }

    #[test]
    fn download_url_is_below_the_base() {
        for base in ["https://hub.invalid", "https://hub.invalid/", "https://hub.invalid//"] {
            let url = file_url(base, &file()).unwrap();
            assert_eq!(url.as_str(), "https://hub.invalid/owner/repo/resolve/main/a/b.gguf");
        }
        let url = file_url("http://127.0.0.1:9/mirror/", &file()).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:9/mirror/owner/repo/resolve/main/a/b.gguf");
    }

    #[test]
    fn base_url_without_tls_or_with_credentials_is_rejected() {
        for base in [
            "",
            "hub",
            "http://hub.invalid",
            "ftp://hub.invalid",
            "https://u:p@hub.invalid",
            "file:///x",
            "https://h.invalid/?a=b",
        ] {
            let error = file_url(base, &file()).unwrap_err();
            assert!(error.starts_with("HF_ENDPOINT"), "{base}: {error}");
        }
    }

    #[test]
    fn redirect_never_drops_encryption() {
        let https = Url::parse("https://hub.invalid/a/b").unwrap();
        let loopback = Url::parse("http://127.0.0.1:9/a").unwrap();
        assert_eq!(redirect_target(&https, "/c").unwrap().as_str(), "https://hub.invalid/c");
        assert!(redirect_target(&https, "https://files.invalid/c?sig=1").is_ok());
        assert!(
            redirect_target(&loopback, "https://files.invalid/c").is_ok()
                && redirect_target(&loopback, "/d").is_ok()
        );
        for bad in
            ["http://hub.invalid/c", "http://127.0.0.1/c", "ftp://x.invalid/", "https://u:p@x.invalid/"]
        {
            assert!(redirect_target(&https, bad).is_err(), "{bad}");
        }
        assert!(redirect_target(&loopback, "http://hub.invalid/c").is_err());
    }
}
