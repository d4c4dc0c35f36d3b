//! The one list of settings: key, type, default, what it may be, what it means. `Config`, the file's and the
//! environment's names, the effective view and the reference page all come from it.

use agent::journal::RestartPolicy;
use local::generation::EngineKind;
use store::Durability;
use tracing::Level;

use super::Origin;
use super::named_tables::NamedTable;
use super::presets::CustomPreset;
use super::value_kind::{Choice, SettingField, SettingValue, ValueKind};

const DAY_MS: u64 = 86_400_000;
const YEAR_S: u64 = 31_536_000;
const GIB: u64 = 1_073_741_824;

/// One entry of the list, as the layers see it.
pub(crate) struct Setting {
    /// The dotted TOML key.
    pub(crate) key: &'static str,
    pub(crate) kind: ValueKind,
    doc: &'static str,
    /// Stores a checked value in its field; false when the field's type cannot hold it.
    pub(crate) set: fn(&mut Config, SettingValue) -> bool,
    pub(crate) get: fn(&Config) -> SettingValue,
}

impl Setting {
    /// The table a key stands in, empty at the top level.
    pub(crate) fn table(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(table, _)| table)
    }

    /// The key without its table.
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

/// Finds a setting by its dotted key.
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
        /// Every setting with its effective value, and where each value came from.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct Config {
            $( #[doc = $doc] pub(crate) $key: $type, )*
            $( #[doc = $about] pub(crate) $table: $Table, )*
            /// In the order of the list.
            pub(super) origins: Vec<Origin>,
            /// In the order of the file.
            pub(super) custom_presets: Vec<CustomPreset>,
            /// Providers and models, in the order of the file.
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

        /// The list itself.
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

        /// The tables of the file, with what each is about.
        pub(crate) static TABLES: &[(&str, &str)] = &[ $( (stringify!($table), $about), )* ];
    };
}

