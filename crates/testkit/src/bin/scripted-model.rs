//! The scripted model as a program: for people who try the daemon without a key, and for the benchmark.

use std::io;
use std::process::ExitCode;

use testkit::{ModelOptions, SCRIPT_COMMANDS, ScriptedModel};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

const HELP_HEADER: &str = "A model that does what its messages say, on 127.0.0.1: over OpenAI's chat completions (/v1/chat/completions) and
Responses (/v1/responses), Azure's deployments (/openai/deployments/NAME/chat/completions) and Anthropic's Messages (/v1/messages).

Usage: scripted-model [--port N] [--key K]

  --port N   the port to listen on; a free one without it
  --key K    answer 401 to callers without this key
  --help     this text

A message that is one of these is obeyed, every other one is echoed:
";

const HELP_FOOTER: &str = "
After the results of tools it answers `tool said: RESULT, RESULT`. Asked to sum a conversation up, it does, or answers
status 400 when `!nosummary` is in it. Only tests can release a hold; here it waits until
the client goes away.";

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
    let words = SCRIPT_COMMANDS.iter().map(|word| format!("  {:<21}{}\n", word.usage, word.description));
    format!("{HELP_HEADER}\n{}{HELP_FOOTER}", words.collect::<String>())
}

fn serve(options: ModelOptions) -> io::Result<()> {
    let model = ScriptedModel::open(options)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve_until_signal(&model))
}

async fn serve_until_signal(model: &ScriptedModel) -> io::Result<()> {
    // Before the address is told: who reads it may stop this program at once.
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

Ctrl-C stops it; scripted-model --help lists what it can be told."
    )
}
