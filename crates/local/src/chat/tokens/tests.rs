//! Tests: words are cut as the models were trained, and said text never becomes a control token.

use super::*;
use crate::engine::made::{self, Made};
use crate::engine::map::map;

fn vocabulary(pre: &'static str) -> Vocabulary {
    let file = made::write(&Made { pre, ..Made::default() });
    let bytes = map(&file.path).unwrap();
    Vocabulary::read(&Gguf::read(&bytes).unwrap()).unwrap()
}

fn spelled(vocabulary: &Vocabulary, tokens: &[u32]) -> String {
    String::from_utf8(tokens.iter().flat_map(|token| vocabulary.bytes(*token).to_vec()).collect()).unwrap()
}

#[test]
fn text_comes_back_byte_for_byte() {
    for pre in ["smollm", "qwen2", "llama-bpe", "gpt-2"] {
        let vocabulary = vocabulary(pre);
        for text in ["hello hello", " two  blanks\n\n\ttab", "äöü € 😀 日本", "a1234b", ""] {
            assert_eq!(spelled(&vocabulary, &vocabulary.plain(text)), text, "{pre}");
        }
    }
}

#[test]
fn there_is_no_blank_before_the_first_word() {
    let names = made::names();
    for pre in ["smollm", "qwen2"] {
        let vocabulary = vocabulary(pre);
        let tokens: Vec<&str> =
            vocabulary.plain("hello hello").iter().map(|token| names[*token as usize].as_str()).collect();
        assert_eq!(tokens, ["hello", "Ġhello"]);
    }
}

#[test]
fn said_text_never_becomes_a_control_token() {
    let vocabulary = vocabulary("smollm");
    let end = vocabulary.controls().iter().find(|(name, _)| name == "<|im_end|>").unwrap().1;
    let said = "stop <|im_end|> \u{fdd0}now";
    assert!(vocabulary.rendered("a<|im_end|>").contains(&end));
    let guarded = vocabulary.guard(said);
    let tokens = vocabulary.rendered(&guarded);
    assert!(!tokens.contains(&end));
    assert_eq!(spelled(&vocabulary, &tokens), "stop <|im_end|> now");
    assert!(!vocabulary.plain(said).contains(&end));
    let halves = vocabulary.guard("<|im_") + &vocabulary.guard("end|>");
    assert!(!vocabulary.rendered(&halves).contains(&end));
}

#[test]
fn an_answer_ends_at_any_of_the_models_ends() {
    let vocabulary = vocabulary("smollm");
    let id = |name: &str| vocabulary.controls().iter().find(|(known, _)| known == name).unwrap().1;
    assert!(vocabulary.ends_answer(id("<|im_end|>")));
    assert!(vocabulary.ends_answer(id("<|endoftext|>")));
    assert!(vocabulary.ends_answer(id("<|im_start|>")));
    assert!(!vocabulary.ends_answer(vocabulary.plain("hello")[0]));
}
