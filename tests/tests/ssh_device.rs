//! The remote device over a real OpenSSH server on the loopback interface.
#![expect(clippy::disallowed_methods, reason = "tests make files the plain way")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by its panic")]
#![allow(clippy::allow_attributes, reason = "test code outside of #[test] functions")]

mod remote;

use std::{
    fs,
    time::{Duration, Instant},
};

use camino::Utf8Path;
use durable_fs::{Expected, NoProgress, Progress};
use e2e::{Sshd, sha256_file, wait_for};
use model_catalog::{ModelId, RelPath};
use remote::{Machine, random_file, rel};
use remote_compile::{
    device::{Device, DeviceError, JobName, JobState},
    safety::{Policy, RecordedDevice},
    ssh::{SshDevice, bootstrap, presented_host_key},
};

fn expected(file: &Utf8Path) -> Expected {
    let digest = sha256_file(file).unwrap().parse().unwrap();
    Expected::exactly(fs::metadata(file).unwrap().len(), digest)
}

fn job(number: u8) -> JobName {
    let digest = model_catalog::Sha256Digest::from_bytes([number; 32]);
    JobName::new("compile", &ModelId::new("m1").unwrap(), digest).unwrap()
}

/// Bytes that a transfer really moved are counted by the proxy, those that it reports by this.
#[derive(Default)]
struct Counted(std::sync::atomic::AtomicU64);

impl Progress for Counted {
    fn begin(&self, _label: &str, _total: Option<u64>) {}
    fn advance(&self, amount: u64) {
        self.0.fetch_add(amount, std::sync::atomic::Ordering::SeqCst);
    }
    fn end(&self) {}
}

#[test]
fn files_go_there_and_come_back() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let facts = device.facts().unwrap();
    assert_eq!(facts.architecture, std::env::consts::ARCH);
    assert!(facts.free_bytes > 0 && facts.jobs.is_empty());
    let file = random_file(&machine.dir().join("source"), 5 << 20);
    let counted = Counted::default();
    device.put(&job(1), &file, &rel("input/a.onnx"), expected(&file), &counted).unwrap();
    assert_eq!(counted.0.into_inner(), 5 << 20);
    let there = machine.jobs_dir().join(job(1).as_str()).join("input/a.onnx");
    assert_eq!(fs::read(&there).unwrap(), fs::read(&file).unwrap());

    // Equal files are not moved again, in either direction.
    let before = machine.proxy.moved();
    device.put(&job(1), &file, &rel("input/a.onnx"), expected(&file), &NoProgress).unwrap();
    let back = machine.dir().join("back");
    device.get(&job(1), &rel("input/a.onnx"), &back, expected(&file), &NoProgress).unwrap();
    let moved = machine.proxy.moved() - before;
    assert!((5 << 20..6 << 20).contains(&moved), "{moved}");
    device.get(&job(1), &rel("input/a.onnx"), &back, expected(&file), &NoProgress).unwrap();
    assert!(machine.proxy.moved() - before - moved < 1 << 16);
    assert_eq!(fs::read(&back).unwrap(), fs::read(&file).unwrap());
    assert_eq!(machine.proxy.accepted(), 1, "one connection serves everything");

    device.put_bytes(&job(2), b"{}", &rel("request.json")).unwrap();
    let mut jobs = device.jobs().unwrap();
    jobs.sort();
    assert_eq!(jobs, [job(1), job(2)]);
    device.remove(&job(1)).unwrap();
    device.remove(&job(2)).unwrap();
    assert_eq!(machine.left_over(), Vec::<String>::new());
}

