//! Benchmark of a chat model: `cargo run --release -p local --example speed -- FILE [THREADS [own|llama-cpp]]`. Prints
//! load time, prompt and generation speed in wall-clock and CPU time, and resident memory. `cargo xtask bench models`
//! parses the output.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use local::generation::{
    Chat, ChatMessage, ChatRole, EngineKind, GenerationEvent, GenerationSummary, LoadOptions, LoadedModel,
    ToolChoice,
};

const LICENCE: &str = include_str!("../../../LICENSE-APACHE");
const PROMPT_TOKENS: usize = 860;
const ANSWER_TOKENS: usize = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: speed FILE [THREADS [own|llama-cpp]]")?;
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let engine = match arguments.next().as_deref() {
        None | Some("own") => EngineKind::Native,
        Some("llama-cpp") => EngineKind::LlamaCpp,
        Some(other) => return Err(format!("unknown engine {other}; use own or llama-cpp").into()),
    };
    let start = Stopwatch::start()?;
    let mut model = LoadedModel::open(
        Path::new(&file),
        &LoadOptions { engine, threads, sequences: 4, ..LoadOptions::default() },
    )?;
    let loaded = start.elapsed()?;
    println!(
        "model           {} ({} tokens window, {threads} threads, {engine:?})",
        model.name(),
        model.window_tokens()
    );
    println!("load            {:.0} ms, {:.0} MB resident", loaded.0.as_secs_f64() * 1e3, resident_mb()?);
    let end = LICENCE
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| model.count_tokens(&LICENCE[..*at]) >= PROMPT_TOKENS - 40);
    let text = &LICENCE[..end.unwrap_or(LICENCE.len())];
    let mut history =
        vec![message(ChatRole::User, &format!("{text}\n\nSay in your own words what this text is about."))];
    let (answer, first) = measure_turn(&mut model, &history, "first turn")?;
    println!("first token     {:.0} ms with an uncached prompt", first.as_secs_f64() * 1e3);
    history.push(message(ChatRole::Assistant, &answer));
    history.push(message(ChatRole::User, "And who may use it?"));
    let (_, first) = measure_turn(&mut model, &history, "second turn")?;
    println!(
        "first token     {:.0} ms with a prompt cached up to the last response",
        first.as_secs_f64() * 1e3
    );
    println!("resident        {:.0} MB", resident_mb()?);
    Ok(())
}

fn measure_turn(
    model: &mut LoadedModel,
    messages: &[ChatMessage],
    name: &str,
) -> Result<(String, Duration), Box<dyn Error>> {
    let chat = Chat {
        messages: messages.to_vec(),
        tools: Vec::new(),
        tool_choice: ToolChoice::None,
        schema: None,
        answer_tokens_max: Some(ANSWER_TOKENS),
        temperature: 0.0,
        top_p: 1.0,
        seed: 0,
        stop: Vec::new(),
    };
    let start = Stopwatch::start()?;
    let (mut prefill, mut text) = (None, String::new());
    let summary: GenerationSummary = model.generate(&chat, &mut |event| {
        match event {
            GenerationEvent::Text(part) => {
                prefill = prefill.take().or_else(|| start.elapsed().ok());
                text.push_str(part);
            }
            GenerationEvent::PromptProgress { .. } | GenerationEvent::ToolCall(_) => {}
        }
        ControlFlow::Continue(())
    })?;
    let total = start.elapsed()?;
    let prefill = prefill.ok_or("the model generated no text")?;
    let evaluated = summary.prompt_tokens - summary.cached_tokens;
    let speed = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64();
    println!(
        "{name}: prompt {} tokens ({} cached), {:.1} tok/s ({:.1} per CPU second)",
        summary.prompt_tokens,
        summary.cached_tokens,
        speed(evaluated, prefill.0),
        speed(evaluated, prefill.1)
    );
    let generated = summary.answer_tokens.saturating_sub(1);
    println!(
        "{name}: answer {} tokens, {:.1} tok/s ({:.1} per CPU second)",
        summary.answer_tokens,
        speed(generated, total.0 - prefill.0),
        speed(generated, total.1 - prefill.1)
    );
    println!("{name}: {text:?}");
    Ok((text, prefill.0))
}

fn message(role: ChatRole, text: &str) -> ChatMessage {
    ChatMessage { role, text: text.to_owned(), tool_calls: Vec::new(), tool_call_id: None }
}

struct Stopwatch {
    clock: Instant,
    cpu: Duration,
}

impl Stopwatch {
    fn start() -> Result<Self, Box<dyn Error>> {
        Ok(Self { clock: Instant::now(), cpu: cpu_time()? })
    }

    fn elapsed(&self) -> Result<(Duration, Duration), Box<dyn Error>> {
        Ok((self.clock.elapsed(), cpu_time()? - self.cpu))
    }
}

/// CPU time of all live threads, from the kernel's scheduler statistics.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split(' ').next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum))
}

fn resident_mb() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).ok_or("no VmRSS")?.parse()?;
    Ok(kilobytes / 1024.0)
}
