//! The supervision of a driver, with a shell script in the interpreter's place.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::write_atomic;
use serde_json::{Value, json};

use super::{Driver, DriverError, FailureKind, Program, QUIET_LIMIT};
use crate::Environment;

struct Script {
    _guard: tempfile::TempDir,
    dir: Utf8PathBuf,
    driver: Driver,
}

fn script(text: &str) -> Script {
    let guard = tempfile::tempdir().unwrap();
    let dir = Utf8Path::from_path(guard.path()).unwrap().to_owned();
    let entry = dir.join("driver.sh");
    write_atomic(&entry, text.as_bytes()).unwrap();
    let driver = Driver {
        python: "/bin/sh".into(),
        entry,
        scratch: dir.clone(),
        environment: Environment::default(),
        log: dir.join("log.txt"),
        quiet_limit: QUIET_LIMIT,
        cpu: None,
    };
    Script { _guard: guard, dir, driver }
}

fn run(script: &Script, cancel: &AtomicBool) -> (Result<Value, DriverError>, usize) {
    let mut events = 0;
    let result = script.driver.run("compile", &json!({"op": "compile"}), cancel, &mut |_| events += 1);
    (result, events)
}

fn run_once(text: &str) -> (Result<Value, DriverError>, usize) {
    run(&script(text), &AtomicBool::new(false))
}