#[test]
fn many_small_files_are_quick() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("small"), 3000);
    device.put(&job(1), &file, &rel("input/first"), expected(&file), &NoProgress).unwrap();
    let began = Instant::now();
    for number in 0..200 {
        device.put(&job(1), &file, &rel(&format!("input/f{number}")), expected(&file), &NoProgress).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_cut_upload_and_download_go_on_where_they_were() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("source"), 24 << 20);
    let back = machine.dir().join("back");
    device.facts().unwrap();
    let before = machine.proxy.moved();
    machine.proxy.cut_after(12 << 20);
    device.put(&job(1), &file, &rel("input/a"), expected(&file), &NoProgress).unwrap();
    let up = machine.proxy.moved() - before;
    assert!(up < 34 << 20, "a cut upload began anew: {up} bytes moved");
    let before = machine.proxy.moved();
    machine.proxy.cut_after(12 << 20);
    device.get(&job(1), &rel("input/a"), &back, expected(&file), &NoProgress).unwrap();
    let down = machine.proxy.moved() - before;
    assert!(down < 34 << 20, "a cut download began anew: {down} bytes moved");
    assert_eq!(fs::read(&back).unwrap(), fs::read(&file).unwrap());
    assert!(machine.proxy.accepted() >= 3);
    let leftovers: Vec<_> =
        fs::read_dir(machine.dir()).unwrap().filter_map(Result::ok).map(|e| e.file_name()).collect();
    assert!(leftovers.iter().all(|name| !name.to_string_lossy().starts_with(".incoming")), "{leftovers:?}");
}

#[test]
fn what_arrived_damaged_is_not_continued() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("source"), 4 << 20);
    let digest = sha256_file(&file).unwrap();
    let dir = machine.jobs_dir().join(job(1).as_str()).join("input");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(format!(".incoming-{}-a", &digest[..16])), vec![7; 1 << 20]).unwrap();
    device.put(&job(1), &file, &rel("input/a"), expected(&file), &NoProgress).unwrap();
    assert_eq!(fs::read(dir.join("a")).unwrap(), fs::read(&file).unwrap());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn keys_are_exchanged_anew_in_both_directions() {
    let Some(machine) = Machine::start(&["RekeyLimit 1M"]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("source"), 24 << 20);
    let back = machine.dir().join("back");
    device.put(&job(1), &file, &rel("input/a"), expected(&file), &NoProgress).unwrap();
    device.get(&job(1), &rel("input/a"), &back, expected(&file), &NoProgress).unwrap();
    assert_eq!(fs::read(&back).unwrap(), fs::read(&file).unwrap());
    assert_eq!(machine.proxy.accepted(), 1);
}

#[test]
fn one_session_is_enough() {
    let Some(machine) = Machine::start(&["MaxSessions 1"]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("source"), 8 << 20);
    let second = random_file(&machine.dir().join("second"), 8 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| device.put(&job(1), &file, &rel("input/a"), expected(&file), &NoProgress).unwrap());
        scope
            .spawn(|| device.put(&job(2), &second, &rel("input/a"), expected(&second), &NoProgress).unwrap());
        for _ in 0..5 {
            device.look(&job(1), 0).unwrap();
        }
    });
    device.get(&job(1), &rel("input/a"), &machine.dir().join("back"), expected(&file), &NoProgress).unwrap();
    assert_eq!(machine.proxy.accepted(), 1);
}

#[test]
fn a_silent_device_is_waited_for_and_a_dead_one_is_not() {
    let Some(machine) = Machine::start(&[]) else { return };
    let mut options = machine.options();
    options.silence = Duration::from_secs(4);
    let device = SshDevice::new(machine.address(), options).unwrap();
    device.facts().unwrap();
    // Silent for less than the limit: the same connection goes on.
    machine.proxy.stall(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            machine.proxy.stall(false);
        });
        device.facts().unwrap();
    });
    assert_eq!(machine.proxy.accepted(), 1);
    // Silent for longer: given up, and made again once it answers.
    machine.proxy.stall(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(6));
            machine.proxy.cut();
            machine.proxy.stall(false);
        });
        device.facts().unwrap();
    });
    assert!(machine.proxy.accepted() >= 2);
}

