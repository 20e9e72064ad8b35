//! The raw outputs of a finished run, brought home and read.

use std::{collections::BTreeMap, fs};

use camino::Utf8Path;
use durable_fs::{Expected, FsError, NoProgress};
use model_catalog::{BehaviorVersion, Camera, RelPath};
use remote_compile::device::{Device, JobName};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tinygrad_compile::{
    driver::request::{RunOutput, RunResult},
    job::OUTPUT_DIR,
};

use crate::{CameraRun, Given, Probe, ProbeKind, Recording, Series, ValidateError, WarpImage};

/// One output of one camera is some kilobytes a step; more than this is damaged.
const MAX_OUTPUT: u64 = 256 << 20;

/// Brings the raw outputs of a finished run home (through `scratch`, a directory of ours) and reads them.
///
/// # Errors
/// [`ValidateError::Outputs`] where they are not what the result says, [`ValidateError::Job`] where they cannot be fetched.
pub fn fetch_recording(
    device: &dyn Device,
    job: &JobName,
    result: RunResult,
    scratch: &Utf8Path,
) -> Result<Recording, ValidateError> {
    let fetch = Fetch { device, job, scratch };
    let cameras = fetch.cameras(&result)?;
    let text = |name: &str| result.more.get(name).and_then(Value::as_str).map(str::to_owned);
    let version = text("behavior_version").map(|text| text.parse::<BehaviorVersion>());
    let versions = ["tinygrad", "python"].iter().filter_map(|&name| Some((name.to_owned(), text(name)?)));
    let temperature = result.more.get("temperature_celsius").cloned().unwrap_or_default();
    let settings = result.more.get("settings").cloned().unwrap_or_default();
    Ok(Recording {
        model_type: result.model_type,
        behavior_version: version.transpose().map_err(|error| fetch.refused(error.to_string()))?,
        packed_layout: layout_of(&result.parsed_inputs),
        frame_skip: result
            .more
            .get("frame_skip")
            .and_then(Value::as_u64)
            .and_then(|skip| skip.try_into().ok()),
        settings: serde_json::from_value(settings).unwrap_or_default(),
        versions: versions.collect(),
        load_seconds: result.load_seconds,
        temperature_celsius: serde_json::from_value(temperature).unwrap_or_default(),
        peak_bytes: result.more.get("peak_bytes").and_then(Value::as_u64),
        cameras,
        probes: fetch.probes(&result)?,
        warps: fetch.warps(&result)?,
        given: fetch.given(&result)?,
        soak: fetch.listed(&result, "soak")?,
        policy_order: result.policy_order,
        metadata: result.metadata.into_iter().map(|(key, metadata)| (key, metadata.into())).collect(),
    })
}

/// Names and shapes of the packed inputs, in their order.
fn layout_of(inputs: &Value) -> Vec<(String, Vec<u64>)> {
    let shape = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    match inputs {
        Value::Object(inputs) => inputs.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(inputs) => {
            inputs.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), Vec::new())).collect()
        }
        _ => Vec::new(),
    }
}

#[derive(Deserialize)]
struct ProbeFile {
    probe: ProbeKind,
    step: usize,
    #[serde(flatten)]
    output: RunOutput,
}

#[derive(Deserialize)]
struct WarpFile {
    camera: Camera,
    matrix: [f32; 9],
    salts: Vec<u32>,
    file: String,
    shape: Vec<u64>,
}

#[derive(Deserialize)]
struct GivenFile {
    name: String,
    camera: Camera,
    file: String,
    shape: Vec<u64>,
}

struct Fetch<'f> {
    device: &'f dyn Device,
    job: &'f JobName,
    scratch: &'f Utf8Path,
}

