//! Stand-alone model server: `model_server [--model FILE] [--embedder FILE] (--socket PATH | --port N) [--threads N]
//! [--window N] [--idle SECONDS]`. In production, `nexus3 model-server` does this.

use std::path::PathBuf;
use std::time::Duration;

use local::server::{ModelListener, ServeOptions, serve};
use tokio_util::sync::CancellationToken;

type Fault = Box<dyn std::error::Error>;

enum ListenAddress {
    Socket(PathBuf),
    Port(u16),
}

fn main() -> Result<(), Fault> {
    let (address, options) = parse_arguments()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = match address {
            ListenAddress::Socket(path) => ModelListener::unix(&path)?,
            ListenAddress::Port(port) => ModelListener::tcp(port)?,
        };
        println!("listening on {}", listener.address());
        let stop = CancellationToken::new();
        let interrupted = async {
            let signal = tokio::signal::ctrl_c().await;
            stop.cancel();
            signal
        };
        let served = serve(listener, options, stop.clone());
        tokio::pin!(served);
        tokio::select! {
            served = &mut served => Ok(served?),
            _ = interrupted => Ok(served.await?),
        }
    })
}

fn parse_arguments() -> Result<(ListenAddress, ServeOptions), Fault> {
    let mut options = ServeOptions { lowers_priority: true, ..ServeOptions::default() };
    let mut address = ListenAddress::Port(0);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--model" => options.model = Some(value.into()),
            "--embedder" => options.embedder = Some(value.into()),
            "--socket" => address = ListenAddress::Socket(value.into()),
            "--port" => address = ListenAddress::Port(value.parse()?),
            "--threads" => options.threads = value.parse()?,
            "--window" => options.window_tokens_max = Some(value.parse()?),
            "--idle" => options.idle_timeout = Some(Duration::from_secs(value.parse()?)),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok((address, options))
}
