//! One case: presets, a tree, changes to it, then a check of every agent against each of its ancestors.

use std::sync::Arc;

use agent::permission::{
    CommandEffect, Confinement, Effect, FilePath, Grant, GrantRequest, HostSet, LineageLink, NameSet,
    Narrowing, Permit, Presets, Relation, Resource, Verdict, ceiling, effective, judge,
};
use testkit::TestRng;

use crate::grants::Generator;
use crate::oracle;
use crate::tree::{Tree, describe_lineage, unknown_agent};
use crate::vocabulary::Vocabulary;

const EFFECTS: usize = 10;

/// Counters of what was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) agents: u64,
    pub(crate) judged: u64,
    pub(crate) allowed: u64,
}

impl Tally {
    pub(crate) fn plus(self, other: Tally) -> Tally {
        Tally {
            agents: self.agents + other.agents,
            judged: self.judged + other.judged,
            allowed: self.allowed + other.allowed,
        }
    }
}

/// Runs the case of one seed; panics if an agent exceeds its ceiling.
pub(crate) fn run(seed: u64, vocabulary: &Vocabulary) -> Tally {
    let mut generator = Generator { rng: TestRng::new(seed), vocabulary };
    let presets = presets(&mut generator);
    let mut tree = Tree::grow(&mut generator, &presets);
    for _ in 0..generator.rng.between(0, 3) {
        tree.change(&mut generator, &presets);
    }
    let mut tally = Tally::default();
    for lineage in tree.lineages() {
        tally.agents += 1;
        check(&lineage, &mut generator, &mut tally);
    }
    tally
}

/// The built-in presets and some that narrow these or each other.
fn presets(generator: &mut Generator<'_>) -> Presets {
    let mut presets = Presets::builtin(&[generator.vocabulary.path(&mut generator.rng, 2, 3)]);
    for number in 0..generator.rng.between(0, 3) {
        let base = Arc::clone(generator.rng.pick(&generator.vocabulary.presets));
        let name = format!("mine.{number}");
        let narrowing = generator.narrowing();
        if presets.add(&name, &base, narrowing.clone()).is_ok() {
            check_narrower(&presets, &name, &base, &narrowing, generator);
        }
    }
    presets
}

/// For any request, a custom preset grants nothing that its base would not grant, and nothing that it removes itself.
fn check_narrower(
    presets: &Presets,
    name: &str,
    base: &str,
    narrowing: &Narrowing,
    generator: &mut Generator<'_>,
) {
    let request = generator.request();
    let resolve =
        |name: &str, request: &GrantRequest| presets.find(name).expect("found before").resolve(request);
    // The commands of a custom preset are its default, which its base would grant only on request.
    let commands = request.commands.clone().or_else(|| narrowing.commands.clone());
    let hosts = request.hosts.clone().or_else(|| narrowing.hosts.clone());
    let requested = GrantRequest { commands, hosts, ..request.clone() };
    match (resolve(name, &request), resolve(base, &requested)) {
        (Ok(own), Ok(outer)) => {
            assert!(own.grant.is_within(&outer.grant), "{name} is wider than {base} for {request:?}");
            let disabled = |tool: &Arc<str>| own.grant.tools.contains(tool);
            assert!(
                !narrowing.disable_tools.iter().any(disabled),
                "{name} restores a disabled tool for {request:?}"
            );
            let commands = narrowing
                .commands
                .iter()
                .all(|names| own.grant.commands.is_within(&NameSet::with_wildcard(names)));
            assert!(commands, "{name} runs {} for {request:?}", own.grant.commands);
            let hosts = HostSet::all_except(narrowing.denied_hosts.clone());
            assert!(own.grant.hosts.is_within(&hosts), "{name} connects to {}", own.grant.hosts);
            let create = narrowing
                .may_create
                .iter()
                .all(|presets| own.grant.create.is_within(&NameSet::only(presets.clone())));
            assert!(create, "{name} creates {} for {request:?}", own.grant.create);
            let reach = narrowing.targets.iter().all(|targets| own.grant.targets.is_within(targets));
            assert!(reach, "{name} reaches {} for {request:?}", own.grant.targets);
            for _ in 0..EFFECTS {
                let effect = effect(generator, &[&own.grant, &outer.grant]);
                let wider = is_allowed(&effect, &own.grant) && !oracle::allows(&outer.grant, &effect);
                assert!(!wider, "{name} allows {effect:?}, {base} does not");
            }
        }
        (Err(_), Err(_)) => {}
        (own, outer) => panic!("{name} and {base} accept different requests: {own:?}, {outer:?}"),
    }
}

