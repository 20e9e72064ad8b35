//! Which models a command works on.

use console_report::{Exit, Failure};
use model_catalog::{ModelId, SourceEntry, SourceMap, near_matches};
use rebuild_workspace::{ArtifactRecord, Workspace};

use crate::failure::of_workspace;

/// One selected model.
#[derive(Debug, Clone)]
pub struct Selected {
    pub id: ModelId,
    pub entry: SourceEntry,
    /// Whether it was asked for by name.
    pub is_named: bool,
}

/// The models that `names` mean, by source or release ID, each once and in the order of the source map; all where no name is
/// given.
pub fn select(workspace: &Workspace, map: &SourceMap, names: &[String]) -> Result<Vec<Selected>, Failure> {
    let released = if names.is_empty() { Vec::new() } else { release_ids(workspace)? };
    let mut wanted = Vec::new();
    for name in names {
        wanted.push(resolve(map, &released, name)?);
    }
    let is_wanted = |id: &ModelId| names.is_empty() || wanted.contains(id);
    let selected = |(id, entry): (&ModelId, &SourceEntry)| Selected {
        id: id.clone(),
        entry: entry.clone(),
        is_named: !names.is_empty(),
    };
    Ok(map.entries.iter().filter(|(id, _)| is_wanted(id)).map(selected).collect())
}

/// Release ID and source ID of every artifact that has been namespaced.
fn release_ids(workspace: &Workspace) -> Result<Vec<(ModelId, ModelId)>, Failure> {
    let refused = of_workspace("the records cannot be read");
    let mut found = Vec::new();
    for id in workspace.recorded::<ArtifactRecord>().map_err(&refused)? {
        // A damaged record has no release ID; the model's own stage reports it.
        if let Ok(Some(ArtifactRecord { release_id: Some(release), .. })) = workspace.record(&id) {
            found.push((release, id));
        }
    }
    Ok(found)
}

/// A source ID as it stands; else the source of a release ID. One ID can be both (`deeprl33`): the source wins.
fn resolve(map: &SourceMap, released: &[(ModelId, ModelId)], name: &str) -> Result<ModelId, Failure> {
    let unknown = |why: String| {
        let known = map.entries.keys().map(ModelId::as_str);
        let near = near_matches(name, known.chain(released.iter().map(|(release, _)| release.as_str())));
        let advice = match near.as_slice() {
            [] => "`rebuild status` lists the models".to_owned(),
            near => format!("did you mean {}? `rebuild status` lists all", near.join(" or ")),
        };
        Failure::new(Exit::Usage, format!("there is no model {name:?}")).why(why).advice(advice)
    };
    let id = ModelId::new(name).map_err(|error| unknown(error.to_string()))?;
    if map.entries.contains_key(&id) {
        return Ok(id);
    }
    let source = released.iter().find(|(release, _)| *release == id).map(|(_, source)| source.clone());
    source.filter(|source| map.entries.contains_key(source)).ok_or_else(|| {
        unknown(format!(
            "it is none of the {} models of the source maps, nor a release ID",
            map.entries.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> SourceMap {
        let text = r#"{"deeprl3": {"ref": "a", "input_format": "split"}, "deeprl33": {"ref": "b", "input_format": "split"},
            "tr1422": {"ref": "c", "input_format": "split"}}"#;
        SourceMap::from_json(text).unwrap()
    }

    fn id(text: &str) -> ModelId {
        ModelId::new(text).unwrap()
    }

    #[test]
    fn either_id_is_taken_and_the_source_wins() {
        let released = [(id("deeprl33"), id("deeprl3")), (id("tr14223"), id("tr1422"))];
        for (name, expected) in [("tr1422", "tr1422"), ("tr14223", "tr1422"), ("deeprl33", "deeprl33")] {
            assert_eq!(resolve(&map(), &released, name).unwrap(), id(expected));
        }
    }

    #[test]
    fn an_unknown_id_lists_near_ones() {
        for name in ["tr142", "TR1422;rm", ""] {
            let failure = resolve(&map(), &[], name).unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage);
            assert!(failure.lines(false).contains("rebuild status"), "{}", failure.lines(false));
        }
        let lines = resolve(&map(), &[], "tr142").unwrap_err().lines(false);
        assert!(lines.contains("did you mean tr1422?"), "{lines}");
    }
}
