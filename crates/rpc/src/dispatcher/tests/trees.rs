//! Trees of agents: paged lists, details of one agent, children, orphans, and returned budgets.

use serde_json::json;

use super::*;

/// lead → helper, writer.
async fn small_tree() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.create_agent("lead", "trusted", None).await;
    fixture.create_agent("helper", "sandboxed", Some("lead")).await;
    fixture.create_agent("writer", "worker", Some("lead")).await;
    fixture
}

fn agent_ids(agents: &Value) -> Vec<&str> {
    agents.as_array().unwrap().iter().map(|agent| agent["agent_id"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn list_agents_pages_and_counts_all() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b", "c", "d", "e"]).await;
    let cases: [(&str, &[&str]); 7] = [
        ("{}", &["a", "b", "c", "d", "e"]),
        (r#"{"limit":2}"#, &["a", "b"]),
        (r#"{"offset":2,"limit":2}"#, &["c", "d"]),
        (r#"{"offset":4,"limit":2}"#, &["e"]),
        (r#"{"offset":3}"#, &["d", "e"]),
        (r#"{"offset":5}"#, &[]),
        (r#"{"offset":18446744073709551615,"limit":2000}"#, &[]),
    ];
    for (params, expected) in cases {
        let list = fixture.call_ok("/", "list_agents", params).await;
        assert_eq!((agent_ids(&list["agents"]), &list["total"]), (expected.to_vec(), &json!(5)), "{params}");
    }
    let beyond = fixture.call_daemon(&request("list_agents", r#"{"offset":9}"#)).await;
    assert_eq!(beyond, result(r#"{"agents":[],"total":5}"#));
}

#[tokio::test(start_paused = true)]
async fn list_agents_shows_parent_children_and_preset() {
    let fixture = small_tree().await;
    let list = fixture.call_ok("/", "list_agents", "{}").await;
    let rows: Vec<_> = list["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| {
            json!([
                agent["parent_agent_id"],
                agent["child_count"],
                agent["preset"],
                agent["permission_level"]
            ])
        })
        .collect();
    let expected = [
        json!([null, 2, "trusted", "TRUSTED"]),
        json!(["lead", 0, "sandboxed", "SANDBOXED"]),
        json!(["lead", 0, "worker", "SANDBOXED"]),
    ];
    assert_eq!(rows, expected);
    assert!(list["agents"].as_array().unwrap().iter().all(|agent| agent["state"] == "live"));
    assert_eq!(list["agents"][0]["write_paths"], json!(["/home/user/agents"]));
}

#[tokio::test(start_paused = true)]
async fn get_agent_shows_ancestors_and_queue() {
    let fixture = small_tree().await;
    let lead = fixture.call_ok("lead", "get_agent", "{}").await;
    assert_eq!(lead["children"], json!(["helper", "writer"]));
    assert_eq!((&lead["ancestors"], &lead["depth"]), (&json!([]), &json!(0)));
    let wait = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#;
    let sends = [
        fixture.spawn_call("helper", wait),
        fixture.spawn_call("helper", wait),
        fixture.spawn_call("helper", wait),
    ];
    run_until_idle().await;
    let helper = fixture.call_ok("helper", "get_agent", "{}").await;
    assert_eq!((&helper["ancestors"], &helper["depth"]), (&json!(["lead"]), &json!(1)));
    assert_eq!((&helper["working"], &helper["queued"]), (&json!(true), &json!(2)));
    assert_eq!(helper["tools"], json!(["fs.read_file", "agent_send"]));
    fixture.released.add_permits(3);
    for send in sends {
        assert!(send.await.unwrap().1.contains("hello"));
    }
    let helper = fixture.call_ok("helper", "get_agent", "{}").await;
    assert_eq!((&helper["working"], &helper["queued"]), (&json!(false), &json!(0)));
    assert_eq!(helper["budget"][0]["used"], 3);
    let lead = fixture.call_ok("lead", "get_agent", "{}").await;
    assert_eq!(lead["budget"][0]["used"], 3, "a child without its own budget consumes its parent's");
}

#[tokio::test(start_paused = true)]
async fn list_children_returns_direct_children_only() {
    let fixture = small_tree().await;
    let children = fixture.call_ok("lead", "list_children", "{}").await;
    assert_eq!(children["agent_id"], "lead");
    assert_eq!(agent_ids(&children["children"]), ["helper", "writer"]);
    let list = fixture.call_ok("/", "list_agents", r#"{"offset":1,"limit":2}"#).await;
    assert_eq!(children["children"], list["agents"], "same view as list_agents");
    let none = fixture.call_agent("helper", &request("list_children", "{}")).await;
    assert_eq!(none, result(r#"{"agent_id":"helper","children":[]}"#));
}

#[tokio::test(start_paused = true)]
async fn destroy_cascades_unless_orphan_is_set() {
    let fixture = small_tree().await;
    let destroyed =
        fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"lead","orphan":true}"#)).await;
    assert_eq!(destroyed, result(r#"{"success":true,"agent_id":"lead"}"#));
    assert_eq!(fixture.agent_names().await, ["helper", "writer"]);
    let helper = fixture.call_ok("helper", "get_agent", "{}").await;
    assert_eq!(
        (&helper["ancestors"], &helper["depth"]),
        (&json!(["lead"]), &json!(1)),
        "its ceiling remains"
    );
    assert_eq!(helper["agent"]["parent_agent_id"], "lead");

    let fixture = small_tree().await;
    for orphan in ["", r#","orphan":false"#, r#","orphan":null"#] {
        let params = format!(r#"{{"agent_id":"lead"{orphan}}}"#);
        fixture.call_ok("/", "destroy_agent", &params).await;
        assert_eq!(fixture.agent_names().await, Vec::<String>::new(), "{params}");
        fixture.create_agent("lead", "trusted", None).await;
        fixture.create_agent("helper", "sandboxed", Some("lead")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn orphan_is_not_adopted_by_a_new_agent_with_its_parents_id() {
    let fixture = small_tree().await;
    fixture.call_ok("/", "destroy_agent", r#"{"agent_id":"lead","orphan":true}"#).await;
    fixture.create_agent("lead", "trusted", None).await;
    let lead = fixture.call_ok("lead", "get_agent", "{}").await;
    assert_eq!((&lead["children"], &lead["agent"]["child_count"]), (&json!([]), &json!(0)));
    let caller = Caller::admin().acting_as("lead");
    let response = fixture.call_as(&caller, "helper", &request("get_tokens", "{}")).await;
    assert_eq!(response, denied("Agent 'lead' is not authorized to call get_tokens on 'helper'"));
    let list = fixture.call_as(&caller, "/", &request("list_agents", "{}")).await.1;
    assert!(list.ends_with(r#""total":1}}"#), "{list}");
}

#[tokio::test(start_paused = true)]
async fn orphan_keeps_the_ceiling_of_its_destroyed_parent() {
    let fixture = Fixture::new().await;
    fixture.request_create(r#"{"agent_id":"pen","cwd":"sub","may_create":["sandboxed"]}"#).await;
    fixture.request_create(r#"{"agent_id":"calf","parent_agent_id":"pen"}"#).await;
    let before = fixture.call_ok("calf", "get_permissions", "{}").await;
    fixture.call_ok("/", "destroy_agent", r#"{"agent_id":"pen","orphan":true}"#).await;
    assert_eq!(fixture.call_ok("calf", "get_permissions", "{}").await, before);
    let wider = fixture.call_agent("calf", &request("set_permissions", r#"{"preset":"trusted"}"#)).await;
    assert_eq!(wider, denied("Requested preset 'trusted' exceeds parent ceiling"));
    let below = fixture.request_create(r#"{"parent_agent_id":"pen"}"#).await;
    assert_eq!(below, error(-32602, "Parent agent not found: pen"));
}

#[tokio::test(start_paused = true)]
async fn destroyed_child_returns_its_reserved_budget() {
    let fixture = Fixture::new().await;
    fixture
        .request_create(r#"{"agent_id":"lead","preset":"trusted","budget":{"turns":10,"children":2}}"#)
        .await;
    fixture.request_create(r#"{"agent_id":"c","parent_agent_id":"lead","budget":{"turns":6}}"#).await;
    fixture.call_ok("c", "send", r#"{"content":"hi"}"#).await;
    let turns = |used: u64, reserved: u64, left: u64| json!({ "resource": "turns", "limit": 10, "used": used, "reserved": reserved, "left": left });
    let lead = fixture.call_ok("lead", "get_agent", "{}").await["budget"].take();
    assert_eq!(lead[0], turns(0, 6, 4));
    let children = json!({ "resource": "children", "limit": 2, "used": 1, "reserved": 0, "left": 1 });
    assert_eq!(lead[4], children);
    let second = fixture.request_create(r#"{"parent_agent_id":"lead","budget":{"turns":5}}"#).await;
    assert_eq!(second, denied("budget of turns exceeds what the parent has left: 4"));
    fixture.call_ok("/", "destroy_agent", r#"{"agent_id":"c"}"#).await;
    let lead = fixture.call_ok("lead", "get_agent", "{}").await["budget"].take();
    assert_eq!(lead[0], turns(1, 0, 9), "consumed budget is not returned");
    assert_eq!(lead[4]["used"], 0);
}
