//! The key-value store: namespaces, keys in order, expiry, the limit of entries, and the removal with a tree.

use agent::outside::{ENTRIES_MAX, KeyRange, Namespace, StoreFault, StoredValue, ValueChange, ValueWrite};

use super::samples::destroyed;
use super::{StoreUnderTest, append, created, timestamp};

conformance_tests!(
    stored_value_round_trips,
    second_store_keeps_the_creation_time,
    delete_tells_whether_there_was_an_entry,
    prefix_has_no_wildcards_and_respects_case,
    keys_are_listed_in_pages,
    namespaces_do_not_see_each_other,
    expired_entry_is_invisible_and_created_anew,
    namespace_has_a_limit_that_expired_entries_do_not_use,
    values_are_removed_with_the_last_agent_of_the_tree,
    refused_destruction_keeps_the_values,
    tree_without_agents_stores_nothing,
);

pub(crate) fn store_value(
    namespace: Namespace,
    key: &str,
    json: &str,
    expires_at: Option<i64>,
    seconds: i64,
) -> ValueWrite {
    let change = ValueChange::Store { json: json.to_owned(), expires_at: expires_at.map(timestamp) };
    ValueWrite { namespace, key: key.to_owned(), at: timestamp(seconds), change }
}

async fn put(fixture: &StoreUnderTest, namespace: Namespace, key: &str, json: &str) -> bool {
    fixture.store.write_value(store_value(namespace, key, json, None, 10)).await.unwrap()
}

async fn delete(fixture: &StoreUnderTest, namespace: Namespace, key: &str, seconds: i64) -> bool {
    let write =
        ValueWrite { namespace, key: key.to_owned(), at: timestamp(seconds), change: ValueChange::Delete };
    fixture.store.write_value(write).await.unwrap()
}

async fn get(fixture: &StoreUnderTest, namespace: Namespace, key: &str, seconds: i64) -> Option<StoredValue> {
    fixture.store.value(namespace, key.to_owned(), timestamp(seconds)).await.unwrap()
}

async fn keys(fixture: &StoreUnderTest, namespace: Namespace, prefix: &str) -> Vec<String> {
    page(fixture, namespace, prefix, None, 100).await
}

