//! Text to tokens and back: the tokenizer, the vocabulary, the chat template and tools in the prompt.
//! `engine` computes logits; `generation` chooses the next token.

pub(crate) mod prompt;
pub(crate) mod template;
pub(crate) mod tokenizer;
pub(crate) mod vocabulary;
