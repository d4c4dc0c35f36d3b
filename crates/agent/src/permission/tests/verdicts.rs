//! Every kind of effect, allowed and denied, with the text of the denial.

use super::*;

fn grant() -> Grant {
    Grant {
        tools: NameSet::all_except(["fs.write_file"]),
        disabled_tools: ["write_file".into()].into(),
        read: directories(&["/work", "/lib"]),
        write: directories(&["/work/out"]),
        blocked: paths(&["/work/.git", "/work/out/.keys"]),
        identities: Vec::new(),
        commands: NameSet::only(["git"]),
        unsandboxed: false,
        hosts: hosts(&["example.com"]),
        create: NameSet::only(["sandboxed"]),
        targets: Targets { named: NameSet::only(["bob"]), ..Targets::parent() },
        budget: Budget::unlimited(),
    }
}

fn run(program: &str, cwd: &str) -> Effect {
    Effect::Run(CommandEffect::sandboxed(program, [], path(cwd)))
}

fn reach(name: &str, relation: Relation) -> Effect {
    Effect::Reach(agent(name), relation)
}

#[test]
fn effects_within_the_grant_are_allowed() {
    let effects = [
        Effect::Use("fs.read_file".into()),
        Effect::Use("not there yet".into()),
        Effect::Read(path("/work")),
        Effect::Read(path("/lib/x/y")),
        Effect::Write(path("/work/out/new")),
        run("git", "/work"),
        Effect::Connect(destination("example.com:443")),
        Effect::Create(arcs(&["sandboxed"])),
        Effect::Create(arcs(&["mine", "sandboxed"])),
        reach("anyone", Relation::Parent),
        reach("bob", Relation::Other),
        reach("bob", Relation::Descendant),
    ];
    for effect in effects {
        let verdict = judge(std::slice::from_ref(&effect), &grant());
        assert!(matches!(verdict, Verdict::Allowed(_)), "{effect:?}: {verdict:?}");
    }
}

#[test]
fn tools_and_files_beyond_the_grant_are_denied() {
    let outside = "Path outside allowed directories. Allowed:";
    let write_setting = "; add the directory to allowed_write_paths";
    assert_denied([
        (
            Effect::Use("fs.write_file".into()),
            Dimension::Tools,
            "Tool 'fs.write_file' is disabled by permission policy; choose another preset".to_owned(),
        ),
        (Effect::Read(path("/etc")), Dimension::Read, format!("cannot read '/etc': {outside} /lib, /work")),
        (Effect::Read(path("/")), Dimension::Read, format!("cannot read '/': {outside} /lib, /work")),
        (
            Effect::Read(path("/work/../etc")),
            Dimension::Read,
            format!("cannot read '/etc': {outside} /lib, /work"),
        ),
        (
            Effect::Write(path("/work/x")),
            Dimension::Write,
            format!("cannot write '/work/x': {outside} /work/out{write_setting}"),
        ),
        (
            Effect::Write(path("/work/outside")),
            Dimension::Write,
            format!("cannot write '/work/outside': {outside} /work/out{write_setting}"),
        ),
        (
            Effect::Read(path("/work/.git/config")),
            Dimension::Blocked,
            "cannot read '/work/.git/config': the path is blocked".to_owned(),
        ),
        (
            Effect::Write(path("/work/out/.keys")),
            Dimension::Blocked,
            "cannot write '/work/out/.keys': the path is blocked".to_owned(),
        ),
    ]);
}

