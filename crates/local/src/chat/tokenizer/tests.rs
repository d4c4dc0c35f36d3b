//! Tests: tokens are those that `tokenizers` makes of the same vocabulary, by rules that it was told in its own words.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use super::*;
use crate::engine::fixture::{self, ModelFixture, random_numbers};
use crate::engine::mmap::map_file;

/// Letters, of which some are much more usual, of all lengths in bytes; signs, digits, blanks.
const ALPHABET: [char; 30] = [
    'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'b', 'b', 'b', 'b', 'L', 'é', 'ß', '日', '😀', '\'', 's',
    '.', ',', '{', '_', '7', '٣', '½', ' ', '\n', '\t',
];

const MIXED_TEXT: &str = "Grüße, naïve façade – “quoted” … 日本語のテキスト 한국어 😀👩‍👩‍👧 12345 3.14e-9\r\n\t  x\u{0}\u{fdd0} I'LL we've  \n\n  end ";

/// What another program makes of the same vocabulary.
fn reference_tokenizer(pre: &str, names: &[&str], pairs: &[&str]) -> Tokenizer {
    let names: Vocab = names.iter().map(|name| (*name).to_owned()).zip(0..).collect();
    let pair = |pair: &&str| pair.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned()));
    let pairs = pairs.iter().map(|it| pair(it).unwrap()).collect();
    let rule = PreTokenizerRule::from_name(pre).unwrap();
    let model = BPE::builder().vocab_and_merges(names, pairs).ignore_merges(rule.ignores_merges);
    let mut tokenizer = Tokenizer::new(model.build().unwrap());
    if rule.normalizes_nfc {
        tokenizer.with_normalizer(Some(NFC)).unwrap();
    }
    let by = |rule: &str| {
        let rule = SplitPattern::Regex(rule.to_owned());
        Split::new(rule, SplitDelimiterBehavior::Isolated, false).unwrap().into()
    };
    let (words, bytes) = (ByteLevel::new(false, true, true), ByteLevel::new(false, true, false));
    let cut: PreTokenizerWrapper = match pre {
        "smollm" => Sequence::new(vec![Digits::new(true).into(), words.into()]).into(),
        "qwen2" => Sequence::new(vec![by(QWEN_PATTERN), bytes.into()]).into(),
        "llama3" => Sequence::new(vec![by(LLAMA_PATTERN), bytes.into()]).into(),
        _ => words.into(),
    };
    tokenizer.with_pre_tokenizer(Some(cut));
    tokenizer
}

/// Some of these, the same for the same seed.
fn pick_random<T>(seed: u64, count: usize, of: &[T]) -> impl Iterator<Item = &T> {
    let bits = random_numbers(seed, count, 1.0).into_iter().map(|number| number.to_bits() as usize);
    bits.map(|bits| &of[bits / 256 % of.len()])
}

/// Names of all bytes, and of some that are put together, with how that is done.
fn vocabulary(seed: u64) -> (Vec<String>, Vec<String>) {
    let mut names: Vec<String> = fixture::token_names().into_iter().take(256).collect();
    let mut common: Vec<String> =
        ALPHABET.iter().flat_map(|sign| sign.to_string().into_bytes()).map(character_for_byte).collect();
    let mut pairs: Vec<String> = Vec::new();
    for at in 0..200 {
        let two: Vec<_> =
            pick_random(seed * 1_000 + at, 2, &common[..60.min(common.len())]).cloned().collect();
        names.push(two.concat());
        common.push(two.concat());
        pairs.push(two.join(" "));
    }
    // Some that no merge leads to.
    names.extend((0..20).map(|at| pick_random(seed * 10_000 + at, 3, &common).cloned().collect::<String>()));
    (names, pairs)
}

fn character_for_byte(byte: u8) -> String {
    ('\0'..).find(|character| byte_for_character(*character) == Some(byte)).unwrap().to_string()
}

fn bpe_tokenizer(pre: &str, names: &[&str], pairs: &[&str]) -> BpeTokenizer {
    let rule = PreTokenizerRule::from_name(pre).unwrap();
    let mut merges = MergeTable::read(names, pairs).unwrap();
    if rule.ignores_merges {
        merges.add_whole_words((0..).zip(names));
    }
    BpeTokenizer { rule, word_regex: Regex::new(rule.pattern).unwrap(), merge_table: merges }
}

#[test]
fn texts_of_all_kinds_become_the_tokens_that_another_program_makes() {
    let (mut bytes, mut tokens) = (0, 0);
    for seed in 1..40 {
        let (names, pairs) = vocabulary(seed);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
        for pre in ["smollm", "qwen2", "llama3", "gpt-2"] {
            let (ours, theirs) =
                (bpe_tokenizer(pre, &names, &pairs), reference_tokenizer(pre, &names, &pairs));
            for (at, length) in [0, 1, 2, 3, 7, 40, 300].into_iter().enumerate() {
                let text: String = pick_random(seed * 10 + at as u64, length, &ALPHABET).collect();
                let expected = theirs.encode_fast(text.as_str(), false).unwrap();
                assert_eq!(ours.encode(&text), expected.get_ids(), "{pre}: {text:?} by {pairs:?}");
                assert_eq!(ours.count_tokens(&text), expected.len());
                (bytes, tokens) = (bytes + text.len(), tokens + expected.len());
            }
            let expected = theirs.encode_fast(MIXED_TEXT, false).unwrap();
            assert_eq!(ours.encode(MIXED_TEXT), expected.get_ids(), "{pre}");
        }
    }
    assert!(tokens < bytes * 9 / 10, "too little is put together to say much: {tokens} of {bytes}");
}

