//! The one list of tools, in the order models are shown them. A new tool is a file and a line here.

use std::sync::Arc;

use agent::outside::Tool;

use crate::define::{Parts, tool};
use crate::{agents, base64, fs, hash, json, regex, result, text, time, uuid};

pub(crate) fn tools(parts: &Arc<Parts>) -> Vec<Arc<dyn Tool>> {
    vec![
        tool::<text::Echo>(parts),
        tool::<time::GetTime>(parts),
        tool::<base64::Encode>(parts),
        tool::<base64::Decode>(parts),
        tool::<json::Parse>(parts),
        tool::<json::Query>(parts),
        tool::<uuid::Generate>(parts),
        tool::<hash::Sha256>(parts),
        tool::<regex::Match>(parts),
        tool::<regex::Replace>(parts),
        tool::<fs::ReadFile>(parts),
        tool::<fs::WriteFile>(parts),
        tool::<fs::AppendFile>(parts),
        tool::<result::Read>(parts),
        tool::<agents::Create>(parts),
        tool::<agents::Send>(parts),
        tool::<agents::Status>(parts),
        tool::<agents::Cancel>(parts),
        tool::<agents::Destroy>(parts),
        tool::<agents::List>(parts),
    ]
}
