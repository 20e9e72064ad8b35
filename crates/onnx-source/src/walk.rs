//! The walk over `ModelProto`: everything but weights.
//!
//! Field numbers are those of `onnx.proto3`. Attributes, sub-graphs and functions are walked too, because a tensor in
//! any of them can point to another file.

use std::collections::HashSet;

use crate::error::{Fault, Refusal};
use crate::model::{OnnxModel, Opset};
use crate::tensor::{Dim, ElementType, TensorInfo, Weight};
use crate::wire::{Field, Message, Wire};

type Result<T> = std::result::Result<T, Refusal>;

/// Bytes of a name; of a metadata value; of all initializer names together.
const NAME: usize = 4 << 10;
const PROPERTY: usize = 1 << 20;
const ALL_NAMES: usize = 16 << 20;
/// Inputs, outputs, metadata properties, opsets, operator kinds, axes of one shape.
const ITEMS: usize = 4096;
/// Sub-graphs inside of sub-graphs.
const DEPTH: usize = 32;

pub(crate) struct Walk<'a, 's> {
    wire: &'a mut Wire<'s>,
    model: OnnxModel,
    initializers: HashSet<String>,
    name_bytes: usize,
}

impl<'a, 's> Walk<'a, 's> {
    pub(crate) fn new(wire: &'a mut Wire<'s>) -> Self {
        let model = OnnxModel { size: wire.size(), ..OnnxModel::default() };
        Walk { wire, model, initializers: HashSet::new(), name_bytes: 0 }
    }

    pub(crate) fn run(mut self) -> Result<OnnxModel> {
        let whole = self.wire.whole();
        let mut graphs = 0;
        while let Some(field) = self.wire.next(whole)? {
            match field.number {
                1 => self.model.ir_version = self.wire.number(field, whole)? as i64,
                2 => self.model.producer_name = self.wire.text(field, whole, NAME)?,
                3 => self.model.producer_version = self.wire.text(field, whole, NAME)?,
                4 => self.model.domain = self.wire.text(field, whole, NAME)?,
                5 => self.model.model_version = self.wire.number(field, whole)? as i64,
                7 if graphs > 0 => return Err(Refusal::new(field.at, Fault::SecondGraph)),
                7 => {
                    graphs = 1;
                    let graph = self.wire.message(field, whole)?;
                    self.graph(graph, 0)?;
                }
                8 => self.opset(field, whole)?,
                14 => self.property(field, whole)?,
                20 => self.graphs_of(field, whole, &[1, 2], 1)?,
                25 => self.function(field, whole)?,
                _ => drop(self.wire.skip(field, whole)?),
            }
        }
        if graphs == 0 {
            return Err(Refusal::new(0, Fault::NoGraph));
        }
        self.finish()
    }

    fn finish(mut self) -> Result<OnnxModel> {
        if self.model.nodes == 0 {
            return Err(Refusal::new(0, Fault::EmptyGraph));
        }
        if self.model.outputs.is_empty() {
            return Err(Refusal::new(0, Fault::NoOutputs));
        }
        // Old exporters list weights as inputs too.
        self.model.inputs.retain(|input| !self.initializers.contains(&input.name));
        Ok(self.model)
    }

    fn opset(&mut self, field: Field, parent: Message) -> Result<()> {
        let message = self.wire.message(field, parent)?;
        let mut opset = Opset::default();
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                1 => opset.domain = self.wire.text(field, message, NAME)?,
                2 => opset.version = self.wire.number(field, message)? as i64,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        bounded(self.model.opsets.len(), "opsets", field)?;
        self.model.opsets.push(opset);
        Ok(())
    }

    fn property(&mut self, field: Field, parent: Message) -> Result<()> {
        let message = self.wire.message(field, parent)?;
        let (mut key, mut value) = (String::new(), String::new());
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                1 => key = self.wire.text(field, message, NAME)?,
                2 => value = self.wire.text(field, message, PROPERTY)?,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        bounded(self.model.properties.len(), "metadata properties", field)?;
        if self.model.properties.contains_key(&key) {
            return Err(Refusal::new(field.at, Fault::DuplicateProperty(key)));
        }
        self.model.properties.insert(key, value);
        Ok(())
    }

