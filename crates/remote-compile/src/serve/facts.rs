//! What the device is and has.

use std::{fs, io};

use camino::{Utf8Path, Utf8PathBuf};

use super::{ServeOptions, lease};
use crate::{
    device::LocalDevice,
    device::{Device, DeviceError},
    link::Facts,
};

/// USB vendor and product of the bridge that carries an external GPU.
const BRIDGE: (&str, &str) = ("add1", "0001");
const PYTHON: &str = "/usr/local/venv/bin/python3";

pub(super) fn gather(device: &LocalDevice, options: &ServeOptions) -> Result<Facts, DeviceError> {
    let local = device.probe()?;
    Ok(Facts {
        architecture: local.architecture,
        models_version: local.models_version,
        driver_sha256: local.driver_sha256,
        free_bytes: local.free_bytes,
        has_qcom_gpu: local.has_qcom_gpu,
        python: python(),
        tinygrad_commit: text(&options.openpilot.join("tinygrad_repo/TINYGRAD_COMMIT")),
        temperature_celsius: temperature(Utf8Path::new("/sys/class/thermal")),
        external_gpu_bridge: bridge(Utf8Path::new("/sys/bus/usb/devices")),
        is_on_road: is_on_road(&options.params_dirs),
        jobs: all_jobs(&options.jobs_dir),
        holder: lease::holder(&options.jobs_dir),
    })
}

/// Whether the device is driving, by its own parameters; one whose parameter is there and cannot be read counts as driving.
pub(super) fn is_on_road(params_dirs: &[Utf8PathBuf]) -> bool {
    params_dirs.iter().any(|dir| match fs::read(dir.join("IsOnroad")) {
        Ok(value) => value.first() == Some(&b'1'),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    })
}

fn all_jobs(jobs_dir: &Utf8Path) -> Vec<String> {
    let owners = super::directories(jobs_dir).into_iter();
    let jobs = owners.flat_map(|owner| super::directories(&owner));
    jobs.filter_map(|job| job.strip_prefix(jobs_dir).ok().map(ToString::to_string)).collect()
}

fn text(file: &Utf8Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_matches(['\0', ' ', '\n', '\r', '\t']).to_owned()).filter(|text| !text.is_empty())
}

fn python() -> Option<String> {
    let own = Utf8PathBuf::from(PYTHON);
    let program = if own.is_file() { own } else { Utf8PathBuf::from("python3") };
    let output = std::process::Command::new(&program).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then(|| format!("{program} ({version})"))
}

fn entries(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    dir.read_dir_utf8().map_or_else(
        |_| Vec::new(),
        |list| list.filter_map(Result::ok).map(|entry| entry.path().to_owned()).collect(),
    )
}

/// The highest plausible temperature: zones count in thousandths of a degree.
fn temperature(dir: &Utf8Path) -> Option<f64> {
    let zones = entries(dir).into_iter().filter_map(|zone| text(&zone.join("temp"))?.parse::<f64>().ok());
    zones.map(|value| value / 1000.0).filter(|celsius| (-40.0..150.0).contains(celsius)).reduce(f64::max)
}

fn bridge(dir: &Utf8Path) -> Option<String> {
    entries(dir).into_iter().find_map(|device| {
        let vendor = text(&device.join("idVendor"))?;
        let product = text(&device.join("idProduct"))?;
        let is_bridge = (vendor.as_str(), product.as_str()) == BRIDGE;
        is_bridge.then(|| text(&device.join("product")).unwrap_or_else(|| "unnamed".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_sensors_are_read_as_the_device_writes_them() {
        let keep = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(keep.path()).unwrap();
        for (file, content) in [("a/temp", "41500\n"), ("b/temp", "67000\n"), ("c/temp", "-274000\n")] {
            fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
            durable_fs::write_atomic(dir.join(file), content.as_bytes()).unwrap();
        }
        assert_eq!(temperature(dir), Some(67.0));
        for (name, content) in [("idVendor", "add1"), ("idProduct", "0001"), ("product", "custom 1")] {
            durable_fs::write_atomic(dir.join("a").join(name), content.as_bytes()).unwrap();
        }
        assert_eq!(bridge(dir).as_deref(), Some("custom 1"));
        durable_fs::write_atomic(dir.join("IsOnroad"), b"1").unwrap();
        assert!(is_on_road(&[dir.join("absent"), dir.to_owned()]));
        durable_fs::write_atomic(dir.join("IsOnroad"), b"0").unwrap();
        assert!(!is_on_road(&[dir.to_owned()]));
        std::fs::remove_file(dir.join("IsOnroad")).unwrap();
        std::fs::create_dir(dir.join("IsOnroad")).unwrap();
        assert!(is_on_road(&[dir.to_owned()]), "what cannot be read");
    }
}
