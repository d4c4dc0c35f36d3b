//! `nexus3 ask`: one question, one answer, as it is said. Which daemon answers is found here; how one is started is
//! left to the binary.

use std::io::Read;

use nexus3_client::{Client, ClientFault, DETECT_TIMEOUT, Detection, detect_server};
use nexus3_protocol::methods::{CreateAgentParams, DestroyAgentParams, ImageParam, NoParams};

use crate::args::AskArgs;
use crate::commands::{absolute_path, exit_code_for, read_message};
use crate::connection::{ConnectionOptions, Failure};
use crate::images::load_images;
use crate::send::{OutgoingMessage, OutputMode, RetryHint, send};
use crate::{Interrupt, Streams};

/// Which daemon is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonOrigin {
    /// It was there.
    Found,
    /// It was started for this question, with what stands in the environment now.
    Started,
}

impl DaemonOrigin {
    /// A refusal of a model by a daemon that was there: it may come of what that daemon was started with, perhaps by an
    /// earlier question.
    pub(crate) fn explain_unknown_model(self, text: String) -> String {
        if self == Self::Started || !text.contains("Unknown model") {
            return text;
        }
        text + "\nA daemon was running already; it has the environment and the configuration that it was started with. \
                `nexus3 rpc shutdown` stops it, and the next ask starts one with yours."
    }
}

/// Makes sure that a daemon answers.
pub(crate) async fn ensure_daemon(
    probe: &ConnectionOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
) -> Result<DaemonOrigin, String> {
    let port = probe.endpoint.port();
    match detect_server(&probe.endpoint, DETECT_TIMEOUT).await {
        Detection::NexusServer => Ok(DaemonOrigin::Found),
        Detection::NoServer => start(port).await.map(|()| DaemonOrigin::Started),
        Detection::OtherService => {
            Err(format!("something that is not nexus3 uses port {port}; choose another one with -p PORT"))
        }
        Detection::Timeout => Err(format!(
            "whatever uses port {port} does not answer; choose another one with -p PORT, or look at it with nexus3 rpc detect"
        )),
        Detection::Error => Err(format!("port {port} cannot be looked at; try nexus3 rpc detect -p {port}")),
    }
}

/// A question that was read.
pub struct AskRequest {
    pub(crate) args: AskArgs,
    content: String,
    images: Vec<ImageParam>,
}

impl AskRequest {
    /// Reads it, for as long as somebody writes it: this comes before anything that keeps Ctrl-C from ending the
    /// process.
    ///
    /// # Errors
    /// What to say when it, or an image, cannot be read.
    pub fn read(mut args: AskArgs, input: &mut dyn Read) -> Result<Self, String> {
        let content =
            read_message(std::mem::take(&mut args.text), input).map_err(|failure| failure.message())?;
        let images = load_images(std::mem::take(&mut args.images)).map_err(|failure| failure.message())?;
        Ok(Self { args, content, images })
    }

    /// Whether there is nothing to ask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.trim().is_empty() && self.images.is_empty()
    }
}

/// The agent that is asked.
pub(crate) struct AskTarget {
    agent_id: String,
    /// Made for this question alone.
    is_temporary: bool,
}

/// Finds or makes the agent that is asked.
pub(crate) async fn prepare_agent(args: &AskArgs, session: &ConnectionOptions) -> Result<AskTarget, Failure> {
    let client = session.client();
    let (model, system_prompt) = (args.model.clone(), args.system_prompt.clone());
    let maker = AgentCreator { client: &client, model, system_prompt };
    Ok(match args.agent_id.clone() {
        Some(agent_id) => AskTarget { agent_id: maker.find_or_create(agent_id).await?, is_temporary: false },
        None => AskTarget { agent_id: maker.create(None).await?, is_temporary: true },
    })
}

/// Asks and prints the answer.
pub(crate) async fn run(
    question: AskRequest,
    asked: AskTarget,
    session: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let AskRequest { args, content, images } = question;
    let AskTarget { agent_id, is_temporary: is_guest } = asked;
    let client = session.client();
    let outgoing = OutgoingMessage {
        agent_id: agent_id.clone(),
        content,
        images,
        request_id: None,
        time_limit: args.timeout,
        retry_hint: RetryHint::NewRequest,
    };
    let telling = OutputMode::Streamed(streams.output);
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
    exit_code_for(&answered)
}

/// Makes the agent that is asked.
struct AgentCreator<'a> {
    client: &'a Client,
    model: Option<String>,
    system_prompt: Option<String>,
}

impl AgentCreator<'_> {
    async fn find_or_create(self, agent_id: String) -> Result<String, Failure> {
        let found = match self.client.agent(&agent_id).get_agent(&NoParams {}).await {
            Ok(found) => found,
            Err(ClientFault::Rpc { status: 404, .. }) => return self.create(Some(agent_id)).await,
            Err(fault) => return Err(fault.into()),
        };
        match &self.model {
            Some(wanted) if found.agent.model.as_ref() != Some(wanted) => Err(Failure::Message(format!(
                "the agent {agent_id} is answered by {}; leave --model out, or ask another agent",
                found.agent.model.as_deref().unwrap_or("no model"),
            ))),
            _ => Ok(agent_id),
        }
    }

    /// A nameless one is temporary. It works where the user stands.
    async fn create(self, agent_id: Option<String>) -> Result<String, Failure> {
        let params = CreateAgentParams {
            temporary: agent_id.is_none().then_some(true),
            agent_id,
            system_prompt: self.system_prompt,
            model: self.model,
            cwd: Some(absolute_path(".".to_owned())?),
            ..CreateAgentParams::default()
        };
        Ok(self.client.create_agent(&params).await?.agent_id)
    }
}
