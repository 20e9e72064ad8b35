//! The upload folder as a whole: nothing in it but the release.

use std::collections::BTreeSet;

use durable_fs::{FsError, list_dir};
use model_catalog::{ArtifactFile, ModelId};

use super::{Gate, GateProblem, GateReport};
use crate::{Folder, ManifestWorkError};

/// The one file of the upload folder that is no artifact's; it is not published.
const MULTIPART: &str = "multipart.json";

impl Gate<'_> {
    pub(super) fn check_folders(&self, report: &mut GateReport) -> Result<(), ManifestWorkError> {
        let foreign = self.snapshot.sidecars.iter().map(|path| GateProblem::Foreign { path: path.clone() });
        report.problems.extend(foreign);
        let listed: BTreeSet<&ModelId> = report.manifest.models.iter().map(|entry| entry.id()).collect();
        let dir = self.dir(Folder::Ready);
        for name in list_dir(&dir)? {
            let path = Folder::Ready.file(&name);
            let belongs =
                ArtifactFile::parse(&name).is_some_and(|file| listed.contains(file.artifact().id()));
            if !belongs {
                if name != MULTIPART {
                    report.problems.push(GateProblem::Foreign { path });
                }
                continue;
            }
            let file = dir.join(&name);
            let size = file.metadata().map_err(FsError::io("read the size of", &file))?.len();
            let limit = self.options.part_limit.bytes();
            if size > limit {
                report.problems.push(GateProblem::OverLimit { path, size, limit });
            }
        }
        let stale = self.snapshot.multipart.entries.iter().filter(|entry| {
            self.snapshot.set(Folder::Ready, &entry.id).is_none_or(|set| set.parts.is_empty())
        });
        report.problems.extend(stale.map(|entry| GateProblem::Multipart {
            id: entry.id.clone(),
            why: "it has no parts there".to_owned(),
        }));
        Ok(())
    }
}
