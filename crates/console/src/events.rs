//! `events`: what happens, as lines, over restarts of the daemon. Nothing is left out and nothing comes twice, because
//! each connection begins behind the last number that was printed.

mod event_format;

use std::io::ErrorKind;
use std::time::Duration;

use nexus3_client::{ClientFault, EventSubscription};
use nexus3_protocol::events::{EventKindFilter, EventQuery};
use tokio::time::sleep;

use crate::args::EventsArgs;
use crate::connection::{ConnectionOptions, Failure};
use crate::{EXIT_SUCCESS, Interrupt, Streams};

/// The shortest and the longest wait before the daemon is tried again.
const RETRY_DELAY_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// A daemon that has just been started takes a new token: being refused so often after a restart is still no answer.
const AUTH_REFUSALS_MAX: u32 = 5;

/// Prints events until Ctrl-C.
pub(crate) async fn follow(
    args: EventsArgs,
    session: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let kinds = (!args.kinds.is_empty()).then(|| args.kinds.into_iter().collect());
    let filter = EventKindFilter { kinds, deltas: !args.no_deltas };
    let watch =
        EventSubscription { agent_id: args.agent_id, query: EventQuery { after: args.after, filter } };
    let style = if args.json { OutputFormat::Json } else { OutputFormat::Text };
    tokio::select! {
        biased;
        () = interrupt => Ok(EXIT_SUCCESS),
        ended = follow_with_reconnect(watch, style, session, streams) => match ended {
            // A reader that went away has seen enough.
            FollowEnd::OutputClosed => Ok(EXIT_SUCCESS),
            FollowEnd::Failed(failure) => Err(failure),
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    Text,
    Json,
}

/// Why the watching ended.
enum FollowEnd {
    /// Nobody reads what is printed.
    OutputClosed,
    Failed(Failure),
}

async fn follow_with_reconnect(
    mut watch: EventSubscription,
    style: OutputFormat,
    session: &ConnectionOptions,
    streams: &mut Streams<'_>,
) -> FollowEnd {
    let mut patience = ReconnectPolicy::default();
    loop {
        let why = match follow_once(&mut watch, style, session, streams, &mut patience).await {
            Ok(()) => "the daemon ended the stream".to_owned(),
            Err(FollowEnd::Failed(Failure::Call(fault))) if patience.should_retry(&fault) => {
                describe_fault(&fault)
            }
            Err(stopped) => return stopped,
        };
        if patience.should_announce() {
            // For people; when nobody reads it, the stream still goes on.
            let _ = writeln!(streams.errors, "{why}; trying again until Ctrl-C");
        }
        sleep(patience.next_delay()).await;
    }
}

/// Watching asks for nothing that could have been carried out or not.
fn describe_fault(fault: &ClientFault) -> String {
    match fault {
        ClientFault::Transport { reason, .. } => format!("the connection was lost: {reason}"),
        other => other.to_string(),
    }
}

/// Watches over one connection. `watch` stands behind what was printed.
async fn follow_once(
    watch: &mut EventSubscription,
    style: OutputFormat,
    session: &ConnectionOptions,
    streams: &mut Streams<'_>,
    patience: &mut ReconnectPolicy,
) -> Result<(), FollowEnd> {
    let failed = |fault: ClientFault| FollowEnd::Failed(Failure::Call(fault));
    let client = session.fresh_client().map_err(|fault| failed(fault.into()))?;
    let mut events = client.subscribe(watch).await.map_err(failed)?;
    patience.reset();
    loop {
        let next = events.next().await;
        // Also when there is nothing to print: a stream may say where it stands before anything happens.
        watch.query.after = events.cursor().or(watch.query.after);
        let Some(event) = next.map_err(failed)? else { return Ok(()) };
        let text = match style {
            OutputFormat::Text => event_format::format_text(&event),
            OutputFormat::Json => event_format::format_json(&event),
        };
        let written = writeln!(streams.output, "{text}").and_then(|()| streams.output.flush());
        written.map_err(|fault| match fault.kind() {
            ErrorKind::BrokenPipe => FollowEnd::OutputClosed,
            _ => FollowEnd::Failed(Failure::write_failed(fault)),
        })?;
    }
}

/// How long the daemon is waited for.
#[derive(Default)]
struct ReconnectPolicy {
    was_connected: bool,
    is_announced: bool,
    failures: u32,
    auth_refusals: u32,
}

impl ReconnectPolicy {
    fn reset(&mut self) {
        *self = Self { was_connected: true, ..Self::default() };
    }

    /// Whether to try again. A daemon that was never reached is no daemon.
    fn should_retry(&mut self, fault: &ClientFault) -> bool {
        let refused = matches!(fault, ClientFault::Rpc { status: 401 | 403, .. } | ClientFault::Token(_));
        self.auth_refusals += u32::from(refused);
        let passing = match fault {
            ClientFault::Connect { .. } | ClientFault::Timeout { .. } | ClientFault::Transport { .. } => true,
            ClientFault::Rpc { status, .. } => {
                matches!(status, 429 | 503) || (refused && self.auth_refusals <= AUTH_REFUSALS_MAX)
            }
            ClientFault::Token(_) => self.auth_refusals <= AUTH_REFUSALS_MAX,
            ClientFault::Protocol { .. } | ClientFault::Request(_) => false,
        };
        self.was_connected && passing
    }

    /// Whether this is the first failure of a row.
    fn should_announce(&mut self) -> bool {
        !std::mem::replace(&mut self.is_announced, true)
    }

    fn next_delay(&mut self) -> Duration {
        let (shortest, longest) = RETRY_DELAY_BOUNDS;
        let wait = shortest.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        wait.min(longest)
    }
}
