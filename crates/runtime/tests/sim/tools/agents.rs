//! The tools that target other agents. Arguments are `key=value` pairs, then a message:
//! `to=b wait=yes #7 say hello; done`.

use agent::outside::{CallSite, NewPeer, PeerResponse, ToolContext};
use agent::permission::Effect;
use agent::{AgentId, Fault, FaultKind, RequestId, ToolOutcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentOperation {
    /// `id=NAME preset=NAME cwd=PATH write=PATH disable=TOOL model=NAME wait=yes MESSAGE`, all optional.
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

/// Parsed arguments.
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
            tools: owned("only").map(|tool| vec![tool]),
            disable_tools: owned("disable").into_iter().collect(),
            commands: owned("run").map(|command| vec![command]),
            hosts: None,
            denied_hosts: Vec::new(),
            model: owned("model"),
            initial_message: Some(self.message.to_owned()).filter(|text| !text.is_empty()),
            wait: self.is_blocking(),
            system_prompt: None,
        })
    }
}

pub(super) fn effects(
    operation: AgentOperation,
    arguments: &str,
    site: &CallSite<'_>,
) -> Result<Vec<Effect>, String> {
    let arguments = ParsedArguments::parse(arguments);
    Ok(match operation {
        AgentOperation::Create => {
            vec![Effect::Create((site.preset_inheritance)(arguments.peer()?.preset.as_deref()))]
        }
        AgentOperation::Send | AgentOperation::Status | AgentOperation::Cancel | AgentOperation::Destroy => {
            let target = arguments.target()?;
            let relation = (site.relation_to)(&target);
            vec![Effect::Reach(target, relation)]
        }
        AgentOperation::List => Vec::new(),
    })
}

pub(super) async fn execute(
    operation: AgentOperation,
    arguments: &str,
    context: &ToolContext,
) -> ToolOutcome {
    match try_execute(operation, &ParsedArguments::parse(arguments), context).await {
        Ok(text) => ToolOutcome::Done(text),
        Err(fault) if fault.kind == FaultKind::Denied => ToolOutcome::Denied(fault.public.into_owned()),
        Err(fault) => ToolOutcome::Failed(fault.public.into_owned()),
    }
}

async fn try_execute(
    operation: AgentOperation,
    arguments: &ParsedArguments<'_>,
    context: &ToolContext,
) -> Result<String, Fault> {
    let invalid = |text: String| Fault::new(FaultKind::Invalid, text);
    let peers = &context.peers;
    Ok(match operation {
        AgentOperation::Create => {
            let created = peers.create(arguments.peer().map_err(invalid)?).await?;
            match created.response {
                None => format!("created {}", created.id),
                Some(response) => format!("created {}, which {}", created.id, describe_response(&response?)),
            }
        }
        AgentOperation::Send => {
            let (to, message) = (arguments.target().map_err(invalid)?, arguments.message.to_owned());
            describe_response(&peers.send(to, message, arguments.is_blocking()).await?)
        }
        AgentOperation::Status => format!("{:?}", peers.status(arguments.target().map_err(invalid)?).await?),
        AgentOperation::Cancel => {
            let request = RequestId::Text(arguments.get("request").unwrap_or_default().to_owned());
            format!("cancelled: {}", peers.cancel(arguments.target().map_err(invalid)?, request).await?)
        }
        AgentOperation::Destroy => {
            format!("destroyed: {}", peers.destroy(arguments.target().map_err(invalid)?).await?)
        }
        AgentOperation::List => {
            let names: Vec<_> = peers.list().await?.into_iter().map(|peer| peer.id.to_string()).collect();
            names.join(" ")
        }
    })
}

fn describe_response(response: &PeerResponse) -> String {
    let halted = response.halted.map(|halt| format!(" and halted: {halt}")).unwrap_or_default();
    match (response.queued, response.cancelled) {
        (true, _) => "queued".to_owned(),
        (false, true) => format!("was cancelled after '{}'", response.content),
        (false, false) => format!("replied '{}'{halted}", response.content),
    }
}
