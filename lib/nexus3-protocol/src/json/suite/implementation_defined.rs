//! Implementation-defined cases of RFC 8259 and the choice of this parser: sizes, depth, duplicate keys, minus zero,
//! lone surrogates.

use ExpectedOutcome::{Accepted, DuplicateKey, Rejected};
use InputText::{Nested, Plain, Repeated};

pub(super) struct ImplementationDefined {
    pub(super) name: &'static str,
    pub(super) text: InputText,
    /// Outcome of parsing it alone.
    pub(super) expected: ExpectedOutcome,
    /// Error code of a request with it as `params`.
    pub(super) params_code: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ExpectedOutcome {
    /// Accepted; a number preserves its text.
    Accepted,
    /// Accepted, with this key reported as a duplicate.
    DuplicateKey(&'static str),
    /// Rejected with this message.
    Rejected(&'static str),
}

pub(super) enum InputText {
    Plain(&'static str),
    /// Start, middle repeated this many times, end.
    Repeated(&'static str, &'static str, usize, &'static str),
    /// Opening, inside and closing text; opening and closing repeated this many times.
    Nested(&'static str, &'static str, &'static str, usize),
}

impl InputText {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Plain(text) => text.as_bytes().to_vec(),
            Repeated(start, middle, times, end) => {
                [start, middle.repeat(*times).as_str(), end].concat().into_bytes()
            }
            Nested(open, inside, close, times) => {
                [open.repeat(*times).as_str(), inside, close.repeat(*times).as_str()].concat().into_bytes()
            }
        }
    }
}

const NOT_A_REQUEST: Option<i64> = Some(-32600);
const NOT_JSON: Option<i64> = Some(-32700);
const TOO_DEEP: ExpectedOutcome = Rejected("Invalid JSON: nested deeper than 64 levels");
const LONE_SURROGATE_AT_1: ExpectedOutcome =
    Rejected("Invalid JSON: Lone surrogate at: line 1 column 2 (char 1)");
const LONE_SURROGATE_AT_2: ExpectedOutcome =
    Rejected("Invalid JSON: Lone surrogate at: line 1 column 3 (char 2)");

const fn case(
    name: &'static str,
    text: InputText,
    expected: ExpectedOutcome,
    as_params: Option<i64>,
) -> ImplementationDefined {
    ImplementationDefined { name, text, expected, params_code: as_params }
}

pub(super) const IMPLEMENTATION_DEFINED: &[ImplementationDefined] = &[
    // A number is text until it is deserialized; only then can it be out of range.
    case("integer_of_65_bits", Plain("18446744073709551616"), Accepted, NOT_A_REQUEST),
    case("integer_below_64_bits", Plain("-9223372036854775809"), Accepted, NOT_A_REQUEST),
    case("integer_of_400_digits", Repeated("", "9", 400, ""), Accepted, NOT_A_REQUEST),
    case("integer_of_a_hundred_thousand_digits", Repeated("-", "1", 100_000, ""), Accepted, NOT_A_REQUEST),
    case("fraction_of_a_thousand_digits", Repeated("0.", "3", 1000, ""), Accepted, NOT_A_REQUEST),
    case("number_above_a_double", Plain("1e400"), Accepted, NOT_A_REQUEST),
    case("number_below_a_double", Plain("-1e400"), Accepted, NOT_A_REQUEST),
    case("number_between_zero_and_a_double", Plain("1e-400"), Accepted, NOT_A_REQUEST),
    case("exponent_beyond_64_bits", Plain("1E99999999999999999999"), Accepted, NOT_A_REQUEST),
    case("exponent_of_a_thousand_digits", Repeated("1e-", "9", 1000, ""), Accepted, NOT_A_REQUEST),
    case("large_number_as_a_parameter", Plain("{\"a\":[1e400,-1e-400]}"), Accepted, None),
    case("minus_zero", Plain("-0"), Accepted, NOT_A_REQUEST),
    case("minus_zero_with_exponent", Plain("-0e1"), Accepted, NOT_A_REQUEST),
    // Depth counts the request's own object too, so parameters have one level less.
    case("arrays_64_deep", Nested("[", "", "]", 64), Accepted, NOT_JSON),
    case("arrays_63_deep", Nested("[", "", "]", 63), Accepted, NOT_A_REQUEST),
    case("arrays_65_deep", Nested("[", "", "]", 65), TOO_DEEP, NOT_JSON),
    case("objects_64_deep", Nested("{\"a\":", "0", "}", 64), Accepted, NOT_JSON),
    case("objects_63_deep", Nested("{\"a\":", "0", "}", 63), Accepted, None),
    case("objects_65_deep", Nested("{\"a\":", "0", "}", 65), TOO_DEEP, NOT_JSON),
    case("both_64_deep", Nested("[{\"\":", "0", "}]", 32), Accepted, NOT_JSON),
    case("both_66_deep", Nested("[{\"\":", "0", "}]", 33), TOO_DEEP, NOT_JSON),
    case("arrays_open_65_deep", Repeated("", "[", 65, ""), TOO_DEEP, NOT_JSON),
    case("arrays_side_by_side_are_not_deep", Repeated("[0", ",[[]]", 1000, "]"), Accepted, NOT_A_REQUEST),
    // A duplicate key is not a syntax error, but a request with one is rejected.
    case("key_twice", Plain("{\"a\":1,\"a\":2}"), DuplicateKey("a"), NOT_A_REQUEST),
    case("key_twice_with_equal_values", Plain("{\"a\":1,\"a\":1}"), DuplicateKey("a"), NOT_A_REQUEST),
    case("key_twice_once_escaped", Plain("{\"a\":1,\"\\u0061\":2}"), DuplicateKey("a"), NOT_A_REQUEST),
    case("empty_key_twice", Plain("{\"\":1,\"\":2}"), DuplicateKey(""), NOT_A_REQUEST),
    case("key_twice_inside", Plain("{\"a\":[{\"b\":1,\"b\":2}]}"), DuplicateKey("b"), NOT_A_REQUEST),
    case(
        "the_first_of_two_is_named",
        Plain("{\"b\":0,\"b\":0,\"a\":0,\"a\":0}"),
        DuplicateKey("b"),
        NOT_A_REQUEST,
    ),
    // A lone surrogate cannot be encoded in UTF-8: accepting it would change the text.
    case("surrogate_high_alone", Plain("\"\\ud800\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_low_alone", Plain("\"\\udc00\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_highest_alone", Plain("\"\\udfff\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_high_then_letter", Plain("\"\\udbffa\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_high_then_escape", Plain("\"\\ud800\\n\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_high_then_code", Plain("\"\\ud800\\u0041\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_high_twice", Plain("\"\\ud800\\ud800\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_high_before_pair", Plain("\"\\ud800\\ud800\\udc00\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogates_swapped", Plain("\"\\udc00\\ud800\""), LONE_SURROGATE_AT_1, NOT_JSON),
    case("surrogate_in_key", Plain("{\"\\ud800\":0}"), LONE_SURROGATE_AT_2, NOT_JSON),
    case("surrogate_after_letter", Plain("\"a\\udc00\""), LONE_SURROGATE_AT_2, NOT_JSON),
    // Sizes are bounded by the transport's body limit, not by the parser.
    case("string_of_a_megabyte", Repeated("\"", "a", 1 << 20, "\""), Accepted, NOT_A_REQUEST),
    case("string_of_many_escapes", Repeated("\"", "\\u0000", 100_000, "\""), Accepted, NOT_A_REQUEST),
    case("key_of_a_megabyte", Repeated("{\"", "k", 1 << 20, "\":0}"), Accepted, None),
    case("blanks_of_a_megabyte", Repeated("{", " ", 1 << 20, "}"), Accepted, None),
    case("array_of_a_hundred_thousand", Repeated("[0", ",0", 100_000, "]"), Accepted, NOT_A_REQUEST),
];
