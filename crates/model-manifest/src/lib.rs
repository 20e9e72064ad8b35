//! The manifests of a release and the names that its files get.
//!
//! Three commands change a workspace here: the base manifest is generated from the one before, the namespace gives every
//! model its release ID, and reconciliation brings recovered models and stray names into that namespace. Each of them takes a
//! [`Snapshot`], computes a [`Plan`] from it without touching anything, and applies it under a journal.
//!
//! What can go wrong, and what defends against it:
//! - a renaming that sees its own result (`a` to `a3` to `a33`): the ID map is one-to-one and computed first, and the journal
//!   moves every file out of its old name before any gets its new one;
//! - `deeprl33` is both a source ID and a release ID: what was renamed is recorded with its SHA-256, and a recorded file keeps
//!   its identity whatever its name, so a second run finds nothing to do;
//! - a file that stands where another one should go: equal content is one file too many, other content refuses the whole plan;
//! - a kill at any point: the journal is finished by the next command ([`recover`]);
//! - a manifest that says something else than the artifacts or the source map: a [`Problem`] before anything is changed.

mod additions;
mod base;
mod check;
mod error;
mod gate;
mod identity;
mod namespace;
mod plan;
mod publish;
mod reconcile;
mod relabel;
mod selection;
mod snapshot;

pub use additions::{Addition, Additions, EMBEDDED_ADDITIONS};
pub use base::{BaseRequest, base_manifest, plan_base};
pub use error::ManifestWorkError;
pub use gate::{
    DRIVER_MONITORING_RECORD, GateOptions, GateProblem, GateReport, Looked, ReleaseArtifact, VerifiedRelease,
    verify_workspace, verify_workspace_by,
};
pub use identity::{Folder, Identities, Identity};
pub use namespace::{IdMap, NamespaceError, NamespaceRequest, plan_namespace};
pub use plan::{JOURNAL_NAME, Note, Plan, Problem, recover};
pub use publish::{
    PublishError, PublishEvent, PublishPlan, PublishRequest, PublishRoute, Published, PushLimit, Remote,
    Removed, RolledBack, Signer, plan_publish, publish, rollback,
};
pub use reconcile::{ReconcileRequest, plan_reconcile};
pub use selection::{Selection, SelectionFate, selections};
pub use snapshot::{ArtifactSet, Snapshot, Whole};
