//! How much a pickle may ask of its reader.

/// Bounds on what one stream may make the reader hold. Exceeding one is an error at the byte that did it.
///
/// The defaults admit every artifact known (a 1 GB one has about a million opcodes) and bound the memory of a
/// hostile stream to some hundred megabytes; [`Limits::small`] is for metadata, where a megabyte is plenty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Values on the stack at once.
    pub stack: usize,
    /// Memo slots: one more than the highest index that may be stored.
    pub memo: usize,
    /// Nesting of values, and of open marks.
    pub depth: u16,
    /// Values made in all.
    pub nodes: usize,
    /// References from containers to their members in all.
    pub edges: usize,
    /// Bytes of one string, number literal or name.
    pub string: usize,
    /// Bytes of all strings together.
    pub text: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            stack: 1 << 20,
            memo: 4 << 20,
            depth: 20_000,
            nodes: 4 << 20,
            edges: 32 << 20,
            string: 16 << 20,
            text: 128 << 20,
        }
    }
}

impl Limits {
    /// For metadata pickles: some kilobytes of names, slices and shapes.
    #[must_use]
    pub fn small() -> Self {
        Limits {
            stack: 1 << 12,
            memo: 1 << 14,
            depth: 64,
            nodes: 1 << 15,
            edges: 1 << 15,
            string: 1 << 12,
            text: 1 << 18,
        }
    }
}
