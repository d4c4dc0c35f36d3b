//! Embeddings in OpenAI's shapes: reading the request and writing the points, as numbers or as base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::request::parse_json;
use super::worker::EmbedOutput;

/// As OpenAI's own limit.
const TEXTS_MAX: usize = 2048;

/// A request that can be answered.
#[derive(Debug)]
pub(super) struct EmbedRequest {
    /// The model it asks for; none takes what there is.
    pub(super) model: Option<String>,
    pub(super) texts: Vec<String>,
    pub(super) dimensions: Option<usize>,
    pub(super) encoding_format: EncodingFormat,
}

/// How the numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EncodingFormat {
    Float,
    /// 32-bit floats, little end first, as base64.
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
#[serde(untagged, expecting = "input has to be a text or a list of texts")]
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
    /// Texts that were longer than the model reads; not one of OpenAI's fields, so it is there only when it says something.
    #[serde(skip_serializing_if = "Option::is_none")]
    texts_cut: Option<usize>,
}

impl EmbedRequest {
    /// Reads a body.
    pub(super) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let request: EmbedIn = parse_json(body)?;
        let texts = match request.input {
            InputIn::One(text) => vec![text],
            InputIn::Many(texts) => texts,
        };
        let wrong = |text: String| Err(Refusal::invalid(text).param("input"));
        if texts.is_empty() || texts.len() > TEXTS_MAX {
            return wrong(format!("give 1 to {TEXTS_MAX} texts, not {}", texts.len()));
        }
        if let Some(place) = texts.iter().position(String::is_empty) {
            return wrong(format!("text {place} is empty, and nothing has no meaning"));
        }
        let spelling = match request.encoding_format.as_deref() {
            None | Some("float") => EncodingFormat::Float,
            Some("base64") => EncodingFormat::Base64,
            Some(other) => {
                let text = format!("{other:?} is unknown: use float or base64");
                return Err(Refusal::invalid(text).param("encoding_format"));
            }
        };
        let model = request.model.filter(|model| !model.is_empty());
        Ok(Self { model, texts, dimensions: request.dimensions, encoding_format: spelling })
    }

    /// Writes the answer.
    pub(super) fn response_body(&self, model: &str, embedded: &EmbedOutput) -> Result<Vec<u8>, Refusal> {
        let there_are = embedded.embeddings.first().map_or(0, Vec::len);
        if self.dimensions.is_some_and(|wanted| wanted != there_are) {
            let text = format!("{model} has {there_are} dimensions; leave `dimensions` out");
            return Err(Refusal::invalid(text).param("dimensions"));
        }
        let embeddings = embedded.embeddings.iter().map(|point| encode_vector(self.encoding_format, point));
        let tokens = embedded.lengths.iter().map(|length| length.tokens).sum();
        let texts_cut = embedded.lengths.iter().filter(|length| length.is_truncated).count();
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

fn encode_vector(spelling: EncodingFormat, point: &[f32]) -> EmbeddingValue<'_> {
    match spelling {
        EncodingFormat::Float => EmbeddingValue::Float(point),
        EncodingFormat::Base64 => {
            let bytes: Vec<u8> = point.iter().flat_map(|number| number.to_le_bytes()).collect();
            EmbeddingValue::Base64(STANDARD.encode(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::embed::TextLength;

    fn read(request: &Value) -> Result<EmbedRequest, Refusal> {
        EmbedRequest::from_body(&serde_json::to_vec(request).unwrap())
    }

    fn embedded() -> EmbedOutput {
        let lengths = vec![
            TextLength { tokens: 3, is_truncated: false },
            TextLength { tokens: 256, is_truncated: true },
        ];
        EmbedOutput { embeddings: vec![vec![1.0, 0.0], vec![0.0, -1.0]], lengths }
    }

    #[test]
    fn one_text_and_a_list_are_both_read() {
        assert_eq!(read(&json!({"input": "a", "user": "u"})).unwrap().texts, ["a"]);
        let many = read(&json!({"input": ["a", "b"], "model": "m", "encoding_format": "base64"})).unwrap();
        assert_eq!((many.texts.len(), many.encoding_format), (2, EncodingFormat::Base64));
        assert_eq!(many.model.as_deref(), Some("m"));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for input in
            [json!([]), json!(""), json!(["a", ""]), json!([[1, 2]]), json!(3), json!(vec!["a"; 2049])]
        {
            assert!(read(&json!({"input": input})).is_err(), "{input}");
        }
        assert!(read(&json!({"input": "a", "encoding_format": "hex"})).is_err());
    }

    #[test]
    fn points_are_written_as_numbers_with_their_usage() {
        let request = read(&json!({"input": ["a", "b"]})).unwrap();
        let answer: Value =
            serde_json::from_slice(&request.response_body("m", &embedded()).unwrap()).unwrap();
        assert_eq!(
            answer,
            json!({"object": "list", "model": "m", "data": [
                {"object": "embedding", "index": 0, "embedding": [1.0, 0.0]},
                {"object": "embedding", "index": 1, "embedding": [0.0, -1.0]},
            ], "usage": {"prompt_tokens": 259, "total_tokens": 259, "texts_cut": 1}})
        );
    }

    #[test]
    fn base64_holds_the_same_numbers() {
        let request = read(&json!({"input": "a", "encoding_format": "base64", "dimensions": 2})).unwrap();
        let answer: Value =
            serde_json::from_slice(&request.response_body("m", &embedded()).unwrap()).unwrap();
        let bytes = STANDARD.decode(answer["data"][1]["embedding"].as_str().unwrap()).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0x80, 0xbf]);
    }

    #[test]
    fn other_dimensions_are_refused() {
        let request = read(&json!({"input": "a", "dimensions": 3})).unwrap();
        assert!(request.response_body("m", &embedded()).is_err());
    }
}
