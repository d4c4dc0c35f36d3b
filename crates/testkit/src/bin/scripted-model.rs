//! The scripted model as a program: to try the daemon without a provider key, and for the benchmarks.

use std::io;
use std::process::ExitCode;

use testkit::{ModelOptions, SCRIPT_COMMANDS, ScriptedModel};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

const HELP_HEADER: &str = "Run a fake model server on 127.0.0.1 that does what each user message says.

Usage: scripted-model [--port N] [--key K]

Options:
  --port N   listen on port N (default: a free port)
  --key K    respond 401 to requests without API key K
  --help     print this help

APIs:
  /v1/chat/completions                        OpenAI Chat Completions
  /v1/responses                               OpenAI Responses
  /v1/messages                                Anthropic Messages
  /openai/deployments/NAME/chat/completions   Azure OpenAI

Commands, as the last user message; a message without one is echoed:
";

const HELP_FOOTER: &str = "
After tool results it responds `tool said: RESULT, RESULT`. It summarizes when
asked to, or responds 400 if the conversation contains `!nosummary`.
Only tests can release a !hold; this program waits until the client disconnects.";

enum Command {
    Serve(ModelOptions),
    Help,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            println!("{}", help());
            ExitCode::SUCCESS
        }
        Ok(Command::Serve(options)) => match serve(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(cause) => {
                eprintln!("scripted-model: {cause}");
                ExitCode::FAILURE
            }
        },
        Err(fault) => {
            eprintln!("scripted-model: {fault}; see scripted-model --help");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut options =
        ModelOptions { record_requests: false, record_ledger: false, ..ModelOptions::default() };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--port" => {
                let port = value()?;
                options.port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
            }
            "--key" => options.key = Some(value()?),
            "--help" | "-h" => return Ok(Command::Help),
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    Ok(Command::Serve(options))
}

fn help() -> String {
    let commands =
        SCRIPT_COMMANDS.iter().map(|command| format!("  {:<23}{}\n", command.usage, command.description));
    format!("{HELP_HEADER}{}{HELP_FOOTER}", commands.collect::<String>())
}

fn serve(options: ModelOptions) -> io::Result<()> {
    let model = ScriptedModel::open(options)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve_until_signal(&model))
}

async fn serve_until_signal(model: &ScriptedModel) -> io::Result<()> {
    // Install the handlers before printing the address: the caller may send a signal as soon as it reads it.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    println!("{}", startup_message(model));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn startup_message(model: &ScriptedModel) -> String {
    let (url, key) = (model.base_url(), model.key().unwrap_or("sk-scripted"));
    format!(
        "Listening on {url}

Use it with:
  export OPENAI_BASE_URL={url}
  export OPENAI_API_KEY={key}
  nexus3 serve --model openai/scripted

Press Ctrl-C to stop. Run scripted-model --help for the script commands."
    )
}
