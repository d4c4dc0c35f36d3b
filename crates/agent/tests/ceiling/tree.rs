//! A random tree of agents, and what may happen to it: every agent's authority can change, nobody's parent can.

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
    pub(crate) fn grow(maker: &mut Generator<'_>, presets: &Presets) -> Self {
        let mut tree = Self { nodes: Vec::new() };
        for _ in 0..maker.rng.between(1, 8) {
            let agent = maker.rng.pick(&maker.vocabulary.ids).clone();
            let permissions = Arc::new(maker.permissions(presets));
            tree.add(maker, LineageLink { agent, permissions });
        }
        tree
    }

    /// Most hang on the one before, so that lines get long.
    fn add(&mut self, maker: &mut Generator<'_>, link: LineageLink) {
        let last = self.nodes.len().checked_sub(1);
        let parent = match last {
            Some(last) if maker.rng.percent(30) => Some(maker.rng.between(0, last)),
            last => last,
        };
        let parent = parent.filter(|parent| self.nodes[*parent].depth < DEPTH_MAX);
        let depth = parent.map_or(0, |parent| self.nodes[parent].depth + 1);
        self.nodes.push(Node { parent, depth, link });
    }

    /// Somebody is given more or less than before.
    pub(crate) fn change(&mut self, maker: &mut Generator<'_>, presets: &Presets) {
        let place = maker.rng.below(self.nodes.len());
        let node = &mut self.nodes[place];
        let old = &node.link.permissions;
        let reasons = old.reasons.clone();
        let everything = || Arc::new(Grant::everything());
        let permissions = match maker.rng.below(6) {
            0 => maker.permissions(presets),
            1 => Permissions::uniform(old.may.intersection(&maker.grant()), reasons),
            2 => Permissions {
                may: Arc::clone(&old.may),
                may_grant: Arc::new(old.may_grant.intersection(&maker.grant())),
                reasons,
            },
            3 => Permissions { may: everything(), may_grant: everything(), reasons },
            4 => Permissions { may: everything(), may_grant: Arc::clone(&old.may_grant), reasons },
            _ => Permissions { may: Arc::clone(&old.may), may_grant: everything(), reasons },
        };
        node.link.permissions = Arc::new(permissions);
    }

    /// For every agent: itself, its parent, and so on.
    pub(crate) fn lineages(&self) -> impl Iterator<Item = Vec<LineageLink>> + '_ {
        (0..self.nodes.len()).map(|place| {
            let up = std::iter::successors(Some(place), |place| self.nodes[*place].parent);
            up.map(|place| self.nodes[place].link.clone()).collect()
        })
    }
}

/// A name for messages.
pub(crate) fn describe_lineage(line: &[LineageLink]) -> String {
    line.iter().map(|link| link.agent.as_str()).collect::<Vec<_>>().join(" < ")
}

/// Somebody who is in no tree.
pub(crate) fn unknown_agent() -> AgentId {
    AgentId::main()
}
