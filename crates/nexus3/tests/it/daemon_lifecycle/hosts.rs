//! Listen addresses: only loopback.

use std::fs;
use std::net::TcpListener;

use rustix::process::Signal;
use testkit::run;

use crate::support::BIN;
use crate::support::program::Program;

#[test]
fn only_loopback_can_be_bound() {
    let home = tempfile::tempdir().unwrap();
    for host in ["0.0.0.0", "::", "192.168.0.1", "127.0.0.2", "example.org", "", "127.0.0.1:80"] {
        let failed = run(BIN, &["serve", "0", "--host", host], &[], home.path());
        assert_eq!(failed.code, 2, "{host:?}: {}", failed.stderr);
        assert!(failed.stderr.contains("only loopback can be bound"), "{host:?}: {}", failed.stderr);
        assert_eq!(failed.stdout, "", "{host:?}");
    }
    let by_variable = run(BIN, &["serve", "0"], &[("NEXUS3_HOST", "0.0.0.0")], home.path());
    assert_eq!(by_variable.code, 2, "{}", by_variable.stderr);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "no file was created");
}

#[test]
fn localhost_binds_loopback() {
    let home = tempfile::tempdir().unwrap();
    let mut daemon = Program::start(&["serve", "0", "--host", "localhost"], &[], home.path(), b"");
    assert!(daemon.wait_line("Server: http://").starts_with("127.0.0.1:"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.finish().code, 0);
}

#[test]
fn ipv6_loopback_works_where_available() {
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut daemon = Program::start(&["serve", "0", "--host", "::1"], &[], home.path(), b"");
    let address = daemon.wait_line("Server: http://");
    let port = address.strip_prefix("[::1]:").unwrap();
    let token = fs::read_to_string(home.path().join(format!("rpc-{port}.token"))).unwrap();
    let authorization = format!("Authorization: Bearer {token}");
    let url = format!("http://[::1]:{port}/");
    let body = r#"{"jsonrpc":"2.0","method":"list_agents","id":3}"#;
    let response = run("curl", &["-sg", &url, "-H", &authorization, "-d", body], &[], home.path());
    assert_eq!(
        response.stdout, r#"{"jsonrpc":"2.0","id":3,"result":{"agents":[],"total":0}}"#,
        "{}",
        response.stderr
    );
    let port_taken = run(BIN, &["serve", port, "--host", "::1"], &[], home.path());
    assert_eq!(port_taken.code, 3, "{}", port_taken.stderr);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.finish().code, 0);
}
