//! A send with a timeout. At the timeout and at Ctrl-C it cancels the turn at the daemon, because a turn continues when
//! its client disconnects.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write;
use std::pin::{Pin, pin};
use std::time::Duration;

use nexus3_client::{AgentClient, Client, ClientFault, SendStep};
use nexus3_protocol::events::{Event, EventKind, JournalRecord, LiveEvent};
use nexus3_protocol::methods::{CancelParams, ImageParam, RequestIdParam, SendOutput, SendParams};
use nexus3_protocol::sse::SseEvent;
use tokio::time::{sleep, timeout};

use crate::Interrupt;
use crate::approvals::printable;
use crate::connection::{ConnectionOptions, Failure};

/// Time a daemon has to end a cancelled turn.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Delay before a cancel that found no send is repeated.
const CANCEL_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A message to send.
pub(crate) struct OutgoingMessage {
    pub(crate) agent_id: String,
    pub(crate) content: String,
    pub(crate) images: Vec<ImageParam>,
    /// Request id; `None`: a random one.
    pub(crate) request_id: Option<String>,
    pub(crate) time_limit: Duration,
    pub(crate) retry_hint: RetryHint,
}

/// How to retry a send whose connection failed.
pub(crate) enum RetryHint {
    /// With the same request id, which is safe.
    SameRequestId,
    /// As a new request, because the command has no request id option.
    NewRequest,
}

/// How the response is printed.
pub(crate) enum OutputMode<'a> {
    /// As a whole at the end, by the caller.
    Buffered,
    /// As text, while it arrives.
    Streamed(&'a mut dyn Write),
}

/// Sends a message and returns the response, also that of a cancelled send.
pub(crate) async fn send(
    connection: &ConnectionOptions,
    client: Client,
    outgoing: OutgoingMessage,
    output_mode: OutputMode<'_>,
    errors: &mut dyn Write,
    interrupt: Interrupt<'_>,
) -> Result<SendOutput, Failure> {
    let OutgoingMessage { agent_id, content, images, request_id, time_limit, retry_hint } = outgoing;
    // The client's own timeout must not close the connection before the turn is cancelled.
    let client = client.with_timeout(time_limit.saturating_add(CANCEL_GRACE * 2));
    let agent = client.agent(&agent_id);
    let request_id = RequestIdParam::Text(request_id.unwrap_or_else(connection.new_request_id));
    let params = SendParams {
        content,
        images: (!images.is_empty()).then_some(images),
        request_id: Some(request_id.clone()),
        ..SendParams::default()
    };
    // The streamed text may not end with a newline yet.
    let gap = if matches!(output_mode, OutputMode::Streamed(_)) { "\n" } else { "" };
    let errors = RefCell::new(errors);
    let mut pending_send = pin!(async {
        let outcome = match output_mode {
            OutputMode::Buffered => agent.send(&params).await.map_err(Failure::from),
            OutputMode::Streamed(output) => stream_response(&agent, &params, output, &errors).await,
        };
        outcome.map_err(|failure| with_retry_hint(failure, &retry_hint, &request_id))
    });
    let reason = tokio::select! {
        biased;
        outcome = &mut pending_send => return outcome,
        () = interrupt => "interrupted".to_owned(),
        () = sleep(time_limit) => format!("no response within {time_limit:?}"),
    };
    // If standard error is closed, the cancel must still be sent.
    let _ = writeln!(errors.borrow_mut(), "{gap}{reason}; cancelling {request_id}");
    match timeout(CANCEL_GRACE, cancel(&agent, &request_id, pending_send)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::Message(format!(
            "the turn did not end within {CANCEL_GRACE:?} of its cancellation; try: nexus3 rpc cancel {agent_id} {request_id}"
        ))),
    }
}

/// Adds a hint on how to retry a send whose connection failed, since its outcome is unknown.
fn with_retry_hint(failure: Failure, retry_hint: &RetryHint, request_id: &RequestIdParam) -> Failure {
    let Failure::Call(fault @ ClientFault::Transport { .. }) = failure else { return failure };
    Failure::Message(match retry_hint {
        RetryHint::SameRequestId => {
            format!("{fault}; send it again with --request-id {request_id}, it does not run twice")
        }
        RetryHint::NewRequest => format!("{fault}; ask again"),
    })
}

