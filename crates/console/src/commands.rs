//! The commands of `nexus3 rpc`: which method each calls and what it prints. Waiting and cancelling of a send is left
//! to `send`.

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

/// Maximum size of a message from standard input; the daemon accepts far less.
const MESSAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(crate) async fn run(
    command: RpcCommand,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    match command {
        RpcCommand::Detect => detect(connection, streams).await,
        RpcCommand::List => print::<spec::ListAgents>(
            streams,
            &connection.client().list_agents(&ListAgentsParams::default()).await?,
        ),
        RpcCommand::Create(args) => create(*args, connection, streams, interrupt).await,
        RpcCommand::Send(args) => send_message(args, connection, streams, interrupt).await,
        RpcCommand::Cancel { agent_id, request_id } => {
            print::<spec::Cancel>(streams, &cancel(connection, &agent_id, request_id).await?)
        }
        RpcCommand::Status { agent_id } => status(connection, &agent_id, streams).await,
        RpcCommand::Compact { agent_id, if_full } => {
            let params = CompactParams { force: if_full.then_some(false) };
            print::<spec::Compact>(streams, &connection.client().agent(agent_id).compact(&params).await?)
        }
        RpcCommand::Messages { agent_id, offset, limit } => {
            let page = MessagesParams { offset: offset.map(PageOffset), limit: limit.map(PageSize) };
            print::<spec::GetMessages>(
                streams,
                &connection.client().agent(agent_id).get_messages(&page).await?,
            )
        }
        RpcCommand::Steer { agent_id, text } => steer(connection, agent_id, text, streams).await,
        RpcCommand::Show { agent_id } => print::<spec::GetAgent>(
            streams,
            &connection.client().agent(agent_id).get_agent(&NoParams {}).await?,
        ),
        RpcCommand::Children { agent_id } => {
            let children = connection.client().agent(agent_id).list_children(&NoParams {}).await?;
            print::<spec::ListChildren>(streams, &children)
        }
        RpcCommand::Permissions { agent_id } => {
            let permissions = connection.client().agent(agent_id).get_permissions(&NoParams {}).await?;
            print::<spec::GetPermissions>(streams, &permissions)
        }
        RpcCommand::Sessions { offset, limit } => lifecycle::list(connection, offset, limit, streams).await,
        RpcCommand::Fork { agent_id, new_agent_id, messages } => {
            lifecycle::fork(connection, agent_id, new_agent_id, messages, streams).await
        }
        RpcCommand::Rollback { agent_id, messages } => {
            lifecycle::rollback(connection, agent_id, messages, streams).await
        }
        RpcCommand::Undo { agent_id, turn } => lifecycle::undo(connection, agent_id, turn, streams).await,
        RpcCommand::Rename { agent_id, new_agent_id } => {
            lifecycle::rename(connection, agent_id, new_agent_id, streams).await
        }
        RpcCommand::Export { agent_id } => lifecycle::export(connection, agent_id, streams).await,
        RpcCommand::Import { file, name } => lifecycle::import(connection, &file, name, streams).await,
        RpcCommand::Events(args) => events::follow(args, connection, streams, interrupt).await,
        RpcCommand::Destroy { agent_id, orphan } => destroy(connection, agent_id, orphan, streams).await,
        RpcCommand::Shutdown => {
            print::<spec::ShutdownServer>(streams, &connection.client().shutdown_server(&NoParams {}).await?)
        }
    }
}

async fn detect(connection: &ConnectionOptions, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let detection = detect_server(&connection.endpoint, DETECT_TIMEOUT).await;
    let running = detection == Detection::NexusServer;
    let value =
        json!({ "port": connection.endpoint.port(), "result": detection.as_str(), "running": running });
    print_value(streams, &value)?;
    Ok(if running { EXIT_SUCCESS } else { EXIT_FAILURE })
}

