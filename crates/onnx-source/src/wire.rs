//! Protobuf's wire format over a seeking reader: tags and small fields are read, large ones are stepped over.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use crate::error::{Fault, Refusal};

/// Refills start small after a seek (what follows weights is usually one short message) and double up to the whole
/// buffer while reading goes on in sequence.
const FIRST_REFILL: usize = 1 << 10;
const BUFFER: usize = 64 << 10;

/// Where a model is read from.
pub(crate) trait Source: Read + Seek {}
impl<T: Read + Seek + ?Sized> Source for T {}

/// How a field's value is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    Length,
    Fixed32,
}

/// One field's tag; its value comes next in the reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) number: u64,
    pub(crate) wire: WireType,
    /// Offset of the tag.
    pub(crate) at: u64,
}

/// The end of the message that is being read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) end: u64,
}

pub(crate) struct Wire<'s> {
    source: &'s mut dyn Source,
    buffer: Box<[u8]>,
    head: usize,
    tail: usize,
    /// Source offset of `buffer[tail]`.
    filled_to: u64,
    size: u64,
    refill: usize,
}

impl<'s> Wire<'s> {
    pub(crate) fn new(source: &'s mut dyn Source) -> Result<Self, Refusal> {
        let io = |e| Refusal::new(0, Fault::Io(e));
        let size = source.seek(SeekFrom::End(0)).map_err(io)?;
        source.rewind().map_err(io)?;
        let room = BUFFER.min(usize::try_from(size).unwrap_or(BUFFER));
        let buffer = vec![0; room].into_boxed_slice();
        Ok(Wire { source, buffer, head: 0, tail: 0, filled_to: 0, size, refill: FIRST_REFILL })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The whole file as one message.
    pub(crate) fn whole(&self) -> Message {
        Message { end: self.size }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.filled_to - (self.tail - self.head) as u64
    }

    /// The first bytes of the file, for telling what it is instead of a model.
    pub(crate) fn peek(&mut self) -> Result<&[u8], Refusal> {
        if self.head == self.tail && self.size > 0 {
            self.fill()?;
        }
        Ok(&self.buffer[self.head..self.tail])
    }

    /// The next field of a message, or `None` at its end.
    pub(crate) fn next(&mut self, message: Message) -> Result<Option<Field>, Refusal> {
        let at = self.offset();
        if at == message.end {
            return Ok(None);
        }
        let tag = self.varint(message)?;
        let wire = match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Length,
            5 => WireType::Fixed32,
            other => return Err(Refusal::new(at, Fault::WireType { field: tag >> 3, wire: other as u8 })),
        };
        let number = tag >> 3;
        // Field numbers have 29 bits; 0 is never used.
        if number == 0 || number > 0x1fff_ffff {
            return Err(Refusal::new(at, Fault::FieldNumber(number)));
        }
        Ok(Some(Field { number, wire, at }))
    }

    /// A field's value as a number.
    pub(crate) fn number(&mut self, field: Field, message: Message) -> Result<u64, Refusal> {
        self.expect(field, WireType::Varint)?;
        self.varint(message)
    }

    /// A field's value as a message of its own.
    pub(crate) fn message(&mut self, field: Field, parent: Message) -> Result<Message, Refusal> {
        self.expect(field, WireType::Length)?;
        let len = self.varint(parent)?;
        let left = parent.end.saturating_sub(self.offset());
        if len > left {
            return Err(Refusal::new(field.at, self.overrun(field, len, left, parent)));
        }
        Ok(Message { end: self.offset() + len })
    }

    /// A field's value as text of at most `limit` bytes.
    pub(crate) fn text(&mut self, field: Field, parent: Message, limit: usize) -> Result<String, Refusal> {
        let value = self.message(field, parent)?;
        let len = value.end - self.offset();
        if len > limit as u64 {
            return Err(Refusal::new(field.at, Fault::TooLong { field: field.number, len, limit }));
        }
        let mut bytes = vec![0; len as usize];
        for slot in &mut bytes {
            *slot = self.byte()?;
        }
        String::from_utf8(bytes).map_err(|_| Refusal::new(field.at, Fault::NotUtf8(field.number)))
    }

    /// Steps over a field's value; returns its length.
    pub(crate) fn skip(&mut self, field: Field, parent: Message) -> Result<u64, Refusal> {
        let len = match field.wire {
            WireType::Varint => {
                self.varint(parent)?;
                return Ok(0);
            }
            WireType::Fixed32 => 4,
            WireType::Fixed64 => 8,
            WireType::Length => {
                let value = self.message(field, parent)?;
                value.end - self.offset()
            }
        };
        let left = parent.end - self.offset();
        if len > left {
            return Err(Refusal::new(field.at, self.overrun(field, len, left, parent)));
        }
        self.seek_over(len)?;
        Ok(len)
    }

    fn expect(&self, field: Field, wire: WireType) -> Result<(), Refusal> {
        if field.wire == wire {
            return Ok(());
        }
        let got = match field.wire {
            WireType::Varint => 0,
            WireType::Fixed64 => 1,
            WireType::Length => 2,
            WireType::Fixed32 => 5,
        };
        Err(Refusal::new(field.at, Fault::WireType { field: field.number, wire: got }))
    }

    /// What reaches past the file is a cut copy; what reaches past its parent is damage.
    fn overrun(&self, field: Field, len: u64, left: u64, parent: Message) -> Fault {
        if parent.end == self.size {
            Fault::Truncated { size: self.size, missing: len - left }
        } else {
            Fault::Overrun { field: field.number, by: len - left }
        }
    }

    fn varint(&mut self, message: Message) -> Result<u64, Refusal> {
        let at = self.offset();
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            if self.offset() >= message.end {
                let fault = if message.end == self.size {
                    Fault::Truncated { size: self.size, missing: 1 }
                } else {
                    Fault::Varint
                };
                return Err(Refusal::new(at, fault));
            }
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Refusal::new(at, Fault::Varint))
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Refusal> {
        if self.head == self.tail {
            self.fill()?;
        }
        let byte = self.buffer[self.head];
        self.head += 1;
        Ok(byte)
    }

    fn seek_over(&mut self, len: u64) -> Result<(), Refusal> {
        let buffered = (self.tail - self.head) as u64;
        if len <= buffered {
            self.head += len as usize;
            return Ok(());
        }
        let target = self.offset() + len;
        self.source.seek(SeekFrom::Start(target)).map_err(|e| Refusal::new(target, Fault::Io(e)))?;
        (self.head, self.tail, self.filled_to, self.refill) = (0, 0, target, FIRST_REFILL);
        Ok(())
    }

    #[cold]
    fn fill(&mut self) -> Result<(), Refusal> {
        let left = self.size - self.filled_to;
        let want = (self.refill as u64).min(left).min(self.buffer.len() as u64) as usize;
        self.refill = (self.refill * 2).min(BUFFER);
        let got = loop {
            match self.source.read(&mut self.buffer[..want]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other.map_err(|e| Refusal::new(self.filled_to, Fault::Io(e)))?,
            }
        };
        if got == 0 {
            let fault = Fault::Truncated { size: self.filled_to, missing: left.max(1) };
            return Err(Refusal::new(self.filled_to, fault));
        }
        (self.head, self.tail) = (0, got);
        self.filled_to += got as u64;
        Ok(())
    }
}
