//! `get_permissions` and `set_permissions`: every limit is explained, and changes stay within the parent's grant.

use serde_json::json;

use super::*;

/// The permissions of a sandboxed agent without a parent, after one turn.
pub(super) const SANDBOXED: &str = concat!(
    r#"{"agent_id":"worker","preset":"sandboxed","permission_level":"SANDBOXED","ancestors":[],"rules":[],"#,
    r#""may":{"tools":{"all_but":["agent_cancel","agent_create","agent_destroy","agent_list","agent_status","#,
    r#""approvals_answer","approvals_list","cmd.exec","fs.append_file","fs.copy","fs.delete","fs.edit","fs.mkdir","fs.move","fs.patch","fs.write_file","#,
    r#""process.list","process.read","process.start","#,
    r#""process.stop","process.write","shell.exec"]},"read":["/home/user/agents"],"write":[],"blocked":[],"commands":{"only":[]},"unsandboxed":false,"#,
    r#""hosts":{"only":[]},"create":{"only":[]},"targets":"parent agent"},"#,
    r#""may_grant":{"tools":{"all_but":["agent_cancel","agent_create","agent_destroy","agent_list","#,
    r#""agent_status","approvals_answer","approvals_list","cmd.exec","fs.append_file","fs.copy","fs.delete","fs.edit","fs.mkdir","fs.move","fs.patch","fs.write_file","#,
    r#""process.list","process.read","process.start","#,
    r#""process.stop","process.write","shell.exec"]},"read":["/home/user/agents"],"write":[],"blocked":[],"#,
    r#""commands":{"only":[]},"unsandboxed":false,"hosts":{"only":[]},"create":{"only":[]},"targets":"parent agent"},"#,
    r#""limits":["#,
    r#"{"limit":"tools","allows":"all but agent_cancel, agent_create, agent_destroy, agent_list, agent_status, "#,
    r#"approvals_answer, approvals_list, cmd.exec, fs.append_file, fs.copy, fs.delete, fs.edit, fs.mkdir, fs.move, fs.patch, fs.write_file, "#,
    r#"process.list, process.read, process.start, process.stop, "#,
    r#"process.write, shell.exec","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"read","allows":"/home/user/agents","set_by":"worker","reason":"cwd of preset 'sandboxed'"},"#,
    r#"{"limit":"write","allows":"nowhere","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"commands","allows":"none","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"hosts","allows":"none","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"create","allows":"none","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"targets","allows":"parent agent","set_by":"worker","reason":"preset 'sandboxed'"}],"#,
    r#""grant_limits":["#,
    r#"{"limit":"tools","allows":"all but agent_cancel, agent_create, agent_destroy, agent_list, agent_status, "#,
    r#"approvals_answer, approvals_list, cmd.exec, fs.append_file, fs.copy, fs.delete, fs.edit, fs.mkdir, fs.move, fs.patch, fs.write_file, "#,
    r#"process.list, process.read, process.start, process.stop, "#,
    r#"process.write, shell.exec","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"read","allows":"/home/user/agents","set_by":"worker","reason":"cwd of preset 'sandboxed'"},"#,
    r#"{"limit":"write","allows":"nowhere","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"commands","allows":"none","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"hosts","allows":"none","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"create","allows":"none","set_by":"worker","reason":"preset 'sandboxed'"},"#,
    r#"{"limit":"targets","allows":"parent agent","set_by":"worker","reason":"preset 'sandboxed'"}],"#,
    r#""budget":[{"resource":"turns","limit":null,"used":1,"reserved":0,"left":null},"#,
    r#"{"resource":"tool_calls","limit":null,"used":0,"reserved":0,"left":null},"#,
    r#"{"resource":"tokens","limit":null,"used":7,"reserved":0,"left":null},"#,
    r#"{"resource":"wall_ms","limit":null,"used":0,"reserved":0,"left":null},"#,
    r#"{"resource":"children","limit":null,"used":0,"reserved":0,"left":null}]}"#
);

