//! Agents in trees: pages of the list, one agent in full, children, and what becomes of them.

use serde_json::json;

use super::*;

/// lead → helper, writer.
async fn small_tree() -> Fixture {
    let house = Fixture::new().await;
    house.create_agent("lead", "trusted", None).await;
    house.create_agent("helper", "sandboxed", Some("lead")).await;
    house.create_agent("writer", "worker", Some("lead")).await;
    house
}

fn agent_ids(agents: &Value) -> Vec<&str> {
    agents.as_array().unwrap().iter().map(|agent| agent["agent_id"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_and_counts_all() {
    let house = Fixture::new().await;
    house.create_agents(&["a", "b", "c", "d", "e"]).await;
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
        let list = house.call_ok("/", "list_agents", params).await;
        assert_eq!((agent_ids(&list["agents"]), &list["total"]), (expected.to_vec(), &json!(5)), "{params}");
    }
    let beyond = house.call_daemon(&request("list_agents", r#"{"offset":9}"#)).await;
    assert_eq!(beyond, result(r#"{"agents":[],"total":5}"#));
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_each_agents_place_and_preset() {
    let house = small_tree().await;
    let list = house.call_ok("/", "list_agents", "{}").await;
    let shown: Vec<_> = list["agents"]
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
    assert_eq!(shown, expected);
    assert!(list["agents"].as_array().unwrap().iter().all(|agent| agent["state"] == "live"));
    assert_eq!(list["agents"][0]["write_paths"], json!(["/home/user/agents"]));
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_shown_with_its_line_and_its_work() {
    let house = small_tree().await;
    let lead = house.call_ok("lead", "get_agent", "{}").await;
    assert_eq!(lead["children"], json!(["helper", "writer"]));
    assert_eq!((&lead["ancestors"], &lead["depth"]), (&json!([]), &json!(0)));
    let wait = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#;
    let sends = [
        house.spawn_call("helper", wait),
        house.spawn_call("helper", wait),
        house.spawn_call("helper", wait),
    ];
    run_until_idle().await;
    let helper = house.call_ok("helper", "get_agent", "{}").await;
    assert_eq!((&helper["ancestors"], &helper["depth"]), (&json!(["lead"]), &json!(1)));
    assert_eq!((&helper["working"], &helper["queued"]), (&json!(true), &json!(2)));
    assert_eq!(helper["tools"], json!(["fs.read_file", "agent_send"]));
    house.released.add_permits(3);
    for send in sends {
        assert!(send.await.unwrap().1.contains("hello"));
    }
    let helper = house.call_ok("helper", "get_agent", "{}").await;
    assert_eq!((&helper["working"], &helper["queued"]), (&json!(false), &json!(0)));
    assert_eq!(helper["budget"][0]["used"], 3);
    let lead = house.call_ok("lead", "get_agent", "{}").await;
    assert_eq!(lead["budget"][0]["used"], 3, "a child without a share draws on its parent");
}

#[tokio::test(start_paused = true)]
async fn children_are_those_right_below() {
    let house = small_tree().await;
    let children = house.call_ok("lead", "list_children", "{}").await;
    assert_eq!(children["agent_id"], "lead");
    assert_eq!(agent_ids(&children["children"]), ["helper", "writer"]);
    let list = house.call_ok("/", "list_agents", r#"{"offset":1,"limit":2}"#).await;
    assert_eq!(children["children"], list["agents"], "each as the list shows it");
    let none = house.call_agent("helper", &request("list_children", "{}")).await;
    assert_eq!(none, result(r#"{"agent_id":"helper","children":[]}"#));
}

#[tokio::test(start_paused = true)]
async fn children_go_with_their_parent_unless_they_are_left_behind() {
    let house = small_tree().await;
    let destroyed =
        house.call_daemon(&request("destroy_agent", r#"{"agent_id":"lead","orphan":true}"#)).await;
    assert_eq!(destroyed, result(r#"{"success":true,"agent_id":"lead"}"#));
    assert_eq!(house.agent_names().await, ["helper", "writer"]);
    let helper = house.call_ok("helper", "get_agent", "{}").await;
    assert_eq!((&helper["ancestors"], &helper["depth"]), (&json!(["lead"]), &json!(1)), "its ceiling stays");
    assert_eq!(helper["agent"]["parent_agent_id"], "lead");

    let house = small_tree().await;
    for orphan in ["", r#","orphan":false"#, r#","orphan":null"#] {
        let params = format!(r#"{{"agent_id":"lead"{orphan}}}"#);
        house.call_ok("/", "destroy_agent", &params).await;
        assert_eq!(house.agent_names().await, Vec::<String>::new(), "{params}");
        house.create_agent("lead", "trusted", None).await;
        house.create_agent("helper", "sandboxed", Some("lead")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_no_child_of_the_next_agent_of_its_parents_name() {
    let house = small_tree().await;
    house.call_ok("/", "destroy_agent", r#"{"agent_id":"lead","orphan":true}"#).await;
    house.create_agent("lead", "trusted", None).await;
    let lead = house.call_ok("lead", "get_agent", "{}").await;
    assert_eq!((&lead["children"], &lead["agent"]["child_count"]), (&json!([]), &json!(0)));
    let caller = Caller::admin().acting_as("lead");
    let reached = house.call_as(&caller, "helper", &request("get_tokens", "{}")).await;
    assert_eq!(reached, denied("Agent 'lead' is not authorized to call get_tokens on 'helper'"));
    let list = house.call_as(&caller, "/", &request("list_agents", "{}")).await.1;
    assert!(list.ends_with(r#""total":1}}"#), "{list}");
}

#[tokio::test(start_paused = true)]
async fn an_orphans_rights_stay_below_what_its_parent_may_grant() {
    let house = Fixture::new().await;
    house.request_create(r#"{"agent_id":"pen","cwd":"sub","may_create":["sandboxed"]}"#).await;
    house.request_create(r#"{"agent_id":"calf","parent_agent_id":"pen"}"#).await;
    let before = house.call_ok("calf", "get_permissions", "{}").await;
    house.call_ok("/", "destroy_agent", r#"{"agent_id":"pen","orphan":true}"#).await;
    assert_eq!(house.call_ok("calf", "get_permissions", "{}").await, before);
    let wider = house.call_agent("calf", &request("set_permissions", r#"{"preset":"trusted"}"#)).await;
    assert_eq!(wider, denied("Requested preset 'trusted' exceeds parent ceiling"));
    let below = house.request_create(r#"{"parent_agent_id":"pen"}"#).await;
    assert_eq!(below, error(-32602, "Parent agent not found: pen"));
}

#[tokio::test(start_paused = true)]
async fn what_a_child_had_set_aside_goes_back_when_it_is_destroyed() {
    let house = Fixture::new().await;
    house
        .request_create(r#"{"agent_id":"lead","preset":"trusted","budget":{"turns":10,"children":2}}"#)
        .await;
    house.request_create(r#"{"agent_id":"c","parent_agent_id":"lead","budget":{"turns":6}}"#).await;
    house.call_ok("c", "send", r#"{"content":"hi"}"#).await;
    let holds = |used: u64, reserved: u64, left: u64| json!({ "resource": "turns", "limit": 10, "used": used, "reserved": reserved, "left": left });
    let lead = house.call_ok("lead", "get_agent", "{}").await["budget"].take();
    assert_eq!(lead[0], holds(0, 6, 4));
    let children = json!({ "resource": "children", "limit": 2, "used": 1, "reserved": 0, "left": 1 });
    assert_eq!(lead[4], children);
    let second = house.request_create(r#"{"parent_agent_id":"lead","budget":{"turns":5}}"#).await;
    assert_eq!(second, denied("budget of turns exceeds what the parent has left: 4"));
    house.call_ok("/", "destroy_agent", r#"{"agent_id":"c"}"#).await;
    let lead = house.call_ok("lead", "get_agent", "{}").await["budget"].take();
    assert_eq!(lead[0], holds(1, 0, 9), "what was used stays used");
    assert_eq!(lead[4]["used"], 0);
}
