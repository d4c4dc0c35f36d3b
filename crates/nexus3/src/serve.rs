//! `nexus3 serve`: assembles the daemon, prints how to reach it, and shuts it down in order.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::outside::Store;
use jiff::tz::TimeZone;
use nexus3_client::{DETECT_TIMEOUT, Detection, Endpoint, detect_server};
use rpc::{Dispatcher, DispatcherOptions};
use runtime::PoolHandle;
use server::http::{HttpLimits, HttpOptions, HttpTransport};
use server::{BindFault, BoundSocket, Doors, Host, Listener, Transport};
use tools::CommandRunner;

use crate::assemble::{Assembly, open_store, store_path};
use crate::config::{self, Config, LogSettings, RoomOptions};
use crate::home::{self, Environment, Prepared};
use crate::logs::{self, LogOptions};
use crate::memory;
use crate::process::{self, SystemEntropy};
use crate::signals::StopSignals;
use crate::token_file::{self, TokenFile};
use crate::{Failure, runtime_failure};

/// Time to write pending responses after all turns have ended.
const RESPONSE_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// File descriptors reserved for models, logs and the daemon's own files.
const DESCRIPTORS_RESERVED: usize = 512;

/// Runs the daemon until it is stopped.
pub(crate) fn run(home: PathBuf, config: &Config, environment: &Environment) -> Result<(), Failure> {
    memory::purge_immediately();
    let prepared = home::prepare(&home)?;
    let log_options = log_options(&home, config.room_options().log);
    let logs = logs::start(log_options).map_err(|fault| Failure::Run(fault.to_string()))?;
    if let Prepared::Restricted { mode } = prepared {
        tracing::warn!(
            "other users could access {} (mode {mode:o}); changed its mode to 0700",
            home.display()
        );
    }
    for warning in config::unknown_variables(environment) {
        tracing::warn!("{warning}");
    }
    process::forbid_memory_dumps();
    tracing::debug!(?config, "starting");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|fault| runtime_failure(&fault))?;
    let served = runtime.block_on(serve(home, config, environment));
    // A turn that ignored its cancellation and the grace period must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    logs.finish();
    served
}

fn log_options(home: &Path, settings: &LogSettings) -> LogOptions {
    let LogSettings { level, json, verbose, raw, file_bytes_max, files_max } = *settings;
    LogOptions { dir: home.join("logs"), level, json, color: true, verbose, raw, file_bytes_max, files_max }
}

async fn serve(home: PathBuf, config: &Config, environment: &Environment) -> Result<(), Failure> {
    let mut signals = StopSignals::register()?;
    let assembly = Assembly::prepare(&home, config, environment).await?;
    let rooms = config.room_options();
    let socket = bind(&rooms).await?;
    let address = socket.address();
    assembly.set_own_port(address.port());
    let store = open_store(&home, config, environment)?;
    let token = if rooms.auth { Some(token_file::generate(&SystemEntropy)?) } else { None };
    token.iter().for_each(|token| assembly.add_known_secret(token));
    let commands = assembly.commands();
    let pool = assembly.open(store.clone()).await?;
    let tested = Arc::clone(&commands);
    let sandbox_test = tokio::spawn(async move { log_sandbox(tested.report().await) });
    let token_file =
        token.as_deref().map(|token| TokenFile::write(&home, address.port(), token)).transpose()?;
    // After the token: a client that can connect must not find the token of an earlier daemon.
    let listener = listen(socket).await?;

    let dispatcher = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::system() });
    let limits = http_limits(&rooms.http_limits, process::raise_descriptor_limit());
    let options = HttpOptions { allowed_origins: rooms.allowed_origins.to_vec(), token, limits };
    let transports: Vec<Box<dyn Transport>> = vec![Box::new(HttpTransport::new(listener, options))];
    let doors = Doors::open(transports, &dispatcher).map_err(|fault| Failure::Run(fault.to_string()))?;
    let is_default_home = home::locate(None, environment).is_ok_and(|default| default == home);
    let home_flag = if is_default_home { String::new() } else { format!(" --home {}", home.display()) };
    print_banner(address, token_file.as_ref(), &rooms, &home, &home_flag, pool.agent_count());

    let mut shutdown =
        Shutdown { doors: &doors, pool: &pool, commands: &commands, store: &*store, signals: &mut signals };
    let cause = shutdown.wait_for_cause(&rooms).await;
    sandbox_test.abort();
    let stopped = shutdown.stop(cause, &rooms).await;
    drop(token_file);
    stopped
}

