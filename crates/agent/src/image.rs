//! Pictures that a user shows. One that is cut or damaged is refused before it is in a context: models would refuse every
//! question with it, for good. Only its frame is looked at, what it shows is not decoded.

use std::sync::Arc;

/// A picture that a user shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What it is, such as `image/png`.
    pub media_type: String,
    /// Its bytes.
    pub data: Arc<[u8]>,
}

/// Why bytes are no picture; the text goes on behind what they are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// It begins like none that models take.
    #[error("is no picture that models take: PNG, JPEG, GIF or WebP")]
    UnsupportedFormat,
    /// It begins like one.
    #[error("is {0}, but cut or damaged")]
    Corrupt(&'static str),
}

impl Image {
    /// The most bytes a picture may have.
    pub const BYTES_MAX: usize = 5 << 20;

    /// The picture that these bytes are.
    ///
    /// # Errors
    /// When they are none, or not all of one.
    pub fn parse(data: Vec<u8>) -> Result<Self, ImageFault> {
        let (media_type, is_whole) = match data.as_slice() {
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
        if is_whole.is_none() {
            return Err(ImageFault::Corrupt(media_type));
        }
        Ok(Self { media_type: media_type.to_owned(), data: data.into() })
    }

    /// So many pictures, in words.
    #[must_use]
    pub fn count_label(count: usize) -> String {
        if count == 1 { "1 picture".to_owned() } else { format!("{count} pictures") }
    }
}

/// Chunks of a length, a name, so many bytes and a sum: the head first, something to see, the end.
fn validate_png(mut rest: &[u8]) -> Option<()> {
    let (mut is_first, mut is_seen) = (true, false);
    loop {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (name, behind) = behind.split_first_chunk::<4>()?;
        let chunk = behind.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        rest = behind.get(chunk.len()..)?.get(4..)?;
        match name {
            b"IHDR" if is_first && chunk.len() == 13 => check_dimensions(&chunk[..4], &chunk[4..8])?,
            _ if is_first => return None,
            b"IDAT" => is_seen = true,
            b"IEND" => return is_seen.then_some(()),
            _ => {}
        }
        is_first = false;
    }
}

/// Segments of a mark and a length: a frame, then what is seen, which has an end of its own.
fn validate_jpeg(mut rest: &[u8]) -> Option<()> {
    let mut has_frame = false;
    loop {
        let at = rest.iter().position(|byte| *byte != 0xff).filter(|at| *at > 0)?;
        let (mark, behind) = rest[at..].split_first()?;
        rest = match mark {
            // These have no length.
            0x01 | 0xd0..=0xd7 => behind,
            0x00 | 0xd8 | 0xd9 => return None,
            _ => {
                let length = usize::from(u16::from_be_bytes(*behind.first_chunk()?));
                let segment = behind.get(2..length)?;
                if matches!(mark, 0xc0..=0xcf) && !matches!(mark, 0xc4 | 0xc8 | 0xcc) {
                    check_dimensions(segment.get(1..3)?, segment.get(3..5)?)?;
                    has_frame = true;
                }
                behind.get(length..)?
            }
        };
        if *mark == 0xda {
            return (has_frame && rest.windows(2).any(|two| two == [0xff, 0xd9])).then_some(());
        }
    }
}

/// A screen, then extensions and pictures, each of blocks with their length before them, and a mark at the end.
fn validate_gif(rest: &[u8]) -> Option<()> {
    let (screen, behind) = rest.split_first_chunk::<7>()?;
    let mut rest = behind.get(color_table_bytes(screen[4])..)?;
    let mut is_seen = false;
    // Some programs leave the mark out.
    while let Some((kind, behind)) = rest.split_first() {
        rest = match kind {
            0x21 => skip_blocks(behind.get(1..)?)?,
            0x2c => {
                let (frame, behind) = behind.split_first_chunk::<9>()?;
                is_seen = true;
                skip_blocks(behind.get(color_table_bytes(frame[8]) + 1..)?)?
            }
            0x3b => break,
            _ => return None,
        };
    }
    is_seen.then_some(())
}

/// The bytes of the table of colours that these flags tell.
fn color_table_bytes(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

fn skip_blocks(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, behind) = rest.split_first()?;
        rest = behind.get(usize::from(*length)..)?;
        if *length == 0 {
            return Some(rest);
        }
    }
}

/// Chunks, as long together as the file says.
fn validate_webp(bytes: u32, rest: &[u8]) -> Option<()> {
    let chunks = rest.get(..usize::try_from(bytes).ok()?.checked_sub(4)?)?;
    let (name, behind) = chunks.split_first_chunk::<4>()?;
    let (length, behind) = behind.split_first_chunk::<4>()?;
    behind.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    matches!(name, b"VP8 " | b"VP8L" | b"VP8X").then_some(())
}

/// A picture without width or height is none.
fn check_dimensions(one: &[u8], other: &[u8]) -> Option<()> {
    let is_some = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    (is_some(one) && is_some(other)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest of each kind: one white dot.
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc\xf8\x0f\0\x01\x01\x01\0\x1b\xb6\xeeV\0\0\0\0IEND\xaeB`\x82";
    const JPEG: &[u8] = b"\xff\xd8\xff\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0?\0T\xff\xd9";
    const GIF: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
    const WEBP: &[u8] = b"RIFF\x1a\0\0\0WEBPVP8L\r\0\0\0/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0";

    #[test]
    fn whole_pictures_are_taken_and_no_cut_of_one_is() {
        for (bytes, media_type) in
            [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")]
        {
            let of = |bytes: &[u8]| Image::parse(bytes.to_vec()).map(|image| image.media_type);
            assert_eq!(of(bytes), Ok(media_type.to_owned()));
            assert_eq!(
                of(&[bytes, b"more"].concat()),
                Ok(media_type.to_owned()),
                "what is behind it does not matter"
            );
            // Without its last mark a GIF is whole.
            let shortest = if media_type == "image/gif" { bytes.len() - 1 } else { bytes.len() };
            for length in 0..shortest {
                assert!(of(&bytes[..length]).is_err(), "{media_type} of {length} bytes was taken");
            }
        }
    }

    #[test]
    fn a_beginning_alone_is_no_picture() {
        let noise: Vec<u8> =
            (0..4096_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for (bytes, media_type) in [
            (&PNG[..8], "image/png"),
            (&JPEG[..4], "image/jpeg"),
            (&GIF[..6], "image/gif"),
            (&WEBP[..12], "image/webp"),
        ] {
            for rest in [&noise[..], &[0; 4096]] {
                let broken = Image::parse([bytes, rest].concat()).unwrap_err();
                assert_eq!(broken, ImageFault::Corrupt(media_type));
            }
        }
        assert_eq!(Image::parse(b"hello".to_vec()), Err(ImageFault::UnsupportedFormat));
        let mut flat = PNG.to_vec();
        flat[19] = 0;
        assert_eq!(Image::parse(flat), Err(ImageFault::Corrupt("image/png")), "it has no width");
    }
}
