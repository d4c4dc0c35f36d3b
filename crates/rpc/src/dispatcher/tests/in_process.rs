//! The calls without a wire: the same story that is told over HTTP, with the same answers and faults.

#[path = "../../../../../lib/nexus3-protocol/tests/shared/transcript.rs"]
mod transcript;

use nexus3_protocol::methods::{
    CreateAgentParams, DestroyAgentParams, ListAgentsParams, NoParams, SendParams,
};
use nexus3_protocol::{AgentApi, ErrorCode, Method, RpcError};

use super::*;
use crate::InProcessApi;

#[tokio::test(start_paused = true)]
async fn the_story_is_the_same_without_a_wire() {
    transcript::run(&InProcessApi::new(Fixture::new().await.dispatcher), |fault| fault).await;
}

/// The other half is in the client's tests: its requests are these, and it reads these answers.
#[tokio::test(start_paused = true)]
async fn the_transcript_of_the_story_is_what_a_desk_answers() {
    let house = Fixture::new().await;
    for (place, line) in transcript::exchanges().into_iter().enumerate() {
        let entrance = match line.door {
            "/" => house.dispatcher.daemon_target(),
            path => match house.dispatcher.agent_target(path.strip_prefix("/agent/").unwrap()) {
                Ok(entrance) => entrance,
                Err(fault) => {
                    assert_eq!((fault, line.response), (TargetError::AgentNotFound, "404"), "line {place}");
                    continue;
                }
            },
        };
        let body = format!(r#"{{"jsonrpc":"2.0",{},"id":1}}"#, line.request);
        let answer = house.dispatcher.respond(entrance, &Caller::admin(), body.as_bytes()).await;
        let text = String::from_utf8(answer.body).unwrap();
        if line.response == "OPENRPC" {
            assert!(text.contains(r#""title":"nexus3""#), "line {place}");
        } else {
            assert_eq!(text, format!(r#"{{"jsonrpc":"2.0","id":1,{}}}"#, line.response), "line {place}");
        }
    }
}

#[test]
fn the_transcript_holds_every_method() {
    let lines = transcript::exchanges();
    for method in Method::ALL {
        let name = format!(r#""method":"{}""#, method.name());
        assert!(lines.iter().any(|line| line.request.starts_with(&name)), "{name} is missing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_narrowed_caller_may_no_more_than_over_the_wire() {
    let house = Fixture::new().await;
    house.create_agent("lead", "trusted", None).await;
    house.create_agent("helper", "sandboxed", Some("lead")).await;
    house.create_agents(&["other"]).await;
    let api = InProcessApi::new(house.dispatcher.clone()).acting_as("lead");
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
    let nobody = InProcessApi::new(house.dispatcher.clone()).acting_as("nobody");
    let fault = nobody.discover(&NoParams {}).await.unwrap_err();
    assert_eq!(fault, denied("X-Nexus-Agent names no agent that exists"));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_finds_no_agent_and_main_is_not_made() {
    let house = Fixture::new().await;
    let api = InProcessApi::new(house.dispatcher.clone());
    for name in ["", "..", "a/b", "nobody", "main"] {
        let fault = api.get_tokens(name, &NoParams {}).await.unwrap_err();
        assert_eq!(fault, RpcError::new(ErrorCode::InvalidParams, format!("Agent not found: {name}")));
    }
    assert_eq!(house.agent_names().await, Vec::<String>::new());
}

#[tokio::test]
async fn calls_can_be_spawned_and_the_caller_shared() {
    fn spawnable<T: Send>(_: &T) {}
    fn shared<T: Send + Sync>(_: &T) {}
    let api = InProcessApi::new(Fixture::new().await.dispatcher);
    shared(&api);
    spawnable(&api.send("a", &SendParams::default()));
    spawnable(&api.create_agent(&CreateAgentParams::default()));
}
