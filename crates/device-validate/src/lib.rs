//! Proof that an artifact drives sensibly: it is run over synthetic frames as the runtime would run it, and what comes out
//! is judged.
//!
//! A compile that succeeded is not a model that works. The device loads the *file* in a fresh process and leaves raw
//! outputs ([`Recording`]); everything that is concluded from them is concluded here, as typed verdicts
//! ([`judge`]) that name the slice, the index and the value. What can go wrong: a backend that is silently wrong, weights
//! that were cut off, state that is ignored, a camera warp of another camera, and a judge that passes what it did not see;
//! so a check that could not be made is a verdict, too.

pub mod checklist;
pub mod decode;
mod dm;
mod error;
mod fetch;
mod judge;
mod known;
mod record;
mod recording;
mod reference;
mod run;
mod runs;
pub mod runtime;
mod validate;
mod verdict;
mod warp;
mod weights;

pub use dm::{DmValidated, DmValidationRecord, dm_id, validate_dm};
pub use error::ValidateError;
pub use fetch::fetch_recording;
pub use judge::{Budget, Evidence, Judgement, REQUIRED_OUTPUTS, SoakWindow, StepTimes, judge};
pub use record::{CameraDrive, DriveRecord, PreviousRecord};
pub use recording::{CameraRun, Given, Probe, ProbeKind, Recording, Series, Temperature, WarpImage};
pub use reference::{
    Feed, FeedInput, FeedValues, Precision, ReferenceOutput, ReferenceReport, SliceComparison, compare, feeds,
};
pub use run::{RunPlan, run_again_request, run_request};
pub use validate::{ValidateOptions, Validated, validate_model};
pub use verdict::{Check, Severity, Verdict};
pub use weights::WeightReport;
