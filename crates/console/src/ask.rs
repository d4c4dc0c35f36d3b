//! `nexus3 ask`: one question, streamed response. Finds the daemon and the agent; starting a daemon is left to the
//! binary.

use std::io::Read;

use nexus3_client::{Client, ClientFault, DETECT_TIMEOUT, Detection, detect_server};
use nexus3_protocol::methods::{CreateAgentParams, DestroyAgentParams, ImageParam, NoParams};

use crate::args::AskArgs;
use crate::commands::{absolute_path, exit_code_for, read_message};
use crate::connection::{ConnectionOptions, Failure};
use crate::images::load_images;
use crate::send::{OutgoingMessage, OutputMode, RetryHint, send};
use crate::{Interrupt, Streams};

/// Origin of the daemon that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonOrigin {
    /// It was already running.
    Found,
    /// It was started for this question, with the current environment.
    Started,
}

impl DaemonOrigin {
    /// Adds a hint to an unknown-model error of a daemon that was already running: its environment may lack the key
    /// that the current one has.
    pub(crate) fn explain_unknown_model(self, text: String) -> String {
        if self == Self::Started || !text.contains("Unknown model") {
            return text;
        }
        text + "\nThe running daemon has the environment and configuration it was started with. \
                Stop it with `nexus3 rpc shutdown`; the next ask starts one with yours."
    }
}

/// Detects the daemon, or starts one.
pub(crate) async fn ensure_daemon(
    probe: &ConnectionOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
) -> Result<DaemonOrigin, String> {
    let port = probe.endpoint.port();
    match detect_server(&probe.endpoint, DETECT_TIMEOUT).await {
        Detection::NexusServer => Ok(DaemonOrigin::Found),
        Detection::NoServer => start(port).await.map(|()| DaemonOrigin::Started),
        Detection::OtherService => {
            Err(format!("port {port} is used by another service; choose another port with -p PORT"))
        }
        Detection::Timeout => Err(format!(
            "no response on port {port}; choose another port with -p PORT, or check it with: nexus3 rpc detect -p {port}"
        )),
        Detection::Error => {
            Err(format!("cannot probe port {port}; check it with: nexus3 rpc detect -p {port}"))
        }
    }
}

/// A question with its images.
pub struct AskRequest {
    pub(crate) args: AskArgs,
    content: String,
    images: Vec<ImageParam>,
}

impl AskRequest {
    /// Reads the question. This may block on standard input, so it must run before Ctrl-C is handled.
    ///
    /// # Errors
    /// An error text when the question or an image cannot be read.
    pub fn read(mut args: AskArgs, input: &mut dyn Read) -> Result<Self, String> {
        let content =
            read_message(std::mem::take(&mut args.text), input).map_err(|failure| failure.message())?;
        let images = load_images(std::mem::take(&mut args.images)).map_err(|failure| failure.message())?;
        Ok(Self { args, content, images })
    }

    /// Whether there is neither text nor image.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.trim().is_empty() && self.images.is_empty()
    }
}

/// The agent that answers.
pub(crate) struct AskTarget {
    agent_id: String,
    /// Created for this question only.
    is_temporary: bool,
}

/// Finds or creates the agent that answers.
pub(crate) async fn prepare_agent(
    args: &AskArgs,
    connection: &ConnectionOptions,
) -> Result<AskTarget, Failure> {
    let client = connection.client();
    let (model, system_prompt) = (args.model.clone(), args.system_prompt.clone());
    let creator = AgentCreator { client: &client, model, system_prompt };
    Ok(match args.agent_id.clone() {
        Some(agent_id) => {
            AskTarget { agent_id: creator.find_or_create(agent_id).await?, is_temporary: false }
        }
        None => AskTarget { agent_id: creator.create(None).await?, is_temporary: true },
    })
}

/// Sends the question and prints the response.
pub(crate) async fn run(
    request: AskRequest,
    target: AskTarget,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let AskRequest { args, content, images } = request;
    let AskTarget { agent_id, is_temporary } = target;
    let client = connection.client();
    let outgoing = OutgoingMessage {
        agent_id: agent_id.clone(),
        content,
        images,
        request_id: None,
        time_limit: args.timeout,
        retry_hint: RetryHint::NewRequest,
    };
    let output_mode = OutputMode::Streamed(streams.output);
    let output =
        send(connection, connection.client(), outgoing, output_mode, streams.errors, interrupt).await;
    if is_temporary {
        // An error is ignored: the daemon destroys leftover temporary agents by itself.
        let params = DestroyAgentParams { agent_id, ..DestroyAgentParams::default() };
        let _ = client.destroy_agent(&params).await;
    }
    let output = output?;
    if let Some(halted) = &output.halted {
        let _ = writeln!(streams.errors, "the turn stopped early: {halted}");
    }
    exit_code_for(&output)
}

/// Creates the agent that answers.
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
            Some(requested) if found.agent.model.as_ref() != Some(requested) => {
                let model =
                    found.agent.model.map_or("no model".to_owned(), |model| format!("the model {model}"));
                Err(Failure::Message(format!(
                    "agent {agent_id} uses {model}; omit --model, or use another agent"
                )))
            }
            _ => Ok(agent_id),
        }
    }

    /// Creates an agent in the current directory; temporary if it has no id.
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
