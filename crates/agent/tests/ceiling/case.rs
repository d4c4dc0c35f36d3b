//! One case: presets, a tree, changes to it, and then every agent held against each of its ancestors.

use std::sync::Arc;

use agent::permission::{
    Effect, FilePath, Grant, LineageLink, NameSet, Narrowing, Permit, Presets, Relation, Resource, Verdict,
    ceiling, effective, judge,
};

use crate::grants::Generator;
use crate::oracle;
use crate::rng::TestRng;
use crate::tree::{Tree, describe_lineage, unknown_agent};
use crate::vocabulary::Vocabulary;

const EFFECTS: usize = 10;

/// How much was looked at.
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

/// Runs the case of one seed; panics when the ceiling does not hold.
pub(crate) fn run(seed: u64, words: &Vocabulary) -> Tally {
    let mut maker = Generator { rng: TestRng::new(seed), vocabulary: words };
    let presets = presets(&mut maker);
    let mut tree = Tree::grow(&mut maker, &presets);
    for _ in 0..maker.rng.between(0, 3) {
        tree.change(&mut maker, &presets);
    }
    let mut tally = Tally::default();
    for line in tree.lineages() {
        tally.agents += 1;
        check(&line, &mut maker, &mut tally);
    }
    tally
}

/// The built-in presets and some that narrow them, or each other.
fn presets(maker: &mut Generator<'_>) -> Presets {
    let mut presets = Presets::builtin(&[maker.vocabulary.path(&mut maker.rng, 2, 3)]);
    for number in 0..maker.rng.between(0, 3) {
        let base = Arc::clone(maker.rng.pick(&maker.vocabulary.presets));
        let name = format!("mine.{number}");
        let narrowing = maker.narrowing();
        if presets.add(&name, &base, narrowing.clone()).is_ok() {
            check_narrower(&presets, &name, &base, &narrowing, maker);
        }
    }
    presets
}

/// Whatever is asked for, a custom preset gives nothing that the one it extends would not give, and nothing that it
/// takes away itself.
fn check_narrower(
    presets: &Presets,
    name: &str,
    base: &str,
    narrowing: &Narrowing,
    maker: &mut Generator<'_>,
) {
    let ask = maker.request();
    let resolve = |name: &str| presets.find(name).expect("it was found before").resolve(&ask);
    match (resolve(name), resolve(base)) {
        (Ok(own), Ok(outer)) => {
            assert!(own.grant.is_within(&outer.grant), "{name} is wider than {base} for {ask:?}");
            let disabled = |tool: &Arc<str>| own.grant.tools.contains(tool);
            assert!(!narrowing.disable_tools.iter().any(disabled), "{name} gives a tool back for {ask:?}");
            let create = narrowing
                .may_create
                .iter()
                .all(|some| own.grant.create.is_within(&NameSet::only(some.clone())));
            assert!(create, "{name} creates {} for {ask:?}", own.grant.create);
            let reach = narrowing.targets.iter().all(|targets| own.grant.targets.is_within(targets));
            assert!(reach, "{name} reaches {} for {ask:?}", own.grant.targets);
            for _ in 0..EFFECTS {
                let effect = effect(maker, &[&own.grant, &outer.grant]);
                let wider = is_allowed(&effect, &own.grant) && !oracle::allows(&outer.grant, &effect);
                assert!(!wider, "{name} allows {effect:?}, {base} does not");
            }
        }
        (Err(_), Err(_)) => {}
        (own, outer) => panic!("{name} and {base} do not take the same asks: {own:?}, {outer:?}"),
    }
}

fn check(line: &[LineageLink], maker: &mut Generator<'_>, tally: &mut Tally) {
    let [own, ancestors @ ..] = line else { return };
    let grantable = || ancestors.iter().map(|link| &*link.permissions.may_grant);
    let doing: Vec<&Grant> = std::iter::once(&*own.permissions.may).chain(grantable()).collect();
    let granting: Vec<&Grant> = std::iter::once(&*own.permissions.may_grant).chain(grantable()).collect();
    let who = describe_lineage(line);
    check_within(&who, &effective(line), &doing, maker, tally);
    check_within(&who, &ceiling(line.iter().map(|link| &*link.permissions)), &granting, maker, tally);
}

