//! HTTP routes of the model server: checks the caller, parses the request, enqueues a job and builds the response.
//! `body_reader` reads request bodies.

use std::convert::Infallible;
use std::sync::Arc;

use accept::{Activity, OwnedActivityGuard};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::body_reader::{BodyReader, ReceivedBody};
use super::completion::{ChunkWriter, CompletionHeader, UsageChunk};
use super::embeddings::EmbedRequest;
use super::generation_channel;
use super::queue::Client;
use super::refusal::Refusal;
use super::request::{ChatRequest, ResponseMode, check_model};
use super::stream::{self as chat_stream, ChatStream};
use super::worker::{ChatJob, EmbedJob, WorkQueues};

const ROOT_BYTES_MAX: usize = 256;

/// Header with the root agent of the caller's tree; requests of one tree share one queue.
static ROOT_HEADER: HeaderName = HeaderName::from_static("x-nexus-root");

/// Name of the only supported embedding model.
const EMBEDDER_NAME: &str = "all-MiniLM-L6-v2";

/// Body of an HTTP response.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// State shared by all connections.
pub(super) struct Shared {
    pub(super) activity: Arc<Activity>,
    model: String,
    /// File name of the embedding model, without its extension.
    embedder_file: Option<String>,
    queues: WorkQueues,
    body_reader: BodyReader,
    is_tcp: bool,
}

/// A known path.
enum Route<'a> {
    Health,
    Models,
    Model(&'a str),
    Chat,
    Embeddings,
}

impl Shared {
    pub(super) fn new(
        model: String,
        embedder_file: Option<String>,
        queues: WorkQueues,
        is_tcp: bool,
    ) -> Self {
        let activity = Arc::new(Activity::new());
        Self { activity, model, embedder_file, queues, body_reader: BodyReader::new(), is_tcp }
    }

    /// Cancels jobs in flight and rejects queued and new ones.
    pub(super) fn stop(&self) {
        if let Some(queue) = &self.queues.chats {
            queue.stop();
        }
        if let Some(queue) = &self.queues.embeddings {
            queue.stop();
        }
    }
}

/// Handles one request.
pub(super) async fn handle(
    shared: &Shared,
    connection: u64,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    match route(shared, connection, request).await {
        Ok(response) => response,
        Err(refusal) => error_response(&refusal),
    }
}

async fn route(
    shared: &Shared,
    connection: u64,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    if shared.is_tcp {
        check_caller(request.headers())?;
    }
    let uri = request.uri().clone();
    let route = Route::parse(uri.path()).ok_or_else(|| unknown_path(uri.path()))?;
    if request.method() != route.method() {
        let text = format!("{} needs {}, not {}", uri.path(), route.method(), request.method());
        return Err(Refusal::method_not_allowed(route.method(), text));
    }
    match route {
        Route::Health => Ok(json_response(StatusCode::OK, health(shared).to_string())),
        Route::Models => {
            let list = json!({"object": "list", "data": models(shared)});
            Ok(json_response(StatusCode::OK, list.to_string()))
        }
        Route::Model(name) => {
            let found = models(shared).into_iter().find(|model| model["id"] == name);
            let text = format!("model {name:?} is not served here");
            let refusal =
                || Refusal::invalid_with_status(StatusCode::NOT_FOUND, text).code("model_not_found");
            found.map(|model| json_response(StatusCode::OK, model.to_string())).ok_or_else(refusal)
        }
        Route::Chat => chat(shared, connection, request).await,
        Route::Embeddings => embeddings(shared, connection, request).await,
    }
}

impl<'a> Route<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        match path {
            "/health" => Some(Route::Health),
            "/v1/models" => Some(Route::Models),
            "/v1/chat/completions" => Some(Route::Chat),
            "/v1/embeddings" => Some(Route::Embeddings),
            path => path.strip_prefix("/v1/models/").map(Route::Model),
        }
    }

    fn method(&self) -> Method {
        match self {
            Route::Health | Route::Models | Route::Model(_) => Method::GET,
            Route::Chat | Route::Embeddings => Method::POST,
        }
    }
}

fn unknown_path(path: &str) -> Refusal {
    let text =
        format!("unknown path {path}; use /health, /v1/models, /v1/chat/completions or /v1/embeddings");
    Refusal::invalid_with_status(StatusCode::NOT_FOUND, text).code("unknown_url")
}

/// Rejects requests with an `Origin` or another host name. On loopback any web page in a browser could call the server,
/// also through DNS rebinding.
fn check_caller(headers: &HeaderMap) -> Result<(), Refusal> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !["127.0.0.1", "localhost"].contains(&name) {
        let text = format!("host {host:?} is not allowed; use 127.0.0.1 or localhost");
        return Err(Refusal::invalid_with_status(StatusCode::FORBIDDEN, text));
    }
    if headers.contains_key(ORIGIN) {
        return Err(Refusal::invalid_with_status(
            StatusCode::FORBIDDEN,
            "requests from web pages (with an Origin header) are not allowed",
        ));
    }
    Ok(())
}

