//! What an artifact was built from and with.

use std::{collections::BTreeMap, fmt};

use model_catalog::{BehaviorVersion, ImageHistoryPipeline, InputFormat, Sha256Digest, Target};
use serde::{Deserialize, Serialize};

use crate::SourceRecord;

/// Everything that decides what an artifact is. Two equal fingerprints mean that building again would give the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Component file (`driving_vision`, `big_driving_vision`) to SHA-256.
    pub sources: BTreeMap<String, Sha256Digest>,
    /// Split or supercombo.
    pub input_format: InputFormat,
    /// The behaviour version that was asked for.
    pub version: Option<BehaviorVersion>,
    /// Where the history of camera images is kept.
    pub image_history_pipeline: ImageHistoryPipeline,
    /// What it is compiled for.
    pub target: Target,
    /// Digest of the compile driver, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version or commit of tinygrad, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tinygrad: Option<String>,
}

/// One way in which two fingerprints differ, from the built one to the wanted one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "changed", rename_all = "snake_case")]
pub enum Difference {
    /// The content of a source changed, or the source was added or removed.
    Source {
        /// The component file.
        component: String,
        /// Digest in the artifact.
        was: Option<Sha256Digest>,
        /// Digest now.
        now: Option<Sha256Digest>,
    },
    /// Another input format.
    InputFormat {
        /// Format of the artifact.
        was: InputFormat,
        /// Format now.
        now: InputFormat,
    },
    /// Another behaviour version.
    Version {
        /// Version of the artifact.
        was: Option<BehaviorVersion>,
        /// Version now.
        now: Option<BehaviorVersion>,
    },
    /// Another image-history pipeline.
    Pipeline {
        /// Pipeline of the artifact.
        was: ImageHistoryPipeline,
        /// Pipeline now.
        now: ImageHistoryPipeline,
    },
    /// Another target.
    Target {
        /// Target of the artifact.
        was: Target,
        /// Target now.
        now: Target,
    },
    /// The compile driver changed: outdated, not wrong.
    Driver,
    /// Another tinygrad: outdated, not wrong.
    Tinygrad {
        /// Revision of the artifact.
        was: String,
        /// Revision now.
        now: String,
    },
}

impl Difference {
    /// Whether the artifact is merely outdated: it is rebuilt only on request.
    pub const fn is_outdated_only(&self) -> bool {
        matches!(self, Self::Driver | Self::Tinygrad { .. })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |version: &Option<BehaviorVersion>| {
            version.map_or_else(|| "none".to_owned(), |version| version.to_string())
        };
        match self {
            Self::Source { component, was: None, .. } => write!(f, "source {component} is new"),
            Self::Source { component, now: None, .. } => write!(f, "source {component} is gone"),
            Self::Source { component, .. } => write!(f, "source {component} changed"),
            Self::InputFormat { was, now } => write!(f, "input format {was} became {now}"),
            Self::Version { was, now } => write!(f, "version {} became {}", version(was), version(now)),
            Self::Pipeline { was, now } => write!(f, "image history pipeline {was} became {now}"),
            Self::Target { was, now } => write!(f, "target {was} became {now}"),
            Self::Driver => f.write_str("the compile driver changed"),
            Self::Tinygrad { was, now } => write!(f, "tinygrad {was} became {now}"),
        }
    }
}

impl Fingerprint {
    /// The fingerprint of what would be built from `sources` now; driver and tinygrad not known yet.
    pub fn of_sources(
        sources: &SourceRecord,
        version: Option<BehaviorVersion>,
        image_history_pipeline: ImageHistoryPipeline,
        target: Target,
    ) -> Self {
        let digests = sources.files.iter().map(|file| {
            let name = format!("{}{}", sources.variant().prefix(), file.component);
            (name, file.sha256)
        });
        Self {
            sources: digests.collect(),
            input_format: sources.input_format,
            version,
            image_history_pipeline,
            target,
            driver: None,
            tinygrad: None,
        }
    }

    /// How `wanted` differs from this. What one of the two does not know is no difference.
    pub fn differences(&self, wanted: &Self) -> Vec<Difference> {
        let names: std::collections::BTreeSet<_> = self.sources.keys().chain(wanted.sources.keys()).collect();
        let digest = |map: &BTreeMap<String, Sha256Digest>, name: &String| map.get(name).copied();
        let mut found: Vec<Difference> = names
            .into_iter()
            .map(|name| (name, digest(&self.sources, name), digest(&wanted.sources, name)))
            .filter(|(_, was, now)| was != now)
            .map(|(name, was, now)| Difference::Source { component: name.clone(), was, now })
            .collect();
        if self.input_format != wanted.input_format {
            found.push(Difference::InputFormat { was: self.input_format, now: wanted.input_format });
        }
        if self.version != wanted.version {
            found.push(Difference::Version { was: self.version, now: wanted.version });
        }
        if self.image_history_pipeline != wanted.image_history_pipeline {
            let (was, now) = (self.image_history_pipeline, wanted.image_history_pipeline);
            found.push(Difference::Pipeline { was, now });
        }
        if self.target != wanted.target {
            found.push(Difference::Target { was: self.target, now: wanted.target });
        }
        if let (Some(was), Some(now)) = (&self.driver, &wanted.driver)
            && was != now
        {
            found.push(Difference::Driver);
        }
        if let (Some(was), Some(now)) = (&self.tinygrad, &wanted.tinygrad)
            && was != now
        {
            found.push(Difference::Tinygrad { was: was.clone(), now: now.clone() });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Fingerprint {
        Fingerprint {
            sources: [("driving_vision", 1), ("driving_policy", 2)]
                .map(|(name, byte)| (name.to_owned(), Sha256Digest::from_bytes([byte; 32])))
                .into(),
            input_format: InputFormat::Split,
            version: Some(BehaviorVersion::from_number(11)),
            image_history_pipeline: ImageHistoryPipeline::Policy,
            target: Target::Qcom,
            driver: Some("d1".to_owned()),
            tinygrad: Some("0.14.0".to_owned()),
        }
    }

    #[test]
    fn each_change_is_named() {
        let mut wanted = base();
        wanted.sources.insert("driving_policy".to_owned(), Sha256Digest::from_bytes([9; 32]));
        wanted.sources.insert("driving_off_policy".to_owned(), Sha256Digest::from_bytes([3; 32]));
        wanted.sources.remove("driving_vision");
        wanted.version = None;
        wanted.target = Target::Cpu;
        wanted.image_history_pipeline = ImageHistoryPipeline::Warp;
        wanted.input_format = InputFormat::Supercombo;
        let said: Vec<String> = base().differences(&wanted).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "source driving_off_policy is new",
                "source driving_policy changed",
                "source driving_vision is gone",
                "input format split became supercombo",
                "version v11 became none",
                "image history pipeline policy became warp",
                "target qcom became cpu",
            ]
        );
        assert!(base().differences(&wanted).iter().all(|difference| !difference.is_outdated_only()));
    }

    #[test]
    fn a_new_compiler_makes_outdated_and_what_is_unknown_does_not() {
        let mut wanted = base();
        wanted.driver = Some("d2".to_owned());
        wanted.tinygrad = Some("0.15.0".to_owned());
        let differences = base().differences(&wanted);
        assert_eq!(differences.len(), 2);
        assert!(differences.iter().all(Difference::is_outdated_only));
        wanted.driver = None;
        wanted.tinygrad = None;
        assert!(base().differences(&wanted).is_empty());
    }

    #[test]
    fn it_survives_its_record() {
        let text = serde_json::to_string(&base()).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), base());
    }
}
