//! What an ONNX file is, by its name.

use model_catalog::{Component, ComponentFile, ModelId, Variant};

/// The component words of exact file names, longest first, so that `_off_policy` is cut off before `_policy`.
const WORDS: [(&str, Component); 7] = [
    ("supercombo", Component::Supercombo),
    ("off_policy", Component::OffPolicy),
    ("offpolicy", Component::OffPolicy),
    ("on_policy", Component::OnPolicy),
    ("onpolicy", Component::OnPolicy),
    ("policy", Component::Policy),
    ("vision", Component::Vision),
];

/// File stems of driver-monitoring sources, which are no component of a driving model.
pub(crate) const DM_STEMS: [&str; 3] = ["dmonitoring_model", "dmonitoring", "dm"];

/// The component of a stem that is exactly `[big_][driving_]<word>`.
pub(crate) fn exact(stem: &str) -> Option<ComponentFile> {
    let (variant, rest) = split_variant(stem);
    let word = rest.strip_prefix("driving_").unwrap_or(rest);
    let (_, component) = WORDS.iter().find(|(known, _)| *known == word)?;
    Some(ComponentFile { component: *component, variant })
}

fn split_variant(stem: &str) -> (Variant, &str) {
    match stem.strip_prefix("big_") {
        Some(rest) => (Variant::ExternalGpu, rest),
        None => (Variant::Standard, stem),
    }
}

/// Model ID and component of a flat name `<id>_[big_][driving_]<word>`, where the ID is not known beforehand. The longest
/// suffix that names a component is cut off, so an ID may itself contain `policy`, `vision` or `driving`.
pub(crate) fn flat(stem: &str) -> Option<(ModelId, ComponentFile)> {
    if exact(stem).is_some() {
        return None;
    }
    let (_, id, component) = WORDS
        .iter()
        .filter_map(|(word, component)| {
            let rest = stem.strip_suffix(word)?.strip_suffix('_')?;
            Some((word.len(), rest, *component))
        })
        .max_by_key(|(length, _, _)| *length)?;
    let id = id.strip_suffix("_driving").unwrap_or(id);
    let (variant, id) = match id.strip_suffix("_big") {
        Some(id) => (Variant::ExternalGpu, id),
        None => (Variant::Standard, id),
    };
    ModelId::new(id).ok().map(|id| (id, ComponentFile { component, variant }))
}

/// The component of a stem of the model `id`: after the ID's prefix, exactly.
pub(crate) fn of_model(stem: &str, id: &ModelId) -> Option<ComponentFile> {
    exact(stem.strip_prefix(id.as_str())?.strip_prefix('_')?)
}

/// The component of a stem in a directory of its own, where names may be looser: the prefix of the model is cut off, an
/// exact name is preferred, and otherwise the first alias that occurs decides.
pub(crate) fn in_directory(stem: &str, id: &ModelId) -> Option<ComponentFile> {
    let rest = match stem.strip_prefix(id.as_str()) {
        Some(rest) => rest.trim_start_matches(['_', '-', '.']),
        None => stem,
    };
    if DM_STEMS.contains(&rest) {
        return None;
    }
    exact(rest).or_else(|| flat(stem).map(|(_, file)| file)).or_else(|| loose(rest))
}

/// The component of a stem that has no exact form: the first alias that occurs in it.
pub(crate) fn loose(stem: &str) -> Option<ComponentFile> {
    let (variant, rest) = split_variant(stem);
    Component::from_alias(rest).map(|component| ComponentFile { component, variant })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ModelId {
        ModelId::new(text).unwrap()
    }

    fn standard(component: Component) -> ComponentFile {
        ComponentFile { component, variant: Variant::Standard }
    }

    fn big(component: Component) -> ComponentFile {
        ComponentFile { component, variant: Variant::ExternalGpu }
    }

    #[test]
    fn flat_names_keep_ids_that_contain_component_words() {
        for (stem, expected_id, expected) in [
            ("rdf2_driving_supercombo", "rdf2", standard(Component::Supercombo)),
            ("my-policy_driving_vision", "my-policy", standard(Component::Vision)),
            ("policy_vision_driving_policy", "policy_vision", standard(Component::Policy)),
            ("vision_off_policy", "vision", standard(Component::OffPolicy)),
            ("x_onpolicy", "x", standard(Component::OnPolicy)),
            ("x_big_driving_vision", "x", big(Component::Vision)),
            ("driving_x_policy", "driving_x", standard(Component::Policy)),
        ] {
            assert_eq!(flat(stem), Some((id(expected_id), expected)), "{stem}");
        }
    }

    #[test]
    fn names_without_an_id_are_not_flat() {
        for stem in [
            "driving_vision",
            "driving_off_policy",
            "big_driving_policy",
            "vision",
            "off_policy",
            "dmonitoring_model",
        ] {
            assert_eq!(flat(stem), None, "{stem}");
        }
        assert_eq!(exact("big_driving_policy"), Some(big(Component::Policy)));
        assert_eq!(exact("offpolicy"), Some(standard(Component::OffPolicy)));
        assert_eq!(exact("my_vision"), None);
    }

    #[test]
    fn a_prefix_belongs_to_the_model_only_as_a_whole() {
        assert_eq!(of_model("tr_driving_vision", &id("tr")), Some(standard(Component::Vision)));
        // The file of the model `tr_policy` is no policy of `tr`.
        assert_eq!(of_model("tr_policy_driving_vision", &id("tr")), None);
        assert_eq!(of_model("x_big_driving_vision", &id("x_big")), Some(standard(Component::Vision)));
    }

    #[test]
    fn directories_accept_looser_names() {
        let model = id("super-vision");
        for (stem, expected) in [
            ("driving_policy", Some(standard(Component::Policy))),
            ("super-vision_driving_policy", Some(standard(Component::Policy))),
            ("super-vision.supercombo", Some(standard(Component::Supercombo))),
            ("other_driving_vision", Some(standard(Component::Vision))),
            ("big_my_vision_v2", Some(big(Component::Vision))),
            ("dmonitoring_model", None),
            ("readme", None),
        ] {
            assert_eq!(in_directory(stem, &model), expected, "{stem}");
        }
    }
}
