//! Layered configuration: defaults, then `config.toml`, then the environment, then flags. Reports all problems of all
//! layers at once and records the origin of each value. The settings are declared in `settings`.

mod choice;
mod file;
mod line_index;
mod named_tables;
mod presets;
mod render;
mod room_options;
mod settings;
mod suggest;
#[cfg(test)]
mod tests;
mod value_kind;
mod web_origin;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

pub(crate) use self::choice::Choice;
use self::file::FileLayer;
pub(crate) use self::named_tables::SecretSource;
pub(crate) use self::render::{reference, show};
pub(crate) use self::room_options::RoomOptions;
pub(crate) use self::settings::{Config, LogSettings};
use self::settings::{SETTINGS, setting_index};
use self::value_kind::{InvalidValue, SettingValue, quote};

/// Size limit of `config.toml`: stops an endless read when the path is a device or a wrong link.
const FILE_BYTES_MAX: u64 = 65_536;

/// Problems that are listed; further ones are only counted.
const PROBLEMS_MAX: usize = 50;

/// The layer that a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { line: usize },
    Environment,
    Flag,
}

/// All problems of the configuration, one per line (a syntax error also shows its source line).
#[derive(Debug, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub(crate) struct ConfigFault {
    pub(crate) problems: Vec<String>,
}

/// Loads and merges all layers. `flags` are pairs of a setting's key and the text given on the command line.
pub(crate) fn load(
    home: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[(&'static str, String)],
) -> Result<Config, ConfigFault> {
    let env: Vec<(OsString, OsString)> = env.into_iter().collect();
    let user_home = env.iter().find(|(name, _)| name == "HOME").and_then(|(_, value)| value.to_str());
    let user_home = user_home.filter(|path| path.starts_with('/'));
    let mut builder = ConfigBuilder::default();
    match read_file(&home.join("config.toml")) {
        Ok(Some(text)) => builder.add_file(file::parse(&text, user_home)),
        Ok(None) => {}
        Err(problem) => builder.problems.push(problem),
    }
    builder.add_environment(env);
    builder.add_flags(flags);
    builder.finish()
}

/// Warnings about `NEXUS3_*` variables that nexus3 does not read, each with the nearest name. Not a problem: the variable
/// may belong to another version, or to a program around nexus3.
pub(crate) fn unknown_variables(env: &[(OsString, OsString)]) -> Vec<String> {
    let names = own_variables(env.iter().cloned()).into_keys();
    names
        .filter(|name| setting_of_variable(name).is_none() && !suggest::is_non_setting_variable(name))
        .map(|name| {
            let hint = suggest::for_variable(&name);
            format!("environment: {} is ignored: it is not a setting{hint}", name.escape_debug())
        })
        .collect()
}

/// The variables with the prefix of nexus3, sorted, so that they are always reported in the same order.
fn own_variables(env: impl IntoIterator<Item = (OsString, OsString)>) -> BTreeMap<String, OsString> {
    env.into_iter()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| name.starts_with("NEXUS3_"))
        .collect()
}

fn setting_of_variable(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.environment_variable() == name)
}

/// Reads the file's text; `None` when the file does not exist.
fn read_file(path: &Path) -> Result<Option<String>, String> {
    let problem = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => {
            // The user meant a dangling link to be a configuration: an error, not a missing file.
            let is_link = fs::symlink_metadata(path).is_ok();
            return if is_link { Err(problem(&"the link's target does not exist")) } else { Ok(None) };
        }
        Err(fault) => return Err(problem(&fault)),
    };
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a directory" } else { "not a regular file" };
        return Err(problem(&format_args!("it is {kind}")));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|fault| problem(&fault))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        return Err(problem(&format_args!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|fault| {
        let valid = &fault.as_bytes()[..fault.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        problem(&format_args!("line {line} is not UTF-8"))
    })
}

/// Merges the layers; a later layer overrides an earlier one.
#[derive(Default)]
struct ConfigBuilder {
    config: Config,
    /// Names of rejected presets: references to them are not reported again.
    invalid_presets: Vec<String>,
    problems: Vec<String>,
}

impl ConfigBuilder {
    fn add_file(&mut self, layer: FileLayer) {
        self.problems.extend(layer.problems);
        self.config.custom_presets = layer.presets.presets;
        self.invalid_presets = layer.presets.invalid_names;
        self.config.named = layer.named_tables;
        for entry in layer.entries {
            let at = format!("config.toml:{}: {}", entry.line, SETTINGS[entry.setting_index].key);
            self.apply(entry.setting_index, Ok(entry.value), Origin::File { line: entry.line }, &at);
        }
    }

    fn add_environment(&mut self, env: impl IntoIterator<Item = (OsString, OsString)>) {
        for (name, value) in own_variables(env) {
            let Some(setting) = setting_of_variable(&name) else { continue };
            let read = match value.to_str() {
                Some(text) => SETTINGS[setting].kind.parse_text(text),
                None => Err(InvalidValue::new("text that is not UTF-8".to_owned())),
            };
            self.apply(setting, read, Origin::Environment, &format!("environment: {name}"));
        }
    }

    fn add_flags(&mut self, flags: &[(&'static str, String)]) {
        for (key, text) in flags {
            let name = flag_name(key);
            match setting_index(key) {
                Some(setting) => {
                    let read = SETTINGS[setting].kind.parse_text(text);
                    self.apply(setting, read, Origin::Flag, &name);
                }
                None => self.problems.push(format!("{name} {} is not a setting", quote(text))),
            }
        }
    }

    /// Sets a value, or adds a problem that calls the setting by `name`, its name in the layer.
    fn apply(
        &mut self,
        setting: usize,
        read: Result<SettingValue, InvalidValue>,
        origin: Origin,
        name: &str,
    ) {
        let expected = || SETTINGS[setting].kind.expected();
        match read {
            Ok(value) if (SETTINGS[setting].set)(&mut self.config, value.clone()) => {
                self.config.origins[setting] = origin;
            }
            Ok(value) => {
                let got = value.to_toml().unwrap_or_default();
                self.problems.push(format!("{name} must be {}, got {got}", expected()));
            }
            Err(invalid) => self.problems.push(format!("{name} must be {}, got {}", expected(), invalid.got)),
        }
    }

    /// Checks the default preset. Needs all layers: one may define the preset that another selects.
    fn check_default_preset(&mut self) {
        let Some(setting) = setting_index("default_preset") else { return };
        let Some(got) = self.config.default_preset_problem(&self.invalid_presets) else { return };
        let name = match &self.config.origins[setting] {
            Origin::Default => SETTINGS[setting].key.to_owned(),
            Origin::File { line } => format!("config.toml:{line}: {}", SETTINGS[setting].key),
            Origin::Environment => format!("environment: {}", SETTINGS[setting].environment_variable()),
            Origin::Flag => flag_name(SETTINGS[setting].key),
        };
        self.problems.push(format!("{name} must be {}, got {got}", SETTINGS[setting].kind.expected()));
    }

    fn finish(mut self) -> Result<Config, ConfigFault> {
        self.check_default_preset();
        if self.problems.is_empty() {
            return Ok(self.config);
        }
        let excess = self.problems.len().saturating_sub(PROBLEMS_MAX);
        if excess > 0 {
            self.problems.truncate(PROBLEMS_MAX);
            self.problems.push(format!("and {excess} more problems"));
        }
        Err(ConfigFault { problems: self.problems })
    }
}

/// Returns a setting's name on the command line: `--limits-head-ms` for `limits.head_ms`.
fn flag_name(key: &str) -> String {
    format!("--{}", key.replace(['.', '_'], "-"))
}
