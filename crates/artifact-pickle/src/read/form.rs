//! The two forms of a file: a plain pickle, or opcodes with their buffers behind them.
//!
//! Out of band: little-endian int64 length of the opcode stream, the protocol-5 opcodes, then for each buffer an
//! int64 length and its bytes, to the end of the file. A loader streams the weights and never holds them twice.

use std::io::SeekFrom;

use super::error::{Fault, PickleError};
use super::graph::{Graph, Payload, PayloadKind};
use super::input::{Input, Source};
use super::limits::Limits;
use super::machine::Machine;

/// Buffers that a file may bring; a driving model has some hundred.
const MAX_BUFFERS: usize = 1 << 18;

impl Graph {
    /// Reads a file of either form.
    ///
    /// # Errors
    /// The first fault of the stream, at its byte offset.
    pub fn read(source: &mut dyn Source, limits: &Limits) -> Result<Graph, PickleError> {
        let io = |e| PickleError::new(0, Fault::Io(e));
        let end = source.seek(SeekFrom::End(0)).map_err(io)?;
        if end == 0 {
            return Err(PickleError::new(0, Fault::Empty));
        }
        let Some(stream_end) = out_of_band_end(source, end)? else {
            return run(source, 0, end, Vec::new(), limits);
        };
        let buffers = list_buffers(source, stream_end, end)?;
        let mut graph = run(source, 8, stream_end, buffers, limits)?;
        graph.out_of_band = true;
        Ok(graph)
    }

    /// Reads a plain pickle from memory.
    ///
    /// # Errors
    /// The first fault of the stream, at its byte offset.
    pub fn read_bytes(bytes: &[u8], limits: &Limits) -> Result<Graph, PickleError> {
        if bytes.is_empty() {
            return Err(PickleError::new(0, Fault::Empty));
        }
        run(&mut std::io::Cursor::new(bytes), 0, bytes.len() as u64, Vec::new(), limits)
    }
}

fn run(
    source: &mut dyn Source,
    start: u64,
    end: u64,
    buffers: Vec<Payload>,
    limits: &Limits,
) -> Result<Graph, PickleError> {
    Machine::new(Input::new(source, start, end)?, buffers, *limits).run()
}

/// Where the opcode stream ends, for a file of the out-of-band form.
fn out_of_band_end(source: &mut dyn Source, end: u64) -> Result<Option<u64>, PickleError> {
    const HEAD: u64 = 8 + 2;
    if end < HEAD {
        return Ok(None);
    }
    let mut input = Input::new(source, 0, HEAD)?;
    let length = input.array::<8>("the length of the opcode stream")?;
    let proto = input.array::<2>("the protocol of the opcode stream")?;
    let plain = length[0] == 0x80 && (2..=5).contains(&length[1]);
    let (length, fits) = (u64::from_le_bytes(length), proto == [0x80, 5]);
    match 8u64.checked_add(length) {
        Some(stream_end) if fits && length >= 3 && stream_end <= end => {
            if plain {
                return Err(PickleError::new(0, Fault::AmbiguousForm));
            }
            Ok(Some(stream_end))
        }
        Some(_) if fits && !plain && length > 0 && length < i64::MAX as u64 => {
            let fault = Fault::Truncated { what: "the opcode stream", needed: length, left: end - 8 };
            Err(PickleError::new(0, fault))
        }
        _ => Ok(None),
    }
}

fn list_buffers(source: &mut dyn Source, start: u64, end: u64) -> Result<Vec<Payload>, PickleError> {
    let mut input = Input::new(source, start, end)?;
    let mut buffers = Vec::new();
    while input.left() > 0 {
        let at = input.offset();
        let len = i64::from_le_bytes(input.array("the length of an out-of-band buffer")?);
        let what = "an out-of-band buffer";
        let fault = Fault::Length { what, length: i128::from(len) };
        let len = u64::try_from(len).map_err(|_| PickleError::new(at, fault))?;
        if buffers.len() >= MAX_BUFFERS {
            let fault = Fault::Limit { what: "out-of-band buffers", limit: MAX_BUFFERS as u64 };
            return Err(PickleError::new(at, fault));
        }
        let kind = PayloadKind::Buffer { index: buffers.len(), read_only: false };
        buffers.push(Payload { offset: input.offset(), len, kind });
        input.skip(len, what)?;
    }
    Ok(buffers)
}
