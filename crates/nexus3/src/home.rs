//! The daemon's home directory: where it is, and that nobody else can look into it. And what the environment says.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nexus3_protocol::discovery::HOME_NAME;

use crate::Failure;

/// The bit of folders that are shared by everybody, like /tmp.
const STICKY_BIT: u32 = 0o1000;

/// The environment, read once in `main`.
pub(crate) type Environment = [(OsString, OsString)];

/// A variable's text; an empty one counts as not set.
pub(crate) fn environment_variable(environment: &Environment, name: &str) -> Result<Option<String>, Failure> {
    let value = environment.iter().find(|(other, _)| other == name).map(|(_, value)| value);
    match value.map(|value| value.to_str()) {
        None | Some(Some("")) => Ok(None),
        Some(Some(text)) => Ok(Some(text.to_owned())),
        Some(None) => Err(Failure::Usage(format!("the environment variable {name} is not UTF-8"))),
    }
}

/// The user's own folder, for `~` in paths.
pub(crate) fn user_home(environment: &Environment) -> Option<PathBuf> {
    let value = environment.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value);
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where the home is: `--home`, then `NEXUS3_HOME`, then `~/.nexus3`.
pub(crate) fn locate(flag: Option<&Path>, environment: &Environment) -> Result<PathBuf, Failure> {
    if let Some(path) = flag {
        return Ok(path.to_owned());
    }
    let find = |name: &str| {
        let value = environment.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        value.filter(|value| !value.is_empty()).map(PathBuf::from)
    };
    find("NEXUS3_HOME").or_else(|| Some(find("HOME")?.join(HOME_NAME))).ok_or_else(|| {
        Failure::Usage("there is no home directory: set HOME, or NEXUS3_HOME, or use --home DIR".to_owned())
    })
}

/// What was done to make the home private, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Prepared {
    Unchanged,
    Tightened { mode: u32 },
}

/// Makes the home ours alone: created 0700, tightened when it is ours and open, refused when it is not ours. A folder that
/// holds other things is not closed to whoever uses them.
pub(crate) fn prepare(home: &Path) -> Result<Prepared, Failure> {
    let refuse = |why: String| Failure::Run(format!("cannot use {} as home: {why}", home.display()));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home)
        .map_err(|fault| refuse(format!("it cannot be created: {fault}")))?;
    let metadata = std::fs::metadata(home).map_err(|fault| refuse(fault.to_string()))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse("it belongs to another user".to_owned()));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(Prepared::Unchanged);
    }
    if metadata.mode() & STICKY_BIT != 0 || !is_nexus_home(home) {
        // Folders right below the root are the system's.
        let is_systems = home.parent().is_none_or(|parent| parent == Path::new("/"));
        let closing = match is_systems {
            true => String::new(),
            false => format!(", or close it yourself: chmod 700 {}", home.display()),
        };
        return Err(refuse(format!(
            "others can look into it (mode {mode:o}), and it is not nexus3's alone; choose a folder of its own{closing}"
        )));
    }
    std::fs::set_permissions(home, Permissions::from_mode(0o700))
        .map_err(|fault| refuse(format!("others can look into it, and it cannot be closed: {fault}")))?;
    Ok(Prepared::Tightened { mode })
}

/// Whether a folder is a home of ours, or may become one: a daemon has been there, or nothing else is in it.
fn is_nexus_home(home: &Path) -> bool {
    const WRITTEN_BY_USERS: [&str; 4] = ["config.toml", "NEXUS.md", "logs", "models"];
    if home.file_name().is_some_and(|name| name == HOME_NAME) || home.join("nexus3.db").exists() {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(home) else { return false };
    let is_known = |name: &OsStr| WRITTEN_BY_USERS.iter().any(|known| name == *known);
    entries.flatten().all(|entry| is_known(&entry.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_that_over_the_users_home() {
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
    fn an_open_home_is_closed_and_a_missing_one_is_made() {
        let outer = tempfile::tempdir().unwrap();
        let home = outer.path().join("a/b");
        assert_eq!(prepare(&home).unwrap(), Prepared::Unchanged);
        assert_eq!(std::fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(prepare(&home).unwrap(), Prepared::Tightened { mode: 0o755 });
        assert_eq!(std::fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_of_other_things_is_left_open_and_refused() {
        let outer = tempfile::tempdir().unwrap();
        let home = outer.path();
        let open = |mode| std::fs::set_permissions(home, Permissions::from_mode(mode)).unwrap();
        open(0o1777);
        assert!(prepare(home).unwrap_err().to_string().contains("chmod 700"), "one like /tmp");
        assert!(!prepare(Path::new("/")).unwrap_err().to_string().contains("chmod"));
        std::fs::write(home.join("config.toml"), "").unwrap();
        std::fs::write(home.join("theirs"), "").unwrap();
        open(0o755);
        assert!(prepare(home).unwrap_err().to_string().contains("not nexus3's alone"));
        assert_eq!(std::fs::metadata(home).unwrap().mode() & 0o777, 0o755);
        open(0o700);
        assert_eq!(prepare(home).unwrap(), Prepared::Unchanged, "its owner has closed it");
        std::fs::write(home.join("nexus3.db"), "").unwrap();
        open(0o755);
        assert_eq!(prepare(home).unwrap(), Prepared::Tightened { mode: 0o755 }, "a daemon has been here");
    }

    #[test]
    fn a_file_in_the_homes_place_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(prepare(file.path()).unwrap_err().to_string().contains("cannot be created"));
    }
}