#[test]
fn a_server_that_is_away_is_tried_again() {
    let Some(mut machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    device.facts().unwrap();
    machine.sshd.pause();
    machine.proxy.cut();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| device.facts());
        std::thread::sleep(Duration::from_millis(1500));
        machine.sshd.resume().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn another_host_is_kept_out_and_told_who_holds_the_device() {
    let Some(machine) = Machine::start(&[]) else { return };
    let (first, mut options) = (machine.device(), machine.options());
    options.owner = "someone@elsewhere".to_owned();
    let second = SshDevice::new(machine.address(), options).unwrap();
    let held = first.reserve("rebuild compile").unwrap();
    let Err(DeviceError::Reserved { holder, .. }) = second.reserve("rebuild compile").map(drop) else {
        panic!()
    };
    assert!(holder.contains("test@here for rebuild compile"), "{holder}");
    // A lost connection does not give it away.
    machine.proxy.cut();
    assert!(matches!(second.reserve("rebuild compile").map(drop), Err(DeviceError::Reserved { .. })));
    first.facts().unwrap();
    assert!(matches!(second.reserve("rebuild compile").map(drop), Err(DeviceError::Reserved { .. })));
    drop(held);
    drop(second.reserve("rebuild compile").unwrap());
    // A host that was killed takes its own device back at once.
    let held = first.reserve("rebuild compile").unwrap();
    let again = machine.device();
    drop(again.reserve("rebuild compile").unwrap());
    drop(held);
}

#[test]
fn a_job_outlives_its_connection_and_is_cancelled_with_all_its_processes() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let marker = (100_000 + std::process::id()).to_string();
    let python = machine.script("python", &format!("#!/bin/sh\nexec sleep {marker}\n"));
    machine.stage_compile(&device, &job(1), &python);
    device.start(&job(1)).unwrap();
    device.start(&job(1)).unwrap();
    wait_for("the job's driver", Duration::from_secs(10), || !e2e::processes_with(&[&marker]).is_empty())
        .unwrap_or_else(|error| panic!("{error}: {:?}", device.look(&job(1), 0)));
    machine.proxy.cut();
    machine.sshd.cut_connections().unwrap();
    let other = machine.device();
    let view = other.look(&job(1), 0).unwrap();
    assert_eq!(view.state, JobState::Running);
    other.cancel(&job(1)).unwrap();
    let JobState::Finished(result) = other.look(&job(1), 0).unwrap().state else { panic!() };
    assert!(String::from_utf8(result).unwrap().contains("cancelled"));
    assert!(machine.processes().is_empty() && e2e::processes_with(&[&marker]).is_empty());
    other.remove(&job(1)).unwrap();
    assert_eq!(machine.left_over(), Vec::<String>::new());
}

