//! GPU faults in the kernel's log.
//!
//! A GPU that faults and recovers during a compile was seen to leave an artifact that computes something else, with exit
//! status 0. Records that appear between two looks are judged; older ones say nothing about this compile.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
};

use camino::Utf8PathBuf;

/// Where the kernel's records are read; one record a line or a read, `priority,sequence,time,flags;message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLog {
    /// The device file.
    pub path: Utf8PathBuf,
}

impl Default for KernelLog {
    fn default() -> Self {
        Self { path: "/dev/kmsg".into() }
    }
}

/// A place in the log: records behind it are new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition(Option<u64>);

/// A record is a fault where it has a word of each list, in lower case.
const SUBJECTS: [&str; 6] = ["kgsl", "adreno", "gpu", "smmu", "amdgpu", "iommu"];
const TROUBLES: [&str; 7] = ["fault", "faults", "hang", "hung", "snapshot", "timeout", "reset"];

impl KernelLog {
    /// The end of the log now; `None` where it cannot be read (a device may keep it to root).
    pub fn position(&self) -> Option<LogPosition> {
        let records = self.records().ok()?;
        Some(LogPosition(records.last().map(|(sequence, _)| *sequence)))
    }

    /// Faults that were recorded after `since`.
    ///
    /// # Errors
    /// The log can no longer be read.
    pub fn faults_since(&self, since: LogPosition) -> io::Result<Vec<String>> {
        let records = self.records()?;
        let new = records.into_iter().filter(|(sequence, _)| since.0.is_none_or(|last| *sequence > last));
        Ok(new.map(|(_, message)| message).filter(|message| is_fault(message)).collect())
    }

    fn records(&self) -> io::Result<Vec<(u64, String)>> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(nonblocking).open(&self.path)?;
        let mut records = Vec::new();
        let mut block = vec![0; 8192];
        let mut text = String::new();
        while let Some(read) = read_some(&mut file, &mut block)? {
            text.push_str(&String::from_utf8_lossy(&block[..read]));
            if text.ends_with('\n') {
                records.extend(text.lines().filter_map(parse_record));
                text.clear();
            }
        }
        records.extend(text.lines().filter_map(parse_record));
        Ok(records)
    }
}

/// One read: a record of the device file, or a block of an ordinary file. `None` at the end.
fn read_some(file: &mut File, block: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match file.read(block) {
            Ok(0) => return Ok(None),
            Ok(read) => return Ok(Some(read)),
            // EPIPE: records were overwritten while reading; the next read goes on behind them.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn parse_record(line: &str) -> Option<(u64, String)> {
    let (head, message) = line.split_once(';')?;
    let sequence = head.split(',').nth(1)?.parse().ok()?;
    Some((sequence, message.to_owned()))
}

fn is_fault(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let has = |known: &[&str]| {
        message.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| known.contains(&word))
    };
    has(&SUBJECTS) && has(&TROUBLES)
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;
    use durable_fs::write_atomic;

    use super::*;

    const BEFORE: &str =
        "6,10,100,-;usb 2-1: new SuperSpeed USB device\n3,11,200,-;kgsl kgsl-3d0: GPU PAGE FAULT: addr = 0\n";

    #[test]
    fn only_new_faults_count() {
        let guard = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(guard.path()).unwrap().join("kmsg");
        write_atomic(&path, BEFORE.as_bytes()).unwrap();
        let log = KernelLog { path: path.clone() };
        let position = log.position().unwrap();
        assert!(log.faults_since(position).unwrap().is_empty());
        let more = "6,12,300,-;wlan0: associated\n3,13,400,-;kgsl kgsl-3d0: |a6xx_gmu| GPU hang detected\n SUBSYSTEM=x\n";
        write_atomic(&path, format!("{BEFORE}{more}").as_bytes()).unwrap();
        assert_eq!(log.faults_since(position).unwrap(), ["kgsl kgsl-3d0: |a6xx_gmu| GPU hang detected"]);
    }

    #[test]
    fn a_log_that_cannot_be_read_has_no_position() {
        assert_eq!(KernelLog { path: "/no/such/log".into() }.position(), None);
    }

    #[test]
    fn faults_are_told_from_talk_about_gpus() {
        assert!(is_fault("arm-smmu 5040000.iommu: Unhandled context fault: iova=0x0"));
        assert!(is_fault("amdgpu 0000:03:00.0: amdgpu: ring gfx timeout"));
        assert!(!is_fault("msm_gpu: loaded firmware a640_gmu"));
        assert!(!is_fault("usb 2-1: reset SuperSpeed USB device"));
        assert!(!is_fault("gpu: using the default clock"));
    }
}
