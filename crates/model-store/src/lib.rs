//! The device's model store: its parameters, and the decision which artifact runs.
//!
//! The decision ([`decide`]) is pure; what it rests on is gathered by [`StoreCatalog`], [`installed`] and [`ParamStore`]. What
//! can go wrong on a device: an artifact is missing, cut short, of another target or version, needs a GPU that is not there,
//! or does not end loading. In each case the built-in model must be what runs, and `rehearse` shows that it does, with real
//! loads in processes of their own. [`runtime`] lets the device drive with a selected model for a minute and puts the
//! selection back, whatever happens.

mod catalog;
mod decide;
mod error;
mod installed;
mod load;
mod param;
mod params;
mod rehearse;
pub mod runtime;
mod selection;

pub use catalog::{CatalogModel, StoreCatalog};
pub use decide::{BUILT_IN, BuiltInBecause, Decision, Inspected, Situation, decide};
pub use error::StoreError;
pub use installed::{inspect_file, installed, target_of};
pub use load::{Loaded, Loader};
pub use param::Param;
pub use params::ParamStore;
pub use rehearse::{BUILT_IN_FILE, Fault, Ran, Rehearsal, Rehearsed, Started, start};
pub use selection::{SELECTION, Selection, Snapshot};
