//! `nexus3 serve`: puts the rooms together, says how to talk to the daemon, and stops it in order.

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
use store::SqliteStore;

use crate::Failure;
use crate::assemble::{Assembly, open_store, store_path};
use crate::config::Config;
use crate::home::{self, Environment, Prepared};
use crate::idle_memory;
use crate::logs::{self, LogOptions};
use crate::memory;
use crate::process::{self, SystemEntropy};
use crate::signals::StopSignals;
use crate::token_file::{self, TokenFile};

/// How long answers that are ready may take to be written once all turns have ended.
const RESPONSE_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Descriptors kept for models, logs and the daemon's own files.
const DESCRIPTORS_RESERVED: usize = 512;

/// Runs the daemon until it is told to stop.
pub(crate) fn run(home: PathBuf, config: &Config, environment: &Environment) -> Result<(), Failure> {
    memory::purge_immediately();
    let prepared = home::prepare(&home)?;
    let logs = logs::start(log_options(&home, config)).map_err(|fault| Failure::Run(fault.to_string()))?;
    if let Prepared::Tightened { mode } = prepared {
        tracing::warn!("others could look into {} (mode {mode:o}); it is now 0700", home.display());
    }
    process::forbid_memory_dumps();
    tracing::debug!(?config, "starting");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|fault| Failure::Run(format!("cannot start: {fault}")))?;
    let served = runtime.block_on(serve(home, config, environment));
    // A turn that does not let go must not keep the process: it was told to stop and given its time.
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
    let mut signals = StopSignals::register()
        .map_err(|fault| Failure::Run(format!("cannot watch for signals: {fault}")))?;
    let assembly = Assembly::prepare(&home, config, environment)?;
    let listener = listen(config).await?;
    let address = listener.address();
    let store = open_store(&home, config, environment)?;
    let pool = assembly.open(store.clone()).await?;
    let token = if config.auth { Some(token_file::generate(&SystemEntropy)?) } else { None };
    let token_file =
        token.as_deref().map(|token| TokenFile::write(&home, address.port(), token)).transpose()?;

    let desk = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::system() });
    let limits = http_limits(config, process::raise_descriptor_limit());
    let options = HttpOptions { allowed_origins: config.allowed_origins.clone(), token, limits };
    let door = HttpDoor::open(listener, desk, options)
        .map_err(|fault| Failure::Run(format!("cannot serve on {address}: {fault}")))?;
    let is_default_home = home::locate(None, environment).is_ok_and(|default| default == home);
    let home_flag = if is_default_home { String::new() } else { format!(" --home {}", home.display()) };
    // The start has read much that is not needed again.
    memory::unmap_program_pages();
    print_banner(address, token_file.as_ref(), config, &home, &home_flag, pool.agent_count());

    let mut stopping = Shutdown { door: &door, pool: &pool, store: &store, signals: &mut signals };
    let cause = stopping.wait_for_cause(config).await;
    let stopped = stopping.stop(cause, config).await;
    drop(token_file);
    stopped
}

async fn listen(config: &Config) -> Result<Listener, Failure> {
    let host = Host::parse(&config.host)
        .ok_or_else(|| Failure::Usage(format!("host {:?}: only loopback can be bound", config.host)))?;
    match server::bind(host, config.port) {
        Ok(listener) => Ok(listener),
        Err(BindFault::InUse(address)) => Err(diagnose_port(address).await),
        Err(fault) => Err(Failure::Run(fault.to_string())),
    }
}

/// Who has the port? The answer decides what the user should do next.
async fn diagnose_port(address: SocketAddr) -> Failure {
    let port = address.port();
    let endpoint = Endpoint::new(&address.ip().to_string(), port);
    match detect_server(&endpoint, DETECT_TIMEOUT).await {
        Detection::NexusServer => Failure::PortInUseByNexus(format!(
            "another nexus3 is already serving on {address}; use it (nexus3 rpc list -p {port}), stop it (nexus3 rpc \
             shutdown -p {port}), or start this one on another port (nexus3 serve PORT)"
        )),
        _ => Failure::PortInUseByOther(format!(
            "something that is not nexus3 is using {address}; choose another port (nexus3 serve PORT)"
        )),
    }
}

