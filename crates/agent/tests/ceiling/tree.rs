//! A random tree of agents and changes to it: permissions can change, parents cannot.

use std::sync::Arc;

use agent::AgentId;
use agent::permission::{DEPTH_MAX, Grant, LineageLink, Permissions, Presets};

use crate::grants::Generator;

pub(crate) struct Tree {
    nodes: Vec<Node>,
}

struct Node {
    parent: Option<usize>,
    depth: u32,
    link: LineageLink,
}

impl Tree {
    pub(crate) fn grow(generator: &mut Generator<'_>, presets: &Presets) -> Self {
        let mut tree = Self { nodes: Vec::new() };
        for _ in 0..generator.rng.between(1, 8) {
            let agent = generator.rng.pick(&generator.vocabulary.ids).clone();
            let permissions = Arc::new(generator.permissions(presets));
            tree.add(generator, LineageLink { agent, serial: 0, permissions });
        }
        tree
    }

    /// Most nodes are children of the previous one, so that lineages get long.
    fn add(&mut self, generator: &mut Generator<'_>, link: LineageLink) {
        let last = self.nodes.len().checked_sub(1);
        let parent = match last {
            Some(last) if generator.rng.percent(30) => Some(generator.rng.between(0, last)),
            last => last,
        };
        let parent = parent.filter(|parent| self.nodes[*parent].depth < DEPTH_MAX);
        let depth = parent.map_or(0, |parent| self.nodes[parent].depth + 1);
        self.nodes.push(Node { parent, depth, link });
    }

    /// Changes the permissions of a random agent.
    pub(crate) fn change(&mut self, generator: &mut Generator<'_>, presets: &Presets) {
        let index = generator.rng.below(self.nodes.len());
        let node = &mut self.nodes[index];
        let old = &node.link.permissions;
        let reasons = old.reasons.clone();
        let everything = || Arc::new(Grant::everything());
        let permissions = match generator.rng.below(6) {
            0 => generator.permissions(presets),
            1 => Permissions::uniform(old.may.intersection(&generator.grant()), reasons),
            2 => Permissions {
                may_grant: Arc::new(old.may_grant.intersection(&generator.grant())),
                ..Permissions::clone(old)
            },
            3 => Permissions { may: everything(), may_grant: everything(), ..Permissions::clone(old) },
            4 => Permissions { may: everything(), ..Permissions::clone(old) },
            _ => Permissions { may_grant: everything(), ..Permissions::clone(old) },
        };
        node.link.permissions = Arc::new(permissions);
    }

    /// The lineage of every agent: itself, its parent, and so on.
    pub(crate) fn lineages(&self) -> impl Iterator<Item = Vec<LineageLink>> + '_ {
        (0..self.nodes.len()).map(|index| {
            let up = std::iter::successors(Some(index), |index| self.nodes[*index].parent);
            up.map(|index| self.nodes[index].link.clone()).collect()
        })
    }
}

/// A lineage as text, for messages.
pub(crate) fn describe_lineage(lineage: &[LineageLink]) -> String {
    lineage.iter().map(|link| link.agent.as_str()).collect::<Vec<_>>().join(" < ")
}

/// An agent that is in no tree.
pub(crate) fn unknown_agent() -> AgentId {
    AgentId::main()
}
