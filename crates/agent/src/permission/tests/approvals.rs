//! Approval rules: their text form, what they match, and how they combine with grants along a lineage.

use super::*;

fn rule(text: &str) -> Rule {
    Rule::parse(text).expect("a valid rule")
}

fn command(line: &str, cwd: &str) -> CommandEffect {
    let mut words = line.split(' ').map(str::to_owned);
    let program = words.next().unwrap_or_default();
    CommandEffect::sandboxed(program, words.collect::<Vec<_>>(), path(cwd))
}

fn unsandboxed(line: &str) -> Effect {
    Effect::Run(CommandEffect { confinement: Confinement::Unsandboxed, ..command(line, "/w") })
}

fn connect_to(host: &str) -> Effect {
    Effect::Connect(Destination { host: RemoteHost::parse(host).expect("a valid host"), port: 443 })
}

const CALL: CallText<'static> = CallText { tool: "cmd.exec", arguments: r#"{"command":"cargo"}"# };

#[test]
fn rules_are_parsed_and_printed_in_one_form() {
    for text in [
        "fs.delete",
        "*",
        r#"fs.delete {"path": "a b"}"#,
        "run:cargo test",
        "run:cargo test in /w/project",
        "run:*",
        "unsandboxed:* in /w",
        "host:*.example.com",
        "read:/srv",
        "write:/srv/data",
    ] {
        assert_eq!(rule(text).to_string(), text);
    }
    assert_eq!(rule("run:cargo   test").to_string(), "run:cargo test");
    assert_eq!(rule("host:EXAMPLE.com"), rule("host:example.com"));
}

#[test]
fn texts_of_no_form_are_refused_with_the_forms() {
    let long = "x".repeat(20_000);
    for text in [
        "",
        "run:",
        "run: in /w",
        "run:* --all",
        "host:",
        "host:a b",
        "read:w",
        "write:/w/../x",
        "a/b",
        &long,
    ] {
        let fault = Rule::parse(text).expect_err(text).to_string();
        assert!(fault.contains("a rule is a tool's name"), "{fault}");
    }
}

#[test]
fn command_rules_match_words_not_text() {
    let matches =
        |text: &str, line: &str, cwd: &str| rule(text).matches(&Effect::Run(command(line, cwd)), &CALL);
    assert!(matches("run:cargo test", "cargo test --lib", "/w"));
    assert!(matches("run:cargo test in /w", "cargo test", "/w/sub"));
    assert!(matches("run:*", "anything", "/"));
    for (text, line, cwd) in [
        ("run:cargo test", "cargo testing", "/w"),
        ("run:cargo test", "cargo", "/w"),
        ("run:cargo test", "cargo build test", "/w"),
        ("run:cargo", "/usr/bin/cargo", "/w"),
        ("run:cargo test in /w", "cargo test", "/wx"),
        ("unsandboxed:cargo", "cargo", "/w"),
    ] {
        assert!(!matches(text, line, cwd), "{text} {line} {cwd}");
    }
    assert!(!rule("run:cargo").matches(&unsandboxed("cargo"), &CALL));
    assert!(rule("unsandboxed:cargo").matches(&unsandboxed("cargo build"), &CALL));
}

