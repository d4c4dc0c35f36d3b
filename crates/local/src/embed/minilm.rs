//! The embedding model all-MiniLM-L6-v2, loaded from its ONNX file. Texts of similar length share a batch; results keep
//! the caller's order.

use std::path::Path;
use std::sync::Arc;

use rten::{Model, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, NdTensorView};

use super::word_piece::{TokenSequence, WordPieceTokenizer};
use super::{EmbedFault, Embedder, TextLength, onnx_check, pooling};

const NAME: &str = "all-MiniLM-L6-v2";
const DIMENSIONS: usize = 384;

/// Largest accepted file; the published ones have 23 and 90 MB.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

const BATCH_TEXTS_MAX: usize = 32;
/// Largest batch: texts times the longest one's tokens. Memory grows with it; twice this size was no faster.
const BATCH_TOKENS_MAX: usize = 2048;

/// The model all-MiniLM-L6-v2 with its tokenizer and its thread pool.
pub struct MiniLm {
    model: Model,
    tokenizer: WordPieceTokenizer,
    threads: Arc<ThreadPool>,
    nodes: Nodes,
}

/// Input and output nodes of the ONNX graph.
struct Nodes {
    input_ids: NodeId,
    attention_mask: NodeId,
    /// Absent from some exports.
    token_type_ids: Option<NodeId>,
    output: NodeId,
}

impl MiniLm {
    /// Loads the ONNX file at `path`; the model computes on `threads` threads of its own.
    ///
    /// # Errors
    /// When the file cannot be read, or is not this model.
    pub fn open(path: &Path, threads: usize) -> Result<Self, EmbedFault> {
        let unusable = |reason: String| EmbedFault::Unusable { path: path.to_path_buf(), reason };
        let file = read_file(path)?;
        onnx_check::check(&file).map_err(unusable)?;
        let model = Model::load(file).map_err(|fault| unusable(fault.to_string()))?;
        let nodes = Nodes::find(&model).map_err(unusable)?;
        let tokenizer = WordPieceTokenizer::new().map_err(unusable)?;
        let threads = Arc::new(ThreadPool::with_num_threads(threads.max(1)));
        let mut embedder = Self { model, tokenizer, threads, nodes };
        // Embeds one short text, so that a file with other shapes is rejected here and not at the first use.
        embedder.embed(&["try"]).map_err(|fault| unusable(fault.to_string()))?;
        Ok(embedder)
    }

    fn run_batch(&self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, EmbedFault> {
        let tokens = batch.iter().map(|sequence| sequence.token_ids.len()).max().unwrap_or_default();
        let shape = [batch.len(), tokens];
        let mut input_ids = NdTensor::<i32, 2>::zeros(shape);
        let mut attention_mask = NdTensor::<i32, 2>::zeros(shape);
        for (row, sequence) in batch.iter().enumerate() {
            for (column, token) in sequence.token_ids.iter().enumerate() {
                input_ids[[row, column]] = *token;
                attention_mask[[row, column]] = 1;
            }
        }
        let mut inputs = vec![
            (self.nodes.input_ids, input_ids.into()),
            (self.nodes.attention_mask, attention_mask.into()),
        ];
        if let Some(token_type_ids) = self.nodes.token_type_ids {
            inputs.push((token_type_ids, NdTensor::<i32, 2>::zeros(shape).into()));
        }
        let mut options = RunOptions::default();
        options.thread_pool = Some(Arc::clone(&self.threads));
        let outputs = self.model.run(inputs, &[self.nodes.output], Some(options));
        let outputs = outputs.map_err(|fault| EmbedFault::Failed(fault.to_string()))?;
        let output = outputs.first().ok_or_else(|| EmbedFault::Failed("no output".to_owned()))?;
        pool_output(output, batch, tokens)
    }
}

impl Embedder for MiniLm {
    fn name(&self) -> &str {
        NAME
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn length(&self, text: &str) -> TextLength {
        // A text that cannot be tokenized fails in `embed`; here it counts as empty.
        self.tokenizer
            .encode(text)
            .map_or(TextLength { tokens: 0, is_truncated: false }, |sequence| sequence.length())
    }

    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedFault> {
        let sequences = texts.iter().map(|text| self.tokenizer.encode(text)).collect::<Result<Vec<_>, _>>();
        let sequences = sequences.map_err(EmbedFault::Failed)?;
        let mut embeddings = vec![Vec::new(); texts.len()];
        let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.token_ids.len()).collect();
        for batch in batches(&lengths) {
            let batch_sequences: Vec<&TokenSequence> = batch.iter().map(|index| &sequences[*index]).collect();
            for (index, embedding) in batch.iter().zip(self.run_batch(&batch_sequences)?) {
                embeddings[*index] = embedding;
            }
        }
        Ok(embeddings)
    }
}

impl std::fmt::Debug for MiniLm {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("MiniLm").field("name", &NAME).finish_non_exhaustive()
    }
}

