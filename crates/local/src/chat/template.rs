//! Chat templates: the model file's own, or ChatML if it has none. A template is untrusted input: it runs with bounded
//! fuel and sees nothing but the conversation.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Serde, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;
use serde_json::ser::Formatter;

use crate::engine::gguf::ModelFileError;

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// minijinja fuel per rendering; Qwen's template takes a few hundred per message.
const FUEL: u64 = 20_000_000;
const TEMPLATE_BYTES_MAX: usize = 256 * 1024;

/// Tag before a tool call in the model's text.
pub(crate) const CALL_START_TAG: &str = "<tool_call>";
/// Tag after a tool call.
pub(crate) const CALL_END_TAG: &str = "</tool_call>";

/// A parsed chat template.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    supports_tools: bool,
}

/// A message as templates expect it.
#[derive(Debug, Serialize)]
pub(crate) struct TemplateMessage {
    pub(crate) role: &'static str,
    pub(crate) content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<serde_json::Value>,
}

impl Template {
    /// Parses `source`, or ChatML if the file has no template.
    pub(crate) fn parse(source: Option<&str>) -> Result<Self, ModelFileError> {
        let source = source.unwrap_or(CHATML);
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(format!(
                "its chat template has {} bytes; at most {TEMPLATE_BYTES_MAX} are supported",
                source.len()
            ));
        }
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|fault| fault.to_string())?);
        environment.add_filter("tojson", |value: Value, _: Rest<Value>| python_json(&value));
        environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        environment
            .add_template_owned("chat", source.to_owned())
            .map_err(|fault| format!("its chat template cannot be parsed: {fault}"))?;
        // Only templates with the call syntax that the grammar and the call detector implement.
        let supports_tools = source.contains(CALL_START_TAG) && source.contains("tools");
        Ok(Self { environment, supports_tools })
    }

    /// Whether the template renders tools in the supported call syntax.
    pub(crate) fn supports_tools(&self) -> bool {
        self.supports_tools
    }

    /// Renders `messages`, up to where the response begins.
    pub(crate) fn render(
        &self,
        messages: &[TemplateMessage],
        tools: &[serde_json::Value],
        (bos, eos): (&str, &str),
    ) -> Result<String, String> {
        let tools = if tools.is_empty() { Value::UNDEFINED } else { Value::from(Serde(tools)) };
        let context = context! {
            messages => Value::from(Serde(messages)),
            tools => tools,
            add_generation_prompt => true,
            bos_token => bos,
            eos_token => eos,
        };
        let template = self.environment.get_template("chat").map_err(|fault| fault.to_string())?;
        template.render(context).map_err(|fault| format!("the chat template failed: {fault}"))
    }
}

/// Serializes JSON as Python's `json.dumps` does, which is what models were trained on.
pub(crate) fn python_json(value: &impl Serialize) -> Result<String, Error> {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, PythonJsonFormatter);
    value
        .serialize(&mut serializer)
        .map_err(|fault| Error::new(ErrorKind::BadSerialization, fault.to_string()))?;
    String::from_utf8(out).map_err(|fault| Error::new(ErrorKind::BadSerialization, fault.to_string()))
}

struct PythonJsonFormatter;

impl Formatter for PythonJsonFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests;
