//! A remote device that is really this machine: an OpenSSH server, a proxy before it, and a device root.
#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::{
    fs,
    io::Write,
    net::{IpAddr, SocketAddr},
    os::unix::fs::PermissionsExt,
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use e2e::{Binaries, FaultProxy, Scenario, Sshd};
use model_catalog::RelPath;
use remote_compile::{
    device::{Device, JobName},
    safety::{DeviceAddress, LocalUser, Policy, Refusal, SshConfig, SystemResolver, check_device},
    ssh::{SshDevice, SshOptions},
};

/// Who the tests are to the device.
const OWNER: &str = "test@here";

pub struct Machine {
    pub sshd: Sshd,
    pub proxy: FaultProxy,
    keep: tempfile::TempDir,
}

pub fn user() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "root".to_owned())
}

pub fn rel(path: &str) -> RelPath {
    RelPath::new(path).unwrap()
}

pub fn check(device: &str, policy: &Policy, config: &str) -> Result<DeviceAddress, Refusal> {
    let local = LocalUser { name: user(), home: "/nonexistent".into() };
    let config = SshConfig::parse(config, Utf8Path::new("/nonexistent"), &local)?;
    check_device(device, policy, &config, &SystemResolver, &local)
}

/// Bytes that do not compress.
pub fn random_file(path: &Utf8Path, size: usize) -> Utf8PathBuf {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ size as u64 ^ path.as_str().len() as u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    fs::File::create(path).unwrap().write_all(&bytes).unwrap();
    path.to_owned()
}

/// An address of this machine that is no loopback address. Nothing is sent to find it.
pub fn own_address() -> Option<IpAddr> {
    let text = fs::read_to_string("/proc/net/fib_trie").ok()?;
    let mut last: Option<IpAddr> = None;
    for line in text.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse().ok();
        } else if line.contains("host LOCAL")
            && let Some(address) = last.filter(|address| !address.is_loopback())
        {
            return Some(address);
        }
    }
    None
}

impl Machine {
    /// `None` where this machine has no OpenSSH server; the skip is reported.
    pub fn start(sshd_lines: &[&str]) -> Option<Self> {
        let test = std::thread::current().name().unwrap_or("ssh").to_owned();
        if let Err(error) = e2e::find_sshd() {
            e2e::report_skip(&format!("{test}: {error}"));
            return None;
        }
        let keep = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(keep.path()).unwrap().to_owned();
        let sshd = Sshd::start(&dir.join("sshd"), sshd_lines).unwrap();
        let proxy = FaultProxy::start(sshd.port()).unwrap();
        let machine = Self { sshd, proxy, keep };
        fs::create_dir_all(machine.root()).unwrap();
        let models = Binaries::locate().unwrap().models;
        // A copy: the device removes and replaces its own.
        fs::copy(&models, machine.root().join("models")).unwrap();
        Some(machine)
    }

    pub fn dir(&self) -> &Utf8Path {
        Utf8Path::from_path(self.keep.path()).unwrap()
    }

    /// What `/data/model-rebuild` is on a real device.
    pub fn root(&self) -> Utf8PathBuf {
        self.dir().join("device")
    }

    pub fn name(&self) -> String {
        format!("{}@127.0.0.1:{}", user(), self.proxy.port())
    }

    pub fn policy(&self) -> Policy {
        Policy { allowed: vec![self.name()], ..Policy::default() }
    }

    pub fn address(&self) -> DeviceAddress {
        self.address_with(&self.policy())
    }

    pub fn address_with(&self, policy: &Policy) -> DeviceAddress {
        check(&self.name(), policy, &format!("IdentityFile {}\n", self.sshd.user_key())).unwrap()
    }

    pub fn address_with_key(&self, key: &Utf8Path) -> DeviceAddress {
        check(&self.name(), &self.policy(), &format!("IdentityFile {key}\n")).unwrap()
    }

    pub fn options(&self) -> SshOptions {
        let local = LocalUser { name: user(), home: "/nonexistent".into() };
        let mut options = SshOptions::new(self.root().as_str().parse().unwrap(), local, OWNER);
        let known = self.dir().join("known_hosts");
        fs::write(&known, self.sshd.known_hosts_line(self.proxy.port()).unwrap()).unwrap();
        options.known_hosts = vec![known];
        options.patience = Duration::from_secs(20);
        options.first_patience = options.patience;
        options
    }

    pub fn device(&self) -> SshDevice {
        SshDevice::new(self.address(), self.options()).unwrap()
    }

    /// Makes this the device of a workspace; returns a home directory whose SSH configuration knows it.
    pub fn configure(&self, scenario: &Scenario) -> Utf8PathBuf {
        let home = self.dir().join("home");
        fs::create_dir_all(home.join(".ssh")).unwrap();
        let known = self.sshd.known_hosts_line(self.proxy.port()).unwrap();
        fs::write(home.join(".ssh/known_hosts"), known).unwrap();
        let config = format!("IdentityFile {}\nIdentitiesOnly yes\n", self.sshd.user_key());
        fs::write(home.join(".ssh/config"), config).unwrap();
        let path = scenario.workspace.join("rebuild.toml");
        let text = fs::read_to_string(&path).unwrap();
        let others = text.lines().filter(|line| !line.starts_with("device ="));
        let own = [
            format!("device_root = {:?}", self.root().as_str()),
            format!("device = {:?}", self.name()),
            format!("allow_devices = [{:?}]", self.name()),
        ];
        let lines: Vec<String> = own.into_iter().chain(others.map(str::to_owned)).collect();
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        home
    }

    pub fn socket(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.proxy.port()))
    }

    pub fn script(&self, name: &str, text: &str) -> Utf8PathBuf {
        let path = self.dir().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Stages a compile job whose interpreter is `python`.
    pub fn stage_compile(&self, device: &SshDevice, job: &JobName, python: &Utf8Path) {
        let onnx = random_file(&self.dir().join("any.onnx"), 1000);
        let sha256 = e2e::sha256_file(&onnx).unwrap();
        let request = serde_json::json!({
            "protocol": 1, "kind": "run", "artifact": "input/a.pkl", "target": "cpu",
            "cameras": [[1928, 1208]], "steps": 1, "seed": 1, "frames": "random", "python": python,
        });
        device
            .put(
                job,
                &onnx,
                &rel("input/a.pkl"),
                durable_fs::Expected { size: Some(1000), sha256: sha256.parse().ok() },
                &durable_fs::NoProgress,
            )
            .unwrap();
        device.put_bytes(job, request.to_string().as_bytes(), &rel("request.json")).unwrap();
    }

    /// Where the device keeps the jobs of this host.
    pub fn jobs_dir(&self) -> Utf8PathBuf {
        let jobs = self.root().join("jobs");
        let own = jobs.join(&e2e::sha256_bytes(OWNER.as_bytes())[..16]);
        if own.is_dir() {
            return own;
        }
        // `rebuild` has a name of its own; with one host there is one directory.
        let others = jobs.read_dir_utf8().into_iter().flatten().flatten();
        others.map(|entry| entry.path().to_owned()).find(|path| path.is_dir()).unwrap_or(own)
    }

    /// What is left of jobs on the device.
    pub fn left_over(&self) -> Vec<String> {
        let jobs = self.jobs_dir();
        let names =
            fs::read_dir(jobs).map_or_else(|_| Vec::new(), |list| list.filter_map(Result::ok).collect());
        names
            .into_iter()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect()
    }

    /// Processes that were started from this device's root, the serving ones aside.
    pub fn processes(&self) -> Vec<u32> {
        e2e::processes_with(&[self.root().join("models").as_str(), "job"])
    }
}