async fn bind(rooms: &RoomOptions<'_>) -> Result<BoundSocket, Failure> {
    let host = Host::parse(rooms.host).ok_or_else(|| {
        Failure::Usage(format!("cannot listen on {:?}: only loopback is allowed", rooms.host))
    })?;
    match server::bind(host, rooms.port) {
        Ok(socket) => Ok(socket),
        Err(fault) => Err(bind_failure(fault).await),
    }
}

async fn listen(socket: BoundSocket) -> Result<Listener, Failure> {
    match socket.listen() {
        Ok(listener) => Ok(listener),
        Err(fault) => Err(bind_failure(fault).await),
    }
}

async fn bind_failure(fault: BindFault) -> Failure {
    match fault {
        BindFault::InUse(address) => diagnose_port(address).await,
        fault @ BindFault::Other(..) => Failure::Run(fault.to_string()),
    }
}

/// Finds out whether another nexus3 or another program uses the port, to suggest what to do.
async fn diagnose_port(address: SocketAddr) -> Failure {
    let port = address.port();
    let endpoint = Endpoint::new(&address.ip().to_string(), port);
    match detect_server(&endpoint, DETECT_TIMEOUT).await {
        Detection::NexusServer => Failure::PortInUseByNexus(format!(
            "cannot listen on {address}: another nexus3 is already serving there; use it (nexus3 rpc list -p {port}), \
             stop it (nexus3 rpc shutdown -p {port}), or choose another port (nexus3 serve PORT)"
        )),
        _ => Failure::PortInUseByOther(format!(
            "cannot listen on {address}: another program is using it; choose another port (nexus3 serve PORT)"
        )),
    }
}

/// Limits connections to the available file descriptors, since models and logs need some too. Further connections wait
/// in the kernel's backlog.
fn http_limits(limits: &HttpLimits, descriptors: Option<u64>) -> HttpLimits {
    let configured = limits.connections_max;
    let Some(descriptors) = descriptors.and_then(|count| usize::try_from(count).ok()) else {
        return limits.clone();
    };
    let possible = descriptors.saturating_sub(DESCRIPTORS_RESERVED.min(descriptors / 2)).max(1);
    if possible < configured {
        tracing::warn!(
            "limits.connections_max reduced to {possible}: the process may open only {descriptors} files; raise ulimit -n"
        );
    }
    HttpLimits { connections_max: configured.min(possible), ..limits.clone() }
}

/// Logs in which tier of the sandbox commands run, and what the kernel does not enforce.
fn log_sandbox(report: &tools::SandboxReport) {
    for test in &report.tests {
        if let Some(why) = test.failure() {
            let tier = test.tier.name();
            tracing::warn!(target: "nexus3::audit", event = "sandbox_not_enforced", tier, why, "tier not enforced");
        }
    }
    match report.tier() {
        Some(tier) => tracing::info!("commands run in the sandbox tier {}", tier.name()),
        None => tracing::warn!("commands are refused: no tier of the sandbox holds; nexus3 doctor says more"),
    }
}

/// Prints the start-up banner. Programs wait for the line that starts with `Server:`; from then on the daemon responds.
fn print_banner(
    address: SocketAddr,
    token_file: Option<&TokenFile>,
    rooms: &RoomOptions<'_>,
    home: &Path,
    home_flag: &str,
    agents: usize,
) {
    let port = address.port();
    let is_default_port = port == nexus3_protocol::discovery::PORT_DEFAULT;
    let port_flag = if is_default_port { String::new() } else { format!(" -p {port}") };
    let flag = format!("{port_flag}{home_flag}");
    let token = match token_file {
        Some(file) => format!("Token file: {}", file.path().display()),
        None => {
            "No token required (--no-auth): every program on this machine may call the daemon.".to_owned()
        }
    };
    let model = match (rooms.replay, rooms.model) {
        (Some(recording), _) => format!("none; replaying {recording}"),
        (None, Some(model)) => model.to_owned(),
        (None, None) => "not set; detected automatically".to_owned(),
    };
    let text = format!(
        "nexus3 {version}\n{token}\nStore: {store} ({agents} {noun})\nLogs: {logs}\nModel: {model}\nTry it from another \
         terminal:\n  nexus3 rpc create helper{flag}\n  nexus3 rpc send helper 'Hello!'{flag}\nServer: http://{address}\n\
         Press Ctrl+C to stop.\n",
        version = env!("CARGO_PKG_VERSION"),
        store = store_path(home).display(),
        noun = if agents == 1 { "agent" } else { "agents" },
        logs = home.join("logs").display(),
    );
    let mut stdout = std::io::stdout().lock();
    // A closed standard output is not an error.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    tracing::info!(%address, auth = rooms.auth, agents, "serving");
}

