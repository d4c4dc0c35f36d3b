//! A send that ends in time: at its limit and on Ctrl-C the turn is cancelled at the daemon, because a client that
//! just goes away leaves it running.

use std::io::Write;
use std::pin::{Pin, pin};
use std::time::Duration;

use nexus3_client::{AgentClient, Client, ClientFault};
use nexus3_protocol::methods::{CancelParams, RequestId, SendOutput, SendParams};
use tokio::time::{sleep, timeout};

use crate::Interrupt;
use crate::session::{Failure, Session};

/// How long a daemon may take to end a turn that was cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// How long to wait until a cancel that found nothing is tried again.
const CANCEL_RETRY: Duration = Duration::from_millis(100);

/// A message on its way.
pub(crate) struct Outgoing {
    pub(crate) agent_id: String,
    pub(crate) content: String,
    pub(crate) limit: Duration,
}

/// Sends a message and waits for the answer; a cancelled send's answer is an answer, too.
pub(crate) async fn send(
    session: &Session,
    client: Client,
    outgoing: Outgoing,
    errors: &mut dyn Write,
    interrupt: Interrupt<'_>,
) -> Result<SendOutput, Failure> {
    let Outgoing { agent_id, content, limit } = outgoing;
    // The limit is ours to keep: the client's own must not drop the connection before the turn is cancelled.
    let client = client.with_timeout(limit.saturating_add(CANCEL_GRACE * 2));
    let agent = client.agent(&agent_id);
    let request_id = RequestId::Text((session.request_id)());
    let params =
        SendParams { content, request_id: Some(request_id.clone()), source: None, source_agent_id: None };
    let mut sending = pin!(agent.send(&params));
    let reason = tokio::select! {
        biased;
        answered = &mut sending => return Ok(answered?),
        () = interrupt => "interrupted".to_owned(),
        () = sleep(limit) => format!("no answer within {limit:?}"),
    };
    // Progress for people; when nobody reads it, the cancel still has to happen.
    let _ = writeln!(errors, "{reason}; cancelling {request_id}");
    match timeout(CANCEL_GRACE, cancel(&agent, &request_id, sending)).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(Failure::Said(format!(
            "the turn did not end within {CANCEL_GRACE:?} of its cancellation; try: nexus3 rpc cancel {agent_id} {request_id}"
        ))),
    }
}

async fn cancel(
    agent: &AgentClient<'_>,
    request_id: &RequestId,
    mut sending: Pin<&mut impl Future<Output = Result<SendOutput, ClientFault>>>,
) -> Result<SendOutput, ClientFault> {
    let params = CancelParams { request_id: request_id.clone() };
    loop {
        if agent.cancel(&params).await?.cancelled {
            return sending.await;
        }
        // Nothing to cancel: the send has just been answered, or it has not arrived yet.
        if let Ok(answered) = timeout(CANCEL_RETRY, sending.as_mut()).await {
            return answered;
        }
    }
}
