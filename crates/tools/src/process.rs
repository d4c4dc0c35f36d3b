//! Tools for background processes: commands in the sandbox that run on between the calls and turns of their agent.
//! [`table`] holds the processes of all agents; each tool reaches those of its own agent only.

mod background;
mod list;
mod read;
mod result;
mod start;
mod stop;
mod table;
mod write;

pub(crate) use background::BackgroundProcess;
pub(crate) use table::ProcessTable;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[
    tool::<start::Start>(),
    tool::<read::Read>(),
    tool::<write::Write>(),
    tool::<stop::Stop>(),
    tool::<list::List>(),
];
