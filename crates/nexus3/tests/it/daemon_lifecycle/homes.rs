//! The home directory: created, made private, or rejected.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};

use testkit::{TestDaemon, run};

use crate::support::BIN;
use crate::support::program::Program;

#[test]
fn missing_home_is_created_private() {
    let outer = tempfile::tempdir().unwrap();
    let home = outer.path().join("deep").join("home");
    let daemon = TestDaemon::builder(BIN).home(outer.path().join("first")).env("NEXUS3_HOME", &home).start();
    assert!(!home.exists(), "the flag overrides the variable");
    drop(daemon);
    let mut daemon = Program::start(&["serve", "0"], &[], &home, b"");
    daemon.wait_line("Server: http://");
    for directory in [home.clone(), home.join("logs")] {
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700, "{}", directory.display());
    }
}

#[test]
fn default_home_is_below_the_users_home() {
    let user = tempfile::tempdir().unwrap();
    let env = [("NEXUS3_HOME", ""), ("HOME", user.path().to_str().unwrap())];
    let mut daemon = Program::start(&["serve", "0"], &env, user.path(), b"");
    let token = daemon.wait_line("Token file: ");
    daemon.wait_line("Server: http://");
    assert!(token.starts_with(user.path().join(".nexus3").to_str().unwrap()), "{token}");
    assert_eq!(fs::metadata(user.path().join(".nexus3")).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn store_files_are_in_the_home_and_private() {
    let daemon = TestDaemon::builder(BIN).start();
    let store = daemon.home().join("nexus3.db");
    let line = format!("Store: {} (0 agents)\n", store.display());
    assert!(daemon.stdout().contains(&line), "{}", daemon.stdout());
    let names: Vec<_> = fs::read_dir(daemon.home()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files: Vec<_> = names.iter().filter(|path| path.to_string_lossy().contains("nexus3.db")).collect();
    assert!(files.contains(&&store) && files.len() > 1, "{names:?}");
    for file in files {
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o7777, 0o600, "{}", file.display());
    }
}

#[test]
fn shared_home_is_made_private_with_a_warning() {
    for mode in [0o755, 0o750, 0o777, 0o701] {
        let outer = tempfile::tempdir().unwrap();
        let home = outer.path().join("home");
        DirBuilder::new().mode(0o700).create(&home).unwrap();
        fs::set_permissions(&home, Permissions::from_mode(mode)).unwrap();
        let daemon = TestDaemon::builder(BIN).home(&home).start();
        assert_eq!(fs::metadata(&home).unwrap().mode() & 0o7777, 0o700);
        daemon.wait_stderr(&format!(
            "other users could access {} (mode {mode:o}); changed its mode to 0700",
            home.display()
        ));
    }
}

#[test]
fn home_that_is_no_directory_is_rejected() {
    let outer = tempfile::tempdir().unwrap();
    let file = outer.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("home");
    for home in [&file, &below] {
        let failed = run(BIN, &["serve", "0"], &[], home);
        assert_eq!(failed.code, 2, "{}", failed.stderr);
        let text = format!("cannot read {}: Not a directory", home.join("config.toml").display());
        assert!(failed.stderr.contains(&text), "{}", failed.stderr);
        assert_eq!(failed.stdout, "");
    }
}

#[test]
fn failing_log_directory_stops_the_start_first() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("logs"), "").unwrap();
    let failed = run(BIN, &["serve", "0"], &[], home.path());
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{}", failed.stderr);
    assert!(failed.stderr.contains("cannot create the log directory"), "{}", failed.stderr);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "no token file");
}

#[test]
fn start_without_any_home_is_rejected() {
    let outer = tempfile::tempdir().unwrap();
    let failed = run("env", &["-i", BIN, "serve", "0"], &[], outer.path());
    assert_eq!(failed.code, 2, "{}", failed.stderr);
    assert!(failed.stderr.contains("set HOME or NEXUS3_HOME, or pass --home DIR"), "{}", failed.stderr);
}

#[test]
fn client_does_not_use_the_token_of_another_home() {
    let first = TestDaemon::builder(BIN).start();
    let second = TestDaemon::builder(BIN).start();
    let second_port = second.port().to_string();
    let failed = run(BIN, &["rpc", "list", "-p", &second_port], &[], first.home());
    assert_eq!(failed.code, 1, "{}", failed.stdout);
    assert!(failed.stderr.contains("Authorization header required"), "{}", failed.stderr);
}
