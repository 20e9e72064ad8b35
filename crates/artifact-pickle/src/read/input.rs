//! Buffered reading that skips: opcodes pass through a small buffer, payloads are seeked over.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use super::error::{Fault, PickleError};

/// Where a pickle is read from: a file, or bytes in memory behind a cursor.
pub trait Source: Read + Seek {}
impl<T: Read + Seek + ?Sized> Source for T {}

/// Refills start small after a seek (what follows a payload is usually a few opcodes) and double up to the whole
/// buffer while reading goes on in sequence.
const FIRST_REFILL: usize = 4 << 10;
const BUFFER: usize = 64 << 10;

/// A window `[start, end)` of the source. All offsets are from the start of the source.
pub(crate) struct Input<'s> {
    source: &'s mut dyn Source,
    buffer: Box<[u8]>,
    head: usize,
    tail: usize,
    /// Source offset of `buffer[tail]`.
    filled_to: u64,
    end: u64,
    refill: usize,
}

impl<'s> Input<'s> {
    pub(crate) fn new(source: &'s mut dyn Source, start: u64, end: u64) -> Result<Self, PickleError> {
        source.seek(SeekFrom::Start(start)).map_err(|e| PickleError::new(start, Fault::Io(e)))?;
        let size = BUFFER.min(usize::try_from(end - start).unwrap_or(BUFFER));
        let buffer = vec![0; size].into_boxed_slice();
        Ok(Input { source, buffer, head: 0, tail: 0, filled_to: start, end, refill: FIRST_REFILL })
    }

    /// Offset of the next byte.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.filled_to - (self.tail - self.head) as u64
    }

    /// Bytes from here to the end of the window.
    #[inline]
    pub(crate) fn left(&self) -> u64 {
        self.end - self.offset()
    }

    #[inline]
    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, PickleError> {
        if self.head == self.tail {
            self.require(1, what)?;
            self.fill()?;
        }
        let byte = self.buffer[self.head];
        self.head += 1;
        Ok(byte)
    }

    /// A fixed-width field.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], PickleError> {
        if let Some(bytes) = self.buffer[self.head..self.tail].first_chunk::<N>() {
            self.head += N;
            return Ok(*bytes);
        }
        self.require(N as u64, what)?;
        let mut out = [0; N];
        for slot in &mut out {
            *slot = self.byte(what)?;
        }
        Ok(out)
    }

    /// Appends the next `count` bytes to `out`.
    pub(crate) fn append_to(
        &mut self,
        out: &mut Vec<u8>,
        count: usize,
        what: &'static str,
    ) -> Result<(), PickleError> {
        self.require(count as u64, what)?;
        let mut wanted = count;
        while wanted > 0 {
            if self.head == self.tail {
                self.fill()?;
            }
            let take = wanted.min(self.tail - self.head);
            out.extend_from_slice(&self.buffer[self.head..self.head + take]);
            self.head += take;
            wanted -= take;
        }
        Ok(())
    }

    /// Appends the bytes before the next newline to `out` and steps over the newline.
    pub(crate) fn line_to(
        &mut self,
        out: &mut Vec<u8>,
        limit: usize,
        what: &'static str,
    ) -> Result<(), PickleError> {
        let (at, first) = (self.offset(), out.len());
        loop {
            if self.head == self.tail {
                self.require(1, what)?;
                self.fill()?;
            }
            let ready = &self.buffer[self.head..self.tail];
            let found = ready.iter().position(|&b| b == b'\n');
            let take = found.unwrap_or(ready.len());
            if out.len() - first + take > limit {
                return Err(PickleError::new(
                    at,
                    Fault::Limit { what: "bytes in a line", limit: limit as u64 },
                ));
            }
            out.extend_from_slice(&ready[..take]);
            self.head += take;
            if found.is_some() {
                self.head += 1;
                return Ok(());
            }
        }
    }

    /// Steps over `count` bytes without reading those that are not buffered already.
    pub(crate) fn skip(&mut self, count: u64, what: &'static str) -> Result<(), PickleError> {
        self.require(count, what)?;
        let buffered = (self.tail - self.head) as u64;
        if count <= buffered {
            self.head += count as usize;
            return Ok(());
        }
        let target = self.offset() + count;
        self.source.seek(SeekFrom::Start(target)).map_err(|e| PickleError::new(target, Fault::Io(e)))?;
        (self.head, self.tail, self.filled_to, self.refill) = (0, 0, target, FIRST_REFILL);
        Ok(())
    }

    /// Refuses a field that reaches beyond the window, before anything is allocated for it.
    #[inline]
    fn require(&self, needed: u64, what: &'static str) -> Result<(), PickleError> {
        let left = self.left();
        if needed > left {
            return Err(PickleError::new(self.offset(), Fault::Truncated { what, needed, left }));
        }
        Ok(())
    }

    #[cold]
    fn fill(&mut self) -> Result<(), PickleError> {
        let left = self.end - self.filled_to;
        let want = (self.refill as u64).min(left).min(self.buffer.len() as u64) as usize;
        self.refill = (self.refill * 2).min(BUFFER);
        let got = loop {
            match self.source.read(&mut self.buffer[..want]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other.map_err(|e| PickleError::new(self.filled_to, Fault::Io(e)))?,
            }
        };
        if got == 0 {
            // The window was measured, so the file shrank while it was read.
            let fault = Fault::Truncated { what: "the stream", needed: left, left: 0 };
            return Err(PickleError::new(self.filled_to, fault));
        }
        (self.head, self.tail) = (0, got);
        self.filled_to += got as u64;
        Ok(())
    }
}
