//! The floor under a turn: takes a request, asks a model with so many bytes over the HTTP client that we use, reads the
//! answer to its end, and gives a fixed answer. No agents, nothing kept; what the daemon takes beyond this is its own.
//! `cargo xtask bench models` starts it: relay URL BYTES.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"content":"ok","request_id":"the-benchmark"}}"#;

/// A question, and how it is asked.
#[derive(Clone)]
struct Relay {
    http: reqwest::Client,
    url: String,
    request_body: Bytes,
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(bytes)) = (arguments.next(), arguments.next().and_then(|text| text.parse().ok()))
    else {
        return Err(io::Error::other("usage: relay URL BYTES"));
    };
    // As the product does; an error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().tcp_nodelay(true).no_proxy().build().map_err(io::Error::other)?;
    let relay = Relay { http, url, request_body: Bytes::from(vec![b' '; bytes]) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(relay))
}

async fn serve(relay: Relay) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("Server: http://{}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        // A question of its own for each who asks, as agents have: one that all share would be nearer than theirs.
        let question = Bytes::copy_from_slice(&relay.request_body);
        let relay = Relay { request_body: question, ..relay.clone() };
        tokio::spawn(async move {
            let answer = |request| handle_request(relay.clone(), request);
            if socket.set_nodelay(true).is_ok() {
                // A peer that goes away is the end of its connection and nobody's fault.
                let _ =
                    http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(answer)).await;
            }
        });
    }
}

async fn handle_request(
    relay: Relay,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::new(Bytes::from_static(RESPONSE)));
    if relay.call_model().await.is_err() {
        *response.status_mut() = hyper::StatusCode::BAD_GATEWAY;
    }
    Ok(response)
}

impl Relay {
    async fn call_model(&self) -> reqwest::Result<()> {
        let post = self.http.post(&self.url).header("Content-Type", "application/json");
        let mut answer = post.body(self.request_body.clone()).send().await?.error_for_status()?;
        while answer.chunk().await?.is_some() {}
        Ok(())
    }
}
