//! What agents are told beside their messages: layers for those without a prompt, and what rides behind the last message.

use agent::outside::{ModelSpec, ModelTier};
use runtime::{AgentSpec, ContextOptions, DefaultPrompt, PoolOptions, VolatileSuffix};

use crate::world::{World, WorldOptions, expect_end, spec_named, start_send};

fn options_with_layers() -> WorldOptions {
    let context = ContextOptions {
        prompt: DefaultPrompt::Layers,
        volatile_suffix: VolatileSuffix::On,
        operating_system: "linux",
    };
    let options =
        PoolOptions { system_prompt_default: None, context, ..WorldOptions::default().pool_options };
    WorldOptions { pool_options: options, ..WorldOptions::default() }
}

fn last_system_and_suffix(world: &World) -> (String, String) {
    let seen = world.model.observations();
    let request = seen.requests.last().expect("the model was asked");
    let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    (text(&request.system), text(&request.volatile_suffix))
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_prompt_gets_the_layers_and_keeps_them() {
    let world = World::open(options_with_layers()).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    let (system, tail) = last_system_and_suffix(&world);
    assert!(system.starts_with("# System\nSource: built in\n"), "{system}");
    assert!(
        system.contains("Working directory: /work\nOperating system: linux\nYou may write to: "),
        "{system}"
    );
    assert_eq!(tail, "<session-context>\nTime: 2023-11-14 22:13 UTC\n</session-context>");
    let size = agent.tokens().size;
    assert!(size.volatile_suffix > 0 && size.system > 100 && size.system < 1300, "{size:?}");
    drop(agent);
    let world = world.restart().await;
    expect_end(start_send(&world.find("a").await, 2, "#2 say y; done")).await;
    assert_eq!(last_system_and_suffix(&world).0, system, "a restart gives the same prompt");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_of_its_own_stands_alone() {
    let world = World::open(options_with_layers()).await;
    let spec = AgentSpec { system_prompt: Some("be a poet".to_owned()), ..spec_named("a") };
    let agent = world.create_handle(spec).await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    let (system, tail) = last_system_and_suffix(&world);
    assert_eq!(system, "be a poet");
    assert!(tail.contains("Time: "), "what is true now is told to everybody");
}

#[tokio::test(start_paused = true)]
async fn a_small_model_is_told_little() {
    let model_spec = ModelSpec { tier: ModelTier::Small, ..ModelSpec::with_window(4096) };
    let world = World::open(WorldOptions { model_spec, ..options_with_layers() }).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    let size = agent.tokens().size;
    assert!(size.system + size.tools <= 300, "{size:?}");
}

#[tokio::test(start_paused = true)]
async fn without_them_nothing_is_added() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    assert_eq!(last_system_and_suffix(&world), ("the pool's prompt".to_owned(), String::new()));
    assert_eq!(agent.tokens().size.volatile_suffix, 0);
}
