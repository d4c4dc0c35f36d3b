//! The weights of a model and its shape, read from a file and checked before anything is computed.

use super::attention::HEAD_SIZE_MAX;
use super::convert;
use super::gguf::{Gguf, MetadataValue, ModelFileError};
use super::matrix::{BLOCK_NUMBERS, ComputePool, Matrix};

/// The numbers that describe a model.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_size: usize,
    pub(crate) feed_forward_size: usize,
    pub(crate) vocabulary_size: usize,
    pub(crate) window_tokens: usize,
    pub(crate) epsilon: f32,
    pub(crate) rope_layout: RopeLayout,
    /// How far each pair of a head turns per position.
    pub(crate) rope_frequencies: Vec<f32>,
}

/// Which numbers of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RopeLayout {
    /// Each with its neighbour.
    Interleaved,
    /// Each of the first half with its fellow of the second.
    SplitHalves,
}

/// A matrix and what is added after it.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
}

/// One layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    pub(crate) feed_forward_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

/// A whole model.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) shape: Shape,
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: Vec<f32>,
    /// The output matrix, when it is not the embedding.
    pub(crate) output: Option<Matrix>,
    pub(crate) pool: ComputePool,
}

const LAYERS_MAX: usize = 512;
const WINDOW_TOKENS_MAX: usize = 1 << 20;

impl Network {
    /// Reads the weights of `file`, for `threads` threads.
    pub(crate) fn read(file: &Gguf<'_>, vocabulary: usize, threads: usize) -> Result<Self, ModelFileError> {
        let shape = Shape::read(file, vocabulary)?;
        let hidden = shape.hidden;
        let layers = (0..shape.layers).map(|at| Layer::read(file, &shape, at)).collect::<Result<_, _>>()?;
        let head = match file.has_tensor("output.weight") {
            true => Some(read_matrix(file, "output.weight", vocabulary, hidden)?),
            false => None,
        };
        Ok(Self {
            embedding: read_matrix(file, "token_embd.weight", vocabulary, hidden)?,
            layers,
            output_norm: read_vector(file, "output_norm.weight", hidden)?,
            output: head,
            pool: ComputePool::new(threads)
                .map_err(|fault| format!("its threads cannot be started: {fault}"))?,
            shape,
        })
    }
}

impl Layer {
    fn read(file: &Gguf<'_>, shape: &Shape, at: usize) -> Result<Self, ModelFileError> {
        let name = |part: &str| format!("blk.{at}.{part}");
        let (hidden, inner) = (shape.hidden, shape.feed_forward_size);
        let queries = shape.heads * shape.head_size;
        let keys = shape.kv_heads * shape.head_size;
        Ok(Self {
            attention_norm: read_vector(file, &name("attn_norm.weight"), hidden)?,
            query: read_linear(file, &name("attn_q"), queries, hidden)?,
            key: read_linear(file, &name("attn_k"), keys, hidden)?,
            value: read_linear(file, &name("attn_v"), keys, hidden)?,
            output: read_linear(file, &name("attn_output"), hidden, queries)?,
            feed_forward_norm: read_vector(file, &name("ffn_norm.weight"), hidden)?,
            gate: read_matrix(file, &name("ffn_gate.weight"), inner, hidden)?,
            up: read_matrix(file, &name("ffn_up.weight"), inner, hidden)?,
            down: read_matrix(file, &name("ffn_down.weight"), hidden, inner)?,
        })
    }
}

fn read_linear(file: &Gguf<'_>, name: &str, rows: usize, columns: usize) -> Result<Linear, ModelFileError> {
    let bias_name = format!("{name}.bias");
    let bias = match file.has_tensor(&bias_name) {
        true => Some(read_vector(file, &bias_name, rows)?),
        false => None,
    };
    Ok(Linear { matrix: read_matrix(file, &format!("{name}.weight"), rows, columns)?, bias })
}

