//! Files that are closed to all agents, by their names (decision 33): agents write nothing that is executed later as the
//! user, and neither read nor write credentials.

/// Names of files and directories whose content is executed later, outside any agent: repositories, editor settings,
/// start-up files of shells and sessions.
const EXECUTED_NAMES: &[&str] = &[
    ".git",
    ".gitconfig",
    ".envrc",
    ".vscode",
    ".idea",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".pam_environment",
];

/// Directories of a user's configuration that are executed at the start of shells and sessions.
const EXECUTED_DIRECTORIES: &[(&str, &str)] = &[
    (".config", "fish"),
    (".config", "git"),
    (".config", "autostart"),
    (".config", "systemd"),
    (".config", "environment.d"),
];

/// Directories of keys; agents write nothing in them.
const KEY_DIRECTORIES: &[&str] = &[".ssh", ".gnupg", ".aws", ".kube", ".docker"];

/// Files whose content is a credential, by name.
const CREDENTIAL_NAMES: &[&str] =
    &[".netrc", "_netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".vault-token"];

/// Files whose content is a credential, by directory and name.
const CREDENTIALS_IN: &[(&str, &str)] = &[
    (".aws", "credentials"),
    (".kube", "config"),
    (".docker", "config.json"),
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".gem", "credentials"),
    ("gh", "hosts.yml"),
    ("gcloud", "credentials.db"),
    ("gcloud", "application_default_credentials.json"),
    ("git", "credentials"),
    ("etc", "shadow"),
    ("etc", "gshadow"),
    ("etc", "shadow-"),
    ("etc", "gshadow-"),
];

/// Whether agents may not write a file, because of any component of its path.
pub(super) fn is_protected(path: &str) -> bool {
    let path = fold_case(path);
    let is_executed = |part: &str| EXECUTED_NAMES.contains(&part) || KEY_DIRECTORIES.contains(&part);
    path.split('/').any(is_executed)
        || pairs(&path).any(|pair| EXECUTED_DIRECTORIES.contains(&pair))
        || is_credential_path(&path)
}

/// Whether a file contains credentials, which agents may not even read, by its absolute path.
pub(crate) fn is_credential(path: &str) -> bool {
    is_credential_path(&fold_case(path))
}

fn is_credential_path(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let (name, directory) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    CREDENTIAL_NAMES.contains(&name)
        || CREDENTIALS_IN.contains(&(directory, name))
        || directory == "private-keys-v1.d"
        || (path.split('/').any(|part| part == ".ssh") && is_private_key(name))
}

/// Whether a file in `.ssh` is a private key.
fn is_private_key(name: &str) -> bool {
    let has_key_name = name.starts_with("id_") || name.starts_with("identity") || name.ends_with("_key");
    let has_key_suffix = [".pem", ".key", ".ppk"].iter().any(|suffix| name.ends_with(suffix));
    (has_key_name || has_key_suffix) && !name.ends_with(".pub")
}

/// The components of a path, each with the one before it.
fn pairs(path: &str) -> impl Iterator<Item = (&str, &str)> {
    path.split('/').zip(path.split('/').skip(1))
}

/// The path as case-insensitive file systems compare it. Upper case first: some characters have two lower case forms.
fn fold_case(path: &str) -> String {
    path.to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_match_in_any_case_and_depth() {
        for path in [
            "/w/.git",
            "/w/.git/hooks/pre-commit",
            "/w/.GIT/config",
            "/w/a/b/.Git/x",
            "/w/.vscode/tasks.json",
            "/w/.idea/x",
            "/w/.envrc",
            "/h/.bashrc",
            "/h/.BASHRC",
            "/h/.ba\u{17f}hrc",
            "/h/.profile",
            "/h/.zshenv/x",
            "/h/.config/fish/config.fish",
            "/h/.Config/Systemd/user/x.service",
            "/h/.ssh/authorized_keys",
            "/h/.gitconfig",
            "/h/.netrc",
            "/h/.aws/config",
        ] {
            assert!(is_protected(path), "{path}");
        }
        for path in [
            "/w/.gitignore",
            "/w/git",
            "/w/.github/x",
            "/w/a.git",
            "/w/bashrc",
            "/w/.git2",
            "/w/. git",
            "/w/.config/app.toml",
            "/w/fish/x",
            "/w/key.pem",
            "/w/.env",
        ] {
            assert!(!is_protected(path), "{path}");
        }
    }

    #[test]
    fn credentials_are_not_read_but_public_keys_are() {
        for path in [
            "/h/.ssh/id_rsa",
            "/h/.SSH/Id_ed25519",
            "/h/.ssh/work/id_rsa",
            "/h/.ssh/cloud.pem",
            "/h/.netrc",
            "/h/.npmrc",
            "/h/.aws/credentials",
            "/h/.docker/config.json",
            "/h/.cargo/credentials.toml",
            "/h/.config/gh/hosts.yml",
            "/h/.gnupg/private-keys-v1.d/x.key",
            "/etc/shadow",
        ] {
            assert!(is_credential(path) && is_protected(path), "{path}");
        }
        for path in [
            "/h/.ssh/id_rsa.pub",
            "/h/.ssh/config",
            "/h/.ssh/known_hosts",
            "/h/.aws/config",
            "/w/tests/server.pem",
            "/w/id_rsa",
            "/w/.env",
            "/w/.git/config",
            "/w/credentials",
        ] {
            assert!(!is_credential(path), "{path}");
        }
    }
}