    /// The graph itself (depth 0), or a sub-graph, which only counts towards operators and weights.
    fn graph(&mut self, message: Message, depth: usize) -> Result<()> {
        let at = self.wire.offset();
        if depth > DEPTH {
            let what = "levels of sub-graphs";
            return Err(Refusal::new(at, Fault::TooMany { what, limit: DEPTH }));
        }
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                1 => self.node(field, message, depth)?,
                2 if depth == 0 => self.model.graph_name = self.wire.text(field, message, NAME)?,
                5 => self.initializer(field, message, depth)?,
                11 if depth == 0 => {
                    bounded(self.model.inputs.len(), "inputs", field)?;
                    let input = self.value_info(field, message)?;
                    self.model.inputs.push(input);
                }
                12 if depth == 0 => {
                    bounded(self.model.outputs.len(), "outputs", field)?;
                    let output = self.value_info(field, message)?;
                    self.model.outputs.push(output);
                }
                15 => self.sparse(field, message)?,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        Ok(())
    }

    fn initializer(&mut self, field: Field, parent: Message, depth: usize) -> Result<()> {
        let weight = self.tensor(field, parent)?;
        self.model.initializers += 1;
        if depth > 0 {
            return Ok(());
        }
        let name = weight.name.clone();
        self.name_bytes += name.len() + size_of::<String>();
        if self.name_bytes > ALL_NAMES {
            let fault = Fault::TooMany { what: "bytes of initializer names", limit: ALL_NAMES };
            return Err(Refusal::new(field.at, fault));
        }
        if weight.len >= Weight::SMALLEST {
            self.model.weights.push(weight);
        }
        self.initializers.insert(name);
        Ok(())
    }

    fn node(&mut self, field: Field, parent: Message, depth: usize) -> Result<()> {
        let message = self.wire.message(field, parent)?;
        let (mut operator, mut domain) = (String::new(), String::new());
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                4 => operator = self.wire.text(field, message, NAME)?,
                5 => self.attribute(field, message, depth)?,
                7 => domain = self.wire.text(field, message, NAME)?,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        let operator = if domain.is_empty() { operator } else { format!("{domain}.{operator}") };
        self.model.nodes += u64::from(depth == 0);
        match self.model.operators.get_mut(&operator) {
            Some(count) => *count += 1,
            None => {
                bounded(self.model.operators.len(), "kinds of operator", field)?;
                self.model.operators.insert(operator, 1);
            }
        }
        Ok(())
    }

    fn attribute(&mut self, field: Field, parent: Message, depth: usize) -> Result<()> {
        let message = self.wire.message(field, parent)?;
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                5 | 10 => drop(self.tensor(field, message)?),
                6 | 11 => {
                    let graph = self.wire.message(field, message)?;
                    self.graph(graph, depth + 1)?;
                }
                22 | 23 => self.sparse(field, message)?,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        Ok(())
    }

    /// A message whose fields of these numbers are graphs (training information).
    fn graphs_of(&mut self, field: Field, parent: Message, numbers: &[u64], depth: usize) -> Result<()> {
        let message = self.wire.message(field, parent)?;
        while let Some(field) = self.wire.next(message)? {
            if numbers.contains(&field.number) {
                let graph = self.wire.message(field, message)?;
                self.graph(graph, depth)?;
            } else {
                self.wire.skip(field, message)?;
            }
        }
        Ok(())
    }

    /// A model-local function: its nodes may hold tensors.
    fn function(&mut self, field: Field, parent: Message) -> Result<()> {
        let message = self.wire.message(field, parent)?;
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                7 => self.node(field, message, 1)?,
                11 => self.attribute(field, message, 1)?,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        Ok(())
    }

    fn sparse(&mut self, field: Field, parent: Message) -> Result<()> {
        let message = self.wire.message(field, parent)?;
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                1 | 2 => drop(self.tensor(field, message)?),
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        Ok(())
    }

