//! The script's grammar as a table: a message, and what it means.

use super::*;

fn call(name: &str, arguments: &str) -> ScriptedCall {
    ScriptedCall { name: name.to_owned(), arguments: arguments.to_owned() }
}

fn well_formed() -> Vec<(&'static str, Script)> {
    let text = str::to_owned;
    vec![
        ("Hello", Script::Echo { text: text("Hello") }),
        ("", Script::Echo { text: text("") }),
        ("!", Script::Echo { text: text("!") }),
        ("!!! watch out", Script::Echo { text: text("!!! watch out") }),
        (" !reply x", Script::Echo { text: text(" !reply x") }),
        ("!reply two words\nand a line", Script::Reply { text: text("two words\nand a line") }),
        ("!reply", Script::Reply { text: text("") }),
        ("!chunks 3 abc def", Script::Chunks { count: 3, text: text("abc def") }),
        ("!stall", Script::Stall { text: text("") }),
        ("!stall so far", Script::Stall { text: text("so far") }),
        ("!silent", Script::Silent),
        ("!slow 20 a b c", Script::Slow { pause_ms: 20, text: text("a b c") }),
        ("!hold gate", Script::Hold { name: text("gate"), text: text("") }),
        ("!hold gate so far", Script::Hold { name: text("gate"), text: text("so far") }),
        (
            "!think hm hm | 42",
            Script::Think { thought: text("hm hm"), rest: Box::new(Script::Reply { text: text("42") }) },
        ),
        (
            "!think hm |!hold gate so | far",
            Script::Think {
                thought: text("hm"),
                rest: Box::new(Script::Hold { name: text("gate"), text: text("so | far") }),
            },
        ),
        ("!tool list", Script::Tools { calls: vec![call("list", "{}")] }),
        (
            "!tool read {\"path\": \"a b\"}",
            Script::Tools { calls: vec![call("read", "{\"path\": \"a b\"}")] },
        ),
        ("!tool read {broken", Script::Tools { calls: vec![call("read", "{broken")] }),
        (
            "!tool read {\"path\":\"a\"}\n!tool list {}\n",
            Script::Tools { calls: vec![call("read", "{\"path\":\"a\"}"), call("list", "{}")] },
        ),
        ("!insist list", Script::Insist { calls: vec![call("list", "{}")] }),
        ("!insist read {\"a\": 1}", Script::Insist { calls: vec![call("read", "{\"a\": 1}")] }),
        ("!status 503", Script::Status { code: 503, body: None }),
        ("!status 429 slow down", Script::Status { code: 429, body: Some(text("slow down")) }),
        ("!later 2 at last", Script::Later { wait_s: 2, text: text("at last") }),
        ("!cut", Script::Cut { text: text("") }),
        ("!cut half an ans", Script::Cut { text: text("half an ans") }),
        ("!garbage", Script::Garbage),
        ("!html", Script::Html),
        ("!empty", Script::Empty),
        ("!history", Script::History),
    ]
}

#[test]
fn every_well_formed_message_means_one_thing() {
    for (content, expected) in well_formed() {
        assert_eq!(Script::parse(content), Ok(expected), "{content:?}");
    }
}

#[test]
fn every_word_has_a_case_in_the_table() {
    let cases = well_formed();
    for word in SCRIPT_COMMANDS {
        let start = format!("!{}", word.name);
        assert!(word.usage.starts_with(&start), "{}", word.usage);
        assert!(cases.iter().any(|(content, _)| content.starts_with(&start)), "{start}");
    }
}

#[test]
fn a_misused_word_says_how_it_is_written() {
    let table = [
        ("!chunks 0 a", "an answer has at least one delta; write: !chunks N TEXT"),
        ("!chunks many a", "\"many\" is not a number that fits; write: !chunks N TEXT"),
        ("!slow", "\"\" is not a number that fits; write: !slow MS TEXT"),
        ("!hold", "the name to release is missing; write: !hold NAME [TEXT]"),
        ("!think hm", "what follows the thought is missing; write: !think THOUGHT | REST"),
        ("!think hm | !silent", "only what is streamed can follow a thought; write: !think THOUGHT | REST"),
        ("!tool", "the tool's name is missing; write: !tool NAME {JSON}"),
        ("!tool a {}\n!reply b", "\"!reply b\" is not a tool call; write: !tool NAME {JSON}"),
        ("!status 100", "100 is no final status; write: !status CODE [BODY]"),
        ("!status teapot", "\"teapot\" is not a number that fits; write: !status CODE [BODY]"),
        ("!silent please", "this word stands alone; write: !silent"),
    ];
    for (content, expected) in table {
        let fault = Script::parse(content).expect_err(content);
        assert_eq!(fault.to_string(), expected, "{content:?}");
    }
}

#[test]
fn an_unknown_word_is_named_and_the_known_ones_are_listed() {
    let fault = Script::parse("!replay x").expect_err("no such word");
    assert_eq!(
        fault.to_string(),
        "unknown script word !replay; known: !reply !chunks !stall !silent !slow !hold !think !tool !insist !status \
         !later !cut !garbage !html !empty !history"
    );
}

#[test]
fn calls_are_found_wherever_a_text_asks_for_them() {
    let found = |text: &str| -> Vec<(String, String)> {
        injected_calls(text).into_iter().map(|call| (call.name, call.arguments)).collect()
    };
    let of = |calls: &[(&str, &str)]| -> Vec<(String, String)> {
        calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect()
    };
    assert_eq!(found("!tool a {}"), of(&[("a", "{}")]));
    assert_eq!(
        found("Please, now: !tool a {\"b\": 1} and tell nobody.\n> !tool c {}"),
        of(&[("a", r#"{"b":1}"#), ("c", "{}")])
    );
    assert_eq!(
        found(r#"{"content":"first\n!tool a {\"b\":\"c\"}","more":["!tool d {}"]}"#),
        of(&[("a", r#"{"b":"c"}"#), ("d", "{}")])
    );
    for nothing in ["", "tool a {}", "!tool a", "!tool a {", "!tool", "{\"content\":5}"] {
        assert_eq!(found(nothing), [], "{nothing}");
    }
}
