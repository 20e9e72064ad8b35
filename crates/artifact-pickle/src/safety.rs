//! What an artifact may name, and how it may use it.
//!
//! A loader imports what a pickle names and calls what it says. The list is exact (no module is trusted as a whole), it
//! was learned from artifacts that this project compiled and from published ones, and it is per kind of file. A name on
//! the list may be used in one way only: as the class that an object is made of. That refuses by structure what lists of
//! bad names never finish naming: calls of results, attribute chains, classes passed as values, state set on classes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::abi_state_names;
use crate::read::{Construction, Global, Graph, NodeId, Object, Value};

/// The kinds of file, by what they may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A driving artifact: a dict with metadata and jits.
    Driving,
    /// The jit of a driver-monitoring model.
    DmModel,
    /// The jit of a driver-monitoring warp.
    DmWarp,
    /// The jit of a driving model's camera warp, alone in a file.
    CameraWarp,
    /// Another single jit.
    Jit,
    /// Metadata of a model.
    Metadata,
    /// Something else; it may name nothing.
    Other,
}

impl FileKind {
    /// The kind under which the list has what it may name: jits are made of the same classes, whatever they compute.
    fn listed(self) -> Self {
        match self {
            Self::DmModel | Self::DmWarp | Self::CameraWarp => Self::Jit,
            other => other,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FileKind::Driving => "driving artifact",
            FileKind::DmModel => "driver-monitoring model",
            FileKind::DmWarp => "driver-monitoring warp",
            FileKind::CameraWarp => "camera warp",
            FileKind::Jit => "single jit",
            FileKind::Metadata => "metadata",
            FileKind::Other => "unrecognised pickle",
        })
    }
}

/// Module to names, by where they were learned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AllowList {
    /// What each kind of file may name, all revisions together.
    pub kinds: BTreeMap<FileKind, BTreeMap<String, BTreeSet<String>>>,
}

impl AllowList {
    /// The list that comes with this program.
    ///
    /// # Panics
    /// Never: it is part of the program and read by a test.
    #[must_use]
    pub fn built_in() -> Self {
        serde_json::from_str(include_str!("../../../data/allow-list.json"))
            .expect("the built-in list is valid")
    }

    /// Whether a file of this kind may name the global.
    #[must_use]
    pub fn allows(&self, kind: FileKind, global: Global<'_>) -> bool {
        let (Some(module), Some(name)) = (global.module.as_str(), global.name.as_str()) else { return false };
        self.kinds
            .get(&kind.listed())
            .and_then(|modules| modules.get(module))
            .is_some_and(|names| names.contains(name))
    }

    /// Adds what one artifact names; returns what was new. For lists that are regenerated and reviewed.
    pub fn learn(&mut self, kind: FileKind, graph: &Graph) -> Vec<String> {
        let mut new = Vec::new();
        for global in graph.globals() {
            let names =
                self.kinds.entry(kind.listed()).or_default().entry(global.module.to_string()).or_default();
            if names.insert(global.name.to_string()) {
                new.push(global.to_string());
            }
        }
        new
    }
}

/// Why an artifact must not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Offset of the opcode.
    pub offset: u64,
    /// The reason.
    #[serde(flatten)]
    pub kind: RefusalKind,
}

/// The reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "refusal", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are what their names say; the messages spell them out")]
#[non_exhaustive]
pub enum RefusalKind {
    /// It names what is not on the list.
    Global { name: String },
    /// A name with dots: attributes of attributes.
    AttributeChain { name: String },
    /// A class is used as a value.
    ClassAsValue { name: String },
    /// What is called is no class that the pickle names.
    Call { callable: String },
    /// An object is made in a way that no artifact uses.
    Construction { name: String, how: &'static str },
    /// A built-in is called with other arguments than artifacts give it.
    Arguments { name: String, args: String },
    /// A state that sets special attributes or is of another form.
    State { name: String, what: String },
    /// Items are added to an object that is no container.
    Items { name: String },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            RefusalKind::Global { name } => write!(f, "it names {name}, which no artifact needs")?,
            RefusalKind::AttributeChain { name } => write!(f, "it reaches through attributes: {name}")?,
            RefusalKind::ClassAsValue { name } => {
                write!(f, "it uses {name} as a value, not to make an object")?
            }
            RefusalKind::Call { callable } => {
                write!(f, "it calls {callable}, which is no class that it names")?
            }
            RefusalKind::Construction { name, how } => write!(f, "it makes {name} by {how}")?,
            RefusalKind::Arguments { name, args } => write!(f, "it calls {name} with {args}")?,
            RefusalKind::State { name, what } => write!(f, "it sets {what} of {name}")?,
            RefusalKind::Items { name } => write!(f, "it adds items to {name}")?,
        }
        write!(f, " (at byte {})", self.offset)
    }
}