    /// Steps over a tensor's data; returns its name and where its bytes lie. Data in another file is refused.
    fn tensor(&mut self, field: Field, parent: Message) -> Result<Weight> {
        let at = field.at;
        let message = self.wire.message(field, parent)?;
        let (mut weight, mut external) = (Weight::default(), None);
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                2 => weight.dtype = ElementType(self.wire.number(field, message)?),
                8 => weight.name = self.wire.text(field, message, NAME)?,
                // `raw_data`: the bytes as they are, which lie at the end of the field.
                9 => {
                    weight.len = self.wire.skip(field, message)?;
                    weight.offset = self.wire.offset() - weight.len;
                    self.model.weight_bytes += weight.len;
                }
                13 => {
                    let location = self.external_location(field, message)?;
                    let known: &mut String = external.get_or_insert_default();
                    if let Some(location) = location {
                        *known = location;
                    }
                }
                14 if self.wire.number(field, message)? == 1 => drop(external.get_or_insert_default()),
                14 => {}
                4..=7 | 10..=11 => self.model.weight_bytes += self.wire.skip(field, message)?,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        match external {
            Some(location) => Err(Refusal::new(at, Fault::ExternalData { tensor: weight.name, location })),
            None => Ok(weight),
        }
    }

    fn external_location(&mut self, field: Field, parent: Message) -> Result<Option<String>> {
        let message = self.wire.message(field, parent)?;
        let (mut key, mut value) = (String::new(), String::new());
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                1 => key = self.wire.text(field, message, NAME)?,
                2 => value = self.wire.text(field, message, NAME)?,
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        Ok((key == "location").then_some(value))
    }

    fn value_info(&mut self, field: Field, parent: Message) -> Result<TensorInfo> {
        let message = self.wire.message(field, parent)?;
        let mut info = TensorInfo { name: String::new(), dtype: ElementType(0), shape: None };
        while let Some(field) = self.wire.next(message)? {
            match field.number {
                1 => info.name = self.wire.text(field, message, NAME)?,
                2 => {
                    let value_type = self.wire.message(field, message)?;
                    self.value_type(value_type, &mut info)?;
                }
                _ => drop(self.wire.skip(field, message)?),
            }
        }
        Ok(info)
    }

    fn value_type(&mut self, message: Message, info: &mut TensorInfo) -> Result<()> {
        while let Some(field) = self.wire.next(message)? {
            if field.number != 1 {
                self.wire.skip(field, message)?;
                continue;
            }
            let tensor = self.wire.message(field, message)?;
            while let Some(field) = self.wire.next(tensor)? {
                match field.number {
                    1 => info.dtype = ElementType(self.wire.number(field, tensor)?),
                    2 => info.shape = Some(self.shape(field, tensor)?),
                    _ => drop(self.wire.skip(field, tensor)?),
                }
            }
        }
        Ok(())
    }

    fn shape(&mut self, field: Field, parent: Message) -> Result<Vec<Dim>> {
        let message = self.wire.message(field, parent)?;
        let mut dims = Vec::new();
        while let Some(field) = self.wire.next(message)? {
            if field.number != 1 {
                self.wire.skip(field, message)?;
                continue;
            }
            bounded(dims.len(), "axes of a shape", field)?;
            let dim = self.wire.message(field, message)?;
            let mut size = Dim::Unknown;
            while let Some(field) = self.wire.next(dim)? {
                match field.number {
                    1 => size = fixed(self.wire.number(field, dim)?),
                    2 => size = Dim::Symbolic(self.wire.text(field, dim, NAME)?),
                    _ => drop(self.wire.skip(field, dim)?),
                }
            }
            dims.push(size);
        }
        Ok(dims)
    }
}

/// The size is a signed number on the wire; a negative one stands for an unknown axis.
fn fixed(size: u64) -> Dim {
    if size <= i64::MAX as u64 { Dim::Fixed(size) } else { Dim::Unknown }
}

fn bounded(count: usize, what: &'static str, field: Field) -> Result<()> {
    if count < ITEMS { Ok(()) } else { Err(Refusal::new(field.at, Fault::TooMany { what, limit: ITEMS })) }
}
