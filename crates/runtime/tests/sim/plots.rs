//! The scripts of the simulation, and how each ends when nobody interferes. In a template `@` stands for the name of
//! some agent and `$` for the script of a message to it.

use agent::FaultKind;

use crate::dice::Dice;

/// The fewer of them a run uses, the more its agents have to do with each other.
const NAMES: &[&str] = &["a", "b", "c", ".t", "e"];

/// A script and how it ends when nobody interferes.
#[derive(Clone)]
pub(crate) struct Plot {
    pub(crate) script: String,
    pub(crate) ending: PlotEnding,
    /// It waits for a release and may so time out.
    pub(crate) waits: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum PlotEnding {
    Says(&'static str),
    Completes,
    Fails(FaultKind),
}

use PlotEnding::{Completes, Fails, Says};

const PLAIN: &[(&str, PlotEnding)] = &[
    ("report 3; say hello; done", Says("hello")),
    ("say a; yield; say b; yield; report 2; say c; yield; done", Says("abc")),
    ("say a; pass 700; say b; pass 700; done", Says("ab")),
    ("pass 9000000; say late; done", Fails(FaultKind::Model)),
    ("say a; wait; say b; report 1; done", Says("ab")),
    ("wait; done", Completes),
    ("say a; fail", Fails(FaultKind::Model)),
    ("report 1; fail", Fails(FaultKind::Model)),
    ("say a; call note", Fails(FaultKind::Model)),
    ("", Fails(FaultKind::Model)),
    ("panic-at-ask", Fails(FaultKind::Internal)),
    ("say a; yield; panic", Fails(FaultKind::Internal)),
    ("panic-at-drop; say a; done", Says("a")),
    ("panic-at-drop; say a; wait; done", Says("a")),
    ("done", Completes),
    ("done | say u; done", Completes),
    ("flood 300; done", Completes),
];

const WITH_TOOLS: &[(&str, PlotEnding)] = &[
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

const WITH_AGENTS: &[(&str, PlotEnding)] = &[
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
    ("call agent_cancel {to=@ request=nobodys}; call agent_send {to=@ $}; done | say u; done", Completes),
];

const STEERS: &[&str] =
    &["say steered; done", "call note; done | say steered; done", "call slow 20; yield; done | done"];

/// Makes scripts of which no two are the same.
pub(crate) struct Playwright {
    written: usize,
    talkative: usize,
    pub(crate) names: &'static [&'static str],
}

impl Playwright {
    pub(crate) fn new(talkative: usize, names: usize) -> Self {
        Self { written: 0, talkative, names: &NAMES[..names] }
    }

    fn some_plots(&self, dice: &mut Dice) -> &'static [(&'static str, PlotEnding)] {
        match dice.percent(self.talkative) {
            true => WITH_AGENTS,
            false if dice.percent(60) => PLAIN,
            false => WITH_TOOLS,
        }
    }

    /// A script for a send of the simulation's own.
    pub(crate) fn plot(&mut self, dice: &mut Dice, number: usize, rounds_max: u64) -> Plot {
        let plots = self.some_plots(dice);
        let (template, ending) = *dice.pick(plots);
        // A script with panics in its later rounds completes only when the rounds run out before.
        let ending = match ending {
            Completes if template.ends_with("panic") && rounds_max > 1 => Fails(FaultKind::Internal),
            other => other,
        };
        let script = format!("#{number} {}", self.fill(template, dice, 0));
        Plot { waits: script.contains("wait"), script, ending }
    }

    /// A first message, or one to another agent.
    pub(crate) fn message(&mut self, dice: &mut Dice, depth: usize) -> String {
        let plots = if depth >= 3 { PLAIN } else { self.some_plots(dice) };
        self.written += 1;
        let label = self.written;
        let (template, _) = *dice.pick(plots);
        format!("#n{label} {}", self.fill(template, dice, depth + 1))
    }

    /// A word to add to a turn.
    pub(crate) fn steer(&mut self, dice: &mut Dice) -> String {
        self.written += 1;
        format!("{}{} {}", crate::history::STEER, self.written, dice.pick(STEERS))
    }

    fn fill(&mut self, template: &str, dice: &mut Dice, depth: usize) -> String {
        let mut script = String::new();
        for letter in template.chars() {
            match letter {
                '@' => script.push_str(dice.pick::<&str>(self.names)),
                '$' => script.push_str(&self.message(dice, depth)),
                letter => script.push(letter),
            }
        }
        script
    }
}

impl Plot {
    pub(crate) fn is_complete(&self, content: &str) -> bool {
        match self.ending {
            Says(text) => content == text,
            Completes => true,
            Fails(_) => false,
        }
    }

    pub(crate) fn may_begin_with(&self, content: &str) -> bool {
        match self.ending {
            Says(text) => text.starts_with(content),
            Completes | Fails(_) => true,
        }
    }

    pub(crate) fn may_fail_as(&self, kind: FaultKind) -> bool {
        let plotted = matches!(self.ending, Fails(fails) if fails == kind);
        plotted || (self.waits && kind == FaultKind::Model)
    }
}
