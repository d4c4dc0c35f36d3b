//! One HTTP request for a file or its remaining range: follows redirects and validates the response. Retries are left
//! to `hub`.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode, Url};

use super::hub_url;
use crate::checksum::Checksum;

/// Most redirects per request.
const REDIRECTS_MAX: usize = 5;

/// Longest stored ETag.
const ETAG_BYTES_MAX: usize = 200;

/// The part of the file that is already downloaded.
#[derive(Debug, Default, Clone)]
pub(super) struct Downloaded {
    pub(super) bytes: u64,
    pub(super) etag: Option<String>,
}

/// Response whose body is the file or its remaining range.
pub(super) struct FileResponse {
    pub(super) response: Response,
    /// Offset of the body in the file.
    pub(super) offset_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) etag: Option<String>,
    /// Checksum of the file reported by the hub.
    pub(super) reported_checksum: Option<Checksum>,
}

/// Why a request failed.
pub(super) enum RequestFailure {
    /// A transient error.
    Retry { why: String, after: Option<Duration> },
    /// The downloaded part does not match the server's file: start anew.
    Restart { why: String },
    /// A permanent error.
    Final(String),
}

/// Requests the file from the end of the downloaded part.
pub(super) async fn request(
    client: &Client,
    url: &Url,
    downloaded: &Downloaded,
) -> Result<FileResponse, RequestFailure> {
    let mut url = url.clone();
    let mut linked = LinkedHeaders::default();
    for _ in 0..=REDIRECTS_MAX {
        let mut get = client.get(url.clone());
        if downloaded.bytes > 0 {
            get = get.header(RANGE, format!("bytes={}-", downloaded.bytes));
            if let Some(etag) = downloaded.etag.as_deref().filter(|etag| !etag.starts_with("W/")) {
                get = get.header(IF_RANGE, etag);
            }
        }
        let response = get.send().await.map_err(|fault| send_failure(&fault))?;
        linked.record(response.headers());
        if !response.status().is_redirection() {
            return interpret_response(response, downloaded, &linked);
        }
        let location = header_text(response.headers(), LOCATION.as_str());
        let location = location
            .ok_or_else(|| RequestFailure::Final("the server redirects without a location".to_owned()))?;
        url = hub_url::redirect_target(&url, location).map_err(RequestFailure::Final)?;
    }
    Err(RequestFailure::Final(format!("the server redirects more than {REDIRECTS_MAX} times")))
}

/// Size and checksum that the hub reports with the redirect to a large file.
#[derive(Default)]
struct LinkedHeaders {
    bytes: Option<u64>,
    checksum: Option<Checksum>,
}

impl LinkedHeaders {
    fn record(&mut self, headers: &HeaderMap) {
        let bytes = header_text(headers, "x-linked-size").and_then(|size| size.parse().ok());
        self.bytes = self.bytes.or(bytes);
        let checksum =
            header_text(headers, "x-linked-etag").and_then(|etag| etag.trim_matches('"').parse().ok());
        self.checksum = self.checksum.or(checksum);
    }
}

fn interpret_response(
    response: Response,
    downloaded: &Downloaded,
    linked: &LinkedHeaders,
) -> Result<FileResponse, RequestFailure> {
    let headers = response.headers();
    let etag =
        header_text(headers, ETAG.as_str()).filter(|etag| etag.len() <= ETAG_BYTES_MAX).map(str::to_owned);
    let (offset_bytes, total_bytes) = match response.status() {
        StatusCode::OK => (0, content_length(headers).or(linked.bytes)),
        StatusCode::PARTIAL_CONTENT => match content_range(headers) {
            Some((from, total)) if from == downloaded.bytes => (from, Some(total)),
            _ => {
                return Err(RequestFailure::Restart {
                    why: "the server sent another range than requested".to_owned(),
                });
            }
        },
        StatusCode::RANGE_NOT_SATISFIABLE if downloaded.bytes > 0 => {
            return Err(RequestFailure::Restart {
                why: "the server's file is shorter than the downloaded part".to_owned(),
            });
        }
        status => return Err(status_failure(status, headers)),
    };
    if offset_bytes > 0 && downloaded.etag.is_some() && etag.is_some() && downloaded.etag != etag {
        return Err(RequestFailure::Restart { why: "the server's file has changed".to_owned() });
    }
    let total_bytes = total_bytes
        .ok_or_else(|| RequestFailure::Final("the server does not say how large the file is".to_owned()))?;
    if linked.bytes.is_some_and(|linked| linked != total_bytes) {
        return Err(RequestFailure::Final("the hub and its file server disagree about the size".to_owned()));
    }
    Ok(FileResponse { response, offset_bytes, total_bytes, etag, reported_checksum: linked.checksum })
}

fn status_failure(status: StatusCode, headers: &HeaderMap) -> RequestFailure {
    let after = header_text(headers, RETRY_AFTER.as_str()).and_then(|seconds| seconds.trim().parse().ok());
    let code = status.as_u16();
    match code {
        408 | 425 | 429 | 500..=599 => RequestFailure::Retry {
            why: format!("the server answers {code}"),
            after: after.map(Duration::from_secs),
        },
        401 | 403 => RequestFailure::Final(format!("the server answers {code}: the file is not public")),
        404 => RequestFailure::Final("the server answers 404: it has no such file".to_owned()),
        _ => RequestFailure::Final(format!("the server answers {code}")),
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    header_text(headers, CONTENT_LENGTH.as_str())?.parse().ok()
}

/// Parses the start and total of a range that extends to the end of the file: `bytes 5-9/10` is 5 of 10.
fn content_range(headers: &HeaderMap) -> Option<(u64, u64)> {
    let (range, total) =
        header_text(headers, CONTENT_RANGE.as_str())?.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to, total): (u64, u64, u64) = (from.parse().ok()?, to.parse().ok()?, total.parse().ok()?);
    (from <= to && to.checked_add(1)? == total).then_some((from, total))
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn retryable(why: &str) -> RequestFailure {
    RequestFailure::Retry { why: why.to_owned(), after: None }
}

/// Classifies an error without a response. An untrusted certificate is permanent.
fn send_failure(fault: &reqwest::Error) -> RequestFailure {
    match certificate_error(fault) {
        Some(why) => RequestFailure::Final(format!(
            "the server's certificate is not trusted: {why}; if a private authority signed it, name its \
             certificates (PEM) with SSL_CERT_FILE in the environment"
        )),
        None => retryable(&error_text(fault)),
    }
}

/// Finds a certificate error among the sources of an error.
fn certificate_error(fault: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(fault);
    while let Some(cause) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = cause.downcast_ref() {
            return Some(why.to_string());
        }
        // `source()` of an `io::Error` skips the error that it wraps.
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        };
    }
    None
}

/// Describes an error by its innermost cause, without the URL, which may contain a signature.
pub(super) fn error_text(fault: &reqwest::Error) -> String {
    let mut cause: &dyn Error = fault;
    while let Some(next) = cause.source() {
        cause = next;
    }
    match fault.is_timeout() {
        true => "the server does not answer in time".to_owned(),
        false if fault.is_connect() => format!("the server cannot be reached: {cause}"),
        false => format!("the connection broke: {cause}"),
    }
}
