//! Pure types of the driving-model catalog. Nothing here touches a file, a socket or the environment.
//!
//! Every name that foreign programs read (artifact and part names, component names, manifest fields) is made and parsed
//! here and nowhere else, so that two crates cannot disagree about one. What can go wrong is an input that does not
//! parse: each newtype has one validator behind its constructor, `FromStr` and serde, and says what it refused and why.

mod artifact_name;
mod camera;
mod component;
mod digest;
mod driver_monitoring;
mod id;
mod manifest;
mod metadata;
mod model_kind;
mod rel_path;
mod source_map;

pub use artifact_name::{ArtifactFile, ArtifactName, MAX_PARTS, PartName};
pub use camera::{CAMERAS, Camera, DM_WARP_TARGET, MODEL_FRAME, ParseCameraError};
pub use component::{COMPONENT_DIRECTORIES, Component, ComponentFile, Variant};
pub use digest::{ParseDigestError, Sha256Digest};
pub use driver_monitoring::{DM_METADATA, DM_MODEL, DmFile, dm_warp_name};
pub use id::{BehaviorVersion, IdError, ManifestVersion, ModelId, near_matches};
pub use manifest::{Manifest, ManifestEntry, ManifestError};
pub use metadata::{ModelMetadata, SliceError, SliceSpec};
pub use model_kind::{ImageHistoryPipeline, InputFormat, ModelType, ParseKindError, PolicyKey, Target};
pub use rel_path::{RelPath, RelPathError};
pub use source_map::{ReleaseMap, SourceEntry, SourceMap, SourceMapError};