#[test]
fn hosts_and_agents_beyond_the_grant_are_denied() {
    let targets = "allowed: parent agent, and only bob";
    assert_denied([
        (
            Effect::Connect(destination("example.com.evil:443")),
            Dimension::Hosts,
            "connecting to 'example.com.evil:443' is not allowed: it is not among the allowed hosts (only \
             example.com); add 'example.com.evil' to allowed_hosts of the agent or its preset"
                .to_owned(),
        ),
        (
            Effect::Create(arcs(&["trusted"])),
            Dimension::Create,
            "Requested preset 'trusted' exceeds parent ceiling".to_owned(),
        ),
        (
            Effect::Create(Vec::new()),
            Dimension::Create,
            "Requested preset '' exceeds parent ceiling".to_owned(),
        ),
        (reach("eve", Relation::Other), Dimension::Targets, format!("cannot target agent 'eve'; {targets}")),
        (
            reach("kid", Relation::Descendant),
            Dimension::Targets,
            format!("cannot target agent 'kid'; {targets}"),
        ),
        (reach("bob", Relation::Itself), Dimension::Targets, "'bob' cannot target itself".to_owned()),
    ]);
}

fn assert_denied(cases: impl IntoIterator<Item = (Effect, Dimension, String)>) {
    for (effect, dimension, text) in cases {
        let denied = Verdict::Denied(Denial { effect: effect.clone(), dimension, text });
        assert_eq!(judge(std::slice::from_ref(&effect), &grant()), denied);
        let nothing = judge(std::slice::from_ref(&effect), &Grant::nothing());
        assert!(matches!(nothing, Verdict::Denied(_)), "{effect:?}");
    }
}

#[test]
fn tool_is_denied_under_any_disabled_name() {
    let effects = [Effect::Use("fs.store".into()), Effect::UseAlias("write_file".into())];
    let Verdict::Denied(denial) = judge(&effects, &grant()) else { panic!() };
    assert_eq!(
        denial.text,
        "Tool 'write_file' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
    );
    let narrower = grant().intersection(&Grant { tools: NameSet::only(["fs.store"]), ..Grant::everything() });
    assert!(matches!(judge(&effects, &narrower), Verdict::Denied(_)), "a list of tools does not enable it");
}

#[test]
fn denial_of_a_tool_names_the_setting_that_enables_it() {
    let disabled = Grant {
        tools: NameSet::all_except(["x"]),
        disabled_tools: ["x".into()].into(),
        ..Grant::everything()
    };
    let only = Grant { tools: NameSet::only(["y"]), ..Grant::everything() };
    let cases = [
        (&disabled, "x", "remove it from disable_tools of the agent or its preset"),
        (&only, "x", "add it to tools of the agent or its preset"),
        (&only, "cmd.exec", "add it to tools of the agent or its preset"),
        (&Grant::nothing(), "fs.append_file", "it needs allowed_write_paths"),
        (&Grant::nothing(), "process.start", "it needs allowed_commands"),
        (&Grant::nothing(), "agent_create", "it needs may_create"),
        (&Grant { tools: NameSet::all_except(["z"]), ..Grant::everything() }, "z", "choose another preset"),
    ];
    for (grant, tool, setting) in cases {
        let Verdict::Denied(denial) = judge(&[Effect::Use(tool.into())], grant) else { panic!("{tool}") };
        assert_eq!(denial.text, format!("Tool '{tool}' is disabled by permission policy; {setting}"));
    }
}

#[test]
fn agent_cannot_target_itself_even_with_every_grant() {
    let verdict = judge(&[reach("bob", Relation::Itself)], &Grant::everything());
    assert!(matches!(verdict, Verdict::Denied(_)));
}

#[test]
fn blocked_path_is_denied_as_blocked_even_outside_the_grant() {
    let grant = Grant { blocked: paths(&["/secret"]), ..Grant::nothing() };
    let Verdict::Denied(denial) = judge(&[Effect::Read(path("/secret/x"))], &grant) else { panic!() };
    assert_eq!(denial.dimension, Dimension::Blocked);
}

#[test]
fn call_is_denied_for_its_first_missing_effect() {
    let good = Effect::Read(path("/lib/x"));
    let (bad, worse) = (Effect::Write(path("/lib/x")), run("rm", "/work"));
    let Verdict::Denied(denial) = judge(&[good, bad.clone(), worse], &grant()) else { panic!() };
    assert_eq!((denial.effect, denial.dimension), (bad, Dimension::Write));
}

