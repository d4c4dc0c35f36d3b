//! `nexus3 models`: shows, pulls, checks, removes and chooses models. What weights are and how they come is decided by
//! `weights`; here it is asked for and told.

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
use crate::{Failure, print_stdout};

/// The provider of weights that are here, before the slash of a model's name.
pub(crate) const LOCAL_PROVIDER: &str = "local";

/// The model for the first minute.
const FIRST_MODEL_ID: &str = "smollm2-135m";

/// Reads the configuration, with these flags over it.
type LoadConfig<'a> = &'a dyn Fn(&[(&'static str, String)]) -> Result<Config, Failure>;

/// A model server that was found on this machine: what it is, and where.
pub(crate) type ServerRow = (String, String);

/// Does what `nexus3 models …` says.
pub(crate) fn run(
    args: &ModelsArgs,
    home: &Path,
    environment: &Environment,
    load: LoadConfig<'_>,
    found_servers: impl FnOnce() -> Result<Vec<ServerRow>, Failure>,
) -> Result<u8, Failure> {
    match &args.command {
        None => list::list(&ListArgs::default(), home, &found_servers()?),
        Some(ModelsCommand::List(args)) => list::list(args, home, &found_servers()?),
        Some(ModelsCommand::Info(args)) => list::info(args, home),
        Some(ModelsCommand::Pull(args)) => pull::run(args, home, environment),
        Some(ModelsCommand::Remove(args)) => remove(args, home, load),
        Some(ModelsCommand::Use(args)) => set_default::run(args, home, environment, load),
    }
}

/// The model for the first minute: small, quickly here, good enough for a first answer.
pub(crate) fn first_model() -> Result<PullSpec, Failure> {
    let entry = builtin_catalog()?.find(FIRST_MODEL_ID).map(PullSpec::from);
    entry.ok_or_else(|| Failure::Run(format!("the catalog has no {FIRST_MODEL_ID}")))
}

/// Where weights are.
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
    let is_usual = load(&[]).is_ok_and(|config| config.model.as_deref() == Some(&name));
    let hint = if is_usual {
        format!("The configuration still names {name}: choose another with nexus3 models use NAME.\n")
    } else {
        String::new()
    };
    print_stdout(&format!("{id} removed, {} free again.\n{hint}", format_size(freed_bytes)))
}

/// What the user wrote is wrong, or the world is.
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
        .map_err(|fault| Failure::Run(format!("cannot start: {fault}")))
}

/// A size as people write it: three digits and a unit of powers of ten.
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
    fn sizes_are_told_in_three_digits() {
        for (bytes, told) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (98_362_432, "98.4 MB"),
            (1_117_320_768, "1.12 GB"),
            (123_456_789, "123 MB"),
            (u64::MAX, "18446744074 GB"),
        ] {
            assert_eq!(format_size(bytes), told);
        }
    }
}
