//! `nexus3 rpc events`: prints events as lines, across restarts of the daemon. There are no gaps and no duplicates,
//! because each connection starts after the last printed sequence number.

mod event_format;

use std::io::ErrorKind;
use std::time::Duration;

use nexus3_client::{ClientFault, EventSubscription};
use nexus3_protocol::events::{EventKindFilter, EventQuery};
use tokio::time::sleep;

use crate::args::EventsArgs;
use crate::connection::{ConnectionOptions, Failure};
use crate::{EXIT_SUCCESS, Interrupt, Streams};

/// Minimum and maximum delay before a reconnect.
const RETRY_DELAY_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Number of rejections because of the token that are retried: the client may have read the token file before the
/// restarted daemon replaced it.
const AUTH_REFUSALS_MAX: u32 = 5;

/// Prints events until Ctrl-C.
pub(crate) async fn follow(
    args: EventsArgs,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let kinds = (!args.kinds.is_empty()).then(|| args.kinds.into_iter().collect());
    let filter = EventKindFilter { kinds, deltas: !args.no_deltas };
    let subscription =
        EventSubscription { agent_id: args.agent_id, query: EventQuery { after: args.after, filter } };
    let output_format = if args.json { OutputFormat::Json } else { OutputFormat::Text };
    tokio::select! {
        biased;
        () = interrupt => Ok(EXIT_SUCCESS),
        end = follow_with_reconnect(subscription, output_format, connection, streams) => match end {
            // A closed pipe, as with `head`, is not a failure.
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

/// End of the subscription.
enum FollowEnd {
    /// Standard output was closed.
    OutputClosed,
    Failed(Failure),
}

async fn follow_with_reconnect(
    mut subscription: EventSubscription,
    output_format: OutputFormat,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
) -> FollowEnd {
    let mut policy = ReconnectPolicy::default();
    loop {
        let cause =
            match follow_once(&mut subscription, output_format, connection, streams, &mut policy).await {
                Ok(()) => "the daemon closed the stream".to_owned(),
                Err(FollowEnd::Failed(Failure::Call(fault))) if policy.admit_retry(&fault) => {
                    describe_fault(&fault)
                }
                Err(end) => return end,
            };
        if policy.take_announcement() {
            // If standard error is closed, the stream still continues.
            let _ = writeln!(streams.errors, "{cause}; reconnecting until Ctrl-C");
        }
        sleep(policy.next_delay()).await;
    }
}

/// Describes a fault. The text of `Transport` warns about side effects, which a subscription does not have.
fn describe_fault(fault: &ClientFault) -> String {
    match fault {
        ClientFault::Transport { reason, .. } => format!("connection lost: {reason}"),
        other => other.to_string(),
    }
}

/// Prints the events of one connection. The cursor of `subscription` follows the printed events.
async fn follow_once(
    subscription: &mut EventSubscription,
    output_format: OutputFormat,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
    policy: &mut ReconnectPolicy,
) -> Result<(), FollowEnd> {
    let failed = |fault: ClientFault| FollowEnd::Failed(Failure::Call(fault));
    let client = connection.fresh_client().map_err(|fault| failed(fault.into()))?;
    let mut events = client.subscribe(subscription).await.map_err(failed)?;
    policy.reset();
    loop {
        let next = events.next().await;
        // Updated even without an event: a stream may send its cursor first.
        subscription.query.after = events.cursor().or(subscription.query.after);
        let Some(event) = next.map_err(failed)? else { return Ok(()) };
        let text = match output_format {
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

/// Reconnect policy: exponential backoff, and which faults are retried.
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

    /// Counts a fault and returns whether to reconnect. Never before the first successful connection.
    fn admit_retry(&mut self, fault: &ClientFault) -> bool {
        let is_auth_refusal =
            matches!(fault, ClientFault::Rpc { status: 401 | 403, .. } | ClientFault::Token(_));
        self.auth_refusals += u32::from(is_auth_refusal);
        let is_transient = match fault {
            ClientFault::Connect { .. } | ClientFault::Timeout { .. } | ClientFault::Transport { .. } => true,
            ClientFault::Rpc { status, .. } => {
                matches!(status, 429 | 503) || (is_auth_refusal && self.auth_refusals <= AUTH_REFUSALS_MAX)
            }
            ClientFault::Token(_) => self.auth_refusals <= AUTH_REFUSALS_MAX,
            ClientFault::Protocol { .. } | ClientFault::Request(_) => false,
        };
        self.was_connected && is_transient
    }

    /// Returns true once per outage, for its first failure.
    fn take_announcement(&mut self) -> bool {
        !std::mem::replace(&mut self.is_announced, true)
    }

    fn next_delay(&mut self) -> Duration {
        let (shortest, longest) = RETRY_DELAY_BOUNDS;
        let delay = shortest.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        delay.min(longest)
    }
}