#[test]
fn threat_90_exact_rules_match_one_call_byte_for_byte() {
    let exact = rule(r#"cmd.exec {"command":"cargo"}"#);
    let effect = Effect::Use("cmd.exec".into());
    assert!(exact.matches(&effect, &CALL));
    for arguments in [r#"{"command": "cargo"}"#, r#"{"command":"cargo","cwd":"/"}"#, ""] {
        assert!(!exact.matches(&effect, &CallText { arguments, ..CALL }), "{arguments}");
    }
    assert!(!exact.matches(&effect, &CallText { tool: "shell.exec", ..CALL }));
}

#[test]
fn host_rules_match_whole_labels() {
    let matches = |text: &str, host: &str| rule(text).matches(&connect_to(host), &CALL);
    assert!(matches("host:*", "a.example") && matches("host:a.example", "a.example"));
    assert!(matches("host:*.example", "a.example") && matches("host:*.example", "b.a.example"));
    for (text, host) in [("host:*.example", "example"), ("host:*.example", "evilexample")] {
        assert!(!matches(text, host), "{text} {host}");
    }
    // All hosts are asked for or denied, but only public ones are allowed.
    let local = connect_to("10.1.2.3");
    assert!(rule("host:*").matches(&local, &CALL) && !rule("host:*").allows(&local, &CALL));
    assert!(rule("host:10.1.2.3").allows(&local, &CALL));
}

#[test]
fn listed_hosts_are_not_asked_for_by_a_rule_for_all_hosts() {
    let listed = Grant { hosts: HostSet::new([HostPattern::parse("docs.example").unwrap()], []), ..narrow() };
    let own = lineage(vec![permissions(listed, &[(RuleAction::Ask, "host:*")])]);
    assert!(is_allowed(&decide(&own, &[connect_to("docs.example")], None)));
    assert!(is_asked(&decide(&own, &[connect_to("other.example")], None)));
    let any = Grant { hosts: HostSet::new([HostPattern::any()], []), ..narrow() };
    let own = lineage(vec![permissions(any, &[(RuleAction::Ask, "host:prod.example")])]);
    assert!(is_asked(&decide(&own, &[connect_to("prod.example")], None)));
}

#[test]
fn redirects_reach_no_host_that_a_rule_denies_or_asks_for() {
    let any = Grant { hosts: HostSet::new([HostPattern::any()], []), ..narrow() };
    let rules = [(RuleAction::Ask, "host:prod.example"), (RuleAction::Deny, "host:evil.example")];
    let own = lineage(vec![permissions(any, &rules)]);
    let may_redirect = |from: &str, to: &str, approved_by| {
        let Decision::Allowed(permit) = decide(&own, &[connect_to(from)], approved_by) else {
            panic!("{from}")
        };
        let Effect::Connect(to) = connect_to(to) else { panic!("no connection") };
        permit.connections[0].hosts.contains(&to)
    };
    assert!(may_redirect("docs.example", "other.example", None));
    for host in ["prod.example", "evil.example"] {
        assert!(!may_redirect("docs.example", host, None), "{host}");
    }
    assert!(may_redirect("prod.example", "prod.example", Some(Grantor::Admin)));
    assert!(!may_redirect("prod.example", "evil.example", Some(Grantor::Admin)));
}

#[test]
fn what_no_approval_could_allow_is_not_asked_for() {
    let own = lineage(vec![permissions(narrow(), &[(RuleAction::Ask, "host:*")])]);
    // Multicast and reserved addresses are closed by every set of hosts.
    for host in ["224.0.0.1", "0.0.0.0", "240.0.0.1"] {
        assert!(matches!(decide(&own, &[connect_to(host)], None), Decision::Denied(_)), "{host}");
    }
    assert!(is_asked(&decide(&own, &[connect_to("10.1.2.3")], None)));
}

/// Permissions with rules, each as its action and text.
fn permissions(grant: Grant, rules: &[(RuleAction, &str)]) -> Permissions {
    let entry = |(action, text): &(RuleAction, &str)| RuleEntry::of_creator(*action, rule(text));
    Permissions {
        approvals: Arc::new(ApprovalRules::new(rules.iter().map(entry).collect())),
        ..Permissions::uniform(grant, Reasons::uniform("test"))
    }
}

/// A lineage from the agent to the root; serials count from the root, which is 1.
fn lineage(permissions: Vec<Permissions>) -> Vec<LineageLink> {
    let serials = (1..=permissions.len() as u64).rev();
    let link = |(permissions, serial)| LineageLink {
        agent: agent(&format!("a{serial}")),
        serial,
        permissions: Arc::new(permissions),
    };
    permissions.into_iter().zip(serials).map(link).collect()
}

fn decide(lineage: &[LineageLink], effects: &[Effect], approved_by: Option<Grantor>) -> Decision {
    review(&CallReview { lineage, effects, call: CALL, approved_by })
}

fn is_asked(decision: &Decision) -> bool {
    matches!(decision, Decision::Ask(_))
}

fn is_allowed(decision: &Decision) -> bool {
    matches!(decision, Decision::Allowed(_))
}

/// Reads in /w and runs git.
fn narrow() -> Grant {
    Grant {
        read: directories(&["/w"]),
        write: DirectorySet::none(),
        commands: NameSet::only(["git"]),
        hosts: HostSet::none(),
        unsandboxed: false,
        blocked: paths(&["/w/secret"]),
        ..Grant::everything()
    }
}

#[test]
fn forbidden_effects_are_asked_for_only_by_the_agents_own_rules() {
    let own = lineage(vec![permissions(narrow(), &[(RuleAction::Ask, "host:*")])]);
    let connect = [connect_to("a.example")];
    assert!(is_asked(&decide(&own, &connect, None)));
    assert!(matches!(decide(&own, &[unsandboxed("git")], None), Decision::Denied(_)));
    let inherited = lineage(vec![
        permissions(narrow(), &[]),
        permissions(Grant::everything(), &[(RuleAction::Ask, "host:*")]),
    ]);
    assert!(matches!(decide(&inherited, &connect, None), Decision::Denied(_)));
}

#[test]
fn permitted_effects_are_asked_for_by_rules_of_ancestors_too() {
    let effects = [Effect::Use("fs.delete".into()), Effect::Read(path("/w/a"))];
    let rules = [(RuleAction::Ask, "fs.delete")];
    let own = lineage(vec![permissions(narrow(), &rules)]);
    let inherited = lineage(vec![permissions(narrow(), &[]), permissions(Grant::everything(), &rules)]);
    for lineage in [own, inherited] {
        let Decision::Ask(question) = decide(&lineage, &effects, None) else { panic!("not asked") };
        assert_eq!(question.effects, effects[..1]);
        assert!(question.reason.contains("rule 'fs.delete'"), "{}", question.reason);
        assert!(is_allowed(&decide(&lineage, &effects, Some(Grantor::Admin))));
    }
}

#[test]
fn approval_permits_the_asked_effects_and_no_more() {
    let own = lineage(vec![permissions(narrow(), &[(RuleAction::Ask, "write:/srv")])]);
    let write = |text: &str| [Effect::Write(path(text))];
    let Decision::Allowed(permit) = decide(&own, &write("/srv/data/f"), Some(Grantor::Admin)) else {
        panic!("not allowed")
    };
    assert_eq!(permit.writable.len(), 1);
    assert_eq!(permit.writable[0].file().path.root, path("/srv/data"));
    assert!(matches!(decide(&own, &write("/etc/f"), Some(Grantor::Admin)), Decision::Denied(_)));
}

#[test]
fn blocked_and_disabled_stay_closed_to_approvals() {
    let grant = Grant { disabled_tools: ["fs.delete".into()].into(), ..narrow() };
    let grant = Grant { tools: NameSet::all_except(["fs.delete"]), ..grant };
    let own = lineage(vec![permissions(grant, &[(RuleAction::Ask, "*"), (RuleAction::Ask, "read:/")])]);
    for effect in [Effect::Read(path("/w/secret/key")), Effect::Use("fs.delete".into())] {
        assert!(matches!(decide(&own, &[effect], Some(Grantor::Admin)), Decision::Denied(_)));
    }
}

#[test]
fn deny_rules_win_over_approvals_and_grants() {
    let rules =
        [(RuleAction::Ask, "host:*"), (RuleAction::Deny, "host:evil.example"), (RuleAction::Allow, "host:*")];
    let lineage = lineage(vec![permissions(narrow(), &rules)]);
    let connect = |host: &str| [connect_to(host)];
    assert!(is_allowed(&decide(&lineage, &connect("good.example"), None)));
    let Decision::Denied(denial) = decide(&lineage, &connect("evil.example"), Some(Grantor::Admin)) else {
        panic!("not denied")
    };
    assert_eq!(denial.dimension, Dimension::Rules);
    assert!(denial.text.contains("rule 'host:evil.example' of agent 'a1'"), "{}", denial.text);
}

#[test]
fn approvals_never_exceed_what_the_grantor_may_grant() {
    let ask = [(RuleAction::Ask, "run:*"), (RuleAction::Ask, "host:*")];
    let parent = Grant { commands: NameSet::only(["make"]), hosts: HostSet::none(), ..Grant::everything() };
    let lineage = lineage(vec![
        permissions(narrow(), &ask),
        permissions(parent, &[]),
        permissions(Grant::everything(), &[]),
    ]);
    let run = |program: &str| [Effect::Run(command(program, "/w"))];
    let connect = [connect_to("a.example")];
    for (grantor, make, cargo, host) in [
        (Grantor::Admin, true, true, true),
        // The parent, the root, an agent elsewhere, the agent itself.
        (Grantor::Agent(2), true, false, false),
        (Grantor::Agent(1), true, true, true),
        (Grantor::Agent(9), false, false, false),
        (Grantor::Agent(3), false, false, false),
        (Grantor::Creator, true, false, false),
    ] {
        let decided = [run("make"), run("cargo"), connect.clone()].map(|effects| {
            let decision = decide(&lineage, &effects, Some(grantor));
            assert_eq!(is_allowed(&decision), may_approve(&lineage, grantor, &effects), "{grantor:?}");
            is_allowed(&decision)
        });
        assert_eq!(decided, [make, cargo, host], "{grantor:?}");
    }
}

#[test]
fn allow_rules_apply_to_their_scope_and_within_their_grantor() {
    let entry =
        |scope, grantor| RuleEntry { action: RuleAction::Allow, rule: rule("host:*"), scope, grantor };
    let ask = RuleEntry::of_creator(RuleAction::Ask, rule("host:*"));
    let with = |own: Vec<RuleEntry>, parent: Vec<RuleEntry>| {
        let permissions = |grant, rules| Permissions {
            approvals: Arc::new(ApprovalRules::new(rules)),
            ..Permissions::uniform(grant, Reasons::uniform("test"))
        };
        lineage(vec![permissions(narrow(), [vec![ask.clone()], own].concat()), permissions(narrow(), parent)])
    };
    let connect = [connect_to("a.example")];
    let allowed = |lineage: &[LineageLink]| is_allowed(&decide(lineage, &connect, None));
    assert!(allowed(&with(vec![entry(RuleScope::Agent, Grantor::Admin)], Vec::new())));
    assert!(allowed(&with(Vec::new(), vec![entry(RuleScope::Subtree, Grantor::Admin)])));
    assert!(!allowed(&with(Vec::new(), vec![entry(RuleScope::Agent, Grantor::Admin)])));
    // The parent has no hosts to grant, and the creator is bounded by the parent.
    assert!(!allowed(&with(vec![entry(RuleScope::Agent, Grantor::Agent(1))], Vec::new())));
    assert!(!allowed(&with(vec![entry(RuleScope::Agent, Grantor::Creator)], Vec::new())));
}

#[test]
fn trusted_agents_ask_for_hosts_and_for_leaving_the_sandbox() {
    let presets = Presets::builtin(&[]);
    let request = GrantRequest::default_in(path("/w"));
    let decide_as = |preset: &str, effect: Effect| {
        let resolved = presets.find(preset).unwrap().resolve(&request).unwrap();
        decide(&lineage(vec![resolved.into_permissions()]), &[effect], None)
    };
    for effect in [connect_to("a.example"), unsandboxed("make")] {
        assert!(is_asked(&decide_as("trusted", effect.clone())));
        for preset in ["sandboxed", "worker"] {
            assert!(matches!(decide_as(preset, effect.clone()), Decision::Denied(_)), "{preset} {effect}");
        }
    }
    assert!(is_allowed(&decide_as("trusted", Effect::Run(command("make", "/w")))));
}

#[test]
fn approval_tools_are_off_unless_named() {
    let presets = Presets::builtin(&[]);
    let tools = |names: Option<&[&str]>| {
        let request = GrantRequest { tools: names.map(arcs), ..GrantRequest::default_in(path("/w")) };
        let grant = presets.find("trusted").unwrap().resolve(&request).unwrap().grant;
        ["approvals_answer", "approvals_list", "fs.edit"].map(|tool| grant.tools.contains(tool))
    };
    assert_eq!(tools(None), [false, false, true]);
    assert_eq!(tools(Some(&["approvals_answer"])), [true, false, false]);
    assert_eq!(tools(Some(&["*", "approvals_answer"])), [true, false, true]);
    assert_eq!(tools(Some(&["*"])), [false, false, true]);
}
