//! Definitions of custom tools, and what their commands get.

use serde_json::json;
use testkit::TestRng;

use super::*;

fn settings(schema: &Value, args_template: &[&str]) -> CustomToolSettings {
    CustomToolSettings {
        name: "mine".to_owned(),
        description: "Does it.".to_owned(),
        command: "program".to_owned(),
        args_template: args_template.iter().map(|text| (*text).to_owned()).collect(),
        working_dir: None,
        env: Vec::new(),
        timeout_secs: None,
        input_schema: schema.as_object().unwrap().clone(),
        input_mode: InputMode::Args,
        output_mode: OutputMode::Text,
    }
}

fn one_parameter() -> Value {
    json!({ "properties": { "a": { "type": "string" } } })
}

fn fault(settings: &CustomToolSettings) -> (&'static str, String) {
    let fault = CustomTool::new(settings).unwrap_err();
    (fault.key, fault.why)
}

fn input(settings: &CustomToolSettings, call: &Value) -> Result<CommandInput, String> {
    let tool = CustomTool::new(settings).unwrap();
    let call = tool.definition.parameters.check(call.as_object().unwrap().clone())?;
    let secrets = BTreeMap::from([("db".to_owned(), "s3cret-word".to_owned())]);
    tool.definition.command_input(&call, &secrets)
}

#[test]
fn invalid_definitions_name_their_key() {
    for (args, expected) in [
        (&["${b}"][..], ("args_template", "there is no such parameter; define it in input_schema")),
        (&["${a"], ("args_template", "without a parameter's name")),
        (&["x"], ("input_schema", ".properties.a is not used; write ${a} in args_template")),
    ] {
        let (key, why) = fault(&settings(&one_parameter(), args));
        assert!(key == expected.0 && why.contains(expected.1), "{key} {why}");
    }
    let good = settings(&one_parameter(), &["${a}"]);
    for command in ["", " ", "*", "./x", "bin/x", "x${a}", "/x\n"] {
        let (key, why) = fault(&CustomToolSettings { command: command.to_owned(), ..good.clone() });
        assert!(key == "command" && why.starts_with("must "), "{command}: {why}");
    }
    for name in ["PATH", "HOME", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "NEXUS_ARG_A", "NEXUS_ARGS_JSON"]
    {
        let env = vec![(name.to_owned(), "x".to_owned())];
        assert_eq!(fault(&CustomToolSettings { env, ..good.clone() }).0, "env", "{name}");
    }
    let same = json!({ "properties": { "a": { "type": "string" }, "A": { "type": "string" } } });
    let (key, why) = fault(&CustomToolSettings { input_mode: InputMode::Env, ..settings(&same, &[]) });
    assert!(key == "input_schema" && why.contains("the same variable"), "{why}");
}

#[test]
fn any_text_is_one_argument_unchanged() {
    let mut rng = TestRng::new(38);
    let pieces = [
        ";", " ", "\n", "'", "\"", "\\", "$(id)", "`id`", "${a}", "$${a}", "--", "-", "ä", "𝄞", "*", "|",
        "x", "\u{7f}",
    ];
    let template = ["${a}", "--", "--a=${a}", "${a}${a}", "end"];
    for _ in 0..1_000 {
        let text: String = (0..rng.below(12)).map(|_| *rng.pick(&pieces)).collect();
        let input = input(&settings(&one_parameter(), &template), &json!({ "a": text })).unwrap();
        let expected =
            [text.clone(), "--".to_owned(), format!("--a={text}"), format!("{text}{text}"), "end".to_owned()];
        assert_eq!(input.arguments, expected);
        assert!(input.environment.is_empty() && input.stdin.is_none());
    }
}

#[test]
fn modes_pass_all_parameters() {
    let schema = json!({ "properties": {
        "path": { "type": "string" }, "n": { "type": "integer" }, "l": { "type": "array" }, "no": { "type": "string" },
    } });
    let call = json!({ "path": "/evil", "n": -1, "l": ["a b", 2], "no": null });
    let all = r#"{"l":["a b",2],"n":-1,"path":"/evil"}"#;
    let arguments = ["-n-1".to_owned(), r#"["a b",2]"#.to_owned()];
    let mut settings = settings(&schema, &["-n${n}", "${l}", "--no=${no}"]);
    settings.input_mode = InputMode::Stdin;
    let stdin = input(&settings, &call).unwrap();
    assert_eq!((stdin.stdin.as_deref(), &stdin.arguments[..]), (Some(all), &arguments[..]));
    settings.input_mode = InputMode::Env;
    settings.env = vec![("MODE".to_owned(), "m ${n}".to_owned()), ("NO".to_owned(), "${no}".to_owned())];
    let env = input(&settings, &call).unwrap();
    let expected = [
        ("MODE", "m -1"),
        ("NEXUS_ARG_L", r#"["a b",2]"#),
        ("NEXUS_ARG_N", "-1"),
        ("NEXUS_ARG_PATH", "/evil"),
        ("NEXUS_ARGS_JSON", all),
    ];
    let environment: Vec<(&str, &str)> =
        env.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!((environment, env.stdin), (expected.to_vec(), None));
}

#[test]
fn what_no_program_can_get_is_refused() {
    let settings = settings(&one_parameter(), &["--a=${a}"]);
    let why = input(&settings, &json!({ "a": "x\0y" })).err().unwrap();
    assert!(why.contains("NUL"), "{why}");
    let why = input(&settings, &json!({ "a": "x".repeat(200_000) })).err().unwrap();
    assert!(why.contains("200004 bytes"), "{why}");
    // On its standard input a program can get both.
    let stdin = CustomToolSettings { input_mode: InputMode::Stdin, args_template: Vec::new(), ..settings };
    assert!(input(&stdin, &json!({ "a": format!("\0{}", "x".repeat(200_000)) })).is_ok());
}

#[test]
fn specification_is_that_of_a_command() {
    let tool = CustomTool::new(&settings(&one_parameter(), &["${a}"])).unwrap();
    let spec = tool.spec();
    assert_eq!(
        (&*spec.name, spec.program.as_deref(), spec.class),
        ("mine", Some("program"), ToolClass::Once)
    );
    assert_eq!((spec.time_ms_max, spec.concurrency), (45_000, Concurrency::Ordered));
    assert!(spec.tokens > 10 && spec.input_schema.contains("\"additionalProperties\":false"));
}

#[test]
fn secrets_are_inserted_in_variables_only() {
    let good = settings(&one_parameter(), &["${a}"]);
    let env = vec![("URL".to_owned(), "db://me:${secrets.db}@${a}".to_owned())];
    let with_secret = CustomToolSettings { env, ..good };
    let input = input(&with_secret, &json!({ "a": "${secrets.db}" })).unwrap();
    assert_eq!(input.arguments, ["${secrets.db}"], "a value is not a template");
    assert_eq!(input.environment[0].1, "db://me:s3cret-word@${secrets.db}");
    let tool = CustomTool::new(&with_secret).unwrap();
    assert_eq!(tool.secret_names().collect::<Vec<_>>(), ["db"]);
    let (key, why) = fault(&settings(&one_parameter(), &["${a}", "--key=${secrets.db}"]));
    assert!(key == "args_template" && why.contains("other processes"), "{why}");
    let (key, _) = fault(&settings(&one_parameter(), &["${a}", "${secrets.}"]));
    assert_eq!(key, "args_template");
}
