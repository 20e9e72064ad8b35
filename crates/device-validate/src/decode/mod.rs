//! Raw outputs as quantities: mixtures, probabilities and hypotheses of every model generation.
//!
//! A mixture is its means followed by the logarithms of its deviations. Older models carry several hypotheses of a quantity,
//! each with one weight per selection; the most likely hypothesis of each selection is taken, as the runtime does.

mod layout;
mod scene;

pub use layout::{Form, layout_of};
pub(crate) use scene::scene_of;
pub use scene::{DISTANCES, Lead, Scene, TIMES};

/// Logarithms of deviations are clipped here before the exponential, so that a float32 cannot overflow.
const MAX_LOG: f64 = 11.0;

/// A decoded output.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// Shape of `values`.
    pub shape: Vec<usize>,
    /// Means, probabilities, or the raw values.
    pub values: Vec<f64>,
    /// Standard deviations, in the shape of `values`; mixtures only.
    pub deviations: Option<Vec<f64>>,
}

/// Decodes the raw values of the slice `name`; `None` where its width fits no generation of models.
pub fn decode(name: &str, raw: &[f32]) -> Option<Decoded> {
    let raw: Vec<f64> = raw.iter().map(|&value| f64::from(value)).collect();
    let (shape, form) = layout_of(name, raw.len())?;
    Some(match form {
        Form::Raw => Decoded { shape, values: raw, deviations: None },
        Form::Probability => {
            let values = raw.iter().map(|value| 1.0 / (1.0 + (-value).exp())).collect();
            Decoded { shape, values, deviations: None }
        }
        Form::Softmax { group } => {
            Decoded { shape, values: raw.chunks(group).flat_map(softmax).collect(), deviations: None }
        }
        Form::Mixture { hypotheses: 1, .. } => {
            let (means, logs) = raw.split_at(raw.len() / 2);
            Decoded { shape, values: means.to_vec(), deviations: Some(exponentials(logs)) }
        }
        Form::Mixture { hypotheses, selections } => select(shape, &raw, hypotheses, selections),
    })
}

fn exponentials(logs: &[f64]) -> Vec<f64> {
    logs.iter().map(|log| log.min(MAX_LOG).exp()).collect()
}

fn softmax(values: &[f64]) -> Vec<f64> {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = values.iter().map(|value| (value - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// For each selection the hypothesis with the largest weight; the first of equal ones.
fn select(shape: Vec<usize>, raw: &[f64], hypotheses: usize, selections: usize) -> Decoded {
    let each: Vec<&[f64]> = raw.chunks(raw.len() / hypotheses).collect();
    let width = (each[0].len() - selections) / 2;
    let (mut values, mut deviations) = (Vec::new(), Vec::new());
    for selection in 0..selections {
        let weight = |hypothesis: &[f64]| hypothesis[2 * width + selection];
        let best = each
            .iter()
            .copied()
            .reduce(|best, other| if weight(other) > weight(best) { other } else { best });
        let best = best.unwrap_or(each[0]);
        values.extend_from_slice(&best[..width]);
        deviations.extend(exponentials(&best[width..2 * width]));
    }
    Decoded { shape, values, deviations: Some(deviations) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixture(mean: f32, log: f32, width: usize) -> Vec<f32> {
        [vec![mean; width], vec![log; width]].concat()
    }

    #[test]
    fn a_mixture_is_means_and_deviations() {
        let plan = decode("plan", &mixture(2.0, -1.0, 495)).unwrap();
        assert_eq!((plan.shape.as_slice(), plan.values[494]), ([33, 15].as_slice(), 2.0));
        let deviations = plan.deviations.unwrap();
        assert!((deviations[0] - (-1.0f64).exp()).abs() < 1e-9);
        let pose = decode("pose", &mixture(0.0, 100.0, 6)).unwrap();
        assert_eq!(pose.deviations.unwrap()[0], 11.0f64.exp());
    }

    #[test]
    fn the_likeliest_of_five_plans_is_taken() {
        let mut raw = Vec::new();
        for (hypothesis, weight) in [0.0, 3.0, -1.0, 2.0, 3.0].into_iter().enumerate() {
            raw.extend(mixture(hypothesis as f32, 0.0, 495));
            raw.push(weight);
        }
        let plan = decode("plan", &raw).unwrap();
        assert_eq!((plan.values[0], plan.shape), (1.0, vec![33, 15]));
    }

    #[test]
    fn each_selection_takes_its_own_lead() {
        let mut raw = mixture(10.0, 0.0, 24);
        raw.extend([1.0, 0.0, 5.0]);
        raw.extend(mixture(20.0, 0.0, 24));
        raw.extend([0.0, 1.0, 4.0]);
        let lead = decode("lead", &raw).unwrap();
        assert_eq!(
            (lead.shape.as_slice(), lead.values[0], lead.values[24], lead.values[48]),
            ([3, 6, 4].as_slice(), 10.0, 20.0, 10.0)
        );
    }

    #[test]
    fn probabilities_and_softmaxes() {
        assert_eq!(decode("lead_prob", &[0.0; 3]).unwrap().values, [0.5; 3]);
        let desire = decode("desire_pred", &[1.0; 32]).unwrap();
        assert_eq!((desire.shape, desire.values[31]), (vec![4, 8], 0.125));
        let large = decode("desire_state", &[1000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
        assert_eq!(large.values[0], 1.0);
    }

    #[test]
    fn driver_monitoring_has_faces_and_probabilities() {
        let face = decode("face_descs_rhd", &mixture(0.5, 0.0, 6)).unwrap();
        assert_eq!((face.shape, face.values[5], face.deviations.unwrap()[5]), (vec![6], 0.5, 1.0));
        assert_eq!(decode("using_phone_prob_lhd", &[0.0]).unwrap().values, [0.5]);
        assert_eq!(decode("wheel_on_right", &[0.0]).unwrap().values, [0.5]);
        assert_eq!(decode("face_descs_lhd", &[0.0; 11]), None);
    }

    #[test]
    fn widths_of_no_generation_are_not_decoded_and_other_names_stay_raw() {
        for (name, width) in
            [("plan", 991), ("lead", 100), ("pose", 6), ("lead_prob", 0), ("desire_pred", 33)]
        {
            assert_eq!(decode(name, &vec![0.0; width]), None, "{name}");
        }
        assert_eq!(decode("hidden_state", &[0.5; 512]).unwrap().shape, [512]);
    }
}
