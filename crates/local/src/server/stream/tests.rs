//! What a client hears while nothing happens yet, and how faults reach it; on paused time, without a socket.

use std::sync::Arc;

use super::super::activity::Activity;
use super::super::completion::UsageChunk;
use super::super::generation_channel::{self, GenerationSender};
use super::*;
use crate::generation::{FinishReason, GenerationEvent, GenerationSummary};

const SUMMARY: GenerationSummary = GenerationSummary {
    prompt_tokens: 2,
    cached_tokens: 0,
    answer_tokens: 1,
    finish_reason: FinishReason::Stop,
};

async fn open(inbox: GenerationReceiver) -> Result<ChatStream, Refusal> {
    let writer = ChunkWriter::new(CompletionHeader::new("m"), UsageChunk::Omitted);
    ChatStream::open(inbox, writer, Arc::new(Activity::new()).start()).await
}

async fn next(stream: &mut ChatStream) -> String {
    String::from_utf8(stream.next().await.unwrap()).unwrap()
}

fn send_progress(outbox: &GenerationSender, tokens: usize) {
    assert!(outbox.send(&GenerationEvent::PromptProgress { tokens, total_tokens: 512 }).is_continue());
}

#[tokio::test(start_paused = true)]
async fn how_far_the_prompt_is_read_is_told_at_most_every_half_second() {
    let (outbox, inbox) = generation_channel::channel();
    send_progress(&outbox, 64);
    let mut stream = open(inbox).await.unwrap();
    assert_eq!(next(&mut stream).await, ": reading 64/512\n\n");
    send_progress(&outbox, 128);
    let early = timeout(PROGRESS_INTERVAL - Duration::from_millis(1), stream.next()).await;
    assert!(early.is_err(), "{early:?}");
    tokio::time::advance(Duration::from_millis(1)).await;
    send_progress(&outbox, 192);
    assert_eq!(next(&mut stream).await, ": reading 192/512\n\n");
    let _ = outbox.send(&GenerationEvent::Text("hi"));
    assert!(next(&mut stream).await.contains("\"role\":\"assistant\""));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_long_begins_its_stream_and_keeps_it_alive() {
    let (outbox, inbox) = generation_channel::channel();
    let begun = Instant::now();
    let mut stream = open(inbox).await.unwrap();
    assert_eq!(begun.elapsed(), FIRST_EVENT_TIMEOUT);
    assert_eq!(next(&mut stream).await, ": waiting\n\n");
    assert_eq!(begun.elapsed(), FIRST_EVENT_TIMEOUT + HEARTBEAT_INTERVAL);
    outbox.finish(Err(Refusal::stopping()));
    assert!(next(&mut stream).await.contains("\"code\":\"stopping\""));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_fault_that_comes_first_is_the_answer() {
    let (outbox, inbox) = generation_channel::channel();
    outbox.finish(Err(Refusal::invalid("no")));
    assert_eq!(open(inbox).await.err(), Some(Refusal::invalid("no")));
}

#[tokio::test]
async fn a_fault_behind_the_first_words_ends_the_stream_without_its_mark() {
    let (outbox, inbox) = generation_channel::channel();
    let _ = outbox.send(&GenerationEvent::Text("half"));
    let mut stream = open(inbox).await.unwrap();
    let mut all = next(&mut stream).await;
    outbox.finish(Err(Refusal::failed("it broke")));
    while let Some(bytes) = stream.next().await {
        all.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(all.contains("half") && all.contains("it broke") && !all.contains("[DONE]"), "{all}");
}

#[tokio::test]
async fn an_answer_that_is_there_at_once_is_told_in_order() {
    let (outbox, inbox) = generation_channel::channel();
    let _ = outbox.send(&GenerationEvent::Text("hi"));
    outbox.finish(Ok(SUMMARY));
    let mut stream = open(inbox).await.unwrap();
    let all = next(&mut stream).await;
    let places = ["assistant", "\"hi\"", "\"stop\"", "[DONE]"].map(|part| all.find(part).unwrap());
    assert!(places.is_sorted(), "{all}");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_whole_answer_waits_for_its_end() {
    let (outbox, inbox) = generation_channel::channel();
    let _ = outbox.send(&GenerationEvent::Text("a"));
    let worker = async {
        tokio::task::yield_now().await;
        let _ = outbox.send(&GenerationEvent::Text("b"));
        outbox.finish(Ok(SUMMARY));
    };
    let envelope = CompletionHeader::new("m");
    let (answer, ()) = tokio::join!(collect_completion(inbox, &envelope), worker);
    let answer: serde_json::Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "ab");
}
