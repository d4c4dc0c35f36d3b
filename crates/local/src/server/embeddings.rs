//! Embedding requests and responses in OpenAI's format, with vectors as floats or base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::request::parse_json;
use super::worker::EmbedOutput;

/// Most texts per request, as in OpenAI's API.
const TEXTS_MAX: usize = 2048;

/// A valid embedding request.
#[derive(Debug)]
pub(super) struct EmbedRequest {
    /// Requested model; `None` selects the one that is served.
    pub(super) model: Option<String>,
    pub(super) texts: Vec<String>,
    pub(super) dimensions: Option<usize>,
    pub(super) encoding_format: EncodingFormat,
}

/// Encoding of the vectors in the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EncodingFormat {
    Float,
    /// Little-endian 32-bit floats as base64.
    Base64,
}

#[derive(Deserialize)]
struct EmbedIn {
    model: Option<String>,
    input: InputIn,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "input must be a string or an array of strings")]
enum InputIn {
    One(String),
    Many(Vec<String>),
}

#[derive(Serialize)]
struct EmbeddingList<'a> {
    object: &'static str,
    data: Vec<EmbeddingItem<'a>>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct EmbeddingItem<'a> {
    object: &'static str,
    index: usize,
    embedding: EmbeddingValue<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum EmbeddingValue<'a> {
    Float(&'a [f32]),
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
    /// Number of truncated texts. Not part of OpenAI's API, so it is present only if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    texts_cut: Option<usize>,
}

impl EmbedRequest {
    /// Parses and validates a request body.
    pub(super) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let request: EmbedIn = parse_json(body)?;
        let texts = match request.input {
            InputIn::One(text) => vec![text],
            InputIn::Many(texts) => texts,
        };
        let invalid = |text: String| Err(Refusal::invalid(text).param("input"));
        if texts.is_empty() || texts.len() > TEXTS_MAX {
            return invalid(format!("input has {} texts; it must have 1 to {TEXTS_MAX}", texts.len()));
        }
        if let Some(index) = texts.iter().position(String::is_empty) {
            return invalid(format!("text {index} is empty; an empty text has no embedding"));
        }
        let encoding_format = match request.encoding_format.as_deref() {
            None | Some("float") => EncodingFormat::Float,
            Some("base64") => EncodingFormat::Base64,
            Some(other) => {
                let text = format!("encoding_format {other:?} is unknown; use float or base64");
                return Err(Refusal::invalid(text).param("encoding_format"));
            }
        };
        let model = request.model.filter(|model| !model.is_empty());
        Ok(Self { model, texts, dimensions: request.dimensions, encoding_format })
    }

    /// Serializes the response.
    pub(super) fn response_body(&self, model: &str, output: &EmbedOutput) -> Result<Vec<u8>, Refusal> {
        let dimensions = output.embeddings.first().map_or(0, Vec::len);
        if self.dimensions.is_some_and(|requested| requested != dimensions) {
            let text = format!("{model} has {dimensions} dimensions; omit `dimensions`");
            return Err(Refusal::invalid(text).param("dimensions"));
        }
        let embeddings = output.embeddings.iter().map(|vector| encode_vector(self.encoding_format, vector));
        let tokens = output.lengths.iter().map(|length| length.tokens).sum();
        let texts_cut = output.lengths.iter().filter(|length| length.is_truncated).count();
        let list = EmbeddingList {
            object: "list",
            data: embeddings
                .enumerate()
                .map(|(index, embedding)| EmbeddingItem { object: "embedding", index, embedding })
                .collect(),
            model,
            usage: Usage {
                prompt_tokens: tokens,
                total_tokens: tokens,
                texts_cut: (texts_cut > 0).then_some(texts_cut),
            },
        };
        serde_json::to_vec(&list).map_err(|fault| Refusal::failed(fault.to_string()))
    }
}

fn encode_vector(format: EncodingFormat, vector: &[f32]) -> EmbeddingValue<'_> {
    match format {
        EncodingFormat::Float => EmbeddingValue::Float(vector),
        EncodingFormat::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            EmbeddingValue::Base64(STANDARD.encode(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::embed::TextLength;

    fn parse(request: &Value) -> Result<EmbedRequest, Refusal> {
        EmbedRequest::from_body(&serde_json::to_vec(request).unwrap())
    }

    fn output() -> EmbedOutput {
        let lengths = vec![
            TextLength { tokens: 3, is_truncated: false },
            TextLength { tokens: 256, is_truncated: true },
        ];
        EmbedOutput { embeddings: vec![vec![1.0, 0.0], vec![0.0, -1.0]], lengths }
    }

    #[test]
    fn input_is_a_string_or_an_array() {
        assert_eq!(parse(&json!({"input": "a", "user": "u"})).unwrap().texts, ["a"]);
        let many = parse(&json!({"input": ["a", "b"], "model": "m", "encoding_format": "base64"})).unwrap();
        assert_eq!((many.texts.len(), many.encoding_format), (2, EncodingFormat::Base64));
        assert_eq!(many.model.as_deref(), Some("m"));
    }

    #[test]
    fn invalid_input_is_rejected() {
        for input in
            [json!([]), json!(""), json!(["a", ""]), json!([[1, 2]]), json!(3), json!(vec!["a"; 2049])]
        {
            assert!(parse(&json!({"input": input})).is_err(), "{input}");
        }
        assert!(parse(&json!({"input": "a", "encoding_format": "hex"})).is_err());
    }

    #[test]
    fn float_response_has_vectors_and_usage() {
        let request = parse(&json!({"input": ["a", "b"]})).unwrap();
        let response: Value =
            serde_json::from_slice(&request.response_body("m", &output()).unwrap()).unwrap();
        assert_eq!(
            response,
            json!({"object": "list", "model": "m", "data": [
                {"object": "embedding", "index": 0, "embedding": [1.0, 0.0]},
                {"object": "embedding", "index": 1, "embedding": [0.0, -1.0]},
            ], "usage": {"prompt_tokens": 259, "total_tokens": 259, "texts_cut": 1}})
        );
    }

    #[test]
    fn base64_encodes_little_endian_floats() {
        let request = parse(&json!({"input": "a", "encoding_format": "base64", "dimensions": 2})).unwrap();
        let response: Value =
            serde_json::from_slice(&request.response_body("m", &output()).unwrap()).unwrap();
        let bytes = STANDARD.decode(response["data"][1]["embedding"].as_str().unwrap()).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0x80, 0xbf]);
    }

    #[test]
    fn other_dimensions_are_rejected() {
        let request = parse(&json!({"input": "a", "dimensions": 3})).unwrap();
        assert!(request.response_body("m", &output()).is_err());
    }
}
