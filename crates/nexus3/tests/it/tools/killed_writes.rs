//! A process that is killed while it writes a file: the file is the old one or the new one, and what the process left
//! behind is removed by the next write.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::BIN;

/// Kills per tool.
const KILLS: usize = 40;

/// The file in one of two states.
fn content(letter: char) -> String {
    format!("{letter}\n{}", "line\n".repeat(15_000))
}

/// The call that brings the file from one state to the other.
fn call(tool: &str, from: char, to: char) -> Value {
    match tool {
        "fs.write_file" => json!({ "path": "file", "content": content(to) }),
        "fs.edit" => json!({ "path": "file", "old": format!("{from}\n"), "new": format!("{to}\n") }),
        _ => json!({ "patch": format!("--- file\n+++ file\n@@ -1,2 +1,2 @@\n-{from}\n+{to}\n line\n") }),
    }
}

fn temporary_files(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with(".nexus3-")).collect()
}

fn command(tool: &str, arguments: &Value, home: &Path, directory: &Path) -> Command {
    let mut command = Command::new(BIN);
    command.args(["run", tool, "-a", &arguments.to_string()]).current_dir(directory).env_clear();
    command.env("NEXUS3_HOME", home).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn threat_73_killed_write_leaves_the_old_or_the_new_file() {
    let (home, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let directory = directory.path();
    let file = directory.join("file");
    let mut met = 0;
    for tool in ["fs.write_file", "fs.edit", "fs.patch"] {
        fs::write(&file, content('a')).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        for kill in 0..KILLS {
            let (from, to) = if fs::read(&file).unwrap().starts_with(b"a") { ('a', 'b') } else { ('b', 'a') };
            let before = temporary_files(directory);
            let mut process = command(tool, &call(tool, from, to), home.path(), directory).spawn().unwrap();
            // From the moment at which the write begins, a little later each time.
            let mut looks = 0;
            while looks <= kill && process.try_wait().unwrap().is_none() {
                looks += usize::from(temporary_files(directory).iter().any(|name| !before.contains(name)));
            }
            process.kill().unwrap();
            met += usize::from(process.wait().unwrap().code().is_none());
            let is_whole = [from, to].map(content).contains(&fs::read_to_string(&file).unwrap());
            assert!(is_whole, "{tool} after {kill} looks");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "{tool}");
        }
    }
    eprintln!("{met} of {} processes were killed while they wrote", 3 * KILLS);
    assert!(met > 0);
    let last = json!({ "path": "other", "content": "x" });
    assert!(command("fs.write_file", &last, home.path(), directory).status().unwrap().success());
    assert_eq!(temporary_files(directory), [""; 0]);
}
