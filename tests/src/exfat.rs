//! A real exFAT disk, in a file: no links of either kind, no owners, names without case.

use std::process::{Command, Stdio};

use camino::{Utf8Path, Utf8PathBuf};

use crate::is_root;

/// A mounted disk; taken away when dropped.
#[derive(Debug)]
pub struct ExFat {
    at: Utf8PathBuf,
    device: String,
}

impl ExFat {
    /// Makes a disk of `mib` MiB in `dir` and mounts it there.
    ///
    /// # Errors
    /// The reason for which it cannot be mounted here.
    pub fn mount(dir: &Utf8Path, mib: u64) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("mounting is written for Linux".to_owned());
        }
        if !is_root() {
            return Err("mounting a disk takes root".to_owned());
        }
        let (image, at) = (dir.join("disk.img"), dir.join("disk"));
        std::fs::create_dir(&at).map_err(|error| format!("{at}: {error}"))?;
        done(Command::new("truncate").args(["--size", &format!("{mib}M"), image.as_str()]))?;
        done(Command::new("mkfs.exfat").arg(&image))?;
        let device = done(Command::new("losetup").args(["--find", "--show", image.as_str()]))?;
        let disk = Self { at, device };
        // The kernel's own where it has one, else the one in user space.
        let kernel = done(Command::new("mount").args(["-t", "exfat", &disk.device, disk.at.as_str()]));
        let user = |_| done(Command::new("mount.exfat-fuse").args([&disk.device, disk.at.as_str()]));
        kernel.or_else(user).map(|_| disk)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Utf8Path {
        &self.at
    }
}

impl Drop for ExFat {
    fn drop(&mut self) {
        // What cannot be taken away stays for the system to take.
        let _ = done(Command::new("umount").args(["--lazy", self.at.as_str()]));
        let _ = done(Command::new("losetup").args(["--detach", &self.device]));
    }
}

fn done(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
