//! Tests of the prompt-prefix cache, alone and with every dialect.

use std::cell::Cell;

use agent::outside::ModelRequest;
use agent::{MessageSource, ToolCall, ToolOutcome};

use super::*;
use crate::anthropic::Anthropic;
use crate::catalog::known_provider;
use crate::chat::Chat;
use crate::dialect::{Dialect, ModelOptions};
use crate::responses::Responses;

fn key(agent: &str) -> PrefixKey {
    let agent = AgentId::parse(agent).unwrap();
    PrefixKey::new(
        &Requester { agent: Some(agent), ..Requester::default() },
        "test",
        &ModelOptions::default(),
    )
}

fn user_message(text: &str) -> Arc<Message> {
    Arc::new(Message::user(text, MessageSource::default()))
}

/// Encodes each message as its text with a separator; returns how many were encoded.
fn update(prefix: &mut Prefix, messages: &[Arc<Message>]) -> usize {
    update_at(prefix, None, messages)
}

fn update_at(
    prefix: &mut Prefix,
    history_version: Option<&HistoryVersion>,
    messages: &[Arc<Message>],
) -> usize {
    let encoded = Cell::new(0);
    let encode = |_: &[Arc<Message>], message: &Message, out: &mut Vec<u8>| {
        encoded.set(encoded.get() + 1);
        out.extend_from_slice(format!("{};", message.text).as_bytes());
        Ok(())
    };
    let (messages, history_version) = (Arc::new(messages.to_vec()), history_version.cloned());
    prefix.update(&ModelRequest { messages, history_version, ..ModelRequest::default() }, &encode).unwrap();
    encoded.get()
}

fn text(prefix: &Prefix, inserts: &[(usize, Bytes)]) -> String {
    let mut pieces = Vec::new();
    prefix.push_pieces(inserts, &mut pieces);
    String::from_utf8(pieces.concat()).unwrap()
}

#[test]
fn only_new_messages_are_encoded() {
    let cache = PrefixCache::default();
    let mut messages: Vec<_> = (0..1000).map(|number| user_message(&number.to_string())).collect();
    let mut prefix = cache.take(&key("a"));
    assert_eq!(update(&mut prefix, &messages), 1000);
    cache.put(key("a"), prefix);
    messages.push(user_message("new"));
    let mut prefix = cache.take(&key("a"));
    assert_eq!(update(&mut prefix, &messages), 1, "the first thousand are cached");
    assert!(text(&prefix, &[]).ends_with("998;999;new;"));
    assert_eq!(update(&mut prefix, &messages), 0);
}

#[test]
fn rollback_and_compaction_invalidate_changed_messages() {
    let first = ["a", "b", "c"].map(user_message);
    let other = [Arc::clone(&first[0]), Arc::clone(&first[1]), user_message("d")];
    let mut prefix = Prefix::default();
    update(&mut prefix, &first);
    assert_eq!(update(&mut prefix, &first[..2]), 0, "rolled back");
    assert_eq!(text(&prefix, &[]), "a;b;");
    assert_eq!(update(&mut prefix, &other), 1, "diverged");
    assert_eq!(text(&prefix, &[]), "a;b;d;");
    assert_eq!(update(&mut prefix, &[user_message("sum"), Arc::clone(&other[2])]), 2, "compacted");
    assert_eq!(text(&prefix, &[]), "sum;d;");
    assert_eq!(update(&mut prefix, &[user_message("sum")]), 1, "the same text is not the same message");
    assert_eq!(update(&mut prefix, &[]), 0);
    assert_eq!(text(&prefix, &[]), "");
}

