//! Values that Python pickles, in every protocol, are what the reader reads.

mod support;

use std::process::Command;

use artifact_pickle::{Graph, Limits, NodeId, Object, PayloadKind, Value, encode_metadata};
use model_catalog::{ModelMetadata, SliceSpec};
use serde_json::{Value as Json, json};

/// A value in the terms of `fixtures/make_pickles.py`.
struct Plain<'a> {
    graph: &'a Graph,
    bytes: &'a [u8],
}

impl Plain<'_> {
    fn of(&self, id: NodeId) -> Json {
        match self.graph.value(id) {
            Value::None => json!(["none"]),
            Value::Bool(v) => json!(["bool", v]),
            Value::Int(v) => json!(["int", signed_hex(v < 0, &format!("{:x}", v.unsigned_abs()))]),
            Value::BigInt(bytes) => json!(["int", big_hex(bytes)]),
            Value::Float(v) => json!(["float", format!("{:016x}", v.to_bits())]),
            Value::Str(text) => json!(["str", hex(text.as_bytes())]),
            Value::Bytes(payload) => {
                let kind = if payload.kind == PayloadKind::Bytes { "bytes" } else { "bytearray" };
                json!([kind, hex(&self.bytes[payload.offset as usize..][..payload.len as usize])])
            }
            Value::Tuple(items) => json!(["tuple", self.all(items)]),
            Value::List(items) => json!(["list", self.all(items)]),
            Value::Set(items) => self.set("set", items),
            Value::FrozenSet(items) => self.set("frozenset", items),
            Value::Dict(pairs) => {
                json!([
                    "dict",
                    pairs.iter().map(|(k, v)| json!([self.of(*k), self.of(*v)])).collect::<Vec<_>>()
                ])
            }
            Value::Object(object) => self.object(object),
            Value::Global(global) => panic!("{global}"),
        }
    }

    fn all(&self, items: &[NodeId]) -> Vec<Json> {
        items.iter().map(|id| self.of(*id)).collect()
    }

    fn set(&self, kind: &str, items: &[NodeId]) -> Json {
        let mut members = self.all(items);
        // The spelling that Python sorts by has spaces after its commas.
        members.sort_by_key(|member| member.to_string().replace(',', ", "));
        json!([kind, members])
    }

    /// What older protocols can only say as a call.
    fn object(&self, object: Object<'_>) -> Json {
        let name = self.graph.as_global(object.callable).expect("a global").to_string();
        let args = self.graph.as_tuple(object.args).expect("a tuple");
        let items = || args.first().map_or(&[][..], |list| self.graph.as_list(*list).expect("a list"));
        match name.as_str() {
            "builtins.slice" | "__builtin__.slice" => json!(["slice", self.all(args)]),
            "builtins.complex" | "__builtin__.complex" => json!(["complex", self.all(args)]),
            "builtins.set" | "__builtin__.set" => self.set("set", items()),
            "builtins.frozenset" | "__builtin__.frozenset" => self.set("frozenset", items()),
            "_codecs.encode" => json!(["bytes", hex(&self.latin1(args[0]))]),
            "__builtin__.bytes" => json!(["bytes", ""]),
            "builtins.bytearray" | "__builtin__.bytearray" => {
                let inner = args.first().map_or(json!(["bytes", ""]), |inner| self.of(*inner));
                let encoded = args.len() == 2;
                json!([
                    "bytearray",
                    if encoded { json!(hex(&self.latin1(args[0]))) } else { inner[1].clone() }
                ])
            }
            other => panic!("{other}"),
        }
    }

    fn latin1(&self, id: NodeId) -> Vec<u8> {
        self.graph
            .as_str(id)
            .expect("a string")
            .chars()
            .map(|c| u8::try_from(u32::from(c)).expect("latin1"))
            .collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn signed_hex(negative: bool, digits: &str) -> String {
    format!("{}{digits}", if negative { "-" } else { "" })
}

fn big_hex(bytes: &[u8]) -> String {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in &mut magnitude {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    magnitude.reverse();
    signed_hex(negative, hex(&magnitude).trim_start_matches('0'))
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| {
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".iter().position(|b| *b == c)
    };
    let digits: Vec<usize> = text.bytes().filter_map(digit).collect();
    let mut out = Vec::new();
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0usize, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        out.extend_from_slice(&[(bits >> 16) as u8, (bits >> 8) as u8, bits as u8][..group.len() - 1]);
    }
    out
}

#[test]
fn every_type_in_every_protocol_agrees_with_python() {
    let Some(python) = support::python("every_type_in_every_protocol_agrees_with_python") else { return };
    for seed in ["0", "1", "2"] {
        let output = Command::new(&python)
            .arg(support::root().join("fixtures/make_pickles.py"))
            .args(["values", "--seed", seed, "--count", "250"])
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(lines.lines().count(), 250);
        for line in lines.lines() {
            let case: Case = serde_json::from_str(line).expect("a case");
            check(&case);
        }
    }
}

#[test]
fn python_reads_what_is_written() {
    let Some(python) = support::python("python_reads_what_is_written") else { return };
    let bound = |start, stop| SliceSpec { start, stop, step: None };
    let metadata = ModelMetadata {
        model_checkpoint: None,
        output_slices: [("plan", bound(Some(0), Some(990))), ("pad é👀", bound(Some(-2), None))]
            .map(|(name, slice)| (name.to_owned(), slice))
            .into(),
        input_shapes: [("img".to_owned(), vec![1, 12, 128, 256]), ("x".to_owned(), vec![1_382_400])].into(),
        output_shapes: [("outputs".to_owned(), vec![])].into(),
    };
    let hexed = hex(&encode_metadata(&metadata));
    let code = format!("import pickle; print(ascii(pickle.loads(bytes.fromhex('{hexed}'))))");
    let output = Command::new(python).args(["-c", &code]).output().expect("runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "{'model_checkpoint': None, 'output_slices': {'plan': slice(0, 990, None), \
         'pad \\xe9\\U0001f440': slice(-2, None, None)}, \
         'input_shapes': {'img': (1, 12, 128, 256), 'x': (1382400,)}, 'output_shapes': {'outputs': ()}}"
    );
}

#[derive(serde::Deserialize)]
struct Case {
    value: Json,
    pickles: Vec<(u8, String)>,
}

fn check(case: &Case) {
    for (protocol, text) in &case.pickles {
        let bytes = base64(text);
        let graph = Graph::read_bytes(&bytes, &Limits::default()).unwrap_or_else(|error| {
            panic!("protocol {protocol}: {error}: {}", case.value);
        });
        let found = Plain { graph: &graph, bytes: &bytes }.of(graph.root());
        assert!(found == case.value, "protocol {protocol}\nexpected {}\nfound    {found}", case.value);
        assert!(*protocol < 2 || graph.protocol() == *protocol);
    }
}
