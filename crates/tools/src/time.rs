//! Time tools, and the text form of points in time.

mod get_time;
mod sleep;

use agent::ToolOutcome;
use agent::outside::Timestamp;

use crate::definition::{ToolEntry, execution_failed, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<get_time::GetTime>(), tool::<sleep::Sleep>()];

/// RFC 3339 in UTC, with nanoseconds.
pub(crate) fn rfc3339(at: Timestamp) -> Result<String, ToolOutcome> {
    let at = jiff::Timestamp::from_microsecond(at.0).map_err(execution_failed)?;
    Ok(at.strftime("%Y-%m-%dT%H:%M:%S%.9f+00:00").to_string())
}
