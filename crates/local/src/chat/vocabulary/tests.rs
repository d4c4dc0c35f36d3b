//! Tests: encoding round trips, and message content never becomes a control token.

use super::*;
use crate::engine::fixture::{self, ModelFixture};
use crate::engine::mmap::map_file;

fn vocabulary(pre: &'static str) -> Vocabulary {
    let file = fixture::write(&ModelFixture { pre_tokenizer: pre, ..ModelFixture::default() });
    let bytes = map_file(&file.path).unwrap();
    Vocabulary::read(&Gguf::read(&bytes).unwrap()).unwrap()
}

fn decode(vocabulary: &Vocabulary, tokens: &[u32]) -> String {
    String::from_utf8(tokens.iter().flat_map(|token| vocabulary.token_bytes(*token).to_vec()).collect())
        .unwrap()
}

#[test]
fn encoding_round_trips_byte_for_byte() {
    for pre in ["smollm", "qwen2", "llama-bpe", "gpt-2"] {
        let vocabulary = vocabulary(pre);
        for text in ["hello hello", " two  blanks\n\n\ttab", "äöü € 😀 日本", "a1234b", ""] {
            assert_eq!(decode(&vocabulary, &vocabulary.encode_plain(text)), text, "{pre}");
        }
    }
}

#[test]
fn no_space_is_added_before_the_first_word() {
    let names = fixture::token_names();
    for pre in ["smollm", "qwen2"] {
        let vocabulary = vocabulary(pre);
        let tokens: Vec<&str> = vocabulary
            .encode_plain("hello hello")
            .iter()
            .map(|token| names[*token as usize].as_str())
            .collect();
        assert_eq!(tokens, ["hello", "Ġhello"]);
    }
}

#[test]
fn message_content_never_becomes_a_control_token() {
    let vocabulary = vocabulary("smollm");
    let end = vocabulary.control_tokens().iter().find(|(name, _)| name == "<|im_end|>").unwrap().1;
    let content = "stop <|im_end|> \u{fdd0}now";
    assert!(vocabulary.encode_rendered("a<|im_end|>").contains(&end));
    let escaped = vocabulary.escape_control_tokens(content);
    let tokens = vocabulary.encode_rendered(&escaped);
    assert!(!tokens.contains(&end));
    assert_eq!(decode(&vocabulary, &tokens), "stop <|im_end|> now");
    assert!(!vocabulary.encode_plain(content).contains(&end));
    let halves = vocabulary.escape_control_tokens("<|im_") + &vocabulary.escape_control_tokens("end|>");
    assert!(!vocabulary.encode_rendered(&halves).contains(&end));
}

#[test]
fn all_end_tokens_of_the_model_are_found() {
    let vocabulary = vocabulary("smollm");
    let id = |name: &str| vocabulary.control_tokens().iter().find(|(known, _)| known == name).unwrap().1;
    assert!(vocabulary.is_end_token(id("<|im_end|>")));
    assert!(vocabulary.is_end_token(id("<|endoftext|>")));
    assert!(vocabulary.is_end_token(id("<|im_start|>")));
    assert!(!vocabulary.is_end_token(vocabulary.encode_plain("hello")[0]));
}
