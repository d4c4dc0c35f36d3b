//! The scripts of the simulation and their expected ends. In a template `@` is replaced by an agent's name and `$` by
//! the script of a message to it.

use agent::FaultKind;
use testkit::TestRng;

/// Agent names. The fewer a run uses, the more its agents interact.
const NAMES: &[&str] = &["a", "b", "c", ".t", "e"];

/// A script, and how it ends without interference.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) script: String,
    pub(crate) expected_end: ExpectedEnd,
    /// Whether it waits for a release, and so may time out.
    pub(crate) may_time_out: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpectedEnd {
    Replies(&'static str),
    Completes,
    Fails(FaultKind),
}

use ExpectedEnd::{Completes, Fails, Replies};

const PLAIN_SCRIPTS: &[(&str, ExpectedEnd)] = &[
    ("report 3; say hello; done", Replies("hello")),
    ("say a; yield; say b; yield; report 2; say c; yield; done", Replies("abc")),
    ("say a; pass 700; say b; pass 700; done", Replies("ab")),
    ("pass 9000000; say late; done", Fails(FaultKind::Model)),
    ("say a; wait; say b; report 1; done", Replies("ab")),
    ("wait; done", Completes),
    ("say a; fail", Fails(FaultKind::Model)),
    ("report 1; fail", Fails(FaultKind::Model)),
    ("say a; call note", Fails(FaultKind::Model)),
    ("", Fails(FaultKind::Model)),
    ("panic-at-call", Fails(FaultKind::Internal)),
    ("say a; yield; panic", Fails(FaultKind::Internal)),
    ("panic-at-drop; say a; done", Replies("a")),
    ("panic-at-drop; say a; wait; done", Replies("a")),
    ("done", Completes),
    ("done | say u; done", Completes),
    ("flood 300; done", Completes),
];

const TOOL_SCRIPTS: &[(&str, ExpectedEnd)] = &[
    ("report 1; say t; call note x; call note y; done", Completes),
    ("call note x; yield; done | call note y; done | say u; done", Completes),
    ("call note x; done | say t; wait; say u; done", Completes),
    ("call note x; done | panic", Completes),
    (
        "call note x; call slow 50; call step 20; call broken; call note !; call step 5; done | say u; done",
        Completes,
    ),
    ("say t; call slow release; call note; done | report 2; say u; done", Completes),
    ("call step release; call slow 10; call step 10; call slow 10; done | say u; done", Completes),
    (
        "call panics; call panics_at_drop release; call panics_at_effects; call note; done | say u; done",
        Completes,
    ),
    ("call panics_at_prepare; call panics_at_drop 30; call slow 90000; done | say u; done", Completes),
    ("call read x; call write y; call read /elsewhere/z; call write a/deep/q; done | say u; done", Completes),
    ("call note; call note; call note; call slow 5; call note; done", Completes),
    ("call long 5000; call read a/x; done | call write b/y; done | say u; done", Completes),
    ("call nonsense; call note !; done", Completes),
    (
        "report 2; call slow 300; done | report 2; call slow 300; done | report 2; call slow 300; done",
        Completes,
    ),
];

const AGENT_SCRIPTS: &[(&str, ExpectedEnd)] = &[
    ("call agent_create {id=@ wait=yes $}; done | say u; done", Completes),
    ("call agent_create {preset=worker $}; call note; done | say u; done", Completes),
    ("call agent_create {id=@ cwd=a write=deep}; call agent_list; done | say u; done", Completes),
    (
        "call agent_create {id=@ disable=note preset=sandboxed wait=yes $}; call slow 20; done | say u; done",
        Completes,
    ),
    ("call agent_send {to=@ wait=yes $}; done | say u; done", Completes),
    ("say t; call agent_send {to=@ wait=yes $}; call slow release; done | say u; done", Completes),
    (
        "call agent_send {to=@ wait=yes $}; call agent_send {to=@ wait=yes $}; call note; done | say u; done",
        Completes,
    ),
    ("call agent_send {to=@ $}; call agent_status to=@; call agent_list; done | say u; done", Completes),
    (
        "call agent_send {to=@ wait=yes $}; call step 5; call agent_send {to=@ wait=yes $}; done | wait; say u; done",
        Completes,
    ),
    ("call agent_destroy to=@; call agent_send {to=@ wait=yes $}; done | say u; done", Completes),
    ("call agent_cancel {to=@ request=unknown}; call agent_send {to=@ $}; done | say u; done", Completes),
];

const STEER_SCRIPTS: &[&str] =
    &["say steered; done", "call note; done | say steered; done", "call slow 20; yield; done | done"];

/// Generates scripts, each with a unique label.
pub(crate) struct ScenarioWriter {
    script_count: usize,
    conversation_percent: usize,
    pub(crate) names: &'static [&'static str],
}

