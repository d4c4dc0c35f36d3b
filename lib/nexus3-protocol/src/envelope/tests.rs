//! The envelope, by noun: requests, ids, batches, responses, and the bytes we write.

mod batches;
mod encoding;
mod ids;
mod requests;
mod responses;
mod round_trips;

use super::{EnvelopeRules, Incoming, RejectedRequest, Request};

/// A request taken under a door's rules.
fn parse_accepted(text: &str, rules: EnvelopeRules) -> Request<'_> {
    match Incoming::parse(text.as_bytes(), rules) {
        Ok(Incoming::Single(request)) => request,
        other => panic!("{text} was expected to be one request, got {other:?}"),
    }
}

fn parse_rejected(text: &str, rules: EnvelopeRules) -> RejectedRequest<'_> {
    match Incoming::parse(text.as_bytes(), rules) {
        Err(refused) => refused,
        other => panic!("{text} was expected to be refused, got {other:?}"),
    }
}
