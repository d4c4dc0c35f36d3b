//! Tests: which conversation a prompt continues, and that others are not lost.

use super::*;

/// Knows how long its sequences are, and computes nothing.
#[derive(Debug)]
struct LengthEngine(Vec<usize>);

impl Engine for LengthEngine {
    fn window_tokens(&self) -> usize {
        1000
    }

    fn sequences(&self) -> usize {
        self.0.len()
    }

    fn chunk_tokens(&self) -> usize {
        8
    }

    fn cached_tokens(&self, sequence: usize) -> usize {
        self.0[sequence]
    }

    /// What is cut at an odd place is lost as a whole.
    fn truncate(&mut self, sequence: usize, length: usize) {
        let is_lost = length < self.0[sequence] && !length.is_multiple_of(2);
        self.0[sequence] = if is_lost { 0 } else { self.0[sequence].min(length) };
    }

    fn copy_prefix(&mut self, from: usize, into: usize, length: usize) {
        self.0[into] = self.0[from].min(length);
    }

    fn eval(&mut self, sequence: usize, tokens: &[u32], _: Option<&mut Vec<f32>>) -> Result<(), String> {
        if tokens.contains(&666) {
            return Err("it cannot be read".to_owned());
        }
        self.0[sequence] += tokens.len();
        Ok(())
    }
}

fn prompt_cache() -> (PromptCache, LengthEngine) {
    let engine = LengthEngine(vec![0; 2]);
    (PromptCache::new(&engine), engine)
}

fn eval_prompt(shelf: &mut PromptCache, engine: &mut LengthEngine, prompt: &[u32]) -> (usize, usize) {
    let mut conversation = shelf.acquire(engine, prompt);
    let known = conversation.len();
    conversation.eval(&prompt[known..], None).unwrap();
    (conversation.sequence, known)
}

#[test]
fn a_conversation_goes_on_where_it_was() {
    let (mut shelf, mut engine) = prompt_cache();
    let (slot, known) = eval_prompt(&mut shelf, &mut engine, &[1, 2, 3, 4]);
    assert_eq!(known, 0);
    assert_eq!(eval_prompt(&mut shelf, &mut engine, &[1, 2, 3, 4, 5, 6]), (slot, 4));
}

#[test]
fn the_last_token_of_a_known_prompt_is_computed_again() {
    let (mut shelf, mut engine) = prompt_cache();
    eval_prompt(&mut shelf, &mut engine, &[1, 2, 3, 4, 5]);
    assert_eq!(eval_prompt(&mut shelf, &mut engine, &[1, 2, 3, 4, 5]).1, 4);
}

#[test]
fn another_conversation_that_begins_alike_takes_a_copy() {
    let (mut shelf, mut engine) = prompt_cache();
    let long: Vec<u32> = (0..100).collect();
    let (first, _) = eval_prompt(&mut shelf, &mut engine, &long);
    let begins_alike: Vec<u32> = (0..20).chain(200..210).collect();
    let (second, known) = eval_prompt(&mut shelf, &mut engine, &begins_alike);
    assert_ne!(first, second);
    assert_eq!(known, 20);
    let longer: Vec<u32> = (0..101).collect();
    assert_eq!(eval_prompt(&mut shelf, &mut engine, &longer), (first, 100));
}

#[test]
fn the_slot_unused_for_longest_makes_room() {
    let (mut shelf, mut engine) = prompt_cache();
    let (a, _) = eval_prompt(&mut shelf, &mut engine, &[1; 10]);
    let (b, _) = eval_prompt(&mut shelf, &mut engine, &[2; 10]);
    eval_prompt(&mut shelf, &mut engine, &[1; 11]);
    assert_eq!(eval_prompt(&mut shelf, &mut engine, &[3; 10]), (b, 0));
    assert_ne!(a, b);
}

#[test]
fn what_the_engine_forgot_is_computed_again() {
    let (mut shelf, mut engine) = prompt_cache();
    let (slot, _) = eval_prompt(&mut shelf, &mut engine, &[1, 2, 3, 4]);
    engine.0[slot] = 2;
    assert_eq!(eval_prompt(&mut shelf, &mut engine, &[1, 2, 3, 4, 5]), (slot, 2));
    engine.0[slot] = 0;
    assert_eq!(eval_prompt(&mut shelf, &mut engine, &[1, 2, 3, 4, 5]).1, 0);
}

#[test]
fn what_could_not_be_read_is_not_taken_for_known() {
    let (mut shelf, mut engine) = prompt_cache();
    shelf.acquire(&mut engine, &[1, 2, 666]).eval(&[1, 2, 666], None).unwrap_err();
    assert_eq!(eval_prompt(&mut shelf, &mut engine, &[1, 2, 3]).1, 0);
}

#[test]
fn what_an_engine_cannot_cut_is_read_again() {
    let (mut shelf, mut engine) = prompt_cache();
    let mut conversation = shelf.acquire(&mut engine, &[1, 2, 3, 4]);
    conversation.eval(&[1, 2, 3, 4], None).unwrap();
    conversation.truncate(3).unwrap();
    assert_eq!((conversation.len(), conversation.engine.cached_tokens(conversation.sequence)), (3, 3));
}
