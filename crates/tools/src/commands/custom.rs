//! Custom tools: commands that the configuration defines, with a template of their arguments. A call has the effect of a
//! command, and runs in the same sandbox.

mod output;
mod parameters;
mod template;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent::outside::{BoxFuture, CallSite, PreparedCall, Tool, ToolContext, ToolOutputSink};
use agent::permission::{Effect, is_program_name};
use agent::{Concurrency, ToolClass, ToolOutcome, ToolSpec};
use serde_json::{Map, Value};

use self::parameters::Parameters;
use self::template::Template;
use super::{CommandRunner, PermittedCommand, TIMEOUT_SECS_DEFAULT, TIMEOUT_SECS_MAX};
use crate::definition::{SortedKeys, ToolResult};
use crate::effects::{CommandRun, Granted, ToolEffects};
use crate::{arguments, spec};

/// The definition of a custom tool, as the configuration has it.
#[derive(Clone)]
pub struct CustomToolSettings {
    /// Its name.
    pub name: String,
    /// The description that models see.
    pub description: String,
    /// The program: a name in the search path or an absolute path.
    pub command: String,
    /// Its arguments, with `${parameter}` in them.
    pub args_template: Vec<String>,
    /// Its directory; by default that of the agent.
    pub working_dir: Option<String>,
    /// Variables of its environment, with `${parameter}` and `${secrets.NAME}` in their values.
    pub env: Vec<(String, String)>,
    /// Its timeout, in seconds.
    pub timeout_secs: Option<u64>,
    /// The JSON Schema of its parameters.
    pub input_schema: Map<String, Value>,
    /// How it gets its parameters, besides the templates.
    pub input_mode: InputMode,
    /// What its output is.
    pub output_mode: OutputMode,
}

/// How a command gets the parameters of a call, besides its templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InputMode {
    /// By its templates only.
    #[default]
    Args,
    /// As a JSON object on its standard input.
    Stdin,
    /// As variables: `NEXUS_ARG_NAME` for each, and all as JSON in `NEXUS_ARGS_JSON`.
    Env,
}

/// What the output of a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputMode {
    /// Text; whitespace around it is removed.
    #[default]
    Text,
    /// JSON; whitespace in it is removed.
    Json,
}

/// Why a custom tool is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomToolFault {
    /// The key of the configuration.
    pub key: &'static str,
    /// The reason, as the rest of a sentence that begins with the key, or of the key itself: `.properties.x is …`.
    pub why: String,
}

impl fmt::Display for CustomToolFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.why.starts_with('.') { "" } else { " " };
        write!(out, "{}{separator}{}", self.key, self.why)
    }
}

/// The prefix of the variables with the parameters of a call. No parameter can name another variable.
const VARIABLE_PREFIX: &str = "NEXUS_ARG_";

/// The variable with all parameters.
const ALL_VARIABLE: &str = "NEXUS_ARGS_JSON";

/// Variables that decide which programs and libraries run, and those of the sandbox.
const RESERVED_VARIABLES: [&str; 3] = ["PATH", "HOME", "TMPDIR"];
const RESERVED_PREFIXES: [&str; 2] = ["LD_", "NEXUS_ARG"];

/// The kernel's limit for one argument or variable.
const ARGUMENT_BYTES_MAX: usize = 128 << 10;

/// Maximum length of the arguments' JSON text.
const INPUT_BYTES_MAX: usize = 1 << 20;

/// Time in which a command that was killed at its timeout is gone.
const KILL_SECS: u64 = 15;

/// A custom tool whose definition is valid.
pub struct CustomTool {
    spec: Arc<ToolSpec>,
    definition: Arc<Definition>,
}

/// Without its definition: variables may be secret.
impl fmt::Debug for CustomTool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CustomTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

struct Definition {
    command: String,
    arguments: Vec<Template>,
    environment: Vec<(String, Template)>,
    working_dir: Option<String>,
    parameters: Parameters,
    input_mode: InputMode,
    output_mode: OutputMode,
    timeout: Duration,
}

