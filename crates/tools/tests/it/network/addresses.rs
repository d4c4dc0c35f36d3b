//! Addresses that are not public, in every range and spelling, and odd URLs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent::ToolOutcome;
use testkit::TestRng;
use tools::NetworkLimits;

use super::{Canary, Client, addresses, assert_refused};

/// The ranges of row 93 and other reserved ones: first address, length of the prefix.
const V4_RANGES: &[(&str, u32)] = &[
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
    ("255.255.255.255", 32),
];

const V6_RANGES: &[(&str, u32)] = &[
    ("::", 128),
    ("::1", 128),
    ("::", 96),
    ("::ffff:0:0", 96),
    ("64:ff9b::", 96),
    ("64:ff9b:1::", 48),
    ("100::", 64),
    ("2001::", 32),
    ("2001:db8::", 32),
    ("2002::", 16),
    ("3fff::", 20),
    ("fc00::", 7),
    ("fe80::", 10),
    ("fec0::", 10),
    ("ff00::", 8),
];

const RANDOM_PER_RANGE: usize = 16;

/// The first and last address of each range and random ones between.
fn closed_addresses() -> Vec<IpAddr> {
    let mut rng = TestRng::new(93);
    let mut found = Vec::new();
    for (base, bits) in V4_RANGES {
        let (base, host) =
            (base.parse::<Ipv4Addr>().unwrap().to_bits(), u32::MAX.checked_shr(*bits).unwrap_or(0));
        found.extend([base, base | host].map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))));
        for _ in 0..RANDOM_PER_RANGE {
            let random = u32::try_from(rng.below(1 << 32)).unwrap();
            found.push(Ipv4Addr::from_bits(base | (random & host)).into());
        }
    }
    for (base, bits) in V6_RANGES {
        let (base, host) =
            (base.parse::<Ipv6Addr>().unwrap().to_bits(), u128::MAX.checked_shr(*bits).unwrap_or(0));
        found.extend([base, base | host].map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))));
        let word = |rng: &mut TestRng| rng.below(1 << 32) as u128;
        for _ in 0..RANDOM_PER_RANGE {
            let random = (0..4).fold(0, |bits, _| bits << 32 | word(&mut rng));
            found.push(Ipv6Addr::from_bits(base | (random & host)).into());
        }
    }
    // IPv6 addresses that stand for this machine.
    let embedded =
        ["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "2001:0:7f00:1::"];
    found.extend(addresses(&embedded));
    found
}

/// The spellings of an address that some URL parser accepts.
fn spellings(address: IpAddr) -> Vec<String> {
    match address {
        IpAddr::V4(address) => {
            let ([a, b, c, d], bits) = (address.octets(), address.to_bits());
            vec![
                address.to_string(),
                format!("{address}."),
                format!("{bits}"),
                format!("{bits:#x}"),
                format!("{bits:#X}"),
                format!("0{bits:o}"),
                format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
                format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
                format!("{a}.{}", bits & 0xff_ffff),
                format!("{a}.{b}.{}", bits & 0xffff),
                format!("%{:02x}{}", address.to_string().as_bytes()[0], &address.to_string()[1..]),
            ]
        }
        IpAddr::V6(address) => {
            let segments = address.segments();
            let full = segments.map(|segment| format!("{segment:04X}")).join(":");
            let [a, b, c, d, e, f, g, h] = segments;
            let v4 = Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h));
            vec![
                format!("[{address}]"),
                format!("[{full}]"),
                format!("[{a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{f:x}:{v4}]"),
                format!("[{address}%25lo]"),
            ]
        }
    }
}

#[tokio::test]
async fn threat_93_addresses_that_are_not_public_are_never_dialled() {
    let canary = Canary::start();
    let client = Client::new(&["*"]);
    let mut forms = 0;
    for address in closed_addresses() {
        for host in spellings(address) {
            let url = format!("http://{host}:{}/", canary.port());
            assert_refused(&client.get(&url).await, &url);
            forms += 1;
        }
    }
    assert!(forms >= 2_000, "{forms} forms");
    assert_eq!(
        client.lookups.lock().unwrap().as_slice(),
        [] as [&str; 0],
        "no address is looked up as a name"
    );
    canary.assert_untouched();
}

/// With a list that names a public host, these reach neither the canary nor another host.
const ODD_URLS: &[&str] = &[
    "http://0x7f.1:PORT/",
    "http://0x7f.0.0.0x1:PORT/",
    "http://2130706433:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://0177.0.0.01:PORT/",
    "http://00000177.0.0.1:PORT/",
    "http://\u{2460}27.0.0.1:PORT/",
    "http://\u{ff11}27.0.0.1:PORT/",
    "http://127\u{3002}0\u{ff0e}0\u{ff61}1:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://localhost..:PORT/",
    "http://x.localhost:PORT/",
    "http://\u{24db}ocalhost:PORT/",
    "http://localhost.localdomain:PORT/",
    "http://ip6-localhost:PORT/",
    "http://[::1]:PORT/",
    "http://[::1%25lo]:PORT/",
    "http://[::1%lo]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://[::]:PORT/",
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://allowed.example@127.0.0.1:PORT/",
    "http://allowed.example:80@127.0.0.1:PORT/",
    "http://allowed.example%40127.0.0.1:PORT/",
    "http://@127.0.0.1:PORT/",
    "http://:@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT\\@allowed.example/",
    "http://allowed.example\\@127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT\\",
    "http://127.0.0.1:PORT#@allowed.example/",
    "http://127.0.0.1:PORT?@allowed.example/",
    "http://127.0.0.1:PORT/@allowed.example/",
    "http://127.0.0.1\t:PORT/",
    "http://127.0.0.1\n:PORT/",
    "\thttp://127.0.0.1:PORT/",
    " http://127.0.0.1:PORT/",
    "http://127.0.0.1:PORT/ ",
    "http:127.0.0.1:PORT/",
    "http:/127.0.0.1:PORT/",
    "http:///127.0.0.1:PORT/",
    "//127.0.0.1:PORT/",
    "127.0.0.1:PORT",
    "http://allowed.example.evil:PORT/",
    "http://evil-allowed.example:PORT/",
    "http://evil.example/allowed.example",
    "http://allowed.example.127.0.0.1.nip.example:PORT/",
    "http://allowed.example\u{0}.evil:PORT/",
    "http://allowed.example%00.evil:PORT/",
    "http://allowed.example%2eevil:PORT/",
    "http://allowed\u{ad}.example.evil:PORT/",
    "http://xn--:PORT/",
    "http://xn--80ak6aa92e.com:PORT/",
    "http://\u{430}llowed.example:PORT/",
    "http://allowed.example:0/",
    "http://allowed.example:99999/",
    "http://allowed.example:-1/",
    "http://",
    "http://:PORT/",
    "http://..:PORT/",
    "http://a b:PORT/",
    "",
];

