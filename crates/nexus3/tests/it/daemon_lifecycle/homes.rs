//! The home directory: made, kept private, or refused.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};

use testkit::{TestDaemon, run};

use crate::support::BIN;
use crate::support::program::Program;

#[test]
fn a_home_that_is_not_there_is_made_for_its_user_alone() {
    let outer = tempfile::tempdir().unwrap();
    let home = outer.path().join("deep").join("home");
    let daemon = TestDaemon::builder(BIN).home(outer.path().join("first")).env("NEXUS3_HOME", &home).start();
    assert!(!home.exists(), "the flag wins over the variable");
    drop(daemon);
    let mut daemon = Program::start(&["serve", "0"], &[], &home, b"");
    daemon.wait_line("Server: http://");
    for directory in [home.clone(), home.join("logs")] {
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700, "{}", directory.display());
    }
}

#[test]
fn the_home_is_below_the_users_own_when_nobody_says_otherwise() {
    let user = tempfile::tempdir().unwrap();
    let env = [("NEXUS3_HOME", ""), ("HOME", user.path().to_str().unwrap())];
    let mut daemon = Program::start(&["serve", "0"], &env, user.path(), b"");
    let token = daemon.wait_line("Token file: ");
    daemon.wait_line("Server: http://");
    assert!(token.starts_with(user.path().join(".nexus3").to_str().unwrap()), "{token}");
    assert_eq!(fs::metadata(user.path().join(".nexus3")).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn the_store_is_in_the_home_and_for_its_user_alone() {
    let daemon = TestDaemon::builder(BIN).start();
    let store = daemon.home().join("nexus3.db");
    let told = format!("Store: {} (0 agents)\n", store.display());
    assert!(daemon.stdout().contains(&told), "{}", daemon.stdout());
    let names: Vec<_> = fs::read_dir(daemon.home()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files: Vec<_> = names.iter().filter(|path| path.to_string_lossy().contains("nexus3.db")).collect();
    assert!(files.contains(&&store) && files.len() > 1, "{names:?}");
    for file in files {
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o7777, 0o600, "{}", file.display());
    }
}

#[test]
fn an_open_home_is_closed_with_a_warning() {
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
fn a_home_that_is_no_directory_is_refused() {
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
fn logs_that_cannot_be_kept_are_told_before_anything_else_is_done() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("logs"), "").unwrap();
    let failed = run(BIN, &["serve", "0"], &[], home.path());
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{}", failed.stderr);
    assert!(failed.stderr.contains("cannot create the log directory"), "{}", failed.stderr);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "and there is no token");
}

#[test]
fn without_any_home_there_is_nothing_to_start_from() {
    let outer = tempfile::tempdir().unwrap();
    let failed = run("env", &["-i", BIN, "serve", "0"], &[], outer.path());
    assert_eq!(failed.code, 2, "{}", failed.stderr);
    assert!(failed.stderr.contains("set HOME or NEXUS3_HOME, or pass --home DIR"), "{}", failed.stderr);
}

#[test]
fn homes_do_not_mix() {
    let first = TestDaemon::builder(BIN).start();
    let second = TestDaemon::builder(BIN).start();
    let second_port = second.port().to_string();
    let refused = run(BIN, &["rpc", "list", "-p", &second_port], &[], first.home());
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(refused.stderr.contains("Authorization header required"), "{}", refused.stderr);
}
