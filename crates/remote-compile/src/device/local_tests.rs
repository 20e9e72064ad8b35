use std::os::unix::fs::PermissionsExt;

use durable_fs::NoProgress;
use model_catalog::{ModelId, Sha256Digest};

use super::*;

/// A `models` that writes what a job writes: `script` runs with the job's directory as `$2`.
struct Machine {
    dir: tempfile::TempDir,
    device: LocalDevice,
}

fn machine(script: &str) -> Machine {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap();
    let models = root.join("models");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = about ] && echo '{{\"version\":\"0.1.0\",\"driver_sha256\":\"d\"}}' && exit\ncd \"$2\"\n\
         start=$(cut -d')' -f2 /proc/$$/stat | cut -d' ' -f21)\n\
         echo \"{{\\\"pid\\\":$$,\\\"start_time\\\":$start}}\" > pid.json\n{script}\n"
    );
    write_atomic(&models, text.as_bytes()).unwrap();
    fs::set_permissions(&models, fs::Permissions::from_mode(0o755)).unwrap();
    let options = LocalOptions { jobs_dir: root.join("jobs"), models };
    Machine { device: LocalDevice::new(options).unwrap(), dir }
}

fn job(byte: u8) -> JobName {
    JobName::new("compile", &ModelId::new("m").unwrap(), Sha256Digest::from_bytes([byte; 32])).unwrap()
}

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn wait_for(device: &LocalDevice, job: &JobName) -> JobView {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let view = device.look(job, 0).unwrap();
        match view.state {
            JobState::Running | JobState::Staged if Instant::now() < until => {}
            _ => return view,
        }
    }
}

#[test]
fn a_job_is_staged_run_fetched_and_removed() {
    let machine =
        machine("cp input/a output.bin; echo '{\"event\":1}' > events.jsonl; echo '{}' > result.json");
    let root = Utf8Path::from_path(machine.dir.path()).unwrap();
    let (device, job) = (&machine.device, job(1));
    assert_eq!(device.look(&job, 0).unwrap().state, JobState::Absent);
    let source = root.join("source");
    let written = write_atomic(&source, b"weights").unwrap();
    let expected = Expected::exactly(written.size, written.sha256);
    device.put(&job, &source, &path("input/a"), expected, &NoProgress).unwrap();
    assert_eq!(device.look(&job, 0).unwrap().state, JobState::Staged);
    device.start(&job).unwrap();
    let view = wait_for(device, &job);
    assert_eq!(view.state, JobState::Finished(b"{}\n".to_vec()));
    assert_eq!(view.events, b"{\"event\":1}\n");
    assert_eq!(device.look(&job, 5).unwrap().events, b"nt\":1}\n");
    let home = root.join("home");
    device.get(&job, &path("output.bin"), &home, expected, &NoProgress).unwrap();
    assert_eq!(fs::read(&home).unwrap(), b"weights");
    assert_eq!(device.jobs().unwrap(), std::slice::from_ref(&job));
    device.remove(&job).unwrap();
    assert!(device.jobs().unwrap().is_empty());
}

#[test]
fn a_changed_source_is_refused_and_not_staged() {
    let machine = machine("exit 0");
    let source = Utf8Path::from_path(machine.dir.path()).unwrap().join("source");
    write_atomic(&source, b"old").unwrap();
    let expected = Expected::exactly(3, Sha256Digest::from_bytes([0; 32]));
    let refused = machine.device.put(&job(1), &source, &path("input/a"), expected, &NoProgress).unwrap_err();
    assert!(refused.to_string().contains("SHA-256"), "{refused}");
    assert!(fs::read_dir(machine.device.dir(&job(1)).join("input")).unwrap().next().is_none());
}

#[test]
fn a_job_that_dies_says_so_and_can_be_started_again() {
    let machine = machine(
        "[ -e again ] && echo 1 > result.json && exit; touch again; echo 'out of luck' >&2; kill -9 $$",
    );
    let (device, job) = (&machine.device, job(1));
    device.put_bytes(&job, b"{}", &path("request.json")).unwrap();
    device.start(&job).unwrap();
    let JobState::Died { why } = wait_for(device, &job).state else { panic!("it did not die") };
    assert!(why.contains("out of luck") && why.contains("signal: 9"), "{why}");
    device.start(&job).unwrap();
    assert!(matches!(wait_for(device, &job).state, JobState::Finished(_)));
}

#[test]
fn cancelling_ends_the_job_and_what_it_started() {
    let machine = machine("trap 'exit 4' TERM; sleep 300 & echo $! > child.pid; wait");
    let (device, job) = (&machine.device, job(1));
    device.put_bytes(&job, b"{}", &path("request.json")).unwrap();
    device.start(&job).unwrap();
    let child = device.dir(&job).join("child.pid");
    while fs::read_to_string(&child).is_ok_and(|text| text.ends_with('\n')).eq(&false) {
        sleep(POLL);
    }
    let pid: i32 = fs::read_to_string(&child).unwrap().trim().parse().unwrap();
    device.cancel(&job).unwrap();
    assert!(matches!(device.look(&job, 0).unwrap().state, JobState::Died { .. }));
    let until = Instant::now() + Duration::from_secs(5);
    // The shell's child is gone too (as a zombie at most, until init reaps it).
    let gone = || fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
    while !gone() && Instant::now() < until {
        sleep(POLL);
    }
    assert!(gone());
}

#[test]
fn another_host_takes_a_running_job_over() {
    let machine = machine("sleep 0.4; echo '{\"by\":\"first\"}' > result.json");
    let (device, job) = (&machine.device, job(1));
    device.put_bytes(&job, b"{}", &path("request.json")).unwrap();
    device.start(&job).unwrap();
    while !device.dir(&job).join("pid.json").exists() {
        sleep(POLL);
    }
    // A second device object knows no child process, as a restarted host would not.
    let second = LocalDevice::new(device.options.clone()).unwrap();
    assert_eq!(second.state(&job).unwrap(), JobState::Running);
    second.start(&job).unwrap();
    assert!(
        matches!(wait_for(&second, &job).state, JobState::Finished(text) if text.starts_with(b"{\"by\""))
    );
}

#[test]
fn a_pid_that_another_process_was_given_is_not_ours() {
    let machine = machine("exit 0");
    let (device, job) = (&machine.device, job(1));
    let own = format!("{{\"pid\":{},\"start_time\":1}}", std::process::id());
    device.put_bytes(&job, own.as_bytes(), &path("pid.json")).unwrap();
    assert!(matches!(device.state(&job).unwrap(), JobState::Died { .. }));
    device.cancel(&job).unwrap();
}

#[test]
fn a_reserved_device_names_its_holder() {
    let machine = machine("exit 0");
    let held = machine.device.reserve("rebuild compile").unwrap();
    let refused = machine.device.reserve("rebuild validate").err().unwrap();
    assert!(refused.to_string().contains("rebuild compile (process"), "{refused}");
    drop(held);
    machine.device.reserve("rebuild validate").unwrap();
}

#[test]
fn a_missing_binary_says_how_to_get_it() {
    let options = LocalOptions { jobs_dir: "/nonexistent".into(), models: "/nonexistent/models".into() };
    let refused = LocalDevice::new(options).unwrap_err();
    assert!(refused.to_string().contains("rebuild.toml"), "{refused}");
    assert!(machine("exit 0").device.probe().unwrap().models_version == "0.1.0");
}
