//! DNS rebinding: a name whose address changes between the check and the connection. Once with a scripted resolver, and
//! once with the resolver of the system and a DNS server of the test, in namespaces of its own.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use agent::ToolOutcome;
use testkit::{HttpPeer, PeerAction, http_response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tools::NetworkOptions;

use super::{Client, addresses, grant};
use crate::fixture::Fixture;

#[tokio::test]
async fn threat_96_a_name_that_changes_is_resolved_once() {
    let peer = HttpPeer::with_actions(vec![PeerAction::Write(http_response("200 OK", "", "x"))]);
    let client = Client::with_resolver(&["flips.test"], Default::default(), |_, lookup| {
        addresses(if lookup.is_multiple_of(2) { &["127.0.0.1"] } else { &["192.0.2.1"] })
    });
    let url = format!("http://flips.test:{}/", peer.port());
    for round in 0..1_000 {
        let outcome = client.get(&url).await;
        let is_allowed = round % 2 == 0;
        assert_eq!(matches!(outcome, ToolOutcome::Done(_)), is_allowed, "{round}: {outcome:?}");
        assert_eq!(matches!(outcome, ToolOutcome::Denied(_)), !is_allowed, "{round}: {outcome:?}");
    }
    assert_eq!(client.lookups.lock().unwrap().len(), 1_000);
    assert_eq!(peer.log().connections, 500);
}

const ROUNDS: usize = 100;

/// Set in the process that runs in namespaces of its own.
const NAMESPACE_VARIABLE: &str = "NEXUS3_TEST_NAMESPACE";

/// A public address, which the loopback device of the namespace has.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

const PORT: u16 = 8080;

#[test]
fn threat_96_rebinding_rounds_against_a_dns_server() {
    if is_in_namespace() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(rebinding_rounds());
    }
    let directory = tempfile::tempdir().unwrap();
    let files =
        [("resolv.conf", "nameserver 127.0.0.1\noptions attempts:1\n"), ("nsswitch.conf", "hosts: dns\n")];
    let paths = files.map(|(name, text)| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    });
    let script = "ip link set lo up && ip addr add 93.184.216.34/32 dev lo && mount --bind \"$1\" /etc/resolv.conf \
                  && mount --bind \"$2\" /etc/nsswitch.conf || exit 77; exec \"$3\" --exact --nocapture \"$4\"";
    let test = "network::rebinding::threat_96_rebinding_rounds_against_a_dns_server";
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--net", "sh", "-c", script, "sh"]);
    command.args(&paths).arg(program).arg(test).env(NAMESPACE_VARIABLE, "1");
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() == Some(77) || output.stdout.is_empty() => {
            println!(
                "not run: namespaces are not available here: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(output) => {
            panic!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        }
        Err(fault) => println!("not run: namespaces are not available here: {fault}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "the test starts itself again in a namespace")]
fn is_in_namespace() -> bool {
    std::env::var_os(NAMESPACE_VARIABLE).is_some()
}

async fn rebinding_rounds() {
    start_dns_server();
    let canary = start_server(Ipv4Addr::LOCALHOST).await;
    let public = start_server(PUBLIC).await;
    let fixture = Fixture::with_network("/nowhere", grant(&["*"]), NetworkOptions::default());
    for round in 0..ROUNDS {
        let path = if round % 5 == 0 { "redirect" } else { "page" };
        let url = format!("http://{round}.rebind.example:{PORT}/{path}");
        let outcome = fixture.call("http.request", &serde_json::json!({ "url": url })).await;
        let is_control = round % 5 == 4;
        assert_eq!(matches!(outcome, ToolOutcome::Done(_)), is_control, "{round}: {outcome:?}");
        assert_eq!(matches!(outcome, ToolOutcome::Denied(_)), !is_control, "{round}: {outcome:?}");
    }
    assert_eq!(canary.load(Ordering::SeqCst), 0);
    // The names that change after the first lookup, and those that do not change.
    assert_eq!(public.load(Ordering::SeqCst), 2 * ROUNDS / 5);
}

/// Starts a web server that counts its connections and redirects `/redirect` to itself.
async fn start_server(address: Ipv4Addr) -> Arc<AtomicUsize> {
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    let listener = TcpListener::bind((address, PORT)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut head = [0; 1024];
            let length = stream.read(&mut head).await.unwrap_or(0);
            let response = if head[..length].starts_with(b"GET /redirect") {
                http_response("302 Found", "Location: /page\r\n", "")
            } else {
                http_response("200 OK", "", "public")
            };
            let _ = stream.write_all(&response).await;
        }
    });
    connections
}

/// Starts a DNS server whose answers depend on the number of the round, which is the first label of a name, and on how
/// often the name was asked for. Ends with the process.
fn start_dns_server() {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    thread::spawn(move || {
        let mut asked: HashMap<usize, usize> = HashMap::new();
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let Some((round, kind, question)) = parse_question(&query[..length]) else { continue };
            let count = asked.entry(round).or_default();
            let records = answers(round, kind, *count);
            if kind == KIND_A {
                *count += 1;
            }
            let _ = socket.send_to(&response(&query[..2], question, kind, &records), from);
        }
    });
}

const KIND_A: u16 = 1;
const KIND_AAAA: u16 = 28;

/// The addresses of a name: public first and private later, the reverse, both, one of each family, always public.
fn answers(round: usize, kind: u16, count: usize) -> Vec<Vec<u8>> {
    let v4 = |address: Ipv4Addr| address.octets().to_vec();
    let (public, private) = (v4(PUBLIC), v4(Ipv4Addr::LOCALHOST));
    match (round % 5, kind) {
        (3, KIND_AAAA) => vec![Ipv6Addr::LOCALHOST.octets().to_vec()],
        (_, KIND_AAAA) => Vec::new(),
        (0, _) => vec![if count == 0 { public } else { private }],
        (1, _) => vec![if count == 0 { private } else { public }],
        (2, _) => vec![public, private],
        _ => vec![public],
    }
}

/// The number in the first label, the kind of record, and the bytes of the question.
fn parse_question(query: &[u8]) -> Option<(usize, u16, &[u8])> {
    let name = query.get(12..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    let question = name.get(..end + 5)?;
    let label = name.get(1..1 + usize::from(*name.first()?))?;
    let round = std::str::from_utf8(label).ok()?.parse().ok()?;
    Some((round, u16::from_be_bytes([question[end + 1], question[end + 2]]), question))
}

fn response(id: &[u8], question: &[u8], kind: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let count = u8::try_from(records.len()).unwrap();
    let mut bytes = [id, &[0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
    for record in records {
        // The name of the question, class IN, a lifetime of 0.
        bytes.extend([0xc0, 0x0c, 0, u8::try_from(kind).unwrap(), 0, 1, 0, 0, 0, 0]);
        bytes.extend([0, u8::try_from(record.len()).unwrap()]);
        bytes.extend(record);
    }
    bytes
}
