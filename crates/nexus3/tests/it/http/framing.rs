//! Memory that hostile framing of bodies takes from the daemon.

use testkit::http::{LIST_AGENTS, RequestBuilder, assert_refused, request_once};

use crate::http::daemon;

#[test]
fn flood_of_chunk_framing_is_refused() {
    let daemon = daemon().start();
    let letters: Vec<&[u8]> = LIST_AGENTS.as_bytes().chunks(1).collect();
    let extended = |letter: &[u8]| [b"1;", &[b'e'; 1024][..], b"\r\n", letter, b"\r\n"].concat();
    let extensions: Vec<u8> = letters.iter().flat_map(|letter| extended(letter)).collect();
    let trailers: String = (0..10_000).map(|number| format!("A{number}: b\r\n")).collect();
    let floods = [
        ("extensions", [&extensions[..], b"0\r\n\r\n"].concat()),
        ("one extension", [b"2f;", &[b'e'; 200_000][..]].concat()),
        ("trailers", format!("2f\r\n{LIST_AGENTS}\r\n0\r\n{trailers}\r\n").into_bytes()),
        ("one trailer", [format!("2f\r\n{LIST_AGENTS}\r\n0\r\nA: ").as_bytes(), &[b'v'; 200_000]].concat()),
        ("zeros", vec![b'0'; 3_000_000]),
    ];
    for (name, body) in floods {
        let first = RequestBuilder::valid(&daemon).framed(body).bytes();
        let response = request_once(name, &daemon, &first);
        assert_refused(name, &response, 400, "Invalid chunked body");
    }
}
