//! Length frames for the Unix door: four bytes of length, big end first, then that many bytes. A codec without a
//! socket: it is fed bytes as they come and gives frames.

#[cfg(test)]
mod tests;

/// The most bytes one frame may hold.
pub const FRAME_BYTES_MAX: usize = 10 * 1024 * 1024;

const HEADER_BYTES: usize = 4;

/// A frame whose header announces more than [`FRAME_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame of {announced} bytes is larger than {FRAME_BYTES_MAX}")]
pub struct FrameTooLarge {
    /// What the header said.
    pub announced: usize,
}

/// Collects bytes into frames. Memory grows with the bytes seen, never with the length announced.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Bytes at the front that were already given out; removed in one move when more bytes arrive.
    consumed: usize,
}

impl FrameDecoder {
    /// An empty reader.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the next header announces too much. The stream cannot be followed after that: close it.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameTooLarge> {
        let rest = &self.buffer[self.consumed..];
        let Some((header, body)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
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

    /// Whether bytes of an unfinished frame are waiting: a peer that closes now has cut one.
    #[must_use]
    pub fn has_partial_frame(&self) -> bool {
        self.consumed < self.buffer.len()
    }
}

/// One frame, header and body together, ready for a single write.
///
/// # Errors
/// When the body is larger than a frame may be.
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