#[test]
fn permit_separates_files_to_read_from_files_to_write() {
    let effects =
        [Effect::Write(path("/work/out/x")), Effect::Use("fs.read_file".into()), Effect::Read(path("/lib"))];
    let file = |root: &str, rest: &str| FilePermit {
        path: RootedPath { root: path(root), relative: rest.to_owned() },
        blocked: grant().blocked,
        identities: Vec::new(),
    };
    let permit = Permit {
        readable: vec![ReadPermit(file("/lib", ""))],
        writable: vec![WritePermit(file("/work/out", "x"))],
        ..Permit::default()
    };
    assert_eq!(judge(&effects, &grant()), Verdict::Allowed(permit));
    assert_eq!(judge(&[], &grant()), Verdict::Allowed(Permit::default()));
}

fn identity(directory: &str, inode: u64) -> DirectoryIdentity {
    DirectoryIdentity { path: path(directory), device: 1, inode, born_ns: None }
}

#[test]
fn permit_has_the_identities_at_and_above_its_directory() {
    let identities = vec![identity("/", 1), identity("/work", 2), identity("/work/out", 3)];
    let own = Grant { identities, ..grant() };
    let outer = Grant { identities: vec![identity("/work", 4), identity("/workshop", 5)], ..grant() };
    let both = own.intersection(&outer);
    let Verdict::Allowed(permit) = judge(&[Effect::Write(path("/work/out/x"))], &both) else { panic!() };
    let expected = [identity("/", 1), identity("/work", 2), identity("/work", 4), identity("/work/out", 3)];
    assert_eq!(permit.writable[0].file().identities, expected, "two directories at one path: neither opens");
    assert!(permit.writable[0].file().is_identified());
    assert!(both.is_within(&own) && both.is_within(&outer));
    assert!(!own.is_within(&outer), "it lacks an identity that the other requires");
}

#[test]
fn commands_beyond_the_grant_are_denied() {
    let outside = "Path outside allowed directories. Allowed:";
    assert_denied([
        (
            run("rm", "/work"),
            Dimension::Commands,
            "running 'rm' is not allowed; allowed: only git; add it to allowed_commands of the agent or its preset"
                .to_owned(),
        ),
        (run("git", "/etc"), Dimension::Read, format!("cannot run in '/etc': {outside} /lib, /work")),
        (
            run("git", "/work/.git"),
            Dimension::Blocked,
            "cannot run in '/work/.git': the path is blocked".to_owned(),
        ),
    ]);
}

#[test]
fn sandbox_of_a_command_contains_the_directories_of_the_grant() {
    let directories_of = |grant: &Grant| {
        let Verdict::Allowed(permit) = judge(&[run("git", "/work/a")], grant) else { panic!("denied") };
        let [command] = &permit.commands[..] else { panic!("{permit:?}") };
        let text = |file: &FilePermit| match &*file.path.relative {
            "" => file.path.root.to_string(),
            relative => format!("{}|{relative}", file.path.root),
        };
        let readable: Vec<String> = command.readable().iter().map(|read| text(read.file())).collect();
        let writable: Vec<String> = command.writable().iter().map(|write| text(write.file())).collect();
        assert_eq!(permit.files().count(), 1 + readable.len() + writable.len());
        (text(command.cwd().file()), readable.join(" "), writable.join(" "))
    };
    let texts = |cwd: &str, read: &str, write: &str| (cwd.to_owned(), read.to_owned(), write.to_owned());
    assert_eq!(directories_of(&grant()), texts("/work|a", "/lib /work", "/work/out"));
    // A grant of everything does not open everything to commands.
    let everything = Grant { read: DirectorySet::all(), write: DirectorySet::all(), ..grant() };
    assert_eq!(directories_of(&everything), texts("/|work/a", "/|work/a", "/|work/a"));
    // A blocked directory is left out.
    let blocked = Grant { blocked: paths(&["/lib"]), ..grant() };
    assert_eq!(directories_of(&blocked), texts("/work|a", "/work", "/work/out"));
}
