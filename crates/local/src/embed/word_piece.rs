//! WordPiece tokenizer with MiniLM's vocabulary; truncates texts to the length that the model was trained on.

use tokenizers::Tokenizer;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

use super::TextLength;

/// Longest sequence that the model was trained on, including `[CLS]` and `[SEP]`.
pub(super) const SEQUENCE_TOKENS_MAX: usize = 256;

/// Bytes of a text that are tokenized: ten times what fills a sequence with ordinary words, so that the cost of a long
/// text is bounded.
const TEXT_BYTES_MAX: usize = 16 * 1024;

const VOCABULARY: &[u8] = include_bytes!("../../assets/minilm-vocab.txt");
const CLS: &str = "[CLS]";
const SEP: &str = "[SEP]";
const UNK: &str = "[UNK]";

/// WordPiece tokenizer with BERT's normalization.
pub(super) struct WordPieceTokenizer {
    tokenizer: Tokenizer,
    cls: i32,
    sep: i32,
}

/// Token ids of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenSequence {
    /// Token ids, from `[CLS]` to `[SEP]`.
    pub(super) token_ids: Vec<i32>,
    pub(super) is_truncated: bool,
}

impl TokenSequence {
    pub(super) fn length(&self) -> TextLength {
        TextLength { tokens: self.token_ids.len(), is_truncated: self.is_truncated }
    }
}

impl WordPieceTokenizer {
    /// Creates the tokenizer from the built-in vocabulary.
    pub(super) fn new() -> Result<Self, String> {
        let vocabulary = WordPiece::read_bytes(VOCABULARY).map_err(|fault| fault.to_string())?;
        let id = |name: &str| {
            let id = vocabulary.get(name).and_then(|id| i32::try_from(*id).ok());
            id.ok_or_else(|| format!("the vocabulary has no {name}"))
        };
        let (cls, sep) = (id(CLS)?, id(SEP)?);
        let model = WordPiece::builder().vocab(vocabulary).unk_token(UNK.to_owned()).build();
        let mut tokenizer = Tokenizer::new(model.map_err(|fault| fault.to_string())?);
        // As in training: removes control characters, puts spaces around ideographs, strips accents, lowercases.
        tokenizer
            .with_normalizer(Some(BertNormalizer::new(true, true, None, true)))
            .map_err(|fault| fault.to_string())?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        Ok(Self { tokenizer, cls, sep })
    }

    /// Encodes a text. A text that contains `[CLS]` or `[SEP]` encodes to its letters, not to the special token.
    pub(super) fn encode(&self, text: &str) -> Result<TokenSequence, String> {
        let prefix = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let encoding = self.tokenizer.encode_fast(prefix, false).map_err(|fault| fault.to_string())?;
        let all = encoding.get_ids();
        let used = &all[..all.len().min(SEQUENCE_TOKENS_MAX - 2)];
        let mut token_ids = Vec::with_capacity(used.len() + 2);
        token_ids.push(self.cls);
        for id in used {
            token_ids.push(i32::try_from(*id).map_err(|fault| fault.to_string())?);
        }
        token_ids.push(self.sep);
        let is_truncated = used.len() < all.len() || prefix.len() < text.len();
        Ok(TokenSequence { token_ids, is_truncated })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &str) -> TokenSequence {
        WordPieceTokenizer::new().unwrap().encode(text).unwrap()
    }

    #[test]
    fn words_encode_as_in_the_published_vocabulary() {
        assert_eq!(encode("Hello, world!").token_ids, [101, 7592, 1010, 2088, 999, 102]);
        assert_eq!(encode("embeddings").token_ids, [101, 7861, 8270, 4667, 2015, 102]);
    }

    #[test]
    fn accents_and_case_are_ignored() {
        assert_eq!(encode("CAFÉ"), encode("cafe"));
    }

    #[test]
    fn empty_text_has_only_special_tokens() {
        assert_eq!(encode(""), TokenSequence { token_ids: vec![101, 102], is_truncated: false });
    }

    #[test]
    fn special_token_in_text_encodes_as_letters() {
        let token_ids = encode("a [SEP] b").token_ids;
        assert_eq!(token_ids.iter().filter(|id| **id == 102).count(), 1);
        assert!(token_ids.len() > 5, "{token_ids:?}");
    }

    #[test]
    fn text_is_truncated_beyond_the_sequence_limit() {
        let fits = encode(&"word ".repeat(SEQUENCE_TOKENS_MAX - 2));
        assert_eq!(fits.length(), TextLength { tokens: SEQUENCE_TOKENS_MAX, is_truncated: false });
        let longer = encode(&"word ".repeat(SEQUENCE_TOKENS_MAX - 1));
        assert_eq!(longer.length(), TextLength { tokens: SEQUENCE_TOKENS_MAX, is_truncated: true });
        assert_eq!(longer.token_ids, fits.token_ids);
    }

    #[test]
    fn text_beyond_the_byte_limit_counts_as_truncated() {
        let text = format!("{}é{}", " ".repeat(TEXT_BYTES_MAX - 1), "word");
        assert_eq!(encode(&text), TokenSequence { token_ids: vec![101, 102], is_truncated: true });
    }
}
