//! How far a pull is, on standard error: a bar for a person, lines for a log. Nobody has to read it.

use std::io::{IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressStyle};
use weights::{Progress, Step};

use super::size;

/// Lines are told after so many hundredths of the file.
const LINE_EVERY_PERCENT: u64 = 10;

/// Shows progress.
pub(super) enum Bar {
    /// A line that changes.
    Moving(ProgressBar),
    /// A line now and then.
    Lines { told: Option<u64> },
}

impl Bar {
    pub(super) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { told: None };
        }
        let bar = ProgressBar::new(0);
        let template =
            "{msg:24} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self::Moving(bar)
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        if let Self::Moving(bar) = self {
            bar.set_length(progress.total_bytes.unwrap_or(progress.done_bytes));
            bar.set_position(progress.done_bytes);
        }
        if let Some(note) = note(&progress.step) {
            self.say(&note);
        }
        match self {
            Self::Moving(bar) => {
                if let Some(doing) = doing(&progress.step) {
                    bar.set_message(doing);
                }
            }
            Self::Lines { told } => {
                let Some(total_bytes) = progress.total_bytes.filter(|total| *total > 0) else { return };
                let percent = u128::from(progress.done_bytes) * 100 / u128::from(total_bytes);
                let percent = u64::try_from(percent).unwrap_or(100) / LINE_EVERY_PERCENT * LINE_EVERY_PERCENT;
                if percent > 0 && *told != Some(percent) {
                    *told = Some(percent);
                    line(&format!("{percent} % of {}", size(total_bytes)));
                }
            }
        }
    }

    fn say(&self, text: &str) {
        match self {
            Self::Moving(bar) => bar.suspend(|| line(text)),
            Self::Lines { .. } => line(text),
        }
    }

    pub(super) fn end(&self) {
        if let Self::Moving(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What is worth a line of its own.
fn note(step: &Step) -> Option<String> {
    match step {
        Step::Trying { source } => Some(format!("from {source}")),
        Step::Failed { source, why } => Some(format!("not from {source}: {why}")),
        Step::Waiting { why, wait_ms } => {
            Some(format!("{why}; trying again in {}.{} s", wait_ms / 1000, wait_ms % 1000 / 100))
        }
        Step::Downloading { .. } | Step::Unpacking { .. } | Step::Rereading => None,
    }
}

fn doing(step: &Step) -> Option<String> {
    let of =
        |part: &usize, parts: &usize| if *parts > 1 { format!(" {part} of {parts}") } else { String::new() };
    match step {
        Step::Downloading { part, parts } => Some(format!("downloading{}", of(part, parts))),
        Step::Unpacking { part, parts } => Some(format!("unpacking{}", of(part, parts))),
        Step::Rereading => Some("checking what is here".to_owned()),
        Step::Trying { .. } | Step::Failed { .. } | Step::Waiting { .. } => None,
    }
}
