//! Distributes the settings to the rooms. Only this file reads the fields of `Config`, and it destructures them without
//! `..`: a setting that no room reads does not compile.
#![deny(unused_variables, dead_code)]

use std::time::Duration;

use agent::journal::RestartPolicy;
use runtime::{ContextOptions, DefaultAnswer, DefaultPrompt, Limits, VolatileSuffix};
use sandbox::ResourceLimits;
use server::http::HttpLimits;
use store::Durability;

use super::Config;
use super::settings::{CommandSettings, ContextSettings, LimitSettings, LogSettings};
use crate::local_engine::LocalEngine;

/// The settings in the types of the rooms that read them.
pub(crate) struct RoomOptions<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) auth: bool,
    pub(crate) allowed_origins: &'a [String],
    pub(crate) http_limits: HttpLimits,
    pub(crate) model: Option<&'a str>,
    pub(crate) fallback: &'a [String],
    pub(crate) local_engine: LocalEngine,
    pub(crate) record: Option<&'a str>,
    pub(crate) replay: Option<&'a str>,
    pub(crate) default_preset: &'a str,
    pub(crate) on_restart: RestartPolicy,
    pub(crate) approval_default: DefaultAnswer,
    pub(crate) context: ContextOptions,
    pub(crate) command_paths: &'a [String],
    pub(crate) command_limits: ResourceLimits,
    pub(crate) runtime_limits: Limits,
    pub(crate) durability: Durability,
    pub(crate) idle_timeout_s: u64,
    pub(crate) stop_grace_ms: u64,
    pub(crate) log: &'a LogSettings,
}

impl Config {
    pub(crate) fn room_options(&self) -> RoomOptions<'_> {
        let Self {
            host,
            port,
            auth,
            allowed_origins,
            model,
            fallback,
            local_engine,
            record,
            replay,
            default_preset,
            idle_timeout_s,
            stop_grace_ms,
            durability,
            on_restart,
            approval_default,
            idle_sleep_s,
            context,
            commands,
            limits,
            log,
            // No settings: `config show`, `Config::presets`, and `Config::provider_settings` read them.
            origins: _,
            custom_presets: _,
            named: _,
        } = self;
        let ContextSettings { layers, tail, summary_ms, results_bytes_max } = context;
        let CommandSettings { read_paths, memory_bytes_max, file_bytes_max, processes_max } = commands;
        let other = Limits {
            output_cache_bytes_max: *results_bytes_max,
            summary_timeout: Duration::from_millis(*summary_ms),
            idle_before_sleep: Duration::from_secs(*idle_sleep_s),
            ..Limits::default()
        };
        let (http_limits, runtime_limits) = room_limits(limits, &other);
        RoomOptions {
            host,
            port: *port,
            auth: *auth,
            allowed_origins,
            http_limits,
            model: model.as_deref(),
            fallback,
            local_engine: *local_engine,
            record: record.as_deref(),
            replay: replay.as_deref(),
            default_preset,
            on_restart: *on_restart,
            approval_default: *approval_default,
            context: ContextOptions {
                prompt: if *layers { DefaultPrompt::Layers } else { DefaultPrompt::Nothing },
                volatile_suffix: if *tail { VolatileSuffix::On } else { VolatileSuffix::Off },
                operating_system: std::env::consts::OS,
            },
            command_paths: read_paths,
            command_limits: ResourceLimits {
                memory_bytes_max: *memory_bytes_max,
                file_bytes_max: *file_bytes_max,
                processes_max: *processes_max,
                ..ResourceLimits::default()
            },
            runtime_limits,
            durability: *durability,
            idle_timeout_s: *idle_timeout_s,
            stop_grace_ms: *stop_grace_ms,
            log,
        }
    }
}

/// Splits the table `[limits]`; `other` has the limits of the runtime from other tables.
fn room_limits(limits: &LimitSettings, other: &Limits) -> (HttpLimits, Limits) {
    let ms = Duration::from_millis;
    let LimitSettings {
        body_bytes_max,
        request_line_bytes_max,
        head_bytes_max,
        headers_max,
        header_name_bytes_max,
        header_value_bytes_max,
        first_byte_ms,
        head_ms,
        body_ms,
        write_ms,
        keep_alive_ms,
        connections_max,
        agents_max,
        live_agents_max,
        turns_running_max,
        turns_queued_max,
        agent_queue_max,
        tool_iterations_max,
        tools_running_max,
        tool_result_bytes_max,
        answer_bytes_max,
        running_answers_bytes_max,
        model_idle_ms,
        approval_s,
        request_retention_s,
        event_streams_max,
        heartbeat_ms,
    } = *limits;
    let http = HttpLimits {
        body_bytes_max: body_bytes_max as u64,
        request_line_bytes_max,
        head_bytes_max,
        headers_max,
        header_name_bytes_max,
        header_value_bytes_max,
        first_byte_timeout: ms(first_byte_ms),
        head_timeout: ms(head_ms),
        body_timeout: ms(body_ms),
        write_timeout: ms(write_ms),
        keep_alive_timeout: ms(keep_alive_ms),
        connections_max,
        event_streams_max,
        heartbeat_interval: ms(heartbeat_ms),
    };
    let runtime = Limits {
        agents_max,
        live_agents_max,
        turns_running_max,
        turns_open_max: turns_running_max + turns_queued_max,
        agent_turns_open_max: agent_queue_max + 1,
        tool_iterations_max: tool_iterations_max.into(),
        model_idle_timeout: ms(model_idle_ms),
        tools_running_max,
        tool_result_bytes_max,
        answer_bytes_max,
        running_answers_bytes_max,
        approval_timeout: Duration::from_secs(approval_s),
        request_retention: Duration::from_secs(request_retention_s),
        ..other.clone()
    };
    (http, runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_equal_the_default_limits_of_the_rooms() {
        let config = Config::default();
        let options = config.room_options();
        assert_eq!(options.http_limits, HttpLimits::default());
        assert_eq!(options.runtime_limits, Limits::default());
    }
}
