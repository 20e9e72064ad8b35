//! A catalog through a remote device, undisturbed and under faults: it ends complete, byte-identical, and leaves nothing there.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "tests make files the plain way")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by its panic")]
#![allow(clippy::allow_attributes, reason = "test code outside of #[test] functions")]

mod remote;

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel, Signal, run, send_signal, sha256_file,
    wait_for,
};
use remote::Machine;

const MODELS: [ScenarioModel; 3] = [
    ScenarioModel::split(
        "ra1",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 61)),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 62)),
        ],
    ),
    ScenarioModel::split(
        "rb2",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 63)),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 64)),
        ],
    ),
    ScenarioModel::split(
        "rc3",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 65)),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 66)),
        ],
    ),
];

/// Faults of the whole campaign, and how long its sample in the ordinary suite takes.
const CAMPAIGN: usize = 100;
const SAMPLE: Duration = Duration::from_secs(30);
const RUN_LIMIT: Duration = Duration::from_secs(240);
const EXIT_ENVIRONMENT: i32 = 5;

struct Catalog {
    machine: Machine,
    scenario: Scenario,
    home: Utf8PathBuf,
}

impl Catalog {
    /// An extracted catalog whose device is this machine over SSH.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    fn start_with(sshd_lines: &[&str]) -> Option<Self> {
        let python = PythonEnvironment::find_or_skip()?;
        let machine = Machine::start(sshd_lines)?;
        let home = machine.dir().join("home");
        fs::create_dir_all(home.join(".ssh")).unwrap();
        let known = machine.sshd.known_hosts_line(machine.proxy.port()).unwrap();
        fs::write(home.join(".ssh/known_hosts"), known).unwrap();
        let config = format!("IdentityFile {}\nIdentitiesOnly yes\n", machine.sshd.user_key());
        fs::write(home.join(".ssh/config"), config).unwrap();
        let scenario = Scenario::create(&machine.dir().join("scenario"), &python, &MODELS).unwrap();
        let catalog = Self { machine, scenario, home };
        catalog.configure(&catalog.scenario, &python);
        Some(catalog)
    }

    fn configure(&self, scenario: &Scenario, python: &PythonEnvironment) {
        scenario.init(python, None).unwrap().expect_code(0);
        let path = scenario.workspace.join("rebuild.toml");
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("device ="));
        let mut text: Vec<String> = lines.map(str::to_owned).collect();
        text.insert(
            0,
            format!("device = {:?}\nallow_devices = [{:?}]", self.machine.name(), self.machine.name()),
        );
        text.insert(0, format!("device_root = {:?}", self.machine.root().as_str()));
        fs::write(&path, text.join("\n") + "\n").unwrap();
        run(&mut self.rebuild(scenario, &["extract"])).unwrap().expect_code(0);
    }

    fn rebuild(&self, scenario: &Scenario, arguments: &[&str]) -> Command {
        let mut command = scenario.rebuild(arguments);
        command.env("HOME", &self.home).env("USER", remote::user()).env_remove("SSH_AUTH_SOCK");
        command
    }

    /// A second host, with a workspace of its own.
    fn other_host(&self) -> Scenario {
        let python = PythonEnvironment::find_or_skip().unwrap();
        let other = self.scenario.with_workspace(self.machine.dir().join("scenario/other-host"));
        self.configure(&other, &python);
        other
    }

    fn lease(&self) -> Utf8PathBuf {
        self.machine.root().join("jobs/.lease.json")
    }

    /// A compile that has the device for itself.
    fn compiling(&self) -> Child {
        let child = self.compile();
        wait_for("the device to be taken", RUN_LIMIT, || self.lease().exists()).unwrap();
        child
    }

    fn compile(&self) -> Child {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.machine.dir().join("rebuild.log"))
            .unwrap();
        let mut command = self.rebuild(&self.scenario, &["compile"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// Forgets what was compiled, so that the next run builds it again.
    fn forget(&self) {
        for dir in ["compiled", "results", "ready-for-resources", "logs"] {
            for name in self.scenario.list(dir).iter().filter(|name| !name.ends_with("_source.json")) {
                fs::remove_file(self.scenario.workspace.join(dir).join(name)).unwrap();
            }
        }
    }

    fn artifacts(&self) -> BTreeMap<String, String> {
        self.artifacts_of(&self.scenario)
    }

    fn artifacts_of(&self, scenario: &Scenario) -> BTreeMap<String, String> {
        let dir = scenario.workspace.join("compiled");
        let names = scenario.list("compiled");
        names.into_iter().map(|name| (name.clone(), sha256_file(&dir.join(name)).unwrap())).collect()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.machine.dir().join("rebuild.log")).unwrap_or_default()
    }

    /// The device's ends of connections.
    fn served(&self) -> Vec<u32> {
        e2e::processes_with(&[self.machine.root().join("models").as_str(), "serve"])
    }

    /// What is on the device of jobs, and which of their processes run.
    fn assert_clean(&self) {
        let jobs = self.machine.root().join("jobs");
        let mut found = Vec::new();
        walk(&jobs, &mut found);
        found.retain(|file| file.file_name().is_none_or(|name| name != ".lock"));
        assert!(found.is_empty(), "left on the device: {found:?}\n{}", self.log());
        assert!(self.machine.processes().is_empty(), "{:?}", self.machine.processes());
    }
}

