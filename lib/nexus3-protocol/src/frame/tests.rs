//! Frames split at every byte, at the size limit, and beyond it.

use super::*;

fn stream() -> (Vec<u8>, Vec<Vec<u8>>) {
    let bodies = vec![b"{}".to_vec(), Vec::new(), "héllo".as_bytes().to_vec(), vec![0, 0, 0, 9]];
    let bytes = bodies.iter().flat_map(|body| encode_frame(body).unwrap()).collect();
    (bytes, bodies)
}

fn drain(decoder: &mut FrameDecoder) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| decoder.next_frame().unwrap().map(<[u8]>::to_vec)).collect()
}

#[test]
fn frames_split_at_every_byte_are_decoded() {
    let (bytes, bodies) = stream();
    for cut in 0..=bytes.len() {
        let mut decoder = FrameDecoder::new();
        decoder.feed(&bytes[..cut]);
        let mut frames = drain(&mut decoder);
        decoder.feed(&bytes[cut..]);
        frames.extend(drain(&mut decoder));
        assert_eq!(frames, bodies, "cut at byte {cut}");
        assert!(!decoder.has_partial_frame());
    }
}

#[test]
fn frames_fed_byte_by_byte_are_decoded() {
    let (bytes, bodies) = stream();
    let mut decoder = FrameDecoder::new();
    let mut frames = Vec::new();
    for byte in bytes {
        decoder.feed(&[byte]);
        frames.extend(drain(&mut decoder));
    }
    assert_eq!(frames, bodies);
}

#[test]
fn frame_of_the_maximum_size_is_accepted_one_more_rejected() {
    let body = vec![b' '; FRAME_BYTES_MAX];
    let mut decoder = FrameDecoder::new();
    decoder.feed(&encode_frame(&body).unwrap());
    assert_eq!(decoder.next_frame().unwrap().map(<[u8]>::len), Some(FRAME_BYTES_MAX));
    assert_eq!(
        encode_frame(&vec![b' '; FRAME_BYTES_MAX + 1]),
        Err(FrameTooLarge { announced: FRAME_BYTES_MAX + 1 })
    );
}

#[test]
fn oversized_header_is_rejected_before_the_body_arrives() {
    for announced in [10_485_761_u32, u32::MAX] {
        let mut decoder = FrameDecoder::new();
        decoder.feed(&announced.to_be_bytes());
        assert_eq!(decoder.next_frame(), Err(FrameTooLarge { announced: announced as usize }));
    }
}

#[test]
fn truncated_frame_is_reported_as_partial() {
    let mut decoder = FrameDecoder::new();
    assert!(!decoder.has_partial_frame());
    decoder.feed(&[0, 0, 0, 2, b'{']);
    assert_eq!(decoder.next_frame(), Ok(None));
    assert!(decoder.has_partial_frame());
}
