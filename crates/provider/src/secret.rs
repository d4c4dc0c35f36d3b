//! Provider keys: their sources, validation, and redaction from texts and debug output.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent::{Fault, FaultKind, SECRET_BYTES_MIN};

/// Timeout of a key command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest accepted key.
const KEY_BYTES_MAX: usize = 16_384;

/// A secret string that is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Checks that this can be a key; `name` is its source, for errors.
    pub(crate) fn check(&self, name: &str) -> Result<(), Fault> {
        if self.0.is_empty() || self.0.len() > KEY_BYTES_MAX {
            return Err(invalid(format!("{name} holds no key, or one that is too long")));
        }
        if !self.0.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(format!("{name} holds a blank or a character that no key has")));
        }
        Ok(())
    }

    /// The secret, for its use.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Replaces this key in a text; some servers echo it.
    pub(crate) fn redact_from(&self, text: &str) -> String {
        if self.0.len() < SECRET_BYTES_MIN { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("[key]")
    }
}

/// Source of a provider's key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeySource {
    /// No key is needed.
    #[default]
    None,
    /// A known key.
    Given {
        /// Variable or setting it comes from, for errors.
        name: String,
        /// The key.
        key: Secret,
    },
    /// Content of a file that only its owner may read.
    File(PathBuf),
    /// Output of a program, run without a shell.
    Command(Vec<String>),
}

impl KeySource {
    /// Whether another read may return another key.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self, Self::File(_) | Self::Command(_))
    }

    /// The key as far as it is known without running a program.
    pub(crate) fn known(&self) -> Option<Secret> {
        match self {
            Self::Given { key, .. } => Some(key.clone()),
            Self::File(path) => read_file(path).ok().map(|text| Secret(text.trim().to_owned())),
            Self::None | Self::Command(_) => None,
        }
    }

    /// Reads the key.
    ///
    /// # Errors
    /// When the file or the program fails, or gives no text that can be a key.
    pub async fn read(&self) -> Result<Option<Secret>, Fault> {
        let (name, text) = match self {
            Self::None => return Ok(None),
            Self::Given { name, key } => (name.clone(), key.0.clone()),
            Self::File(path) => (path.display().to_string(), read_file(path)?),
            Self::Command(arguments) => {
                (format!("the program {:?}", program_name(arguments)), run_command(arguments).await?)
            }
        };
        let key = Secret(text.trim().to_owned());
        key.check(&name)?;
        Ok(Some(key))
    }
}

fn program_name(arguments: &[String]) -> &str {
    arguments.first().map_or("", String::as_str)
}

fn invalid(text: String) -> Fault {
    Fault::new(FaultKind::Invalid, text)
}

fn read_file(path: &Path) -> Result<String, Fault> {
    let shown = path.display();
    let error = |why: &dyn std::fmt::Display| invalid(format!("the key file {shown} cannot be read: {why}"));
    let metadata = std::fs::metadata(path).map_err(|fault| error(&fault))?;
    if !metadata.is_file() || metadata.len() > KEY_BYTES_MAX as u64 {
        return Err(error(&"it is not a small regular file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(invalid(format!("the key file {shown} can be read by others; run: chmod 600 {shown}")));
    }
    std::fs::read_to_string(path).map_err(|fault| error(&fault))
}

/// Runs a key command. Its output is the key, so errors must not contain it.
async fn run_command(arguments: &[String]) -> Result<String, Fault> {
    let name = program_name(arguments);
    let error = |why: String| invalid(format!("the program {name:?} {why}"));
    let mut command = tokio::process::Command::new(name);
    command.args(arguments.get(1..).unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await {
        Err(_) => return Err(error(format!("took longer than {} s", COMMAND_TIMEOUT.as_secs()))),
        Ok(Err(fault)) => return Err(error(format!("cannot be run: {fault}"))),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        return Err(error(format!("failed ({})", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| error("printed invalid UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(arguments: &[&str]) -> KeySource {
        KeySource::Command(arguments.iter().map(|word| (*word).to_owned()).collect())
    }

    #[tokio::test]
    async fn key_command_prints_the_key_and_runs_without_a_shell() {
        let key = command(&["printf", "%s\\n", "sk-$HOME"]).read().await;
        assert_eq!(key, Ok(Some(Secret("sk-$HOME".to_owned()))));
        for (arguments, why) in [
            (&["false"][..], "failed"),
            (&["/nowhere/at/all"], "cannot be run"),
            (&["true"], "holds no key"),
            (&["printf", "two words"], "holds a blank"),
            (&[], "cannot be run"),
        ] {
            let fault = command(arguments).read().await.unwrap_err();
            assert!(fault.public.contains(why), "{arguments:?}: {fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn key_command_times_out() {
        let fault = command(&["sleep", "1000"]).read().await.unwrap_err();
        assert!(fault.public.contains("took longer than 10 s"), "{fault}");
    }

    #[tokio::test]
    async fn key_file_readable_by_others_is_rejected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sk-from-a-file\n").unwrap();
        let source = KeySource::File(file.path().to_owned());
        let open = |mode| std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
        open(0o600);
        assert_eq!(source.read().await, Ok(Some(Secret("sk-from-a-file".to_owned()))));
        for mode in [0o640, 0o604, 0o644] {
            open(mode);
            assert!(source.read().await.unwrap_err().public.contains("chmod 600"), "{mode:o}");
        }
        let none = KeySource::File("/nowhere/at/all".into()).read().await;
        assert!(none.unwrap_err().public.contains("cannot be read"));
    }

    #[test]
    fn key_is_not_in_debug_output() {
        let source = KeySource::Given { name: "K".to_owned(), key: Secret::new("sk-hush-hush".to_owned()) };
        assert!(!format!("{source:?} {source:#?}").contains("hush"));
    }
}
