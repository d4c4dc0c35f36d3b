//! Signals that ask the daemon to stop, and Ctrl-C for the command line.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell takes for "ended by Ctrl-C".
const EXIT_INTERRUPTED: i32 = 130;

/// SIGTERM, SIGINT, and SIGHUP, which comes when the terminal closes.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl StopSignals {
    pub(crate) fn watch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one and says its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// Ends when the user presses Ctrl-C; never, when that cannot be seen. A second Ctrl-C ends the process at once.
pub(crate) async fn interrupt() {
    match signal(SignalKind::interrupt()) {
        Ok(mut presses) => {
            presses.recv().await;
            tokio::spawn(give_up(presses));
        }
        Err(_) => std::future::pending().await,
    }
}

#[expect(clippy::disallowed_methods, reason = "the user does not want to wait for anything any more")]
async fn give_up(mut presses: Signal) {
    presses.recv().await;
    std::process::exit(EXIT_INTERRUPTED);
}