impl Fetch<'_> {
    fn refused(&self, why: String) -> ValidateError {
        ValidateError::Outputs { id: self.job.model().clone(), why }
    }

    /// The runs of all cameras, in the order in which they were run.
    fn cameras(&self, result: &RunResult) -> Result<Vec<CameraRun>, ValidateError> {
        let mut cameras: Vec<CameraRun> = Vec::new();
        for output in &result.outputs {
            let series = self.series(output)?;
            let at = cameras.iter().position(|run| run.camera == output.camera).unwrap_or_else(|| {
                let step_seconds = result.step_seconds.get(&output.camera.to_string()).cloned();
                cameras.push(CameraRun {
                    camera: output.camera,
                    outputs: BTreeMap::new(),
                    step_seconds: step_seconds.unwrap_or_default(),
                });
                cameras.len() - 1
            });
            if cameras[at].outputs.insert(output.key, series).is_some() {
                return Err(
                    self.refused(format!("output {} of {} is named twice", output.key, output.camera))
                );
            }
        }
        Ok(cameras)
    }

    /// A list that a run shows besides its outputs; empty where the device does not show it.
    fn listed<T: DeserializeOwned>(&self, result: &RunResult, name: &str) -> Result<Vec<T>, ValidateError> {
        let Some(list) = result.more.get(name) else { return Ok(Vec::new()) };
        serde_json::from_value(list.clone()).map_err(|error| self.refused(format!("{name}: {error}")))
    }

    fn probes(&self, result: &RunResult) -> Result<Vec<Probe>, ValidateError> {
        let mut probes: Vec<Probe> = Vec::new();
        for file in self.listed::<ProbeFile>(result, "probes")? {
            let values = self.series(&file.output)?.row(0).to_vec();
            let (kind, camera) = (file.probe, file.output.camera);
            let same = |probe: &Probe| probe.kind == kind && probe.camera == camera;
            let at = probes.iter().position(same).unwrap_or_else(|| {
                probes.push(Probe { kind, camera, step: file.step, outputs: BTreeMap::new() });
                probes.len() - 1
            });
            probes[at].outputs.insert(file.output.key, values);
        }
        Ok(probes)
    }

    fn warps(&self, result: &RunResult) -> Result<Vec<WarpImage>, ValidateError> {
        let image = |WarpFile { camera, matrix, salts, file, shape }: WarpFile| {
            let size = shape.iter().try_fold(1u64, |size, &axis| size.checked_mul(axis));
            let pixels = self.bytes(&file, size, &shape)?;
            Ok(WarpImage { camera, matrix, salts, pixels })
        };
        self.listed::<WarpFile>(result, "warps")?.into_iter().map(image).collect()
    }

    /// What the models were given, camera by camera.
    fn given(&self, result: &RunResult) -> Result<Vec<Given>, ValidateError> {
        let mut found: Vec<Given> = Vec::new();
        for GivenFile { name, camera, file, shape } in self.listed::<GivenFile>(result, "inputs")? {
            let steps = shape.first().copied().unwrap_or_default() as usize;
            let at = found.iter().position(|given| given.camera == camera).unwrap_or_else(|| {
                found.push(Given { camera, steps, images: Vec::new(), packed: Vec::new() });
                found.len() - 1
            });
            if found[at].steps != steps || steps == 0 {
                return Err(self.refused(format!("{file} has the shape {shape:?}")));
            }
            let width = if name == "images" { 1 } else { 4 };
            let size = shape.iter().try_fold(width, |size: u64, &axis| size.checked_mul(axis));
            let bytes = self.bytes(&file, size, &shape)?;
            if name == "images" {
                found[at].images = bytes;
            } else {
                let values = Series::from_bytes(1, &bytes);
                let values = values.ok_or_else(|| self.refused(format!("{file} is not whole values")))?;
                found[at].packed = values.rows().flatten().copied().collect();
            }
        }
        Ok(found)
    }

    fn series(&self, output: &RunOutput) -> Result<Series, ValidateError> {
        let size = output.shape.iter().try_fold(4u64, |size, &axis| size.checked_mul(axis));
        let bytes = self.bytes(output.file.as_str(), size, &output.shape)?;
        let steps = output.shape.first().copied().unwrap_or(1).max(1);
        let width = bytes.len() / 4 / usize::try_from(steps).unwrap_or(usize::MAX);
        Series::from_bytes(width, &bytes)
            .ok_or_else(|| self.refused(format!("{} is not whole rows", output.file)))
    }

    fn bytes(&self, file: &str, size: Option<u64>, shape: &[u64]) -> Result<Vec<u8>, ValidateError> {
        let plausible = size.filter(|&size| size > 0 && size <= MAX_OUTPUT);
        let size = plausible.ok_or_else(|| self.refused(format!("{file} has the shape {shape:?}")))?;
        let from =
            RelPath::new(format!("{OUTPUT_DIR}/{file}")).map_err(|error| self.refused(error.to_string()))?;
        let to = self.scratch.join("fetched");
        self.device.get(self.job, &from, &to, Expected { size: Some(size), sha256: None }, &NoProgress)?;
        let bytes = fs::read(&to).map_err(FsError::io("read", &to))?;
        fs::remove_file(&to).map_err(FsError::io("remove", &to))?;
        Ok(bytes)
    }
}
