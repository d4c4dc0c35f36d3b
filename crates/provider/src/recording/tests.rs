//! Tests of recording and replay.

use std::sync::Arc;

use agent::outside::{
    ModelEvent, ModelRequest, ModelSpec, ModelStream, Models, Provider, Requester, StopReason,
};
use agent::{AgentId, Fault, FaultKind, Message, MessageSource, ToolCall, Usage};
use futures_util::StreamExt;
use futures_util::stream;

use super::*;

/// A model that emits all event types, and fails on the text "fail".
struct Everything;

impl Provider for Everything {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let text = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
        if text == "fail" {
            let fault = Fault::new(FaultKind::ContextFull, "too long");
            return Box::pin(stream::iter([Err(fault)]));
        }
        let call = ToolCall { id: "c".into(), name: "n".into(), arguments: "{}".into() };
        Box::pin(stream::iter([
            Ok(ModelEvent::Reasoning("hm".into())),
            Ok(ModelEvent::Text(format!("you said {text}"))),
            Ok(ModelEvent::ToolCall(call)),
            Ok(ModelEvent::Usage(Usage { input: 3, output: 2, ..Usage::default() })),
            Ok(ModelEvent::Stopped(StopReason::ToolCalls)),
            Ok(ModelEvent::Done),
        ]))
    }

    fn model(&self) -> Option<&str> {
        Some("test/everything")
    }

    fn spec(&self) -> &ModelSpec {
        const SPEC: ModelSpec = ModelSpec::with_window(4_096);
        &SPEC
    }
}

impl Models for Everything {
    fn default_model(&self) -> Arc<dyn Provider> {
        Arc::new(Everything)
    }

    fn find(&self, _: &str) -> Result<Arc<dyn Provider>, Fault> {
        Ok(self.default_model())
    }
}

fn request(agent: &str, texts: &[&str], suffix: &str) -> ModelRequest {
    let messages = texts.iter().map(|text| Arc::new(Message::user(*text, MessageSource::default())));
    ModelRequest {
        messages: Arc::new(messages.collect()),
        volatile_suffix: Some(Arc::from(suffix)),
        requester: Requester { agent: AgentId::parse(agent).ok(), root: 1 },
        ..ModelRequest::default()
    }
}

async fn collect_events(models: &dyn Models, request: ModelRequest) -> Vec<Result<ModelEvent, Fault>> {
    models.default_model().call(request).collect().await
}

#[tokio::test]
async fn replay_returns_the_recorded_events_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    let requests = [("a", vec!["one"]), ("b", vec!["uno"]), ("a", vec!["one", "two"]), ("a", vec!["fail"])];
    let mut events = Vec::new();
    for (agent, texts) in &requests {
        events.push(collect_events(&recorded, request(agent, texts, "at noon")).await);
    }
    let replayed = ReplayModels::open(&path).unwrap();
    assert_eq!(replayed.default_model().model(), Some("test/everything"));
    assert_eq!(replayed.default_model().spec().window_tokens, 4_096);
    // The order between agents may differ.
    assert_eq!(collect_events(&replayed, request("b", &["uno"], "at one")).await, events[1]);
    assert_eq!(collect_events(&replayed, request("a", &["one"], "at one")).await, events[0]);
    assert_eq!(collect_events(&replayed, request("a", &["one", "two"], "at two")).await, events[2]);
    assert_eq!(collect_events(&replayed, request("a", &["fail"], "at two")).await, events[3]);
    let extra = collect_events(&replayed, request("a", &["more"], "")).await;
    let fault = extra[0].clone().unwrap_err();
    assert!(fault.public.contains("exchange 4 of agent 'a': the recording has no further"), "{fault}");
}

#[tokio::test]
async fn differing_request_fails_with_the_first_difference() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    collect_events(&recorded, request("a", &["one", "two"], "")).await;
    let replayed = ReplayModels::open(&path).unwrap();
    let events = collect_events(&replayed, request("a", &["one", "too"], "")).await;
    let fault = events[0].clone().unwrap_err();
    assert_eq!(events.len(), 1);
    assert!(fault.public.contains("exchange 1 of agent 'a': message 2: recorded "), "{fault}");
    assert!(fault.public.contains("\"two\"") && fault.public.contains("\"too\""), "{fault}");
    let again = collect_events(&replayed, request("a", &["one", "two"], "")).await;
    assert!(again.len() > 1, "the recorded exchange is still available");
    let stranger = collect_events(&replayed, request("c", &["one"], "")).await;
    assert!(stranger[0].clone().unwrap_err().public.contains("no recorded agent sent this request"));
}

#[tokio::test]
async fn other_model_is_a_mismatch_and_default_model_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    collect_events(&recorded, request("a", &["one"], "")).await;
    let line = std::fs::read_to_string(&path).unwrap();
    let substitutions =
        [("test/everything", "test/other"), ("\"agent\":\"a\"", "\"agent\":\"b\""), (":true", ":false")];
    let first = substitutions.iter().fold(line.clone(), |line, (from, to)| line.replace(from, to));
    std::fs::write(&path, first + &line).unwrap();
    let replayed = ReplayModels::open(&path).unwrap();
    assert_eq!(replayed.default_model().model(), Some("test/everything"));
    let events = collect_events(&replayed, request("b", &["one"], "")).await;
    let fault = events[0].clone().unwrap_err();
    assert!(
        fault.public.contains("for model 'test/everything', the recorded one for 'test/other'"),
        "{fault}"
    );
    assert!(replayed.find("test/other").unwrap().call(request("b", &["one"], "")).count().await > 1);
}

#[tokio::test]
async fn model_is_found_by_its_recorded_lookup_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    for name in ["test", "test/everything"] {
        let model = recorded.find(name).unwrap();
        model.call(request(name.split('/').next_back().unwrap(), &["one"], "")).collect::<Vec<_>>().await;
    }
    let replayed = ReplayModels::open(&path).unwrap();
    for name in ["test", "test/everything"] {
        let model = replayed.find(name).unwrap();
        assert_eq!((model.model(), model.spec().window_tokens), (Some("test/everything"), 4_096), "{name}");
    }
    assert!(replayed.find("other").is_err());
}

#[test]
fn invalid_recording_is_rejected_and_no_file_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    assert!(ReplayModels::open(&path).is_err());
    for text in ["", "{}\n", "no\n"] {
        std::fs::write(&path, text).unwrap();
        assert!(ReplayModels::open(&path).is_err(), "{text:?}");
    }
    assert!(RecordingModels::create(Arc::new(Everything), &path).is_err());
}

#[tokio::test]
async fn cancelled_exchange_replays_its_events_then_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    let events: Vec<_> = recorded.default_model().call(request("a", &["one"], "")).take(2).collect().await;
    let second = collect_events(&recorded, request("a", &["one", "two"], "")).await;
    let replayed = ReplayModels::open(&path).unwrap();
    let mut again = replayed.default_model().call(request("a", &["one"], ""));
    for item in events {
        assert_eq!(again.next().await, Some(item));
    }
    assert!(futures_util::FutureExt::now_or_never(again.next()).is_none(), "the stream stays pending");
    drop(again);
    assert_eq!(collect_events(&replayed, request("a", &["one", "two"], "")).await, second);
}

#[test]
fn directory_is_rejected_as_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let fault = ReplayModels::open(dir.path()).err().unwrap();
    assert!(fault.public.ends_with("it is not a regular file"), "{fault}");
}
