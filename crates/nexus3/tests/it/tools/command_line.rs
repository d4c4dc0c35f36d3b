//! `nexus3 run`: arguments as a person writes them, and tools that need a daemon.

use std::path::Path;

use testkit::run;

use crate::support::BIN;

fn run_tool(arguments: &[&str], home: &Path) -> (i32, String) {
    let arguments: Vec<&str> = ["run"].into_iter().chain(arguments.iter().copied()).collect();
    let output = run(BIN, &arguments, &[], home);
    (output.code, format!("{}{}", output.stdout, output.stderr))
}

#[test]
fn values_are_text_where_the_tool_takes_text() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["echo", "text=123"][..], "123\n"),
        (&["echo", "text=null"], "null\n"),
        (&["echo", "text={\"a\": 1}"], "{\"a\": 1}\n"),
        (&["echo", "text=\"quoted\""], "\"quoted\"\n"),
        (
            &["cmd.exec", "command=cat", "stdin=7"],
            "{\"exit_code\":0,\"stderr\":\"\",\"stdout\":\"7\",\"success\":true}\n",
        ),
        (&["regex.replace", "text=1 1", "pattern=1", "replacement=2", "global=false"], "2 1\n"),
        (&["json.query", "json=[1, 2]", "path=[1]"], "2\n"),
    ] {
        assert_eq!(run_tool(arguments, home.path()), (0, expected.to_owned()), "{arguments:?}");
    }
}

#[test]
fn background_processes_need_a_daemon() {
    let home = tempfile::tempdir().unwrap();
    let (code, text) = run_tool(&["process.start", "command=true"], home.path());
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("cannot run process.start: background processes belong to agents"), "{text}");
}
