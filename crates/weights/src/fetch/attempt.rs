//! One request for a file, or for the rest of it: redirects followed, the answer understood. Trying again is left to
//! `hub`.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode, Url};

use super::address;
use crate::sum::Sum;

/// How often a server may send us on.
const REDIRECTS_MAX: usize = 5;

/// The longest ETag that is remembered.
const ETAG_BYTES_MAX: usize = 200;

/// What is there already.
#[derive(Debug, Default, Clone)]
pub(super) struct Have {
    pub(super) bytes: u64,
    pub(super) etag: Option<String>,
}

/// The file, or the rest of it, about to come.
pub(super) struct Coming {
    pub(super) response: Response,
    /// Where in the file the first byte belongs.
    pub(super) from_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) etag: Option<String>,
    /// The sum of the file as the hub tells it.
    pub(super) told_sum: Option<Sum>,
}

/// Why nothing comes.
pub(super) enum Refusal {
    /// It may be better in a while.
    Later { why: String, after: Option<Duration> },
    /// What is there does not fit the server's file: begin anew.
    Anew { why: String },
    /// It will not get better.
    Final(String),
}

/// Asks for the file from where `have` ends.
pub(super) async fn ask(client: &Client, url: &Url, have: &Have) -> Result<Coming, Refusal> {
    let mut url = url.clone();
    let mut linked = Linked::default();
    for _ in 0..=REDIRECTS_MAX {
        let mut get = client.get(url.clone());
        if have.bytes > 0 {
            get = get.header(RANGE, format!("bytes={}-", have.bytes));
            if let Some(etag) = have.etag.as_deref().filter(|etag| !etag.starts_with("W/")) {
                get = get.header(IF_RANGE, etag);
            }
        }
        let response = get.send().await.map_err(|fault| unreached(&fault))?;
        linked.note(response.headers());
        if !response.status().is_redirection() {
            return judge(response, have, &linked);
        }
        let location = text(response.headers(), LOCATION.as_str());
        let location =
            location.ok_or_else(|| Refusal::Final("the server redirects to nowhere".to_owned()))?;
        url = address::next(&url, location).map_err(Refusal::Final)?;
    }
    Err(Refusal::Final(format!("the server redirects more than {REDIRECTS_MAX} times")))
}

/// What the hub tells of a large file beside the redirect to it.
#[derive(Default)]
struct Linked {
    bytes: Option<u64>,
    sum: Option<Sum>,
}

impl Linked {
    fn note(&mut self, headers: &HeaderMap) {
        let bytes = text(headers, "x-linked-size").and_then(|size| size.parse().ok());
        self.bytes = self.bytes.or(bytes);
        let sum = text(headers, "x-linked-etag").and_then(|etag| etag.trim_matches('"').parse().ok());
        self.sum = self.sum.or(sum);
    }
}

fn judge(response: Response, have: &Have, linked: &Linked) -> Result<Coming, Refusal> {
    let headers = response.headers();
    let etag = text(headers, ETAG.as_str()).filter(|etag| etag.len() <= ETAG_BYTES_MAX).map(str::to_owned);
    let (from_bytes, total_bytes) = match response.status() {
        StatusCode::OK => (0, content_length(headers).or(linked.bytes)),
        StatusCode::PARTIAL_CONTENT => match content_range(headers) {
            Some((from, total)) if from == have.bytes => (from, Some(total)),
            _ => {
                return Err(Refusal::Anew { why: "the server sent another range than asked for".to_owned() });
            }
        },
        StatusCode::RANGE_NOT_SATISFIABLE if have.bytes > 0 => {
            return Err(Refusal::Anew { why: "the server's file ends before what is here".to_owned() });
        }
        status => return Err(refused(status, headers)),
    };
    if from_bytes > 0 && have.etag.is_some() && etag.is_some() && have.etag != etag {
        return Err(Refusal::Anew { why: "the server's file has changed".to_owned() });
    }
    let total_bytes = total_bytes
        .ok_or_else(|| Refusal::Final("the server does not say how large the file is".to_owned()))?;
    if linked.bytes.is_some_and(|linked| linked != total_bytes) {
        return Err(Refusal::Final("the hub and its file server disagree about the size".to_owned()));
    }
    Ok(Coming { response, from_bytes, total_bytes, etag, told_sum: linked.sum })
}

fn refused(status: StatusCode, headers: &HeaderMap) -> Refusal {
    let after = text(headers, RETRY_AFTER.as_str()).and_then(|seconds| seconds.trim().parse().ok());
    let code = status.as_u16();
    match code {
        408 | 425 | 429 | 500..=599 => Refusal::Later {
            why: format!("the server answers {code}"),
            after: after.map(Duration::from_secs),
        },
        401 | 403 => {
            Refusal::Final(format!("the server answers {code}: it does not give this file to everybody"))
        }
        404 => Refusal::Final("the server answers 404: it has no such file".to_owned()),
        _ => Refusal::Final(format!("the server answers {code}")),
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, CONTENT_LENGTH.as_str())?.parse().ok()
}

/// `bytes 5-9/10` begins at 5 of 10.
fn content_range(headers: &HeaderMap) -> Option<(u64, u64)> {
    let (range, total) = text(headers, CONTENT_RANGE.as_str())?.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to, total): (u64, u64, u64) = (from.parse().ok()?, to.parse().ok()?, total.parse().ok()?);
    (from <= to && to.checked_add(1)? == total).then_some((from, total))
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn later(why: &str) -> Refusal {
    Refusal::Later { why: why.to_owned(), after: None }
}

/// A certificate is the same a moment later.
fn unreached(fault: &reqwest::Error) -> Refusal {
    match untrusted(fault) {
        Some(why) => Refusal::Final(format!(
            "the server's certificate is not trusted: {why}; if an authority of your own has signed it, name its \
             certificates (PEM) with SSL_CERT_FILE in the environment"
        )),
        None => later(&unreachable_server(fault)),
    }
}

/// What is wrong with a certificate, if that is what went wrong.
fn untrusted(fault: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(fault);
    while let Some(cause) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = cause.downcast_ref() {
            return Some(why.to_string());
        }
        // One that was wrapped by the system's own is not its source.
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        };
    }
    None
}

/// The innermost cause says it best; the address stays out, it may hold a signature.
pub(super) fn unreachable_server(fault: &reqwest::Error) -> String {
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