/// Reason to stop the daemon.
enum StopCause {
    /// A signal, a client or the idle timeout; holds its name for the log.
    Requested(&'static str),
    /// The store accepts no more writes, so that further work would be lost; holds the error.
    StoreFailed(String),
}

/// Orderly shutdown of the daemon.
struct Shutdown<'a> {
    doors: &'a Doors,
    pool: &'a PoolHandle,
    commands: &'a CommandRunner,
    store: &'a dyn Store,
    signals: &'a mut StopSignals,
}

impl Shutdown<'_> {
    /// Waits until there is a reason to stop.
    async fn wait_for_cause(&mut self, rooms: &RoomOptions<'_>) -> StopCause {
        let idle = async {
            match rooms.idle_timeout_s {
                0 => std::future::pending().await,
                seconds => {
                    self.doors.wait_idle(Duration::from_secs(seconds), || self.pool.open_turns() > 0).await;
                }
            }
        };
        tokio::select! {
            name = self.signals.next() => StopCause::Requested(name),
            () = self.pool.stop_requested() => StopCause::Requested("a client's request"),
            () = idle => StopCause::Requested("the idle timeout"),
            why = self.pool.store_failed() => StopCause::StoreFailed(why),
        }
    }

    /// Stops in order: rejects new requests, waits up to the grace period for open turns (a second signal cancels
    /// them), kills background processes, commits the queued writes, writes the pending responses and closes the store. A store failure cancels
    /// turns at once.
    async fn stop(&mut self, cause: StopCause, rooms: &RoomOptions<'_>) -> Result<(), Failure> {
        let (grace, mut failed) = match cause {
            StopCause::Requested(name) => {
                tracing::info!("stopping: {name}");
                (Duration::from_millis(rooms.stop_grace_ms), None)
            }
            StopCause::StoreFailed(why) => {
                tracing::error!("the store failed: {why}; stopping now");
                (Duration::ZERO, Some(why))
            }
        };
        self.doors.close();
        if failed.is_some() {
            self.pool.abort_turns();
        }
        failed = self.end_turns(grace, failed).await;
        self.stop_processes().await;
        let is_committed = self.commit_queued().await;
        if !self.doors.wait_closed(RESPONSE_DRAIN_TIMEOUT).await {
            tracing::warn!(
                "some clients did not read their last response within {} s",
                RESPONSE_DRAIN_TIMEOUT.as_secs()
            );
        }
        // After the last call: one that has begun may still read the store.
        if is_committed {
            self.close_store().await;
        }
        match failed {
            None => {
                tracing::info!("stopped");
                Ok(())
            }
            Some(why) => Err(Failure::Run(format!(
                "the store failed: {why}; responses were sent for saved turns only, and open turns are resumed or marked at the next start"
            ))),
        }
    }

    /// Ends the open turns; returns the store's error if it has failed.
    async fn end_turns(&mut self, grace: Duration, mut failed: Option<String>) -> Option<String> {
        let mut ending = std::pin::pin!(self.pool.stop(grace));
        let cancelled = loop {
            tokio::select! {
                cancelled = &mut ending => break cancelled,
                name = self.signals.next() => {
                    tracing::warn!("received {name} while stopping: cancelling open turns now");
                    self.pool.abort_turns();
                }
                why = self.pool.store_failed(), if failed.is_none() => {
                    tracing::error!("the store failed: {why}; cancelling open turns now");
                    self.pool.abort_turns();
                    failed = Some(why);
                }
            }
        };
        if cancelled > 0 {
            tracing::warn!("cancelled {cancelled} turns that did not end within the grace period");
        }
        failed
    }

    /// Kills the background processes of all agents. Those that another signal does not wait for are killed when this
    /// process ends.
    async fn stop_processes(&mut self) {
        tokio::select! {
            count = self.commands.stop_processes() => {
                if count > 0 {
                    tracing::info!("killed {count} background processes");
                }
            }
            name = self.signals.next() => {
                tracing::warn!("received {name} while stopping: not waiting for background processes");
            }
        }
    }

    /// Waits until the queued writes are committed; returns false if another signal arrives first. Skipping them is
    /// safe: no response was sent for uncommitted writes.
    async fn commit_queued(&mut self) -> bool {
        tokio::select! {
            // Resolves after every earlier append.
            _ = self.store.append(Vec::new()) => true,
            name = self.signals.next() => {
                tracing::warn!("received {name} while stopping: stopping without committing queued writes");
                false
            }
        }
    }

    async fn close_store(&mut self) {
        tokio::select! {
            () = self.store.close() => {}
            name = self.signals.next() => {
                tracing::warn!("received {name} while stopping: stopping without closing the store");
            }
        }
    }
}
