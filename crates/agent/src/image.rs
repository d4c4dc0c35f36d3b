//! Images of user messages. Rejects a truncated or damaged image before it joins a context, where providers would
//! reject every further request because of it. Validates the container format only and does not decode pixels.

use std::sync::Arc;

/// An image of a user message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its media type, such as `image/png`.
    pub media_type: String,
    /// Its bytes.
    pub data: Arc<[u8]>,
}

/// Why bytes are not a valid image; the text follows the name of the file or parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// The format is unknown or unsupported.
    #[error("is not a supported image: use PNG, JPEG, GIF or WebP")]
    UnsupportedFormat,
    /// The format is known, but the file is truncated or damaged.
    #[error("is {0}, but truncated or damaged")]
    Corrupt(&'static str),
}

impl Image {
    /// Maximum size of an image.
    pub const BYTES_MAX: usize = 5 << 20;

    /// Detects the format of the bytes and validates them.
    ///
    /// # Errors
    /// When the format is unsupported or the image is truncated or damaged.
    pub fn parse(data: Vec<u8>) -> Result<Self, ImageFault> {
        let (media_type, validity) = match data.as_slice() {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', rest @ ..] => {
                ("image/png", validate_png(rest))
            }
            [0xff, 0xd8, rest @ ..] => ("image/jpeg", validate_jpeg(rest)),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', rest @ ..] => ("image/gif", validate_gif(rest)),
            [b'R', b'I', b'F', b'F', a, b, c, d, b'W', b'E', b'B', b'P', rest @ ..] => {
                ("image/webp", validate_webp(u32::from_le_bytes([*a, *b, *c, *d]), rest))
            }
            _ => return Err(ImageFault::UnsupportedFormat),
        };
        if validity.is_none() {
            return Err(ImageFault::Corrupt(media_type));
        }
        Ok(Self { media_type: media_type.to_owned(), data: data.into() })
    }

    /// A number of images, for a message.
    #[must_use]
    pub fn count_label(count: usize) -> String {
        if count == 1 { "1 picture".to_owned() } else { format!("{count} pictures") }
    }
}

/// PNG: chunks of length, name, data and CRC; `IHDR` first, at least one `IDAT`, `IEND` last.
fn validate_png(mut rest: &[u8]) -> Option<()> {
    let (mut is_first, mut has_image_data) = (true, false);
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let chunk = after.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        rest = after.get(chunk.len()..)?.get(4..)?;
        match name {
            b"IHDR" if is_first && chunk.len() == 13 => check_dimensions(&chunk[..4], &chunk[4..8])?,
            _ if is_first => return None,
            b"IDAT" => has_image_data = true,
            b"IEND" => return has_image_data.then_some(()),
            _ => {}
        }
        is_first = false;
    }
}

/// JPEG: segments of marker and length; a frame header, then scan data that contains an end marker.
fn validate_jpeg(mut rest: &[u8]) -> Option<()> {
    let mut has_frame = false;
    loop {
        let at = rest.iter().position(|byte| *byte != 0xff).filter(|at| *at > 0)?;
        let (marker, after) = rest[at..].split_first()?;
        rest = match marker {
            // These have no length.
            0x01 | 0xd0..=0xd7 => after,
            0x00 | 0xd8 | 0xd9 => return None,
            _ => {
                let length = usize::from(u16::from_be_bytes(*after.first_chunk()?));
                let segment = after.get(2..length)?;
                if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
                    check_dimensions(segment.get(1..3)?, segment.get(3..5)?)?;
                    has_frame = true;
                }
                after.get(length..)?
            }
        };
        if *marker == 0xda {
            return (has_frame && rest.windows(2).any(|pair| pair == [0xff, 0xd9])).then_some(());
        }
    }
}

/// GIF: screen descriptor, then extensions and images, each of length-prefixed blocks, and a trailer.
fn validate_gif(rest: &[u8]) -> Option<()> {
    let (screen, after) = rest.split_first_chunk::<7>()?;
    let mut rest = after.get(color_table_bytes(screen[4])..)?;
    let mut has_image_data = false;
    // Some encoders omit the trailer.
    while let Some((kind, after)) = rest.split_first() {
        rest = match kind {
            0x21 => skip_blocks(after.get(1..)?)?,
            0x2c => {
                let (frame, after) = after.split_first_chunk::<9>()?;
                has_image_data = true;
                skip_blocks(after.get(color_table_bytes(frame[8]) + 1..)?)?
            }
            0x3b => break,
            _ => return None,
        };
    }
    has_image_data.then_some(())
}

/// The size of the color table that these flags announce.
fn color_table_bytes(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

fn skip_blocks(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, after) = rest.split_first()?;
        rest = after.get(usize::from(*length)..)?;
        if *length == 0 {
            return Some(rest);
        }
    }
}

/// WebP: the chunks of a RIFF container, of the announced total length.
fn validate_webp(bytes: u32, rest: &[u8]) -> Option<()> {
    let chunks = rest.get(..usize::try_from(bytes).ok()?.checked_sub(4)?)?;
    let (name, after) = chunks.split_first_chunk::<4>()?;
    let (length, after) = after.split_first_chunk::<4>()?;
    after.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    matches!(name, b"VP8 " | b"VP8L" | b"VP8X").then_some(())
}

/// Rejects a width or height of zero.
fn check_dimensions(width: &[u8], height: &[u8]) -> Option<()> {
    let is_nonzero = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    (is_nonzero(width) && is_nonzero(height)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest valid file of each format: one white pixel.
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc\xf8\x0f\0\x01\x01\x01\0\x1b\xb6\xeeV\0\0\0\0IEND\xaeB`\x82";
    const JPEG: &[u8] = b"\xff\xd8\xff\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0?\0T\xff\xd9";
    const GIF: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
    const WEBP: &[u8] = b"RIFF\x1a\0\0\0WEBPVP8L\r\0\0\0/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0";

    #[test]
    fn complete_images_are_accepted_and_truncated_ones_rejected() {
        for (bytes, media_type) in
            [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")]
        {
            let media_type_of = |bytes: &[u8]| Image::parse(bytes.to_vec()).map(|image| image.media_type);
            assert_eq!(media_type_of(bytes), Ok(media_type.to_owned()));
            assert_eq!(
                media_type_of(&[bytes, b"more"].concat()),
                Ok(media_type.to_owned()),
                "trailing bytes are ignored"
            );
            // A GIF without its trailer is valid.
            let shortest = if media_type == "image/gif" { bytes.len() - 1 } else { bytes.len() };
            for length in 0..shortest {
                assert!(
                    media_type_of(&bytes[..length]).is_err(),
                    "{media_type} of {length} bytes was accepted"
                );
            }
        }
    }

    #[test]
    fn signature_alone_is_not_an_image() {
        let noise: Vec<u8> =
            (0..4096_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for (bytes, media_type) in [
            (&PNG[..8], "image/png"),
            (&JPEG[..4], "image/jpeg"),
            (&GIF[..6], "image/gif"),
            (&WEBP[..12], "image/webp"),
        ] {
            for rest in [&noise[..], &[0; 4096]] {
                let fault = Image::parse([bytes, rest].concat()).unwrap_err();
                assert_eq!(fault, ImageFault::Corrupt(media_type));
            }
        }
        assert_eq!(Image::parse(b"hello".to_vec()), Err(ImageFault::UnsupportedFormat));
        let mut zero_width = PNG.to_vec();
        zero_width[19] = 0;
        assert_eq!(Image::parse(zero_width), Err(ImageFault::Corrupt("image/png")), "zero width");
    }
}
