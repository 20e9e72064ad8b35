//! What the inputs of a driving model are for, by the names that its runtime goes by.

use serde::Serialize;

use crate::model::OnnxModel;
use crate::tensor::TensorInfo;

/// The purpose of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InputRole {
    /// Frames of the road camera: `img` and its older spellings.
    RoadImage,
    /// Frames of the wide camera: a name with `img` and `big`.
    WideImage,
    /// The desire history: `desire`, `desire_pulse`.
    Desire,
    /// The history of vision features.
    FeaturesBuffer,
    /// The driver camera's luminance and calibration of driver monitoring are plain too, as is everything else.
    Plain,
}

/// The role of an input by its name.
#[must_use]
pub fn input_role(name: &str) -> InputRole {
    match name {
        "features_buffer" => InputRole::FeaturesBuffer,
        "input_img" => InputRole::Plain,
        _ if name.contains("img") && name.contains("big") => InputRole::WideImage,
        _ if name.contains("img") => InputRole::RoadImage,
        _ if name.starts_with("desire") => InputRole::Desire,
        _ => InputRole::Plain,
    }
}

impl OnnxModel {
    /// The inputs of a role, in the file's order.
    pub fn inputs_with(&self, role: InputRole) -> impl Iterator<Item = &TensorInfo> {
        self.inputs.iter().filter(move |input| input_role(&input.name) == role)
    }

    /// The road and the wide image input, where there is exactly one of each.
    #[must_use]
    pub fn image_pair(&self) -> Option<(&TensorInfo, &TensorInfo)> {
        let only = |role| {
            let mut found = self.inputs_with(role);
            found.next().filter(|_| found.next().is_none())
        };
        only(InputRole::RoadImage).zip(only(InputRole::WideImage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_generation() {
        for (name, role) in [
            ("img", InputRole::RoadImage),
            ("big_img", InputRole::WideImage),
            ("input_imgs", InputRole::RoadImage),
            ("big_input_imgs", InputRole::WideImage),
            ("desire", InputRole::Desire),
            ("desire_pulse", InputRole::Desire),
            ("prev_desired_curv", InputRole::Plain),
            ("features_buffer", InputRole::FeaturesBuffer),
            ("traffic_convention", InputRole::Plain),
            ("input_img", InputRole::Plain),
        ] {
            assert_eq!(input_role(name), role, "{name}");
        }
    }
}
