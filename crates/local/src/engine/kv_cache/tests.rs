//! Tests: how many pages a sequence allocates.

use super::*;
use crate::engine::fixture::{self, ModelFixture};
use crate::engine::gguf::Gguf;
use crate::engine::mmap::map_file;
use crate::engine::network::Network;

fn shape() -> Shape {
    let file = fixture::write(&ModelFixture::default());
    let bytes = map_file(&file.path).unwrap();
    Network::read(&Gguf::read(&bytes).unwrap(), fixture::token_names().len(), 1).unwrap().shape
}

#[test]
fn pages_follow_the_token_count() {
    let mut cache = KvCache::new(&shape());
    cache.extend(PAGE_TOKENS + 1);
    assert_eq!(cache.pages.len(), 2);
    cache.truncate(PAGE_TOKENS);
    assert_eq!(cache.pages.len(), 1);
    cache.truncate(0);
    assert_eq!(cache.pages.len(), 0);
}

#[test]
fn copied_prefix_is_limited_by_its_source() {
    let (mut cache, mut copy) = (KvCache::new(&shape()), KvCache::new(&shape()));
    cache.extend(PAGE_TOKENS + 1);
    copy.copy_prefix(&cache, PAGE_TOKENS);
    assert_eq!((copy.len(), copy.pages.len()), (PAGE_TOKENS, 1));
    copy.copy_prefix(&cache, 2 * PAGE_TOKENS);
    assert_eq!((copy.len(), copy.pages.len()), (PAGE_TOKENS + 1, 2));
}
