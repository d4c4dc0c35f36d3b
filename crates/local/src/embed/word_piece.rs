//! Text as the word pieces of MiniLM's vocabulary, at most as many as the model was trained on.

use tokenizers::Tokenizer;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

use super::TextLength;

/// The longest sequence that the model was trained on, both marks included.
pub(super) const SEQUENCE_TOKENS_MAX: usize = 256;

/// What of a text is looked at: ten times what fills a sequence of ordinary words, so that a book costs no more than a page.
const TEXT_BYTES_MAX: usize = 16 * 1024;

const VOCABULARY: &[u8] = include_bytes!("../../assets/minilm-vocab.txt");
const CLS: &str = "[CLS]";
const SEP: &str = "[SEP]";
const UNK: &str = "[UNK]";

/// The vocabulary and its rules.
pub(super) struct WordPieceTokenizer {
    tokenizer: Tokenizer,
    cls: i32,
    sep: i32,
}

/// A text as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenSequence {
    /// The pieces' numbers, between the two marks.
    pub(super) token_ids: Vec<i32>,
    pub(super) is_truncated: bool,
}

impl TokenSequence {
    pub(super) fn length(&self) -> TextLength {
        TextLength { tokens: self.token_ids.len(), is_truncated: self.is_truncated }
    }
}

impl WordPieceTokenizer {
    /// Reads the vocabulary that is built in.
    pub(super) fn new() -> Result<Self, String> {
        let vocabulary = WordPiece::read_bytes(VOCABULARY).map_err(|fault| fault.to_string())?;
        let number = |mark: &str| {
            let found = vocabulary.get(mark).and_then(|number| i32::try_from(*number).ok());
            found.ok_or_else(|| format!("the vocabulary has no {mark}"))
        };
        let (begin, end) = (number(CLS)?, number(SEP)?);
        let model = WordPiece::builder().vocab(vocabulary).unk_token(UNK.to_owned()).build();
        let mut tokenizer = Tokenizer::new(model.map_err(|fault| fault.to_string())?);
        // As the model was trained: control characters out, spaces around ideographs, no accents, small letters.
        tokenizer
            .with_normalizer(Some(BertNormalizer::new(true, true, None, true)))
            .map_err(|fault| fault.to_string())?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        Ok(Self { tokenizer, cls: begin, sep: end })
    }

    /// Reads a text. The marks are never taken from it: a text that spells one gets its letters.
    pub(super) fn encode(&self, text: &str) -> Result<TokenSequence, String> {
        let looked_at = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let encoding = self.tokenizer.encode_fast(looked_at, false).map_err(|fault| fault.to_string())?;
        let all = encoding.get_ids();
        let kept = &all[..all.len().min(SEQUENCE_TOKENS_MAX - 2)];
        let mut pieces = Vec::with_capacity(kept.len() + 2);
        pieces.push(self.cls);
        for number in kept {
            pieces.push(i32::try_from(*number).map_err(|fault| fault.to_string())?);
        }
        pieces.push(self.sep);
        let is_cut = kept.len() < all.len() || looked_at.len() < text.len();
        Ok(TokenSequence { token_ids: pieces, is_truncated: is_cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &str) -> TokenSequence {
        WordPieceTokenizer::new().unwrap().encode(text).unwrap()
    }

    #[test]
    fn words_get_the_numbers_of_the_published_vocabulary() {
        assert_eq!(encode("Hello, world!").token_ids, [101, 7592, 1010, 2088, 999, 102]);
        assert_eq!(encode("embeddings").token_ids, [101, 7861, 8270, 4667, 2015, 102]);
    }

    #[test]
    fn accents_and_capitals_do_not_count() {
        assert_eq!(encode("CAFÉ"), encode("cafe"));
    }

    #[test]
    fn an_empty_text_is_only_its_marks() {
        assert_eq!(encode(""), TokenSequence { token_ids: vec![101, 102], is_truncated: false });
    }

    #[test]
    fn a_text_that_spells_a_mark_does_not_get_it() {
        let pieces = encode("a [SEP] b").token_ids;
        assert_eq!(pieces.iter().filter(|piece| **piece == 102).count(), 1);
        assert!(pieces.len() > 5, "{pieces:?}");
    }

    #[test]
    fn a_text_that_just_fits_is_whole_and_one_word_more_is_cut() {
        let fits = encode(&"word ".repeat(SEQUENCE_TOKENS_MAX - 2));
        assert_eq!(fits.length(), TextLength { tokens: SEQUENCE_TOKENS_MAX, is_truncated: false });
        let longer = encode(&"word ".repeat(SEQUENCE_TOKENS_MAX - 1));
        assert_eq!(longer.length(), TextLength { tokens: SEQUENCE_TOKENS_MAX, is_truncated: true });
        assert_eq!(longer.token_ids, fits.token_ids);
    }

    #[test]
    fn what_lies_behind_the_part_that_is_looked_at_counts_as_cut() {
        let text = format!("{}é{}", " ".repeat(TEXT_BYTES_MAX - 1), "word");
        assert_eq!(encode(&text), TokenSequence { token_ids: vec![101, 102], is_truncated: true });
    }
}
