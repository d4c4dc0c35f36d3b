//! Declaration of all settings: key, type, default, value kind and description. `Config`, the names in the file and in
//! the environment, `config show` and the reference page are all generated from it.

use agent::journal::RestartPolicy;
use runtime::DefaultAnswer;
use store::Durability;
use tracing::Level;

use super::Origin;
use super::choice::Choice;
use super::named_tables::NamedTable;
use super::presets::CustomPreset;
use super::value_kind::{SettingField, SettingValue, ValueKind};
use crate::local_engine::LocalEngine;

const DAY_MS: u64 = 86_400_000;
const YEAR_S: u64 = 31_536_000;
const GIB: u64 = 1_073_741_824;

/// Descriptor of one setting.
pub(crate) struct Setting {
    /// The dotted TOML key.
    pub(crate) key: &'static str,
    pub(crate) kind: ValueKind,
    doc: &'static str,
    /// Stores a validated value in its field; false when the field's type cannot hold it.
    pub(crate) set: fn(&mut Config, SettingValue) -> bool,
    pub(crate) get: fn(&Config) -> SettingValue,
}

impl Setting {
    /// Name of the key's table; empty at the top level.
    pub(crate) fn table(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(table, _)| table)
    }

    /// Key without its table.
    pub(crate) fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    pub(crate) fn environment_variable(&self) -> String {
        format!("NEXUS3_{}", self.key.replace('.', "_").to_uppercase())
    }

    pub(crate) fn doc(&self) -> &'static str {
        self.doc.trim()
    }
}

/// Finds a setting's index in `SETTINGS` by its dotted key.
pub(crate) fn setting_index(key: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.key == key)
}