// One entry reads: meaning, then `key: type = default, what it may be`. Lower bounds keep the daemon usable (a
// channel needs room for one), upper bounds catch a slipped digit.
settings! {
    /// Address to listen on; anything but loopback is refused.
    host: String = "127.0.0.1".to_owned(), ValueKind::Host;
    /// Port to listen on; 0 takes any free port.
    port: u16 = 8765, ValueKind::Integer { min: 0, max: 65_535 };
    /// Whether a request needs the token; the Host and Origin rules hold either way.
    auth: bool = true, ValueKind::Boolean;
    /// Web origins that may call the daemon from a browser.
    allowed_origins: Vec<String> = Vec::new(), ValueKind::Origins;
    /// Model of agents that are created without one.
    model: Option<String> = None, ValueKind::Model;
    /// Models to ask, in turn, when another fails before its answer has begun.
    fallback: Vec<String> = Vec::new(), ValueKind::Models;
    /// What computes the models of this machine: `own`, or `llama-cpp` in a program that was built with it.
    local_engine: EngineKind = EngineKind::Native, ValueKind::OneOf(EngineKind::NAMES);
    /// Keep every exchange with a model in this new file, to be served again with `replay`.
    record: Option<String> = None, ValueKind::SingleLine;
    /// Serve the exchanges of this recording in place of models; what differs from it fails.
    replay: Option<String> = None, ValueKind::SingleLine;
    /// Preset of agents that are created without one; never yolo, nor one that extends it.
    default_preset: String = "sandboxed".to_owned(), ValueKind::Preset;
    /// Stop after this many seconds without a request or a running turn; 0 never stops.
    idle_timeout_s: u64 = 0, ValueKind::Integer { min: 0, max: YEAR_S };
    /// How long running turns may take to end once the daemon is asked to stop.
    stop_grace_ms: u64 = 10_000, ValueKind::Integer { min: 0, max: 3_600_000 };
    /// When a step counts as kept: `full` once it survives a power cut, `normal` once it survives the daemon's end.
    durability: Durability = Durability::Full, ValueKind::OneOf(Durability::NAMES);
    /// What becomes of a turn that a crash cut off, when its agent does not say: `resume` it, or `mark` it interrupted.
    on_restart: RestartPolicy = RestartPolicy::Resume, ValueKind::OneOf(RestartPolicy::NAMES);
    /// Seconds without work after which an agent leaves memory until it is called again; 0 never.
    idle_sleep_s: u64 = 600, ValueKind::Integer { min: 0, max: YEAR_S };

    [context] ContextSettings: "What agents are told beside their messages, and how contexts are made shorter.";
    /// Whether an agent without a prompt gets the built-in one, NEXUS.md of the home, notes of its folders, and where it works.
    layers: bool = true, ValueKind::Boolean;
    /// Whether the time, the branch and what is left of budgets ride behind the last message.
    tail: bool = true, ValueKind::Boolean;
    /// How long a model may take to sum older messages up; then they are dropped.
    summary_ms: u64 = 120_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Memory for whole results of tools that were cut for a model, for all agents.
    results_bytes_max: usize = 67_108_864, ValueKind::Integer { min: 0, max: GIB };

    [limits] LimitSettings: "What one client, one request or all of them together may take.";
    /// Longest request body; a longer one is answered 413.
    body_bytes_max: usize = 1_048_576, ValueKind::Integer { min: 1, max: GIB };
    /// Longest request line (method, path, version).
    request_line_bytes_max: usize = 8_192, ValueKind::Integer { min: 64, max: 1_048_576 };
    /// Most bytes of all header lines together.
    head_bytes_max: usize = 32_768, ValueKind::Integer { min: 256, max: 16_777_216 };
    /// Most headers in one request.
    headers_max: usize = 128, ValueKind::Integer { min: 4, max: 10_000 };
    /// Longest name of a header.
    header_name_bytes_max: usize = 1_024, ValueKind::Integer { min: 32, max: 65_536 };
    /// Longest value of a header.
    header_value_bytes_max: usize = 8_192, ValueKind::Integer { min: 128, max: 1_048_576 };
    /// How long a new connection may stay silent.
    first_byte_ms: u64 = 30_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Time for a request's head, from its first byte.
    head_ms: u64 = 10_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Time for a request's body, from the end of its head.
    body_ms: u64 = 30_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// How long a client may leave an answer unread.
    write_ms: u64 = 30_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// How long a connection may rest between two requests.
    keep_alive_ms: u64 = 75_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// Most connections open at once.
    connections_max: usize = 16_384, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// Most agents, live and asleep together.
    agents_max: usize = 100_000, ValueKind::Integer { min: 1, max: 10_000_000 };
    /// Most agents in memory at once; those that have rested longest are put to sleep for others.
    live_agents_max: usize = 4_096, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// Most turns running at once; the rest wait in a queue.
    turns_running_max: usize = 256, ValueKind::Integer { min: 1, max: 65_536 };
    /// Most turns waiting, over all agents; past it a send is answered "busy".
    turns_queued_max: usize = 8_192, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// Most requests waiting at one agent.
    agent_queue_max: usize = 1_024, ValueKind::Integer { min: 1, max: 65_536 };
    /// Most rounds of tool calls in one turn.
    tool_iterations_max: u32 = 10, ValueKind::Integer { min: 1, max: 10_000 };
    /// Most tool calls of one turn that run at once.
    tools_running_max: usize = 10, ValueKind::Integer { min: 1, max: 1_024 };
    /// Most bytes of a tool's result that a model is shown; the rest is cut off.
    tool_result_bytes_max: usize = 1_048_576, ValueKind::Integer { min: 1_024, max: GIB };
    /// How long a model may stay silent once it is asked; waits in a queue, in a rest or for `Retry-After` do not count.
    model_idle_ms: u64 = 120_000, ValueKind::Integer { min: 1, max: DAY_MS };
    /// How long a send's `request_id` is known after its end: until then, the same send gets the same answer.
    request_retention_s: u64 = 86_400, ValueKind::Integer { min: 1, max: YEAR_S };
    /// Most event streams open at once.
    event_streams_max: usize = 1_024, ValueKind::Integer { min: 1, max: 1_000_000 };
    /// How long an event stream may be silent before a sign of life is written.
    heartbeat_ms: u64 = 15_000, ValueKind::Integer { min: 10, max: DAY_MS };

    [log] LogSettings: "What is logged, and how much of it is kept.";
    /// Least severe level shown on standard error.
    level: Level = Level::INFO, ValueKind::OneOf(Level::NAMES);
    /// Write standard error as JSON, one object a line.
    json: bool = false, ValueKind::Boolean;
    /// Keep each agent's events in its `verbose.md`.
    verbose: bool = false, ValueKind::Boolean;
    /// Keep each agent's exchanges with the model in its `raw.jsonl`.
    raw: bool = false, ValueKind::Boolean;
    /// Size at which a log file is put aside and a new one begun.
    file_bytes_max: u64 = 5_242_880, ValueKind::Integer { min: 4_096, max: 1_024 * GIB };
    /// Files kept of each log, the current one included.
    files_max: usize = 3, ValueKind::Integer { min: 1, max: 100 };
}
