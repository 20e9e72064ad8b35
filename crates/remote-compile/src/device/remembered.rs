//! A device whose jobs the workspace remembers until they are gone from it.
//!
//! What can go wrong: the host is killed, or the connection is lost, after an artifact is home and before its job is removed.
//! The next run has nothing to build and would never look. So each job is written down before anything of it goes to the
//! device, and forgotten when the device says that it is removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    sync::{Mutex, PoisonError},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, Progress, Written, write_json};
use model_catalog::RelPath;

use super::{Device, DeviceError, DeviceFacts, JobName, JobView, Reservation, Upload};

/// Names of jobs, by the name of the device that has them.
type Jobs = BTreeMap<String, BTreeSet<String>>;

/// A device, and the file that says what is on it.
pub struct RememberedDevice {
    inner: Box<dyn Device>,
    file: Utf8PathBuf,
    /// Those of this run: a job is written down once, not with each of its files.
    written: Mutex<BTreeSet<String>>,
}

impl RememberedDevice {
    /// `inner`, whose jobs are remembered in `file`. The caller holds the lock of the workspace that `file` belongs to.
    pub fn new(inner: Box<dyn Device>, file: Utf8PathBuf) -> Self {
        Self { inner, file, written: Mutex::default() }
    }

    /// Whether `device` may have jobs of earlier runs. A file that cannot be read says nothing, so that it may.
    pub fn may_hold_jobs(file: &Utf8Path, device: &str) -> bool {
        load(file).map_or(true, |jobs| jobs.contains_key(device))
    }

    fn remember(&self, job: &JobName) -> Result<(), DeviceError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.contains(&job.to_string()) {
            return Ok(());
        }
        // A damaged file is begun anew: what it said is found by the sweep that this run makes anyway.
        let mut jobs = load(&self.file).unwrap_or_default();
        if jobs.entry(self.name().to_owned()).or_default().insert(job.to_string()) {
            write_json(&self.file, &jobs)?;
        }
        written.insert(job.to_string());
        Ok(())
    }

    fn forget(&self, gone: impl Fn(&str) -> bool) -> Result<(), DeviceError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|job| !gone(job));
        let mut jobs = load(&self.file).unwrap_or_default();
        let Some(own) = jobs.get_mut(self.name()) else { return Ok(()) };
        let before = own.len();
        own.retain(|job| !gone(job));
        if own.len() == before {
            return Ok(());
        }
        jobs.retain(|_, jobs| !jobs.is_empty());
        if jobs.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(FsError::io("remove", &self.file)(error).into())
                }
                _ => Ok(()),
            };
        }
        write_json(&self.file, &jobs)?;
        Ok(())
    }
}

fn load(file: &Utf8Path) -> Result<Jobs, FsError> {
    match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Jobs::new()),
        Err(error) => Err(FsError::io("read", file)(error)),
        Ok(text) => {
            serde_json::from_slice(&text).map_err(|source| FsError::Json { path: file.to_owned(), source })
        }
    }
}

impl Device for RememberedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn probe(&self) -> Result<DeviceFacts, DeviceError> {
        self.inner.probe()
    }

    fn reserve(&self, purpose: &str) -> Result<Box<dyn Reservation + '_>, DeviceError> {
        self.inner.reserve(purpose)
    }

    fn jobs_are_own(&self) -> bool {
        self.inner.jobs_are_own()
    }

    /// The jobs that are there; others are forgotten.
    fn jobs(&self) -> Result<Vec<JobName>, DeviceError> {
        let jobs = self.inner.jobs()?;
        let there: BTreeSet<String> = jobs.iter().map(ToString::to_string).collect();
        self.forget(|job| !there.contains(job))?;
        Ok(jobs)
    }

    fn put(
        &self,
        job: &JobName,
        from: &Utf8Path,
        to: &RelPath,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<(), DeviceError> {
        self.remember(job)?;
        self.inner.put(job, from, to, expected, progress)
    }

    fn put_all(&self, job: &JobName, files: &[Upload], progress: &dyn Progress) -> Result<(), DeviceError> {
        self.remember(job)?;
        self.inner.put_all(job, files, progress)
    }

    fn put_bytes(&self, job: &JobName, bytes: &[u8], to: &RelPath) -> Result<(), DeviceError> {
        self.remember(job)?;
        self.inner.put_bytes(job, bytes, to)
    }

    fn get(
        &self,
        job: &JobName,
        from: &RelPath,
        to: &Utf8Path,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<Written, DeviceError> {
        self.inner.get(job, from, to, expected, progress)
    }

    fn start(&self, job: &JobName) -> Result<(), DeviceError> {
        self.remember(job)?;
        self.inner.start(job)
    }

    fn look(&self, job: &JobName, offset: u64) -> Result<JobView, DeviceError> {
        self.inner.look(job, offset)
    }

    fn cancel(&self, job: &JobName) -> Result<(), DeviceError> {
        self.inner.cancel(job)
    }

    fn remove(&self, job: &JobName) -> Result<(), DeviceError> {
        self.inner.remove(job)?;
        let name = job.to_string();
        self.forget(|other| other == name)
    }
}

#[cfg(test)]
mod tests {
    use model_catalog::{ModelId, Sha256Digest};

    use super::*;
    use crate::device::{LocalDevice, LocalOptions};

    fn job(model: &str) -> JobName {
        JobName::new("compile", &ModelId::new(model).unwrap(), Sha256Digest::from_bytes([7; 32])).unwrap()
    }

    #[test]
    fn a_job_is_remembered_before_it_is_there_and_until_it_is_gone() {
        let keep = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(keep.path()).unwrap();
        let file = dir.join("device-jobs.json");
        let models = dir.join("models");
        durable_fs::write_atomic(&models, b"").unwrap();
        let local = || {
            let options = LocalOptions { jobs_dir: dir.join("jobs"), models: models.clone() };
            RememberedDevice::new(Box::new(LocalDevice::new(options).unwrap()), file.clone())
        };
        let path = RelPath::new("input/x").unwrap();
        assert!(!RememberedDevice::may_hold_jobs(&file, "local"));
        let device = local();
        device.put_bytes(&job("a"), b"x", &path).unwrap();
        device.put_bytes(&job("b"), b"x", &path).unwrap();
        assert!(RememberedDevice::may_hold_jobs(&file, "local"));
        assert!(!RememberedDevice::may_hold_jobs(&file, "other"));
        device.remove(&job("a")).unwrap();
        assert!(RememberedDevice::may_hold_jobs(&file, "local"));

        // Another run, after a kill: one is still there, one had only been written down.
        let device = local();
        device.remember(&job("c")).unwrap();
        assert_eq!(device.jobs().unwrap(), [job("b")]);
        device.remove(&job("b")).unwrap();
        assert!(!file.exists());
        assert!(!RememberedDevice::may_hold_jobs(&file, "local"));

        // What cannot be read may say anything; what cannot be written stops the job before it begins.
        durable_fs::write_atomic(&file, b"{").unwrap();
        assert!(RememberedDevice::may_hold_jobs(&file, "local"));
        device.put_bytes(&job("d"), b"x", &path).unwrap();
        device.remove(&job("d")).unwrap();
        assert!(!file.exists());
        fs::create_dir(&file).unwrap();
        device.put_bytes(&job("e"), b"x", &path).unwrap_err();
        assert_eq!(device.jobs().unwrap(), []);
    }
}