/// Holds what is left against all the sets it has to be within.
fn check_within(who: &str, left: &Grant, sets: &[&Grant], maker: &mut Generator<'_>, tally: &mut Tally) {
    for set in sets {
        assert!(left.is_within(set), "{who}: {left:?} is not within {set:?}");
    }
    for resource in Resource::ALL {
        let tightest = oracle::tightest(sets.iter().map(|set| &set.budget), resource);
        assert_eq!(left.budget.limit(resource), tightest, "{who}: {resource}");
    }
    let effects: Vec<Effect> = (0..EFFECTS).map(|_| effect(maker, sets)).collect();
    let mut all = true;
    for effect in &effects {
        tally.judged += 1;
        match judge(std::slice::from_ref(effect), left) {
            Verdict::Allowed(permit) => {
                tally.allowed += 1;
                assert_allowed_by_all(who, effect, sets);
                assert_rooted(who, effect, &permit, sets);
            }
            Verdict::Denied(denial) => {
                all = false;
                let by_all = sets.iter().all(|set| oracle::allows(set, effect));
                assert!(!by_all || !oracle::is_exact(effect), "{who}: denied for nothing: {denial:?}");
            }
        }
    }
    let together = matches!(judge(&effects, left), Verdict::Allowed(_));
    assert_eq!(together, all, "{who}: a call needs all of its effects");
}

fn assert_allowed_by_all(who: &str, effect: &Effect, sets: &[&Grant]) {
    for set in sets {
        assert!(is_allowed(effect, set), "{who} may {effect:?}, but {set:?} does not allow it");
        assert!(oracle::allows(set, effect), "{who} may {effect:?}, against {set:?} read part by part");
    }
}

/// The folder that a file is opened beneath lies in what everybody allows, and nothing blocked is forgotten.
fn assert_rooted(who: &str, effect: &Effect, permit: &Permit, sets: &[&Grant]) {
    for blocked in sets.iter().flat_map(|set| &set.blocked) {
        assert!(permit.blocked.contains(blocked), "{who}: {blocked} is forgotten");
    }
    let (Effect::Read(path) | Effect::Write(path)) = effect else {
        return assert!(permit.files.is_empty(), "{who}: a file nobody asked for");
    };
    let [rooted] = permit.files.as_slice() else { panic!("{who}: one file, {permit:?}") };
    let whole = FilePath::resolve(&format!("./{}", rooted.relative), &rooted.root);
    assert_eq!(whole.as_ref(), Ok(path), "{who}: {rooted:?}");
    for set in sets {
        let folders = if matches!(effect, Effect::Read(_)) { &set.read } else { &set.write };
        let inside = |root: &FilePath| oracle::is_in_directory(rooted.root.as_str(), root.as_str());
        assert!(folders.roots().iter().any(inside), "{who}: {} is beyond {folders}", rooted.root);
    }
}

fn is_allowed(effect: &Effect, grant: &Grant) -> bool {
    matches!(judge(std::slice::from_ref(effect), grant), Verdict::Allowed(_))
}

/// Any effect; files mostly near the edges of what these grants allow.
fn effect(maker: &mut Generator<'_>, grants: &[&Grant]) -> Effect {
    let words = maker.vocabulary;
    let thing = |rng: &mut TestRng| Arc::clone(rng.pick(&words.programs_and_hosts));
    match maker.rng.below(12) {
        0 | 1 => Effect::Use(Arc::clone(maker.rng.pick(&words.tools))),
        2..5 => Effect::Read(file(maker, grants)),
        5..8 => Effect::Write(file(maker, grants)),
        8 => Effect::Run(thing(&mut maker.rng)),
        9 => Effect::Connect(thing(&mut maker.rng)),
        10 => {
            let lineage = (0..maker.rng.between(0, 2)).map(|_| Arc::clone(maker.rng.pick(&words.presets)));
            Effect::Create(lineage.collect())
        }
        _ => {
            let kinships = [Relation::Itself, Relation::Parent, Relation::Descendant, Relation::Other];
            let stranger = maker.rng.percent(20).then(unknown_agent);
            let agent = stranger.unwrap_or_else(|| maker.rng.pick(&words.ids).clone());
            Effect::Reach(agent, *maker.rng.pick(&kinships))
        }
    }
}

fn file(maker: &mut Generator<'_>, grants: &[&Grant]) -> FilePath {
    let grant = maker.rng.pick(grants);
    let edges = match maker.rng.below(4) {
        0 => grant.read.roots(),
        1 => grant.write.roots(),
        2 => grant.blocked.as_slice(),
        _ => &[],
    };
    if edges.is_empty() {
        return maker.vocabulary.path(&mut maker.rng, 0, 4);
    }
    let edge = maker.rng.pick(edges).clone();
    maker.vocabulary.path_near(&mut maker.rng, &edge)
}
