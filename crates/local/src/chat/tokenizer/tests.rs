//! Tests: the encoding equals that of the crate `tokenizers` with the same vocabulary and an equivalent configuration.

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

/// Sample alphabet: letters with skewed frequencies and all UTF-8 lengths, punctuation, digits, whitespace.
const ALPHABET: [char; 30] = [
    'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'b', 'b', 'b', 'b', 'L', 'é', 'ß', '日', '😀', '\'', 's',
    '.', ',', '{', '_', '7', '٣', '½', ' ', '\n', '\t',
];

const MIXED_TEXT: &str = "Grüße, naïve façade – “quoted” … 日本語のテキスト 한국어 😀👩‍👩‍👧 12345 3.14e-9\r\n\t  x\u{0}\u{fdd0} I'LL we've  \n\n  end ";

/// Configures `tokenizers` with the same vocabulary.
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
    let split_by = |pattern: &str| {
        let pattern = SplitPattern::Regex(pattern.to_owned());
        Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap().into()
    };
    let (words, bytes) = (ByteLevel::new(false, true, true), ByteLevel::new(false, true, false));
    let pre_tokenizer: PreTokenizerWrapper = match pre {
        "smollm" => Sequence::new(vec![Digits::new(true).into(), words.into()]).into(),
        "qwen2" => Sequence::new(vec![split_by(QWEN_PATTERN), bytes.into()]).into(),
        "llama3" => Sequence::new(vec![split_by(LLAMA_PATTERN), bytes.into()]).into(),
        _ => words.into(),
    };
    tokenizer.with_pre_tokenizer(Some(pre_tokenizer));
    tokenizer
}

/// Picks `count` elements pseudo-randomly, the same for the same seed.
fn pick_random<T>(seed: u64, count: usize, of: &[T]) -> impl Iterator<Item = &T> {
    let bits = random_numbers(seed, count, 1.0).into_iter().map(|number| number.to_bits() as usize);
    bits.map(|bits| &of[bits / 256 % of.len()])
}

