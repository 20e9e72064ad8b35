//! Inflating a zlib stream from plain reads, with a truncated stream told apart from a finished one.

use std::io::{self, BufRead, Read};

use gix::zlib::{Decompress, FlushDecompress, Status};

/// Reads what a zlib stream at the reader's position inflates to. Ends where the stream ends; a reader that ends earlier
/// is an error, never a short content.
pub(crate) struct InflateReader<R> {
    input: R,
    state: Decompress,
    ended: bool,
}

impl<R: BufRead> InflateReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, state: Decompress::new(), ended: false }
    }
}

impl<R: BufRead> Read for InflateReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while !self.ended && filled < out.len() {
            let input = self.input.fill_buf()?;
            let at_end = input.is_empty();
            let (before_in, before_out) = (self.state.total_in(), self.state.total_out());
            let status = self
                .state
                .decompress(input, &mut out[filled..], FlushDecompress::None)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let consumed = (self.state.total_in() - before_in) as usize;
            let written = (self.state.total_out() - before_out) as usize;
            self.input.consume(consumed);
            filled += written;
            self.ended = matches!(status, Status::StreamEnd);
            // The decoder may hold the last bytes of input already, so the end of input alone says nothing.
            if !self.ended && consumed == 0 && written == 0 {
                return Err(if at_end {
                    io::Error::new(io::ErrorKind::UnexpectedEof, "the compressed stream is cut off")
                } else {
                    io::Error::new(io::ErrorKind::InvalidData, "the compressed stream makes no progress")
                });
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// zlib of ten `a`, made with Python's zlib.
    const TEN: [u8; 12] = [0x78, 0x9c, 0x4b, 0x4c, 0x84, 0x01, 0x00, 0x14, 0xe1, 0x03, 0xcb, 0xff];

    #[test]
    fn the_stream_ends_before_what_follows_it() {
        let mut text = String::new();
        InflateReader::new(&TEN[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "aaaaaaaaaa");
    }

    #[test]
    fn every_truncation_is_an_error() {
        for len in 0..11 {
            let mut bytes = Vec::new();
            InflateReader::new(&TEN[..len]).read_to_end(&mut bytes).unwrap_err();
        }
    }

    #[test]
    fn damage_is_an_error() {
        let mut damaged = TEN;
        damaged[10] ^= 1;
        InflateReader::new(&damaged[..]).read_to_end(&mut Vec::new()).unwrap_err();
    }
}
