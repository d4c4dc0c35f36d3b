//! Envelope tests by topic: requests, ids, batches, responses, and serialized bytes.

mod batches;
mod encoding;
mod ids;
mod requests;
mod responses;
mod round_trips;

use super::{EnvelopeRules, Incoming, RejectedRequest, Request};

/// Parses a single request that must be accepted.
fn parse_accepted(text: &str, rules: EnvelopeRules) -> Request<'_> {
    match Incoming::parse(text.as_bytes(), rules) {
        Ok(Incoming::Single(request)) => request,
        other => panic!("{text} is not a single request: {other:?}"),
    }
}

fn parse_rejected(text: &str, rules: EnvelopeRules) -> RejectedRequest<'_> {
    match Incoming::parse(text.as_bytes(), rules) {
        Err(rejected) => rejected,
        other => panic!("{text} was not rejected: {other:?}"),
    }
}
