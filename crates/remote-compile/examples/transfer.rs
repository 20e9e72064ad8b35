//! Sends a file (or the files of a directory) to a device, or fetches one:
//! `transfer put|get DEVICE KEY KNOWN_HOSTS ROOT FILE`. Shows how the library is used, and is what the transfer benchmark
//! measures.

use std::error::Error;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, NoProgress, hash_file};
use model_catalog::{ModelId, RelPath, Sha256Digest};
use remote_compile::{
    device::{Device, JobName, Upload},
    safety::{LocalUser, Policy, SshConfig, SystemResolver, check_device},
    ssh::{SshDevice, SshOptions},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [verb, device, key, known_hosts, root, file] = &arguments[..] else {
        return Err("transfer put|get DEVICE KEY KNOWN_HOSTS ROOT FILE".into());
    };
    let local = LocalUser { name: "nobody".to_owned(), home: "/nonexistent".into() };
    let config = SshConfig::parse(&format!("IdentityFile {key}\n"), Utf8Path::new("/nonexistent"), &local)?;
    let policy = Policy { allowed: vec![device.clone()], ..Policy::default() };
    let address = check_device(device, &policy, &config, &SystemResolver, &local)?;
    let mut options = SshOptions::new(root.parse()?, local, "transfer");
    options.known_hosts = vec![known_hosts.into()];
    let device = SshDevice::new(address, options)?;
    let job = JobName::new("compile", &ModelId::new("bench")?, Sha256Digest::from_bytes([0; 32]))?;
    let file = Utf8PathBuf::from(file);
    match verb.as_str() {
        "put" if file.is_dir() => put_all(&device, &job, &file)?,
        "put" => device.put(&job, &file, &RelPath::new("input/file")?, expected(&file)?, &NoProgress)?,
        "get" => {
            device.get(&job, &RelPath::new("input/file")?, &file, expected(&file)?, &NoProgress)?;
        }
        other => return Err(format!("{other} is neither put nor get").into()),
    }
    Ok(())
}

fn put_all(device: &SshDevice, job: &JobName, dir: &Utf8Path) -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in dir.read_dir_utf8()? {
        let from = entry?.into_path();
        let to = RelPath::new(format!("input/{}", from.file_name().unwrap_or_default()))?;
        files.push(Upload { expected: expected(&from)?, from, to });
    }
    Ok(device.put_all(job, &files, &NoProgress)?)
}

/// Size and digest of the file: from `FILE.expected` where that is there, as a rebuild has them from its records.
fn expected(file: &Utf8Path) -> Result<Expected, Box<dyn Error>> {
    let note = format!("{file}.expected");
    if let Ok(text) = std::fs::read_to_string(note) {
        let (size, digest) = text.trim().split_once(' ').ok_or("a size and a digest")?;
        return Ok(Expected::exactly(size.parse()?, digest.parse()?));
    }
    let (sha256, size) = hash_file(file, &NoProgress)?;
    Ok(Expected::exactly(size, sha256))
}
