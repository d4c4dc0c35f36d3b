//! Frames cut at every byte, at the size limit, and beyond it.

use super::*;

fn stream() -> (Vec<u8>, Vec<Vec<u8>>) {
    let bodies = vec![b"{}".to_vec(), Vec::new(), "héllo".as_bytes().to_vec(), vec![0, 0, 0, 9]];
    let bytes = bodies.iter().flat_map(|body| encode_frame(body).unwrap()).collect();
    (bytes, bodies)
}

fn drain(reader: &mut FrameDecoder) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| reader.next_frame().unwrap().map(<[u8]>::to_vec)).collect()
}

#[test]
fn frames_split_at_every_byte_come_out_whole() {
    let (bytes, bodies) = stream();
    for cut in 0..=bytes.len() {
        let mut reader = FrameDecoder::new();
        reader.feed(&bytes[..cut]);
        let mut frames = drain(&mut reader);
        reader.feed(&bytes[cut..]);
        frames.extend(drain(&mut reader));
        assert_eq!(frames, bodies, "cut at byte {cut}");
        assert!(!reader.has_partial_frame());
    }
}

#[test]
fn frames_fed_one_byte_at_a_time_come_out_whole() {
    let (bytes, bodies) = stream();
    let mut reader = FrameDecoder::new();
    let mut frames = Vec::new();
    for byte in bytes {
        reader.feed(&[byte]);
        frames.extend(drain(&mut reader));
    }
    assert_eq!(frames, bodies);
}

#[test]
fn the_largest_frame_passes_and_one_more_byte_is_refused() {
    let body = vec![b' '; FRAME_BYTES_MAX];
    let mut reader = FrameDecoder::new();
    reader.feed(&encode_frame(&body).unwrap());
    assert_eq!(reader.next_frame().unwrap().map(<[u8]>::len), Some(FRAME_BYTES_MAX));
    assert_eq!(
        encode_frame(&vec![b' '; FRAME_BYTES_MAX + 1]),
        Err(FrameTooLarge { announced: FRAME_BYTES_MAX + 1 })
    );
}

#[test]
fn a_header_that_announces_too_much_is_refused_before_its_body_comes() {
    for announced in [10_485_761_u32, u32::MAX] {
        let mut reader = FrameDecoder::new();
        reader.feed(&announced.to_be_bytes());
        assert_eq!(reader.next_frame(), Err(FrameTooLarge { announced: announced as usize }));
    }
}

#[test]
fn a_cut_frame_is_seen_as_unfinished() {
    let mut reader = FrameDecoder::new();
    assert!(!reader.has_partial_frame());
    reader.feed(&[0, 0, 0, 2, b'{']);
    assert_eq!(reader.next_frame(), Ok(None));
    assert!(reader.has_partial_frame());
}