#[test]
fn history_version_skips_comparison_but_detects_divergence() {
    let (history_version, other) = (HistoryVersion::default(), HistoryVersion::default());
    let all = ["a", "b", "c", "d"].map(user_message);
    let mut prefix = Prefix::default();
    assert_eq!(update_at(&mut prefix, Some(&history_version), &all[..2]), 2);
    assert_eq!(update_at(&mut prefix, Some(&history_version), &all[..3]), 1);
    assert_eq!(update_at(&mut prefix, Some(&history_version), &all[..3]), 0);
    let changed = [user_message("x"), user_message("y"), Arc::clone(&all[2])];
    assert_eq!(
        update_at(&mut prefix, Some(&history_version), &changed),
        0,
        "earlier messages of the same version are not compared"
    );
    assert_eq!(update_at(&mut prefix, None, &all), 1, "without a version the messages are compared");
    assert_eq!(update_at(&mut prefix, Some(&other), &all), 0);
    let diverged =
        [Arc::clone(&all[0]), user_message("x"), user_message("y"), user_message("z"), user_message("!")];
    assert_eq!(update_at(&mut prefix, Some(&other), &diverged), 4, "a diverged copy");
    assert_eq!(text(&prefix, &[]), "a;x;y;z;!;");
    assert_eq!(update_at(&mut prefix, Some(&other), &diverged[..1]), 0, "shorter than the cached prefix");
    assert_eq!(text(&prefix, &[]), "a;");
}

#[test]
fn blocks_stay_few_and_truncation_within_a_block_works() {
    let messages: Vec<_> = (0..300).map(|number| user_message(&format!("{number:01000}"))).collect();
    let mut prefix = Prefix::default();
    for count in 1..=messages.len() {
        assert_eq!(update(&mut prefix, &messages[..count]), 1);
    }
    assert!(prefix.blocks.len() <= 7, "{} blocks of 300 KB", prefix.blocks.len());
    update(&mut prefix, &messages[..150]);
    assert_eq!(text(&prefix, &[]).len(), 150 * 1001);
    update(&mut prefix, &messages);
    let expected: String = messages.iter().map(|message| format!("{};", message.text)).collect();
    assert_eq!(text(&prefix, &[]), expected);
}

#[test]
fn insertions_land_at_their_offsets() {
    let mut prefix = Prefix::default();
    update(&mut prefix, &[user_message("ab"), user_message("cd")]);
    let at = |offset: usize, text: &'static str| (offset, Bytes::from_static(text.as_bytes()));
    assert_eq!(text(&prefix, &[at(0, "<"), at(2, "1"), at(3, "2"), at(6, ">")]), "<ab1;2cd;>");
    assert_eq!(prefix.end_offset(0), 3);
    assert_eq!(text(&Prefix::default(), &[at(0, "x")]), "x");
}

#[test]
fn cache_is_bounded_in_bytes() {
    let cache = PrefixCache::with_capacity(3000);
    let message = [user_message(&"x".repeat(700))];
    for agent in ["a", "b", "c"] {
        let mut prefix = cache.take(&key(agent));
        update(&mut prefix, &message);
        cache.put(key(agent), prefix);
        cache.put(key("a"), cache.take(&key("a")));
    }
    assert!(cache.lock_entries().bytes <= 3000);
    let again = |agent: &str| update(&mut cache.take(&key(agent)), &message);
    assert_eq!((again("a"), again("b"), again("c")), (0, 0, 0), "three fit");
    let mut prefix = Prefix::default();
    update(&mut prefix, &[user_message(&"y".repeat(4000))]);
    cache.put(key("d"), prefix);
    assert_eq!(cache.take(&key("d")).messages.len(), 0, "a prefix larger than the cache is not cached");
    assert_eq!(cache.lock_entries().bytes, 0, "all prefixes were removed");
}

#[test]
fn oldest_prefix_is_evicted_first() {
    let cache = PrefixCache::with_capacity(2000);
    let message = [user_message(&"x".repeat(700))];
    for agent in ["a", "b", "c"] {
        let mut prefix = Prefix::default();
        update(&mut prefix, &message);
        cache.put(key(agent), prefix);
    }
    let lengths = ["a", "b", "c"].map(|agent| cache.take(&key(agent)).messages.len());
    assert_eq!(lengths, [0, 1, 1]);
}

#[test]
fn request_without_an_agent_is_not_cached() {
    let cache = PrefixCache::default();
    let key = PrefixKey::new(&Requester::default(), "test", &ModelOptions::default());
    let mut prefix = Prefix::default();
    update(&mut prefix, &[user_message("a")]);
    cache.put(key.clone(), prefix);
    assert_eq!(cache.take(&key).messages.len(), 0);
}

