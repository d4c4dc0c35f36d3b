//! Signals that stop the daemon or a command.

use console::EXIT_INTERRUPTED;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;

/// Receiver of SIGTERM, SIGINT and SIGHUP (the terminal closed).
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` when the parent process had SIGHUP ignored, as nohup does.
    hangup: Option<Signal>,
}

impl StopSignals {
    pub(crate) fn register() -> Result<Self, Failure> {
        let register = |kind: SignalKind| {
            signal(kind).map_err(|fault| Failure::Run(format!("cannot install signal handlers: {fault}")))
        };
        Ok(Self {
            terminate: register(SignalKind::terminate())?,
            interrupt: register(SignalKind::interrupt())?,
            hangup: if is_hangup_ignored() { None } else { Some(register(SignalKind::hangup())?) },
        })
    }

    /// Waits for the next signal and returns its name.
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

/// Whether SIGHUP is ignored, according to /proc; false when that cannot be read.
fn is_hangup_ignored() -> bool {
    const HANGUP_BIT: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|bits| u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits & HANGUP_BIT != 0))
}

/// Resolves on the first stop signal, or never if no signal handler can be registered. A second signal exits the
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

#[expect(clippy::disallowed_methods, reason = "a second signal means: exit without cleanup")]
async fn exit_on_second_signal(mut signals: StopSignals) {
    signals.next().await;
    std::process::exit(EXIT_INTERRUPTED.into());
}