/// Generates a vocabulary: names of all bytes and of some merged tokens, and the merges.
fn vocabulary(seed: u64) -> (Vec<String>, Vec<String>) {
    let mut names: Vec<String> = fixture::token_names().into_iter().take(256).collect();
    let mut common: Vec<String> =
        ALPHABET.iter().flat_map(|sign| sign.to_string().into_bytes()).map(character_for_byte).collect();
    let mut pairs: Vec<String> = Vec::new();
    for at in 0..200 {
        let pair: Vec<_> =
            pick_random(seed * 1_000 + at, 2, &common[..60.min(common.len())]).cloned().collect();
        names.push(pair.concat());
        common.push(pair.concat());
        pairs.push(pair.join(" "));
    }
    // Some tokens that no merge produces.
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
fn random_texts_encode_as_in_tokenizers() {
    let (mut bytes, mut tokens) = (0, 0);
    for seed in 1..40 {
        let (names, pairs) = vocabulary(seed);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
        for pre in ["smollm", "qwen2", "llama3", "gpt-2"] {
            let (tokenizer, reference) =
                (bpe_tokenizer(pre, &names, &pairs), reference_tokenizer(pre, &names, &pairs));
            for (at, length) in [0, 1, 2, 3, 7, 40, 300].into_iter().enumerate() {
                let text: String = pick_random(seed * 10 + at as u64, length, &ALPHABET).collect();
                let expected = reference.encode_fast(text.as_str(), false).unwrap();
                assert_eq!(tokenizer.encode(&text), expected.get_ids(), "{pre}: {text:?} by {pairs:?}");
                assert_eq!(tokenizer.count_tokens(&text), expected.len());
                (bytes, tokens) = (bytes + text.len(), tokens + expected.len());
            }
            let expected = reference.encode_fast(MIXED_TEXT, false).unwrap();
            assert_eq!(tokenizer.encode(MIXED_TEXT), expected.get_ids(), "{pre}");
        }
    }
    assert!(tokens < bytes * 9 / 10, "too few merges applied: {tokens} tokens of {bytes} bytes");
}

#[test]
fn only_qwen_normalizes_to_nfc() {
    let names = fixture::token_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (decomposed, composed) = ("e\u{301}", "\u{e9}");
    assert_eq!(
        bpe_tokenizer("qwen2", &names, &[]).encode(decomposed),
        bpe_tokenizer("qwen2", &names, &[]).encode(composed)
    );
    assert_ne!(
        bpe_tokenizer("smollm", &names, &[]).encode(decomposed),
        bpe_tokenizer("smollm", &names, &[]).encode(composed)
    );
}

#[test]
fn whole_words_are_used_only_if_configured_and_never_control() {
    for (pre, uses_whole_words) in [("llama3", true), ("gpt-2", false)] {
        let file = fixture::write(&ModelFixture { pre_tokenizer: pre, ..ModelFixture::default() });
        let bytes = map_file(&file.path).unwrap();
        let file = Gguf::read(&bytes).unwrap();
        let tokenizer = BpeTokenizer::read(&file).unwrap();
        let names = file.text_array("tokenizer.ggml.tokens").unwrap();
        let merged = tokenizer.encode("ll").first().map(|token| names[*token as usize]);
        assert_eq!(merged, Some("ll"), "produced by a merge");
        let whole: Vec<_> = tokenizer.merge_table.whole_word_tokens().collect();
        assert!(whole.iter().all(|token| !names[*token as usize].starts_with("<|")), "{pre}: {whole:?}");
        assert!(uses_whole_words || whole.is_empty(), "{pre}: {whole:?}");
    }
    let merges = ["a b"];
    let names = ["a", "b", "c", "ab", "abc"];
    assert_eq!(bpe_tokenizer("llama3", &names, &merges).encode("abc"), [4]);
    assert_eq!(bpe_tokenizer("gpt-2", &names, &merges).encode("abc"), [3, 2]);
}

#[test]
fn very_long_texts_are_encoded_completely() {
    let tokenizer = bpe_tokenizer("smollm", &["a", "aa", "aaaa", "Ġ"], &["a a", "aa aa"]);
    assert_eq!(tokenizer.count_tokens(&"a".repeat(1 << 20)), 1 << 18);
    assert_eq!(tokenizer.count_tokens(&" ".repeat(1 << 21)), 1 << 21, "beyond the backtracking limit");
}

#[test]
fn last_duplicate_wins_and_bytes_without_token_are_skipped() {
    let duplicates =
        bpe_tokenizer("gpt-2", &["a", "b", "ab", "bb", "abb", "ab"], &["a b", "b b", "ab b", "a b"]);
    assert_eq!(duplicates.encode("abb"), [0, 3], "the last rank of a pair counts");
    assert_eq!(duplicates.encode("ab"), [5], "the last token of a name counts");
    assert_eq!(duplicates.encode("axb"), [5]);
    let single = bpe_tokenizer("gpt-2", &["", "a"], &[]);
    assert_eq!(single.encode("ab a"), [1, 1]);
}

#[test]
fn invalid_merges_and_pre_tokenizers_are_rejected() {
    for (pairs, reason) in
        [(&["ab"][..], "not a pair"), (&["a c"], "no token: \"c\""), (&["b a"], "no token: \"ba\"")]
    {
        let fault = MergeTable::read(&["a", "b", "ab"], pairs).unwrap_err();
        assert!(fault.contains(reason), "{fault}");
    }
    let long = format!("a {}", "x".repeat(10_000));
    assert!(MergeTable::read(&["a"], &[&long]).unwrap_err().len() < 200);
    let file = fixture::write(&ModelFixture { pre_tokenizer: "unknown", ..ModelFixture::default() });
    let bytes = map_file(&file.path).unwrap();
    let fault = BpeTokenizer::read(&Gguf::read(&bytes).unwrap()).unwrap_err();
    assert!(fault.contains("pre-tokenizer unknown"), "{fault}");
}

#[cfg(feature = "real-model-tests")]
#[test]
fn real_vocabulary_encodes_as_in_tokenizers() {
    let bytes = map_file(&fixture::real_model_path()).unwrap();
    let file = Gguf::read(&bytes).unwrap();
    let [names, pairs] =
        ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"].map(|key| file.text_array(key).unwrap());
    let tokenizer = BpeTokenizer::read(&file).unwrap();
    let reference = reference_tokenizer(file.text("tokenizer.ggml.pre").unwrap(), names, pairs);
    let licence = include_str!("../../../../../LICENSE-APACHE");
    let texts = [
        include_str!("../tokenizer.rs"),
        include_str!("../vocabulary.rs"),
        include_str!("tests.rs"),
        licence,
    ];
    for text in texts.into_iter().chain([MIXED_TEXT, "", " ", "e\u{301}"]) {
        let expected = reference.encode_fast(text, false).unwrap();
        assert_eq!(tokenizer.encode(text), expected.get_ids());
        assert_eq!(tokenizer.count_tokens(text), expected.len());
    }
}
