//! Compares what an artifact relies on with what a tinygrad offers, in the order in which a loader would meet it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Serialize;

use super::implied::{self, Use};
use super::{AbiClass, AbiDescription};
use crate::read::{Construction, Global, Graph, NodeId, Object, Value};

const OPS: &str = "tinygrad.uop:Ops";

/// Something that the described tinygrad would not load, or would load as something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AbiProblem {
    /// Offset of the first opcode concerned.
    pub offset: u64,
    /// How often it occurs.
    pub count: usize,
    /// What is wrong.
    #[serde(flatten)]
    pub kind: AbiProblemKind,
}

/// The kinds of mismatch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are what their names say; the messages spell them out")]
#[non_exhaustive]
pub enum AbiProblemKind {
    /// A class or function that this tinygrad does not have, or that its description does not know.
    UnknownGlobal { name: String },
    /// A constructor that takes another number of positional arguments.
    Arity { class: String, given: usize, min: usize, max: Option<usize> },
    /// A function where a class is used, or the reverse.
    NotAClass { name: String },
    /// A number that is no member of the enum.
    EnumValue { of: String, value: String },
    /// State that sets unknown fields or leaves some out.
    State { class: String, unknown: Vec<String>, missing: Vec<String> },
    /// An operation whose number means another one here than its use implies.
    Implied { value: i64, op: String, used: &'static str, expected: String },
    /// An operation whose number means one here that cannot be used this way.
    Misfit { value: i64, op: String, why: String },
}

impl fmt::Display for AbiProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownGlobal { name } => write!(f, "there is no {name}"),
            Self::NotAClass { name } => write!(f, "{name} is no class that can be made this way"),
            Self::Arity { class, given, min, max } => match max {
                Some(max) if min == max => {
                    write!(f, "{class} takes {min} positional arguments, {given} are given")
                }
                Some(max) => {
                    write!(f, "{class} takes {min} to {max} positional arguments, {given} are given")
                }
                None => write!(f, "{class} takes at least {min} positional arguments, {given} are given"),
            },
            Self::EnumValue { of, value } => write!(f, "{value} is not a valid {of}"),
            Self::State { class, unknown, missing } => {
                write!(f, "the state of {class} does not fit")?;
                if !unknown.is_empty() {
                    write!(f, "; unknown: {}", unknown.join(", "))?;
                }
                if !missing.is_empty() {
                    write!(f, "; missing: {}", missing.join(", "))?;
                }
                Ok(())
            }
            Self::Implied { value, op, used, expected } => {
                write!(f, "{used} for Ops.{op} ({value}), which only Ops.{expected} may have")
            }
            Self::Misfit { value, op, why } => write!(f, "Ops.{op} ({value}) {why}"),
        }
    }
}

impl fmt::Display for AbiProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {}", self.kind, self.offset)?;
        if self.count > 1 { write!(f, ", {} times)", self.count) } else { f.write_str(")") }
    }
}

/// All mismatches of one artifact with one tinygrad, in stream order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The tinygrad that was described.
    pub tinygrad: String,
    /// Digest of the description.
    pub digest: String,
    /// What does not fit; empty where everything does.
    pub problems: Vec<AbiProblem>,
}

impl Mismatch {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.problems.is_empty()
    }
}

impl AbiDescription {
    /// Compares an artifact with this tinygrad.
    #[must_use]
    pub fn compare(&self, graph: &Graph) -> Mismatch {
        self.compare_parts(graph, true)
    }

    /// Compares names only: much cheaper, and enough to tell most revisions apart.
    #[must_use]
    pub fn compare_names(&self, graph: &Graph) -> Mismatch {
        self.compare_parts(graph, false)
    }

    fn compare_parts(&self, graph: &Graph, objects: bool) -> Mismatch {
        let mut check =
            Check { abi: self, graph, ops: self.members(OPS), resolved: HashMap::new(), found: Vec::new() };
        check.globals();
        if objects {
            graph.objects().for_each(|object| check.object(object));
        }
        Mismatch {
            tinygrad: self.tinygrad.clone(),
            digest: self.digest().to_string(),
            problems: condensed(check.found),
        }
    }
}

/// Stream order, equal problems counted.
fn condensed(mut found: Vec<(u64, AbiProblemKind)>) -> Vec<AbiProblem> {
    found.sort_by_key(|(offset, _)| *offset);
    let mut places: HashMap<AbiProblemKind, usize> = HashMap::new();
    let mut problems: Vec<AbiProblem> = Vec::new();
    for (offset, kind) in found {
        match places.get(&kind) {
            Some(at) => problems[*at].count += 1,
            None => {
                places.insert(kind.clone(), problems.len());
                problems.push(AbiProblem { offset, count: 1, kind });
            }
        }
    }
    problems
}

#[derive(Clone, Copy)]
enum Resolved<'a> {
    Enum(&'a str, &'a BTreeMap<String, i64>),
    Class { class: &'a AbiClass, is_operation: bool },
    Unknown,
}

struct Check<'a> {
    abi: &'a AbiDescription,
    graph: &'a Graph,
    ops: HashMap<i64, &'a str>,
    /// What each global node stands for here; a class is named once and used thousands of times.
    resolved: HashMap<NodeId, Resolved<'a>>,
    found: Vec<(u64, AbiProblemKind)>,
}

impl<'a> Check<'a> {
    fn report(&mut self, offset: u64, kind: AbiProblemKind) {
        self.found.push((offset, kind));
    }

