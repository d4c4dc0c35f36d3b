//! What each command calls and prints. How a send waits and is cancelled is left to `send`.

use std::io::Read;

use nexus3_client::{DETECT_TIMEOUT, Detection, detect_server};
use nexus3_protocol::MethodSpec;
use nexus3_protocol::methods::{
    CancelOutput, CancelParams, CompactParams, CreateAgentParams, DestroyAgentParams, ListAgentsParams,
    MessagesParams, NoParams, PageOffset, PageSize, RequestIdParam, SendOutput, SteerParams, spec,
};
use serde_json::{Value, json};

use crate::args::{CreateArgs, RpcCommand, SendArgs};
use crate::connection::{ConnectionOptions, Failure};
use crate::images::load_images;
use crate::send::{OutgoingMessage, OutputMode, RetryHint, send};
use crate::{EXIT_FAILURE, EXIT_SUCCESS, Interrupt, Streams};
use crate::{events, lifecycle};

/// A message longer than this is not read to its end: the daemon takes far less.
const MESSAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(crate) async fn run(
    command: RpcCommand,
    session: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    match command {
        RpcCommand::Detect => detect(session, streams).await,
        RpcCommand::List => print::<spec::ListAgents>(
            streams,
            &session.client().list_agents(&ListAgentsParams::default()).await?,
        ),
        RpcCommand::Create(args) => create(args, session, streams, interrupt).await,
        RpcCommand::Send(args) => send_message(args, session, streams, interrupt).await,
        RpcCommand::Cancel { agent_id, request_id } => {
            print::<spec::Cancel>(streams, &cancel(session, &agent_id, request_id).await?)
        }
        RpcCommand::Status { agent_id } => status(session, &agent_id, streams).await,
        RpcCommand::Compact { agent_id, if_full } => {
            let params = CompactParams { force: if_full.then_some(false) };
            print::<spec::Compact>(streams, &session.client().agent(agent_id).compact(&params).await?)
        }
        RpcCommand::Messages { agent_id, offset, limit } => {
            let page = MessagesParams { offset: offset.map(PageOffset), limit: limit.map(PageSize) };
            print::<spec::GetMessages>(streams, &session.client().agent(agent_id).get_messages(&page).await?)
        }
        RpcCommand::Steer { agent_id, text } => steer(session, agent_id, text, streams).await,
        RpcCommand::Show { agent_id } => {
            print::<spec::GetAgent>(streams, &session.client().agent(agent_id).get_agent(&NoParams {}).await?)
        }
        RpcCommand::Children { agent_id } => {
            let children = session.client().agent(agent_id).list_children(&NoParams {}).await?;
            print::<spec::ListChildren>(streams, &children)
        }
        RpcCommand::Permissions { agent_id } => {
            let permissions = session.client().agent(agent_id).get_permissions(&NoParams {}).await?;
            print::<spec::GetPermissions>(streams, &permissions)
        }
        RpcCommand::Sessions { offset, limit } => lifecycle::list(session, offset, limit, streams).await,
        RpcCommand::Fork { agent_id, new_agent_id, messages } => {
            lifecycle::fork(session, agent_id, new_agent_id, messages, streams).await
        }
        RpcCommand::Rollback { agent_id, messages } => {
            lifecycle::rollback(session, agent_id, messages, streams).await
        }
        RpcCommand::Rename { agent_id, new_agent_id } => {
            lifecycle::rename(session, agent_id, new_agent_id, streams).await
        }
        RpcCommand::Export { agent_id } => lifecycle::export(session, agent_id, streams).await,
        RpcCommand::Import { file, name } => lifecycle::import(session, &file, name, streams).await,
        RpcCommand::Events(args) => events::follow(args, session, streams, interrupt).await,
        RpcCommand::Destroy { agent_id, orphan } => destroy(session, agent_id, orphan, streams).await,
        RpcCommand::Shutdown => {
            print::<spec::ShutdownServer>(streams, &session.client().shutdown_server(&NoParams {}).await?)
        }
    }
}

async fn detect(session: &ConnectionOptions, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let found = detect_server(&session.endpoint, DETECT_TIMEOUT).await;
    let running = found == Detection::NexusServer;
    let answer = json!({ "port": session.endpoint.port(), "result": found.as_str(), "running": running });
    print_value(streams, &answer)?;
    Ok(if running { EXIT_SUCCESS } else { EXIT_FAILURE })
}

async fn create(
    args: CreateArgs,
    session: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let message = args.message.map(|text| read_message(text, streams.input)).transpose()?;
    let client = session.client();
    let list = |items: Vec<String>| (!items.is_empty()).then_some(items);
    let params = CreateAgentParams {
        agent_id: args.agent_id,
        temporary: args.temporary.then_some(true),
        system_prompt: args.system_prompt,
        preset: args.preset,
        disable_tools: list(args.disable_tools),
        parent_agent_id: args.parent,
        cwd: args.cwd.map(absolute_path).transpose()?,
        allowed_write_paths: list(args.write_paths),
        model: args.model,
        on_restart: args.on_restart,
        ..CreateAgentParams::default()
    };
    let created = client.create_agent(&params).await?;
    let Some(message) = message else {
        return print::<spec::CreateAgent>(streams, &created);
    };
    let outgoing = OutgoingMessage {
        agent_id: created.agent_id.clone(),
        content: message,
        images: Vec::new(),
        request_id: None,
        time_limit: args.timeout,
        retry_hint: RetryHint::SameRequestId,
    };
    let answered = send(session, client, outgoing, OutputMode::Buffered, streams.errors, interrupt).await;
    let mut answer = to_json::<spec::CreateAgent>(&created)?;
    if let (Ok(answered), Some(members)) = (&answered, answer.as_object_mut()) {
        members.insert("response".to_owned(), to_json::<spec::Send>(answered)?);
    }
    // Also when the send failed: the agent is there, and its name may be news.
    print_value(streams, &answer)?;
    exit_code_for(&answered?)
}

