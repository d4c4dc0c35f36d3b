//! `nexus3 serve`: assembles the daemon, prints how to reach it, and shuts it down in order.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::outside::Store;
use jiff::tz::TimeZone;
use nexus3_client::{DETECT_TIMEOUT, Detection, Endpoint, detect_server};
use rpc::{Dispatcher, DispatcherOptions};
use runtime::PoolHandle;
use server::http::{HttpDoor, HttpLimits, HttpOptions};
use server::{BindFault, Host, Listener};

use crate::assemble::{Assembly, open_store, store_path};
use crate::config::Config;
use crate::home::{self, Environment, Prepared};
use crate::idle_memory;
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
    let logs = logs::start(log_options(&home, config)).map_err(|fault| Failure::Run(fault.to_string()))?;
    if let Prepared::Restricted { mode } = prepared {
        tracing::warn!(
            "other users could access {} (mode {mode:o}); changed its mode to 0700",
            home.display()
        );
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

fn log_options(home: &Path, config: &Config) -> LogOptions {
    LogOptions {
        dir: home.join("logs"),
        level: config.log.level,
        json: config.log.json,
        color: true,
        verbose: config.log.verbose,
        raw: config.log.raw,
        file_bytes_max: config.log.file_bytes_max,
        files_max: config.log.files_max,
    }
}

async fn serve(home: PathBuf, config: &Config, environment: &Environment) -> Result<(), Failure> {
    let mut signals = StopSignals::register()?;
    let assembly = Assembly::prepare(&home, config, environment)?;
    let listener = listen(config).await?;
    let address = listener.address();
    let store = open_store(&home, config, environment)?;
    let pool = assembly.open(store.clone()).await?;
    let token = if config.auth { Some(token_file::generate(&SystemEntropy)?) } else { None };
    let token_file =
        token.as_deref().map(|token| TokenFile::write(&home, address.port(), token)).transpose()?;

    let dispatcher = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::system() });
    let limits = http_limits(config, process::raise_descriptor_limit());
    let options = HttpOptions { allowed_origins: config.allowed_origins.clone(), token, limits };
    let door = HttpDoor::open(listener, dispatcher, options)
        .map_err(|fault| Failure::Run(format!("cannot serve on {address}: {fault}")))?;
    let is_default_home = home::locate(None, environment).is_ok_and(|default| default == home);
    let home_flag = if is_default_home { String::new() } else { format!(" --home {}", home.display()) };
    // Many pages were only needed for start-up.
    memory::unmap_program_pages();
    print_banner(address, token_file.as_ref(), config, &home, &home_flag, pool.agent_count());

    let mut shutdown = Shutdown { door: &door, pool: &pool, store: &*store, signals: &mut signals };
    let cause = shutdown.wait_for_cause(config).await;
    let stopped = shutdown.stop(cause, config).await;
    drop(token_file);
    stopped
}