#[test]
fn encoding_is_the_same_with_and_without_the_cache() {
    let call = |id: &str| ToolCall { id: id.into(), name: "echo".into(), arguments: "{\"a\":1}".into() };
    let done = |id: &str| Message::tool_result(id, &ToolOutcome::Done("one".into()));
    let all: Vec<_> = [
        Message::user("hi", MessageSource::default()),
        Message::assistant("", vec![call("c1"), call("c2")]),
        done("c1"),
        done("c2"),
        Message::user("and \"now\"?", MessageSource::default()),
        Message::assistant("", Vec::new()),
        Message::user("again", MessageSource::default()),
        Message::assistant("yes", Vec::new()),
        Message::user("bye", MessageSource::default()),
    ]
    .map(Arc::new)
    .to_vec();
    let mut lists: Vec<_> = (0..=all.len()).map(|count| all[..count].to_vec()).collect();
    lists.push(all[..4].to_vec());
    lists.push([vec![user_message("summary")], all[4..].to_vec()].concat());
    let model = ModelOptions { name: "m".into(), caches_prompt: true, ..ModelOptions::default() };
    let mistral = Chat::COMPATIBLE.for_model(known_provider("mistral").unwrap(), "m");
    let dialects: [&dyn Dialect; 5] = [&Chat::OPENAI, &Chat::COMPATIBLE, &mistral, &Responses, &Anthropic];
    for dialect in dialects {
        let cache = PrefixCache::default();
        for (number, messages) in lists.iter().enumerate() {
            for system in [None, Some(Arc::from("Be brief."))] {
                let request = ModelRequest {
                    system,
                    messages: Arc::new(messages.clone()),
                    volatile_suffix: (number % 2 == 0).then(|| Arc::from("It is \"noon\".")),
                    requester: Requester { agent: Some(AgentId::main()), ..Requester::default() },
                    ..ModelRequest::default()
                };
                let encoded = dialect.encode(&model, &request, &cache).unwrap().concat();
                let fresh = dialect.encode(&model, &request, &PrefixCache::default()).unwrap().concat();
                assert_eq!(String::from_utf8(encoded.clone()), String::from_utf8(fresh), "list {number}");
                let body: serde_json::Value = serde_json::from_slice(&encoded).unwrap();
                assert!(body["messages"].is_array() || body["input"].is_array(), "{body}");
            }
        }
    }
}

#[test]
fn alias_with_thinking_does_not_get_the_prefix_of_one_without() {
    let plain = ModelOptions { name: "m".to_owned(), ..ModelOptions::default() };
    let extra = serde_json::json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } });
    let thinking = ModelOptions { extra: extra.as_object().unwrap().clone(), ..plain.clone() };
    let call = ToolCall { id: "c".to_owned(), name: "t".to_owned(), arguments: "{}".to_owned() };
    let reasoning = r#"[{"type":"thinking","thinking":"hm","signature":"s"}]"#.to_owned();
    let called =
        Message { reasoning_block: Some(reasoning), ..Message::assistant(String::new(), vec![call]) };
    let result = Message::tool_result("c".to_owned(), &ToolOutcome::Done("done".to_owned()));
    let request = ModelRequest {
        messages: Arc::new(vec![user_message("hi"), Arc::new(called), Arc::new(result)]),
        requester: Requester { agent: Some(AgentId::parse("a").unwrap()), ..Requester::default() },
        ..ModelRequest::default()
    };
    let encode = |model: &ModelOptions, cache: &PrefixCache| {
        String::from_utf8(Anthropic.encode(model, &request, cache).unwrap().concat()).unwrap()
    };
    let cache = PrefixCache::default();
    for model in [&plain, &thinking, &plain] {
        assert_eq!(encode(model, &cache), encode(model, &PrefixCache::default()));
    }
    assert!(encode(&thinking, &cache).contains("hm") && !encode(&plain, &cache).contains("hm"));
}
