//! Download progress on standard error: a bar on a terminal, otherwise a line now and then.

use std::io::{IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressStyle};
use weights::{PullProgress, PullStep};

use super::format_size;

/// Percentage between two progress lines.
const PERCENT_PER_LINE: u64 = 10;

/// Output of download progress.
pub(super) enum ProgressDisplay {
    /// A progress bar on a terminal.
    Bar(ProgressBar),
    /// One line per `PERCENT_PER_LINE`.
    Lines { last_percent: Option<u64> },
}

impl ProgressDisplay {
    pub(super) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { last_percent: None };
        }
        let bar = ProgressBar::new(0);
        let template =
            "{msg:24} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self::Bar(bar)
    }

    pub(super) fn update(&mut self, progress: &PullProgress) {
        if let Self::Bar(bar) = self {
            bar.set_length(progress.total_bytes.unwrap_or(progress.done_bytes));
            bar.set_position(progress.done_bytes);
        }
        if let Some(note) = step_note(&progress.step) {
            self.print_note(&note);
        }
        match self {
            Self::Bar(bar) => {
                if let Some(label) = step_label(&progress.step) {
                    bar.set_message(label);
                }
            }
            Self::Lines { last_percent } => {
                let Some(total_bytes) = progress.total_bytes.filter(|total| *total > 0) else { return };
                let percent = u128::from(progress.done_bytes) * 100 / u128::from(total_bytes);
                let percent = u64::try_from(percent).unwrap_or(100) / PERCENT_PER_LINE * PERCENT_PER_LINE;
                if percent > 0 && *last_percent != Some(percent) {
                    *last_percent = Some(percent);
                    print_line(&format!("{percent} % of {}", format_size(total_bytes)));
                }
            }
        }
    }

    fn print_note(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| print_line(text)),
            Self::Lines { .. } => print_line(text),
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn print_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Text for steps that get a line of their own.
fn step_note(step: &PullStep) -> Option<String> {
    match step {
        PullStep::Trying { source } => Some(format!("downloading from {source}")),
        PullStep::Failed { source, why } => Some(format!("cannot download from {source}: {why}")),
        PullStep::Waiting { why, wait_ms } => {
            Some(format!("{why}; retrying in {}.{} s", wait_ms / 1000, wait_ms % 1000 / 100))
        }
        PullStep::Downloading { .. } | PullStep::Unpacking { .. } | PullStep::Rehashing => None,
    }
}

/// Label of the progress bar.
fn step_label(step: &PullStep) -> Option<String> {
    let part_of =
        |part: &usize, parts: &usize| if *parts > 1 { format!(" {part} of {parts}") } else { String::new() };
    match step {
        PullStep::Downloading { part, parts } => Some(format!("downloading{}", part_of(part, parts))),
        PullStep::Unpacking { part, parts } => Some(format!("unpacking{}", part_of(part, parts))),
        PullStep::Rehashing => Some("verifying partial file".to_owned()),
        PullStep::Trying { .. } | PullStep::Failed { .. } | PullStep::Waiting { .. } => None,
    }
}
