//! Whether a second process computes the same.

use crate::{Check, Recording, Verdict};

/// Compares two runs on equal frames, bit for bit, over the steps that both have.
pub(super) fn judge(run: &Recording, again: &Recording) -> Vec<Verdict> {
    let mut found = Vec::new();
    let (slices, _) = run.slices();
    for first in &run.cameras {
        let Some(second) = again.cameras.iter().find(|second| second.camera == first.camera) else {
            let text = "the second process did not run this camera";
            found.push(Verdict::warning(Check::NotSeen, text).on(first.camera));
            continue;
        };
        for slice in &slices {
            let rows = first.rows(slice).zip(second.rows(slice)).enumerate();
            let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            let differing = rows.into_iter().find(|(_, (a, b))| bits(a) != bits(b));
            let Some((step, (a, b))) = differing else { continue };
            let index = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits()).unwrap_or_default();
            let text = format!(
                "a second process gave {} where the first gave {} at index {index}",
                b.get(index).copied().unwrap_or(f32::NAN),
                a[index]
            );
            let verdict = Verdict::failure(Check::NotDeterministic, text).at(step, index, a[index]);
            found.push(verdict.in_slice(slice.output, &slice.name).on(first.camera));
            // One difference makes all that follow: the first slice is named.
            break;
        }
    }
    found
}