impl Graph {
    /// Everything for which a file of this kind must not be loaded, in stream order.
    #[must_use]
    pub fn refusals(&self, kind: FileKind, allowed: &AllowList) -> Vec<Refusal> {
        let mut found = Vec::new();
        for global in self.globals() {
            let name = global.to_string();
            if global.name.as_bytes().contains(&b'.') {
                found.push(Refusal { offset: global.offset, kind: RefusalKind::AttributeChain { name } });
            } else if !allowed.allows(kind, global) {
                found.push(Refusal { offset: global.offset, kind: RefusalKind::Global { name } });
            }
        }
        self.classes_as_values(&mut found);
        for object in self.objects() {
            self.check_object(object, &mut found);
        }
        found.sort_by_key(|refusal| refusal.offset);
        found
    }

    /// A class may stand in one place only: that of the callable.
    fn classes_as_values(&self, found: &mut Vec<Refusal>) {
        let mut check = |id: NodeId| {
            if let Value::Global(global) = self.value(id) {
                let kind = RefusalKind::ClassAsValue { name: global.to_string() };
                found.push(Refusal { offset: global.offset, kind });
            }
        };
        check(self.root());
        for id in self.members() {
            check(id);
        }
        for object in self.objects() {
            object.state.into_iter().chain(object.kwargs).for_each(&mut check);
        }
    }

    fn check_object(&self, object: Object<'_>, found: &mut Vec<Refusal>) {
        let mut refuse = |kind| found.push(Refusal { offset: object.offset, kind });
        let Some(class) = self.as_global(object.callable) else {
            return refuse(RefusalKind::Call { callable: self.show(object.callable).to_string() });
        };
        let name = || class.to_string();
        match object.construction {
            Construction::Reduce | Construction::New => {}
            Construction::NewEx => {
                refuse(RefusalKind::Construction { name: name(), how: "keyword arguments" });
            }
            Construction::Instance => {
                refuse(RefusalKind::Construction { name: name(), how: "an old-style instance" })
            }
        }
        if class.module.as_bytes() == b"builtins" && !self.is_plain_builtin(class, object) {
            let args = self.show(object.args).to_string();
            refuse(RefusalKind::Arguments { name: name(), args });
        }
        if !object.items.is_empty() || !object.pairs.is_empty() {
            refuse(RefusalKind::Items { name: name() });
        }
        if let Some(state) = object.state
            && let Some(what) = self.odd_state(state)
        {
            refuse(RefusalKind::State { name: name(), what });
        }
    }

    /// `slice` of bounds, `bytearray` of bytes; nothing else is needed.
    fn is_plain_builtin(&self, class: Global<'_>, object: Object<'_>) -> bool {
        let args = self.as_tuple(object.args).unwrap_or_default();
        let bound = |id: &NodeId| self.is_none(*id) || self.as_int(*id).is_some();
        let fits = match class.name.as_bytes() {
            b"slice" => args.len() == 3 && args.iter().all(bound),
            b"bytearray" => args.is_empty() || (args.len() == 1 && self.as_payload(args[0]).is_some()),
            _ => false,
        };
        fits && object.construction == Construction::Reduce && object.state.is_none()
    }

    fn odd_state(&self, state: NodeId) -> Option<String> {
        match abi_state_names(self, state) {
            None => Some("a state that is no dict of names".to_owned()),
            Some(names) => names.into_iter().find(|name| name.starts_with("__")).map(str::to_owned),
        }
    }
}
