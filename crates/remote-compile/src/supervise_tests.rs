use std::{collections::VecDeque, sync::Mutex};

use durable_fs::{NoProgress, Written};
use model_catalog::Sha256Digest;

use super::*;
use crate::device::{DeviceFacts, JobView, Reservation};

/// A device that plays a script of looks, and notes what it was asked to do.
#[derive(Default)]
struct Scripted {
    looks: Mutex<VecDeque<Result<JobView, &'static str>>>,
    asked: Mutex<Vec<String>>,
    present: Vec<JobName>,
    own: bool,
    free: Option<u64>,
}

impl Scripted {
    fn playing(looks: impl IntoIterator<Item = Result<JobView, &'static str>>) -> Self {
        Self { looks: Mutex::new(looks.into_iter().collect()), ..Self::default() }
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Device for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }
    fn probe(&self) -> Result<DeviceFacts, DeviceError> {
        Ok(DeviceFacts { free_bytes: self.free.unwrap_or(u64::MAX), ..DeviceFacts::default() })
    }
    fn reserve(&self, _purpose: &str) -> Result<Box<dyn Reservation + '_>, DeviceError> {
        unreachable!("not asked in these tests")
    }
    fn jobs_are_own(&self) -> bool {
        self.own
    }
    fn jobs(&self) -> Result<Vec<JobName>, DeviceError> {
        Ok(self.present.clone())
    }
    fn put(
        &self,
        _job: &JobName,
        from: &Utf8Path,
        to: &RelPath,
        expected: Expected,
        _progress: &dyn Progress,
    ) -> Result<(), DeviceError> {
        self.note(format!("put {to}"));
        if from == "/changed" {
            let expected = expected.sha256.unwrap();
            let actual = Sha256Digest::from_bytes([0; 32]);
            return Err(durable_fs::FsError::Digest { path: from.to_owned(), expected, actual }.into());
        }
        Ok(())
    }
    fn put_bytes(&self, _job: &JobName, _bytes: &[u8], to: &RelPath) -> Result<(), DeviceError> {
        self.note(format!("put {to}"));
        Ok(())
    }
    fn get(
        &self,
        _job: &JobName,
        _from: &RelPath,
        _to: &Utf8Path,
        _expected: Expected,
        _progress: &dyn Progress,
    ) -> Result<Written, DeviceError> {
        unreachable!("not asked in these tests")
    }
    fn start(&self, _job: &JobName) -> Result<(), DeviceError> {
        self.note("start".to_owned());
        Ok(())
    }
    fn look(&self, _job: &JobName, offset: u64) -> Result<JobView, DeviceError> {
        self.note(format!("look {offset}"));
        let next = self.looks.lock().unwrap().pop_front().expect("the script ended");
        next.map_err(|why| DeviceError::Unreachable { device: "scripted".to_owned(), why: why.to_owned() })
    }
    fn cancel(&self, _job: &JobName) -> Result<(), DeviceError> {
        self.note("cancel".to_owned());
        Ok(())
    }
    fn remove(&self, job: &JobName) -> Result<(), DeviceError> {
        self.note(format!("remove {}", job.model()));
        Ok(())
    }
}

const OK: &[u8] = br#"{"protocol":1,"kind":"compile","status":"ok"}"#;

fn view(state: JobState, events: &str) -> Result<JobView, &'static str> {
    Ok(JobView { state, events: events.as_bytes().to_vec() })
}

fn name(model: &str) -> JobName {
    JobName::new("compile", &ModelId::new(model).unwrap(), Sha256Digest::from_bytes([1; 32])).unwrap()
}

fn watched(device: &Scripted, cancel: bool) -> (Result<JobResult, JobFailure>, Vec<Value>) {
    let cancel = AtomicBool::new(cancel);
    let mut events = Vec::new();
    let watch = Watch { cancel: &cancel, progress: &NoProgress };
    let result = supervise(device, &name("m"), &watch, &mut |event| events.push(event.clone()));
    (result, events)
}

