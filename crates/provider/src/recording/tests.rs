//! What is recorded is served again, and what was not is told.

use std::sync::Arc;

use agent::outside::{
    ModelEvent, ModelRequest, ModelSpec, ModelStream, Models, Provider, Requester, StopReason,
};
use agent::{AgentId, Fault, FaultKind, Message, MessageSource, ToolCall, Usage};
use futures_util::StreamExt;
use futures_util::stream;

use super::*;

/// A model that says a bit of everything, and fails when it is told to.
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
        const TRAITS: ModelSpec = ModelSpec::with_window(4_096);
        &TRAITS
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

fn request(agent: &str, texts: &[&str], tail: &str) -> ModelRequest {
    let messages = texts.iter().map(|text| Arc::new(Message::user(*text, MessageSource::default())));
    ModelRequest {
        messages: Arc::new(messages.collect()),
        volatile_suffix: Some(Arc::from(tail)),
        requester: Requester { agent: AgentId::parse(agent).ok(), root: 1 },
        ..ModelRequest::default()
    }
}

async fn collect_events(models: &dyn Models, request: ModelRequest) -> Vec<Result<ModelEvent, Fault>> {
    models.default_model().call(request).collect().await
}

#[tokio::test]
async fn what_was_recorded_is_served_again_and_the_time_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    let asked = [("a", vec!["one"]), ("b", vec!["uno"]), ("a", vec!["one", "two"]), ("a", vec!["fail"])];
    let mut said = Vec::new();
    for (agent, texts) in &asked {
        said.push(collect_events(&recorded, request(agent, texts, "at noon")).await);
    }
    let replayed = ReplayModels::open(&path).unwrap();
    assert_eq!(replayed.default_model().model(), Some("test/everything"));
    assert_eq!(replayed.default_model().spec().window_tokens, 4_096);
    // Agents may come in another order among each other.
    assert_eq!(collect_events(&replayed, request("b", &["uno"], "at one")).await, said[1]);
    assert_eq!(collect_events(&replayed, request("a", &["one"], "at one")).await, said[0]);
    assert_eq!(collect_events(&replayed, request("a", &["one", "two"], "at two")).await, said[2]);
    assert_eq!(collect_events(&replayed, request("a", &["fail"], "at two")).await, said[3]);
    let over = collect_events(&replayed, request("a", &["more"], "")).await;
    let fault = over[0].clone().unwrap_err();
    assert!(fault.public.contains("exchange 4 of agent 'a': the recording has no more"), "{fault}");
}

#[tokio::test]
async fn a_question_that_differs_is_told_with_the_first_difference() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    collect_events(&recorded, request("a", &["one", "two"], "")).await;
    let replayed = ReplayModels::open(&path).unwrap();
    let said = collect_events(&replayed, request("a", &["one", "too"], "")).await;
    let fault = said[0].clone().unwrap_err();
    assert_eq!(said.len(), 1);
    assert!(fault.public.contains("exchange 1 of agent 'a': message 2: recorded "), "{fault}");
    assert!(fault.public.contains("\"two\"") && fault.public.contains("\"too\""), "{fault}");
    let again = collect_events(&replayed, request("a", &["one", "two"], "")).await;
    assert!(again.len() > 1, "the recorded one is still there");
    let stranger = collect_events(&replayed, request("c", &["one"], "")).await;
    assert!(stranger[0].clone().unwrap_err().public.contains("no agent of the recording asked this"));
}

#[tokio::test]
async fn another_model_is_a_difference_and_the_usual_one_is_known_whoever_spoke_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    collect_events(&recorded, request("a", &["one"], "")).await;
    let line = std::fs::read_to_string(&path).unwrap();
    let named =
        [("test/everything", "test/other"), ("\"agent\":\"a\"", "\"agent\":\"b\""), (":true", ":false")];
    let first = named.iter().fold(line.clone(), |line, (from, to)| line.replace(from, to));
    std::fs::write(&path, first + &line).unwrap();
    let replayed = ReplayModels::open(&path).unwrap();
    assert_eq!(replayed.default_model().model(), Some("test/everything"));
    let said = collect_events(&replayed, request("b", &["one"], "")).await;
    let fault = said[0].clone().unwrap_err();
    assert!(fault.public.contains("asks model 'test/everything' now, and asked 'test/other'"), "{fault}");
    assert!(replayed.find("test/other").unwrap().call(request("b", &["one"], "")).count().await > 1);
}

#[tokio::test]
async fn a_model_is_found_again_by_the_name_it_was_found_by() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.jsonl");
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
fn a_file_that_is_no_recording_is_refused_and_none_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.jsonl");
    assert!(ReplayModels::open(&path).is_err());
    for text in ["", "{}\n", "no\n"] {
        std::fs::write(&path, text).unwrap();
        assert!(ReplayModels::open(&path).is_err(), "{text:?}");
    }
    assert!(RecordingModels::create(Arc::new(Everything), &path).is_err());
}

#[tokio::test]
async fn an_exchange_that_was_cancelled_is_kept_as_far_as_it_came_and_waits_to_be_cancelled_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.jsonl");
    let recorded = RecordingModels::create(Arc::new(Everything), &path).unwrap();
    let said: Vec<_> = recorded.default_model().call(request("a", &["one"], "")).take(2).collect().await;
    let then = collect_events(&recorded, request("a", &["one", "two"], "")).await;
    let replayed = ReplayModels::open(&path).unwrap();
    let mut again = replayed.default_model().call(request("a", &["one"], ""));
    for item in said {
        assert_eq!(again.next().await, Some(item));
    }
    assert!(futures_util::FutureExt::now_or_never(again.next()).is_none(), "the model still speaks");
    drop(again);
    assert_eq!(collect_events(&replayed, request("a", &["one", "two"], "")).await, then);
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fault = ReplayModels::open(dir.path()).err().unwrap();
    assert!(fault.public.ends_with("it is not a regular file"), "{fault}");
}
