//! The example that embeds the daemon in another program: built with the tests, run as a user would run it.

use std::path::Path;

use testkit::run;

use crate::support::BIN;

#[test]
fn same_code_runs_agents_in_process_and_over_http() {
    let folder = Path::new(BIN).parent().expect("a binary is in a directory");
    let embed = folder.join("examples").join("embed");
    assert!(
        embed.exists(),
        "missing: build it with `cargo test -p nexus3` or `cargo build -p nexus3 --example embed`"
    );
    let home = tempfile::TempDir::new().expect("a temporary directory can be created");
    let finished = run(embed.to_str().expect("the path is UTF-8"), &[], &[], home.path());
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let cwd = std::env::current_dir().expect("there is a working directory");
    let line = |helper: &str| format!("{helper} responded \"Hello!\"; it may read {}\n", cwd.display());
    let expected = format!("in process: {}over HTTP:  {}", line("helper"), line("helper-2"));
    assert_eq!(finished.stdout, expected);
}
