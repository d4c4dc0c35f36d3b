//! Text embeddings: vectors whose distance reflects the distance in meaning. This file is the interface, `MiniLm` the
//! one implementation; HTTP belongs to `server`.

mod minilm;
mod onnx_check;
mod pooling;
mod word_piece;

use std::path::PathBuf;

pub use minilm::MiniLm;

/// An embedding model.
pub trait Embedder: Send {
    /// The model's name; embeddings of different models are not comparable.
    fn name(&self) -> &str;

    /// Number of dimensions of an embedding.
    fn dimensions(&self) -> usize;

    /// Returns how many tokens of a text the model reads.
    fn length(&self, text: &str) -> TextLength;

    /// Returns one embedding of length 1 per text, in the order of the texts.
    ///
    /// # Errors
    /// When the model fails.
    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedFault>;
}

/// Token count of a text as the embedding model reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLength {
    /// Tokens that the model reads, including those it adds.
    pub tokens: usize,
    /// Whether the text was longer and is truncated.
    pub is_truncated: bool,
}

/// Failure to load an embedding model or to embed a text.
#[derive(Debug, thiserror::Error)]
pub enum EmbedFault {
    /// The file cannot be opened or read.
    #[error("embedding model {path} cannot be read: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        cause: std::io::Error,
    },
    /// The file is not the expected model.
    #[error("embedding model {path} cannot be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why the file was rejected.
        reason: String,
    },
    /// The model failed on a text.
    #[error("the embedding model failed: {0}")]
    Failed(String),
}
