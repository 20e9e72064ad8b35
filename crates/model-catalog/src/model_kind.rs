//! The small closed sets of the catalog: input format, model type, target, image-history pipeline, policy keys.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Text that names no member of a closed set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}; it is one of: {known}")]
pub struct ParseKindError {
    /// What was being parsed.
    pub what: &'static str,
    /// The refused text.
    pub text: String,
    /// The accepted spellings.
    pub known: String,
}

macro_rules! closed_set {
    ($(#[$doc:meta])* $name:ident ($what:literal) { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// Every member, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The spelling used in files and on command lines.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ParseKindError;
            fn from_str(text: &str) -> Result<Self, ParseKindError> {
                Self::ALL.iter().copied().find(|member| member.as_str() == text).ok_or_else(|| ParseKindError {
                    what: $what,
                    text: text.to_owned(),
                    known: Self::ALL.iter().map(|member| member.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    };
}

closed_set! {
    /// How a model's sources are laid out in its repository.
    InputFormat ("input format") {
        /// A vision model and one or two policies.
        Split = "split",
        /// One file for all.
        Supercombo = "supercombo",
    }
}

closed_set! {
    /// The shape of a compiled driving artifact.
    ModelType ("model type") {
        /// A vision model and one policy.
        VisionPolicy = "vision_policy",
        /// A vision model, an on-policy and an off-policy model.
        VisionMultiPolicy = "vision_multi_policy",
        /// One model for all.
        Supercombo = "supercombo",
    }
}

closed_set! {
    /// What an artifact is compiled for. Always chosen by a person, never inferred from the hardware that is present.
    Target ("target") {
        /// The Snapdragon GPU of the device; the default.
        Qcom = "qcom",
        /// An external GPU behind a USB bridge; only on explicit request.
        ExternalGpu = "external-gpu",
        /// The host's CPU: demos and tests, never a car.
        Cpu = "cpu",
    }
}

impl Target {
    /// Whether artifacts of this target are written in the out-of-band pickle form.
    pub const fn is_out_of_band(self) -> bool {
        matches!(self, Self::ExternalGpu)
    }
}

closed_set! {
    /// Where the artifact keeps the history of camera images.
    ImageHistoryPipeline ("image history pipeline") {
        /// The policy jit owns the image queues; the warp takes frames only. The default.
        Policy = "policy",
        /// The warp owns the image queues: the older call convention.
        Warp = "warp",
    }
}

closed_set! {
    /// The key under which a model's metadata stands in an artifact.
    PolicyKey ("metadata key") {
        /// The vision model of a split artifact.
        Vision = "vision",
        /// The only policy of a `vision_policy` artifact.
        Policy = "policy",
        /// The primary policy of a `vision_multi_policy` artifact.
        OnPolicy = "on_policy",
        /// The secondary policy of a `vision_multi_policy` artifact.
        OffPolicy = "off_policy",
        /// The model of a supercombo artifact.
        Model = "model",
    }
}

impl ModelType {
    /// The metadata keys of this type, in the order of the artifact.
    pub const fn metadata_keys(self) -> &'static [PolicyKey] {
        match self {
            Self::VisionPolicy => &[PolicyKey::Vision, PolicyKey::Policy],
            Self::VisionMultiPolicy => &[PolicyKey::Vision, PolicyKey::OnPolicy, PolicyKey::OffPolicy],
            Self::Supercombo => &[PolicyKey::Model],
        }
    }

    /// `policy_order` of a split artifact; a supercombo has none.
    pub const fn policy_order(self) -> Option<&'static [PolicyKey]> {
        match self {
            Self::VisionPolicy => Some(&[PolicyKey::Policy]),
            Self::VisionMultiPolicy => Some(&[PolicyKey::OnPolicy, PolicyKey::OffPolicy]),
            Self::Supercombo => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_and_parsing_agree() {
        for &target in Target::ALL {
            assert_eq!(target.as_str().parse::<Target>().unwrap(), target);
            assert_eq!(serde_json::to_value(target).unwrap(), target.as_str());
        }
        let refused = "gpu".parse::<Target>().unwrap_err().to_string();
        assert!(refused.contains("external-gpu"), "{refused}");
    }
}
