//! Signals that ask the daemon, or a command, to stop.

use std::io;

use console::EXIT_INTERRUPTED;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT, and SIGHUP, which comes when the terminal closes.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// None when whoever started the process had it ignored, as nohup does.
    hangup: Option<Signal>,
}

impl StopSignals {
    pub(crate) fn register() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// Waits for the next one and says its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hangup => "SIGHUP",
        }
    }
}

/// As the kernel tells it; where it does not, nothing is ignored.
fn is_hangup_ignored() -> bool {
    const HANGUP_BIT: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|bits| u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits & HANGUP_BIT != 0))
}

/// Ends when the user, or the system, wants a command to stop; never, when that cannot be seen. A second signal ends the
/// process at once.
pub(crate) async fn wait_for_interrupt() {
    match StopSignals::register() {
        Ok(mut signals) => {
            signals.next().await;
            tokio::spawn(exit_on_second_signal(signals));
        }
        Err(_) => std::future::pending().await,
    }
}

#[expect(clippy::disallowed_methods, reason = "the user does not want to wait for anything any more")]
async fn exit_on_second_signal(mut signals: StopSignals) {
    signals.next().await;
    std::process::exit(EXIT_INTERRUPTED.into());
}
