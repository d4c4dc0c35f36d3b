//! `nexus3 ask`: one question, one answer, as it is said. Which daemon answers is found here; how one is started is left to
//! the binary.

use std::io::Read;

use nexus3_client::{Client, ClientFault, DETECT_TIMEOUT, Detection, detect_server};
use nexus3_protocol::methods::{CreateAgentParams, DestroyAgentParams, ImageParam, NoParams};

use crate::args::AskArgs;
use crate::commands::{absolute, judge, message_text};
use crate::images::images;
use crate::send::{Outgoing, Repeat, Telling, send};
use crate::session::{Failure, Session};
use crate::{Interrupt, Streams};

/// Which daemon is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// It was there.
    Found,
    /// It was started for this question, with what stands in the environment now.
    Started,
}

impl Daemon {
    /// A refusal of a model by a daemon that was there: it may come of what that daemon was started with, perhaps by an
    /// earlier question.
    pub(crate) fn explain(self, text: String) -> String {
        if self == Self::Started || !text.contains("Unknown model") {
            return text;
        }
        text + "\nA daemon was running already; it has the environment and the configuration that it was started with. \
                `nexus3 rpc shutdown` stops it, and the next ask starts one with yours."
    }
}

/// Makes sure that a daemon answers.
pub(crate) async fn find_daemon(
    probe: &Session,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
) -> Result<Daemon, String> {
    let port = probe.endpoint.port();
    match detect_server(&probe.endpoint, DETECT_TIMEOUT).await {
        Detection::NexusServer => Ok(Daemon::Found),
        Detection::NoServer => start(port).await.map(|()| Daemon::Started),
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
pub struct Question {
    pub(crate) args: AskArgs,
    content: String,
    images: Vec<ImageParam>,
}

impl Question {
    /// Reads it, for as long as somebody writes it: this comes before anything that keeps Ctrl-C from ending the process.
    ///
    /// # Errors
    /// What to say when it, or an image, cannot be read.
    pub fn read(mut args: AskArgs, input: &mut dyn Read) -> Result<Self, String> {
        let content =
            message_text(std::mem::take(&mut args.text), input).map_err(|failure| failure.said())?;
        let images = images(std::mem::take(&mut args.images)).map_err(|failure| failure.said())?;
        Ok(Self { args, content, images })
    }

    /// Whether there is nothing to ask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.trim().is_empty() && self.images.is_empty()
    }
}

/// The agent that is asked.
pub(crate) struct Asked {
    agent_id: String,
    /// Made for this question alone.
    is_guest: bool,
}

/// Finds or makes the agent that is asked.
pub(crate) async fn prepare(args: &AskArgs, session: &Session) -> Result<Asked, Failure> {
    let client = session.client();
    let (model, system_prompt) = (args.model.clone(), args.system_prompt.clone());
    let maker = Maker { client: &client, model, system_prompt };
    Ok(match args.agent_id.clone() {
        Some(agent_id) => Asked { agent_id: maker.find_or_make(agent_id).await?, is_guest: false },
        None => Asked { agent_id: maker.make(None).await?, is_guest: true },
    })
}

/// Asks and prints the answer.
pub(crate) async fn run(
    question: Question,
    asked: Asked,
    session: &Session,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let Question { args, content, images } = question;
    let Asked { agent_id, is_guest } = asked;
    let client = session.client();
    let outgoing = Outgoing {
        agent_id: agent_id.clone(),
        content,
        images,
        request_id: None,
        limit: args.timeout,
        repeat: Repeat::Anew,
    };
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