impl Nodes {
    fn find(model: &Model) -> Result<Self, String> {
        let node = |name: &str| model.find_node(name).ok_or_else(|| format!("it has no input `{name}`"));
        let output = model.output_ids().first().copied().ok_or("it has no output")?;
        Ok(Self {
            input_ids: node("input_ids")?,
            attention_mask: node("attention_mask")?,
            token_type_ids: model.find_node("token_type_ids"),
            output,
        })
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, EmbedFault> {
    let unreadable = |cause| EmbedFault::Unreadable { path: path.to_path_buf(), cause };
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        let reason = format!("it has {bytes} bytes, more than an embedding model's {FILE_BYTES_MAX}");
        return Err(EmbedFault::Unusable { path: path.to_path_buf(), reason });
    }
    std::fs::read(path).map_err(unreadable)
}

/// Groups the indices of texts into batches of similar length, so that there is little padding.
fn batches(lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut indices: Vec<usize> = (0..lengths.len()).collect();
    indices.sort_by_key(|index| lengths[*index]);
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in indices {
        match batches.last_mut() {
            Some(batch)
                if batch.len() < BATCH_TEXTS_MAX
                    && (batch.len() + 1) * lengths[index] <= BATCH_TOKENS_MAX =>
            {
                batch.push(index);
            }
            _ => batches.push(vec![index]),
        }
    }
    batches
}

fn pool_output(output: &Value, batch: &[&TokenSequence], tokens: usize) -> Result<Vec<Vec<f32>>, EmbedFault> {
    let rows: NdTensorView<'_, f32, 3> =
        output.try_into().map_err(|fault: rten::TryFromValueError| EmbedFault::Failed(fault.to_string()))?;
    let shape = [batch.len(), tokens, DIMENSIONS];
    if rows.shape() != shape {
        let fault = format!("its output has the shape {:?}, expected {shape:?}", rows.shape());
        return Err(EmbedFault::Failed(fault));
    }
    let pool = |(row, sequence): (usize, &&TokenSequence)| {
        let rows = rows.slice(row).to_vec();
        pooling::pool(&rows, sequence.token_ids.len(), DIMENSIONS)
    };
    Ok(batch.iter().enumerate().map(pool).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_similar_length_share_a_batch() {
        assert_eq!(batches(&[9, 3, 8, 3]), [vec![1, 3, 2, 0]]);
    }

    #[test]
    fn batches_are_limited_by_texts_and_tokens() {
        let short = batches(&[5; BATCH_TEXTS_MAX + 1]);
        assert_eq!(short.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_TEXTS_MAX, 1]);
        let long = batches(&[256; 9]);
        assert_eq!(long.iter().map(Vec::len).collect::<Vec<_>>(), [8, 1]);
        assert!(batches(&[]).is_empty());
    }

    #[test]
    fn invalid_file_is_rejected_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.onnx");
        let missing = MiniLm::open(&path, 1).unwrap_err();
        assert!(matches!(missing, EmbedFault::Unreadable { .. }), "{missing}");
        for content in [&b""[..], b"not a model", &[0xff; 64], b"\x08\x07\x12\x07pytorch"] {
            std::fs::write(&path, content).unwrap();
            let fault = MiniLm::open(&path, 1).unwrap_err();
            assert!(matches!(fault, EmbedFault::Unusable { .. }), "{fault}");
            assert!(fault.to_string().contains("model.onnx"), "{fault}");
        }
    }
}
