//! Benchmark of the embedding model: `embed_speed FILE [THREADS]`. Prints load time, latency and embeddings per second.

use std::path::Path;
use std::time::{Duration, Instant};

use local::embed::{Embedder, MiniLm};

const BATCH: usize = 32;
const TIME: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: embed_speed FILE [THREADS]")?;
    let threads = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let start = Instant::now();
    let mut embedder = MiniLm::open(Path::new(&path), threads)?;
    println!("load            {:8.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let sentence =
        |number: usize| format!("The agent number {number} reads a file and answers the question.");
    let sentences: Vec<String> = (0..BATCH).map(sentence).collect();
    let batch: Vec<&str> = sentences.iter().map(String::as_str).collect();
    println!("one sentence    {:8.1} ms", 1e3 / per_second(&mut embedder, &batch[..1])?);
    println!(
        "batch of {BATCH}     {:8.0} embeddings/s on {threads} thread(s)",
        per_second(&mut embedder, &batch)?
    );
    let passage = "Every queue, buffer, size, time and count has a limit. ".repeat(20);
    println!("256-token text  {:8.1} ms", 1e3 / per_second(&mut embedder, &[passage.as_str()])?);
    println!("resident        {:8} MB", resident_kib().unwrap_or_default() / 1024);
    Ok(())
}

fn per_second(embedder: &mut MiniLm, texts: &[&str]) -> Result<f64, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let mut done = 0_u32;
    while start.elapsed() < TIME {
        embedder.embed(texts)?;
        done += u32::try_from(texts.len())?;
    }
    Ok(f64::from(done) / start.elapsed().as_secs_f64())
}

fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
