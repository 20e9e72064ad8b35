//! ONNX Runtime as a process of this machine.

use std::{fs, io::Write, sync::atomic::AtomicBool};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::PolicyKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tinygrad_compile::{
    Environment,
    driver::{Driver, DriverError, DriverEvent},
};

use super::{Feed, FeedValues, ReferenceOutput};
use crate::Series;

/// The script, carried in the program.
const SCRIPT: &str = include_str!("../../reference/reference.py");
/// The longest accepted silence: loading and running one large model.
const QUIET_LIMIT: std::time::Duration = std::time::Duration::from_secs(600);

/// An ONNX file of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct SourceModel {
    pub(crate) key: PolicyKey,
    pub(crate) path: Utf8PathBuf,
}

#[derive(Serialize)]
struct ModelRequest<'f> {
    key: PolicyKey,
    onnx: &'f Utf8Path,
    steps: usize,
    inputs: Vec<InputRequest<'f>>,
    output: Utf8PathBuf,
}

#[derive(Serialize)]
struct InputRequest<'f> {
    name: &'f str,
    file: Utf8PathBuf,
    dtype: &'static str,
    shape: &'f [u64],
}

#[derive(Deserialize)]
struct Done {
    onnxruntime: String,
}

/// Runs the models on their inputs, through files in `scratch`, a directory of ours; gives the runtime's version, too.
pub(crate) fn run_reference(
    python: &Utf8Path,
    models: &[SourceModel],
    feeds: &[Feed],
    scratch: &Utf8Path,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(&Value),
) -> Result<(String, Vec<ReferenceOutput>), DriverError> {
    let dir = scratch.join("reference");
    fs::create_dir_all(&dir).map_err(FsError::io("create", &dir))?;
    let entry = dir.join("reference.py");
    write(&entry, SCRIPT.as_bytes())?;
    let mut requests = Vec::new();
    for feed in feeds {
        let Some(model) = models.iter().find(|model| model.key == feed.key) else { continue };
        requests.push(request_of(model, feed, &dir)?);
    }
    let driver = Driver {
        python: python.to_owned(),
        entry,
        scratch: dir.clone(),
        environment: Environment::default(),
        log: dir.join("log.txt"),
        quiet_limit: QUIET_LIMIT,
        cpu: None,
    };
    let request = serde_json::json!({ "models": requests });
    let result = driver.run("reference", &request, cancel, &mut |event: &DriverEvent| {
        if let Ok(Value::Object(mut event)) = serde_json::to_value(event) {
            event.insert("op".to_owned(), "validate".into());
            on_event(&Value::Object(event));
        }
    })?;
    let done: Done =
        serde_json::from_value(result).map_err(|source| DriverError::Result { op: "reference", source })?;
    let outputs = requests.iter().map(output_of).collect::<Result<_, DriverError>>()?;
    Ok((format!("onnxruntime {}", done.onnxruntime), outputs))
}

fn request_of<'f>(
    model: &'f SourceModel,
    feed: &'f Feed,
    dir: &Utf8Path,
) -> Result<ModelRequest<'f>, FsError> {
    let mut inputs = Vec::new();
    for (at, input) in feed.inputs.iter().enumerate() {
        let file = dir.join(format!("{}.{at}.bin", feed.key));
        let dtype = match &input.values {
            FeedValues::Bytes(bytes) => {
                write(&file, bytes)?;
                "uint8"
            }
            FeedValues::Floats(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                write(&file, &bytes)?;
                "<f4"
            }
        };
        inputs.push(InputRequest { name: &input.name, file, dtype, shape: &input.shape });
    }
    let output = dir.join(format!("{}.out", feed.key));
    Ok(ModelRequest { key: feed.key, onnx: &model.path, steps: feed.steps, inputs, output })
}

fn output_of(request: &ModelRequest<'_>) -> Result<ReferenceOutput, DriverError> {
    let bytes = fs::read(&request.output).map_err(FsError::io("read", &request.output))?;
    let width = bytes.len() / 4 / request.steps;
    let values = Series::from_bytes(width, &bytes).ok_or_else(|| {
        let odd = std::io::Error::other("it is not whole rows of values");
        FsError::io("read", &request.output)(odd)
    })?;
    Ok(ReferenceOutput { key: request.key, values })
}

/// Private and gone after the run: nobody else reads these files, so they need neither rename nor fsync.
fn write(path: &Utf8Path, bytes: &[u8]) -> Result<(), FsError> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(FsError::io("write", path))
}
