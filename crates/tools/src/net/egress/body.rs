//! Decompresses bodies, with a limit on what comes out.

use std::io::Read;

use agent::ToolOutcome;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::definition::execution_failed;

/// The compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentEncoding {
    Identity,
    Gzip,
    Deflate,
}

impl ContentEncoding {
    pub(super) fn parse(text: &str) -> Result<Self, ToolOutcome> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(ContentEncoding::Identity),
            "gzip" | "x-gzip" => Ok(ContentEncoding::Gzip),
            "deflate" => Ok(ContentEncoding::Deflate),
            other => {
                let shown: String = other.chars().take(64).collect();
                Err(execution_failed(format!(
                    "the response is compressed with '{shown}', which was not asked for"
                )))
            }
        }
    }
}

/// Decompresses a body on a blocking thread.
pub(super) async fn decode(
    encoding: ContentEncoding,
    body: Vec<u8>,
    bytes_max: usize,
) -> Result<Vec<u8>, ToolOutcome> {
    if encoding == ContentEncoding::Identity || body.is_empty() {
        return Ok(body);
    }
    let decoding = tokio::task::spawn_blocking(move || decode_now(encoding, &body, bytes_max));
    decoding.await.unwrap_or_else(|_| Err(execution_failed("the response could not be decompressed")))
}

fn decode_now(encoding: ContentEncoding, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, ToolOutcome> {
    // Servers send both formats as "deflate": with the header of zlib, and without.
    let is_zlib = |body: &[u8]| matches!(body, [first, second, ..] if first & 0x0f == 8 && u16::from_be_bytes([*first, *second]).is_multiple_of(31));
    let decoder: Box<dyn Read + '_> = match encoding {
        ContentEncoding::Identity => Box::new(body),
        ContentEncoding::Gzip => Box::new(MultiGzDecoder::new(body)),
        ContentEncoding::Deflate if is_zlib(body) => Box::new(ZlibDecoder::new(body)),
        ContentEncoding::Deflate => Box::new(DeflateDecoder::new(body)),
    };
    let mut decoded = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    decoder
        .take(limit)
        .read_to_end(&mut decoded)
        .map_err(|fault| execution_failed(format!("the response cannot be decompressed: {fault}")))?;
    if decoded.len() > bytes_max {
        return Err(execution_failed(format!("the decompressed response is larger than {bytes_max} bytes")));
    }
    Ok(decoded)
}
