//! The daemon's home directory: finds it and makes it private. Also looks up environment variables.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nexus3_protocol::discovery::HOME_NAME;

use crate::Failure;

/// Mode bit of directories that several users share, like /tmp.
const STICKY_BIT: u32 = 0o1000;

/// The process environment, read once in `main`.
pub(crate) type Environment = [(OsString, OsString)];

/// Returns a variable's text; an empty value counts as not set.
pub(crate) fn environment_variable(environment: &Environment, name: &str) -> Result<Option<String>, Failure> {
    let value = environment.iter().find(|(other, _)| other == name).map(|(_, value)| value);
    match value.map(|value| value.to_str()) {
        None | Some(Some("")) => Ok(None),
        Some(Some(text)) => Ok(Some(text.to_owned())),
        Some(None) => Err(Failure::Usage(format!("invalid environment variable {name}: it is not UTF-8"))),
    }
}

/// Returns the user's home directory, for `~` in paths.
pub(crate) fn user_home(environment: &Environment) -> Option<PathBuf> {
    let value = environment.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value);
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Locates nexus3's home: `--home`, else `NEXUS3_HOME`, else `~/.nexus3`.
pub(crate) fn locate(flag: Option<&Path>, environment: &Environment) -> Result<PathBuf, Failure> {
    if let Some(path) = flag {
        return Ok(path.to_owned());
    }
    let find = |name: &str| {
        let value = environment.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        value.filter(|value| !value.is_empty()).map(PathBuf::from)
    };
    find("NEXUS3_HOME").or_else(|| Some(find("HOME")?.join(HOME_NAME))).ok_or_else(|| {
        Failure::Usage(
            "no home directory: HOME is not set; set HOME or NEXUS3_HOME, or pass --home DIR".to_owned(),
        )
    })
}

/// Result of `prepare`, for the log; `mode` is the previous mode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Prepared {
    Unchanged,
    Restricted { mode: u32 },
}

/// Makes the home private: creates it with mode 0700, restricts an existing one, rejects one of another user. A
/// directory with foreign files is rejected instead of restricted, since other users may need them.
pub(crate) fn prepare(home: &Path) -> Result<Prepared, Failure> {
    let failure = |why: String| Failure::Run(format!("cannot use {} as home: {why}", home.display()));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home)
        .map_err(|fault| failure(format!("it cannot be created: {fault}")))?;
    let metadata = std::fs::metadata(home).map_err(|fault| failure(fault.to_string()))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(failure(
            "it belongs to another user; choose another directory with --home DIR".to_owned(),
        ));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(Prepared::Unchanged);
    }
    if metadata.mode() & STICKY_BIT != 0 || !is_nexus_home(home) {
        // Directories right below the root belong to the system: never suggest to restrict them.
        let is_system_directory = home.parent().is_none_or(|parent| parent == Path::new("/"));
        let hint = match is_system_directory {
            true => String::new(),
            false => format!(", or make it private: chmod 700 {}", home.display()),
        };
        return Err(failure(format!(
            "other users can access it (mode {mode:o}), and it is not used by nexus3 alone; choose a directory \
             of its own{hint}"
        )));
    }
    std::fs::set_permissions(home, Permissions::from_mode(0o700)).map_err(|fault| {
        failure(format!("other users can access it (mode {mode:o}), and chmod 700 failed: {fault}"))
    })?;
    Ok(Prepared::Restricted { mode })
}

/// Whether a directory is a nexus3 home or may become one: a daemon has used it, or it holds no foreign files.
fn is_nexus_home(home: &Path) -> bool {
    // Users, `models pull` and a failed start create these before there is a store.
    const KNOWN_NAMES: [&str; 4] = ["config.toml", "NEXUS.md", "logs", "models"];
    if home.file_name().is_some_and(|name| name == HOME_NAME) || home.join("nexus3.db").exists() {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(home) else { return false };
    let is_known = |name: &OsStr| KNOWN_NAMES.iter().any(|known| name == *known);
    entries.flatten().all(|entry| is_known(&entry.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn home_flag_overrides_variable_and_default() {
        let both = environment(&[("HOME", "/h"), ("NEXUS3_HOME", "/n")]);
        assert_eq!(locate(Some(Path::new("/f")), &both).unwrap(), Path::new("/f"));
        assert_eq!(locate(None, &both).unwrap(), Path::new("/n"));
        assert_eq!(
            locate(None, &environment(&[("HOME", "/h"), ("NEXUS3_HOME", "")])).unwrap(),
            Path::new("/h/.nexus3")
        );
        assert_eq!(locate(None, &[]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn prepare_creates_home_and_restricts_its_mode() {
        let outer = tempfile::tempdir().unwrap();
        let home = outer.path().join("a/b");
        assert_eq!(prepare(&home).unwrap(), Prepared::Unchanged);
        assert_eq!(std::fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(prepare(&home).unwrap(), Prepared::Restricted { mode: 0o755 });
        assert_eq!(std::fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn directory_with_foreign_files_is_rejected_unchanged() {
        let outer = tempfile::tempdir().unwrap();
        let home = outer.path();
        let set_mode = |mode| std::fs::set_permissions(home, Permissions::from_mode(mode)).unwrap();
        set_mode(0o1777);
        assert!(prepare(home).unwrap_err().to_string().contains("chmod 700"), "shared like /tmp");
        assert!(!prepare(Path::new("/")).unwrap_err().to_string().contains("chmod"));
        std::fs::write(home.join("config.toml"), "").unwrap();
        std::fs::write(home.join("foreign"), "").unwrap();
        set_mode(0o755);
        assert!(prepare(home).unwrap_err().to_string().contains("not used by nexus3 alone"));
        assert_eq!(std::fs::metadata(home).unwrap().mode() & 0o777, 0o755);
        set_mode(0o700);
        assert_eq!(prepare(home).unwrap(), Prepared::Unchanged, "already private");
        std::fs::write(home.join("nexus3.db"), "").unwrap();
        set_mode(0o755);
        assert_eq!(prepare(home).unwrap(), Prepared::Restricted { mode: 0o755 }, "it holds a store");
    }

    #[test]
    fn a_file_as_home_is_rejected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(prepare(file.path()).unwrap_err().to_string().contains("cannot be created"));
    }
}
