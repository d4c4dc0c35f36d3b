//! Git tools: they read a repository with the room `git`, in a helper process that executes and writes nothing.

mod blame;
mod diff;
mod log;
mod request;
mod show;
mod status;

use sandbox::BuiltIn;

use crate::definition::{ToolEntry, tool};
use crate::fs::is_credential;

/// The built-ins of the sandbox helper that the tools use. The program that is the helper passes them to it; the daemon itself
/// parses no repository.
pub const BUILT_INS: &[BuiltIn] =
    &[BuiltIn { name: GIT, run: |request| git::answer(request, is_credential) }];

/// The name of the built-in.
const GIT: &str = "git";

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[
    tool::<status::Status>(),
    tool::<diff::Diff>(),
    tool::<log::Log>(),
    tool::<show::Show>(),
    tool::<blame::Blame>(),
];