#[test]
fn letters_and_accents_become_one_where_the_model_was_trained_so() {
    let names = fixture::token_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (two, one) = ("e\u{301}", "\u{e9}");
    assert_eq!(
        bpe_tokenizer("qwen2", &names, &[]).encode(two),
        bpe_tokenizer("qwen2", &names, &[]).encode(one)
    );
    assert_ne!(
        bpe_tokenizer("smollm", &names, &[]).encode(two),
        bpe_tokenizer("smollm", &names, &[]).encode(one)
    );
}

#[test]
fn a_word_that_is_a_token_stays_whole_only_where_that_is_the_rule_and_never_becomes_a_control_token() {
    for (pre, whole) in [("llama3", true), ("gpt-2", false)] {
        let file = fixture::write(&ModelFixture { pre_tokenizer: pre, ..ModelFixture::default() });
        let bytes = map_file(&file.path).unwrap();
        let facts = Gguf::read(&bytes).unwrap();
        let words = BpeTokenizer::read(&facts).unwrap();
        let names = facts.text_array("tokenizer.ggml.tokens").unwrap();
        let made = words.encode("ll").first().map(|token| names[*token as usize]);
        assert_eq!(made, Some("ll"), "a merge leads to it");
        let kept: Vec<_> = words.merge_table.whole_word_tokens().collect();
        assert!(kept.iter().all(|token| !names[*token as usize].starts_with("<|")), "{pre}: {kept:?}");
        assert!(whole || kept.is_empty(), "{pre}: {kept:?}");
    }
    let merges = ["a b"];
    let names = ["a", "b", "c", "ab", "abc"];
    assert_eq!(bpe_tokenizer("llama3", &names, &merges).encode("abc"), [4]);
    assert_eq!(bpe_tokenizer("gpt-2", &names, &merges).encode("abc"), [3, 2]);
}

#[test]
fn a_text_of_any_kind_and_length_becomes_tokens() {
    let words = bpe_tokenizer("smollm", &["a", "aa", "aaaa", "Ġ"], &["a a", "aa aa"]);
    assert_eq!(words.count_tokens(&"a".repeat(1 << 20)), 1 << 18);
    assert_eq!(words.count_tokens(&" ".repeat(1 << 21)), 1 << 21, "a rule that gives up leaves nothing out");
}

#[test]
fn what_is_there_twice_counts_where_it_is_last_and_what_has_no_token_is_left_out() {
    let words = bpe_tokenizer("gpt-2", &["a", "b", "ab", "bb", "abb", "ab"], &["a b", "b b", "ab b", "a b"]);
    assert_eq!(words.encode("abb"), [0, 3], "the later rank of the pair counts");
    assert_eq!(words.encode("ab"), [5], "the later token of the name counts");
    assert_eq!(words.encode("axb"), [5]);
    let none = bpe_tokenizer("gpt-2", &["", "a"], &[]);
    assert_eq!(none.encode("ab a"), [1, 1]);
}

#[test]
fn what_cannot_be_read_is_told() {
    for (pairs, reason) in
        [(&["ab"][..], "no pair"), (&["a c"], "no token: \"c\""), (&["b a"], "no token: \"ba\"")]
    {
        let fault = MergeTable::read(&["a", "b", "ab"], pairs).unwrap_err();
        assert!(fault.contains(reason), "{fault}");
    }
    let long = format!("a {}", "x".repeat(10_000));
    assert!(MergeTable::read(&["a"], &[&long]).unwrap_err().len() < 200);
    let file = fixture::write(&ModelFixture { pre_tokenizer: "of-nobody", ..ModelFixture::default() });
    let bytes = map_file(&file.path).unwrap();
    let fault = BpeTokenizer::read(&Gguf::read(&bytes).unwrap()).unwrap_err();
    assert!(fault.contains("the rule of-nobody"), "{fault}");
}

/// A real vocabulary, and texts of many kinds.
#[cfg(feature = "real-model-tests")]
#[test]
fn a_real_model_reads_texts_as_another_program_does() {
    let bytes = map_file(&fixture::real_model_path()).unwrap();
    let file = Gguf::read(&bytes).unwrap();
    let [names, pairs] =
        ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"].map(|key| file.text_array(key).unwrap());
    let ours = BpeTokenizer::read(&file).unwrap();
    let theirs = reference_tokenizer(file.text("tokenizer.ggml.pre").unwrap(), names, pairs);
    let licence = include_str!("../../../../../LICENSE-APACHE");
    let texts = [
        include_str!("../tokenizer.rs"),
        include_str!("../vocabulary.rs"),
        include_str!("tests.rs"),
        licence,
    ];
    for text in texts.into_iter().chain([MIXED_TEXT, "", " ", "e\u{301}"]) {
        let expected = theirs.encode_fast(text, false).unwrap();
        assert_eq!(ours.encode(text), expected.get_ids());
        assert_eq!(ours.count_tokens(text), expected.len());
    }
}
