//! What the slices of driving models hold, by name and width.

/// How raw values become quantities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// They are what they are.
    Raw,
    /// Each is the argument of a sigmoid.
    Probability,
    /// Each group is the argument of a softmax.
    Softmax {
        /// Values of a group.
        group: usize,
    },
    /// Means and logarithms of deviations, of one or several hypotheses.
    Mixture {
        /// How many hypotheses there are.
        hypotheses: usize,
        /// How many of them are selected, each by weights of its own.
        selections: usize,
    },
}

/// The shape of one hypothesis of older models, and how many hypotheses and selections they have.
type Older = (&'static [usize], usize, usize);

/// Mixtures: name, shape, and what they were in older models.
const MIXTURES: [(&str, &[usize], Option<Older>); 9] = [
    ("plan", &[33, 15], Some((&[33, 15], 5, 1))),
    ("lane_lines", &[4, 33, 2], None),
    ("road_edges", &[2, 33, 2], None),
    ("lead", &[3, 6, 4], Some((&[6, 4], 2, 3))),
    ("pose", &[6], None),
    ("wide_from_device_euler", &[3], None),
    ("road_transform", &[6], None),
    ("action", &[2], None),
    ("desired_curvature", &[1], None),
];
const PROBABILITIES: [&str; 3] = ["lane_lines_prob", "lead_prob", "meta"];
/// Classes of a desire.
const DESIRES: usize = 8;

/// The decoded shape of a slice and how it is decoded; `None` where its width fits no generation of models.
pub fn layout_of(name: &str, width: usize) -> Option<(Vec<usize>, Form)> {
    if width == 0 {
        return None;
    }
    if let Some((_, shape, older)) = MIXTURES.iter().find(|(mixture, ..)| *mixture == name) {
        return mixture(shape, *older, width);
    }
    // Driver monitoring has each output once for the left seat and once for the right.
    if name.starts_with("face_descs") {
        return mixture(&[6], None, width);
    }
    if PROBABILITIES.contains(&name) || name.contains("_prob_") || name == "wheel_on_right" {
        return Some((vec![width], Form::Probability));
    }
    match name {
        "desire_state" => (width == DESIRES).then(|| (vec![DESIRES], Form::Softmax { group: DESIRES })),
        "desire_pred" => width
            .is_multiple_of(DESIRES)
            .then(|| (vec![width / DESIRES, DESIRES], Form::Softmax { group: DESIRES })),
        _ => Some((vec![width], Form::Raw)),
    }
}

fn mixture(shape: &[usize], older: Option<Older>, width: usize) -> Option<(Vec<usize>, Form)> {
    if width == 2 * shape.iter().product::<usize>() {
        return Some((shape.to_vec(), Form::Mixture { hypotheses: 1, selections: 1 }));
    }
    let (one, hypotheses, selections) = older?;
    let expected = hypotheses * (2 * one.iter().product::<usize>() + selections);
    (width == expected).then(|| {
        let mut decoded = one.to_vec();
        if selections > 1 {
            decoded.insert(0, selections);
        }
        (decoded, Form::Mixture { hypotheses, selections })
    })
}
