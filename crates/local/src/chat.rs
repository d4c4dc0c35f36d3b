//! Text on its way into a model and out of it: tokens, the file's chat template, tools in the prompt.
//! Numbers are `engine`'s; which token comes next is `generation`'s.

pub(crate) mod prompt;
pub(crate) mod template;
pub(crate) mod tokenizer;
pub(crate) mod vocabulary;
