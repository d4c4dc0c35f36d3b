//! Length-prefixed frames for the Unix socket: a big-endian length of four bytes, then the body. A sans-I/O codec;
//! reading and writing the socket is left to the caller.

#[cfg(test)]
mod tests;

/// Maximum size of a frame's body.
pub const FRAME_BYTES_MAX: usize = 10 * 1024 * 1024;

const HEADER_BYTES: usize = 4;

/// A frame whose header announces more than [`FRAME_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame of {announced} bytes is larger than {FRAME_BYTES_MAX}")]
pub struct FrameTooLarge {
    /// Length in the header.
    pub announced: usize,
}

/// Incremental decoder of frames. Memory grows with the bytes received, never with the announced length.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Bytes at the front that were already returned; `feed` removes them all at once.
    consumed: usize,
}

impl FrameDecoder {
    /// Creates an empty decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the body of the next complete frame, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the next header announces more than [`FRAME_BYTES_MAX`]. Close the stream then: frame boundaries are lost.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameTooLarge> {
        let unread = &self.buffer[self.consumed..];
        let Some((header, body)) = unread.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let announced = u32::from_be_bytes(*header) as usize;
        if announced > FRAME_BYTES_MAX {
            return Err(FrameTooLarge { announced });
        }
        if body.len() < announced {
            return Ok(None);
        }
        let start = self.consumed + HEADER_BYTES;
        self.consumed = start + announced;
        Ok(Some(&self.buffer[start..self.consumed]))
    }

    /// Whether the buffer holds an incomplete frame. At end of stream this means that the peer truncated it.
    #[must_use]
    pub fn has_partial_frame(&self) -> bool {
        self.consumed < self.buffer.len()
    }
}

/// Encodes a frame, header and body in one buffer for a single write.
///
/// # Errors
/// When the body is larger than [`FRAME_BYTES_MAX`].
pub fn encode_frame(body: &[u8]) -> Result<Vec<u8>, FrameTooLarge> {
    let too_large = FrameTooLarge { announced: body.len() };
    if body.len() > FRAME_BYTES_MAX {
        return Err(too_large);
    }
    let length = u32::try_from(body.len()).map_err(|_| too_large)?;
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    Ok(frame)
}