    fn globals(&mut self) {
        for global in self.graph.globals() {
            if global.module.as_bytes() == b"builtins" {
                continue;
            }
            let key = key_of(global);
            if !self.abi.classes.contains_key(&key) && !self.abi.enums.contains_key(&key) {
                self.report(global.offset, AbiProblemKind::UnknownGlobal { name: global.to_string() });
            }
        }
    }

    fn resolve(&mut self, callable: NodeId, global: Global<'_>) -> Resolved<'a> {
        let abi = self.abi;
        *self.resolved.entry(callable).or_insert_with(|| {
            let key = key_of(global);
            match (abi.enums.get_key_value(&key), abi.classes.get(&key)) {
                (Some((key, members)), _) => Resolved::Enum(key, members),
                (None, Some(class)) => Resolved::Class { class, is_operation: key == "tinygrad.uop.ops:UOp" },
                (None, None) => Resolved::Unknown,
            }
        })
    }

    fn object(&mut self, object: Object<'a>) {
        let Some(global) = self.graph.as_global(object.callable) else { return };
        let args = self.graph.as_tuple(object.args).unwrap_or_default();
        match self.resolve(object.callable, global) {
            Resolved::Enum(key, members) => self.member(object.offset, key, members, args),
            Resolved::Class { class, is_operation } => {
                self.construction(&object, global, class, args);
                self.state(&object, global, class);
                if is_operation {
                    self.operation(object.offset, class, args);
                }
            }
            Resolved::Unknown => {}
        }
    }

    fn member(&mut self, offset: u64, key: &str, members: &BTreeMap<String, i64>, args: &[NodeId]) {
        let value = args.first().and_then(|id| self.graph.as_int(*id)).filter(|_| args.len() == 1);
        if !value.is_some_and(|value| members.values().any(|member| *member == value)) {
            let value = args.first().map_or_else(|| "()".to_owned(), |id| self.graph.show(*id).to_string());
            let of = key.rsplit(':').next().unwrap_or(key).to_owned();
            self.report(offset, AbiProblemKind::EnumValue { of, value });
        }
    }

    fn construction(&mut self, object: &Object<'a>, global: Global<'_>, class: &AbiClass, args: &[NodeId]) {
        if object.construction == Construction::New && class.kind != "class" {
            self.report(object.offset, AbiProblemKind::NotAClass { name: global.to_string() });
            return;
        }
        if object.construction == Construction::New && args.is_empty() {
            // `__new__` alone, then the state: no constructor runs.
            return;
        }
        let (min, max, given) = (class.positional_min, class.positional_max, args.len());
        if given < min || max.is_some_and(|max| given > max) {
            let class = global.name.to_string();
            self.report(object.offset, AbiProblemKind::Arity { class, given, min, max });
        }
    }

    fn state(&mut self, object: &Object<'a>, global: Global<'_>, class: &AbiClass) {
        let (Some(fields), Some(state)) = (&class.fields, object.state) else { return };
        let (mut unknown, mut missing) = (Vec::new(), Vec::new());
        match state_names(self.graph, state) {
            None => unknown.push("a state of another form".to_owned()),
            Some(set) => {
                if let Some(cached) = &class.cached {
                    let known = |name: &&&str| fields.iter().chain(cached).any(|known| known == **name);
                    unknown.extend(set.iter().filter(|name| !known(name)).map(|name| (*name).to_owned()));
                }
                // What is made without its constructor has nothing but its state.
                if object.construction == Construction::New {
                    missing.extend(fields.iter().filter(|field| !set.contains(&field.as_str())).cloned());
                }
            }
        }
        if !unknown.is_empty() || !missing.is_empty() {
            let class = global.name.to_string();
            self.report(object.offset, AbiProblemKind::State { class, unknown, missing });
        }
    }

    fn operation(&mut self, offset: u64, class: &AbiClass, args: &[NodeId]) {
        let parameter = |name: &str| {
            let at = class.parameters.iter().position(|p| p == name)?;
            args.get(at).copied().filter(|id| !self.graph.is_none(*id))
        };
        let Some(value) = parameter("op").and_then(|op| self.enum_value(op)) else { return };
        // A number that is no member is reported at the member itself.
        let Some(op) = self.ops.get(&value).copied() else { return };
        let used = Use {
            graph: self.graph,
            sources: parameter("src").and_then(|src| self.graph.as_tuple(src)).map(<[NodeId]>::len),
            arg: parameter("arg"),
            has_buffer: parameter("_buffer").is_some(),
        };
        let op_name = op.to_owned();
        if let Some((used, expected)) = implied::contradiction(op, &used) {
            self.report(offset, AbiProblemKind::Implied { value, op: op_name, used, expected });
        } else if let Some(why) = implied::misfit(op, &used) {
            self.report(offset, AbiProblemKind::Misfit { value, op: op_name, why });
        }
    }

    fn enum_value(&self, member: NodeId) -> Option<i64> {
        let args = self.graph.args_of(member, "tinygrad.uop", "Ops")?;
        args.first().and_then(|id| self.graph.as_int(*id))
    }
}

fn key_of(global: Global<'_>) -> String {
    format!("{}:{}", global.module, global.name)
}

/// The names that a state sets: a dict, or `(None or dict, dict of slots)`.
pub(crate) fn state_names(graph: &Graph, state: NodeId) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut add = |id: NodeId| {
        for (key, _) in graph.as_dict(id)? {
            names.push(graph.as_str(*key)?);
        }
        Some(())
    };
    match graph.value(state) {
        Value::Dict(_) => add(state)?,
        Value::Tuple([own, slots]) => {
            if !graph.is_none(*own) {
                add(*own)?;
            }
            add(*slots)?;
        }
        _ => return None,
    }
    Some(names)
}
