//! The configuration: defaults, then `config.toml`, then the environment, then flags. Every problem of every layer
//! is reported at once, and every value remembers where it came from. The settings themselves are in `settings`.

mod file;
mod line_index;
mod named_tables;
mod presets;
mod render;
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

use self::file::FileLayer;
pub(crate) use self::render::{reference, show};
pub(crate) use self::settings::Config;
use self::settings::{SETTINGS, setting_index};
pub(crate) use self::value_kind::Choice;
use self::value_kind::{InvalidValue, SettingValue, quote};

/// Far beyond any real file: it only keeps a device or a wrong link from being read without end.
const FILE_BYTES_MAX: u64 = 65_536;

/// More problems than this are counted, not listed.
const PROBLEMS_MAX: usize = 50;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { line: usize },
    Environment,
    Flag,
}

/// Everything that is wrong with the configuration, one problem a line (a syntax error also shows its source line).
#[derive(Debug, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub(crate) struct ConfigFault {
    pub(crate) problems: Vec<String>,
}

/// Reads the layers. `flags` are pairs of a setting's key and the text given on the command line.
pub(crate) fn load(
    home: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[(&'static str, String)],
) -> Result<Config, ConfigFault> {
    let env: Vec<(OsString, OsString)> = env.into_iter().collect();
    let user_home = env.iter().find(|(name, _)| name == "HOME").and_then(|(_, value)| value.to_str());
    let user_home = user_home.filter(|path| path.starts_with('/'));
    let mut layers = ConfigBuilder::default();
    match read_file(&home.join("config.toml")) {
        Ok(Some(text)) => layers.add_file(file::parse(&text, user_home)),
        Ok(None) => {}
        Err(problem) => layers.problems.push(problem),
    }
    layers.add_environment(env);
    layers.add_flags(flags);
    layers.finish()
}

/// The text of the file, nothing when there is none.
fn read_file(path: &Path) -> Result<Option<String>, String> {
    let cannot = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => {
            // A link that leads nowhere was meant to be a configuration.
            let is_link = fs::symlink_metadata(path).is_ok();
            return if is_link { Err(cannot(&"the link leads to no file")) } else { Ok(None) };
        }
        Err(fault) => return Err(cannot(&fault)),
    };
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a directory" } else { "not a regular file" };
        return Err(cannot(&format_args!("it is {what}")));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|fault| cannot(&fault))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        return Err(cannot(&format_args!("longer than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|fault| {
        let valid = &fault.as_bytes()[..fault.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        cannot(&format_args!("line {line} is not UTF-8"))
    })
}

/// The configuration while the layers are laid over each other.
#[derive(Default)]
struct ConfigBuilder {
    config: Config,
    /// Names of presets that were refused.
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
        // Sorted, so that the same mistakes are always told in the same order.
        let ours: BTreeMap<String, OsString> = env
            .into_iter()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
            .filter(|(name, _)| name.starts_with("NEXUS3_"))
            .filter(|(name, _)| !suggest::is_non_setting_variable(name))
            .collect();
        for (name, value) in ours {
            match SETTINGS.iter().position(|setting| setting.environment_variable() == name) {
                Some(setting) => {
                    let read = match value.to_str() {
                        Some(text) => SETTINGS[setting].kind.parse_text(text),
                        None => Err(InvalidValue::new("text that is not UTF-8".to_owned())),
                    };
                    self.apply(setting, read, Origin::Environment, &format!("environment: {name}"));
                }
                None => {
                    let shown = name.escape_debug();
                    let hint = suggest::for_variable(&name);
                    self.problems.push(format!("environment: {shown} is not a setting{hint}"));
                }
            }
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

    /// Takes a value, or notes the problem with the name under which the layer knows the setting.
    fn apply(
        &mut self,
        setting: usize,
        read: Result<SettingValue, InvalidValue>,
        origin: Origin,
        name: &str,
    ) {
        let must_be = || SETTINGS[setting].kind.expected();
        match read {
            Ok(value) if (SETTINGS[setting].set)(&mut self.config, value.clone()) => {
                self.config.origins[setting] = origin;
            }
            Ok(value) => {
                let got = value.to_toml().unwrap_or_default();
                self.problems.push(format!("{name} must be {}, got {got}", must_be()));
            }
            Err(refusal) => self.problems.push(format!("{name} must be {}, got {}", must_be(), refusal.got)),
        }
    }

    /// Only known when all layers are: one gives the preset, another may name it.
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
        let rest = self.problems.len().saturating_sub(PROBLEMS_MAX);
        if rest > 0 {
            self.problems.truncate(PROBLEMS_MAX);
            self.problems.push(format!("and {rest} more problems"));
        }
        Err(ConfigFault { problems: self.problems })
    }
}

/// How a setting is spelled on the command line: `limits.head_ms` is `--limits-head-ms`.
fn flag_name(key: &str) -> String {
    format!("--{}", key.replace(['.', '_'], "-"))
}
