//! Scripted models: what the last message says is what happens.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::super::brain::{Brain, Load};
use super::WAIT_MAX;
use crate::embed::{EmbedFault, Embedder, TextLength};
use crate::generation::{AnswerFault, Answered, Chat, EndedBy, MadeCall, Piece, ToolChoice};

/// What a test sees of the scripted model, and how it lets it go on.
#[derive(Clone, Default)]
pub(super) struct Stage(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    loads: usize,
    load_faults: usize,
    asked: Vec<String>,
    ended: Vec<(String, EndedBy)>,
    gates: Vec<Sender<()>>,
}

impl Stage {
    pub(super) fn load(&self) -> Load<dyn Brain> {
        let stage = self.clone();
        Box::new(move || {
            let mut seen = stage.0.lock().unwrap();
            seen.loads += 1;
            if seen.load_faults > 0 {
                seen.load_faults -= 1;
                return Err("model file m.gguf cannot be used: it is scripted so".to_owned());
            }
            Ok(Box::new(Scripted { stage: stage.clone() }))
        })
    }

    /// The next so many attempts to load fail.
    pub(super) fn fail_loads(&self, count: usize) {
        self.0.lock().unwrap().load_faults = count;
    }

    pub(super) fn loads(&self) -> usize {
        self.0.lock().unwrap().loads
    }

    /// The last messages of all chats that began, in their order.
    pub(super) fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().asked.clone()
    }

    /// Waits until the chat with this last message has ended, and says how.
    pub(super) async fn ended(&self, text: &str) -> EndedBy {
        let ended = async {
            loop {
                let found =
                    self.0.lock().unwrap().ended.iter().find(|(asked, _)| asked == text).map(|it| it.1);
                if let Some(why) = found {
                    return why;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, ended).await.expect("the chat ends")
    }

    /// Waits until so many chats have begun.
    pub(super) async fn wait_asked(&self, count: usize) {
        let asked = async {
            while self.asked().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, asked).await.expect("the chats begin");
    }

    /// Waits until a chat is held.
    pub(super) async fn wait_held(&self) {
        let held = async {
            while self.0.lock().unwrap().gates.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, held).await.expect("a chat is held");
    }

    /// Lets all go on that are held.
    pub(super) fn release(&self) {
        self.0.lock().unwrap().gates.clear();
    }

    fn gate(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.0.lock().unwrap().gates.push(sender);
        receiver
    }
}

struct Scripted {
    stage: Stage,
}

impl Brain for Scripted {
    fn window_tokens(&self) -> usize {
        64
    }

    fn answer(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Answered, AnswerFault> {
        let text = chat.messages.last().unwrap().text.clone();
        self.stage.0.lock().unwrap().asked.push(text.clone());
        let answered = self.perform(&text, chat, each)?;
        self.stage.0.lock().unwrap().ended.push((text, answered.why));
        Ok(answered)
    }
}

impl Scripted {
    fn perform(
        &self,
        text: &str,
        chat: &Chat,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Answered, AnswerFault> {
        let answered = |why| Answered { prompt_tokens: 5, cached_tokens: 2, answer_tokens: 3, why };
        let word = text.split(' ').next().unwrap_or_default();
        match word {
            "panic" => panic!("the script says so"),
            "fail" => return Err(AnswerFault::Failed("the script says so".to_owned())),
            "refuse" => return Err(AnswerFault::Refused("this schema has no answer".to_owned())),
            "long" => return Err(AnswerFault::TooLong { prompt_tokens: 100, window_tokens: 64 }),
            "hold" => drop(self.stage.gate().recv()),
            _ => {}
        }
        let _ = each(Piece::Read { tokens: 5, of: 5 });
        if word == "endless" {
            while each(Piece::Text("on ")).is_continue() {}
            return Ok(answered(EndedBy::Cancelled));
        }
        if matches!(chat.choice, ToolChoice::Required | ToolChoice::Named(_)) {
            let name = chat.tools[0].name.clone();
            let call = MadeCall { id: "call_1".to_owned(), name, arguments: "{}".to_owned() };
            let _ = each(Piece::Call(&call));
            return Ok(answered(EndedBy::Calls));
        }
        for piece in ["you said: ", text] {
            if each(Piece::Text(piece)).is_break() {
                return Ok(answered(EndedBy::Cancelled));
            }
        }
        let why = if chat.answer_tokens_max == Some(3) { EndedBy::Length } else { EndedBy::Finished };
        Ok(answered(why))
    }
}

/// An embedding of two numbers: the length of the text, and 1.
pub(super) struct WordLengths;

impl Embedder for WordLengths {
    fn name(&self) -> &str {
        "word lengths"
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn length(&self, text: &str) -> TextLength {
        TextLength { tokens: text.len(), is_cut: text.len() > 8 }
    }

    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedFault> {
        assert!(!texts.contains(&"panic"), "the script says so");
        let point = |text: &&str| vec![f32::from(u8::try_from(text.len()).unwrap()), 1.0];
        Ok(texts.iter().map(point).collect())
    }
}