fn walk(dir: &Utf8Path, found: &mut Vec<Utf8PathBuf>) {
    for entry in dir.read_dir_utf8().into_iter().flatten().flatten() {
        if entry.path().is_dir() { walk(entry.path(), found) } else { found.push(entry.path().to_owned()) }
    }
}

/// Small, seeded, the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[test]
fn a_catalog_goes_through_and_leaves_nothing() {
    let Some(catalog) = Catalog::start() else { return };
    let mut compile = catalog.compile();
    let code = compile.wait().unwrap().code();
    assert_eq!(code, Some(0), "{}", catalog.log());
    assert_eq!(catalog.artifacts().len(), MODELS.len());
    for model in MODELS {
        assert!(catalog.scenario.list("logs").contains(&format!("{}.log", model.id)));
    }
    catalog.assert_clean();
    assert_eq!(catalog.machine.proxy.accepted(), 1, "one connection carries a catalog");
    // The same scenario on this machine itself gives the same bytes.
    let local = catalog.scenario.with_workspace(catalog.machine.dir().join("scenario/local"));
    let python = PythonEnvironment::find_or_skip().unwrap();
    local.init(&python, None).unwrap().expect_code(0);
    run(&mut local.rebuild(&["extract"])).unwrap().expect_code(0);
    run(&mut local.rebuild(&["compile"])).unwrap().expect_code(0);
    for (name, digest) in catalog.artifacts() {
        assert_eq!(sha256_file(&local.workspace.join("compiled").join(&name)).unwrap(), digest, "{name}");
    }
    // And so do its runs.
    let [there, here] = [&catalog.scenario, &local].map(|scenario| {
        run(&mut catalog.rebuild(scenario, &["validate", "--model", "ra1"])).unwrap().expect_code(0);
        scenario.record("ra1_validation.json").unwrap()
    });
    assert_eq!(there["passed"], true, "{there}");
    assert_eq!(there["artifact_sha256"], here["artifact_sha256"]);
    // Steps that get slower are a warning about the machine, which other work may well slow down.
    let [there, here] = [there, here].map(|record| {
        let verdicts = record["verdicts"].as_array().unwrap().clone();
        verdicts.into_iter().filter(|verdict| verdict["check"] != "drift").collect::<Vec<_>>()
    });
    assert_eq!(there, here);
    catalog.assert_clean();
    // A rerun has nothing to do and does not even connect.
    let connections = catalog.machine.proxy.accepted();
    let code = catalog.compile().wait().unwrap().code();
    assert_eq!((code, catalog.machine.proxy.accepted()), (Some(0), connections));
}