#[test]
fn the_host_key_decides_before_the_login() {
    let Some(machine) = Machine::start(&[]) else { return };
    let facts = |policy: &Policy, known: bool| {
        let mut options = machine.options();
        options.first_patience = Duration::ZERO;
        if !known {
            options.known_hosts.clear();
        }
        SshDevice::new(machine.address_with(policy), options)
            .unwrap()
            .facts()
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let allowed = machine.policy();
    facts(&allowed, true).unwrap();
    let unknown = facts(&allowed, false).unwrap_err();
    assert!(unknown.contains("is not known") && unknown.contains("device trust"), "{unknown}");
    let fingerprint = machine.sshd.fingerprint().unwrap();
    assert_eq!(
        presented_host_key(&machine.address(), &machine.options()).unwrap().fingerprint(),
        fingerprint
    );

    let bound = |key: &str| Policy {
        recorded: vec![RecordedDevice { device: machine.name(), host_keys: vec![key.to_owned()] }],
        ..Policy::default()
    };
    facts(&bound(&fingerprint), false).unwrap();
    let changed = facts(&bound("SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), true).unwrap_err();
    assert!(changed.contains(&fingerprint) && changed.contains("is recorded"), "{changed}");
    let mut forbidding = allowed;
    forbidding.forbidden.forbid_host_key(fingerprint);
    assert!(facts(&forbidding, true).unwrap_err().contains("forbidden host key"));
    let log = fs::read_to_string(machine.dir().join("sshd/sshd.log")).unwrap();
    assert!(!log.contains("Accepted"), "{log}");
}

#[test]
fn a_device_that_has_a_forbidden_address_is_left_untouched() {
    let Some(machine) = Machine::start(&[]) else { return };
    // The device is this machine, so its own addresses are those of this machine: forbid one that is not the dialled one.
    let Some(own) = remote::own_address() else {
        return e2e::report_skip(
            "a_device_that_has_a_forbidden_address_is_left_untouched: only loopback addresses here",
        );
    };
    let mut policy = machine.policy();
    policy.forbidden.forbid_address(own);
    let device = SshDevice::new(machine.address_with(&policy), machine.options()).unwrap();
    let refused = device.put_bytes(&job(1), b"x", &rel("input/a")).unwrap_err();
    assert!(
        matches!(&refused, DeviceError::Refused { why, .. } if why.contains("device-has-forbidden-address")),
        "{refused}"
    );
    assert!(!machine.root().join("jobs").exists());
}

#[test]
fn encrypted_keys_ask_and_the_agent_is_asked_first() {
    let Some(machine) = Machine::start(&[]) else { return };
    let key = machine.dir().join("encrypted");
    let mut keygen = std::process::Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "open sesame", "-f", key.as_str()]);
    e2e::run(&mut keygen).unwrap().expect_code(0);
    let authorized = machine.dir().join("sshd/authorized_keys");
    let both = fs::read_to_string(&authorized).unwrap() + &fs::read_to_string(format!("{key}.pub")).unwrap();
    fs::write(&authorized, both).unwrap();
    let connect = |passphrase: Option<&'static str>, agent: Option<&Utf8Path>| {
        let mut options = machine.options();
        options.first_patience = Duration::ZERO;
        options.passphrases = passphrase.map(|text| -> remote_compile::ssh::Passphrases {
            std::sync::Arc::new(move |_: &Utf8Path| Some(text.to_owned()))
        });
        options.agent = agent.map(Utf8Path::to_owned);
        let address = machine.address_with_key(&key);
        SshDevice::new(address, options).unwrap().facts().map(drop).map_err(|error| error.to_string())
    };
    connect(Some("open sesame"), None).unwrap();
    // A connection that is made again asks nobody.
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut options = machine.options();
    let counted = std::sync::Arc::clone(&asked);
    options.passphrases = Some(std::sync::Arc::new(move |_: &Utf8Path| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Some("open sesame".to_owned())
    }));
    let device = SshDevice::new(machine.address_with_key(&key), options).unwrap();
    device.facts().unwrap();
    machine.proxy.cut();
    device.facts().unwrap();
    assert_eq!((asked.load(std::sync::atomic::Ordering::SeqCst), machine.proxy.accepted()), (1, 3));
    assert!(connect(Some("wrong"), None).unwrap_err().contains("passphrase is wrong"));
    assert!(connect(None, None).unwrap_err().contains("ssh-add"));

    let socket = machine.dir().join("agent");
    let mut agent =
        std::process::Command::new("ssh-agent").args(["-D", "-a", socket.as_str()]).spawn().unwrap();
    wait_for("the agent", Duration::from_secs(5), || socket.exists()).unwrap();
    let mut add = std::process::Command::new("ssh-add");
    add.env("SSH_AUTH_SOCK", &socket).arg(machine.sshd.user_key());
    e2e::run(&mut add).unwrap().expect_code(0);
    let with_agent = connect(None, Some(&socket));
    let _ = (agent.kill(), agent.wait());
    with_agent.unwrap();
}

#[test]
fn a_jump_host_is_followed_by_address() {
    let Some(machine) = Machine::start(&[]) else { return };
    let jump = Sshd::start(&machine.dir().join("jump"), &[]).unwrap();
    let config = format!(
        "Host dev\n HostName 127.0.0.1\n Port {}\n User {user}\n ProxyJump jumphost\n IdentityFile {}\n\
         Host jumphost\n HostName 127.0.0.1\n Port {}\n User {user}\n IdentityFile {}\n",
        machine.proxy.port(),
        machine.sshd.user_key(),
        jump.port(),
        jump.user_key(),
        user = remote::user(),
    );
    let policy = Policy { allowed: vec!["dev".to_owned()], ..Policy::default() };
    let address = remote::check("dev", &policy, &config).unwrap();
    let mut options = machine.options();
    let known = machine.dir().join("known_jump");
    fs::write(&known, jump.known_hosts_line(jump.port()).unwrap()).unwrap();
    options.known_hosts.push(known);
    let device = SshDevice::new(address, options).unwrap();
    let file = random_file(&machine.dir().join("source"), 4 << 20);
    device.put(&job(1), &file, &rel("input/a"), expected(&file), &NoProgress).unwrap();
    device.remove(&job(1)).unwrap();
}

