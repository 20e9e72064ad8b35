//! Frames: a number, a kind, and a body of bounded length.

use std::io::{self, Read};

/// Bytes before each body: length, request, kind, three zeros.
pub(crate) const HEADER: usize = 12;
/// Body of a data frame. With its header it fills eight packets of 32 KiB.
pub(crate) const DATA: usize = 256 * 1024 - HEADER;
/// No body is longer than this; a longer one means that the stream is damaged.
pub(crate) const MAX_BODY: usize = 8 << 20;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request, as JSON.
    Request,
    /// Bytes of a file, an event file or a result.
    Data,
    /// The end of a put's data, as JSON.
    End,
    /// The beginning of an answer with data, as JSON.
    Begin,
    /// The answer, as JSON; the last frame of a request.
    Reply,
    /// Why there is no answer, as JSON; the last frame of a request.
    Fault,
    /// A sign of life.
    Ping,
    /// The host no longer wants what it asked for.
    Abandon,
}

const KINDS: [Kind; 8] =
    [Kind::Request, Kind::Data, Kind::End, Kind::Begin, Kind::Reply, Kind::Fault, Kind::Ping, Kind::Abandon];

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: usize,
    pub(crate) request: u32,
    pub(crate) kind: Kind,
}

impl Header {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a body is bounded by MAX_BODY and there are eight kinds"
    )]
    pub(crate) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.request.to_le_bytes());
        bytes[8] = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u8;
        bytes
    }

    pub(crate) fn decode(bytes: [u8; HEADER]) -> io::Result<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let damaged =
            || io::Error::new(io::ErrorKind::InvalidData, "the stream between host and device is damaged");
        let length = word(0) as usize;
        let kind = *KINDS.get(usize::from(bytes[8])).ok_or_else(damaged)?;
        if length > MAX_BODY || bytes[9..] != [0; 3] {
            return Err(damaged());
        }
        Ok(Self { length, request: word(4), kind })
    }
}

/// A frame as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) request: u32,
    pub(crate) kind: Kind,
    pub(crate) body: Vec<u8>,
}

/// Writes the header of a frame whose first bytes were kept free for it.
pub(crate) fn stamp(frame: &mut [u8], request: u32, kind: Kind) {
    let header = Header { length: frame.len() - HEADER, request, kind };
    frame[..HEADER].copy_from_slice(&header.encode());
}

/// Header and body in one piece, to be sent.
pub(crate) fn encode(request: u32, kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&Header { length: body.len(), request, kind }.encode());
    bytes.extend_from_slice(body);
    bytes
}

/// The next frame, its body in the memory of `spare`; `None` at the end of the stream, an error where it ends within a frame.
pub(crate) fn read(input: &mut impl Read, spare: Vec<u8>) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER];
    let mut filled = 0;
    while filled < HEADER {
        match input.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let header = Header::decode(header)?;
    let mut body = spare;
    body.resize(header.length, 0);
    input.read_exact(&mut body)?;
    Ok(Some(Frame { request: header.request, kind: header.kind, body }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_back(request: u32, kind in 0..8_usize, body in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let bytes = encode(request, KINDS[kind], &body);
            let mut stamped = [vec![0; HEADER], body.clone()].concat();
            stamp(&mut stamped, request, KINDS[kind]);
            prop_assert_eq!(&bytes, &stamped);
            let frame = read(&mut bytes.as_slice(), vec![1; 700]).unwrap().unwrap();
            prop_assert_eq!(frame, Frame { request, kind: KINDS[kind], body });
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&mut bytes.as_slice(), Vec::new());
        }
    }

    #[test]
    fn an_end_within_a_frame_is_an_error() {
        let bytes = encode(1, Kind::Data, b"abc");
        assert!(read(&mut &bytes[..0], Vec::new()).unwrap().is_none());
        for end in 1..bytes.len() {
            assert_eq!(
                read(&mut &bytes[..end], Vec::new()).unwrap_err().kind(),
                io::ErrorKind::UnexpectedEof,
                "{end}"
            );
        }
    }
}