/// lead (trusted) → pen (sandboxed, in sub) → calf (sandboxed, in sub/deep).
async fn three_level_tree() -> Fixture {
    let fixture = Fixture::new().await;
    for params in [
        r#"{"agent_id":"lead","preset":"trusted","may_create":["trusted","sandboxed"],"budget":{"turns":10}}"#,
        concat!(
            r#"{"agent_id":"pen","parent_agent_id":"lead","preset":"trusted","cwd":"sub","#,
            r#""disable_tools":["agent_list"],"budget":{"tokens":900}}"#
        ),
        concat!(
            r#"{"agent_id":"calf","parent_agent_id":"pen","cwd":"deep","allowed_write_paths":["out"],"#,
            r#""budget":{"turns":4}}"#
        ),
    ] {
        let (_, response) = fixture.request_create(params).await;
        assert!(response.contains(r#""result":"#), "{params}: {response}");
    }
    fixture
}

/// Each limit as limit, allows, set_by, reason.
fn limit_rows(limits: &Value) -> Vec<[&str; 4]> {
    let row = |limit| ["limit", "allows", "set_by", "reason"].map(|member| string_member(limit, member));
    limits.as_array().unwrap().iter().map(row).collect()
}

fn string_member<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap()
}

async fn set_permissions(fixture: &Fixture, agent: &str, params: &str) -> (ResponseKind, String) {
    fixture.call_agent(agent, &request("set_permissions", params)).await
}

#[tokio::test(start_paused = true)]
async fn every_limit_names_its_setter_and_reason() {
    let fixture = three_level_tree().await;
    let calf = fixture.call_ok("calf", "get_permissions", "{}").await;
    assert_eq!(calf["ancestors"], json!(["pen", "lead"]));
    let expected = [
        ["tools", "all but approvals_answer, approvals_list", "lead", "preset 'trusted'"],
        ["write", "/home/user/agents", "lead", "cwd of preset 'trusted'"],
        ["commands", "all in the sandbox", "lead", "preset 'trusted'"],
        ["hosts", "none", "lead", "preset 'trusted'"],
        ["create", "only sandboxed, trusted", "lead", "may_create"],
        ["targets", "parent and child agents", "lead", "preset 'trusted'"],
        ["turns", "10", "lead", "budget"],
        [
            "tools",
            "all but agent_list, approvals_answer, approvals_list",
            "pen",
            "preset 'trusted' and disable_tools",
        ],
        ["write", "/home/user/agents/sub", "pen", "cwd of preset 'trusted'"],
        ["create", "only sandboxed", "pen", "preset 'trusted'"],
        ["tokens", "900", "pen", "budget"],
        [
            "tools",
            "all but agent_cancel, agent_create, agent_destroy, agent_list, agent_status, approvals_answer, \
             approvals_list, cmd.exec, process.list, process.read, process.start, process.stop, process.write, shell.exec",
            "calf",
            "preset 'sandboxed'",
        ],
        ["read", "/home/user/agents/sub/deep", "calf", "cwd of preset 'sandboxed'"],
        ["write", "/home/user/agents/sub/deep/out", "calf", "allowed_write_paths"],
        ["commands", "none", "calf", "preset 'sandboxed'"],
        ["create", "none", "calf", "preset 'sandboxed'"],
        ["targets", "parent agent", "calf", "preset 'sandboxed'"],
        ["turns", "4", "calf", "budget"],
    ];
    assert_eq!(limit_rows(&calf["limits"]), expected);
    assert_eq!(calf["grant_limits"], calf["limits"], "it may grant what it may do");
    assert_eq!(calf["may"]["write"], json!(["/home/user/agents/sub/deep/out"]));
    let remaining: Vec<_> =
        calf["budget"].as_array().unwrap().iter().map(|usage| usage["left"].clone()).collect();
    assert_eq!(remaining, [json!(4), json!(null), json!(900), json!(null), json!(null)]);
}

#[tokio::test(start_paused = true)]
async fn commands_are_granted_within_the_parents_and_explained() {
    let fixture = Fixture::new().await;
    for params in [
        r#"{"agent_id":"lead","preset":"trusted","allowed_commands":["cargo","git"]}"#,
        r#"{"agent_id":"all","preset":"trusted"}"#,
        r#"{"agent_id":"child","parent_agent_id":"lead","allowed_commands":["git"]}"#,
        r#"{"agent_id":"none","parent_agent_id":"lead"}"#,
        r#"{"agent_id":"any","allowed_commands":["*"]}"#,
        concat!(
            r#"{"agent_id":"planner","preset":"trusted","allowed_commands":[],"#,
            r#""may_grant":{"preset":"trusted","allowed_commands":["make"]}}"#
        ),
        r#"{"agent_id":"maker","parent_agent_id":"planner","allowed_commands":["make"]}"#,
    ] {
        let (_, response) = fixture.request_create(params).await;
        assert!(response.contains(r#""result":"#), "{params}: {response}");
    }
    let (all, none) = (json!({ "all_but": [] }), json!({ "only": [] }));
    let own = ["commands", "only cargo, git in the sandbox", "lead", "allowed_commands"];
    for (agent, commands, limits) in [
        ("lead", json!({ "only": ["cargo", "git"] }), &[own][..]),
        ("all", all.clone(), &[["commands", "all in the sandbox", "all", "preset 'trusted'"]]),
        (
            "child",
            json!({ "only": ["git"] }),
            &[own, ["commands", "only git in the sandbox", "child", "allowed_commands"]],
        ),
        ("none", none.clone(), &[own, ["commands", "none", "none", "preset 'sandboxed'"]]),
        ("any", all, &[["commands", "all in the sandbox", "any", "allowed_commands"]]),
        ("planner", none, &[["commands", "none", "planner", "allowed_commands"]]),
        (
            "maker",
            json!({ "only": ["make"] }),
            &[["commands", "only make in the sandbox", "planner", "allowed_commands"]],
        ),
    ] {
        let permissions = fixture.call_ok(agent, "get_permissions", "{}").await;
        assert_eq!(permissions["may"]["commands"], commands, "{agent}");
        let rows = limit_rows(&permissions["limits"]);
        let rows: Vec<_> = rows.into_iter().filter(|row| row[0] == "commands").collect();
        assert_eq!(rows, limits, "{agent}");
    }
    let changed = fixture.call_ok("lead", "set_permissions", r#"{"allowed_commands":["cargo"]}"#).await;
    assert_eq!(changed["may"]["commands"], json!({ "only": ["cargo"] }));
    let child = fixture.call_ok("child", "get_permissions", "{}").await;
    assert_eq!(child["may"]["commands"], json!({ "only": [] }), "the parent's list applies at once");
}

#[tokio::test(start_paused = true)]
async fn hosts_are_granted_within_the_parents_and_explained() {
    let fixture = Fixture::new().await;
    for params in [
        r#"{"agent_id":"lead","preset":"trusted","allowed_hosts":["*","localhost:3000"],"denied_hosts":["*.evil.com"]}"#,
        r#"{"agent_id":"child","parent_agent_id":"lead","allowed_hosts":["docs.rs","a.evil.com"]}"#,
        r#"{"agent_id":"none","preset":"trusted"}"#,
        concat!(
            r#"{"agent_id":"planner","preset":"trusted","#,
            r#""may_grant":{"preset":"trusted","allowed_hosts":["docs.rs"],"denied_hosts":["x.docs.rs"]}}"#
        ),
        r#"{"agent_id":"reader","parent_agent_id":"planner","allowed_hosts":["docs.rs"]}"#,
    ] {
        let (_, response) = fixture.request_create(params).await;
        assert!(response.contains(r#""result":"#), "{params}: {response}");
    }
    let own =
        ["hosts", "only *, localhost:3000, but not *.evil.com", "lead", "allowed_hosts and denied_hosts"];
    let lead = json!({ "only": ["*", "localhost:3000"], "denied": ["*.evil.com"] });
    let docs = json!({ "only": ["docs.rs"] });
    for (agent, hosts, limits) in [
        ("lead", lead, &[own][..]),
        ("child", docs.clone(), &[own, ["hosts", "only docs.rs", "child", "allowed_hosts"]]),
        ("none", json!({ "only": [] }), &[["hosts", "none", "none", "preset 'trusted'"]]),
        ("planner", json!({ "only": [] }), &[["hosts", "none", "planner", "preset 'trusted'"]]),
        ("reader", docs, &[["hosts", "only docs.rs", "planner", "preset 'trusted'"]]),
    ] {
        let permissions = fixture.call_ok(agent, "get_permissions", "{}").await;
        assert_eq!(permissions["may"]["hosts"], hosts, "{agent}");
        let rows = limit_rows(&permissions["limits"]);
        let rows: Vec<_> = rows.into_iter().filter(|row| row[0] == "hosts").collect();
        assert_eq!(rows, limits, "{agent}");
    }
    fixture.call_ok("lead", "set_permissions", r#"{"denied_hosts":["docs.rs","*.evil.com"]}"#).await;
    let child = fixture.call_ok("child", "get_permissions", "{}").await;
    assert_eq!(child["may"]["hosts"], json!({ "only": [] }), "the parent's list applies at once");
}

#[tokio::test(start_paused = true)]
async fn list_of_tools_limits_and_disable_tools_wins() {
    let fixture = Fixture::new().await;
    let params = r#"{"agent_id":"a","preset":"trusted","tools":["read_file","agent_list"],"disable_tools":["agent_list"]}"#;
    fixture.request_create(params).await;
    let tools = async || fixture.call_ok("a", "get_agent", "{}").await["tools"].take();
    assert_eq!(tools().await, json!(["fs.read_file"]));
    let permissions = fixture.call_ok("a", "get_permissions", "{}").await;
    assert_eq!(permissions["may"]["tools"], json!({ "only": ["fs.read_file"] }));
    let rows = limit_rows(&permissions["limits"]);
    assert_eq!(rows[0], ["tools", "only fs.read_file", "a", "preset 'trusted', tools and disable_tools"]);
    fixture.call_ok("a", "set_permissions", r#"{"tools":["agent_list","write_file"]}"#).await;
    assert_eq!(tools().await, json!(["fs.write_file"]));
    fixture.call_ok("a", "set_permissions", r#"{"disable_tools":[]}"#).await;
    assert_eq!(tools().await, json!(["fs.write_file", "agent_list"]), "other lists are unchanged");
    fixture
        .request_create(r#"{"agent_id":"b","preset":"trusted","may_grant":{"tools":["read_file"]}}"#)
        .await;
    fixture.request_create(r#"{"agent_id":"c","parent_agent_id":"b"}"#).await;
    assert_eq!(fixture.call_ok("c", "get_agent", "{}").await["tools"], json!(["fs.read_file"]));
}

#[tokio::test(start_paused = true)]
async fn may_and_may_grant_are_reported_separately() {
    let fixture = Fixture::new().await;
    let params = concat!(
        r#"{"agent_id":"lead","preset":"trusted","allowed_write_paths":[],"#,
        r#""may_grant":{"preset":"trusted","allowed_write_paths":["out"]}}"#
    );
    fixture.request_create(params).await;
    fixture
        .request_create(r#"{"agent_id":"w","parent_agent_id":"lead","allowed_write_paths":["out"]}"#)
        .await;
    let lead = fixture.call_ok("lead", "get_permissions", "{}").await;
    let (out, none) = (json!(["/home/user/agents/out"]), json!([]));
    assert_eq!((&lead["may"]["write"], &lead["may_grant"]["write"]), (&none, &out));
    assert_eq!(fixture.call_ok("lead", "get_agent", "{}").await["agent"]["write_paths"], none);
    assert_eq!(
        fixture.call_ok("w", "get_agent", "{}").await["agent"]["write_paths"],
        out,
        "a child may have more than its parent"
    );
}

#[tokio::test(start_paused = true)]
async fn narrowing_applies_to_the_agent_and_its_descendants() {
    let fixture = three_level_tree().await;
    let (kind, response) =
        set_permissions(&fixture, "pen", r#"{"disable_tools":["agent_list","read_file"]}"#).await;
    assert_eq!(kind, ResponseKind::Completed);
    assert!(
        response.contains(r#""all_but":["agent_list","approvals_answer","approvals_list","fs.read_file"]"#),
        "{response}"
    );
    let tools = fixture.call_ok("calf", "get_agent", "{}").await["tools"].take();
    assert_eq!(tools, json!(["fs.write_file", "agent_send"]));
    fixture.call_ok("calf", "send", r#"{"content":"read x"}"#).await;
    let messages = fixture.call_ok("calf", "get_messages", "{}").await["messages"].take();
    let text = "Permission denied: Tool 'fs.read_file' is disabled by permission policy; remove it from disable_tools of \
                the agent or its preset";
    assert_eq!(messages[2]["content"], text);
    set_permissions(&fixture, "pen", r#"{"disable_tools":[]}"#).await;
    let sent = fixture.call_ok("calf", "send", r#"{"content":"read x"}"#).await;
    assert_eq!(sent["content"], "you said text of x", "allowed again after widening");
    let pen = fixture.call_ok("pen", "get_agent", "{}").await["tools"].take();
    assert_eq!(pen.as_array().unwrap().len(), 8, "agent_list is allowed again too");
}

#[tokio::test(start_paused = true)]
async fn set_permissions_leaves_omitted_parameters_unchanged() {
    let fixture = three_level_tree().await;
    let before = fixture.call_ok("calf", "get_permissions", "{}").await;
    assert_eq!(fixture.call_ok("calf", "set_permissions", "{}").await, before);
    let changed = fixture.call_ok("calf", "set_permissions", r#"{"budget":{"tool_calls":3}}"#).await;
    assert_eq!(changed["may"], before["may"]);
    assert_eq!(changed["budget"][0], before["budget"][0], "turns");
    assert_eq!(changed["budget"][1]["limit"], 3, "tool_calls");
    let lifted =
        fixture.call_ok("calf", "set_permissions", r#"{"unlimited":["tool_calls","tool_calls"]}"#).await;
    assert_eq!(lifted, before);
}

#[tokio::test(start_paused = true)]
async fn widening_is_limited_by_the_parents_grant() {
    let fixture = three_level_tree().await;
    let before = fixture.call_ok("calf", "get_permissions", "{}").await;
    for (params, message) in [
        (r#"{"preset":"trusted"}"#, "Requested preset 'trusted' exceeds parent ceiling"),
        (r#"{"preset":"worker"}"#, "Requested preset 'worker' exceeds parent ceiling"),
        (
            r#"{"allowed_write_paths":["/srv/other"]}"#,
            "allowed_write_path '/srv/other' is outside parent's allowed paths",
        ),
        (r#"{"budget":{"turns":11}}"#, "budget of turns exceeds what the parent has left: 6"),
        (r#"{"budget":{"tokens":901}}"#, "budget of tokens exceeds what the parent has left: 900"),
        (r#"{"budget":{"turns":10,"tokens":901}}"#, "budget of tokens exceeds what the parent has left: 900"),
    ] {
        assert_eq!(set_permissions(&fixture, "calf", params).await, denied(message), "{params}");
        assert_eq!(fixture.call_ok("calf", "get_permissions", "{}").await, before, "{params}");
    }
    let lead = fixture.call_ok("lead", "get_agent", "{}").await;
    assert_eq!(lead["budget"][0]["reserved"], 4, "budget reserved by a refused change is returned");
    let wider = fixture
        .call_ok("calf", "set_permissions", r#"{"budget":{"turns":10},"allowed_write_paths":["."]}"#)
        .await;
    assert_eq!(wider["may"]["write"], json!(["/home/user/agents/sub/deep"]));
    assert_eq!(wider["budget"][0]["left"], 10);
}

#[tokio::test(start_paused = true)]
async fn invalid_set_permissions_is_rejected_with_the_reason() {
    let fixture = three_level_tree().await;
    let before = fixture.call_ok("calf", "get_permissions", "{}").await;
    for (params, message) in [
        (r#"{"unlimited":["turns"],"budget":{"turns":3}}"#, "unlimited and budget both name turns"),
        (
            r#"{"unlimited":["money"]}"#,
            "unlimited must hold names of turns, tool_calls, tokens, wall_ms, children, got: 'money'",
        ),
        (r#"{"unlimited":"turns"}"#, "unlimited must be list, got: str"),
        (r#"{"preset":"root"}"#, "preset must be one of sandboxed, trusted, worker, got: 'root'"),
        (r#"{"preset":"yolo"}"#, "preset must be one of sandboxed, trusted, worker, got: 'yolo'"),
        (
            r#"{"disable_tools":["a b"]}"#,
            "disable_tools[0] must be a tool's name: 1 to 128 letters, digits, '.', '_' and '-'",
        ),
        (
            r#"{"allowed_write_paths":["../x"]}"#,
            "allowed_write_path '/home/user/agents/sub/x' is outside sandbox root '/home/user/agents/sub/deep'",
        ),
        (r#"{"may_create":["root"]}"#, "may_create must be one of sandboxed, trusted, worker, got: 'root'"),
        (r#"{"budget":[]}"#, "budget must be object, got: list"),
        (r#"{"cwd":"/"}"#, "Extra inputs are not permitted: cwd"),
    ] {
        assert_eq!(set_permissions(&fixture, "calf", params).await, error(-32602, message), "{params}");
        assert_eq!(fixture.call_ok("calf", "get_permissions", "{}").await, before, "{params}");
    }
}

#[tokio::test(start_paused = true)]
async fn set_permissions_can_replace_the_preset() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let trusted = fixture.call_ok("a", "set_permissions", r#"{"preset":"trusted"}"#).await;
    assert_eq!((&trusted["preset"], &trusted["permission_level"]), (&json!("trusted"), &json!("TRUSTED")));
    assert_eq!(trusted["may"]["create"], json!({ "only": ["sandboxed", "worker"] }));
    fixture.create_agent("b", "sandboxed", Some("a")).await;
    fixture.call_ok("a", "set_permissions", r#"{"preset":"worker"}"#).await;
    let b = fixture.call_ok("b", "get_permissions", "{}").await;
    assert_eq!(b["may"]["targets"], "none", "a child never exceeds its parent");
    let grandchild = fixture.request_create(r#"{"parent_agent_id":"a"}"#).await;
    assert_eq!(grandchild, denied("Requested preset 'sandboxed' exceeds parent ceiling"));
}

#[tokio::test(start_paused = true)]
async fn agent_cannot_raise_a_child_beyond_what_it_may_create() {
    let fixture = Fixture::new().await;
    let lead = r#"{"agent_id":"lead","preset":"trusted","may_grant":{"preset":"trusted","may_create":["trusted","sandboxed"]}}"#;
    assert!(fixture.request_create(lead).await.1.contains("result"));
    let caller = Caller::admin().acting_as("lead");
    let refused = denied("Requested preset 'trusted' exceeds parent ceiling");
    let trusted = request("create_agent", r#"{"agent_id":"child","preset":"trusted"}"#);
    assert_eq!(fixture.call_as(&caller, "/", &trusted).await, refused);
    let sandboxed = request("create_agent", r#"{"agent_id":"child"}"#);
    assert!(fixture.call_as(&caller, "/", &sandboxed).await.1.contains("result"));
    let raised = request("set_permissions", r#"{"preset":"trusted"}"#);
    assert_eq!(fixture.call_as(&caller, "child", &raised).await, refused);
    assert_eq!(
        fixture.call_agent("child", &raised).await,
        refused,
        "the parent's ceiling also binds an admin"
    );
}

#[tokio::test(start_paused = true)]
async fn yolo_cannot_be_granted_over_the_wire() {
    let fixture = Fixture::new().await;
    for (params, parameter) in [
        (r#"{"may_grant":{"preset":"yolo"}}"#, "may_grant.preset"),
        (r#"{"may_grant":{"may_create":["yolo"]}}"#, "may_grant.may_create"),
        (r#"{"may_create":["yolo"]}"#, "may_create"),
    ] {
        let message = format!("{parameter} must be one of sandboxed, trusted, worker, got: 'yolo'");
        assert_eq!(fixture.request_create(params).await, error(-32602, &message));
    }
    assert_eq!(fixture.agent_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn admin_can_revoke_may_create_and_may_grant() {
    let fixture = Fixture::new().await;
    assert!(fixture.request_create(r#"{"agent_id":"lead","preset":"trusted"}"#).await.1.contains("result"));
    let child = r#"{"agent_id":"child","parent_agent_id":"lead","may_create":["sandboxed"]}"#;
    assert!(fixture.request_create(child).await.1.contains("result"));
    let widening = request("set_permissions", r#"{"may_create":["sandboxed","worker"]}"#);
    let text = "Permission delta would exceed parent ceiling: only an admin may widen a grant";
    let caller = Caller::admin().acting_as("lead");
    assert_eq!(fixture.call_as(&caller, "child", &widening).await, denied(text));
    let revoked = fixture
        .call_ok("lead", "set_permissions", r#"{"may_create":[],"may_grant":{"may_create":[]}}"#)
        .await;
    let none = json!({ "only": [] });
    assert_eq!((&revoked["may"]["create"], &revoked["may_grant"]["create"]), (&none, &none));
    let child = fixture.call_ok("child", "get_permissions", "{}").await;
    assert_eq!(child["may"]["create"], none, "descendants lose it too");
}
