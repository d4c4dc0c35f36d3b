//! Tests: template rendering, its Python-style JSON and its limits.

use super::*;

fn message(role: &'static str, content: &str) -> TemplateMessage {
    TemplateMessage { role, content: content.to_owned(), tool_calls: Vec::new() }
}

#[test]
fn missing_template_falls_back_to_chatml() {
    let template = Template::parse(None).unwrap();
    let text = template.render(&[message("user", "hi")], &[], ("", "<|im_end|>")).unwrap();
    assert_eq!(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    assert!(!template.supports_tools());
}

#[test]
fn tojson_matches_python_and_keeps_key_order() {
    let template = Template::parse(Some("{{ tools[0] | tojson }}<tool_call>")).unwrap();
    let tool = serde_json::json!({"type": "function", "function": {"name": "a<b", "list": [1, "2"]}});
    let text = template.render(&[], &[tool], ("", "")).unwrap();
    assert_eq!(text, r#"{"type": "function", "function": {"name": "a<b", "list": [1, "2"]}}<tool_call>"#);
    assert!(template.supports_tools());
}

#[test]
fn endless_template_runs_out_of_fuel() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
    let fault = Template::parse(Some(endless)).unwrap().render(&[], &[], ("", "")).unwrap_err();
    assert!(fault.contains("fuel"), "{fault}");
}

#[test]
fn raised_exception_text_is_reported() {
    let template = Template::parse(Some("{{ raise_exception('roles must alternate') }}")).unwrap();
    assert!(template.render(&[], &[], ("", "")).unwrap_err().contains("roles must alternate"));
}

#[test]
fn oversized_template_is_rejected() {
    Template::parse(Some(&"x".repeat(TEMPLATE_BYTES_MAX + 1))).unwrap_err();
}