#[test]
fn bootstrap_takes_only_a_binary_for_the_device() {
    let Some(machine) = Machine::start(&[]) else { return };
    let models = machine.root().join("models");
    let before = fs::read(&models).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let install = |binary: &Utf8Path| {
        bootstrap(&machine.address(), &machine.options(), binary, version).map_err(|error| error.to_string())
    };
    let text = machine.script("models-text", "#!/bin/sh\necho models 0.1.0\n");
    assert!(install(&text).unwrap_err().contains("no ELF file"));
    // The head of an executable for another machine.
    let mut foreign = before[..4096].to_vec();
    foreign[18] = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    fs::write(machine.dir().join("foreign"), foreign).unwrap();
    let wrong = install(&machine.dir().join("foreign")).unwrap_err();
    assert!(wrong.contains("and the device is"), "{wrong}");
    assert!(install(&models).unwrap_err().contains("not statically linked"));
    assert_eq!(fs::read(&models).unwrap(), before);
    let stays: Vec<_> =
        fs::read_dir(machine.root()).unwrap().filter_map(Result::ok).map(|e| e.file_name()).collect();
    assert!(stays.iter().all(|name| !name.to_string_lossy().starts_with(".incoming")), "{stays:?}");
}

#[test]
fn bootstrap_installs_a_static_binary_of_the_right_version() {
    let Some(machine) = Machine::start(&[]) else { return };
    let models = machine.root().join("models");
    // As small as a `models` can be that is a static executable for this machine and says a version.
    let build = |version: &str, says: &str| {
        let source = machine.dir().join("models.rs");
        let mark = remote_compile::ssh::VERSION_MARK;
        let text = format!(
            "#[used] static V: &str = \"{mark}{version}\\n\"; fn main() {{ println!(\"models {says}\"); }}"
        );
        fs::write(&source, text).unwrap();
        let binary = machine.dir().join(format!("models-{version}-{says}"));
        let mut rustc = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        rustc.args(["-C", "target-feature=+crt-static", "-o", binary.as_str(), source.as_str()]);
        let outcome = e2e::run(&mut rustc).unwrap();
        (outcome.code == Some(0)).then_some(binary)
    };
    let (Some(right), Some(old), Some(liar)) =
        (build("7.1.0", "7.1.0"), build("6.0.0", "6.0.0"), build("7.1.0", "6.0.0"))
    else {
        return e2e::report_skip(
            "bootstrap_installs_a_static_binary_of_the_right_version: rustc cannot link static executables here",
        );
    };
    let install = |binary: &Utf8Path| bootstrap(&machine.address(), &machine.options(), binary, "7.1.0");
    let before = fs::read(&models).unwrap();
    let refused = install(&old).unwrap_err().to_string();
    assert!(refused.contains("is `models` 6.0.0 and 7.1.0 is needed"), "{refused}");
    let refused = install(&liar).unwrap_err().to_string();
    assert!(refused.contains("says models 6.0.0") && refused.contains("7.1.0 is needed"), "{refused}");
    assert_eq!(fs::read(&models).unwrap(), before, "the old one stays until the new one is proven");
    assert_eq!(install(&right).unwrap(), "models 7.1.0");
    assert_eq!(fs::read(&models).unwrap(), fs::read(&right).unwrap());
    let names: Vec<_> =
        fs::read_dir(machine.root()).unwrap().filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["models"]);
}

#[test]
fn without_models_the_error_says_what_to_do() {
    let Some(machine) = Machine::start(&[]) else { return };
    fs::remove_file(machine.root().join("models")).unwrap();
    let error = machine.device().probe().unwrap_err();
    assert!(matches!(error, DeviceError::NoModels { .. }), "{error}");
    assert!(error.to_string().contains("rebuild device bootstrap"), "{error}");
}