impl CustomTool {
    /// Checks a definition.
    ///
    /// # Errors
    /// When a value is invalid, or a template names a parameter that does not exist, or a parameter reaches no command.
    pub fn new(settings: &CustomToolSettings) -> Result<Self, CustomToolFault> {
        let fault = |key, why: String| CustomToolFault { key, why };
        check_program(&settings.command).map_err(|why| fault("command", why))?;
        let parameters = Parameters::new(&settings.input_schema).map_err(|why| fault("input_schema", why))?;
        let parse = |text: &String| checked_template(text, &parameters);
        let arguments = settings.args_template.iter().map(parse).collect::<Result<Vec<_>, _>>();
        let arguments = arguments.map_err(|why| fault("args_template", why))?;
        if let Some(name) = arguments.iter().flat_map(Template::secrets).next() {
            let why = format!(
                "has ${{secrets.{name}}}, but other processes can read the arguments of a command; use env"
            );
            return Err(fault("args_template", why));
        }
        let variable = |(name, text): &(String, String)| {
            check_variable(name)?;
            Ok((name.clone(), checked_template(text, &parameters)?))
        };
        let environment = settings.env.iter().map(variable).collect::<Result<Vec<_>, String>>();
        let environment = environment.map_err(|why| fault("env", why))?;
        let timeout_secs = settings.timeout_secs.unwrap_or(TIMEOUT_SECS_DEFAULT).clamp(1, TIMEOUT_SECS_MAX);
        let definition = Definition {
            command: settings.command.clone(),
            arguments,
            environment,
            working_dir: settings.working_dir.clone(),
            parameters,
            input_mode: settings.input_mode,
            output_mode: settings.output_mode,
            timeout: Duration::from_secs(timeout_secs),
        };
        definition.check_reach().map_err(|why| fault("input_schema", why))?;
        Ok(Self {
            spec: Arc::new(build_spec(settings, &definition, timeout_secs)),
            definition: Arc::new(definition),
        })
    }

    /// Its specification.
    #[must_use]
    pub fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    /// The names of the secrets that its command gets.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.definition.environment.iter().flat_map(|(_, template)| template.secrets())
    }

    /// The tool, which runs its commands with a runner. They get the secrets that its definition names, and no others.
    #[must_use]
    pub fn build(self, commands: Arc<CommandRunner>, secrets: &BTreeMap<String, String>) -> Arc<dyn Tool> {
        let own = self.secret_names().filter_map(|name| Some((name.to_owned(), secrets.get(name)?.clone())));
        let secrets = own.collect();
        Arc::new(BuiltTool { tool: self, commands, secrets })
    }
}

fn build_spec(settings: &CustomToolSettings, definition: &Definition, timeout_secs: u64) -> ToolSpec {
    let description = settings.description.split_whitespace().collect::<Vec<_>>().join(" ");
    let input_schema = definition.parameters.schema_text();
    ToolSpec {
        name: Arc::from(settings.name.as_str()),
        model_name: Arc::from(settings.name.as_str()),
        aliases: Vec::new(),
        tokens: spec::token_count([settings.name.as_str(), &description, &input_schema]),
        description: Arc::from(description),
        input_schema: Arc::from(input_schema),
        is_offered_by_default: true,
        program: Some(Arc::from(settings.command.as_str())),
        concurrency: Concurrency::Ordered,
        class: ToolClass::Once,
        time_ms_max: (timeout_secs + KILL_SECS) * 1000,
        brief: None,
    }
}

/// A program that a directory of the agent contains would be the agent's choice.
fn check_program(command: &str) -> Result<(), String> {
    let is_path = command.contains('/') && !command.starts_with('/');
    if is_path || command == "*" || !is_program_name(command) {
        return Err("must be the name of a program or an absolute path".to_owned());
    }
    match command.contains("${") {
        true => Err("must not have parameters; they belong in args_template".to_owned()),
        false => Ok(()),
    }
}

fn check_variable(name: &str) -> Result<(), String> {
    let is_reserved =
        RESERVED_VARIABLES.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    match is_reserved {
        true => {
            Err(format!("must not set {name}, which nexus3 or the system's loader reads; use another name"))
        }
        false => Ok(()),
    }
}

fn checked_template(text: &str, parameters: &Parameters) -> Result<Template, String> {
    let template = Template::parse(text)?;
    let unknown = template.parameters().find(|name| !parameters.names().any(|known| known == *name));
    let Some(unknown) = unknown else { return Ok(template) };
    let known: Vec<&str> = parameters.names().collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!(
        "has ${{{unknown}}}, but there is no such parameter; define it in input_schema.properties (parameters: {known})"
    ))
}

impl Definition {
    /// Checks that every parameter reaches the command, and that no two share a variable.
    fn check_reach(&self) -> Result<(), String> {
        let templates = self.arguments.iter().chain(self.environment.iter().map(|(_, template)| template));
        let used: Vec<&str> = templates.flat_map(Template::parameters).collect();
        let mut variables = BTreeMap::new();
        for name in self.parameters.names() {
            if self.input_mode == InputMode::Args && !used.contains(&name) {
                return Err(format!(
                    ".properties.{name} is not used; write ${{{name}}} in args_template, or set input_mode to stdin or env"
                ));
            }
            if let Some(other) = variables.insert(name.to_uppercase(), name) {
                return Err(format!(
                    ".properties.{name} has the same variable as {other}; rename one of them"
                ));
            }
        }
        Ok(())
    }