impl ScenarioWriter {
    pub(crate) fn new(conversation_percent: usize, name_count: usize) -> Self {
        Self { script_count: 0, conversation_percent, names: &NAMES[..name_count] }
    }

    fn random_scripts(&self, rng: &mut TestRng) -> &'static [(&'static str, ExpectedEnd)] {
        match rng.percent(self.conversation_percent) {
            true => AGENT_SCRIPTS,
            false if rng.percent(60) => PLAIN_SCRIPTS,
            false => TOOL_SCRIPTS,
        }
    }

    /// A script for a send of the simulation.
    pub(crate) fn scenario(&mut self, rng: &mut TestRng, number: usize, rounds_max: u64) -> Scenario {
        let scripts = self.random_scripts(rng);
        let (template, expected_end) = *rng.pick(scripts);
        // A script with panics in its later rounds completes only when the rounds run out before.
        let expected_end = match expected_end {
            Completes if template.ends_with("panic") && rounds_max > 1 => Fails(FaultKind::Internal),
            other => other,
        };
        let script = format!("#{number} {}", self.fill_template(template, rng, 0));
        Scenario { may_time_out: script.contains("wait"), script, expected_end }
    }

    /// A script for a first message, or for a message to another agent.
    pub(crate) fn message(&mut self, rng: &mut TestRng, depth: usize) -> String {
        let scripts = if depth >= 3 { PLAIN_SCRIPTS } else { self.random_scripts(rng) };
        self.script_count += 1;
        let label = self.script_count;
        let (template, _) = *rng.pick(scripts);
        format!("#n{label} {}", self.fill_template(template, rng, depth + 1))
    }

    /// A script for a steering instruction.
    pub(crate) fn steer(&mut self, rng: &mut TestRng) -> String {
        self.script_count += 1;
        format!("{}{} {}", crate::history::STEER_PREFIX, self.script_count, rng.pick(STEER_SCRIPTS))
    }

    fn fill_template(&mut self, template: &str, rng: &mut TestRng, depth: usize) -> String {
        let mut script = String::new();
        for character in template.chars() {
            match character {
                '@' => script.push_str(rng.pick::<&str>(self.names)),
                '$' => script.push_str(&self.message(rng, depth)),
                character => script.push(character),
            }
        }
        script
    }
}

impl Scenario {
    pub(crate) fn matches_completed(&self, content: &str) -> bool {
        match self.expected_end {
            Replies(text) => content == text,
            Completes => true,
            Fails(_) => false,
        }
    }

    pub(crate) fn accepts_partial(&self, content: &str) -> bool {
        match self.expected_end {
            Replies(text) => text.starts_with(content),
            Completes | Fails(_) => true,
        }
    }

    pub(crate) fn accepts_fault(&self, kind: FaultKind) -> bool {
        let is_scripted = matches!(self.expected_end, Fails(fails) if fails == kind);
        is_scripted || (self.may_time_out && kind == FaultKind::Model)
    }
}
