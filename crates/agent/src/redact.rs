//! Takes secrets out of a text before a model is asked to sum it up, and out of what it says. A list of patterns: what is
//! no secret may go with them, and a secret that looks like nothing stays.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// What stands in the place of a secret.
const MARK: &str = "[redacted]";

/// Each with what takes its place; the name before a secret stays.
const PATTERNS: [(&str, &str); 12] = [
    // Whole private keys, and the beginning of one that was cut off.
    (
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s:,.\-]*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
        MARK,
    ),
    (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s]*", MARK),
    // The daemon's own tokens.
    (r"\bnx[kc]_[A-Za-z0-9_\-]{8,}", MARK),
    // Keys of model providers.
    (r"\b(sk|pk|rk)-[A-Za-z0-9_\-]{16,}", MARK),
    (r"\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_\-]{16,})", MARK),
    (r"\b(AKIA|ASIA)[A-Z0-9]{16}\b", MARK),
    (r"\bAIza[A-Za-z0-9_\-]{30,}", MARK),
    (r"\b(xox[abeprs]-[A-Za-z0-9\-]{10,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,})", MARK),
    // JSON Web Tokens.
    (r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}\.[A-Za-z0-9_\-]*", MARK),
    (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/\-]{12,}=*", "$1 [redacted]"),
    // Passwords in addresses.
    (r"\b([A-Za-z][A-Za-z0-9+.\-]*://[^\s/:@]*):[^\s/@]+@", "$1:[redacted]@"),
    (
        r#"(?i)\b([A-Za-z0-9_\-]*(?:api[_-]?key|secret|token|passwd|password|passphrase)["']?\s*[:=]\s*["']?)[^\s"',;}\[]{6,}"#,
        "$1[redacted]",
    ),
];

/// A pattern that is none would be left out; a test holds that all of them are.
static COMPILED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compiled =
        |(pattern, mark): (&str, &'static str)| Regex::new(pattern).ok().map(|regex| (regex, mark));
    PATTERNS.into_iter().filter_map(compiled).collect()
});

/// The text without what looks like a secret.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for (regex, mark) in COMPILED.iter() {
        if let Cow::Owned(cleaner) = regex.replace_all(&clean, *mark) {
            clean = Cow::Owned(cleaner);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_one() {
        assert_eq!(COMPILED.len(), PATTERNS.len());
    }

    #[test]
    fn secrets_go_and_what_is_around_them_stays() {
        let long = "a1B2".repeat(10);
        for secret in [
            format!("sk-{long}"),
            format!("sk-ant-api03-{long}"),
            format!("nxk_{long}"),
            format!("nxc_{long}"),
            format!("ghp_{long}"),
            format!("glpat-{long}"),
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            format!("AIza{long}"),
            format!("xoxb-{long}"),
            format!("hf_{long}"),
            format!("eyJhbGciOiJI.{long}.{long}"),
            format!("-----BEGIN RSA PRIVATE KEY-----\n{long}\n{long}\n-----END RSA PRIVATE KEY-----"),
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{long}"),
        ] {
            let clean = redact(&format!("see {secret}")).into_owned();
            assert_eq!(clean, "see [redacted]", "{secret}");
        }
    }

    #[test]
    fn the_name_of_a_secret_stays() {
        for (text, clean) in [
            ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [redacted]"),
            ("postgres://me:hunter22@host/db", "postgres://me:[redacted]@host/db"),
            ("OPENAI_API_KEY=abcdef123456", "OPENAI_API_KEY=[redacted]"),
            (r#"{"password": "correct horse"}"#, r#"{"password": "[redacted] horse"}"#),
            ("db_secret: 's3cr3t-value'", "db_secret: '[redacted]'"),
        ] {
            assert_eq!(redact(text), clean);
        }
    }

    #[test]
    fn plain_words_stay() {
        for text in [
            "the token count is 17, the secret of speed is rest",
            "https://example.org:8080/path@2?x=1",
            "sketch-like risk-averse tasks-for-monday",
            "fn token(&self) -> Token",
            "",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}: {}", redact(text));
        }
    }
}