macro_rules! settings {
    (
        $( #[doc = $doc:literal] $key:ident: $type:ty = $default:expr, $kind:expr; )*
        $(
            [$table:ident] $Table:ident: $about:literal;
            $( #[doc = $sub_doc:literal] $sub_key:ident: $sub_type:ty = $sub_default:expr, $sub_kind:expr; )*
        )*
    ) => {
        /// The effective configuration: the value and origin of every setting, the custom presets and named tables.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct Config {
            $( #[doc = $doc] pub(super) $key: $type, )*
            $( #[doc = $about] pub(super) $table: $Table, )*
            /// Origin of each value, in the order of `SETTINGS`.
            pub(super) origins: Vec<Origin>,
            /// Custom presets, in file order.
            pub(super) custom_presets: Vec<CustomPreset>,
            /// Provider and model tables, in file order.
            pub(super) named: Vec<NamedTable>,
        }

        $(
            #[doc = $about]
            #[derive(Debug, Clone, PartialEq)]
            pub(crate) struct $Table {
                $( #[doc = $sub_doc] pub(crate) $sub_key: $sub_type, )*
            }
        )*

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $( $key: $default, )*
                    $( $table: $Table { $( $sub_key: $sub_default, )* }, )*
                    origins: vec![Origin::Default; SETTINGS.len()],
                    custom_presets: Vec::new(),
                    named: Vec::new(),
                }
            }
        }

        /// Descriptors of all settings.
        pub(crate) static SETTINGS: &[Setting] = &[
            $( Setting {
                key: stringify!($key),
                kind: $kind,
                doc: $doc,
                set: |config, value| SettingField::set(&mut config.$key, value),
                get: |config| SettingField::get(&config.$key),
            }, )*
            $( $( Setting {
                key: concat!(stringify!($table), ".", stringify!($sub_key)),
                kind: $sub_kind,
                doc: $sub_doc,
                set: |config, value| SettingField::set(&mut config.$table.$sub_key, value),
                get: |config| SettingField::get(&config.$table.$sub_key),
            }, )* )*
        ];

        /// Names and descriptions of the tables in the file.
        pub(crate) static TABLES: &[(&str, &str)] = &[ $( (stringify!($table), $about), )* ];
    };
}

// Each entry is its description, then `key: type = default, value kind`. Lower bounds keep the daemon usable (a channel
// needs a capacity of at least one), upper bounds catch typing errors.
settings! {
    /// Address to listen on; only loopback is allowed.
    host: String = "127.0.0.1".to_owned(), ValueKind::Host;
    /// Port to listen on; 0 takes any free port.
    port: u16 = 8765, ValueKind::Integer { min: 0, max: 65_535 };
    /// Whether requests need the token; Host and Origin are checked in any case.
    auth: bool = true, ValueKind::Boolean;
    /// Web origins that may call the daemon from a browser.
    allowed_origins: Vec<String> = Vec::new(), ValueKind::Origins;
    /// Default model of agents created without one.
    model: Option<String> = None, ValueKind::Model;
    /// Models to try, in order, when a model fails before its response starts.
    fallback: Vec<String> = Vec::new(), ValueKind::Models;
    /// Inference engine for local models: `own` (built in), or `llama-cpp` if nexus3 was built with it.
    local_engine: LocalEngine = LocalEngine::Own, ValueKind::OneOf(LocalEngine::NAMES);
    /// Record every model exchange to this new file, for `replay`.
    record: Option<String> = None, ValueKind::SingleLine;
    /// Replay this recording instead of calling models; a request that is not in it fails.
    replay: Option<String> = None, ValueKind::SingleLine;
    /// Preset of agents created without one; not yolo or a preset that extends it.
    default_preset: String = "sandboxed".to_owned(), ValueKind::Preset;
    /// Stop after this many seconds without a request or a running turn; 0 never stops.
    idle_timeout_s: u64 = 0, ValueKind::Integer { min: 0, max: YEAR_S };
    /// Time that running turns have to end when the daemon shuts down.
    stop_grace_ms: u64 = 10_000, ValueKind::Integer { min: 0, max: 3_600_000 };
    /// When data counts as saved: `full` (survives power loss) or `normal` (survives a crash of the daemon).
    durability: Durability = Durability::Full, ValueKind::OneOf(Durability::NAMES);
    /// Default policy for turns that a crash interrupted: `resume` them, or `mark` them as interrupted.
    on_restart: RestartPolicy = RestartPolicy::Resume, ValueKind::OneOf(RestartPolicy::NAMES);
    /// Answer to approval requests that are not answered in time: `deny` or `allow`.
    approval_default: DefaultAnswer = DefaultAnswer::Deny, ValueKind::OneOf(DefaultAnswer::NAMES);
    /// Idle seconds after which an agent is unloaded from memory until its next request; 0 never unloads.
    idle_sleep_s: u64 = 600, ValueKind::Integer { min: 0, max: YEAR_S };

    [context] ContextSettings: "Context that agents get besides their messages, and compaction.";
    /// Whether agents without a prompt get the default one: built-in text, NEXUS.md, project notes, working directory.
    layers: bool = true, ValueKind::Boolean;
    /// Whether the current time, the git branch and the remaining budgets follow the last message.
    tail: bool = true, ValueKind::Boolean;
    /// Timeout for summarizing older messages with a model; on timeout they are dropped instead.
    summary_ms: u64 = 120_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Cache size for full tool results that were truncated for a model, for all agents together.
    results_bytes_max: usize = 67_108_864, ValueKind::Integer { min: 0, max: GIB };

    [commands] CommandSettings: "Commands that agents run in the sandbox.";
    /// Directories that every command may read, besides those of the system and of `PATH`; for toolchains.
    read_paths: Vec<String> = Vec::new(), ValueKind::Paths;
    /// Maximum private memory of each process of a command.
    memory_bytes_max: u64 = 4_294_967_296, ValueKind::Integer { min: 16_777_216, max: 1024 * GIB };
    /// Maximum size of a file that a command writes.
    file_bytes_max: u64 = 4_294_967_296, ValueKind::Integer { min: 4_096, max: 1024 * GIB };
    /// Maximum number of processes of a command.
    processes_max: u64 = 4_096, ValueKind::Integer { min: 1, max: 1_000_000 };

    [limits] LimitSettings: "Limits on requests, connections, agents and turns.";
    /// Maximum size of a request body; a larger one gets status 413.
    body_bytes_max: usize = 1_048_576, ValueKind::Integer { min: 1, max: GIB };
    /// Maximum length of the request line (method, path, version).
    request_line_bytes_max: usize = 8_192, ValueKind::Integer { min: 64, max: 1_048_576 };
    /// Maximum total size of all header lines.
    head_bytes_max: usize = 32_768, ValueKind::Integer { min: 256, max: 16_777_216 };
    /// Maximum number of headers in a request.
    headers_max: usize = 128, ValueKind::Integer { min: 4, max: 10_000 };
    /// Maximum length of a header name.
    header_name_bytes_max: usize = 1_024, ValueKind::Integer { min: 32, max: 65_536 };
    /// Maximum length of a header value.
    header_value_bytes_max: usize = 8_192, ValueKind::Integer { min: 128, max: 1_048_576 };
    /// Timeout for the first byte on a new connection.
    first_byte_ms: u64 = 30_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Timeout for a request head, from its first byte.
    head_ms: u64 = 10_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Timeout for a request body, from the end of the head.
    body_ms: u64 = 30_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Timeout for a client that does not read its response.
    write_ms: u64 = 30_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Keep-alive timeout: idle time between two requests on a connection.
    keep_alive_ms: u64 = 75_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Maximum number of open connections.
    connections_max: usize = 16_384, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// Maximum number of agents, live and asleep.
    agents_max: usize = 100_000, ValueKind::Integer { min: 1, max: 10_000_000 };
    /// Maximum number of agents in memory; the least recently used ones are put to sleep for others.
    live_agents_max: usize = 4_096, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// Maximum number of running turns; further turns are queued.
    turns_running_max: usize = 256, ValueKind::Integer { min: 1, max: 65_536 };
    /// Maximum number of queued turns over all agents; beyond it, a send fails with "busy".
    turns_queued_max: usize = 8_192, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// Maximum number of queued turns per agent.
    agent_queue_max: usize = 1_024, ValueKind::Integer { min: 1, max: 65_536 };
    /// Maximum number of tool-call rounds in a turn.
    tool_iterations_max: u32 = 10, ValueKind::Integer { min: 1, max: 10_000 };
    /// Maximum number of concurrent tool calls in a turn.
    tools_running_max: usize = 10, ValueKind::Integer { min: 1, max: 1_024 };
    /// Maximum size of a tool result sent to a model; longer results are truncated.
    tool_result_bytes_max: usize = 1_048_576, ValueKind::Integer { min: 1_024, max: GIB };
    /// Maximum size of one model response (text, reasoning, tool calls); a longer one ends its turn with an error.
    answer_bytes_max: usize = 8_388_608, ValueKind::Integer { min: 1_024, max: GIB };
    /// Maximum size of the model responses of all running turns, without 64 KiB each; the turn that exceeds it ends.
    running_answers_bytes_max: usize = 67_108_864, ValueKind::Integer { min: 0, max: 1_024 * GIB };
    /// Timeout for a model that sends nothing; time in a queue, in a cool-down or for `Retry-After` does not count.
    model_idle_ms: u64 = 120_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// How long a tool call waits for an approval; then `approval_default` is the answer.
    approval_s: u64 = 600, ValueKind::Integer { min: 0, max: YEAR_S };
    /// How long after its turn has ended a send with the same `request_id` gets the stored response.
    request_retention_s: u64 = 86_400, ValueKind::Integer { min: 1, max: YEAR_S };
    /// Maximum number of open event streams, without those of a `send`; one agent may open a sixteenth of them.
    event_streams_max: usize = 1_024, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// Interval of heartbeats on a silent event stream.
    heartbeat_ms: u64 = 15_000, ValueKind::Integer { min: 10, max: DAY_MS };

    [log] LogSettings: "Log outputs, levels and rotation.";
    /// Log level on standard error.
    level: Level = Level::INFO, ValueKind::OneOf(Level::NAMES);
    /// Log to standard error as JSON lines.
    json: bool = false, ValueKind::Boolean;
    /// Write each agent's events to its `verbose.md`.
    verbose: bool = false, ValueKind::Boolean;
    /// Write each agent's model exchanges to its `raw.jsonl`.
    raw: bool = false, ValueKind::Boolean;
    /// Size at which a log file is rotated.
    file_bytes_max: u64 = 5_242_880, ValueKind::Integer { min: 4_096, max: 1_024 * GIB };
    /// Number of files per log, including the current one.
    files_max: usize = 3, ValueKind::Integer { min: 1, max: 100 };
}
