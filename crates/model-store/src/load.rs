//! A load under supervision: a fresh process, a limit, and nothing left of it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, write_json};
use model_catalog::{CAMERAS, ModelType, Target};
use serde::Serialize;
use tinygrad_compile::{
    driver::PythonChoices,
    job::{DriveJob, JobEnvironment, JobKind, JobRequest, JobStatus, REQUEST_FILE, RunJob, run_job},
};

/// How a load ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "load", rename_all = "snake_case")]
pub enum Loaded {
    /// It computed its first outputs: only then is a model ready.
    Ready {
        /// Seconds from the start of the process.
        seconds: f64,
    },
    /// It could not be loaded or run.
    Failed {
        /// Why.
        why: String,
    },
    /// It did not end in time and was ended with everything that it had started.
    TimedOut {
        /// The limit in seconds.
        seconds: f64,
    },
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { seconds } => write!(f, "ready after {seconds:.1} s"),
            Self::Failed { why } => write!(f, "failed: {}", why.lines().next().unwrap_or_default()),
            Self::TimedOut { seconds } => write!(f, "did not end within {seconds:.1} s and was killed"),
        }
    }
}

/// Loads artifacts.
#[derive(Debug, Clone)]
pub struct Loader {
    /// The interpreter.
    pub python: Utf8PathBuf,
    /// What the artifacts were compiled for.
    pub target: Target,
    /// The variables of the caller.
    pub variables: BTreeMap<String, String>,
    /// The longest that a load may take.
    pub limit: Duration,
}

impl Loader {
    /// Loads `artifact` and computes one step, in a fresh process that works in `dir`, which is made.
    ///
    /// # Errors
    /// [`FsError`] where `dir` cannot be used; everything else is the answer.
    pub fn load(
        &self,
        artifact: &Utf8Path,
        model_type: Option<ModelType>,
        dir: &Utf8Path,
        cancel: &AtomicBool,
    ) -> Result<Loaded, FsError> {
        std::fs::create_dir_all(dir).map_err(FsError::io("create", dir))?;
        // The job works in a directory of its own. What is not there is the load's to report.
        let artifact = artifact.canonicalize_utf8().unwrap_or_else(|_| artifact.to_owned());
        let request = JobRequest::new(JobKind::Run(RunJob {
            artifact,
            target: self.target,
            model_type,
            sha256: None,
            drive: DriveJob {
                cameras: vec![CAMERAS[0]],
                steps: 1,
                seed: 42,
                frames: "random".to_owned(),
                probes: false,
                record: 0,
                soak_seconds: 0.0,
            },
            python: Some(self.python.clone()),
        }));
        write_json(dir.join(REQUEST_FILE), &request)?;
        let environment = JobEnvironment {
            python: PythonChoices::default(),
            variables: self.variables.clone(),
            ..JobEnvironment::default()
        };
        let began = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let result = std::thread::scope(|scope| {
            let (done, is_done) = channel::<()>();
            // Dropped when the job ends; until then the limit and the caller are watched from here, outside of the load.
            let watch = stop.clone();
            scope.spawn(move || {
                let until = began + self.limit;
                while is_done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                    if Instant::now() >= until || cancel.load(Ordering::Relaxed) {
                        watch.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            });
            let result = run_job(dir, &environment, &stop);
            drop(done);
            result
        });
        let seconds = began.elapsed().as_secs_f64();
        Ok(match result {
            Ok(result) if result.status == JobStatus::Ok => Loaded::Ready { seconds },
            Ok(result) if result.status == JobStatus::Cancelled => {
                Loaded::TimedOut { seconds: self.limit.as_secs_f64() }
            }
            Ok(result) => Loaded::Failed {
                why: result.error.map_or_else(|| "it does not say why".to_owned(), |e| e.message),
            },
            Err(error) => Loaded::Failed { why: error.to_string() },
        })
    }
}
