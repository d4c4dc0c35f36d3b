//! `nexus3 ask`: one question, one answer, as it is said. Which daemon answers is found here; how one is started is left to
//! the binary.

use nexus3_client::{Client, ClientFault, DETECT_TIMEOUT, Detection, detect_server};
use nexus3_protocol::methods::{CreateAgentParams, DestroyAgentParams, NoParams};

use crate::args::AskArgs;
use crate::commands::{absolute, judge, message_text};
use crate::images::images;
use crate::send::{Outgoing, Telling, send};
use crate::session::{Failure, Session};
use crate::{Interrupt, Streams};

/// Makes sure that a daemon answers.
pub(crate) async fn find_daemon(
    probe: &Session,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
) -> Result<(), String> {
    let port = probe.endpoint.port();
    match detect_server(&probe.endpoint, DETECT_TIMEOUT).await {
        Detection::NexusServer => Ok(()),
        Detection::NoServer => start(port).await,
        Detection::OtherService => {
            Err(format!("something that is not nexus3 uses port {port}; choose another one with -p PORT"))
        }
        Detection::Timeout => Err(format!(
            "whatever uses port {port} does not answer; choose another one with -p PORT, or look at it with nexus3 rpc detect"
        )),
        Detection::Error => Err(format!("port {port} cannot be looked at; try nexus3 rpc detect -p {port}")),
    }
}

/// Asks and prints the answer.
pub(crate) async fn run(
    args: AskArgs,
    session: &Session,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let content = message_text(args.text, streams.input)?;
    let images = images(args.images)?;
    let client = session.client();
    let maker = Maker { client: &client, model: args.model, system_prompt: args.system_prompt };
    let (agent_id, is_guest) = match args.agent_id {
        Some(agent_id) => (maker.find_or_make(agent_id).await?, false),
        None => (maker.make(None).await?, true),
    };
    let limit = args.timeout;
    let outgoing = Outgoing { agent_id: agent_id.clone(), content, images, request_id: None, limit };
    let telling = Telling::AsSaid(streams.output);
    let answered = send(session, session.client(), outgoing, telling, streams.errors, interrupt).await;
    if is_guest {
        // It goes with the daemon anyway.
        let params = DestroyAgentParams { agent_id, ..DestroyAgentParams::default() };
        let _ = client.destroy_agent(&params).await;
    }
    let answered = answered?;
    if let Some(halted) = &answered.halted {
        let _ = writeln!(streams.errors, "the turn stopped before its end: {halted}");
    }
    judge(&answered)
}

/// Makes the agent that is asked.
struct Maker<'a> {
    client: &'a Client,
    model: Option<String>,
    system_prompt: Option<String>,
}

impl Maker<'_> {
    async fn find_or_make(self, agent_id: String) -> Result<String, Failure> {
        let found = match self.client.agent(&agent_id).get_agent(&NoParams {}).await {
            Ok(found) => found,
            Err(ClientFault::Rpc { status: 404, .. }) => return self.make(Some(agent_id)).await,
            Err(fault) => return Err(fault.into()),
        };
        match &self.model {
            Some(wanted) if found.agent.model.as_ref() != Some(wanted) => Err(Failure::Said(format!(
                "the agent {agent_id} is answered by {}; leave --model out, or ask another agent",
                found.agent.model.as_deref().unwrap_or("no model"),
            ))),
            _ => Ok(agent_id),
        }
    }

    /// A nameless one is temporary. It works where the user stands.
    async fn make(self, agent_id: Option<String>) -> Result<String, Failure> {
        let params = CreateAgentParams {
            temporary: agent_id.is_none().then_some(true),
            agent_id,
            system_prompt: self.system_prompt,
            model: self.model,
            cwd: Some(absolute(".".to_owned())?),
            ..CreateAgentParams::default()
        };
        Ok(self.client.create_agent(&params).await?.agent_id)
    }
}
