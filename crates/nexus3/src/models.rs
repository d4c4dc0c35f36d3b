//! `nexus3 models`: lists, downloads, verifies, removes and selects models. The crate `weights` does the work; this
//! module parses arguments and prints results.

mod args;
mod list;
mod progress_display;
mod pull;
mod set_default;

use std::path::{Path, PathBuf};

use weights::{ModelCatalog, ModelDirectory, ModelId, PullSpec, WeightsFault};

pub(crate) use self::args::ModelsArgs;
use self::args::{ListArgs, ModelsCommand, RemoveArgs};
pub(crate) use self::pull::{Consent, PullOutcome, offer_pull};
use crate::config::Config;
use crate::home::Environment;
use crate::{Failure, print_stdout, runtime_failure};

/// Provider name of downloaded models: the part before the slash.
pub(crate) const LOCAL_PROVIDER: &str = "local";

/// Id of the small model that `ask` offers when no other model is available.
const STARTER_MODEL_ID: &str = "smollm2-135m";

/// Loads the configuration with these flags as its last layer.
type LoadConfig<'a> = &'a dyn Fn(&[(&'static str, String)]) -> Result<Config, Failure>;

/// A model on a model server of this machine: its name and the server's URL.
pub(crate) type ServerRow = (String, String);

/// Runs `nexus3 models …`.
pub(crate) fn run(
    args: &ModelsArgs,
    home: &Path,
    environment: &Environment,
    load: LoadConfig<'_>,
    discover_servers: impl FnOnce() -> Result<Vec<ServerRow>, Failure>,
) -> Result<u8, Failure> {
    match &args.command {
        None => list::list(&ListArgs::default(), home, &discover_servers()?),
        Some(ModelsCommand::List(args)) => list::list(args, home, &discover_servers()?),
        Some(ModelsCommand::Info(args)) => list::info(args, home),
        Some(ModelsCommand::Pull(args)) => pull::run(args, home, environment),
        Some(ModelsCommand::Remove(args)) => remove(args, home, load),
        Some(ModelsCommand::Use(args)) => set_default::run(args, home, environment, load),
    }
}

/// Returns the small model that `ask` offers: quick to download, good enough for a first answer.
pub(crate) fn starter_model() -> Result<PullSpec, Failure> {
    let entry = builtin_catalog()?.find(STARTER_MODEL_ID).map(PullSpec::from);
    entry.ok_or_else(|| Failure::Run(format!("the catalog has no {STARTER_MODEL_ID}")))
}

/// Directory of the downloaded models.
pub(crate) fn models_directory(home: &Path) -> PathBuf {
    home.join("models")
}

fn builtin_catalog() -> Result<ModelCatalog, Failure> {
    ModelCatalog::builtin().map_err(weights_failure)
}

fn remove(args: &RemoveArgs, home: &Path, load: LoadConfig<'_>) -> Result<u8, Failure> {
    let id: ModelId = args.id.strip_prefix("local/").unwrap_or(&args.id).parse().map_err(weights_failure)?;
    let freed_bytes = ModelDirectory::at(&models_directory(home)).remove(&id).map_err(weights_failure)?;
    let name = format!("{LOCAL_PROVIDER}/{id}");
    let is_default = load(&[]).is_ok_and(|config| config.room_options().model == Some(&name));
    let hint = if is_default {
        format!("{name} is still the default model: select another with nexus3 models use NAME.\n")
    } else {
        String::new()
    };
    print_stdout(&format!("Removed {id}, freed {}.\n{hint}", format_size(freed_bytes)))
}

/// Classifies a fault: invalid arguments are usage errors, anything else is a failed run.
fn weights_failure(fault: WeightsFault) -> Failure {
    match fault {
        WeightsFault::InvalidName(_)
        | WeightsFault::InvalidChecksum(_)
        | WeightsFault::InvalidSource { .. } => Failure::Usage(fault.to_string()),
        other => Failure::Run(other.to_string()),
    }
}

fn build_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|fault| runtime_failure(&fault))
}

/// Formats a size with three digits and a decimal unit.
fn format_size(bytes: u64) -> String {
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let (scale, unit) = match bytes {
        0..1_000_000 => (1e3, "kB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    let scaled = bytes as f64 / scale;
    let digits = if scaled < 10.0 {
        2
    } else if scaled < 100.0 {
        1
    } else {
        0
    };
    format!("{scaled:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (98_362_432, "98.4 MB"),
            (1_117_320_768, "1.12 GB"),
            (123_456_789, "123 MB"),
            (u64::MAX, "18446744074 GB"),
        ] {
            assert_eq!(format_size(bytes), expected);
        }
    }
}
