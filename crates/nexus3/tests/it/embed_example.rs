//! The example that runs agents inside another program: built with the tests, run as a user would.

use std::path::Path;

use testkit::run;

use crate::support::BIN;

#[test]
fn the_same_code_runs_agents_in_the_process_and_over_http() {
    let folder = Path::new(BIN).parent().expect("a binary is in a folder");
    let embed = folder.join("examples").join("embed");
    assert!(
        embed.exists(),
        "`cargo test -p nexus3` builds it, and so does `cargo build -p nexus3 --example embed`"
    );
    let home = tempfile::TempDir::new().expect("a folder can be made");
    let finished = run(embed.to_str().expect("the path is text"), &[], &[], home.path());
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let cwd = std::env::current_dir().expect("there is a working directory");
    let said = |helper: &str| format!("{helper} responded \"Hello!\"; it may read {}\n", cwd.display());
    let expected = format!("in process: {}over HTTP:  {}", said("helper"), said("helper-2"));
    assert_eq!(finished.stdout, expected);
}
