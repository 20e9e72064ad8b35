//! Whether the values of a slice can come from a working model.

use crate::{CameraRun, Check, Verdict, recording::Slice};

/// So many exact zeros at the end of a slice in every step are no coincidence of float32.
const ZERO_TAIL: usize = 4;
/// Slices narrower than this may coincide by chance or by meaning (probabilities that saturate).
const DUPLICATE_WIDTH: usize = 8;

/// The findings of one slice on one camera; the first cause is named, not its consequences.
pub(super) fn judge(run: &CameraRun, slice: &Slice) -> Option<Verdict> {
    let verdict = non_finite(run, slice).or_else(|| zeros(run, slice)).or_else(|| constant(run, slice))?;
    Some(verdict.in_slice(slice.output, &slice.name).on(run.camera))
}

fn non_finite(run: &CameraRun, slice: &Slice) -> Option<Verdict> {
    let mut first = None;
    let mut count = 0usize;
    for (step, row) in run.rows(slice).enumerate() {
        for (index, &value) in row.iter().enumerate().filter(|(_, value)| !value.is_finite()) {
            count += 1;
            first.get_or_insert((step, index, value));
        }
    }
    let (step, index, value) = first?;
    let text = format!("{count} values are not finite, the first is {value} at index {index}");
    Some(Verdict::failure(Check::NonFinite, text).at(step, index, value))
}

/// Whether a slice is zero, wholly or at its end, in every step.
fn zeros(run: &CameraRun, slice: &Slice) -> Option<Verdict> {
    let width = slice.range.len();
    let tail = |row: &[f32]| row.iter().rev().take_while(|&&value| value == 0.0).count();
    let tail = run.rows(slice).map(tail).min()?;
    if tail == width {
        return Some(Verdict::failure(Check::AllZero, format!("all {width} values are zero in every step")));
    }
    let text = format!("the last {tail} of {width} values are zero in every step");
    (tail >= ZERO_TAIL)
        .then(|| Verdict { index: Some(width - tail), ..Verdict::failure(Check::ZeroTail, text) })
}

fn constant(run: &CameraRun, slice: &Slice) -> Option<Verdict> {
    let mut rows = run.rows(slice);
    let first = rows.next()?;
    let mut steps = 1;
    for row in rows {
        if row != first {
            return None;
        }
        steps += 1;
    }
    let text = format!("the values are the same in all {steps} steps, although every frame differs");
    (steps > 1).then(|| Verdict::failure(Check::Constant, text))
}

/// Slices of different places with equal values: one was copied over the other.
pub(super) fn duplicates(run: &CameraRun, slices: &[Slice]) -> Vec<Verdict> {
    let wide: Vec<&Slice> = slices
        .iter()
        .filter(|slice| !super::is_padding(slice) && slice.range.len() >= DUPLICATE_WIDTH)
        .collect();
    let mut found = Vec::new();
    for (at, first) in wide.iter().enumerate() {
        for second in &wide[at + 1..] {
            let overlap = first.output == second.output
                && first.range.start < second.range.end
                && second.range.start < first.range.end;
            let comparable = first.range.len() == second.range.len() && first.name != second.name && !overlap;
            if comparable && run.rows(first).eq(run.rows(second)) {
                let text = format!("the values are those of {}", first.name);
                let verdict = Verdict::failure(Check::Duplicate, text);
                found.push(verdict.in_slice(second.output, &second.name).on(run.camera));
            }
        }
    }
    found
}