#[test]
fn names_of_jobs_cannot_leave_their_directory() {
    assert!(RelPath::new("../x").is_err());
    for text in
        ["compile.a b.0123456789abcdef", "compile.a;b.0123456789abcdef", "compile.../x.0123456789abcdef"]
    {
        assert!(text.parse::<JobName>().is_err(), "{text}");
    }
}

#[test]
fn a_file_for_which_the_device_has_no_space_is_not_sent() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    device.facts().unwrap();
    // A file that is all holes has the size of more than any disk and takes none.
    let huge = machine.dir().join("huge");
    let size = 8 << 40;
    if let Err(error) = fs::File::create(&huge).unwrap().set_len(size) {
        return e2e::report_skip(&format!(
            "a_file_for_which_the_device_has_no_space_is_not_sent: this disk has no file of that size ({error})"
        ));
    }
    let digest = model_catalog::Sha256Digest::from_bytes([7; 32]);
    let before = machine.proxy.moved();
    let refused = device
        .put(&job(1), &huge, &rel("input/a"), Expected::exactly(size, digest), &NoProgress)
        .unwrap_err();
    let DeviceError::Space { needed, free, .. } = &refused else { panic!("{refused}") };
    assert!(*needed > size && *free < size, "{refused}");
    assert!(machine.proxy.moved() - before < 1 << 16, "it was sent all the same");
}

#[test]
fn a_file_appears_when_it_is_whole_and_the_right_one() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("source"), 6 << 20);
    let dir = machine.root().join("jobs").join("none");
    assert!(!dir.exists());
    // While it is on its way only its temporary name is there.
    machine.proxy.throttle(6 << 20);
    let names = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            device.put(&job(1), &file, &rel("input/a"), expected(&file), &NoProgress).unwrap();
        });
        let mut names = std::collections::BTreeSet::new();
        while !sending.is_finished() {
            names.extend(there(&machine));
            std::thread::sleep(Duration::from_millis(5));
        }
        names
    });
    machine.proxy.throttle(0);
    assert!(names.iter().any(|name| name.starts_with(".incoming-")), "{names:?}");
    assert_eq!(there(&machine), ["a"]);
    // What is not the expected file never appears, in either direction, and leaves nothing.
    let wrong = Expected::exactly(6 << 20, model_catalog::Sha256Digest::from_bytes([1; 32]));
    device.put(&job(1), &file, &rel("input/b"), wrong, &NoProgress).unwrap_err();
    device.get(&job(1), &rel("input/a"), &machine.dir().join("c"), wrong, &NoProgress).unwrap_err();
    assert!(!there(&machine).contains(&"b".to_owned()) && !machine.dir().join("c").exists());
    let here = fs::read_dir(machine.dir()).unwrap().filter_map(Result::ok);
    assert!(!here.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".incoming")));
}

/// Names in the input directory of the device's only job.
fn there(machine: &Machine) -> Vec<String> {
    let jobs = machine.jobs_dir().join(job(1).as_str()).join("input");
    let entries = fs::read_dir(jobs).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_damaged_beginning_is_not_continued_at_home() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("source"), 4 << 20);
    device.put(&job(1), &file, &rel("input/a"), expected(&file), &NoProgress).unwrap();
    let digest = sha256_file(&file).unwrap();
    let back = machine.dir().join("back");
    fs::write(machine.dir().join(format!(".incoming-{}-back", &digest[..16])), vec![7; 1 << 20]).unwrap();
    device.get(&job(1), &rel("input/a"), &back, expected(&file), &NoProgress).unwrap();
    assert_eq!(fs::read(&back).unwrap(), fs::read(&file).unwrap());
}

#[test]
fn progress_counts_each_byte_once_also_after_a_cut() {
    let Some(machine) = Machine::start(&[]) else { return };
    let device = machine.device();
    let file = random_file(&machine.dir().join("source"), 16 << 20);
    device.facts().unwrap();
    machine.proxy.cut_after(8 << 20);
    let counted = Counted::default();
    device.put(&job(1), &file, &rel("input/a"), expected(&file), &counted).unwrap();
    assert_eq!(counted.0.into_inner(), 16 << 20);
}