    /// The command line and environment of a call.
    fn command_input(
        &self,
        call: &Map<String, Value>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<CommandInput, String> {
        let texts: BTreeMap<String, String> =
            call.iter().map(|(name, value)| (name.clone(), value_text(value))).collect();
        let json = serde_json::to_string(&SortedKeys(&Value::Object(call.clone()))).unwrap_or_default();
        let arguments: Vec<String> =
            self.arguments.iter().filter_map(|template| template.render(&texts, secrets)).collect();
        let rendered =
            |(name, template): &(String, Template)| Some((name.clone(), template.render(&texts, secrets)?));
        let mut environment: Vec<(String, String)> = self.environment.iter().filter_map(rendered).collect();
        if self.input_mode == InputMode::Env {
            let variable = |(name, text): (&String, &String)| {
                (format!("{VARIABLE_PREFIX}{}", name.to_uppercase()), text.clone())
            };
            environment.extend(texts.iter().map(variable));
            environment.push((ALL_VARIABLE.to_owned(), json.clone()));
        }
        arguments
            .iter()
            .chain(environment.iter().map(|(_, value)| value))
            .try_for_each(|text| check_argument(text))?;
        let stdin = (self.input_mode == InputMode::Stdin).then_some(json);
        Ok(CommandInput { arguments, environment, stdin })
    }
}

/// A value as one argument: strings as they are, others as JSON.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string(&SortedKeys(value)).unwrap_or_default(),
    }
}

fn check_argument(text: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err("a NUL character cannot be passed to a program".to_owned());
    }
    // The kernel counts the byte that ends it, and for a variable its name.
    if text.len() > ARGUMENT_BYTES_MAX - 256 {
        return Err(format!("an argument of {} bytes is longer than the kernel allows", text.len()));
    }
    Ok(())
}

/// What a command gets in a call.
struct CommandInput {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    stdin: Option<String>,
}

struct BuiltTool {
    tool: CustomTool,
    commands: Arc<CommandRunner>,
    secrets: BTreeMap<String, String>,
}

impl Tool for BuiltTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.tool.spec
    }

    fn prepare(&self, text: &str, site: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String> {
        let definition = &self.tool.definition;
        let call = arguments::parse::<Map<String, Value>>(text, INPUT_BYTES_MAX)?;
        let invalid = |why: String| format!("Invalid input: {why}");
        let call = definition.parameters.check(call).map_err(invalid)?;
        let input = definition.command_input(&call, &self.secrets).map_err(invalid)?;
        let cwd = definition.working_dir.as_deref();
        Ok(Box::new(CustomCall {
            effects: CommandRun::new(&definition.command, &input.arguments, cwd, site)?,
            input,
            definition: Arc::clone(definition),
            commands: Arc::clone(&self.commands),
        }))
    }
}

struct CustomCall {
    input: CommandInput,
    effects: CommandRun,
    definition: Arc<Definition>,
    commands: Arc<CommandRunner>,
}

impl PreparedCall for CustomCall {
    fn effects(&self) -> Vec<Effect> {
        self.effects.list()
    }

    fn run(self: Box<Self>, context: ToolContext) -> BoxFuture<'static, ToolOutcome> {
        let Self { input, effects, definition, commands } = *self;
        let output = Arc::clone(&context.output);
        let command = effects.open(Granted::new(context));
        Box::pin(async move {
            let result = match command {
                Ok(command) => run(command, input, &definition, &commands, &*output).await,
                Err(outcome) => Err(outcome),
            };
            result.map_or_else(|outcome| outcome, ToolOutcome::Done)
        })
    }
}

async fn run(
    command: PermittedCommand,
    input: CommandInput,
    definition: &Definition,
    commands: &Arc<CommandRunner>,
    output: &dyn ToolOutputSink,
) -> ToolResult {
    let command = command.with_environment(input.environment).with_readable_program();
    let mut started = command.start(commands, input.arguments, input.stdin.is_some()).await?;
    if let Some(text) = input.stdin {
        started.feed(text);
    }
    let finished = started.finish(definition.timeout, output).await;
    output::format(&finished, definition.timeout, definition.output_mode)
}

#[cfg(test)]
mod tests;