/// Every connection takes a descriptor, and models and logs need some too: with few of them, fewer connections are
/// taken at once, and the rest wait in the kernel.
fn connections_max(config: &Config, descriptors: Option<u64>) -> usize {
    let wanted = config.limits.connections_max;
    let Some(descriptors) = descriptors.and_then(|count| usize::try_from(count).ok()) else { return wanted };
    let possible = descriptors.saturating_sub(DESCRIPTORS_RESERVED.min(descriptors / 2)).max(1);
    if possible < wanted {
        tracing::warn!(
            "only {possible} connections at once, because the process may open {descriptors} files"
        );
    }
    wanted.min(possible)
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

/// Programs wait for the line that starts with `Server:`; from then on the daemon answers.
fn print_banner(
    address: SocketAddr,
    token_file: Option<&TokenFile>,
    config: &Config,
    home: &Path,
    home_flag: &str,
    kept: usize,
) {
    let port = address.port();
    let is_default_port = port == nexus3_protocol::discovery::PORT_DEFAULT;
    let port_flag = if is_default_port { String::new() } else { format!(" -p {port}") };
    let flag = format!("{port_flag}{home_flag}");
    let token = match token_file {
        Some(file) => format!("Token file: {}", file.path().display()),
        None => "No token is needed (--no-auth): every program on this machine may call.".to_owned(),
    };
    let model = match (&config.replay, &config.model) {
        (Some(recording), _) => format!("none is asked; what it said comes from {recording}"),
        (None, Some(model)) => model.clone(),
        (None, None) => "none chosen; one is looked for on this machine".to_owned(),
    };
    let text = format!(
        "nexus3 {version}\n{token}\nStore: {store} ({kept} {agents} kept)\nLogs: {logs}\nModel: {model}\nTry it from another terminal:\n  \
         nexus3 rpc create helper{flag}\n  nexus3 rpc send helper 'Hello!'{flag}\nServer: http://{address}\n\
         Press Ctrl+C to stop.\n",
        version = env!("CARGO_PKG_VERSION"),
        store = store_path(home).display(),
        agents = if kept == 1 { "agent" } else { "agents" },
        logs = home.join("logs").display(),
    );
    let mut stdout = std::io::stdout().lock();
    // Nobody has to listen.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    tracing::info!(%address, auth = config.auth, kept, "serving");
}

/// What makes the daemon stop.
enum StopCause {
    /// Somebody wants it to.
    Requested(&'static str),
    /// The store takes nothing more, and this is why: what is done from now on would be lost.
    StoreFailed(String),
}

/// The daemon on its way out.
struct Shutdown<'a> {
    door: &'a HttpDoor,
    pool: &'a PoolHandle,
    store: &'a SqliteStore,
    signals: &'a mut StopSignals,
}

impl Shutdown<'_> {
    /// Waits until there is a reason to stop.
    async fn wait_for_cause(&mut self, config: &Config) -> StopCause {
        let idle = async {
            match config.idle_timeout_s {
                0 => std::future::pending().await,
                seconds => {
                    self.door.wait_idle(Duration::from_secs(seconds), || self.pool.open_turns() > 0).await
                }
            }
        };
        let at_rest = idle_memory::unmap_when_idle(|| (self.door.request_count(), self.pool.open_turns()));
        tokio::select! {
            name = self.signals.next() => StopCause::Requested(name),
            () = self.pool.stop_requested() => StopCause::Requested("a client's request"),
            () = idle => StopCause::Requested("the idle timeout"),
            why = self.pool.store_failed() => StopCause::StoreFailed(why),
            never = at_rest => match never {},
        }
    }

    /// No new requests; turns get their time, unless a second signal says that there is none; everything is kept;
    /// answers are written. A store that has failed leaves nothing to wait for.
    async fn stop(&mut self, cause: StopCause, config: &Config) -> Result<(), Failure> {
        let (grace, mut failed) = match cause {
            StopCause::Requested(name) => {
                tracing::info!("stopping because of {name}");
                (Duration::from_millis(config.stop_grace_ms), None)
            }
            StopCause::StoreFailed(why) => {
                tracing::error!("the store has failed: {why}; stopping at once");
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
            tracing::warn!("some clients did not take their last answer in time");
        }
        match failed {
            None => {
                tracing::info!("stopped");
                Ok(())
            }
            Some(why) => Err(Failure::Run(format!(
                "the store has failed: {why}. Nothing that was answered is lost; what was being worked on is settled at \
                 the next start"
            ))),
        }
    }

    /// Ends the open turns, and says why the store failed if it has.
    async fn end_turns(&mut self, grace: Duration, mut failed: Option<String>) -> Option<String> {
        let mut ending = std::pin::pin!(self.pool.stop(grace));
        let cancelled = loop {
            tokio::select! {
                cancelled = &mut ending => break cancelled,
                name = self.signals.next() => {
                    tracing::warn!("{name} again: cancelling open turns now");
                    self.pool.abort_turns();
                }
                why = self.pool.store_failed(), if failed.is_none() => {
                    tracing::error!("the store has failed: {why}; cancelling open turns now");
                    self.pool.abort_turns();
                    failed = Some(why);
                }
            }
        };
        if cancelled > 0 {
            tracing::warn!("{cancelled} turns did not end in time and were cancelled");
        }
        failed
    }

    /// What is in line is kept, unless a signal says that there is no time: nothing of it was answered yet.
    async fn close_store(&mut self) {
        tokio::select! {
            () = self.store.close() => {}
            name = self.signals.next() => tracing::warn!("{name} again: leaving the store as it is"),
        }
    }
}
