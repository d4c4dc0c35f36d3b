//! all-MiniLM-L6-v2 from its ONNX file. Texts of like length share a batch; the caller gets them back in its own order.

use std::path::Path;
use std::sync::Arc;

use rten::{Model, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, NdTensorView};

use super::word_piece::{TokenSequence, WordPieceTokenizer};
use super::{EmbedFault, Embedder, TextLength, onnx_check, pooling};

const NAME: &str = "all-MiniLM-L6-v2";
const DIMENSIONS: usize = 384;

/// The published files have 23 and 90 MB; what is much larger is something else.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

const BATCH_TEXTS_MAX: usize = 32;
/// Texts times the longest of them. The work space grows with it; twice this size gained no speed.
const BATCH_TOKENS_MAX: usize = 2048;

/// The model, its vocabulary and its threads.
pub struct MiniLm {
    model: Model,
    tokenizer: WordPieceTokenizer,
    threads: Arc<ThreadPool>,
    nodes: Nodes,
}

/// Where the graph takes its input and gives its output.
struct Nodes {
    input_ids: NodeId,
    attention_mask: NodeId,
    /// Not every export asks for it.
    token_type_ids: Option<NodeId>,
    output: NodeId,
}

impl MiniLm {
    /// Reads the ONNX file at `path`; it computes on `threads` threads of its own.
    ///
    /// # Errors
    /// When the file cannot be read, or is not this model.
    pub fn open(path: &Path, threads: usize) -> Result<Self, EmbedFault> {
        let unusable = |reason: String| EmbedFault::Unusable { path: path.to_path_buf(), reason };
        let file = read_file(path)?;
        onnx_check::check(&file).map_err(unusable)?;
        let model = Model::load(file).map_err(|fault| unusable(fault.to_string()))?;
        let nodes = Nodes::find(&model).map_err(unusable)?;
        let pieces = WordPieceTokenizer::new().map_err(unusable)?;
        let threads = Arc::new(ThreadPool::with_num_threads(threads.max(1)));
        let mut opened = Self { model, tokenizer: pieces, threads, nodes };
        // One short text now: a file with other shapes is refused here and not at the first use.
        opened.embed(&["try"]).map_err(|fault| unusable(fault.to_string()))?;
        Ok(opened)
    }

    fn run_batch(&self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, EmbedFault> {
        let tokens = batch.iter().map(|sequence| sequence.token_ids.len()).max().unwrap_or_default();
        let shape = [batch.len(), tokens];
        let mut pieces = NdTensor::<i32, 2>::zeros(shape);
        let mut mask = NdTensor::<i32, 2>::zeros(shape);
        for (row, sequence) in batch.iter().enumerate() {
            for (column, piece) in sequence.token_ids.iter().enumerate() {
                pieces[[row, column]] = *piece;
                mask[[row, column]] = 1;
            }
        }
        let mut inputs =
            vec![(self.nodes.input_ids, pieces.into()), (self.nodes.attention_mask, mask.into())];
        if let Some(segments) = self.nodes.token_type_ids {
            inputs.push((segments, NdTensor::<i32, 2>::zeros(shape).into()));
        }
        let mut options = RunOptions::default();
        options.thread_pool = Some(Arc::clone(&self.threads));
        let outputs = self.model.run(inputs, &[self.nodes.output], Some(options));
        let outputs = outputs.map_err(|fault| EmbedFault::Failed(fault.to_string()))?;
        let output = outputs.first().ok_or_else(|| EmbedFault::Failed("it gave no output".to_owned()))?;
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
        // A text that cannot be split into pieces fails when it is embedded; here it has no length.
        self.tokenizer
            .encode(text)
            .map_or(TextLength { tokens: 0, is_truncated: false }, |sequence| sequence.length())
    }

    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedFault> {
        let sequences = texts.iter().map(|text| self.tokenizer.encode(text)).collect::<Result<Vec<_>, _>>();
        let sequences = sequences.map_err(EmbedFault::Failed)?;
        let mut points = vec![Vec::new(); texts.len()];
        let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.token_ids.len()).collect();
        for batch in batches(&lengths) {
            let read: Vec<&TokenSequence> = batch.iter().map(|place| &sequences[*place]).collect();
            for (place, point) in batch.iter().zip(self.run_batch(&read)?) {
                points[*place] = point;
            }
        }
        Ok(points)
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
        let reason =
            format!("it has {bytes} bytes, and {FILE_BYTES_MAX} is the most an embedding model may have");
        return Err(EmbedFault::Unusable { path: path.to_path_buf(), reason });
    }
    std::fs::read(path).map_err(unreadable)
}

/// Places of texts that are computed together: like lengths side by side, so that little is padding.
fn batches(lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut places: Vec<usize> = (0..lengths.len()).collect();
    places.sort_by_key(|place| lengths[*place]);
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for place in places {
        match batches.last_mut() {
            Some(batch)
                if batch.len() < BATCH_TEXTS_MAX
                    && (batch.len() + 1) * lengths[place] <= BATCH_TOKENS_MAX =>
            {
                batch.push(place);
            }
            _ => batches.push(vec![place]),
        }
    }
    batches
}

fn pool_output(output: &Value, batch: &[&TokenSequence], tokens: usize) -> Result<Vec<Vec<f32>>, EmbedFault> {
    let rows: NdTensorView<'_, f32, 3> =
        output.try_into().map_err(|fault: rten::TryFromValueError| EmbedFault::Failed(fault.to_string()))?;
    let shape = [batch.len(), tokens, DIMENSIONS];
    if rows.shape() != shape {
        let fault = format!("its output has the shape {:?} instead of {shape:?}", rows.shape());
        return Err(EmbedFault::Failed(fault));
    }
    let point = |(row, sequence): (usize, &&TokenSequence)| {
        let rows = rows.slice(row).to_vec();
        pooling::pool(&rows, sequence.token_ids.len(), DIMENSIONS)
    };
    Ok(batch.iter().enumerate().map(point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_like_length_share_a_batch() {
        assert_eq!(batches(&[9, 3, 8, 3]), [vec![1, 3, 2, 0]]);
    }

    #[test]
    fn a_batch_has_a_limit_of_texts_and_one_of_tokens() {
        let short = batches(&[5; BATCH_TEXTS_MAX + 1]);
        assert_eq!(short.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_TEXTS_MAX, 1]);
        let long = batches(&[256; 9]);
        assert_eq!(long.iter().map(Vec::len).collect::<Vec<_>>(), [8, 1]);
        assert!(batches(&[]).is_empty());
    }

    #[test]
    fn a_file_that_is_no_model_is_refused_with_its_path() {
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
