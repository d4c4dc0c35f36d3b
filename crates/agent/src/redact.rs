//! Redacts secrets in a transcript before a model summarizes it, and in the summary. Pattern based: it may redact texts
//! that are no secrets, and misses secrets without a recognizable form.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// The replacement of a secret.
pub(crate) const PLACEHOLDER: &str = "[redacted]";

/// Patterns with their replacements; the name before a secret is retained. Tool arguments are JSON: a line break in
/// them is `\n`, whose `n` is not part of the next word, and quotes are preceded by backslashes.
const PATTERNS: [(&str, &str); 12] = [
    // Complete private keys, and the beginning of a truncated one.
    (
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s:,.\-\\]*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
        PLACEHOLDER,
    ),
    (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*", PLACEHOLDER),
    // The daemon's own tokens.
    (r"(\\[nrt]|\b)nx[kc]_[A-Za-z0-9_\-]{8,}", "$1[redacted]"),
    // Keys of model and payment providers.
    (
        r"(\\[nrt]|\b)(?:sk|pk|rk)(?:-[A-Za-z0-9_\-]{16,}|_(?:live|test)_[A-Za-z0-9]{8,}|_[A-Za-z0-9]{24,})",
        "$1[redacted]",
    ),
    (
        r"(\\[nrt]|\b)(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_\-]{16,})",
        "$1[redacted]",
    ),
    (r"(\\[nrt]|\b)(?:AKIA|ASIA)[A-Z0-9]{16}\b", "$1[redacted]"),
    (r"(\\[nrt]|\b)AIza[A-Za-z0-9_\-]{30,}", "$1[redacted]"),
    (
        r"(\\[nrt]|\b)(?:xox[abeprs]-[A-Za-z0-9\-]{10,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,})",
        "$1[redacted]",
    ),
    // JSON Web Tokens.
    (r"(\\[nrt]|\b)eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}\.[A-Za-z0-9_\-]*", "$1[redacted]"),
    (r"(?i)(\\[nrt]|\b)(bearer|basic)\s+[A-Za-z0-9._~+/\-]{12,}=*", "$1$2 [redacted]"),
    // Passwords in URLs.
    (r"\b([A-Za-z][A-Za-z0-9+.\-]*://[^\s/:@]*):[^\s/@]+@", "$1:[redacted]@"),
    // Assignments to names of secrets. The allowed suffixes are listed: `token_count` and `password_file` are not
    // secrets.
    (
        r#"(?xi)\b([A-Z0-9_\-]*
            (?:(?:api|access|private|signing|encryption)[_-]?key|secret|token|passwd|password|passphrase)
            (?:[_-]?(?:access|key|value|string|base64|pem|live|test|prod|production|staging|dev|[0-9]+))*
            \\*["']?\s*[:=]\s*\\*["']?)
            (?:[^\s"'\\,;}\[]|\\[^\s"'nrt]){6,}"#,
        "$1[redacted]",
    ),
];

/// The compiled patterns. An invalid pattern is skipped; a test checks that all are valid.
static COMPILED_PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compiled = |(pattern, replacement): (&str, &'static str)| {
        Regex::new(pattern).ok().map(|regex| (regex, replacement))
    };
    PATTERNS.into_iter().filter_map(compiled).collect()
});

/// Replaces everything in the text that looks like a secret.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for (regex, replacement) in COMPILED_PATTERNS.iter() {
        if let Cow::Owned(cleaner) = regex.replace_all(&clean, *replacement) {
            clean = Cow::Owned(cleaner);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_compile() {
        assert_eq!(COMPILED_PATTERNS.len(), PATTERNS.len());
    }

    #[test]
    fn secrets_are_redacted_and_surrounding_text_is_not() {
        let long = "a1B2".repeat(10);
        for secret in [
            format!("sk-{long}"),
            format!("sk-ant-api03-{long}"),
            format!("sk_live_{long}"),
            format!("rk_test_{long}"),
            format!("sk_{long}"),
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
    fn names_of_secrets_are_retained() {
        for (text, clean) in [
            ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [redacted]"),
            ("postgres://me:hunter22@host/db", "postgres://me:[redacted]@host/db"),
            ("OPENAI_API_KEY=abcdef123456", "OPENAI_API_KEY=[redacted]"),
            (r#"{"password": "correct horse"}"#, r#"{"password": "[redacted] horse"}"#),
            ("db_secret: 's3cr3t-value'", "db_secret: '[redacted]'"),
            ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted]"),
            ("client_secret_value=abcdef123456", "client_secret_value=[redacted]"),
            ("export PRIVATE_KEY=0xabcdef123456", "export PRIVATE_KEY=[redacted]"),
            ("DB_PASSWORD_PROD: hunter2x", "DB_PASSWORD_PROD: [redacted]"),
            (r#"secretAccessKey: "abcdef123456""#, r#"secretAccessKey: "[redacted]""#),
            (r"PASSWORD=C:\secret\word", "PASSWORD=[redacted]"),
        ] {
            assert_eq!(redact(text), clean);
        }
    }

    #[test]
    fn secrets_in_tool_arguments_are_redacted() {
        for (text, clean) in [
            (
                r#"{"cmd":"OPENAI_API_KEY=\"abcdef123456\" run"}"#,
                r#"{"cmd":"OPENAI_API_KEY=\"[redacted]\" run"}"#,
            ),
            (
                r#"{"content":"{\"password\": \"hunter2x\"}"}"#,
                r#"{"content":"{\"password\": \"[redacted]\"}"}"#,
            ),
            (r#"{\\\"token\\\": \\\"abcdef123456\\\""#, r#"{\\\"token\\\": \\\"[redacted]\""#),
            (r#""API_KEY=abcdef123456\nPORT=8080""#, r#""API_KEY=[redacted]\nPORT=8080""#),
            (r#""keys:\nsk-abcdefghijklmnop123456\n""#, r#""keys:\n[redacted]\n""#),
            (r#""\nAKIAIOSFODNN7EXAMPLE\n""#, r#""\n[redacted]\n""#),
            (r"-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\n", r"[redacted]\n"),
        ] {
            assert_eq!(redact(text), clean);
        }
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        for text in [
            "the token count is 17, the secret of speed is rest",
            "https://example.org:8080/path@2?x=1",
            "sketch-like risk-averse tasks-for-monday",
            "fn token(&self) -> Token",
            "a private key: generated by the access key: rotated",
            "the secretary: Johnson; passwords: several; tokens: thousands",
            "token_count: 1234567, max_tokens=1000000, password_file = /etc/pass, secret_name: production",
            "sk_stream_wait_connect sk_buff_head_init pk_columns_of_table",
            "desk_live_abcdefgh12 ask-for-something-longer",
            "",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}: {}", redact(text));
        }
    }
}
