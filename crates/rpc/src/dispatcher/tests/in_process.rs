//! In-process API: the shared transcript yields the same responses and faults as over HTTP.

#[path = "../../../../../lib/nexus3-protocol/tests/shared/transcript.rs"]
mod transcript;

use nexus3_protocol::methods::{
    CreateAgentParams, DestroyAgentParams, ListAgentsParams, NoParams, SendParams,
};
use nexus3_protocol::{AgentApi, ErrorCode, Method, RpcError};

use super::*;
use crate::InProcessApi;

#[tokio::test(start_paused = true)]
async fn transcript_runs_on_the_in_process_api() {
    transcript::run(&InProcessApi::new(Fixture::new().await.dispatcher), |fault| fault).await;
}

/// The client's tests verify the other side: it sends these requests and parses these responses.
#[tokio::test(start_paused = true)]
async fn transcript_matches_dispatcher_responses() {
    let fixture = Fixture::new().await;
    for (index, line) in transcript::exchanges().into_iter().enumerate() {
        let target = match line.door {
            "/" => fixture.dispatcher.daemon_target(),
            path => match fixture
                .dispatcher
                .agent_target(path.strip_prefix("/agent/").unwrap(), &Caller::admin())
            {
                Ok(target) => target,
                Err(fault) => {
                    assert_eq!((fault, line.response), (TargetError::AgentNotFound, "404"), "line {index}");
                    continue;
                }
            },
        };
        let body = format!(r#"{{"jsonrpc":"2.0",{},"id":1}}"#, line.request);
        let response =
            fixture.dispatcher.respond(&target, &Caller::admin(), body.as_bytes(), EnvelopeRules::HTTP).await;
        let text = String::from_utf8(response.body).unwrap();
        if line.response == "OPENRPC" {
            assert!(text.contains(r#""title":"nexus3""#), "line {index}");
        } else {
            assert_eq!(text, format!(r#"{{"jsonrpc":"2.0","id":1,{}}}"#, line.response), "line {index}");
        }
    }
}

#[test]
fn transcript_covers_every_method() {
    let lines = transcript::exchanges();
    for method in Method::ALL {
        let name = format!(r#""method":"{}""#, method.name());
        assert!(lines.iter().any(|line| line.request.starts_with(&name)), "{name} is missing");
    }
}

#[tokio::test(start_paused = true)]
async fn in_process_api_acting_as_agent_is_limited_to_its_grant() {
    let fixture = Fixture::new().await;
    fixture.create_agent("lead", "trusted", None).await;
    fixture.create_agent("helper", "sandboxed", Some("lead")).await;
    fixture.create_agents(&["other"]).await;
    let api = InProcessApi::new(fixture.dispatcher.clone()).acting_as("lead");
    let message = SendParams { content: "hi".to_owned(), ..SendParams::default() };
    assert_eq!(api.for_agent("lead").send(&message).await.unwrap().content, "you said hi");
    assert_eq!(api.for_agent("helper").send(&message).await.unwrap().content, "you said hi");
    assert_eq!(api.list_agents(&ListAgentsParams::default()).await.unwrap().total, 2);
    let denied = |text: &str| {
        let data = serde_json::json!({ "kind": "permission_denied" });
        RpcError::new(ErrorCode::InvalidParams, text).with_data(data)
    };
    let fault = api.for_agent("other").send(&message).await.unwrap_err();
    assert_eq!(fault, denied("Agent 'lead' is not authorized to call send on 'other'"));
    let fault = api.shutdown_server(&NoParams {}).await.unwrap_err();
    assert_eq!(fault, denied("Agent 'lead' is not authorized to call shutdown_server"));
    let other = DestroyAgentParams { agent_id: "other".to_owned(), orphan: None };
    let fault = api.destroy_agent(&other).await.unwrap_err();
    assert_eq!(fault, denied("Agent 'lead' is not authorized to destroy 'other'"));
    let created = api.create_agent(&CreateAgentParams::default()).await.unwrap();
    let agent = api.for_agent(&created.agent_id).get_agent(&NoParams {}).await.unwrap();
    assert_eq!(agent.ancestors, ["lead"]);
    let unknown = InProcessApi::new(fixture.dispatcher.clone()).acting_as("missing");
    let fault = unknown.discover(&NoParams {}).await.unwrap_err();
    assert_eq!(fault, denied("X-Nexus-Agent names no agent that exists"));
}

#[tokio::test(start_paused = true)]
async fn in_process_call_to_missing_agent_creates_nothing() {
    let fixture = Fixture::new().await;
    let api = InProcessApi::new(fixture.dispatcher.clone());
    for name in ["", "..", "a/b", "missing", "main"] {
        let fault = api.get_tokens(name, &NoParams {}).await.unwrap_err();
        assert_eq!(fault, RpcError::new(ErrorCode::InvalidParams, format!("Agent not found: {name}")));
    }
    assert_eq!(fixture.agent_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn in_process_call_is_behind_the_panic_barrier() {
    let fixture = Fixture::new().await;
    fixture.entropy.set_panics(true);
    let api = InProcessApi::new(fixture.dispatcher.clone());
    let fault = api.create_agent(&CreateAgentParams::default()).await.unwrap_err();
    assert_eq!(fault, RpcError::new(ErrorCode::Internal, "Internal error: the call panicked"));
}

#[tokio::test]
async fn in_process_futures_are_send_and_api_is_sync() {
    fn spawnable<T: Send>(_: &T) {}
    fn shared<T: Send + Sync>(_: &T) {}
    let api = InProcessApi::new(Fixture::new().await.dispatcher);
    shared(&api);
    spawnable(&api.send("a", &SendParams::default()));
    spawnable(&api.create_agent(&CreateAgentParams::default()));
}
