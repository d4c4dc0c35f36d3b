//! A provider's key: where it comes from, and kept out of everything that is shown.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent::{Fault, FaultKind};

/// How long a command may take to say a key.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest key that is taken.
const KEY_BYTES_MAX: usize = 16_384;

/// A shorter key is a word that other texts may hold too, such as the `none` for a server that wants no key.
const SECRET_BYTES_MIN: usize = 8;

/// A key, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a key.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Whether it can be a key at all; the name says where it comes from.
    pub(crate) fn check(&self, name: &str) -> Result<(), Fault> {
        if self.0.is_empty() || self.0.len() > KEY_BYTES_MAX {
            return Err(invalid(format!("{name} holds no key, or one that is too long")));
        }
        if !self.0.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(format!("{name} holds a blank or a character that no key has")));
        }
        Ok(())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without this key, which some servers repeat.
    pub(crate) fn redact_from(&self, text: &str) -> String {
        if self.0.len() < SECRET_BYTES_MIN { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("[key]")
    }
}

/// Where a key comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeySource {
    /// The server wants none.
    #[default]
    None,
    /// It is known already; the name says from where, for faults.
    Given {
        /// The variable or setting.
        name: String,
        /// The key.
        key: Secret,
    },
    /// The text of a file that nobody else can read.
    File(PathBuf),
    /// What a program prints; run without a shell.
    Command(Vec<String>),
}

impl KeySource {
    /// Whether it may give another key when it is read again.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self, Self::File(_) | Self::Command(_))
    }

    /// Reads the key.
    pub(crate) async fn read(&self) -> Result<Option<Secret>, Fault> {
        let (name, text) = match self {
            Self::None => return Ok(None),
            Self::Given { name, key } => (name.clone(), key.0.clone()),
            Self::File(path) => (path.display().to_string(), read_file(path)?),
            Self::Command(words) => {
                (format!("key_command {:?}", program_name(words)), run_command(words).await?)
            }
        };
        let key = Secret(text.trim().to_owned());
        key.check(&name)?;
        Ok(Some(key))
    }
}

fn program_name(words: &[String]) -> &str {
    words.first().map_or("", String::as_str)
}

fn invalid(text: String) -> Fault {
    Fault::new(FaultKind::Invalid, text)
}

fn read_file(path: &Path) -> Result<String, Fault> {
    let shown = path.display();
    let cannot = |why: &dyn std::fmt::Display| invalid(format!("key_file {shown} cannot be read: {why}"));
    let metadata = std::fs::metadata(path).map_err(|fault| cannot(&fault))?;
    if !metadata.is_file() || metadata.len() > KEY_BYTES_MAX as u64 {
        return Err(cannot(&"it is not a small regular file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(invalid(format!("key_file {shown} can be read by others; run: chmod 600 {shown}")));
    }
    std::fs::read_to_string(path).map_err(|fault| cannot(&fault))
}

/// What the program wrote to its output is the key, so none of it goes into a fault.
async fn run_command(words: &[String]) -> Result<String, Fault> {
    let name = program_name(words);
    let cannot = |why: String| invalid(format!("key_command {name:?} {why}"));
    let mut command = tokio::process::Command::new(name);
    command.args(words.get(1..).unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await {
        Err(_) => return Err(cannot(format!("took longer than {} s", COMMAND_TIMEOUT.as_secs()))),
        Ok(Err(fault)) => return Err(cannot(format!("cannot be run: {fault}"))),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        return Err(cannot(format!("failed ({})", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| cannot("printed something that is no text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> KeySource {
        KeySource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[tokio::test]
    async fn a_command_says_a_key_and_no_shell_reads_its_words() {
        let key = command(&["printf", "%s\\n", "sk-$HOME"]).read().await;
        assert_eq!(key, Ok(Some(Secret("sk-$HOME".to_owned()))));
        for (words, why) in [
            (&["false"][..], "failed"),
            (&["/nowhere/at/all"], "cannot be run"),
            (&["true"], "holds no key"),
            (&["printf", "two words"], "holds a blank"),
            (&[], "cannot be run"),
        ] {
            let fault = command(words).read().await.unwrap_err();
            assert!(fault.public.contains(why), "{words:?}: {fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_never_ends_is_given_up() {
        let fault = command(&["sleep", "1000"]).read().await.unwrap_err();
        assert!(fault.public.contains("took longer than 10 s"), "{fault}");
    }

    #[tokio::test]
    async fn a_file_that_others_can_read_is_refused() {
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
    fn a_key_is_never_shown() {
        let source = KeySource::Given { name: "K".to_owned(), key: Secret::new("sk-hush-hush".to_owned()) };
        assert!(!format!("{source:?} {source:#?}").contains("hush"));
    }
}
