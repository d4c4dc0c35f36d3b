//! Tests: which conversation a prompt continues, and that others are not lost.

use super::*;
use crate::engine::gguf::Gguf;
use crate::engine::made::{self, Made};
use crate::engine::map::map;
use crate::engine::network::Network;

fn shape() -> Shape {
    let file = made::write(&Made::default());
    let bytes = map(&file.path).unwrap();
    Network::read(&Gguf::read(&bytes).unwrap(), made::names().len(), 1).unwrap().shape
}

fn converse(shelf: &mut Shelf, prompt: &[u32]) -> (usize, usize) {
    let slot = shelf.take(prompt);
    let cache = shelf.cache(slot);
    let known = cache.tokens().len();
    cache.extend(&prompt[known..]);
    (slot, known)
}

#[test]
fn a_conversation_goes_on_where_it_was() {
    let mut shelf = Shelf::new(&shape(), 2);
    let (slot, known) = converse(&mut shelf, &[1, 2, 3, 4]);
    assert_eq!(known, 0);
    assert_eq!(converse(&mut shelf, &[1, 2, 3, 4, 5, 6]), (slot, 4));
}

#[test]
fn the_last_token_of_a_known_prompt_is_computed_again() {
    let mut shelf = Shelf::new(&shape(), 2);
    converse(&mut shelf, &[1, 2, 3, 4]);
    assert_eq!(converse(&mut shelf, &[1, 2, 3, 4]).1, 3);
}

#[test]
fn another_conversation_that_begins_alike_takes_a_copy() {
    let mut shelf = Shelf::new(&shape(), 2);
    let long: Vec<u32> = (0..100).collect();
    let (first, _) = converse(&mut shelf, &long);
    let begins_alike: Vec<u32> = (0..20).chain(200..210).collect();
    let (second, known) = converse(&mut shelf, &begins_alike);
    assert_ne!(first, second);
    assert_eq!(known, 20);
    let longer: Vec<u32> = (0..101).collect();
    assert_eq!(converse(&mut shelf, &longer), (first, 100));
}

#[test]
fn the_slot_unused_for_longest_makes_room() {
    let mut shelf = Shelf::new(&shape(), 2);
    let (a, _) = converse(&mut shelf, &[1; 10]);
    let (b, _) = converse(&mut shelf, &[2; 10]);
    converse(&mut shelf, &[1; 11]);
    assert_eq!(converse(&mut shelf, &[3; 10]), (b, 0));
    assert_ne!(a, b);
}

#[test]
fn pages_come_and_go_with_the_tokens() {
    let mut cache = Cache::new(&shape());
    cache.extend(&vec![7; PAGE + 1]);
    assert_eq!(cache.pages.len(), 2);
    cache.truncate(PAGE);
    assert_eq!(cache.pages.len(), 1);
    cache.truncate(0);
    assert_eq!(cache.pages.len(), 0);
}