#[test]
fn a_device_on_the_road_is_left_alone_unless_the_user_insists() {
    let params = tempfile::tempdir().unwrap();
    let place = format!("SetEnv PARAMS_ROOT={}", params.path().display());
    let Some(catalog) = Catalog::start_with(&[&place]) else { return };
    fs::create_dir(params.path().join("d")).unwrap();
    let on_road = params.path().join("d/IsOnroad");
    fs::write(&on_road, "1").unwrap();
    for words in [&["compile"][..], &["compile", "--model", "rb2"]] {
        let outcome = run(&mut catalog.rebuild(&catalog.scenario, words)).unwrap();
        outcome.expect_code(3);
        for word in ["on-road", "--while-driving"] {
            assert!(outcome.stderr.contains(word), "{word}: {}", outcome.transcript());
        }
    }
    assert!(!catalog.machine.root().join("jobs").exists(), "a refused host wrote to the device");
    let doctor = run(&mut catalog.rebuild(&catalog.scenario, &["doctor"])).unwrap();
    assert!(doctor.stdout.contains("--while-driving"), "{}", doctor.transcript());

    let words = ["compile", "--model", "rb2", "--while-driving"];
    run(&mut catalog.rebuild(&catalog.scenario, &words)).unwrap().expect_code(0);
    fs::write(&on_road, "0").unwrap();
    run(&mut catalog.rebuild(&catalog.scenario, &["compile"])).unwrap().expect_code(0);
    assert_eq!(catalog.artifacts().len(), MODELS.len());
    catalog.assert_clean();
}

#[test]
fn a_car_that_starts_in_the_middle_ends_the_run_and_keeps_what_is_there() {
    let params = tempfile::tempdir().unwrap();
    let place = format!("SetEnv PARAMS_ROOT={}", params.path().display());
    let Some(catalog) = Catalog::start_with(&[&place]) else { return };
    fs::create_dir(params.path().join("d")).unwrap();
    let mut compile = catalog.compiling();
    wait_for("a job to run", RUN_LIMIT, || !catalog.machine.processes().is_empty()).unwrap();
    fs::write(params.path().join("d/IsOnroad"), "1").unwrap();
    assert_eq!(compile.wait().unwrap().code(), Some(3), "{}", catalog.log());
    assert!(catalog.log().contains("on-road"), "{}", catalog.log());
    // What was begun came home; what was not begun did not begin.
    assert_eq!(catalog.artifacts().len(), 1, "{}", catalog.log());
    fs::write(params.path().join("d/IsOnroad"), "0").unwrap();
    assert_eq!(catalog.compile().wait().unwrap().code(), Some(0), "{}", catalog.log());
    assert_eq!(catalog.artifacts().len(), MODELS.len());
    catalog.assert_clean();
}

