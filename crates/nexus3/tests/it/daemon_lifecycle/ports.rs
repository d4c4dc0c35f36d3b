//! Ports: free ports, and ports that another process uses.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::json;
use testkit::{FailedStart, TestDaemon, run};

use super::token_path;
use crate::support::BIN;
use crate::support::program::Program;

fn start_on(port: u16, home: &std::path::Path) -> FailedStart {
    TestDaemon::builder(BIN).port(port).home(home).try_start().expect_err("the port is taken")
}

#[test]
fn port_zero_takes_any_free_port() {
    let first = TestDaemon::builder(BIN).start();
    let second = TestDaemon::builder(BIN).start();
    assert_ne!(first.port(), second.port());
    for daemon in [first, second] {
        assert!(daemon.stdout().contains(&format!("Server: http://127.0.0.1:{}\n", daemon.port())));
        assert_eq!(daemon.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
    }
}

#[test]
fn second_daemon_on_a_port_fails_without_harming_the_first() {
    for arguments in [&[][..], &["--no-auth"][..]] {
        let mut builder = TestDaemon::builder(BIN);
        for argument in arguments {
            builder = builder.arg(argument);
        }
        let first = builder.start();
        let token = fs::read_to_string(token_path(&first)).ok();
        let failed = start_on(first.port(), first.home());
        assert_eq!(failed.status.code(), Some(3), "{failed}");
        assert!(failed.stderr.contains("another nexus3 is already serving there"), "{failed}");
        assert!(failed.stderr.contains(&format!("nexus3 rpc shutdown -p {}", first.port())), "{failed}");
        assert_eq!(failed.stdout, "");
        assert_eq!(
            fs::read_to_string(token_path(&first)).ok(),
            token,
            "the first daemon's token is unchanged"
        );
        assert_eq!(first.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
    }
}

/// Starts a server of another program that handles each connection with `handle`, and returns its port.
fn foreign_server(handle: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    // Detached: the thread ends with the test process.
    thread::spawn(move || listener.incoming().flatten().for_each(handle));
    port
}

fn assert_port_in_use(port: u16) {
    let home = tempfile::tempdir().unwrap();
    let failed = start_on(port, home.path());
    assert_eq!(failed.status.code(), Some(4), "{failed}");
    let text = format!("cannot listen on 127.0.0.1:{port}: another program is using it");
    assert!(failed.stderr.contains(&text), "{failed}");
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "logs"), "no token: {left:?}");
}

#[test]
fn non_http_server_is_distinguished_from_nexus3() {
    assert_port_in_use(foreign_server(|mut stream| {
        drop(stream.write_all(b"220 mail.example.org ESMTP\r\n"));
    }));
}

#[test]
fn http_server_is_distinguished_from_nexus3() {
    assert_port_in_use(foreign_server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope");
    }));
}

#[test]
fn server_that_hangs_up_is_distinguished_from_nexus3() {
    assert_port_in_use(foreign_server(drop));
}

#[test]
fn silent_server_does_not_block_the_start() {
    // The thread owns the connections, so they stay open.
    let connections = std::sync::Mutex::new(Vec::new());
    assert_port_in_use(foreign_server(move |stream| connections.lock().unwrap().push(stream)));
}

#[test]
fn port_is_free_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let first = TestDaemon::builder(BIN).home(home.path()).start();
    let mut connection = first.connection();
    connection.send(&first.post_bytes("/", &[], br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#));
    connection.read_response();
    first.signal("SIGKILL");
    first.wait_exit();
    let second = TestDaemon::builder(BIN).home(home.path()).port(first.port()).start();
    assert_eq!(second.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
}

#[test]
fn serve_flag_equals_the_serve_command() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["--serve", "0"][..], &["--serve=0"], &["serve", "0"], &["serve", "-p", "0"]] {
        let mut daemon = Program::start(arguments, &[], home.path(), b"");
        let address = daemon.wait_line("Server: http://");
        let port = address.strip_prefix("127.0.0.1:").unwrap();
        let listed = run(BIN, &["rpc", "list", "-p", port], &[], home.path());
        assert_eq!(
            (listed.code, listed.stdout.trim()),
            (0, "{\n  \"agents\": [],\n  \"total\": 0\n}"),
            "{}",
            listed.stderr
        );
        daemon.signal(rustix::process::Signal::TERM);
        assert_eq!(daemon.finish().code, 0);
    }
}

#[test]
fn invalid_port_is_wrong_usage() {
    let home = tempfile::tempdir().unwrap();
    for port in ["65536", "-1", "http", "", "80 80"] {
        let failed = run(BIN, &["serve", "--port", port], &[], home.path());
        assert_eq!(failed.code, 2, "{port:?}: {}", failed.stderr);
        assert_eq!(failed.stdout, "");
    }
}
