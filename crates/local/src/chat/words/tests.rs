//! Tests: tokens are those that `tokenizers` makes of the same vocabulary.

use tokenizers::Model as _;
use tokenizers::models::bpe::BPE;

use super::*;
use crate::engine::made::random;

const LETTERS: [char; 5] = ['a', 'b', 'c', 'd', 'e'];

/// What another program makes of the same file.
fn theirs(names: &[&str], pairs: &[&str]) -> BPE {
    let names =
        names.iter().map(|name| (*name).to_owned()).zip(0..).collect::<tokenizers::models::bpe::Vocab>();
    let pair = |pair: &&str| pair.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned()));
    let pairs = pairs.iter().map(|it| pair(it).unwrap()).collect();
    BPE::builder().vocab_and_merges(names, pairs).build().unwrap()
}

/// Some of these, the same for the same seed.
fn some<T>(seed: u64, count: usize, of: &[T]) -> impl Iterator<Item = &T> {
    let bits = random(seed, count, 1.0).into_iter().map(|number| number.to_bits() as usize);
    bits.map(|bits| &of[bits / 256 % of.len()])
}

#[test]
fn pieces_are_put_together_in_the_order_of_the_merges() {
    let mut put_together = 0;
    for seed in 1..200 {
        let mut names: Vec<String> = LETTERS.map(String::from).to_vec();
        let mut pairs: Vec<String> = Vec::new();
        for at in 0..60 {
            let two: Vec<_> = some(seed * 100 + at, 2, &names).cloned().collect();
            if !names.contains(&two.concat()) {
                names.push(two.concat());
            }
            pairs.push(two.join(" "));
        }
        let (names, pairs): (Vec<&str>, Vec<&str>) =
            (names.iter().map(String::as_str).collect(), pairs.iter().map(String::as_str).collect());
        let (ours, theirs) = (Merges::read(&names, &pairs).unwrap(), theirs(&names, &pairs));
        for len in [0, 1, 2, 3, 7, 40] {
            let word: String = some(seed, len, &LETTERS).collect();
            let mut tokens = Vec::new();
            ours.push_tokens(&word, &mut tokens);
            let expected: Vec<u32> = theirs.tokenize(&word).unwrap().iter().map(|token| token.id).collect();
            assert_eq!(tokens, expected, "{word} by {pairs:?}");
            put_together += len - tokens.len();
        }
    }
    assert!(put_together > 1_000, "words without merges say nothing: {put_together}");
}

#[test]
fn a_word_of_any_length_becomes_tokens_in_good_time() {
    let merges = Merges::read(&["a", "aa", "aaaa"], &["a a", "aa aa"]).unwrap();
    let mut tokens = Vec::new();
    merges.push_tokens(&"a".repeat(1 << 20), &mut tokens);
    assert_eq!((tokens.len(), tokens[0]), (1 << 18, 2));
}

#[test]
fn what_has_no_token_is_left_out() {
    let merges = Merges::read(&["a", "b", "ab"], &["a b"]).unwrap();
    let mut tokens = Vec::new();
    merges.push_tokens("a日xb", &mut tokens);
    assert_eq!(tokens, [2]);
}

#[test]
fn merges_that_are_none_are_told() {
    for (pairs, reason) in
        [(&["ab"][..], "no pair"), (&["a c"], "no token: \"c\""), (&["b a"], "no token: \"ba\"")]
    {
        let fault = Merges::read(&["a", "b", "ab"], pairs).unwrap_err();
        assert!(fault.contains(reason), "{fault}");
    }
}

/// A real vocabulary, and texts of many kinds.
#[cfg(feature = "real-model-tests")]
#[test]
fn a_real_model_reads_texts_as_another_program_does() {
    let bytes = crate::engine::map::map(&crate::engine::made::weights()).unwrap();
    let file = Gguf::read(&bytes).unwrap();
    let [names, pairs] =
        ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"].map(|key| file.texts(key).unwrap());
    let ours = Words::read(&file).unwrap();
    let mut theirs = tokenizers::Tokenizer::new(theirs(names, pairs));
    theirs.with_pre_tokenizer(cut(file.text("tokenizer.ggml.pre").unwrap()).unwrap());
    let strange = "Grüße, naïve façade – “quoted” … 日本語のテキスト 한국어 😀👩‍👩‍👧 12345 3.14e-9\r\n\t  x\u{0}\u{fdd0}e\u{301}";
    let texts = [
        include_str!("../words.rs"),
        include_str!("../tokens.rs"),
        include_str!("tests.rs"),
        strange,
        "",
        " ",
    ];
    for text in texts {
        let expected = theirs.encode_fast(text, false).unwrap();
        assert_eq!(ours.tokens(text), expected.get_ids());
        assert_eq!(ours.count(text), expected.len());
    }
}
