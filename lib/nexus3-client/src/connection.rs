//! One HTTP/1.1 connection, polled by the call that uses it. There is no background task: dropping a call closes its
//! connection, and between calls only an idle socket remains. Interpreting the response is left to the caller.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nexus3_protocol::sse::MEDIA_TYPE;
use tokio::net::TcpStream;

use crate::Endpoint;

/// A request with a buffered body.
pub(crate) type HttpRequest = Request<Full<Bytes>>;

/// A response with a buffered body.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// A request without a usable response.
#[derive(Debug)]
pub(crate) enum ConnectionFault {
    /// The peer closed the connection before anything was written; the request can be sent on another one.
    Unsent(Box<HttpRequest>),
    /// The connection failed; how much of the request the peer received is unknown.
    Broken(hyper::Error),
    /// The body exceeds the limit; holds its start.
    Oversized(HttpResponse),
}

/// A connection without a request in flight.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

type Driver = Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>;

impl Connection {
    pub(crate) async fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        Ok(Self { sender, driver: Box::new(driver) })
    }

    /// Sends a request and reads its response. Returns the connection if it can be reused.
    pub(crate) async fn exchange(
        self,
        request: HttpRequest,
        body_bytes_max: usize,
    ) -> Result<(HttpResponse, Option<Connection>), ConnectionFault> {
        let Connection { mut sender, driver } = self;
        let mut driver = Some(driver);
        let work = async { read_response(send_request(&mut sender, request).await?, body_bytes_max).await };
        let response = drive(&mut driver, work).await?;
        Ok((response, driver.map(|driver| Connection { sender, driver })))
    }

    /// Sends a request and returns after the response header, for reading the body as it arrives.
    pub(crate) async fn send_streaming(
        self,
        request: HttpRequest,
    ) -> Result<StreamingResponse, ConnectionFault> {
        let Connection { mut sender, driver } = self;
        let mut driver = Some(driver);
        let response = drive(&mut driver, send_request(&mut sender, request)).await?;
        Ok(StreamingResponse { response, driver, _sender: sender })
    }
}

/// A response whose body is read as it arrives. Dropping it closes its connection.
pub(crate) struct StreamingResponse {
    response: Response<Incoming>,
    driver: Option<Driver>,
    /// hyper closes the connection when its sender is dropped.
    _sender: SendRequest<Full<Bytes>>,
}

impl StreamingResponse {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Whether the `Content-Type` header names this media type.
    pub(crate) fn has_media_type(&self, media_type: &str) -> bool {
        let content_type = self.response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
        essence.trim().eq_ignore_ascii_case(media_type)
    }

    /// Returns the next chunk of the body, or `None` at its end. Cancel safe.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        let body = self.response.body_mut();
        let work = async {
            while let Some(frame) = body.frame().await {
                if let Ok(data) = frame?.into_data() {
                    return Ok(Some(data));
                }
            }
            Ok(None)
        };
        drive(&mut self.driver, work).await
    }

    /// Reads the rest of the body.
    pub(crate) async fn collect(self, body_bytes_max: usize) -> Result<HttpResponse, ConnectionFault> {
        let StreamingResponse { response, mut driver, _sender } = self;
        drive(&mut driver, read_response(response, body_bytes_max)).await
    }
}

/// Awaits `work` while polling the connection.
async fn drive<T>(driver: &mut Option<Driver>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let done = work.as_mut().poll(context);
        // Polled even when the work is done: only this poll ends a connection that the peer asked to close.
        if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
            // Dropping the driver makes hyper return an unsent request.
            *driver = None;
        }
        match done {
            Poll::Pending if driver.is_none() => work.as_mut().poll(context),
            other => other,
        }
    })
    .await
}

async fn send_request(
    sender: &mut SendRequest<Full<Bytes>>,
    request: HttpRequest,
) -> Result<Response<Incoming>, ConnectionFault> {
    if sender.ready().await.is_err() {
        return Err(ConnectionFault::Unsent(Box::new(request)));
    }
    sender.try_send_request(request).await.map_err(|mut fault| match fault.take_message() {
        Some(request) => ConnectionFault::Unsent(Box::new(request)),
        None => ConnectionFault::Broken(fault.into_error()),
    })
}

async fn read_response(
    response: Response<Incoming>,
    body_bytes_max: usize,
) -> Result<HttpResponse, ConnectionFault> {
    let status = response.status().as_u16();
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame.map_err(ConnectionFault::Broken)?.into_data() else { continue };
        let room = body_bytes_max - body.len();
        body.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Err(ConnectionFault::Oversized(HttpResponse { status, body }));
        }
    }
    Ok(HttpResponse { status, body })
}

/// Builds a POST request with a JSON body.
///
/// # Errors
/// When the host or the path is not valid in a request.
pub(crate) fn json_post(
    endpoint: &Endpoint,
    path: &str,
    body: Vec<u8>,
) -> Result<HttpRequest, hyper::http::Error> {
    Request::post(path)
        .header(HOST, endpoint.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
}

/// Builds a GET request for an event stream.
///
/// # Errors
/// When the host or the path is not valid in a request.
pub(crate) fn event_stream_get(endpoint: &Endpoint, path: &str) -> Result<HttpRequest, hyper::http::Error> {
    Request::get(path)
        .header(HOST, endpoint.to_string())
        .header(ACCEPT, MEDIA_TYPE)
        .body(Full::new(Bytes::new()))
}
