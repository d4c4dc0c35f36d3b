//! Host patterns, sets of them, address classes, and the hosts of presets.

use core::net::IpAddr;

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn patterns_have_one_spelling() {
    let cases = [
        ("Example.COM", Some("example.com")),
        ("example.com.", Some("example.com")),
        ("*.Example.com", Some("*.example.com")),
        ("*", Some("*")),
        ("*:8443", Some("*:8443")),
        ("example.com:22", Some("example.com:22")),
        ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
        ("10.1.2.3", Some("10.1.2.3")),
        ("10.1.2.3:8080", Some("10.1.2.3:8080")),
        ("::1", Some("[::1]")),
        ("[::1]", Some("[::1]")),
        ("[0:0:0:0:0:0:0:1]:8080", Some("[::1]:8080")),
        ("localhost", Some("localhost")),
        ("_dmarc.example.com", Some("_dmarc.example.com")),
    ];
    for (text, expected) in cases {
        assert_eq!(
            HostPattern::parse(text).map(|pattern| pattern.to_string()).as_deref(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn ambiguous_patterns_are_refused() {
    let wrong = [
        "",
        ".",
        "*.",
        "**",
        "a*.com",
        "*.*.com",
        "a..b",
        "http://a.com",
        "a.com/x",
        "a@b",
        "a b",
        "b\u{fc}cher.de",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "1.2.3.4.5",
        "a.1",
        "a:0",
        "a:65536",
        "a:+1",
        "a:",
        ":80",
        "[::1",
        "::1]",
        "[fe80::1%25lo]",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "255.255.255.255",
        "::ffff:127.0.0.1",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "198.18.0.1",
        "192.0.2.1",
    ];
    for text in wrong {
        assert_eq!(HostPattern::parse(text), None, "{text}");
    }
    assert_eq!(HostPattern::parse(&format!("{}.com", "a".repeat(64))), None);
    assert_eq!(HostPattern::parse(&"a.".repeat(127).repeat(2)), None);
}

#[test]
fn sets_contain_their_destinations_only() {
    let cases: [[&[&str]; 4]; 7] = [
        [
            &["example.com"],
            &[],
            &["example.com:80", "example.com:443", "example.com:8080"],
            &[
                "example.com:22",
                "example.com:6379",
                "a.example.com:80",
                "example.com.evil:80",
                "xexample.com:80",
            ],
        ],
        [&["example.com:22"], &[], &["example.com:22"], &["example.com:80", "example.com:443"]],
        [
            &["*.example.com"],
            &[],
            &["a.example.com:80", "a.b.example.com:443"],
            &["example.com:80", "xexample.com:80"],
        ],
        [
            &["*"],
            &[],
            &["a.com:80", "8.8.8.8:443", "[2600::1]:443"],
            &[
                "localhost:80",
                "box:80",
                "x.lan:80",
                "127.0.0.1:80",
                "10.0.0.1:80",
                "169.254.169.254:80",
                "[::1]:80",
            ],
        ],
        [
            &["*", "10.0.0.1"],
            &["8.8.8.8", "a.com"],
            &["b.com:80", "10.0.0.1:80"],
            &["a.com:80", "8.8.8.8:80"],
        ],
        [
            &["*"],
            &["*.evil.com", "b.com:8080"],
            &["evil.com:80", "b.com:80"],
            &["x.evil.com:80", "b.com:8080"],
        ],
        [&["localhost", "*.lan"], &[], &["localhost:3000", "a.lan:80"], &["lan:80", "127.0.0.1:3000"]],
    ];
    for [allowed, denied, inside, outside] in cases {
        let set = HostSet::new(patterns(allowed), patterns(denied));
        for to in inside {
            assert!(set.contains(&destination(to)), "{to} in {set}");
        }
        for to in outside {
            assert!(!set.contains(&destination(to)), "{to} in {set}");
        }
    }
}

#[test]
fn resolved_addresses_are_judged_by_class_and_name() {
    let cases: [(&[&str], &str, &str, bool); 17] = [
        (&["*"], "a.com:80", "93.184.216.34", true),
        (&["*"], "a.com:80", "2600::1", true),
        (&["*"], "a.com:80", "127.0.0.1", false),
        (&["a.com"], "a.com:80", "127.0.0.1", false),
        (&["a.com"], "a.com:80", "10.0.0.1", false),
        (&["a.com", "10.0.0.1"], "a.com:80", "10.0.0.1", true),
        (&["a.com", "10.0.0.1:8080"], "a.com:80", "10.0.0.1", false),
        (&["a.com", "169.254.169.254"], "a.com:80", "169.254.169.254", true),
        (&["a.com"], "a.com:80", "0.0.0.0", false),
        (&["a.com", "127.0.0.1"], "a.com:80", "::ffff:127.0.0.1", false),
        (&["localhost"], "localhost:80", "127.0.0.1", true),
        (&["localhost"], "localhost:80", "::1", true),
        (&["localhost"], "localhost:80", "10.0.0.1", false),
        (&["localhost"], "localhost:80", "93.184.216.34", false),
        (&["box.lan"], "box.lan:80", "192.168.1.9", true),
        (&["box.lan"], "box.lan:80", "169.254.169.254", false),
        (&["10.0.0.1"], "10.0.0.1:80", "10.0.0.1", true),
    ];
    for (allowed, to, resolved, expected) in cases {
        let set = hosts(allowed);
        let checked = set.check_address(&destination(to), address(resolved));
        assert_eq!(checked.is_ok(), expected, "{to} at {resolved} in {set}: {checked:?}");
    }
    let denied = HostSet::new(patterns(&["*"]), patterns(&["93.184.216.34"]));
    assert!(denied.check_address(&destination("a.com:80"), address("93.184.216.34")).is_err());
    assert!(HostSet::everything().check_address(&destination("a.com:80"), address("10.0.0.1")).is_ok());
    assert!(HostSet::everything().check_address(&destination("a.com:80"), address("0.0.0.0")).is_err());
}

#[test]
fn denials_name_the_setting() {
    let text = |set: &HostSet, to: &str| set.check(&destination(to)).unwrap_err().to_string();
    let set = HostSet::new(patterns(&["a.com"]), patterns(&["a.com:8080"]));
    let add = |what| {
        format!(
            "it is not among the allowed hosts (only a.com, but not a.com:8080); add '{what}' to allowed_hosts of \
             the agent or its preset"
        )
    };
    assert_eq!(text(&set, "b.com:80"), add("b.com"));
    assert_eq!(text(&set, "a.com:22"), add("a.com:22"));
    assert_eq!(text(&set, "a.com:8080"), "denied_hosts contains 'a.com:8080'");
    let zero = "0.0.0.0 is an address of a reserved range, which no setting allows";
    assert_eq!(text(&HostSet::everything(), "0.0.0.0:80"), zero);
    let resolved = set.check_address(&destination("a.com:80"), address("10.0.0.1")).unwrap_err().to_string();
    assert!(
        resolved.starts_with("it resolves to 10.0.0.1, an address of a private network; it is not among")
    );
    assert!(resolved.contains("add '10.0.0.1' to allowed_hosts"), "{resolved}");
}

#[test]
fn host_sets_intersect_and_nest() {
    let cases: [(&[&str], &[&str], &str); 8] = [
        (&["*"], &["a.com", "localhost", "10.0.0.1", "8.8.8.8"], "only a.com, 8.8.8.8"),
        (&["*.a.com"], &["*.b.a.com", "a.com", "x.a.com:8080"], "only *.b.a.com, x.a.com:8080"),
        (&["a.com"], &["a.com:22", "a.com:443"], "only a.com:443"),
        (&["a.com:22"], &["a.com:22"], "only a.com:22"),
        (&["*.lan"], &["box.lan", "*"], "only box.lan"),
        (&["*:8443"], &["a.com", "8.8.8.8:8443"], "only a.com:8443, 8.8.8.8:8443"),
        (&["a.com"], &["b.com"], "none"),
        (&["*.com"], &["*"], "only *.com"),
    ];
    for (a, b, expected) in cases {
        let (a, b) = (hosts(a), hosts(b));
        let common = a.intersection(&b);
        assert_eq!(common.to_string(), expected, "{a} and {b}");
        assert_eq!(b.intersection(&a), common);
        assert!(common.is_within(&a) && common.is_within(&b) && common.is_within(&HostSet::everything()));
        assert_eq!(HostSet::everything().intersection(&a), a);
    }
    let without = |denied: &[&str]| HostSet::new(patterns(&["*"]), patterns(denied));
    assert!(without(&["a.com"]).is_within(&without(&[])));
    assert!(!without(&[]).is_within(&without(&["a.com"])));
    assert!(without(&["*.com"]).is_within(&without(&["a.com"])));
    assert!(!without(&["a.com:80"]).is_within(&without(&["a.com"])));
    assert!(hosts(&["b.com"]).is_within(&without(&["a.com"])), "the denied host is not in the set anyway");
    assert!(
        !hosts(&["b.com"]).is_within(&without(&["8.8.8.8"])),
        "the name may resolve to the denied address"
    );
    assert!(!HostSet::everything().is_within(&without(&[])));
    assert!(HostSet::all_except(patterns(&["*"])).is_empty());
}

#[test]
fn presets_grant_requested_hosts_only() {
    let presets = Presets::builtin(&[]);
    let resolve = |name: &str, allowed: Option<&[&str]>, denied: &[&str]| {
        let request = GrantRequest {
            hosts: allowed.map(patterns),
            denied_hosts: patterns(denied),
            ..GrantRequest::default_in(path("/w"))
        };
        presets.find(name).unwrap().resolve(&request).map(|resolved| resolved.grant)
    };
    for name in ["sandboxed", "trusted", "yolo"] {
        let grant = resolve(name, Some(&["*", "localhost"]), &["a.com"]).unwrap();
        assert_eq!(grant.hosts.to_string(), "only *, localhost, but not a.com", "{name}");
    }
    let nowhere = "preset 'worker' connects to no hosts: leave allowed_hosts out, or choose another preset";
    assert_eq!(resolve("worker", Some(&["a.com"]), &[]).unwrap_err().to_string(), nowhere);
    assert!(resolve("worker", Some(&[]), &["a.com"]).unwrap().hosts.is_empty());
}

/// A preset that reads what is private and connects to hosts that no list names could send the one to the other.
#[test]
fn threat_103_no_preset_reads_privately_and_connects_unlisted() {
    for name in ["yolo", "trusted", "sandboxed", "worker"] {
        let presets = Presets::builtin(&[]);
        let grant = presets.find(name).unwrap().resolve(&GrantRequest::default_in(path("/w"))).unwrap().grant;
        assert!(!grant.read.is_empty(), "{name} reads");
        assert!(grant.hosts.is_empty(), "{name} connects to {}", grant.hosts);
    }
}

#[test]
fn custom_presets_narrow_hosts() {
    let mut presets = Presets::builtin(&[]);
    let narrowing = |allowed: &[&str], denied: &[&str]| Narrowing {
        hosts: Some(patterns(allowed)),
        denied_hosts: patterns(denied),
        ..Narrowing::default()
    };
    presets.add("web", "sandboxed", narrowing(&["*", "localhost"], &["*.evil.com"])).unwrap();
    presets.add("docs", "web", narrowing(&["docs.rs", "*.evil.com"], &[])).unwrap();
    let wider = presets.add("wide", "docs", narrowing(&["*"], &[])).unwrap_err();
    assert_eq!(wider.to_string(), "preset 'wide' can only narrow 'docs': allowed_hosts would widen it");
    assert!(presets.add("none", "worker", narrowing(&["docs.rs"], &[])).is_err());
    let request = GrantRequest::default_in(path("/w"));
    let preset = presets.find("docs").unwrap();
    assert_eq!(preset.resolve(&request).unwrap().grant.hosts.to_string(), "only docs.rs");
    let more = GrantRequest { hosts: Some(patterns(&["crates.io"])), ..request };
    assert_eq!(
        preset.check_hosts(&more).unwrap_err().to_string(),
        "allowed_host 'crates.io' is not among the hosts of preset 'docs'; choose from: only docs.rs"
    );
    assert!(preset.resolve(&more).unwrap().grant.hosts.is_empty());
}

/// The first, the last and a middle address of each range that row 93 of the threat table names, and of others.
#[test]
fn address_classes_are_those_of_their_ranges() {
    use AddressClass::{Embedded, LinkLocal, Loopback, Private, Public, Reserved};
    let cases = [
        (Loopback, &["127.0.0.0", "127.0.0.1", "127.255.255.255", "::1"][..]),
        (Private, &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0"]),
        (Private, &["192.168.255.255", "100.64.0.0", "100.127.255.255", "fc00::", "fdff:ffff::1"]),
        (LinkLocal, &["169.254.0.0", "169.254.169.254", "169.254.255.255", "fe80::1", "febf::1"]),
        (
            Embedded,
            &["::ffff:8.8.8.8", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b::808:808"],
        ),
        (Embedded, &["64:ff9b:1::1", "2002::1", "2002:7f00:1::", "2001::1", "2001:0:ffff::1"]),
        (Reserved, &["0.0.0.0", "0.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.2.1", "198.18.0.0"]),
        (Reserved, &["198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.0", "239.255.255.255"]),
        (Reserved, &["240.0.0.0", "255.255.255.255", "::", "100::1", "2001:db8::1", "2001:10::1", "3fff::1"]),
        (Reserved, &["fec0::1", "feff::1", "ff00::1", "ff02::1", "4000::1", "e000::1", "192.88.99.1"]),
        (Public, &["1.1.1.1", "9.255.255.255", "11.0.0.0", "126.255.255.255", "128.0.0.0", "172.15.255.255"]),
        (Public, &["172.32.0.0", "100.63.255.255", "100.128.0.0", "169.253.255.255", "223.255.255.255"]),
        (Public, &["2600::1", "2a00:1450::1", "2001:4860::8888", "2003::1", "2000::1"]),
    ];
    for (class, addresses) in cases {
        for text in addresses {
            assert_eq!(AddressClass::of(address(text)), class, "{text}");
        }
    }
}
