//! The tools that reach other agents. Arguments are words of the form `key=value`, then a message:
//! `to=b wait=yes #7 say hello; done`.

use agent::outside::{CallSite, NewPeer, PeerResponse, ToolContext};
use agent::permission::Effect;
use agent::{AgentId, Fault, FaultKind, RequestId, ToolOutcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentOperation {
    /// `id=NAME preset=NAME cwd=PATH write=PATH disable=TOOL model=NAME wait=yes MESSAGE`, each of them optional.
    Create,
    /// `to=NAME wait=yes MESSAGE`
    Send,
    /// `to=NAME`
    Status,
    /// `to=NAME request=TEXT`
    Cancel,
    /// `to=NAME`
    Destroy,
    List,
}

/// Arguments as they were read.
struct ParsedArguments<'a> {
    pairs: Vec<(&'a str, &'a str)>,
    message: &'a str,
}

impl<'a> ParsedArguments<'a> {
    fn parse(mut text: &'a str) -> Self {
        let mut pairs = Vec::new();
        loop {
            let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
            let Some(pair) = word.split_once('=') else { break };
            pairs.push(pair);
            text = rest;
        }
        Self { pairs, message: text }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    fn is_blocking(&self) -> bool {
        self.get("wait") == Some("yes")
    }

    fn target(&self) -> Result<AgentId, String> {
        AgentId::parse(self.get("to").unwrap_or_default()).map_err(|fault| fault.to_string())
    }

    fn peer(&self) -> Result<NewPeer, String> {
        let owned = |key| self.get(key).map(ToOwned::to_owned);
        let id = self.get("id").map(AgentId::parse).transpose().map_err(|fault| fault.to_string())?;
        Ok(NewPeer {
            id,
            preset: owned("preset"),
            cwd: owned("cwd"),
            write_paths: owned("write").map(|path| vec![path]),
            disable_tools: owned("disable").into_iter().collect(),
            model: owned("model"),
            initial_message: Some(self.message.to_owned()).filter(|text| !text.is_empty()),
            wait: self.is_blocking(),
            system_prompt: None,
        })
    }
}

pub(super) fn effects(
    verb: AgentOperation,
    arguments: &str,
    scene: &CallSite<'_>,
) -> Result<Vec<Effect>, String> {
    let words = ParsedArguments::parse(arguments);
    Ok(match verb {
        AgentOperation::Create => {
            vec![Effect::Create((scene.preset_inheritance)(words.peer()?.preset.as_deref()))]
        }
        AgentOperation::Send | AgentOperation::Status | AgentOperation::Cancel | AgentOperation::Destroy => {
            let target = words.target()?;
            let kinship = (scene.relation_to)(&target);
            vec![Effect::Reach(target, kinship)]
        }
        AgentOperation::List => Vec::new(),
    })
}

pub(super) async fn execute(verb: AgentOperation, arguments: &str, leave: &ToolContext) -> ToolOutcome {
    match try_execute(verb, &ParsedArguments::parse(arguments), leave).await {
        Ok(text) => ToolOutcome::Done(text),
        Err(fault) if fault.kind == FaultKind::Denied => ToolOutcome::Denied(fault.public.into_owned()),
        Err(fault) => ToolOutcome::Failed(fault.public.into_owned()),
    }
}

async fn try_execute(
    verb: AgentOperation,
    words: &ParsedArguments<'_>,
    leave: &ToolContext,
) -> Result<String, Fault> {
    let read = |text: String| Fault::new(FaultKind::Invalid, text);
    let peers = &leave.peers;
    Ok(match verb {
        AgentOperation::Create => {
            let created = peers.create(words.peer().map_err(read)?).await?;
            match created.response {
                None => format!("created {}", created.id),
                Some(response) => format!("created {}, which {}", created.id, describe_answer(&response?)),
            }
        }
        AgentOperation::Send => {
            let (to, message) = (words.target().map_err(read)?, words.message.to_owned());
            describe_answer(&peers.send(to, message, words.is_blocking()).await?)
        }
        AgentOperation::Status => format!("{:?}", peers.status(words.target().map_err(read)?).await?),
        AgentOperation::Cancel => {
            let request = RequestId::Text(words.get("request").unwrap_or_default().to_owned());
            format!("cancelled: {}", peers.cancel(words.target().map_err(read)?, request).await?)
        }
        AgentOperation::Destroy => {
            format!("destroyed: {}", peers.destroy(words.target().map_err(read)?).await?)
        }
        AgentOperation::List => {
            let names: Vec<_> = peers.list().await?.into_iter().map(|peer| peer.id.to_string()).collect();
            names.join(" ")
        }
    })
}

fn describe_answer(answer: &PeerResponse) -> String {
    let halted = answer.halted.map(|why| format!(" and halted: {why}")).unwrap_or_default();
    match (answer.queued, answer.cancelled) {
        (true, _) => "has it".to_owned(),
        (false, true) => format!("was cancelled after '{}'", answer.content),
        (false, false) => format!("said '{}'{halted}", answer.content),
    }
}
