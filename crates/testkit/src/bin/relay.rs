//! Baseline for the turn benchmark: an HTTP server that posts BYTES bytes to a model with the daemon's HTTP client
//! library, reads the response, and responds with fixed JSON. It has no agents and stores nothing: time above this
//! baseline is the daemon's own. `cargo xtask bench models` starts it: relay URL BYTES.

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

/// The model request that every incoming request triggers.
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
    // As the daemon does; an error means that a provider is installed already.
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
        // Each connection copies the body, as each agent owns its request: a shared one would stay in the CPU cache.
        let request_body = Bytes::copy_from_slice(&relay.request_body);
        let relay = Relay { request_body, ..relay.clone() };
        tokio::spawn(async move {
            let service = |request| handle_request(relay.clone(), request);
            if socket.set_nodelay(true).is_ok() {
                // A peer that disconnects only ends its own connection.
                let _ =
                    http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(service)).await;
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
        let mut response = post.body(self.request_body.clone()).send().await?.error_for_status()?;
        while response.chunk().await?.is_some() {}
        Ok(())
    }
}
