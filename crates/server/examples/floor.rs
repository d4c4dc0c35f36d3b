//! Benchmark baseline: hyper with the settings of the HTTP transport, but without a dispatcher. It reads a request and
//! returns a fixed response; any further time is the daemon's own. `cargo xtask bench` starts it.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// Same values as in `listen.rs`, `accept.rs` and `limits.rs`, so that only the request handling differs.
const BACKLOG: i32 = 4096;
const BUFFER_BYTES_MAX: usize = 41 * 1024;
const HEADERS_MAX: usize = 128;

/// 103 bytes: the daemon's response to `create_agent`.
const RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"agent_id":"the-benchmark-floor","url":"/agent/the-benchmark-floor"}}"#;

fn main() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve())
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::from_std(listen()?)?;
    println!("Server: http://{}", listener.local_addr()?);
    let settings = settings();
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(serve_connection(socket, settings.clone()));
    }
}

fn listen() -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn settings() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .half_close(true)
        .keep_alive(true)
        .title_case_headers(true)
        .auto_date_header(false)
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    builder
}

async fn serve_connection(socket: TcpStream, settings: http1::Builder) {
    if socket.set_nodelay(true).is_err() {
        return;
    }
    // A peer that closes its connection is not an error.
    let _ = settings.serve_connection(TokioIo::new(socket), service_fn(respond)).await;
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // On a broken body hyper closes the connection; there is nothing to report.
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::new(Bytes::from_static(RESPONSE)));
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}
