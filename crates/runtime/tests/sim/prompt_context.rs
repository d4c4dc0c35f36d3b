//! Prompt context: layers for agents without a system prompt, and the volatile suffix after the last message.

use agent::outside::{ModelSpec, ModelTier};
use runtime::{AgentSpec, ContextOptions, DefaultPrompt, PoolOptions, VolatileSuffix};

use crate::world::{World, WorldOptions, expect_end, spec_named, start_send};

fn options_with_layers() -> WorldOptions {
    let context = ContextOptions {
        prompt: DefaultPrompt::Layers,
        volatile_suffix: VolatileSuffix::On,
        operating_system: "linux",
    };
    let pool_options =
        PoolOptions { system_prompt_default: None, context, ..WorldOptions::default().pool_options };
    WorldOptions { pool_options, ..WorldOptions::default() }
}

fn last_system_and_suffix(world: &World) -> (String, String) {
    let observations = world.model.observations();
    let request = observations.requests.last().expect("the model was called");
    let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    (text(&request.system), text(&request.volatile_suffix))
}

#[tokio::test(start_paused = true)]
async fn agent_without_prompt_gets_the_layers_permanently() {
    let world = World::open(options_with_layers()).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    let (system, suffix) = last_system_and_suffix(&world);
    assert!(system.starts_with("# System\nSource: built in\n"), "{system}");
    assert!(
        system.contains("Working directory: /work\nOperating system: linux\nYou may write to: "),
        "{system}"
    );
    assert_eq!(suffix, "<session-context>\nTime: 2023-11-14 22:13 UTC\n</session-context>");
    let size = agent.tokens().size;
    assert!(size.volatile_suffix > 0 && size.system > 100 && size.system < 1300, "{size:?}");
    drop(agent);
    let world = world.restart().await;
    expect_end(start_send(&world.find("a").await, 2, "#2 say y; done")).await;
    assert_eq!(last_system_and_suffix(&world).0, system, "the same prompt after a restart");
}

#[tokio::test(start_paused = true)]
async fn own_prompt_replaces_the_layers() {
    let world = World::open(options_with_layers()).await;
    let spec = AgentSpec { system_prompt: Some("be a poet".to_owned()), ..spec_named("a") };
    let agent = world.create_handle(spec).await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    let (system, suffix) = last_system_and_suffix(&world);
    assert_eq!(system, "be a poet");
    assert!(suffix.contains("Time: "), "every agent gets the suffix");
}

#[tokio::test(start_paused = true)]
async fn small_model_gets_a_short_prompt() {
    let model_spec = ModelSpec { tier: ModelTier::Small, ..ModelSpec::with_window(4096) };
    let world = World::open(WorldOptions { model_spec, ..options_with_layers() }).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    let size = agent.tokens().size;
    assert!(size.system + size.tools <= 300, "{size:?}");
}

#[tokio::test(start_paused = true)]
async fn without_layers_and_suffix_nothing_is_added() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say x; done")).await;
    assert_eq!(last_system_and_suffix(&world), ("the pool's prompt".to_owned(), String::new()));
    assert_eq!(agent.tokens().size.volatile_suffix, 0);
}
