//! Scripted models: the first word of the last message is a command.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::super::backend::{Backend, Loader};
use super::WAIT_MAX;
use crate::embed::{EmbedFault, Embedder, TextLength};
use crate::generation::{
    Chat, ChatToolCall, FinishReason, GenerationEvent, GenerationFault, GenerationSummary, ToolChoice,
};

/// Test-side handle that observes and controls the scripted model.
#[derive(Clone, Default)]
pub(super) struct ScriptHandle(Arc<Mutex<ScriptState>>);

#[derive(Default)]
struct ScriptState {
    loads: usize,
    load_faults: usize,
    prompts: Vec<String>,
    outcomes: Vec<(String, FinishReason)>,
    held: Vec<Sender<()>>,
}

impl ScriptHandle {
    pub(super) fn loader(&self) -> Loader<dyn Backend> {
        let script = self.clone();
        Box::new(move || {
            let mut state = script.0.lock().unwrap();
            state.loads += 1;
            if state.load_faults > 0 {
                state.load_faults -= 1;
                return Err("model file m.gguf cannot be used: scripted failure".to_owned());
            }
            Ok(Box::new(ScriptedBackend { script: script.clone() }))
        })
    }

    /// Makes the next `count` loads fail.
    pub(super) fn fail_loads(&self, count: usize) {
        self.0.lock().unwrap().load_faults = count;
    }

    pub(super) fn load_count(&self) -> usize {
        self.0.lock().unwrap().loads
    }

    /// Returns the last messages of all started chats, in order.
    pub(super) fn prompts(&self) -> Vec<String> {
        self.0.lock().unwrap().prompts.clone()
    }

    /// Waits until the chat with this last message has ended; returns its finish reason.
    pub(super) async fn wait_ended(&self, text: &str) -> FinishReason {
        let ended = async {
            loop {
                if let Some(reason) = self.outcome(text) {
                    return reason;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, ended).await.expect("the chat ends")
    }

    fn outcome(&self, text: &str) -> Option<FinishReason> {
        let state = self.0.lock().unwrap();
        state.outcomes.iter().find(|(prompt, _)| prompt == text).map(|(_, reason)| *reason)
    }

    /// Waits until `count` chats have started.
    pub(super) async fn wait_started(&self, count: usize) {
        let started = async {
            while self.prompts().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, started).await.expect("the chats start");
    }

    /// Waits until a chat is held.
    pub(super) async fn wait_held(&self) {
        let held = async {
            while self.0.lock().unwrap().held.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, held).await.expect("a chat is held");
    }

    /// Releases all held chats.
    pub(super) fn release(&self) {
        self.0.lock().unwrap().held.clear();
    }

    fn hold(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.0.lock().unwrap().held.push(sender);
        receiver
    }
}

struct ScriptedBackend {
    script: ScriptHandle,
}

impl Backend for ScriptedBackend {
    fn window_tokens(&self) -> usize {
        64
    }

    fn generate(
        &mut self,
        chat: &Chat,
        on_event: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        let text = chat.messages.last().unwrap().text.clone();
        self.script.0.lock().unwrap().prompts.push(text.clone());
        let summary = self.run_script(&text, chat, on_event)?;
        self.script.0.lock().unwrap().outcomes.push((text, summary.finish_reason));
        Ok(summary)
    }
}

impl ScriptedBackend {
    fn run_script(
        &self,
        text: &str,
        chat: &Chat,
        on_event: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        let summarize = |finish_reason| GenerationSummary {
            prompt_tokens: 5,
            cached_tokens: 2,
            answer_tokens: 3,
            finish_reason,
        };
        let command = text.split(' ').next().unwrap_or_default();
        match command {
            "panic" => panic!("scripted panic"),
            "fail" => return Err(GenerationFault::Failed("scripted failure".to_owned())),
            "refuse" => return Err(GenerationFault::Refused("this schema has no answer".to_owned())),
            "long" => return Err(GenerationFault::PromptTooLong { prompt_tokens: 100, window_tokens: 64 }),
            "hold" => drop(self.script.hold().recv()),
            _ => {}
        }
        let _ = on_event(GenerationEvent::PromptProgress { tokens: 5, total_tokens: 5 });
        if command == "endless" {
            while on_event(GenerationEvent::Text("on ")).is_continue() {}
            return Ok(summarize(FinishReason::Cancelled));
        }
        if matches!(chat.tool_choice, ToolChoice::Required | ToolChoice::Named(_)) {
            let name = chat.tools[0].name.clone();
            let call = ChatToolCall { id: "call_1".to_owned(), name, arguments: "{}".to_owned() };
            let _ = on_event(GenerationEvent::ToolCall(&call));
            return Ok(summarize(FinishReason::ToolCalls));
        }
        for part in ["you said: ", text] {
            if on_event(GenerationEvent::Text(part)).is_break() {
                return Ok(summarize(FinishReason::Cancelled));
            }
        }
        let is_limited = chat.answer_tokens_max == Some(3);
        Ok(summarize(if is_limited { FinishReason::Length } else { FinishReason::Stop }))
    }
}

/// Embedder with two dimensions: the length of the text, and 1.
pub(super) struct LengthEmbedder;

impl Embedder for LengthEmbedder {
    fn name(&self) -> &str {
        "word lengths"
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn length(&self, text: &str) -> TextLength {
        TextLength { tokens: text.len(), is_truncated: text.len() > 8 }
    }

    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedFault> {
        assert!(!texts.contains(&"panic"), "scripted panic");
        let embedding = |text: &&str| vec![f32::from(u8::try_from(text.len()).unwrap()), 1.0];
        Ok(texts.iter().map(embedding).collect())
    }
}
