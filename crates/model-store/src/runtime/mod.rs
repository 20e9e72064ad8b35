//! A minute of the device's own runtime with a selected model.
//!
//! The job selects the model through the parameters, starts the runtime's programs, listens to what they publish, and judges
//! it. What can go wrong: the device is on the road (nothing is touched), the artifact is not the one that is to be verified
//! or would not run at all (the built-in model would be judged in its place), a program dies or never publishes, the
//! connection or the job itself is lost half way (`keeper`).

mod keeper;
mod programs;
mod run;
mod watch;

pub use keeper::{KeepError, Keeper, guard, restore_left_behind};
pub use run::run;
pub use watch::{Line, MODEL, Message, Number, Watched};
