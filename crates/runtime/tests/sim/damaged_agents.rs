//! An agent whose stored rows are damaged: listings name it and show the others.

use agent::FaultKind;
use runtime::{AgentStatus, ListScope};

use crate::world::{World, agent_id};

fn ids(agents: &[AgentStatus]) -> Vec<&str> {
    agents.iter().map(|agent| agent.id.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn listing_names_a_damaged_agent_and_shows_the_others() {
    let world = World::new().await;
    world.agents(["a", "b"]).await;
    let parent = world.trusted_agent("p").await;
    for name in ["c", "d"] {
        world.child_agent(name, &parent).await;
    }
    drop(parent);
    let world = world.stop_and_start().await;
    let serial = |name: &str| world.pool.find_ref(&agent_id(name)).expect("the agent exists").serial();
    for (damaged, expected, intact) in [
        ("b", vec!["b"], vec!["a", "p", "c", "d"]),
        ("d", vec!["d"], vec!["a", "b", "p", "c"]),
        // A child cannot be used without the ceiling of its parent.
        ("p", vec!["p", "c", "d"], vec!["a", "b"]),
    ] {
        world.store.damage_agent(serial(damaged));
        let page = world.pool.list_page(ListScope::All, 0, 100).await.expect("a damaged agent is no error");
        assert_eq!((page.total, ids(&page.agents)), (5, intact), "{damaged}");
        let found: Vec<_> = page.damaged.iter().map(|agent| agent.id.as_str()).collect();
        assert_eq!(found, expected, "{damaged}");
        for agent in &page.damaged {
            assert_eq!(agent.fault.kind, FaultKind::Internal);
            assert!(agent.fault.public.contains("the store is damaged; run nexus3 check"), "{}", agent.fault);
        }
        let page = world.pool.list_page(ListScope::All, 0, 1).await.expect("a page without it");
        assert_eq!((ids(&page.agents), page.damaged.len()), (vec!["a"], 0), "{damaged}");
    }
    world.store.damage_agent(serial("c"));
    let parent = world.find("p").await;
    let children = world.pool.children(&parent).await.expect("a damaged child is no error");
    assert_eq!((ids(&children.agents), children.damaged[0].id.as_str()), (vec!["d"], "c"));
    assert_eq!(world.pool.child_ids(&parent), [agent_id("c"), agent_id("d")]);
    assert!(world.pool.find(&agent_id("c")).await.is_err());
}
