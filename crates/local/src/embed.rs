//! Embeddings: texts as points, near where the meaning is near. This file is what callers see; the model that is built in
//! is `MiniLm`, and the sockets are the server's.

mod minilm;
mod onnx_check;
mod pooling;
mod word_piece;

use std::path::PathBuf;

pub use minilm::MiniLm;

/// Turns texts into points of one space.
pub trait Embedder: Send {
    /// The model's name; points of different models do not compare.
    fn name(&self) -> &str;

    /// How many numbers a point has.
    fn dimensions(&self) -> usize;

    /// How much of a text is read.
    fn length(&self, text: &str) -> TextLength;

    /// One point of length 1 for each text, in their order.
    ///
    /// # Errors
    /// When the model fails.
    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedFault>;
}

/// How much of a text a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLength {
    /// Tokens that are read, those the model adds included.
    pub tokens: usize,
    /// Whether the text goes on behind them, unread.
    pub is_truncated: bool,
}

/// Why there is no embedding.
#[derive(Debug, thiserror::Error)]
pub enum EmbedFault {
    /// The file cannot be opened or read.
    #[error("embedding model {path} cannot be read: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is not the model that it should be; the reason names what is wrong.
    #[error("embedding model {path} cannot be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The model failed on a text.
    #[error("the embedding model failed: {0}")]
    Failed(String),
}