async fn page(
    fixture: &StoreUnderTest,
    namespace: Namespace,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<String> {
    let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
    fixture.store.keys(KeyRange { namespace, prefix, after, limit, at: timestamp(10) }).await.unwrap()
}

async fn stored_value_round_trips(fixture: &mut StoreUnderTest) {
    for (key, json) in [("", "null"), ("a\0b \u{1f980}", r#"{"x":["\u0000",1e9]}"#)] {
        assert!(!put(fixture, Namespace::User, key, json).await, "the key is new");
    }
    fixture.reopen().await;
    for (key, json) in [("", "null"), ("a\0b \u{1f980}", r#"{"x":["\u0000",1e9]}"#)] {
        let (created_at, updated_at) = (timestamp(10), timestamp(10));
        let expected = StoredValue { json: json.to_owned(), created_at, updated_at, expires_at: None };
        assert_eq!(get(fixture, Namespace::User, key, 11).await, Some(expected));
    }
    assert_eq!(get(fixture, Namespace::User, "a", 11).await, None);
}

async fn second_store_keeps_the_creation_time(fixture: &mut StoreUnderTest) {
    put(fixture, Namespace::User, "k", "1").await;
    let again = store_value(Namespace::User, "k", "2", Some(99), 20);
    assert!(fixture.store.write_value(again).await.unwrap(), "the key existed");
    fixture.reopen().await;
    let value = get(fixture, Namespace::User, "k", 20).await.unwrap();
    assert_eq!((value.created_at, value.updated_at), (timestamp(10), timestamp(20)));
    assert_eq!((value.json.as_str(), value.expires_at), ("2", Some(timestamp(99))));
}

async fn delete_tells_whether_there_was_an_entry(fixture: &mut StoreUnderTest) {
    put(fixture, Namespace::User, "k", "1").await;
    assert!(delete(fixture, Namespace::User, "k", 11).await);
    assert!(!delete(fixture, Namespace::User, "k", 11).await, "it is gone");
    let expiring = store_value(Namespace::User, "k", "1", Some(20), 11);
    fixture.store.write_value(expiring).await.unwrap();
    assert!(!delete(fixture, Namespace::User, "k", 20).await, "it has expired");
    fixture.reopen().await;
    assert_eq!(get(fixture, Namespace::User, "k", 12).await, None);
}

async fn prefix_has_no_wildcards_and_respects_case(fixture: &mut StoreUnderTest) {
    for key in ["userXb", "user_a", "USER_c", "user%d", "user_\u{10ffff}", "user`"] {
        put(fixture, Namespace::User, key, "1").await;
    }
    assert_eq!(keys(fixture, Namespace::User, "user_").await, ["user_a", "user_\u{10ffff}"]);
    assert_eq!(keys(fixture, Namespace::User, "user%").await, ["user%d"]);
    assert_eq!(keys(fixture, Namespace::User, "").await.len(), 6);
}

async fn keys_are_listed_in_pages(fixture: &mut StoreUnderTest) {
    for key in ["b", "a3", "a1", "a2", "A"] {
        put(fixture, Namespace::User, key, "1").await;
    }
    assert_eq!(page(fixture, Namespace::User, "a", None, 2).await, ["a1", "a2"]);
    assert_eq!(page(fixture, Namespace::User, "a", Some("a2"), 2).await, ["a3"]);
    assert_eq!(page(fixture, Namespace::User, "", Some("a2"), 2).await, ["a3", "b"]);
    assert_eq!(page(fixture, Namespace::User, "a", Some("zz"), 2).await, Vec::<String>::new());
}

async fn namespaces_do_not_see_each_other(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.create(2, "two", None).await;
    put(fixture, Namespace::Tree(1), "k", "1").await;
    for other in [Namespace::User, Namespace::Tree(2)] {
        assert_eq!(get(fixture, other, "k", 10).await, None);
        assert_eq!(keys(fixture, other, "").await, Vec::<String>::new());
        assert!(!delete(fixture, other, "k", 10).await);
        assert!(!put(fixture, other, "k", "2").await, "it is another key");
    }
    assert_eq!(get(fixture, Namespace::Tree(1), "k", 10).await.unwrap().json, "1");
}

async fn expired_entry_is_invisible_and_created_anew(fixture: &mut StoreUnderTest) {
    fixture.store.write_value(store_value(Namespace::User, "k", "1", Some(10), 5)).await.unwrap();
    assert!(get(fixture, Namespace::User, "k", 9).await.is_some());
    assert_eq!(get(fixture, Namespace::User, "k", 10).await, None);
    assert_eq!(keys(fixture, Namespace::User, "").await, Vec::<String>::new());
    assert!(!put(fixture, Namespace::User, "k", "2").await, "the entry had expired");
    assert_eq!(get(fixture, Namespace::User, "k", 99).await.unwrap().created_at, timestamp(10));
}

async fn namespace_has_a_limit_that_expired_entries_do_not_use(fixture: &mut StoreUnderTest) {
    let writes = (0..ENTRIES_MAX)
        .map(|number| store_value(Namespace::User, &format!("{number}"), "1", Some(50), 5))
        .map(|write| fixture.store.write_value(write));
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap();
    }
    let one_more = || store_value(Namespace::User, "more", "1", None, 10);
    assert_eq!(fixture.store.write_value(one_more()).await, Err(StoreFault::NamespaceFull));
    assert!(put(fixture, Namespace::User, "7", "2").await, "an existing key is replaced");
    fixture.create(1, "one", None).await;
    put(fixture, Namespace::Tree(1), "k", "1").await;
    let later = ValueWrite { at: timestamp(50), ..one_more() };
    assert_eq!(fixture.store.write_value(later).await, Ok(false));
}

async fn values_are_removed_with_the_last_agent_of_the_tree(fixture: &mut StoreUnderTest) {
    fixture.create(1, "root", None).await;
    fixture.create(2, "child", Some(1)).await;
    put(fixture, Namespace::Tree(1), "k", "1").await;
    put(fixture, Namespace::User, "k", "2").await;
    fixture.commit(append(1, "root", [destroyed()])).await;
    fixture.reopen().await;
    assert!(put(fixture, Namespace::Tree(1), "k", "3").await, "the child is in the tree still");
    fixture.commit(append(2, "child", [destroyed()])).await;
    assert_eq!(get(fixture, Namespace::Tree(1), "k", 10).await, None);
    assert!(get(fixture, Namespace::User, "k", 10).await.is_some());
}

async fn refused_destruction_keeps_the_values(fixture: &mut StoreUnderTest) {
    fixture.create(1, "root", None).await;
    put(fixture, Namespace::Tree(1), "k", "1").await;
    let taken = append(2, "root", [created("root", None), created("root", None)]);
    fixture.append_fault(vec![append(1, "root", [destroyed()]), taken]).await;
    assert!(get(fixture, Namespace::Tree(1), "k", 10).await.is_some());
}

async fn tree_without_agents_stores_nothing(fixture: &mut StoreUnderTest) {
    let write = store_value(Namespace::Tree(7), "k", "1", None, 10);
    assert_eq!(fixture.store.write_value(write).await, Err(StoreFault::NotFound));
    assert!(!delete(fixture, Namespace::Tree(7), "k", 10).await);
}
