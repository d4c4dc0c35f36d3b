//! Scripted models: what the last message says is what happens.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::super::backend::{Backend, Loader};
use super::WAIT_MAX;
use crate::embed::{EmbedFault, Embedder, TextLength};
use crate::generation::{
    Chat, ChatToolCall, FinishReason, GenerationEvent, GenerationFault, GenerationSummary, ToolChoice,
};

/// What a test sees of the scripted model, and how it lets it go on.
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
        let stage = self.clone();
        Box::new(move || {
            let mut seen = stage.0.lock().unwrap();
            seen.loads += 1;
            if seen.load_faults > 0 {
                seen.load_faults -= 1;
                return Err("model file m.gguf cannot be used: it is scripted so".to_owned());
            }
            Ok(Box::new(ScriptedBackend { script: stage.clone() }))
        })
    }

    /// The next so many attempts to load fail.
    pub(super) fn fail_loads(&self, count: usize) {
        self.0.lock().unwrap().load_faults = count;
    }

    pub(super) fn load_count(&self) -> usize {
        self.0.lock().unwrap().loads
    }

    /// The last messages of all chats that began, in their order.
    pub(super) fn prompts(&self) -> Vec<String> {
        self.0.lock().unwrap().prompts.clone()
    }

    /// Waits until the chat with this last message has ended, and says how.
    pub(super) async fn wait_ended(&self, text: &str) -> FinishReason {
        let ended = async {
            loop {
                let found =
                    self.0.lock().unwrap().outcomes.iter().find(|(asked, _)| asked == text).map(|it| it.1);
                if let Some(why) = found {
                    return why;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, ended).await.expect("the chat ends")
    }

    /// Waits until so many chats have begun.
    pub(super) async fn wait_started(&self, count: usize) {
        let asked = async {
            while self.prompts().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, asked).await.expect("the chats begin");
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

    /// Lets all go on that are held.
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
        each: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        let text = chat.messages.last().unwrap().text.clone();
        self.script.0.lock().unwrap().prompts.push(text.clone());
        let answered = self.run_script(&text, chat, each)?;
        self.script.0.lock().unwrap().outcomes.push((text, answered.finish_reason));
        Ok(answered)
    }
}

impl ScriptedBackend {
    fn run_script(
        &self,
        text: &str,
        chat: &Chat,
        each: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        let answered = |why| GenerationSummary {
            prompt_tokens: 5,
            cached_tokens: 2,
            answer_tokens: 3,
            finish_reason: why,
        };
        let word = text.split(' ').next().unwrap_or_default();
        match word {
            "panic" => panic!("the script says so"),
            "fail" => return Err(GenerationFault::Failed("the script says so".to_owned())),
            "refuse" => return Err(GenerationFault::Refused("this schema has no answer".to_owned())),
            "long" => return Err(GenerationFault::PromptTooLong { prompt_tokens: 100, window_tokens: 64 }),
            "hold" => drop(self.script.hold().recv()),
            _ => {}
        }
        let _ = each(GenerationEvent::PromptProgress { tokens: 5, total_tokens: 5 });
        if word == "endless" {
            while each(GenerationEvent::Text("on ")).is_continue() {}
            return Ok(answered(FinishReason::Cancelled));
        }
        if matches!(chat.tool_choice, ToolChoice::Required | ToolChoice::Named(_)) {
            let name = chat.tools[0].name.clone();
            let call = ChatToolCall { id: "call_1".to_owned(), name, arguments: "{}".to_owned() };
            let _ = each(GenerationEvent::ToolCall(&call));
            return Ok(answered(FinishReason::ToolCalls));
        }
        for piece in ["you said: ", text] {
            if each(GenerationEvent::Text(piece)).is_break() {
                return Ok(answered(FinishReason::Cancelled));
            }
        }
        let why = if chat.answer_tokens_max == Some(3) { FinishReason::Length } else { FinishReason::Stop };
        Ok(answered(why))
    }
}

/// An embedding of two numbers: the length of the text, and 1.
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
        assert!(!texts.contains(&"panic"), "the script says so");
        let point = |text: &&str| vec![f32::from(u8::try_from(text.len()).unwrap()), 1.0];
        Ok(texts.iter().map(point).collect())
    }
}