/// Prints the text while it arrives, and at the end what the deltas did not contain.
async fn stream_response(
    agent: &AgentClient<'_>,
    params: &SendParams,
    output: &mut dyn Write,
    errors: &RefCell<&mut dyn Write>,
) -> Result<SendOutput, Failure> {
    let mut steps = agent.send_streamed(params).await?;
    let mut printed = StreamedText::default();
    let response = loop {
        match steps.next().await? {
            SendStep::Response(response) => break response,
            SendStep::Event(event) => {
                if let Some(notice) = approval_notice(&event) {
                    // Without standard error, the request is in `nexus3 approvals`.
                    let _ = writeln!(errors.borrow_mut(), "{notice}");
                }
                let Some(text) = printed.push_event(&event) else { continue };
                output
                    .write_all(text.as_bytes())
                    .and_then(|()| output.flush())
                    .map_err(Failure::write_failed)?;
            }
        }
    };
    let rest = printed.remaining(&response.content);
    let end = if rest.is_empty() && printed.text.ends_with('\n') { "" } else { "\n" };
    write!(output, "{rest}{end}").and_then(|()| output.flush()).map_err(Failure::write_failed)?;
    Ok(*response)
}

/// Tells the user that the turn waits for an approval.
fn approval_notice(event: &SseEvent) -> Option<String> {
    if event.event != EventKind::ApprovalRequested.name() {
        return None;
    }
    let Event::Journalled(event) = Event::decode(&event.event, &event.data).ok()?? else { return None };
    let JournalRecord::ApprovalRequested(request) = event.record else { return None };
    let (id, effects) = (&request.approval_id, printable(&request.effects.join("; ")));
    Some(format!("\nwaiting for approval: {effects}\n  answer with: nexus3 approvals allow {id} (or deny)"))
}

/// The text printed from deltas so far.
#[derive(Default)]
struct StreamedText {
    text: String,
    /// Start of the last delta.
    last_delta_start: usize,
    /// Whether the stream contained the start of the turn.
    has_turn_begun: bool,
    /// Whether the daemon dropped deltas.
    has_lagged: bool,
}

impl StreamedText {
    /// Appends an event; returns its text if it is a text delta.
    fn push_event(&mut self, event: &SseEvent) -> Option<&str> {
        match Event::decode(&event.event, &event.data).ok()?? {
            Event::Live(LiveEvent::TextDelta(delta)) => {
                self.last_delta_start = self.text.len();
                self.text.push_str(&delta.text);
                return Some(&self.text[self.last_delta_start..]);
            }
            Event::Live(LiveEvent::Lagged(_)) => self.has_lagged = true,
            Event::Journalled(event) => self.has_turn_begun |= event.record.kind() == EventKind::TurnBegun,
            Event::Live(_) => {}
        }
        None
    }

    /// Returns the part of the response that was not printed yet: all of a stored response, and what was missed because
    /// of lag.
    fn remaining<'a>(&self, content: &'a str) -> Cow<'a, str> {
        if let Some(rest) = content.strip_prefix(&self.text) {
            return rest.into();
        }
        if !self.has_turn_begun || self.has_lagged {
            return format!("\n{content}").into();
        }
        // The response also contains notices, such as about compaction, for which there are no deltas.
        content.rsplit_once(&self.text[self.last_delta_start..]).map_or("", |(_, rest)| rest).into()
    }
}

async fn cancel(
    agent: &AgentClient<'_>,
    request_id: &RequestIdParam,
    mut pending_send: Pin<&mut impl Future<Output = Result<SendOutput, Failure>>>,
) -> Result<SendOutput, Failure> {
    let params = CancelParams { request_id: request_id.clone() };
    loop {
        if agent.cancel(&params).await?.cancelled {
            return pending_send.await;
        }
        // Nothing to cancel: the turn has just ended, or the send has not arrived yet.
        if let Ok(outcome) = timeout(CANCEL_RETRY_DELAY, pending_send.as_mut()).await {
            return outcome;
        }
    }
}
