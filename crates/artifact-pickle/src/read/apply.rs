//! What the opcodes do to containers, objects, payloads and frames.

use super::error::{Fault, PickleError};
use super::graph::{Construction, Payload, PayloadKind};
use super::machine::{Machine, Width};
use super::opcode as op;

type Result<T> = std::result::Result<T, PickleError>;

impl Machine<'_> {
    pub(super) fn append_one(&mut self) -> Result<()> {
        let target = self.require(2, "APPEND")?;
        self.build.append(self.stack[target], &self.stack[target + 1..], op::APPEND, self.at)?;
        self.stack.truncate(target + 1);
        Ok(())
    }

    pub(super) fn append_many(&mut self, code: u8) -> Result<()> {
        let name = op::name(code);
        let items = self.since_mark(name)?;
        if items <= self.fence {
            return Err(self.fault(Fault::StackUnderflow(name)));
        }
        self.build.append(self.stack[items - 1], &self.stack[items..], code, self.at)?;
        self.stack.truncate(items);
        Ok(())
    }

    pub(super) fn set_items(&mut self, items: usize, name: &'static str) -> Result<()> {
        if items <= self.fence {
            return Err(self.fault(Fault::StackUnderflow(name)));
        }
        self.build.set_items(self.stack[items - 1], &self.stack[items..], name, self.at)?;
        self.stack.truncate(items);
        Ok(())
    }

    pub(super) fn collect(&mut self, code: u8) -> Result<()> {
        let from = self.since_mark(op::name(code))?;
        let items = &self.stack[from..];
        let id = match code {
            op::LIST => self.build.list_of(items, self.at)?,
            op::DICT => self.build.dict_of(items, self.at)?,
            _ => self.build.frozen_set(items, self.at)?,
        };
        self.stack.truncate(from);
        self.push(id)
    }

    // --- objects ---

    pub(super) fn object(&mut self, name: &'static str, construction: Construction) -> Result<()> {
        let from = self.require(2, name)?;
        let (callable, args) = (self.stack[from], self.stack[from + 1]);
        let id = self.build.object(construction, callable, args, None, self.at)?;
        self.stack.truncate(from);
        self.push(id)
    }

    pub(super) fn new_object_ex(&mut self) -> Result<()> {
        let from = self.require(3, "NEWOBJ_EX")?;
        let (class, args, kwargs) = (self.stack[from], self.stack[from + 1], self.stack[from + 2]);
        let id = self.build.object(Construction::NewEx, class, args, Some(kwargs), self.at)?;
        self.stack.truncate(from);
        self.push(id)
    }

    pub(super) fn instance(&mut self, code: u8) -> Result<()> {
        let name = op::name(code);
        let from = self.since_mark(name)?;
        let (class, args) = if code == op::OBJ {
            let Some(&class) = self.stack.get(from) else {
                return Err(self.fault(Fault::StackUnderflow(name)));
            };
            (class, from + 1)
        } else {
            (self.build.global_lines(&mut self.input, self.at, name)?, from)
        };
        let args = self.build.tuple(&self.stack[args..], self.at)?;
        let id = self.build.object(Construction::Instance, class, args, None, self.at)?;
        self.stack.truncate(from);
        self.push(id)
    }

    pub(super) fn build_state(&mut self) -> Result<()> {
        let target = self.require(2, "BUILD")?;
        self.build.set_state(self.stack[target], self.stack[target + 1], self.at)?;
        self.stack.truncate(target + 1);
        Ok(())
    }

    pub(super) fn stack_global(&mut self) -> Result<()> {
        let from = self.require(2, "STACK_GLOBAL")?;
        let id = self.build.global(self.stack[from], self.stack[from + 1], self.at)?;
        self.stack.truncate(from);
        self.push(id)
    }

    pub(super) fn extension(&mut self, code: u8) -> Result<()> {
        let number = match code {
            op::EXT1 => u32::from(self.input.byte("EXT1")?),
            op::EXT2 => u32::from(u16::from_le_bytes(self.input.array("EXT2")?)),
            _ => u32::from_le_bytes(self.input.array("EXT4")?),
        };
        Err(self.fault(Fault::Extension(number)))
    }

    // --- payloads, framing ---

    pub(super) fn payload(&mut self, kind: PayloadKind, width: Width) -> Result<()> {
        let len = width.read(&mut self.input, "bytes")?;
        let offset = self.input.offset();
        self.input.skip(len, "bytes")?;
        let id = self.build.payload(Payload { offset, len, kind }, self.at)?;
        self.push(id)
    }

    pub(super) fn next_buffer(&mut self) -> Result<()> {
        let Some(&buffer) = self.buffers.get(self.next_buffer) else {
            return Err(self.fault(Fault::BufferMissing(self.next_buffer)));
        };
        self.next_buffer += 1;
        let id = self.build.payload(buffer, self.at)?;
        self.push(id)
    }

    pub(super) fn read_only(&mut self) -> Result<()> {
        let top = self.pop("READONLY_BUFFER")?;
        let id = self.build.read_only(top, self.at)?;
        self.push(id)
    }

    pub(super) fn protocol(&mut self) -> Result<()> {
        self.protocol = self.input.byte("PROTO")?;
        if self.protocol > 5 { Err(self.fault(Fault::Protocol(self.protocol))) } else { Ok(()) }
    }

    pub(super) fn frame(&mut self) -> Result<()> {
        let len = u64::from_le_bytes(self.input.array("FRAME")?);
        if self.frame_end != 0 {
            return Err(self.fault(Fault::Frame("a frame starts inside another")));
        }
        if len > self.input.left() {
            let fault = Fault::Truncated { what: "a frame", needed: len, left: self.input.left() };
            return Err(self.fault(fault));
        }
        self.frame_end = self.input.offset() + len;
        Ok(())
    }

    /// An opcode that straddles the frame's end would be read differently by loaders that buffer frames.
    pub(super) fn leave_frame(&mut self) -> Result<()> {
        let cut = self.at > self.frame_end;
        self.frame_end = 0;
        if cut { Err(self.fault(Fault::Frame("an opcode crosses the end of its frame"))) } else { Ok(()) }
    }
}
