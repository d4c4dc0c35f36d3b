//! The list of all built-in tools, in the order in which models see them. To add a tool, add its file and a line here.

use std::sync::Arc;

use agent::outside::Tool;

use crate::definition::{ToolDependencies, build_tool};
use crate::{agents, base64, fs, hash, json, regex, result, text, time, uuid};

pub(crate) fn tools(dependencies: &Arc<ToolDependencies>) -> Vec<Arc<dyn Tool>> {
    vec![
        build_tool::<text::Echo>(dependencies),
        build_tool::<time::GetTime>(dependencies),
        build_tool::<base64::Encode>(dependencies),
        build_tool::<base64::Decode>(dependencies),
        build_tool::<json::Parse>(dependencies),
        build_tool::<json::Query>(dependencies),
        build_tool::<uuid::Generate>(dependencies),
        build_tool::<hash::Sha256>(dependencies),
        build_tool::<regex::Match>(dependencies),
        build_tool::<regex::Replace>(dependencies),
        build_tool::<fs::ReadFile>(dependencies),
        build_tool::<fs::WriteFile>(dependencies),
        build_tool::<fs::AppendFile>(dependencies),
        build_tool::<result::Read>(dependencies),
        build_tool::<agents::Create>(dependencies),
        build_tool::<agents::Send>(dependencies),
        build_tool::<agents::Status>(dependencies),
        build_tool::<agents::Cancel>(dependencies),
        build_tool::<agents::Destroy>(dependencies),
        build_tool::<agents::List>(dependencies),
    ]
}