async fn create(
    args: CreateArgs,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let message = args.message.map(|text| read_message(text, streams.input)).transpose()?;
    let client = connection.client();
    let list = |items: Vec<String>| (!items.is_empty()).then_some(items);
    let params = CreateAgentParams {
        agent_id: args.agent_id,
        temporary: args.temporary.then_some(true),
        system_prompt: args.system_prompt,
        preset: args.preset,
        tools: list(args.tools),
        disable_tools: list(args.disable_tools),
        parent_agent_id: args.parent,
        cwd: args.cwd.map(absolute_path).transpose()?,
        allowed_write_paths: list(args.write_paths),
        allowed_commands: list(args.allowed_commands),
        ask: list(args.ask),
        allow: list(args.allow),
        deny: list(args.deny),
        allowed_hosts: list(args.allowed_hosts),
        denied_hosts: list(args.denied_hosts),
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
    let output = send(connection, client, outgoing, OutputMode::Buffered, streams.errors, interrupt).await;
    let mut value = to_json::<spec::CreateAgent>(&created)?;
    if let (Ok(output), Some(members)) = (&output, value.as_object_mut()) {
        members.insert("response".to_owned(), to_json::<spec::Send>(output)?);
    }
    // Printed even when the send failed: the agent exists, and its id may be generated.
    print_value(streams, &value)?;
    exit_code_for(&output?)
}

async fn send_message(
    args: SendArgs,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
    interrupt: Interrupt<'_>,
) -> Result<u8, Failure> {
    let content = read_message(args.text, streams.input)?;
    let (agent_id, request_id, time_limit) = (args.agent_id, args.request_id, args.timeout);
    let (images, retry_hint) = (load_images(args.images)?, RetryHint::SameRequestId);
    let outgoing = OutgoingMessage { agent_id, content, images, request_id, time_limit, retry_hint };
    let output_mode = if args.stream { OutputMode::Streamed(streams.output) } else { OutputMode::Buffered };
    let output =
        send(connection, connection.client(), outgoing, output_mode, streams.errors, interrupt).await?;
    if !args.stream {
        print::<spec::Send>(streams, &output)?;
    } else if let Some(halted) = &output.halted {
        // With JSON output the result has this member.
        let _ = writeln!(streams.errors, "the turn stopped early: {halted}");
    }
    exit_code_for(&output)
}

/// Returns the exit code of a send: failure if it was cancelled, so that scripts do not mistake partial text for a
/// complete response.
pub(crate) fn exit_code_for(output: &SendOutput) -> Result<u8, Failure> {
    if output.cancelled {
        return Err(Failure::Message("cancelled; the text is partial".to_owned()));
    }
    Ok(EXIT_SUCCESS)
}

pub(crate) fn read_message(text: String, input: &mut dyn Read) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text);
    }
    let mut message = String::new();
    let read = input.take(MESSAGE_BYTES_MAX + 1).read_to_string(&mut message);
    read.map_err(|fault| Failure::Message(format!("cannot read the message from standard input: {fault}")))?;
    if message.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(Failure::Message(format!("the message is longer than {MESSAGE_BYTES_MAX} bytes")));
    }
    Ok(message)
}

/// Cancels a send. `"5"` and `5` are different request ids but look the same on the command line: the number is tried
/// when no send has the text.
async fn cancel(
    connection: &ConnectionOptions,
    agent_id: &str,
    text: String,
) -> Result<CancelOutput, Failure> {
    let client = connection.client();
    let agent = client.agent(agent_id);
    let number = text.parse().ok().map(RequestIdParam::Number);
    let output = agent.cancel(&CancelParams { request_id: RequestIdParam::Text(text) }).await?;
    let Some(request_id) = number.filter(|_| !output.cancelled) else { return Ok(output) };
    let as_number = agent.cancel(&CancelParams { request_id }).await?;
    Ok(if as_number.cancelled { as_number } else { output })
}

async fn status(
    connection: &ConnectionOptions,
    agent_id: &str,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let client = connection.client();
    let agent = client.agent(agent_id);
    let tokens = to_json::<spec::GetTokens>(&agent.get_tokens(&NoParams {}).await?)?;
    let context = to_json::<spec::GetContext>(&agent.get_context(&NoParams {}).await?)?;
    print_value(streams, &json!({ "tokens": tokens, "context": context }))
}

/// Resolves a relative path against the working directory of the command, not of the daemon.
pub(crate) fn absolute_path(path: String) -> Result<String, Failure> {
    if path.starts_with('~') {
        return Ok(path);
    }
    if path.is_empty() {
        return Err(Failure::Message("--cwd needs a directory".to_owned()));
    }
    let absolute = std::path::absolute(&path)
        .map_err(|fault| Failure::Message(format!("cannot resolve the path {path}: {fault}")))?;
    Ok(absolute.into_os_string().into_string().unwrap_or(path))
}

async fn steer(
    connection: &ConnectionOptions,
    agent_id: String,
    text: String,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let content = read_message(text, streams.input)?;
    let params = SteerParams { content, ..SteerParams::default() };
    let output = connection.client().agent(&agent_id).steer(&params).await?;
    print::<spec::Steer>(streams, &output)?;
    if output.steered {
        Ok(EXIT_SUCCESS)
    } else {
        Err(Failure::Message(format!(
            "agent {agent_id} did not accept the instructions: no running turn, or too many are pending"
        )))
    }
}

async fn destroy(
    connection: &ConnectionOptions,
    agent_id: String,
    orphan: bool,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = DestroyAgentParams { agent_id, orphan: orphan.then_some(true) };
    let output = connection.client().destroy_agent(&params).await?;
    print::<spec::DestroyAgent>(streams, &output)?;
    if output.success {
        Ok(EXIT_SUCCESS)
    } else {
        Err(Failure::Message(format!("agent not found: {}", output.agent_id)))
    }
}

fn to_json<M: MethodSpec>(output: &M::Output) -> Result<Value, Failure> {
    serde_json::to_value(output).map_err(Failure::write_failed)
}

/// Prints the result of a method, its members in the order of the reference.
pub(crate) fn print<M: MethodSpec>(streams: &mut Streams<'_>, output: &M::Output) -> Result<u8, Failure> {
    let text = serde_json::to_string_pretty(output).map_err(Failure::write_failed)?;
    print_text(streams, &text)
}

fn print_value(streams: &mut Streams<'_>, value: &Value) -> Result<u8, Failure> {
    print_text(streams, &format!("{value:#}"))
}

pub(crate) fn print_text(streams: &mut Streams<'_>, text: &str) -> Result<u8, Failure> {
    writeln!(streams.output, "{text}")
        .and_then(|()| streams.output.flush())
        .map_err(Failure::write_failed)?;
    Ok(EXIT_SUCCESS)
}