#[test]
fn events_are_read_across_portions_and_before_the_result() {
    let device = Scripted::playing([
        view(JobState::Running, "{\"n\":1}\n{\"n\""),
        view(JobState::Running, ":2}\nnot json\n"),
        view(JobState::Finished(OK.to_vec()), "{\"n\":3}\n"),
        view(JobState::Finished(OK.to_vec()), ""),
    ]);
    let (result, events) = watched(&device, false);
    assert_eq!(result.unwrap().status, JobStatus::Ok);
    assert_eq!(events.iter().map(|event| event["n"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(device.asked(), ["look 0", "look 12", "look 25", "look 33"]);
}

#[test]
fn a_lost_connection_says_nothing_about_the_job() {
    let device = Scripted::playing([Err("connection reset"), view(JobState::Finished(OK.to_vec()), "")]);
    assert!(watched(&device, false).0.is_ok());
}

#[test]
fn a_job_that_died_is_started_once_more() {
    let died = || view(JobState::Died { why: "signal 9".to_owned() }, "");
    let device = Scripted::playing([died(), view(JobState::Finished(OK.to_vec()), "")]);
    assert!(watched(&device, false).0.is_ok());
    let device = Scripted::playing([died(), died()]);
    let failure = watched(&device, false).0.unwrap_err();
    assert_eq!((failure.kind(), failure.to_string().contains("signal 9")), ("died", true));
    assert_eq!(device.asked(), ["look 0", "start", "look 0"]);
}

#[test]
fn a_job_that_was_ordered_and_never_began_is_started_again() {
    let staged = || view(JobState::Staged, "");
    let device = Scripted::playing([staged(), staged(), view(JobState::Finished(OK.to_vec()), "")]);
    let cancel = AtomicBool::new(false);
    let watch = Watch { cancel: &cancel, progress: &NoProgress };
    supervise_within(&device, &name("m"), Duration::ZERO, &watch, &mut |_| {}).unwrap();
    assert_eq!(device.asked(), ["look 0", "start", "look 0", "start", "look 0"]);
    // It gets its time.
    let device = Scripted::playing([staged(), staged(), view(JobState::Finished(OK.to_vec()), "")]);
    watched(&device, false).0.unwrap();
    assert_eq!(device.asked(), ["look 0"; 3]);
}

#[test]
fn an_interruption_cancels_the_job() {
    let device = Scripted::playing([]);
    assert!(matches!(watched(&device, true).0, Err(JobFailure::Interrupted)));
    assert_eq!(device.asked(), ["cancel"]);
}

#[test]
fn failures_and_foreign_results_are_told_apart() {
    let with = |text: &str| {
        let device = Scripted::playing([view(JobState::Finished(text.as_bytes().to_vec()), "")]);
        watched(&device, false).0.unwrap_err()
    };
    let failure = with(
        r#"{"protocol":1,"kind":"compile","status":"failed",
            "error":{"kind":"backend_missing","message":"no clang","hint":"install clang","environment":true}}"#,
    );
    assert_eq!((failure.kind(), failure.hint()), ("backend_missing", Some("install clang")));
    assert!(failure.is_environment());
    assert!(matches!(with(r#"{"protocol":1,"kind":"run","status":"ok"}"#), JobFailure::Result { .. }));
    assert!(matches!(with("{"), JobFailure::Result { .. }));
    assert!(matches!(
        with(r#"{"protocol":1,"kind":"compile","status":"cancelled"}"#),
        JobFailure::Interrupted
    ));
}

fn prepared(from: &str) -> PreparedJob {
    let request: JobRequest = serde_json::from_str(
        r#"{"protocol":1,"kind":"run","artifact":"input/a","target":"cpu","cameras":[],"steps":1,"seed":1}"#,
    )
    .unwrap();
    let input = JobInput {
        from: from.into(),
        name: RelPath::new("a").unwrap(),
        expected: Expected::exactly(1, Sha256Digest::from_bytes([1; 32])),
    };
    PreparedJob::new(&ModelId::new("m").unwrap(), &request, vec![input])
}

fn begun(device: &Scripted, job: &PreparedJob) -> Result<(), JobFailure> {
    let cancel = AtomicBool::new(false);
    begin(device, job, &Watch { cancel: &cancel, progress: &NoProgress })
}

#[test]
fn a_new_job_gets_its_request_last_and_a_known_one_is_taken_up() {
    let device = Scripted::playing([view(JobState::Absent, "")]);
    begun(&device, &prepared("/source")).unwrap();
    assert_eq!(device.asked(), ["look 0", "put input/a", "put request.json", "start"]);
    let device = Scripted::playing([view(JobState::Running, "")]);
    begun(&device, &prepared("/source")).unwrap();
    assert_eq!(device.asked(), ["look 0"]);
}

#[test]
fn a_job_whose_files_do_not_fit_together_moves_none() {
    let files = |state| {
        let mut device = Scripted::playing([view(state, "")]);
        device.free = Some(0);
        let refused = begun(&device, &prepared("/source"));
        (refused, device.asked())
    };
    let (refused, asked) = files(JobState::Absent);
    match refused.unwrap_err() {
        JobFailure::Device(DeviceError::Space { needed: 1, free: 0, .. }) => {}
        other => panic!("{other}"),
    }
    assert_eq!(asked, ["look 0"]);
    // What is there of a job that was being put there is not asked for twice; its files are checked one by one.
    let (begun, asked) = files(JobState::Staged);
    begun.unwrap();
    assert_eq!(asked, ["look 0", "put input/a", "put request.json", "start"]);
}

#[test]
fn sources_are_staged_all_or_nothing() {
    let device = Scripted::playing([view(JobState::Absent, "")]);
    begun(&device, &prepared("/changed")).unwrap_err();
    assert_eq!(device.asked(), ["look 0", "put input/a", "remove m"]);
}

#[test]
fn only_jobs_that_nobody_waits_for_are_removed() {
    let old =
        JobName::new("compile", &ModelId::new("m").unwrap(), Sha256Digest::from_bytes([9; 32])).unwrap();
    let mut device =
        Scripted { present: vec![name("m"), old, name("other")], own: true, ..Scripted::default() };
    let removed = sweep_jobs(&device, &[name("m")]).unwrap();
    assert_eq!(removed.len(), 2);
    // On a shared device another workspace's running job stands in the way and is not touched.
    device.own = false;
    device.looks = Mutex::new(VecDeque::from([view(JobState::Running, "")]));
    let refused = sweep_jobs(&device, &[name("m")]).unwrap_err();
    assert!(refused.to_string().contains("compile.other."), "{refused}");
}
