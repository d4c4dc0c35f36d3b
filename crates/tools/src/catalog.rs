//! The one list of tools, in the order models are shown them. A new tool is a file and a line here.

use std::sync::Arc;

use agent::outside::Tool;

use crate::definition::{ToolDependencies, build_tool};
use crate::{agents, base64, fs, hash, json, regex, result, text, time, uuid};

pub(crate) fn tools(parts: &Arc<ToolDependencies>) -> Vec<Arc<dyn Tool>> {
    vec![
        build_tool::<text::Echo>(parts),
        build_tool::<time::GetTime>(parts),
        build_tool::<base64::Encode>(parts),
        build_tool::<base64::Decode>(parts),
        build_tool::<json::Parse>(parts),
        build_tool::<json::Query>(parts),
        build_tool::<uuid::Generate>(parts),
        build_tool::<hash::Sha256>(parts),
        build_tool::<regex::Match>(parts),
        build_tool::<regex::Replace>(parts),
        build_tool::<fs::ReadFile>(parts),
        build_tool::<fs::WriteFile>(parts),
        build_tool::<fs::AppendFile>(parts),
        build_tool::<result::Read>(parts),
        build_tool::<agents::Create>(parts),
        build_tool::<agents::Send>(parts),
        build_tool::<agents::Status>(parts),
        build_tool::<agents::Cancel>(parts),
        build_tool::<agents::Destroy>(parts),
        build_tool::<agents::List>(parts),
    ]
}