fn read_matrix(file: &Gguf<'_>, name: &str, rows: usize, columns: usize) -> Result<Matrix, ModelFileError> {
    convert::matrix(name, file.tensor(name, rows, columns)?)
}

fn read_vector(file: &Gguf<'_>, name: &str, length: usize) -> Result<Vec<f32>, ModelFileError> {
    convert::vector(name, file.tensor(name, 1, length)?)
}

impl Shape {
    fn read(file: &Gguf<'_>, vocabulary: usize) -> Result<Self, ModelFileError> {
        let architecture = file.text("general.architecture").ok_or("it names no architecture")?;
        let turning = match architecture {
            "llama" => RopeLayout::Interleaved,
            "qwen2" => RopeLayout::SplitHalves,
            other => return Err(format!("its architecture is {other}; llama and qwen2 are run here")),
        };
        let key = |part: &str| format!("{architecture}.{part}");
        let whole = |part: &str, max: usize| {
            let value = file.integer(&key(part)).ok_or_else(|| format!("{} is missing", key(part)))?;
            match (1..=max).contains(&value) {
                true => Ok(value),
                false => Err(format!("{} is {value}; 1 to {max} is possible", key(part))),
            }
        };
        let hidden = whole("embedding_length", 1 << 16)?;
        let heads = whole("attention.head_count", 1 << 10)?;
        let key_heads = whole("attention.head_count_kv", 1 << 10).or_else(|wrong| {
            let absent = file.metadata_value(&key("attention.head_count_kv")).is_none();
            absent.then_some(heads).ok_or(wrong)
        })?;
        let head = file.integer(&key("attention.key_length")).unwrap_or(hidden / heads);
        if !heads.is_multiple_of(key_heads) || !hidden.is_multiple_of(BLOCK_NUMBERS) {
            return Err(format!(
                "{heads} heads over {key_heads} and a width of {hidden} do not fit together"
            ));
        }
        if !(2..=HEAD_SIZE_MAX).contains(&head) || !head.is_multiple_of(2) {
            return Err(format!("a head of {head} numbers is not run here"));
        }
        Ok(Self {
            layers: whole("block_count", LAYERS_MAX)?,
            hidden,
            heads,
            kv_heads: key_heads,
            head_size: head,
            feed_forward_size: whole("feed_forward_length", 1 << 18)?,
            vocabulary_size: vocabulary,
            window_tokens: whole("context_length", WINDOW_TOKENS_MAX)?,
            epsilon: to_f32(file.float(&key("attention.layer_norm_rms_epsilon")).unwrap_or(1e-5)),
            rope_layout: turning,
            rope_frequencies: rope_frequencies(file, architecture, head)?,
        })
    }
}

fn rope_frequencies(file: &Gguf<'_>, architecture: &str, head: usize) -> Result<Vec<f32>, ModelFileError> {
    let base = file.float(&format!("{architecture}.rope.freq_base")).unwrap_or(10_000.0);
    let turned = file.integer(&format!("{architecture}.rope.dimension_count")).unwrap_or(head);
    if turned != head || !(1.0..=1e12).contains(&base) {
        return Err(format!("its rotation ({turned} of {head} numbers, base {base}) is not run here"));
    }
    if let Some(MetadataValue::Text(kind)) = file.metadata_value(&format!("{architecture}.rope.scaling.type"))
        && *kind != "none"
    {
        return Err(format!("its rotation is scaled by the scheme {kind}, which is not run here"));
    }
    let pairs = head / 2;
    let slower = match file.has_tensor("rope_freqs.weight") {
        true => read_vector(file, "rope_freqs.weight", pairs)?,
        false => vec![1.0; pairs],
    };
    let speed = |pair: usize| base.powf(-2.0 * pair as f64 / head as f64);
    Ok(slower.iter().enumerate().map(|(pair, slower)| to_f32(speed(pair)) / slower).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "single precision is what the model computes in")]
fn to_f32(value: f64) -> f32 {
    value as f32
}
