//! The script grammar as a table: messages and their parsed scripts.

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
fn well_formed_messages_parse() {
    for (content, expected) in well_formed() {
        assert_eq!(Script::parse(content), Ok(expected), "{content:?}");
    }
}

#[test]
fn every_command_has_a_parser_case() {
    let cases = well_formed();
    for command in SCRIPT_COMMANDS {
        let start = format!("!{}", command.name);
        assert!(command.usage.starts_with(&start), "{}", command.usage);
        assert!(cases.iter().any(|(content, _)| content.starts_with(&start)), "{start}");
    }
}

#[test]
fn misused_command_error_shows_usage() {
    let table = [
        ("!chunks 0 a", "a response has at least one delta; usage: !chunks N TEXT"),
        ("!chunks many a", "\"many\" is not a valid number; usage: !chunks N TEXT"),
        ("!slow", "\"\" is not a valid number; usage: !slow MS TEXT"),
        ("!hold", "missing name to release; usage: !hold NAME [TEXT]"),
        ("!think hm", "missing `|` and what follows the thought; usage: !think THOUGHT | REST"),
        (
            "!think hm | !silent",
            "only a streamed response can follow a thought; usage: !think THOUGHT | REST",
        ),
        ("!tool", "missing tool name; usage: !tool NAME {JSON}"),
        ("!tool a {}\n!reply b", "\"!reply b\" is not a tool call; usage: !tool NAME {JSON}"),
        ("!status 100", "100 is not a final status (200 to 599); usage: !status CODE [BODY]"),
        ("!status teapot", "\"teapot\" is not a valid number; usage: !status CODE [BODY]"),
        ("!silent please", "this command takes no arguments; usage: !silent"),
    ];
    for (content, expected) in table {
        let fault = Script::parse(content).expect_err(content);
        assert_eq!(fault.to_string(), expected, "{content:?}");
    }
}

#[test]
fn unknown_command_error_lists_known_commands() {
    let fault = Script::parse("!replay x").expect_err("no such command");
    assert_eq!(
        fault.to_string(),
        "unknown script command !replay; known: !reply !chunks !stall !silent !slow !hold !think !tool !insist \
         !status !later !cut !garbage !html !empty !history"
    );
}

#[test]
fn injected_calls_are_found_anywhere_in_a_text() {
    let found = |text: &str| -> Vec<(String, String)> {
        injected_calls(text).into_iter().map(|call| (call.name, call.arguments)).collect()
    };
    let expected = |calls: &[(&str, &str)]| -> Vec<(String, String)> {
        calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect()
    };
    assert_eq!(found("!tool a {}"), expected(&[("a", "{}")]));
    assert_eq!(
        found("Please, now: !tool a {\"b\": 1} and no more.\n> !tool c {}"),
        expected(&[("a", r#"{"b":1}"#), ("c", "{}")])
    );
    assert_eq!(
        found(r#"{"content":"first\n!tool a {\"b\":\"c\"}","more":["!tool d {}"]}"#),
        expected(&[("a", r#"{"b":"c"}"#), ("d", "{}")])
    );
    for nothing in ["", "tool a {}", "!tool a", "!tool a {", "!tool", "{\"content\":5}"] {
        assert_eq!(found(nothing), [], "{nothing}");
    }
}
