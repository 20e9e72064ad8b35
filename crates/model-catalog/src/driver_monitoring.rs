//! The files of driver monitoring.

use std::fmt;

use crate::{CAMERAS, Camera};

/// The model's jit.
pub const DM_MODEL: &str = "dmonitoring_model_tinygrad.pkl";
/// Its metadata.
pub const DM_METADATA: &str = "dmonitoring_model_metadata.pkl";

/// File name of a camera's warp; `camera` is `WxH`.
pub fn dm_warp_name(camera: &str) -> String {
    format!("dm_warp_{camera}_tinygrad.pkl")
}

/// One of the four files that driver monitoring consists of on a device. They are of one build or of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DmFile {
    /// The model's jit.
    Model,
    /// Its metadata.
    Metadata,
    /// The warp of a camera's frame to what the model looks at.
    Warp(Camera),
}

impl DmFile {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Model, Self::Metadata, Self::Warp(CAMERAS[0]), Self::Warp(CAMERAS[1])];

    /// Recognises a file name; `None` for any other.
    pub fn parse(file_name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.to_string() == file_name)
    }
}

impl fmt::Display for DmFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model => f.pad(DM_MODEL),
            Self::Metadata => f.pad(DM_METADATA),
            Self::Warp(camera) => f.pad(&dm_warp_name(&camera.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_exactly() {
        let names = DmFile::ALL.map(|file| file.to_string());
        assert_eq!(names[2], "dm_warp_1928x1208_tinygrad.pkl");
        for (name, file) in names.iter().zip(DmFile::ALL) {
            assert_eq!(DmFile::parse(name), Some(file));
        }
        for other in
            ["dm_warp_1928x1209_tinygrad.pkl", "dmonitoring_model_tinygrad.pkl.p00", "a_driving_tinygrad.pkl"]
        {
            assert_eq!(DmFile::parse(other), None);
        }
    }
}
