//! The names of parameters.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A parameter that the model store reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Param {
    /// ID of the selected model.
    Model,
    /// The same, for other readers.
    DrivingModel,
    /// Behaviour version of the selected model.
    ModelVersion,
    /// The same, for other readers.
    DrivingModelVersion,
    /// Display name of the selected model.
    DrivingModelName,
    /// IDs of the catalog, comma-joined like the lists below.
    AvailableModels,
    /// Display names.
    AvailableModelNames,
    /// Series.
    AvailableModelSeries,
    /// Artifact layouts.
    AvailableModelArtifactFormats,
    /// Release dates.
    ModelReleasedDates,
    /// Behaviour versions.
    ModelVersions,
    /// IDs that the community likes.
    CommunityFavorites,
    /// The manifest that the catalog is of.
    ModelManifestVersion,
    /// Whether each drive takes another model.
    ModelRandomizer,
    /// IDs that are never taken at random.
    BlacklistedModels,
    /// What a download says of itself.
    ModelDownloadProgress,
    /// The model that is to be downloaded.
    ModelToDownload,
    /// Whether every model is to be downloaded.
    DownloadAllModels,
    /// Whether the download is to stop.
    CancelModelDownload,
    /// Whether the car is driving or ready to.
    IsOnroad,
}

impl Param {
    /// Every parameter.
    pub const ALL: [Self; 20] = [
        Self::Model,
        Self::DrivingModel,
        Self::ModelVersion,
        Self::DrivingModelVersion,
        Self::DrivingModelName,
        Self::AvailableModels,
        Self::AvailableModelNames,
        Self::AvailableModelSeries,
        Self::AvailableModelArtifactFormats,
        Self::ModelReleasedDates,
        Self::ModelVersions,
        Self::CommunityFavorites,
        Self::ModelManifestVersion,
        Self::ModelRandomizer,
        Self::BlacklistedModels,
        Self::ModelDownloadProgress,
        Self::ModelToDownload,
        Self::DownloadAllModels,
        Self::CancelModelDownload,
        Self::IsOnroad,
    ];

    /// The file name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "Model",
            Self::DrivingModel => "DrivingModel",
            Self::ModelVersion => "ModelVersion",
            Self::DrivingModelVersion => "DrivingModelVersion",
            Self::DrivingModelName => "DrivingModelName",
            Self::AvailableModels => "AvailableModels",
            Self::AvailableModelNames => "AvailableModelNames",
            Self::AvailableModelSeries => "AvailableModelSeries",
            Self::AvailableModelArtifactFormats => "AvailableModelArtifactFormats",
            Self::ModelReleasedDates => "ModelReleasedDates",
            Self::ModelVersions => "ModelVersions",
            Self::CommunityFavorites => "CommunityFavorites",
            Self::ModelManifestVersion => "ModelManifestVersion",
            Self::ModelRandomizer => "ModelRandomizer",
            Self::BlacklistedModels => "BlacklistedModels",
            Self::ModelDownloadProgress => "ModelDownloadProgress",
            Self::ModelToDownload => "ModelToDownload",
            Self::DownloadAllModels => "DownloadAllModels",
            Self::CancelModelDownload => "CancelModelDownload",
            Self::IsOnroad => "IsOnroad",
        }
    }

    /// Whether it lives in memory and is gone after a restart.
    pub const fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::ModelDownloadProgress
                | Self::ModelToDownload
                | Self::DownloadAllModels
                | Self::CancelModelDownload
        )
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