async fn send_message(
    args: SendArgs,
    session: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let content = read_message(args.text, streams.input)?;
    let (agent_id, request_id, limit) = (args.agent_id, args.request_id, args.timeout);
    let (images, repeat) = (load_images(args.images)?, RetryHint::SameRequestId);
    let outgoing =
        OutgoingMessage { agent_id, content, images, request_id, time_limit: limit, retry_hint: repeat };
    let telling = if args.stream { OutputMode::Streamed(streams.output) } else { OutputMode::Buffered };
    let answered = send(session, session.client(), outgoing, telling, streams.errors, interrupt).await?;
    if !args.stream {
        print::<spec::Send>(streams, &answered)?;
    } else if let Some(halted) = &answered.halted {
        // For people; a script asks for the whole answer.
        let _ = writeln!(streams.errors, "the turn stopped before its end: {halted}");
    }
    exit_code_for(&answered)
}

/// A script must not take half an answer for a whole one.
pub(crate) fn exit_code_for(answered: &SendOutput) -> Result<u8, Failure> {
    if answered.cancelled {
        return Err(Failure::Message(
            "the send was cancelled; its content is what was said until then".to_owned(),
        ));
    }
    Ok(EXIT_SUCCESS)
}

pub(crate) fn read_message(text: String, input: &mut dyn Read) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text);
    }
    let mut message = String::new();
    let read = input.take(MESSAGE_BYTES_MAX + 1).read_to_string(&mut message);
    read.map_err(|fault| Failure::Message(format!("standard input cannot be read as a message: {fault}")))?;
    if message.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(Failure::Message(format!("the message is longer than {MESSAGE_BYTES_MAX} bytes")));
    }
    Ok(message)
}

/// On the wire `"5"` and `5` are two names, on the command line they look the same: the number is tried when there is
/// no send with the text.
async fn cancel(session: &ConnectionOptions, agent_id: &str, name: String) -> Result<CancelOutput, Failure> {
    let client = session.client();
    let agent = client.agent(agent_id);
    let number = name.parse().ok().map(RequestIdParam::Number);
    let output = agent.cancel(&CancelParams { request_id: RequestIdParam::Text(name) }).await?;
    let Some(request_id) = number.filter(|_| !output.cancelled) else { return Ok(output) };
    let as_number = agent.cancel(&CancelParams { request_id }).await?;
    Ok(if as_number.cancelled { as_number } else { output })
}

async fn status(
    session: &ConnectionOptions,
    agent_id: &str,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let client = session.client();
    let agent = client.agent(agent_id);
    let tokens = to_json::<spec::GetTokens>(&agent.get_tokens(&NoParams {}).await?)?;
    let context = to_json::<spec::GetContext>(&agent.get_context(&NoParams {}).await?)?;
    print_value(streams, &json!({ "tokens": tokens, "context": context }))
}

/// A relative folder is meant from where the user stands, not from where the daemon does.
pub(crate) fn absolute_path(path: String) -> Result<String, Failure> {
    if path.starts_with('~') {
        return Ok(path);
    }
    if path.is_empty() {
        return Err(Failure::Message("--cwd needs a folder".to_owned()));
    }
    let absolute = std::path::absolute(&path)
        .map_err(|fault| Failure::Message(format!("the folder {path} cannot be named: {fault}")))?;
    Ok(absolute.into_os_string().into_string().unwrap_or(path))
}

async fn steer(
    session: &ConnectionOptions,
    agent_id: String,
    text: String,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let content = read_message(text, streams.input)?;
    let params = SteerParams { content, ..SteerParams::default() };
    let output = session.client().agent(&agent_id).steer(&params).await?;
    print::<spec::Steer>(streams, &output)?;
    if output.steered {
        Ok(EXIT_SUCCESS)
    } else {
        Err(Failure::Message(format!("{agent_id} has no running turn that takes another word")))
    }
}

async fn destroy(
    session: &ConnectionOptions,
    agent_id: String,
    orphan: bool,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = DestroyAgentParams { agent_id, orphan: orphan.then_some(true) };
    let output = session.client().destroy_agent(&params).await?;
    print::<spec::DestroyAgent>(streams, &output)?;
    if output.success {
        Ok(EXIT_SUCCESS)
    } else {
        Err(Failure::Message(format!("no agent {}", output.agent_id)))
    }
}

fn to_json<M: MethodSpec>(output: &M::Output) -> Result<Value, Failure> {
    serde_json::to_value(output).map_err(Failure::write_failed)
}

/// Prints a method's answer, members in the order of the method list's documents.
pub(crate) fn print<M: MethodSpec>(streams: &mut Streams<'_>, output: &M::Output) -> Result<u8, Failure> {
    let text = serde_json::to_string_pretty(output).map_err(Failure::write_failed)?;
    print_text(streams, &text)
}

fn print_value(streams: &mut Streams<'_>, answer: &Value) -> Result<u8, Failure> {
    print_text(streams, &format!("{answer:#}"))
}

pub(crate) fn print_text(streams: &mut Streams<'_>, text: &str) -> Result<u8, Failure> {
    writeln!(streams.output, "{text}")
        .and_then(|()| streams.output.flush())
        .map_err(Failure::write_failed)?;
    Ok(EXIT_SUCCESS)
}