fn health(shared: &Shared) -> Value {
    let chats = shared.queues.chats.as_ref();
    let embeddings = shared.queues.embeddings.as_ref();
    let waiting = chats.map_or(0, |queue| queue.jobs.queued_jobs())
        + embeddings.map_or(0, |queue| queue.jobs.queued_jobs());
    json!({
        "status": "ok",
        "model": chats.map(|_| shared.model.as_str()),
        "loaded": chats.is_some_and(|queue| queue.is_loaded()),
        "embedder": embeddings.map(|_| EMBEDDER_NAME),
        "embedder_loaded": embeddings.is_some_and(|queue| queue.is_loaded()),
        "waiting": waiting,
    })
}

fn models(shared: &Shared) -> Vec<Value> {
    let entry = |id: &str| json!({"id": id, "object": "model", "created": 0, "owned_by": "local"});
    let mut models = Vec::new();
    if let Some(queue) = &shared.queues.chats {
        let mut model = entry(&shared.model);
        // The field name of other local servers; known once the model has been loaded.
        if let Some(tokens) = queue.window_tokens() {
            model["max_model_len"] = json!(tokens);
        }
        models.push(model);
    }
    if shared.queues.embeddings.is_some() {
        models.push(entry(EMBEDDER_NAME));
    }
    models
}

async fn chat(
    shared: &Shared,
    connection: u64,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    let queue = shared.queues.chats.as_ref().ok_or_else(|| not_served("chat"))?;
    let activity = OwnedActivityGuard::start(Arc::clone(&shared.activity));
    let client = queue_client(request.headers(), connection)?;
    let ReceivedBody { body, permit } = shared.body_reader.read(request.into_body()).await?;
    let request = ChatRequest::from_body(&body)?;
    drop(body);
    check_model(request.model.as_deref(), &shared.model)?;
    let (sender, receiver) = generation_channel::channel();
    queue.jobs.push(client, ChatJob { chat: request.chat, sender, _permit: permit })?;
    let header = CompletionHeader::new(&shared.model);
    let usage = match request.response_mode {
        ResponseMode::Complete => {
            return Ok(json_response(
                StatusCode::OK,
                chat_stream::collect_completion(receiver, &header).await?,
            ));
        }
        ResponseMode::Stream => UsageChunk::Omitted,
        ResponseMode::StreamWithUsage => UsageChunk::Included,
    };
    let stream = ChatStream::open(receiver, ChunkWriter::new(header, usage), activity).await?;
    Ok(stream_response(stream))
}

async fn embeddings(
    shared: &Shared,
    connection: u64,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    let queue = shared.queues.embeddings.as_ref().ok_or_else(|| not_served("embedding"))?;
    let _activity = shared.activity.start();
    let client = queue_client(request.headers(), connection)?;
    let ReceivedBody { body, permit } = shared.body_reader.read(request.into_body()).await?;
    let mut request = EmbedRequest::from_body(&body)?;
    drop(body);
    // The file name, which is the model's name in the catalog, is accepted too.
    if shared.embedder_file.is_none() || request.model != shared.embedder_file {
        check_model(request.model.as_deref(), EMBEDDER_NAME)?;
    }
    let (reply, output) = oneshot::channel();
    let texts = std::mem::take(&mut request.texts);
    queue.jobs.push(client, EmbedJob { texts, reply, _permit: permit })?;
    let output = output.await.unwrap_or_else(|_| Err(Refusal::stopping()))?;
    Ok(json_response(StatusCode::OK, request.response_body(EMBEDDER_NAME, &output)?))
}

fn not_served(kind: &str) -> Refusal {
    let text = format!("no {kind} model is served here; start the server with one");
    Refusal::invalid_with_status(StatusCode::NOT_FOUND, text).param("model").code("model_not_found")
}

/// Returns the client whose queue the request joins.
fn queue_client(headers: &HeaderMap, connection: u64) -> Result<Client, Refusal> {
    match headers.get(&ROOT_HEADER).map(HeaderValue::to_str) {
        None => Ok(Client::Connection(connection)),
        Some(Ok(root)) if root.len() <= ROOT_BYTES_MAX => Ok(Client::Root(root.to_owned())),
        Some(_) => Err(Refusal::invalid(format!(
            "X-Nexus-Root must be at most {ROOT_BYTES_MAX} visible ASCII characters"
        ))),
    }
}

fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn stream_response(stream: ChatStream) -> Response<ResponseBody> {
    let frames = stream::unfold(stream, |mut stream| async {
        let bytes = stream.next().await?;
        Some((Ok(Frame::data(Bytes::from(bytes))), stream))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn error_response(refusal: &Refusal) -> Response<ResponseBody> {
    let mut response = json_response(refusal.status, refusal.body());
    if let Some(seconds) = refusal.retry_after_s {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(allow) = refusal.allow.as_ref().and_then(|method| HeaderValue::from_str(method.as_str()).ok())
    {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}
