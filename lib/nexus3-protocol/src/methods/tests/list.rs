//! The method list itself: names, doors, descriptions, and the spec types.

use std::collections::HashSet;

use super::*;

#[test]
fn names_are_unique_and_can_be_looked_up() {
    let mut names = HashSet::new();
    for &method in Method::ALL {
        assert!(names.insert(method.name()), "{} stands twice", method.name());
        assert_eq!(Method::find(method.name()), Some(method));
    }
}

#[test]
fn method_lookup_is_exact() {
    for name in ["", "Send", "send ", " send", "send\0", "get-tokens", "rpc.", "rpc.discover2", "__proto__"] {
        assert_eq!(Method::find(name), None, "{name:?}");
    }
}

#[test]
fn every_method_is_documented_in_full_sentences() {
    for &method in Method::ALL {
        let doc = method.doc();
        assert!(!doc.is_empty() && doc.ends_with('.'), "{}: {doc:?}", method.name());
        assert_eq!(doc, doc.trim(), "{}", method.name());
    }
}

#[test]
fn method_list_is_complete() {
    let doors: Vec<(&str, Door)> = Method::ALL.iter().map(|method| (method.name(), method.door())).collect();
    let expected = [
        ("create_agent", Door::Daemon),
        ("destroy_agent", Door::Daemon),
        ("list_agents", Door::Daemon),
        ("list_sessions", Door::Daemon),
        ("fork_agent", Door::Daemon),
        ("rollback_agent", Door::Daemon),
        ("undo_turn", Door::Daemon),
        ("rename_agent", Door::Daemon),
        ("export_agent", Door::Daemon),
        ("import_agent", Door::Daemon),
        ("list_approvals", Door::Daemon),
        ("answer_approval", Door::Daemon),
        ("shutdown_server", Door::Daemon),
        ("rpc.discover", Door::Daemon),
        ("send", Door::Agent),
        ("cancel", Door::Agent),
        ("steer", Door::Agent),
        ("compact", Door::Agent),
        ("shutdown", Door::Agent),
        ("get_tokens", Door::Agent),
        ("get_context", Door::Agent),
        ("get_messages", Door::Agent),
        ("get_agent", Door::Agent),
        ("list_children", Door::Agent),
        ("get_permissions", Door::Agent),
        ("set_permissions", Door::Agent),
    ];
    assert_eq!(doors, expected);
    assert_eq!(Door::Daemon.path(), "/");
    assert_eq!(Door::Agent.path(), "/agent/{agent_id}");
}

#[test]
fn spec_type_names_its_method() {
    assert_eq!(spec::CreateAgent::METHOD, Method::CreateAgent);
    assert_eq!(spec::Discover::METHOD.name(), "rpc.discover");
    assert_eq!(spec::Send::METHOD.door(), Door::Agent);
    assert_eq!(spec::SetPermissions::METHOD.name(), "set_permissions");
}
