//! One HTTP/1.1 connection, driven by the call that uses it: there is no background task, so dropping a call ends its
//! connection, and what lives between calls is an idle socket. What an answer means is left to the caller.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nexus3_protocol::sse::MEDIA_TYPE;
use tokio::net::TcpStream;

use crate::Endpoint;

/// A request with its whole body at hand.
pub(crate) type Ask = Request<Full<Bytes>>;

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum LinkFault {
    /// The peer had closed before anything was written: here is the request, to be sent elsewhere.
    Unsent(Box<Ask>),
    /// The connection broke; how much the peer has seen is not known.
    Broken(hyper::Error),
    /// The answer's body is too long; this is its start.
    Oversized(Answer),
}

/// A connection between two requests.
pub(crate) struct Link {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

type Driver = Box<Connection<TokioIo<TcpStream>, Full<Bytes>>>;

impl Link {
    pub(crate) async fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        Ok(Self { sender, driver: Box::new(driver) })
    }

    /// Sends a request and reads its answer. Gives the link back when it can be used again.
    pub(crate) async fn exchange(
        self,
        ask: Ask,
        body_bytes_max: usize,
    ) -> Result<(Answer, Option<Link>), LinkFault> {
        let Link { mut sender, driver } = self;
        let mut driver = Some(driver);
        let work = async { read(ask_only(&mut sender, ask).await?, body_bytes_max).await };
        let answer = drive(&mut driver, work).await?;
        Ok((answer, driver.map(|driver| Link { sender, driver })))
    }

    /// Sends a request whose answer is read as it comes.
    pub(crate) async fn begin(self, ask: Ask) -> Result<Flow, LinkFault> {
        let Link { mut sender, driver } = self;
        let mut driver = Some(driver);
        let response = drive(&mut driver, ask_only(&mut sender, ask)).await?;
        Ok(Flow { response, driver, _sender: sender })
    }
}

/// An answer that is read as it comes. Dropping it closes its connection.
pub(crate) struct Flow {
    response: Response<Incoming>,
    driver: Option<Driver>,
    /// Without it the connection would be closed.
    _sender: SendRequest<Full<Bytes>>,
}

impl Flow {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Whether the answer says of itself that it is of this type.
    pub(crate) fn is_of_type(&self, media_type: &str) -> bool {
        let named = self.response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = named.and_then(|value| value.split(';').next()).unwrap_or_default();
        essence.trim().eq_ignore_ascii_case(media_type)
    }

    /// The next bytes; none at the end. Nothing is lost when the wait is given up.
    pub(crate) async fn bytes(&mut self) -> Result<Option<Bytes>, hyper::Error> {
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

    /// The rest of the answer as a whole.
    pub(crate) async fn whole(self, body_bytes_max: usize) -> Result<Answer, LinkFault> {
        let Flow { response, mut driver, _sender } = self;
        drive(&mut driver, read(response, body_bytes_max)).await
    }
}

/// Works while the connection is driven.
async fn drive<T>(driver: &mut Option<Driver>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let done = work.as_mut().poll(context);
        // Also when the work is done: this is when a connection that the peer wants closed ends.
        if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
            // Dropping the driver is what gives an unsent request back.
            *driver = None;
        }
        match done {
            Poll::Pending if driver.is_none() => work.as_mut().poll(context),
            other => other,
        }
    })
    .await
}

async fn ask_only(sender: &mut SendRequest<Full<Bytes>>, ask: Ask) -> Result<Response<Incoming>, LinkFault> {
    if sender.ready().await.is_err() {
        return Err(LinkFault::Unsent(Box::new(ask)));
    }
    sender.try_send_request(ask).await.map_err(|mut fault| match fault.take_message() {
        Some(ask) => LinkFault::Unsent(Box::new(ask)),
        None => LinkFault::Broken(fault.into_error()),
    })
}

async fn read(response: Response<Incoming>, body_bytes_max: usize) -> Result<Answer, LinkFault> {
    let status = response.status().as_u16();
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame.map_err(LinkFault::Broken)?.into_data() else { continue };
        let room = body_bytes_max - body.len();
        body.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Err(LinkFault::Oversized(Answer { status, body }));
        }
    }
    Ok(Answer { status, body })
}

/// A POST with a JSON body.
///
/// # Errors
/// When the host or the path cannot stand in a request.
pub(crate) fn post(endpoint: &Endpoint, path: &str, body: Vec<u8>) -> Result<Ask, hyper::http::Error> {
    Request::post(path)
        .header(HOST, endpoint.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
}

/// A GET of an event stream.
///
/// # Errors
/// When the host or the path cannot stand in a request.
pub(crate) fn watch(endpoint: &Endpoint, path: &str) -> Result<Ask, hyper::http::Error> {
    Request::get(path)
        .header(HOST, endpoint.to_string())
        .header(ACCEPT, MEDIA_TYPE)
        .body(Full::new(Bytes::new()))
}