/// Whether a process whose ID the script wrote into `file` ends soon: a kill takes effect a moment after it was sent.
fn ends(file: &Utf8Path) -> bool {
    let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        // A killed process whose new parent has not yet reaped it is dead all the same.
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if !durable_fs::is_process_alive(pid) || state.contains(") Z ") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

const DONE: &str = r#"echo '{"event":"done","result":{"size":3}}'"#;

#[test]
fn a_result_needs_a_done_event_and_status_zero() {
    let (result, events) = run_once(&format!(
        "echo noise; echo '{{\"event\":\"stage\",\"stage\":\"import\",\"state\":\"start\"}}'; {DONE}"
    ));
    assert_eq!((result.unwrap(), events), (json!({"size": 3}), 2));
    let (result, _) = run_once(&format!("{DONE}; exit 3"));
    let refused = result.unwrap_err().to_string();
    assert!(refused.contains("exit status 3"), "{refused}");
    let (result, _) = run_once("echo 'what happened' >&2; exit 0");
    let refused = result.unwrap_err().to_string();
    assert!(refused.contains("exit status 0") && refused.contains("what happened"), "{refused}");
}

#[test]
fn failures_keep_their_kind_and_detail() {
    let (result, _) = run_once(
        r#"echo '{"event":"failed","kind":"onnx_unsupported","message":"no Foo","detail":{"operator":"Foo"}}'; exit 1"#,
    );
    match result.unwrap_err() {
        DriverError::Failed { kind: FailureKind::OnnxUnsupported, detail, .. } => {
            assert_eq!(detail["operator"], "Foo")
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_killed_driver_is_told_from_a_failed_one() {
    let (result, _) =
        run_once(r#"echo '{"event":"stage","stage":"run_policy","state":"start"}'; kill -9 $$"#);
    match result.unwrap_err() {
        DriverError::Died { killed: true, status, context } => {
            assert_eq!((status.as_str(), context.stage.as_str()), ("signal 9", "run_policy"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_pipe_that_closes_is_no_end_of_the_process() {
    let (result, _) = run_once(&format!("{DONE}; exec >&-; sleep 0.3; exit 7"));
    assert!(result.unwrap_err().to_string().contains("exit status 7"));
}

#[test]
fn only_the_last_lines_of_this_run_are_quoted() {
    let script = script("i=0; while [ $i -lt 40 ]; do echo line $i >&2; i=$((i+1)); done; exit 1");
    write_atomic(&script.driver.log, b"from an earlier run\n").unwrap();
    let refused = run(&script, &AtomicBool::new(false)).0.unwrap_err().to_string();
    assert!(
        refused.ends_with("line 39") && !refused.contains("line 27\n") && !refused.contains("earlier"),
        "{refused}"
    );
    let log = std::fs::read_to_string(&script.driver.log).unwrap();
    assert!(log.starts_with("from an earlier run\nline 0"), "{log}");
}

#[test]
fn a_silent_driver_is_killed_with_all_that_it_started() {
    let mut script = script("sleep 600 & echo $! > child; echo noise; wait");
    script.driver.quiet_limit = Duration::from_millis(300);
    let began = Instant::now();
    let refused = run(&script, &AtomicBool::new(false)).0.unwrap_err();
    assert!(matches!(refused, DriverError::Stalled { .. }), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(ends(&script.dir.join("child")));
}

#[test]
fn cancelling_ends_the_group_even_where_it_ignores_sigterm() {
    let script =
        script("trap '' TERM; (trap '' TERM; echo $$ > leader; sleep 600) & echo $! > child; sleep 600");
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !script.dir.join("child").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(50));
            cancel.store(true, Ordering::Relaxed);
        });
        let refused = run(&script, &cancel).0.unwrap_err();
        assert!(matches!(refused, DriverError::Cancelled { .. }), "{refused}");
    });
    assert!(ends(&script.dir.join("child")));
}

#[test]
fn what_outlives_an_ordinary_exit_is_ended() {
    let script = script(&format!("sleep 600 >&- 2>&- & echo $! > child; {DONE}"));
    run(&script, &AtomicBool::new(false)).0.unwrap();
    assert!(ends(&script.dir.join("child")));
}

#[test]
fn a_missing_interpreter_is_named() {
    let mut script = script("");
    script.driver.python = "/no/such/python".into();
    let refused = run(&script, &AtomicBool::new(false)).0.unwrap_err();
    assert!(refused.to_string().contains("/no/such/python"), "{refused}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_pinned_driver_has_one_cpu_and_this_process_keeps_its_own() {
    let before = rustix::thread::sched_getaffinity(None).unwrap().count();
    let mut script = script(&format!("grep Cpus_allowed_list /proc/self/status > cpus; {DONE}"));
    script.driver.cpu = Some(0);
    run(&script, &AtomicBool::new(false)).0.unwrap();
    let cpus = std::fs::read_to_string(script.dir.join("cpus")).unwrap();
    assert_eq!(cpus.split_whitespace().last(), Some("0"));
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), before);
}

/// A Python script run as a tree's compiler is; `None` where there is no Python.
fn program(text: &str) -> Option<(Script, std::process::Command)> {
    let found = ["/usr/bin/python3", "/usr/local/bin/python3", "/opt/homebrew/bin/python3"];
    let Some(python) = found.into_iter().find(|path| Utf8Path::new(path).exists()) else {
        report_skip("there is no python3");
        return None;
    };
    let script = script(text);
    let mut command = std::process::Command::new(python);
    command.arg(&script.driver.entry).current_dir(&script.dir);
    Some((script, command))
}

fn report_skip(why: &str) {
    println!("skipped: {}: {why}", std::thread::current().name().unwrap_or("a test"));
}

fn run_program(
    script: &Script,
    command: std::process::Command,
    cancel: &AtomicBool,
) -> Result<(), DriverError> {
    let (scratch, log) = (&*script.driver.scratch, &*script.driver.log);
    Program { op: "compile", command, scratch, log, quiet_limit: QUIET_LIMIT, cpu: None }.run(cancel)
}

#[test]
fn a_trees_program_ends_as_it_ends_alone() {
    for (text, expected) in [
        ("", None),
        ("raise SystemExit(0)", None),
        ("raise SystemExit(7)", Some("exit status 7")),
        ("import os; os._exit(255)", Some("exit status 255")),
        ("raise ValueError('what happened')", Some("exit status 1")),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Some("signal 9")),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", Some("signal 15")),
        ("import os, signal; os.kill(os.getpid(), signal.SIGHUP)", Some("signal 1")),
        ("import os; os.abort()", Some("signal 6")),
        (
            "import os, signal; signal.signal(signal.SIGSEGV, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGSEGV)",
            Some("signal 11"),
        ),
    ] {
        let Some((script, command)) = program(text) else { return };
        match (run_program(&script, command, &AtomicBool::new(false)), expected) {
            (Ok(()), None) => {}
            (Err(DriverError::Died { status, killed, .. }), Some(expected)) => {
                assert_eq!((status.as_str(), killed), (expected, expected == "signal 9"), "{text}");
            }
            (other, _) => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_trees_program_has_its_own_arguments_directory_and_environment() {
    let text = "import json, os, sys; json.dump([sys.argv[1:], os.getcwd(), os.environ['PYTHONPATH'], \
                os.environ.get('SHELL'), sys.path[1], os.read(0, 1).decode(), sys.flags.isolated], open('seen', 'w'))";
    let Some((script, mut command)) = program(text) else { return };
    // A module of the tree must not get into the supervisor.
    write_atomic(script.dir.join("threading.py"), b"raise SystemExit(9)").unwrap();
    command.args(["--a", "b c", ""]).env("PYTHONPATH", &script.dir).env_remove("SHELL");
    run_program(&script, command, &AtomicBool::new(false)).unwrap();
    let seen: Value = serde_json::from_slice(&std::fs::read(script.dir.join("seen")).unwrap()).unwrap();
    let dir = script.dir.canonicalize_utf8().unwrap();
    assert_eq!(seen, json!([["--a", "b c", ""], dir, script.dir, null, script.dir, "", 0]));
}

#[test]
fn a_trees_program_may_answer_a_request_to_end() {
    let text = "import os, signal, sys, time\n\
                def end(*_):\n    time.sleep(0.3); open('answered', 'w').close(); sys.exit(0)\n\
                signal.signal(signal.SIGTERM, end); open('ready', 'w').close(); time.sleep(600)";
    let Some((script, command)) = program(text) else { return };
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !script.dir.join("ready").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            cancel.store(true, Ordering::Relaxed);
        });
        let refused = run_program(&script, command, &cancel).unwrap_err();
        assert!(matches!(refused, DriverError::Cancelled { .. }), "{refused}");
    });
    assert!(script.dir.join("answered").exists(), "it had no time to answer");
}