fn check(lineage: &[LineageLink], generator: &mut Generator<'_>, tally: &mut Tally) {
    let [own, ancestors @ ..] = lineage else { return };
    let grantable = || ancestors.iter().map(|link| &*link.permissions.may_grant);
    let may_sets: Vec<&Grant> = std::iter::once(&*own.permissions.may).chain(grantable()).collect();
    let may_grant_sets: Vec<&Grant> =
        std::iter::once(&*own.permissions.may_grant).chain(grantable()).collect();
    let agent = describe_lineage(lineage);
    check_within(&agent, &effective(lineage), &may_sets, generator, tally);
    check_within(
        &agent,
        &ceiling(lineage.iter().map(|link| &*link.permissions)),
        &may_grant_sets,
        generator,
        tally,
    );
}

/// Checks a result against all the grants it has to be within.
fn check_within(
    agent: &str,
    effective_grant: &Grant,
    sets: &[&Grant],
    generator: &mut Generator<'_>,
    tally: &mut Tally,
) {
    for set in sets {
        assert!(effective_grant.is_within(set), "{agent}: {effective_grant:?} is not within {set:?}");
    }
    for resource in Resource::ALL {
        let tightest = oracle::tightest(sets.iter().map(|set| &set.budget), resource);
        assert_eq!(effective_grant.budget.limit(resource), tightest, "{agent}: {resource}");
    }
    let effects: Vec<Effect> = (0..EFFECTS).map(|_| effect(generator, sets)).collect();
    let mut all = true;
    for effect in &effects {
        tally.judged += 1;
        assert_same_addresses(agent, effect, effective_grant, sets, generator);
        match judge(std::slice::from_ref(effect), effective_grant) {
            Verdict::Allowed(permit) => {
                tally.allowed += 1;
                assert_allowed_by_all(agent, effect, sets);
                assert_rooted(agent, effect, &permit, sets);
            }
            Verdict::Denied(denial) => {
                all = false;
                let allowed_by_all = sets.iter().all(|set| oracle::allows(set, effect));
                assert!(
                    !allowed_by_all || !oracle::is_exact(effect),
                    "{agent}: denied although every set allows it: {denial:?}"
                );
            }
        }
    }
    let all_at_once = matches!(judge(&effects, effective_grant), Verdict::Allowed(_));
    assert_eq!(all_at_once, all, "{agent}: a call is allowed if all its effects are");
}

fn assert_allowed_by_all(agent: &str, effect: &Effect, sets: &[&Grant]) {
    for set in sets {
        assert!(is_allowed(effect, set), "{agent} may {effect:?}, but {set:?} does not allow it");
        assert!(oracle::allows(set, effect), "{agent} may {effect:?}, but the oracle denies it for {set:?}");
    }
}

/// Checks that a connection may go to an address exactly if every set allows that.
fn assert_same_addresses(
    agent: &str,
    effect: &Effect,
    effective_grant: &Grant,
    sets: &[&Grant],
    generator: &mut Generator<'_>,
) {
    let Effect::Connect(to) = effect else { return };
    let address = *generator.rng.pick(&generator.vocabulary.addresses);
    let is_allowed = effective_grant.hosts.check_address(to, address).is_ok();
    let allowed_by_all = sets.iter().all(|set| oracle::reaches_address(&set.hosts, to, address));
    assert_eq!(
        is_allowed, allowed_by_all,
        "{agent}: {to} at {address} in {:?}: {sets:?}",
        effective_grant.hosts
    );
}