async fn listen(config: &Config) -> Result<Listener, Failure> {
    let host = Host::parse(&config.host).ok_or_else(|| {
        Failure::Usage(format!("cannot listen on {:?}: only loopback is allowed", config.host))
    })?;
    match server::bind(host, config.port) {
        Ok(listener) => Ok(listener),
        Err(BindFault::InUse(address)) => Err(diagnose_port(address).await),
        Err(fault) => Err(Failure::Run(fault.to_string())),
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
fn connections_max(config: &Config, descriptors: Option<u64>) -> usize {
    let configured = config.limits.connections_max;
    let Some(descriptors) = descriptors.and_then(|count| usize::try_from(count).ok()) else {
        return configured;
    };
    let possible = descriptors.saturating_sub(DESCRIPTORS_RESERVED.min(descriptors / 2)).max(1);
    if possible < configured {
        tracing::warn!(
            "limits.connections_max reduced to {possible}: the process may open only {descriptors} files; raise ulimit -n"
        );
    }
    configured.min(possible)
}

fn http_limits(config: &Config, descriptors: Option<u64>) -> HttpLimits {
    let limits = &config.limits;
    let ms = Duration::from_millis;
    HttpLimits {
        body_bytes_max: limits.body_bytes_max as u64,
        request_line_bytes_max: limits.request_line_bytes_max,
        head_bytes_max: limits.head_bytes_max,
        headers_max: limits.headers_max,
        header_name_bytes_max: limits.header_name_bytes_max,
        header_value_bytes_max: limits.header_value_bytes_max,
        first_byte_timeout: ms(limits.first_byte_ms),
        head_timeout: ms(limits.head_ms),
        body_timeout: ms(limits.body_ms),
        write_timeout: ms(limits.write_ms),
        keep_alive_timeout: ms(limits.keep_alive_ms),
        connections_max: connections_max(config, descriptors),
        event_streams_max: limits.event_streams_max,
        heartbeat_interval: ms(limits.heartbeat_ms),
    }
}

/// Prints the start-up banner. Programs wait for the line that starts with `Server:`; from then on the daemon responds.
fn print_banner(
    address: SocketAddr,
    token_file: Option<&TokenFile>,
    config: &Config,
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
    let model = match (&config.replay, &config.model) {
        (Some(recording), _) => format!("none; replaying {recording}"),
        (None, Some(model)) => model.clone(),
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
    tracing::info!(%address, auth = config.auth, agents, "serving");
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
    door: &'a HttpDoor,
    pool: &'a PoolHandle,
    store: &'a dyn Store,
    signals: &'a mut StopSignals,
}

impl Shutdown<'_> {
    /// Waits until there is a reason to stop.
    async fn wait_for_cause(&mut self, config: &Config) -> StopCause {
        let idle = async {
            match config.idle_timeout_s {
                0 => std::future::pending().await,
                seconds => {
                    self.door.wait_idle(Duration::from_secs(seconds), || self.pool.open_turns() > 0).await;
                }
            }
        };
        let unmap_when_idle =
            idle_memory::unmap_when_idle(|| (self.door.request_count(), self.pool.open_turns()));
        tokio::select! {
            name = self.signals.next() => StopCause::Requested(name),
            () = self.pool.stop_requested() => StopCause::Requested("a client's request"),
            () = idle => StopCause::Requested("the idle timeout"),
            why = self.pool.store_failed() => StopCause::StoreFailed(why),
            never = unmap_when_idle => match never {},
        }
    }

    /// Stops in order: rejects new requests, waits up to the grace period for open turns (a second signal cancels
    /// them), commits the queued writes and writes the pending responses. A store failure cancels turns at once.
    async fn stop(&mut self, cause: StopCause, config: &Config) -> Result<(), Failure> {
        let (grace, mut failed) = match cause {
            StopCause::Requested(name) => {
                tracing::info!("stopping: {name}");
                (Duration::from_millis(config.stop_grace_ms), None)
            }
            StopCause::StoreFailed(why) => {
                tracing::error!("the store failed: {why}; stopping now");
                (Duration::ZERO, Some(why))
            }
        };
        self.door.close();
        if failed.is_some() {
            self.pool.abort_turns();
        }
        failed = self.end_turns(grace, failed).await;
        self.close_store().await;
        if !self.door.wait_closed(RESPONSE_DRAIN_TIMEOUT).await {
            tracing::warn!(
                "some clients did not read their last response within {} s",
                RESPONSE_DRAIN_TIMEOUT.as_secs()
            );
        }
        match failed {
            None => {
                tracing::info!("stopped");
                Ok(())
            }
            Some(why) => Err(Failure::Run(format!(
                "the store failed: {why}; all completed responses are saved, and open turns are resumed or marked at the next start"
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

    /// Commits the queued writes and closes the store, unless another signal arrives. Skipping is safe: no response was
    /// sent for uncommitted writes.
    async fn close_store(&mut self) {
        tokio::select! {
            () = self.store.close() => {}
            name = self.signals.next() => {
                tracing::warn!("received {name} while stopping: closing the store without committing queued writes");
            }
        }
    }
}
