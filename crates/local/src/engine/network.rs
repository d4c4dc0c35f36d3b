//! A model's weights and hyperparameters, loaded from a GGUF file and validated before any computation.

use super::attention::HEAD_SIZE_MAX;
use super::convert;
use super::gguf::{Gguf, MetadataValue, ModelFileError};
use super::matrix::{BLOCK_NUMBERS, ComputePool, Matrix};

/// Hyperparameters of a model.
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
    /// Rotation angle of each pair of a head, per position.
    pub(crate) rope_frequencies: Vec<f32>,
}

/// Which numbers of a head RoPE rotates as a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RopeLayout {
    /// Numbers `2i` and `2i + 1`.
    Interleaved,
    /// Numbers `i` and `i + head_size / 2`.
    SplitHalves,
}

/// A linear layer: a matrix and an optional bias.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
}

/// Weights of one transformer layer.
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

/// Weights of a whole model.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) shape: Shape,
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: Vec<f32>,
    /// The output matrix; `None` when it is tied to the embedding.
    pub(crate) output: Option<Matrix>,
    pub(crate) pool: ComputePool,
}

const LAYERS_MAX: usize = 512;
const WINDOW_TOKENS_MAX: usize = 1 << 20;

impl Network {
    /// Loads the weights of `file`, for `threads` threads.
    pub(crate) fn read(
        file: &Gguf<'_>,
        vocabulary_size: usize,
        threads: usize,
    ) -> Result<Self, ModelFileError> {
        let shape = Shape::read(file, vocabulary_size)?;
        let hidden = shape.hidden;
        let layers = (0..shape.layers).map(|at| Layer::read(file, &shape, at)).collect::<Result<_, _>>()?;
        let output = match file.has_tensor("output.weight") {
            true => Some(read_matrix(file, "output.weight", vocabulary_size, hidden)?),
            false => None,
        };
        Ok(Self {
            embedding: read_matrix(file, "token_embd.weight", vocabulary_size, hidden)?,
            layers,
            output_norm: read_vector(file, "output_norm.weight", hidden)?,
            output,
            pool: ComputePool::new(threads)
                .map_err(|fault| format!("its {threads} threads cannot be started: {fault}"))?,
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
    fn read(file: &Gguf<'_>, vocabulary_size: usize) -> Result<Self, ModelFileError> {
        let architecture = file.text("general.architecture").ok_or("it names no architecture")?;
        let rope_layout = match architecture {
            "llama" => RopeLayout::Interleaved,
            "qwen2" => RopeLayout::SplitHalves,
            other => return Err(format!("its architecture is {other}; supported are llama and qwen2")),
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let integer = |name: &str, max: usize| {
            let value = file.integer(&key(name)).ok_or_else(|| format!("{} is missing", key(name)))?;
            match (1..=max).contains(&value) {
                true => Ok(value),
                false => Err(format!("{} is {value}; it must be 1 to {max}", key(name))),
            }
        };
        let hidden = integer("embedding_length", 1 << 16)?;
        let heads = integer("attention.head_count", 1 << 10)?;
        let kv_heads = integer("attention.head_count_kv", 1 << 10).or_else(|fault| {
            let is_absent = file.metadata_value(&key("attention.head_count_kv")).is_none();
            is_absent.then_some(heads).ok_or(fault)
        })?;
        let head_size = file.integer(&key("attention.key_length")).unwrap_or(hidden / heads);
        if !heads.is_multiple_of(kv_heads) || !hidden.is_multiple_of(BLOCK_NUMBERS) {
            return Err(format!(
                "{heads} heads, {kv_heads} key-value heads and an embedding length of {hidden} do not fit together"
            ));
        }
        if !(2..=HEAD_SIZE_MAX).contains(&head_size) || !head_size.is_multiple_of(2) {
            return Err(format!("its head size is {head_size}; it must be even and 2 to {HEAD_SIZE_MAX}"));
        }
        Ok(Self {
            layers: integer("block_count", LAYERS_MAX)?,
            hidden,
            heads,
            kv_heads,
            head_size,
            feed_forward_size: integer("feed_forward_length", 1 << 18)?,
            vocabulary_size,
            window_tokens: integer("context_length", WINDOW_TOKENS_MAX)?,
            epsilon: to_f32(file.float(&key("attention.layer_norm_rms_epsilon")).unwrap_or(1e-5)),
            rope_layout,
            rope_frequencies: rope_frequencies(file, architecture, head_size)?,
        })
    }
}

fn rope_frequencies(
    file: &Gguf<'_>,
    architecture: &str,
    head_size: usize,
) -> Result<Vec<f32>, ModelFileError> {
    let base = file.float(&format!("{architecture}.rope.freq_base")).unwrap_or(10_000.0);
    let dimensions = file.integer(&format!("{architecture}.rope.dimension_count")).unwrap_or(head_size);
    if dimensions != head_size || !(1.0..=1e12).contains(&base) {
        return Err(format!(
            "its RoPE ({dimensions} of {head_size} dimensions, base {base}) is not supported"
        ));
    }
    if let Some(MetadataValue::Text(kind)) = file.metadata_value(&format!("{architecture}.rope.scaling.type"))
        && *kind != "none"
    {
        return Err(format!("its RoPE scaling {kind} is not supported"));
    }
    let pairs = head_size / 2;
    let divisors = match file.has_tensor("rope_freqs.weight") {
        true => read_vector(file, "rope_freqs.weight", pairs)?,
        false => vec![1.0; pairs],
    };
    let frequency = |pair: usize| base.powf(-2.0 * pair as f64 / head_size as f64);
    Ok(divisors.iter().enumerate().map(|(pair, divisor)| to_f32(frequency(pair)) / divisor).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "the model computes in single precision")]
fn to_f32(value: f64) -> f32 {
    value as f32
}
