//! Files and directories of the system that every command may read: programs, libraries, and settings without secrets.

use std::path::{Path, PathBuf};

use crate::request::{Access, Rule};

/// Programs and libraries.
const DIRECTORIES: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/snap"];

/// Settings. Not /etc as a whole: as root that includes password hashes and private keys.
const SETTINGS: &[&str] = &[
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/debian_version",
    "/etc/environment",
    "/etc/fonts",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/magic",
    "/etc/magic.mime",
    "/etc/maven",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki/tls/certs",
    "/etc/profile",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];

/// Devices without state.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Parts of a directory with a `bin` in the search path that its programs read.
const PREFIX_PARTS: [&str; 4] = ["lib", "lib64", "libexec", "include"];

/// What every command may read.
#[derive(Debug, Clone)]
pub struct SystemDirectories {
    pub(crate) rules: Vec<Rule>,
}

impl SystemDirectories {
    /// The directories of the system, those of the search path `path` with their libraries, and `more`, such as the home
    /// of a toolchain.
    #[must_use]
    pub fn new(path: &str, more: &[PathBuf]) -> Self {
        let mut rules: Vec<Rule> = Vec::new();
        let mut add = |path: &Path, access| {
            let Some(text) = path.to_str().filter(|text| text.starts_with('/')) else { return };
            let is_covered = |rule: &Rule| path.starts_with(&rule.path) && rule.access == access;
            if !rules.iter().any(is_covered) {
                rules.push(Rule { path: text.to_owned(), access });
            }
        };
        for path in DIRECTORIES.iter().chain(SETTINGS) {
            add(Path::new(path), Access::Read);
        }
        for device in DEVICES {
            add(Path::new(device), Access::Device);
        }
        add(Path::new("/proc"), Access::Read);
        for directory in path.split(':').filter(|directory| directory.starts_with('/')) {
            for directory in search_directories(Path::new(directory)) {
                add(&directory, Access::Read);
            }
        }
        for directory in more {
            add(directory, Access::Read);
        }
        Self { rules }
    }

    /// The paths, for reports.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.path.as_str())
    }
}

/// A directory of the search path, its real path, and the libraries beside it.
fn search_directories(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    if let Ok(real) = std::fs::canonicalize(directory) {
        if let Some(prefix) = real.parent().filter(|_| real.ends_with("bin")) {
            found.extend(PREFIX_PARTS.iter().map(|part| prefix.join(part)));
        }
        found.push(real);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_path_brings_its_libraries_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("bin")).unwrap();
        let bin = home.path().join("bin");
        let system = SystemDirectories::new(&format!("relative:{}:/usr/bin", bin.display()), &[]);
        let home = std::fs::canonicalize(home.path()).unwrap();
        let paths: Vec<&str> = system.paths().collect();
        assert!(
            paths.contains(&bin.to_str().unwrap()) && paths.contains(&home.join("lib").to_str().unwrap())
        );
        assert!(!paths.contains(&home.to_str().unwrap()) && !paths.contains(&"relative"));
        // Below /usr already.
        assert!(!paths.contains(&"/usr/bin"));
    }

    #[test]
    fn password_hashes_and_keys_are_not_readable() {
        let system = SystemDirectories::new("/usr/bin", &[]);
        for secret in
            ["/etc/shadow", "/etc/ssl/private/key.pem", "/etc/ssh/ssh_host_rsa_key", "/home/user/.ssh"]
        {
            assert!(!system.paths().any(|path| Path::new(secret).starts_with(path)), "{secret}");
        }
    }
}