#[tokio::test]
async fn threat_94_odd_urls_are_parsed_once_and_refused() {
    let canary = Canary::start();
    let client = Client::new(&["allowed.example"]);
    assert!(ODD_URLS.len() >= 60);
    for url in ODD_URLS {
        let url = url.replace("PORT", &canary.port().to_string());
        assert_refused(&client.get(&url).await, &url.escape_debug().to_string());
    }
    assert_eq!(
        client.lookups.lock().unwrap().as_slice(),
        [] as [&str; 0],
        "only allowed names are looked up"
    );
    canary.assert_untouched();
}

#[tokio::test]
async fn threat_95_other_schemes_and_service_ports_are_refused() {
    let client = Client::new(&["allowed.test", "*", "127.0.0.1", "ssh.test:22"]);
    for scheme in
        ["file", "ftp", "gopher", "data", "unix", "javascript", "ws", "wss", "jar", "dict", "ldap", "blob"]
    {
        for url in [format!("{scheme}://allowed.test/etc/passwd"), format!("{scheme}:text/html,x")] {
            assert_refused(&client.get(&url).await, &url);
        }
    }
    for port in
        [1, 7, 21, 22, 23, 25, 53, 110, 111, 139, 445, 993, 2049, 2375, 3306, 5432, 6379, 9200, 11211, 27017]
    {
        let url = format!("http://allowed.test:{port}/");
        let ToolOutcome::Denied(text) = client.get(&url).await else { panic!("{url}") };
        assert!(text.contains(&format!("add 'allowed.test:{port}' to allowed_hosts")), "{text}");
    }
    let named = client.get("http://ssh.test:22/").await;
    assert!(
        matches!(&named, ToolOutcome::Failed(text) if text.starts_with("Execution failed: connecting to 127.0.0.1:22")
        || text.contains("request failed")),
        "a port that is named is dialled: {named:?}"
    );
}

#[tokio::test]
async fn threat_95_the_daemons_own_port_is_refused_even_if_granted() {
    let canary = Canary::start();
    let port = canary.port();
    let allowed = ["*", "localhost", "127.0.0.1", "127.9.9.9", "::1", "own.test"].map(str::to_owned);
    let ports = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let all: Vec<&str> = allowed.iter().chain(&ports).map(String::as_str).collect();
    let client = Client::new(&all);
    client.fixture.network.set_own_port(port);
    for host in ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "own.test"] {
        let outcome = client.get(&format!("http://{host}:{port}/")).await;
        let expected = "it is this daemon's own port, which no setting allows";
        assert!(
            matches!(&outcome, ToolOutcome::Denied(text) if text.ends_with(expected)),
            "{host}: {outcome:?}"
        );
    }
    canary.assert_untouched();
}

#[tokio::test]
async fn threat_97_one_closed_address_refuses_the_name() {
    let canary = Canary::start();
    let public = "93.184.216.34";
    let answers: &[&[&str]] = &[
        &["0.0.0.0"],
        &["::"],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["169.254.169.254"],
        &[public, "127.0.0.1"],
        &["127.0.0.1", public],
        &["2600::1", "fe80::1"],
        &[public, "100.64.0.1", public],
        &[],
    ];
    for answer in answers {
        let resolved = addresses(answer);
        let client = Client::with_resolver(&["*", "named.example"], NetworkLimits::default(), move |_, _| {
            resolved.clone()
        });
        for name in ["any.example", "named.example"] {
            let outcome = client.get(&format!("http://{name}:{}/", canary.port())).await;
            let is_refused = match &outcome {
                ToolOutcome::Denied(text) => text.contains("it resolves to "),
                ToolOutcome::Failed(text) => text.ends_with("it has no address") && answer.is_empty(),
                _ => false,
            };
            assert!(is_refused, "{name} {answer:?}: {outcome:?}");
        }
    }
    let many: Vec<String> = (1..=65).map(|number| format!("93.184.216.{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let many = addresses(&many);
    let client = Client::with_resolver(&["*"], NetworkLimits::default(), move |_, _| many.clone());
    let outcome = client.get("http://many.example/").await;
    assert!(
        matches!(&outcome, ToolOutcome::Failed(text) if text.ends_with("it has 65 addresses")),
        "{outcome:?}"
    );
    canary.assert_untouched();
}
