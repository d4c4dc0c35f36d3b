//! HTTP request body made of shared pieces, sent without copying and with a known length.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

pub(super) struct SharedBody {
    remaining: VecDeque<Bytes>,
    remaining_bytes: u64,
}

impl SharedBody {
    pub(super) fn wrap(pieces: &[Bytes]) -> reqwest::Body {
        let remaining: VecDeque<Bytes> = pieces.iter().filter(|piece| !piece.is_empty()).cloned().collect();
        let remaining_bytes = remaining.iter().map(|piece| piece.len() as u64).sum();
        reqwest::Body::wrap(Self { remaining, remaining_bytes })
    }
}

impl Body for SharedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.remaining.pop_front();
        self.remaining_bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining_bytes)
    }
}
