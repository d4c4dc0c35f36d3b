//! Texts about which RFC 8259 lets a parser choose, and what ours chose: sizes, depth, duplicate keys, minus zero,
//! lone surrogates.

use Answer::{Doubled, Kept, Refused};
use Text::{Deep, Long, Plain};

pub(super) struct Decided {
    pub(super) name: &'static str,
    pub(super) text: Text,
    /// What reading it alone gives.
    pub(super) answer: Answer,
    /// The code a request gets that has it as parameters.
    pub(super) as_params: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// Accepted; a number keeps its text.
    Kept,
    /// Accepted, with this key reported as standing twice.
    Doubled(&'static str),
    /// Refused, with this message.
    Refused(&'static str),
}

pub(super) enum Text {
    Plain(&'static str),
    /// The middle one this often, between the others.
    Long(&'static str, &'static str, usize, &'static str),
    /// The first this often, the second, the third this often.
    Deep(&'static str, &'static str, &'static str, usize),
}

impl Text {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Plain(text) => text.as_bytes().to_vec(),
            Long(start, middle, times, end) => {
                [start, middle.repeat(*times).as_str(), end].concat().into_bytes()
            }
            Deep(open, inside, close, times) => {
                [open.repeat(*times).as_str(), inside, close.repeat(*times).as_str()].concat().into_bytes()
            }
        }
    }
}

const NOT_A_REQUEST: Option<i64> = Some(-32600);
const NOT_JSON: Option<i64> = Some(-32700);
const TOO_DEEP: Answer = Refused("Invalid JSON: nested deeper than 64 levels");
const LONE_AT_1: Answer = Refused("Invalid JSON: Lone surrogate at: line 1 column 2 (char 1)");
const LONE_AT_2: Answer = Refused("Invalid JSON: Lone surrogate at: line 1 column 3 (char 2)");

const fn decided(name: &'static str, text: Text, answer: Answer, as_params: Option<i64>) -> Decided {
    Decided { name, text, answer, as_params }
}

pub(super) const DECIDED: &[Decided] = &[
    // A number is its text until somebody wants a type; only then can it be too large.
    decided("integer_of_65_bits", Plain("18446744073709551616"), Kept, NOT_A_REQUEST),
    decided("integer_below_64_bits", Plain("-9223372036854775809"), Kept, NOT_A_REQUEST),
    decided("integer_of_400_digits", Long("", "9", 400, ""), Kept, NOT_A_REQUEST),
    decided("integer_of_a_hundred_thousand_digits", Long("-", "1", 100_000, ""), Kept, NOT_A_REQUEST),
    decided("fraction_of_a_thousand_digits", Long("0.", "3", 1000, ""), Kept, NOT_A_REQUEST),
    decided("number_above_a_double", Plain("1e400"), Kept, NOT_A_REQUEST),
    decided("number_below_a_double", Plain("-1e400"), Kept, NOT_A_REQUEST),
    decided("number_between_zero_and_a_double", Plain("1e-400"), Kept, NOT_A_REQUEST),
    decided("exponent_beyond_64_bits", Plain("1E99999999999999999999"), Kept, NOT_A_REQUEST),
    decided("exponent_of_a_thousand_digits", Long("1e-", "9", 1000, ""), Kept, NOT_A_REQUEST),
    decided("large_number_as_a_parameter", Plain("{\"a\":[1e400,-1e-400]}"), Kept, None),
    decided("minus_zero", Plain("-0"), Kept, NOT_A_REQUEST),
    decided("minus_zero_with_exponent", Plain("-0e1"), Kept, NOT_A_REQUEST),
    // Depth counts the request's own object too, so parameters have one level less.
    decided("arrays_64_deep", Deep("[", "", "]", 64), Kept, NOT_JSON),
    decided("arrays_63_deep", Deep("[", "", "]", 63), Kept, NOT_A_REQUEST),
    decided("arrays_65_deep", Deep("[", "", "]", 65), TOO_DEEP, NOT_JSON),
    decided("objects_64_deep", Deep("{\"a\":", "0", "}", 64), Kept, NOT_JSON),
    decided("objects_63_deep", Deep("{\"a\":", "0", "}", 63), Kept, None),
    decided("objects_65_deep", Deep("{\"a\":", "0", "}", 65), TOO_DEEP, NOT_JSON),
    decided("both_64_deep", Deep("[{\"\":", "0", "}]", 32), Kept, NOT_JSON),
    decided("both_66_deep", Deep("[{\"\":", "0", "}]", 33), TOO_DEEP, NOT_JSON),
    decided("arrays_open_65_deep", Long("", "[", 65, ""), TOO_DEEP, NOT_JSON),
    decided("arrays_side_by_side_are_not_deep", Long("[0", ",[[]]", 1000, "]"), Kept, NOT_A_REQUEST),
    // A duplicate key is no fault of syntax, but no request may hold one.
    decided("key_twice", Plain("{\"a\":1,\"a\":2}"), Doubled("a"), NOT_A_REQUEST),
    decided("key_twice_with_equal_values", Plain("{\"a\":1,\"a\":1}"), Doubled("a"), NOT_A_REQUEST),
    decided("key_twice_once_escaped", Plain("{\"a\":1,\"\\u0061\":2}"), Doubled("a"), NOT_A_REQUEST),
    decided("empty_key_twice", Plain("{\"\":1,\"\":2}"), Doubled(""), NOT_A_REQUEST),
    decided("key_twice_inside", Plain("{\"a\":[{\"b\":1,\"b\":2}]}"), Doubled("b"), NOT_A_REQUEST),
    decided(
        "the_first_of_two_is_named",
        Plain("{\"b\":0,\"b\":0,\"a\":0,\"a\":0}"),
        Doubled("b"),
        NOT_A_REQUEST,
    ),
    // Half a pair has no spelling in UTF-8: to accept it would be to change the text.
    decided("surrogate_high_alone", Plain("\"\\ud800\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_low_alone", Plain("\"\\udc00\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_highest_alone", Plain("\"\\udfff\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_high_then_letter", Plain("\"\\udbffa\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_high_then_escape", Plain("\"\\ud800\\n\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_high_then_code", Plain("\"\\ud800\\u0041\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_high_twice", Plain("\"\\ud800\\ud800\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_high_before_pair", Plain("\"\\ud800\\ud800\\udc00\""), LONE_AT_1, NOT_JSON),
    decided("surrogates_swapped", Plain("\"\\udc00\\ud800\""), LONE_AT_1, NOT_JSON),
    decided("surrogate_in_key", Plain("{\"\\ud800\":0}"), LONE_AT_2, NOT_JSON),
    decided("surrogate_after_letter", Plain("\"a\\udc00\""), LONE_AT_2, NOT_JSON),
    // Sizes are bounded by the body that carries them, not by the reader.
    decided("string_of_a_megabyte", Long("\"", "a", 1 << 20, "\""), Kept, NOT_A_REQUEST),
    decided("string_of_many_escapes", Long("\"", "\\u0000", 100_000, "\""), Kept, NOT_A_REQUEST),
    decided("key_of_a_megabyte", Long("{\"", "k", 1 << 20, "\":0}"), Kept, None),
    decided("blanks_of_a_megabyte", Long("{", " ", 1 << 20, "}"), Kept, None),
    decided("array_of_a_hundred_thousand", Long("[0", ",0", 100_000, "]"), Kept, NOT_A_REQUEST),
];