#[test]
fn what_a_killed_host_left_is_removed_by_a_run_that_has_nothing_to_build() {
    let Some(catalog) = Catalog::start() else { return };
    let jobs = catalog.scenario.workspace.join(".device-jobs.json");
    assert_eq!(catalog.compile().wait().unwrap().code(), Some(0), "{}", catalog.log());
    assert!(!jobs.exists(), "a catalog that went through leaves nothing to remember");
    // As if the host had been killed between the record of the artifact and the removal of the job.
    let owner = catalog.machine.jobs_dir();
    let job = format!("compile.rc3.{}", "0123456789abcdef");
    fs::create_dir_all(owner.join(&job).join("input")).unwrap();
    fs::write(owner.join(&job).join("input/driving_vision.onnx"), "sources").unwrap();
    fs::write(&jobs, serde_json::json!({ catalog.machine.name(): [job] }).to_string()).unwrap();
    let outcome = run(&mut catalog.rebuild(&catalog.scenario, &["compile"])).unwrap();
    outcome.expect_code(0);
    assert!(outcome.stderr.contains("removed from the device"), "{}", outcome.transcript());
    assert!(outcome.stderr.contains("0 built, 3 current"), "{}", outcome.transcript());
    assert!(!jobs.exists());
    catalog.assert_clean();

    // Where the device cannot be asked the run says so, and what is current stays current.
    fs::write(&jobs, serde_json::json!({ catalog.machine.name(): [job] }).to_string()).unwrap();
    let holder = catalog.other_host();
    let mut other = catalog.rebuild(&holder, &["compile"]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("the device to be taken", RUN_LIMIT, || catalog.lease().exists()).unwrap();
    let outcome = run(&mut catalog.rebuild(&catalog.scenario, &["compile"])).unwrap();
    outcome.expect_code(0);
    assert!(outcome.stderr.contains("may have left jobs"), "{}", outcome.transcript());
    assert!(jobs.exists());
    assert!(other.wait().unwrap().success());
}

#[test]
fn two_hosts_exclude_each_other_and_a_stale_lock_is_taken_over() {
    let Some(catalog) = Catalog::start() else { return };
    let other = catalog.other_host();
    let mut first = catalog.compiling();
    let kept_out = run(&mut catalog.rebuild(&other, &["compile"])).unwrap();
    kept_out.expect_code(EXIT_ENVIRONMENT);
    let holder = format!("{}@", remote::user());
    for word in [holder.as_str(), "(workspace,", "last seen"] {
        assert!(kept_out.stderr.contains(word), "{word}: {}", kept_out.transcript());
    }
    assert!(other.list("compiled").is_empty());
    assert_eq!(first.wait().unwrap().code(), Some(0), "{}", catalog.log());
    let undisturbed = catalog.artifacts();

    // A host that was killed keeps the device until its lock is stale.
    catalog.forget();
    let mut first = catalog.compiling();
    send_signal(first.id(), Signal::SIGKILL).unwrap();
    first.wait().unwrap();
    let kept_out = run(&mut catalog.rebuild(&other, &["compile"])).unwrap();
    kept_out.expect_code(EXIT_ENVIRONMENT);
    assert!(kept_out.stderr.contains("(workspace,"), "{}", kept_out.transcript());
    wait_for("the connection of the killed host to end", RUN_LIMIT, || catalog.served().is_empty()).unwrap();
    let mut lease: serde_json::Value = serde_json::from_slice(&fs::read(catalog.lease()).unwrap()).unwrap();
    lease["renewed"] = (lease["renewed"].as_u64().unwrap() - 181).into();
    fs::write(catalog.lease(), lease.to_string()).unwrap();
    run(&mut catalog.rebuild(&other, &["compile"])).unwrap().expect_code(0);
    assert_eq!(catalog.artifacts_of(&other), undisturbed);

    // What the killed host had begun is still its own, and it goes on.
    assert_eq!(catalog.compile().wait().unwrap().code(), Some(0), "{}", catalog.log());
    assert_eq!(catalog.artifacts(), undisturbed);
    catalog.assert_clean();
}

#[test]
fn a_refused_device_is_exit_three_and_names_the_rule() {
    let Some(catalog) = Catalog::start() else { return };
    let port = catalog.machine.proxy.port();
    let before = catalog.machine.proxy.accepted();
    for (device, rule) in [
        ("comma@192.168.3.110".to_owned(), "forbidden-address"),
        ("comma@0xc0a8036e".to_owned(), "forbidden-address"),
        (format!("other@127.0.0.1:{port}"), "not-allowed"),
        ("comma@127.1".to_owned(), "ambiguous-address"),
    ] {
        let outcome =
            run(&mut catalog.rebuild(&catalog.scenario, &["compile", "--device", &device])).unwrap();
        outcome.expect_code(3);
        assert!(outcome.stderr.contains(rule), "{device}: {}", outcome.stderr);
    }
    assert_eq!(catalog.machine.proxy.accepted(), before, "nothing was contacted");
}

#[test]
fn trust_doctor_and_another_key() {
    let Some(catalog) = Catalog::start() else { return };
    let (scenario, machine) = (&catalog.scenario, &catalog.machine);
    fs::remove_file(catalog.home.join(".ssh/known_hosts")).unwrap();
    let unknown = run(&mut catalog.rebuild(scenario, &["doctor"])).unwrap();
    unknown.expect_code(3);
    assert!(
        unknown.stderr.contains("host-key-unknown") && unknown.stderr.contains("device trust"),
        "{}",
        unknown.stderr
    );
    run(&mut catalog.rebuild(scenario, &["device", "trust"])).unwrap().expect_code(3);
    let wrong = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    run(&mut catalog.rebuild(scenario, &["device", "trust", "--fingerprint", wrong])).unwrap().expect_code(3);
    let fingerprint = machine.sshd.fingerprint().unwrap();
    run(&mut catalog.rebuild(scenario, &["device", "trust", "--fingerprint", &fingerprint]))
        .unwrap()
        .expect_code(0);
    let text = fs::read_to_string(scenario.workspace.join("rebuild.toml")).unwrap();
    assert!(text.contains(&fingerprint), "{text}");
    let doctor = run(&mut catalog.rebuild(scenario, &["doctor", "--json"])).unwrap();
    assert!(doctor.stdout.contains("version of models"), "{}", doctor.transcript());
    fs::write(scenario.workspace.join("rebuild.toml"), text.replace(&fingerprint, wrong)).unwrap();
    let changed = run(&mut catalog.rebuild(scenario, &["doctor"])).unwrap();
    changed.expect_code(3);
    assert!(changed.stderr.contains("host-key-changed"), "{}", changed.stderr);
}

/// Runs catalogs under random faults until `faults` were made or `limit` is over; returns how many were made.
#[expect(clippy::print_stdout, reason = "a campaign says what it did")]
fn campaign(seed: u64, faults: usize, limit: Duration) -> Option<usize> {
    let catalog = Catalog::start()?;
    let undisturbed = {
        assert_eq!(catalog.compile().wait().unwrap().code(), Some(0), "{}", catalog.log());
        catalog.artifacts()
    };
    let (mut dice, mut made, began, mut catalogs) = (Dice(seed | 1), 0, Instant::now(), 0);
    while made < faults && began.elapsed() < limit {
        catalog.forget();
        catalogs += 1;
        made += disturbed_run(&catalog, &mut dice, (faults - made).min(8));
        assert_eq!(catalog.artifacts(), undisturbed, "catalog {catalogs} of seed {seed}\n{}", catalog.log());
        assert!(catalog.scenario.list("results").iter().all(|name| !name.ends_with("_failure.json")));
        catalog.assert_clean();
    }
    println!("{made} faults in {catalogs} catalogs in {:.0} s, seed {seed}", began.elapsed().as_secs_f64());
    Some(made)
}

/// One catalog, disturbed at most `most` times; what was killed is started again.
fn disturbed_run(catalog: &Catalog, dice: &mut Dice, most: usize) -> usize {
    let (mut made, until) = (0, Instant::now() + RUN_LIMIT);
    let mut compile = catalog.compile();
    let mut next = Instant::now() + Duration::from_millis(200 + dice.roll(2500));
    // No model is compiled again after its result existed.
    let mut finished: BTreeMap<String, std::time::SystemTime> = BTreeMap::new();
    loop {
        watch_results(catalog, &mut finished);
        if let Some(status) = compile.try_wait().unwrap() {
            if status.success() {
                return made;
            }
            assert!(Instant::now() < until, "no end: {status}\n{}", catalog.log());
            compile = catalog.compile();
        }
        if made < most && Instant::now() >= next {
            disturb(catalog, dice, &compile);
            made += 1;
            next = Instant::now() + Duration::from_millis(300 + dice.roll(2500));
        }
        assert!(Instant::now() < until, "the run does not end\n{}", catalog.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn watch_results(catalog: &Catalog, finished: &mut BTreeMap<String, std::time::SystemTime>) {
    for name in catalog.machine.left_over() {
        let result = catalog.machine.jobs_dir().join(&name).join("result.json");
        let Ok(modified) = fs::metadata(&result).and_then(|found| found.modified()) else { continue };
        let text = fs::read_to_string(&result).unwrap_or_default();
        if text.contains("\"ok\"") {
            let first = *finished.entry(name.clone()).or_insert(modified);
            assert_eq!(first, modified, "{name} was compiled again after its result existed");
        }
    }
}

fn disturb(catalog: &Catalog, dice: &mut Dice, compile: &Child) {
    match dice.roll(5) {
        0 => catalog.machine.proxy.cut(),
        1 => catalog.machine.proxy.cut_after(1 + dice.roll(2 << 20)),
        2 => drop(catalog.machine.sshd.cut_connections()),
        3 => drop(send_signal(compile.id(), Signal::SIGKILL)),
        _ => {
            // Any process of the device's side: the serving one, the job, or its driver.
            let root = catalog.machine.root();
            let mut victims = e2e::processes_with(&[root.as_str()]);
            victims.retain(|pid| *pid != compile.id() && *pid != std::process::id());
            if !victims.is_empty() {
                let victim = victims[usize::try_from(dice.roll(victims.len() as u64)).unwrap()];
                drop(send_signal(victim, Signal::SIGKILL));
            }
        }
    }
}

#[test]
fn faults_change_nothing_but_the_time() {
    let seed = std::env::var("CAMPAIGN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_130);
    let (faults, limit) =
        if e2e::thorough() { (CAMPAIGN, Duration::from_secs(3600)) } else { (CAMPAIGN, SAMPLE) };
    if let Some(made) = campaign(seed, faults, limit) {
        assert!(made > 0);
        assert!(!e2e::thorough() || made >= CAMPAIGN, "only {made} faults");
    }
}
