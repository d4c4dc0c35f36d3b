//! Tests: which cached sequence a prompt reuses, and that other conversations stay cached.

use super::*;

/// An engine that only tracks the length of its sequences.
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

    /// Drops the whole sequence when truncated to an odd length.
    fn truncate(&mut self, sequence: usize, length: usize) {
        let is_lost = length < self.0[sequence] && !length.is_multiple_of(2);
        self.0[sequence] = if is_lost { 0 } else { self.0[sequence].min(length) };
    }

    fn copy_prefix(&mut self, from: usize, into: usize, length: usize) {
        self.0[into] = self.0[from].min(length);
    }

    fn eval(&mut self, sequence: usize, tokens: &[u32], _: Option<&mut Vec<f32>>) -> Result<(), String> {
        if tokens.contains(&666) {
            return Err("scripted failure".to_owned());
        }
        self.0[sequence] += tokens.len();
        Ok(())
    }
}

fn prompt_cache() -> (PromptCache, LengthEngine) {
    let engine = LengthEngine(vec![0; 2]);
    (PromptCache::new(&engine), engine)
}

fn eval_prompt(cache: &mut PromptCache, engine: &mut LengthEngine, prompt: &[u32]) -> (usize, usize) {
    let mut conversation = cache.acquire(engine, prompt);
    let cached = conversation.len();
    conversation.eval(&prompt[cached..], None).unwrap();
    (conversation.sequence, cached)
}

#[test]
fn conversation_continues_from_its_cached_prefix() {
    let (mut cache, mut engine) = prompt_cache();
    let (sequence, cached) = eval_prompt(&mut cache, &mut engine, &[1, 2, 3, 4]);
    assert_eq!(cached, 0);
    assert_eq!(eval_prompt(&mut cache, &mut engine, &[1, 2, 3, 4, 5, 6]), (sequence, 4));
}

#[test]
fn last_token_of_a_cached_prompt_is_evaluated_again() {
    let (mut cache, mut engine) = prompt_cache();
    eval_prompt(&mut cache, &mut engine, &[1, 2, 3, 4, 5]);
    assert_eq!(eval_prompt(&mut cache, &mut engine, &[1, 2, 3, 4, 5]).1, 4);
}

#[test]
fn conversation_with_shared_prefix_gets_a_copy() {
    let (mut cache, mut engine) = prompt_cache();
    let long: Vec<u32> = (0..100).collect();
    let (first, _) = eval_prompt(&mut cache, &mut engine, &long);
    let shared_prefix: Vec<u32> = (0..20).chain(200..210).collect();
    let (second, cached) = eval_prompt(&mut cache, &mut engine, &shared_prefix);
    assert_ne!(first, second);
    assert_eq!(cached, 20);
    let longer: Vec<u32> = (0..101).collect();
    assert_eq!(eval_prompt(&mut cache, &mut engine, &longer), (first, 100));
}

#[test]
fn least_recently_used_sequence_is_evicted() {
    let (mut cache, mut engine) = prompt_cache();
    let (a, _) = eval_prompt(&mut cache, &mut engine, &[1; 10]);
    let (b, _) = eval_prompt(&mut cache, &mut engine, &[2; 10]);
    eval_prompt(&mut cache, &mut engine, &[1; 11]);
    assert_eq!(eval_prompt(&mut cache, &mut engine, &[3; 10]), (b, 0));
    assert_ne!(a, b);
}

#[test]
fn tokens_evicted_by_the_engine_are_evaluated_again() {
    let (mut cache, mut engine) = prompt_cache();
    let (sequence, _) = eval_prompt(&mut cache, &mut engine, &[1, 2, 3, 4]);
    engine.0[sequence] = 2;
    assert_eq!(eval_prompt(&mut cache, &mut engine, &[1, 2, 3, 4, 5]), (sequence, 2));
    engine.0[sequence] = 0;
    assert_eq!(eval_prompt(&mut cache, &mut engine, &[1, 2, 3, 4, 5]).1, 0);
}

#[test]
fn tokens_of_a_failed_eval_are_not_cached() {
    let (mut cache, mut engine) = prompt_cache();
    cache.acquire(&mut engine, &[1, 2, 666]).eval(&[1, 2, 666], None).unwrap_err();
    assert_eq!(eval_prompt(&mut cache, &mut engine, &[1, 2, 3]).1, 0);
}

#[test]
fn failed_truncation_evaluates_lost_tokens_again() {
    let (mut cache, mut engine) = prompt_cache();
    let mut conversation = cache.acquire(&mut engine, &[1, 2, 3, 4]);
    conversation.eval(&[1, 2, 3, 4], None).unwrap();
    conversation.truncate(3).unwrap();
    assert_eq!((conversation.len(), conversation.engine.cached_tokens(conversation.sequence)), (3, 3));
}
