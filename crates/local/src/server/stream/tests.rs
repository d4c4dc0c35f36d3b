//! Tests: heartbeats, progress and faults of a stream, on paused time and without a socket.

use std::sync::Arc;

use accept::Activity;

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

async fn open(receiver: GenerationReceiver) -> Result<ChatStream, Refusal> {
    let writer = ChunkWriter::new(CompletionHeader::new("m"), UsageChunk::Omitted);
    ChatStream::open(receiver, writer, OwnedActivityGuard::start(Arc::new(Activity::new()))).await
}

async fn next(stream: &mut ChatStream) -> String {
    String::from_utf8(stream.next().await.unwrap()).unwrap()
}

fn send_progress(sender: &GenerationSender, tokens: usize) {
    assert!(sender.send(&GenerationEvent::PromptProgress { tokens, total_tokens: 512 }).is_continue());
}

#[tokio::test(start_paused = true)]
async fn progress_is_sent_at_most_every_half_second() {
    let (sender, receiver) = generation_channel::channel();
    send_progress(&sender, 64);
    let mut stream = open(receiver).await.unwrap();
    assert_eq!(next(&mut stream).await, ": reading 64/512\n\n");
    send_progress(&sender, 128);
    let early = timeout(PROGRESS_INTERVAL - Duration::from_millis(1), stream.next()).await;
    assert!(early.is_err(), "{early:?}");
    tokio::time::advance(Duration::from_millis(1)).await;
    send_progress(&sender, 192);
    assert_eq!(next(&mut stream).await, ": reading 192/512\n\n");
    let _ = sender.send(&GenerationEvent::Text("hi"));
    assert!(next(&mut stream).await.contains("\"role\":\"assistant\""));
}

#[tokio::test(start_paused = true)]
async fn queued_job_starts_its_stream_and_sends_heartbeats() {
    let (sender, receiver) = generation_channel::channel();
    let start = Instant::now();
    let mut stream = open(receiver).await.unwrap();
    assert_eq!(start.elapsed(), FIRST_EVENT_TIMEOUT);
    assert_eq!(next(&mut stream).await, ": waiting\n\n");
    assert_eq!(start.elapsed(), FIRST_EVENT_TIMEOUT + HEARTBEAT_INTERVAL);
    sender.finish(Err(Refusal::stopping()));
    assert!(next(&mut stream).await.contains("\"code\":\"stopping\""));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn fault_before_any_output_is_the_response() {
    let (sender, receiver) = generation_channel::channel();
    sender.finish(Err(Refusal::invalid("no")));
    assert_eq!(open(receiver).await.err(), Some(Refusal::invalid("no")));
}

#[tokio::test]
async fn fault_after_output_ends_the_stream_without_done() {
    let (sender, receiver) = generation_channel::channel();
    let _ = sender.send(&GenerationEvent::Text("half"));
    let mut stream = open(receiver).await.unwrap();
    let mut all = next(&mut stream).await;
    sender.finish(Err(Refusal::failed("it broke")));
    while let Some(bytes) = stream.next().await {
        all.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(all.contains("half") && all.contains("it broke") && !all.contains("[DONE]"), "{all}");
}

#[tokio::test]
async fn finished_response_is_streamed_in_order() {
    let (sender, receiver) = generation_channel::channel();
    let _ = sender.send(&GenerationEvent::Text("hi"));
    sender.finish(Ok(SUMMARY));
    let mut stream = open(receiver).await.unwrap();
    let all = next(&mut stream).await;
    let positions = ["assistant", "\"hi\"", "\"stop\"", "[DONE]"].map(|part| all.find(part).unwrap());
    assert!(positions.is_sorted(), "{all}");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn complete_response_waits_for_the_end() {
    let (sender, receiver) = generation_channel::channel();
    let _ = sender.send(&GenerationEvent::Text("a"));
    let worker = async {
        tokio::task::yield_now().await;
        let _ = sender.send(&GenerationEvent::Text("b"));
        sender.finish(Ok(SUMMARY));
    };
    let header = CompletionHeader::new("m");
    let (response, ()) = tokio::join!(collect_completion(receiver, &header), worker);
    let response: serde_json::Value = serde_json::from_slice(&response.unwrap()).unwrap();
    assert_eq!(response["choices"][0]["message"]["content"], "ab");
}