/// Checks that every set contains the directory the file is opened beneath, and that no blocked path is missing.
fn assert_rooted(agent: &str, effect: &Effect, permit: &Permit, sets: &[&Grant]) {
    let (path, file) = match (effect, permit.readable.as_slice(), permit.writable.as_slice()) {
        (Effect::Read(path), [read], []) => (path, read.file()),
        (Effect::Write(path), [], [write]) => (path, write.file()),
        (Effect::Read(_) | Effect::Write(_), ..) => panic!("{agent}: expected one file: {permit:?}"),
        (_, readable, writable) => {
            return assert!(
                readable.is_empty() && writable.is_empty(),
                "{agent}: unexpected file: {permit:?}"
            );
        }
    };
    for blocked in sets.iter().flat_map(|set| &set.blocked) {
        assert!(file.blocked.contains(blocked), "{agent}: {blocked} is missing");
    }
    let rooted = &file.path;
    let joined = FilePath::resolve(&format!("./{}", rooted.relative), &rooted.root);
    assert_eq!(joined.as_ref(), Ok(path), "{agent}: {rooted:?}");
    for set in sets {
        let directories = if matches!(effect, Effect::Read(_)) { &set.read } else { &set.write };
        let inside = |root: &FilePath| oracle::is_in_directory(rooted.root.as_str(), root.as_str());
        assert!(directories.roots().iter().any(inside), "{agent}: {} is outside {directories}", rooted.root);
    }
}

fn is_allowed(effect: &Effect, grant: &Grant) -> bool {
    matches!(judge(std::slice::from_ref(effect), grant), Verdict::Allowed(_))
}

/// A random effect; files are mostly near the borders of these grants.
fn effect(generator: &mut Generator<'_>, grants: &[&Grant]) -> Effect {
    let vocabulary = generator.vocabulary;
    match generator.rng.below(12) {
        0 => Effect::Use(Arc::clone(generator.rng.pick(&vocabulary.tools))),
        1 => Effect::UseAlias(Arc::clone(generator.rng.pick(&vocabulary.tools))),
        2..5 => Effect::Read(file(generator, grants)),
        5..8 => Effect::Write(file(generator, grants)),
        8 => {
            let program = Arc::clone(generator.rng.pick(&vocabulary.programs));
            let confinement = *generator.rng.pick(&[Confinement::Sandboxed, Confinement::Unsandboxed]);
            let command = CommandEffect::sandboxed(program, [], file(generator, grants));
            Effect::Run(CommandEffect { confinement, ..command })
        }
        9 => Effect::Connect(generator.rng.pick(&vocabulary.destinations).clone()),
        10 => {
            let inheritance =
                (0..generator.rng.between(0, 2)).map(|_| Arc::clone(generator.rng.pick(&vocabulary.presets)));
            Effect::Create(inheritance.collect())
        }
        _ => {
            let relations = [Relation::Itself, Relation::Parent, Relation::Descendant, Relation::Other];
            let unknown = generator.rng.percent(20).then(unknown_agent);
            let agent = unknown.unwrap_or_else(|| generator.rng.pick(&vocabulary.ids).clone());
            Effect::Reach(agent, *generator.rng.pick(&relations))
        }
    }
}

fn file(generator: &mut Generator<'_>, grants: &[&Grant]) -> FilePath {
    let grant = generator.rng.pick(grants);
    let edges = match generator.rng.below(4) {
        0 => grant.read.roots(),
        1 => grant.write.roots(),
        2 => grant.blocked.as_slice(),
        _ => &[],
    };
    if edges.is_empty() {
        return generator.vocabulary.path(&mut generator.rng, 0, 4);
    }
    let edge = generator.rng.pick(edges).clone();
    generator.vocabulary.path_near(&mut generator.rng, &edge)
}
