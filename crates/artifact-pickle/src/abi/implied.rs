//! What a use says about an operation, whatever its number: a kernel's source cannot hang on an addition.
//!
//! Enum values shift between revisions. A number that still is a member would load and compute something else, so each
//! operation is compared with what is done with it.

use crate::read::{Graph, Kind, NodeId, Value};

/// Operations by the number of sources that each takes in every known revision.
const ONE_SOURCE: &[&str] =
    &["EXP2", "LOG2", "SIN", "SQRT", "RECIPROCAL", "NEG", "TRUNC", "CAST", "BITCAST", "GEP"];
const TWO_SOURCES: &[&str] = &[
    "ADD", "MUL", "SHL", "SHR", "IDIV", "CDIV", "FLOORDIV", "FDIV", "MAX", "MOD", "CMOD", "FLOORMOD",
    "CMPLT", "CMPNE", "CMPEQ", "XOR", "OR", "AND", "SUB", "POW", "THREEFRY",
];
const THREE_SOURCES: &[&str] = &["WHERE", "MULACC"];
const NO_SOURCE: &[&str] = &["SOURCE", "BINARY", "DEVICE", "UNIQUE", "LUNIQUE"];

/// Operations that may carry a `ParamArg`.
const PARAMETERS: &[&str] =
    &["PARAM", "BUFFER", "DEFINE_GLOBAL", "DEFINE_LOCAL", "DEFINE_REG", "DEFINE_VAR", "SPECIAL"];

/// An operation as it is used.
pub(super) struct Use<'g> {
    pub(super) graph: &'g Graph,
    pub(super) sources: Option<usize>,
    pub(super) arg: Option<NodeId>,
    pub(super) has_buffer: bool,
}

/// What the use is, and the operations that it can belong to, where `op` is none of them.
pub(super) fn contradiction(op: &str, used: &Use<'_>) -> Option<(&'static str, String)> {
    let (what, allowed): (_, &[&str]) = used.by_parts()?;
    if !allowed.contains(&op) {
        return Some((what, allowed.join(" or ")));
    }
    None
}

/// Where the number of sources or the argument is not what the operation takes.
pub(super) fn misfit(op: &str, used: &Use<'_>) -> Option<String> {
    let wanted = [(NO_SOURCE, 0), (ONE_SOURCE, 1), (TWO_SOURCES, 2), (THREE_SOURCES, 3)]
        .into_iter()
        .find(|(ops, _)| ops.contains(&op))
        .map(|(_, count)| count);
    if let (Some(wanted), Some(given)) = (wanted, used.sources)
        && wanted != given
    {
        return Some(format!("takes {wanted} sources and has {given}"));
    }
    let kind = used.arg.map(|id| used.graph.kind(id));
    let fits = match op {
        "SOURCE" | "DEVICE" => kind == Some(Kind::Str),
        "BINARY" => kind == Some(Kind::Bytes),
        "CONST" => !matches!(kind, None | Some(Kind::None)),
        _ => true,
    };
    (!fits).then(|| format!("cannot have {} as its argument", kind.unwrap_or(Kind::None)))
}

impl Use<'_> {
    fn by_parts(&self) -> Option<(&'static str, &'static [&'static str])> {
        if self.has_buffer {
            return Some(("a buffer is set", &["BUFFER"]));
        }
        match self.graph.value(self.arg?) {
            Value::Bytes(_) => Some(("it carries a compiled kernel", &["BINARY"])),
            Value::Tuple(items) if items.iter().any(|id| self.is_made_by(*id, "AxisType")) => {
                Some(("it carries a loop axis", &["RANGE"]))
            }
            Value::Object(object) => match self.graph.as_global(object.callable)?.name.as_str()? {
                "ProgramInfo" => Some(("it carries a program", &["PROGRAM"])),
                "KernelInfo" => Some(("it carries a kernel's settings", &["SINK"])),
                "CallInfo" => Some(("it carries a call", &["CALL", "FUNCTION"])),
                "ConstFloat" => Some(("it carries a constant", &["CONST"])),
                "ParamArg" => Some(("it carries a parameter", PARAMETERS)),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_made_by(&self, id: NodeId, name: &str) -> bool {
        self.graph.class_of(id).is_some_and(|class| class.name.as_bytes() == name.as_bytes())
    }
}
