//! `get_time`: the time now.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::define::{Answer, Call, Define, compact, failed};

pub(crate) struct GetTime;

/// Returns the current time in UTC: RFC 3339 text and seconds since 1970.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {}

#[derive(Serialize)]
struct Output {
    time: String,
    timestamp: i64,
    timezone: &'static str,
}

impl Define for GetTime {
    type Input = Input;
    const NAME: &'static str = "get_time";

    async fn run(_input: Input, call: Call) -> Answer {
        let now = Timestamp::from_microsecond(call.parts.clock.now().0).map_err(failed)?;
        let time = now.strftime("%Y-%m-%dT%H:%M:%S%.9f+00:00").to_string();
        compact(&Output { time, timestamp: now.as_second(), timezone: "UTC" })
    }
}
