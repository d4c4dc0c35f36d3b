//! Measures a model file on this machine: `cargo run --release -p local --example speed -- FILE [THREADS [ENGINE]]`, with
//! `own` or `llama-cpp` as the engine.
//! Prints load time, prompt and generation speed by the clock and by processor time, and resident memory.

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
        Some(other) => return Err(format!("{other} is no engine").into()),
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
    let cut = LICENCE
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| model.count_tokens(&LICENCE[..*at]) >= PROMPT_TOKENS - 40);
    let text = &LICENCE[..cut.unwrap_or(LICENCE.len())];
    let mut history =
        vec![message(ChatRole::User, &format!("{text}\n\nSay in your own words what this text is about."))];
    let (answer, first) = measure_turn(&mut model, &history, "first turn")?;
    println!("first token     {:.0} ms after an unseen prompt", first.as_secs_f64() * 1e3);
    history.push(message(ChatRole::Assistant, &answer));
    history.push(message(ChatRole::User, "And who may use it?"));
    let (_, first) = measure_turn(&mut model, &history, "second turn")?;
    println!(
        "first token     {:.0} ms after a prompt that was known up to the last answer",
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
    let (mut read, mut text) = (None, String::new());
    let answered: GenerationSummary = model.generate(&chat, &mut |piece| {
        match piece {
            GenerationEvent::Text(part) => {
                read = read.take().or_else(|| start.elapsed().ok());
                text.push_str(part);
            }
            GenerationEvent::PromptProgress { .. } | GenerationEvent::ToolCall(_) => {}
        }
        ControlFlow::Continue(())
    })?;
    let all = start.elapsed()?;
    let read = read.ok_or("the model said nothing")?;
    let new = answered.prompt_tokens - answered.cached_tokens;
    let speed = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64();
    println!(
        "{name}: prompt {} tokens ({} known), {:.1} tok/s ({:.1} per processor second)",
        answered.prompt_tokens,
        answered.cached_tokens,
        speed(new, read.0),
        speed(new, read.1)
    );
    let answer = answered.answer_tokens.saturating_sub(1);
    println!(
        "{name}: answer {} tokens, {:.1} tok/s ({:.1} per processor second)",
        answered.answer_tokens,
        speed(answer, all.0 - read.0),
        speed(answer, all.1 - read.1)
    );
    println!("{name}: {text:?}");
    Ok((text, read.0))
}

fn message(role: ChatRole, text: &str) -> ChatMessage {
    ChatMessage { role, text: text.to_owned(), tool_calls: Vec::new(), tool_call_id: None }
}

struct Stopwatch {
    clock: Instant,
    processor: Duration,
}

impl Stopwatch {
    fn start() -> Result<Self, Box<dyn Error>> {
        Ok(Self { clock: Instant::now(), processor: processor_time()? })
    }

    fn elapsed(&self) -> Result<(Duration, Duration), Box<dyn Error>> {
        Ok((self.clock.elapsed(), processor_time()? - self.processor))
    }
}

/// Time on a processor of all threads that live, in nanoseconds as the kernel counts it.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
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
