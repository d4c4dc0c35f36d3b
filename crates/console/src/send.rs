//! A send that ends in time: at its limit and on Ctrl-C the turn is cancelled at the daemon, because a client that
//! just goes away leaves it running.

use std::borrow::Cow;
use std::io::Write;
use std::pin::{Pin, pin};
use std::time::Duration;

use nexus3_client::{AgentClient, Client, ClientFault, SendStep};
use nexus3_protocol::events::{Event, EventKind, LiveEvent};
use nexus3_protocol::methods::{CancelParams, ImageParam, RequestIdParam, SendOutput, SendParams};
use nexus3_protocol::sse::SseEvent;
use tokio::time::{sleep, timeout};

use crate::Interrupt;
use crate::connection::{ConnectionOptions, Failure};

/// How long a daemon may take to end a turn that was cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// How long to wait until a cancel that found nothing is tried again.
const CANCEL_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A message on its way.
pub(crate) struct OutgoingMessage {
    pub(crate) agent_id: String,
    pub(crate) content: String,
    pub(crate) images: Vec<ImageParam>,
    /// The send's name; one is made up when there is none.
    pub(crate) request_id: Option<String>,
    pub(crate) time_limit: Duration,
    pub(crate) retry_hint: RetryHint,
}

/// How a send whose connection broke is done again.
pub(crate) enum RetryHint {
    /// By its name, which makes it safe.
    SameRequestId,
    /// As if for the first time: the command takes no name.
    NewRequest,
}

/// How the answer is told.
pub(crate) enum OutputMode<'a> {
    /// All of it at the end, by whoever asked.
    Buffered,
    /// Its text, here, as it is said.
    Streamed(&'a mut dyn Write),
}

/// Sends a message and waits for the answer; a cancelled send's answer is an answer, too.
pub(crate) async fn send(
    session: &ConnectionOptions,
    client: Client,
    outgoing: OutgoingMessage,
    telling: OutputMode<'_>,
    errors: &mut dyn Write,
    interrupt: Interrupt<'_>,
) -> Result<SendOutput, Failure> {
    let OutgoingMessage { agent_id, content, images, request_id, time_limit: limit, retry_hint: repeat } =
        outgoing;
    // The limit is ours to keep: the client's own must not drop the connection before the turn is cancelled.
    let client = client.with_timeout(limit.saturating_add(CANCEL_GRACE * 2));
    let agent = client.agent(&agent_id);
    let request_id = RequestIdParam::Text(request_id.unwrap_or_else(session.new_request_id));
    let params = SendParams {
        content,
        images: (!images.is_empty()).then_some(images),
        request_id: Some(request_id.clone()),
        ..SendParams::default()
    };
    // What was said so far does not end its line.
    let gap = if matches!(telling, OutputMode::Streamed(_)) { "\n" } else { "" };
    let mut sending = pin!(async {
        let answered = match telling {
            OutputMode::Buffered => agent.send(&params).await.map_err(Failure::from),
            OutputMode::Streamed(output) => stream_response(&agent, &params, output).await,
        };
        answered.map_err(|failure| with_retry_hint(failure, &repeat, &request_id))
    });
    let reason = tokio::select! {
        biased;
        answered = &mut sending => return answered,
        () = interrupt => "interrupted".to_owned(),
        () = sleep(limit) => format!("no answer within {limit:?}"),
    };
    // Progress for people; when nobody reads it, the cancel still has to happen.
    let _ = writeln!(errors, "{gap}{reason}; cancelling {request_id}");
    match timeout(CANCEL_GRACE, cancel(&agent, &request_id, sending)).await {
        Ok(answered) => answered,
        Err(_) => Err(Failure::Message(format!(
            "the turn did not end within {CANCEL_GRACE:?} of its cancellation; try: nexus3 rpc cancel {agent_id} {request_id}"
        ))),
    }
}

/// Nobody knows what became of a send whose connection broke.
fn with_retry_hint(failure: Failure, repeat: &RetryHint, request_id: &RequestIdParam) -> Failure {
    let Failure::Call(fault @ ClientFault::Transport { .. }) = failure else { return failure };
    Failure::Message(match repeat {
        RetryHint::SameRequestId => {
            format!("{fault}; send the same again with --request-id {request_id}: it is not done twice")
        }
        RetryHint::NewRequest => format!("{fault}; ask again"),
    })
}

/// Writes the text as it is said, and what of it did not come that way at the end.
async fn stream_response(
    agent: &AgentClient<'_>,
    params: &SendParams,
    output: &mut dyn Write,
) -> Result<SendOutput, Failure> {
    let mut steps = agent.send_streamed(params).await?;
    let mut told = StreamedText::default();
    let answer = loop {
        match steps.next().await? {
            SendStep::Response(answer) => break answer,
            SendStep::Event(event) => {
                let Some(text) = told.push_event(&event) else { continue };
                output
                    .write_all(text.as_bytes())
                    .and_then(|()| output.flush())
                    .map_err(Failure::write_failed)?;
            }
        }
    };
    let rest = told.remaining(&answer.content);
    let end = if rest.is_empty() && told.text.ends_with('\n') { "" } else { "\n" };
    write!(output, "{rest}{end}").and_then(|()| output.flush()).map_err(Failure::write_failed)?;
    Ok(*answer)
}

/// What of an answer was told as it was said.
#[derive(Default)]
struct StreamedText {
    text: String,
    /// Where its last piece begins.
    last_delta_start: usize,
    /// Whether the turn began before our eyes.
    has_turn_begun: bool,
    /// Whether this reader was too slow for some of it.
    has_lagged: bool,
}

impl StreamedText {
    /// The text that a model has just said, if that is what the event tells.
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

    /// What of the answer is still to be told. One that was stored is not said again, and some of it may have been
    /// missed.
    fn remaining<'a>(&self, content: &'a str) -> Cow<'a, str> {
        if let Some(rest) = content.strip_prefix(&self.text) {
            return rest.into();
        }
        if !self.has_turn_begun || self.has_lagged {
            return format!("\n{content}").into();
        }
        // Notices stand between what was said, such as that the context was made shorter: nobody says them.
        content.rsplit_once(&self.text[self.last_delta_start..]).map_or("", |(_, rest)| rest).into()
    }
}

async fn cancel(
    agent: &AgentClient<'_>,
    request_id: &RequestIdParam,
    mut sending: Pin<&mut impl Future<Output = Result<SendOutput, Failure>>>,
) -> Result<SendOutput, Failure> {
    let params = CancelParams { request_id: request_id.clone() };
    loop {
        if agent.cancel(&params).await?.cancelled {
            return sending.await;
        }
        // Nothing to cancel: the send has just been answered, or it has not arrived yet.
        if let Ok(answered) = timeout(CANCEL_RETRY_DELAY, sending.as_mut()).await {
            return answered;
        }
    }
}
