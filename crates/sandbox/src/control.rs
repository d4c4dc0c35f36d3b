//! Frames on the control socket between daemon and helper: a length in four bytes, then JSON. Descriptors are attached to
//! the first byte of a frame.
// tidy: allow retired-word because the kernel calls passed descriptors SCM_RIGHTS

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The kernel's limit for one message.
pub(crate) const DESCRIPTORS_MAX: usize = 253;

/// Longer than any command line that the kernel accepts.
const FRAME_BYTES_MAX: usize = 8 << 20;

/// Encodes a frame.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= FRAME_BYTES_MAX);
    let length =
        length.ok_or_else(|| io::Error::other("the command line and its environment are too long"))?;
    Ok([&length.to_be_bytes(), &body[..]].concat())
}

/// Sends a frame with descriptors. Blocks until the peer has read it.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let frame = encode(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other(format!("more than {DESCRIPTORS_MAX} descriptors")));
    }
    let mut sent = sendmsg(socket, &[IoSlice::new(&frame)], &mut ancillary, SendFlags::NOSIGNAL)?;
    while sent < frame.len() {
        match rustix::net::send(socket, &frame[sent..], SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Receives a frame and its descriptors; none at the end of the stream.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut descriptors = Vec::new();
    let mut head = [0; 4];
    if !fill(socket, &mut head, &mut descriptors)? {
        return Ok(None);
    }
    let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame on the control socket is too long"));
    }
    let mut body = vec![0; length];
    if !fill(socket, &mut body, &mut descriptors)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((serde_json::from_slice(&body)?, descriptors)))
}

/// Reads exactly `bytes`; false if the stream ends before the first byte.
fn fill(socket: BorrowedFd<'_>, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while filled < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut bytes[filled..])];
        let count = match recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        match count {
            0 if filled == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::request::{Order, Report};

    #[test]
    fn frames_carry_their_message_and_descriptors() {
        let (near, far) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(near.as_fd(), &Order::Terminate, &[file.as_fd(), near.as_fd()]).unwrap();
        send(near.as_fd(), &Report::Exited(3), &[]).unwrap();
        drop(near);
        let (order, descriptors) = receive::<Order>(far.as_fd()).unwrap().unwrap();
        assert_eq!((order, descriptors.len()), (Order::Terminate, 2));
        // The stream ends when this copy of its end is closed too.
        drop(descriptors);
        let (report, descriptors) = receive::<Report>(far.as_fd()).unwrap().unwrap();
        assert_eq!((report, descriptors.len()), (Report::Exited(3), 0));
        assert!(receive::<Report>(far.as_fd()).is_ok_and(|frame| frame.is_none()));
    }

    #[test]
    fn frame_that_is_cut_off_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        rustix::net::send(&near, &[0, 0, 0, 9, b'"'], SendFlags::empty()).unwrap();
        drop(near);
        assert!(receive::<Order>(far.as_fd()).is_err());
    }
}
