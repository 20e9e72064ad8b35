//! The sizes that follow from a driving artifact's metadata: what each jit must take.

use model_catalog::{Camera, ImageHistoryPipeline, ModelMetadata, ModelType};

/// Channels of one packed YUV frame, and its height and width.
const FRAME: [u64; 3] = [6, 128, 256];
const TRANSFORM: u64 = 9;

/// What is needed to size the queues.
pub(super) struct Layout<'a> {
    pub(super) model_type: ModelType,
    pub(super) pipeline: ImageHistoryPipeline,
    pub(super) frame_skip: u64,
    /// The model with the images.
    pub(super) images: &'a ModelMetadata,
    /// The model with the features: the first policy, or the supercombo.
    pub(super) policy: &'a ModelMetadata,
}

/// Name, element type, elements.
pub(super) type Wanted = (&'static str, &'static str, Option<u64>);

impl Layout<'_> {
    /// The inputs of `run_policy`.
    pub(super) fn policy_inputs(&self) -> Vec<Wanted> {
        let mut wanted = vec![
            ("feat_q", "float32", self.feature_queue()),
            ("desire_q", "float32", self.desire_queue()),
            ("packed_npy_inputs", "float32", self.packed()),
        ];
        match self.pipeline {
            ImageHistoryPipeline::Policy => {
                wanted.push(("warped", "uint8", Some(2 * FRAME.iter().product::<u64>())));
                wanted.extend(self.image_queues());
            }
            ImageHistoryPipeline::Warp => {
                wanted.extend(["img", "big_img"].map(|name| (name, "uint8", self.image_elements())));
            }
        }
        wanted
    }

    /// The inputs of a camera's warp.
    pub(super) fn warp_inputs(&self, camera: Camera) -> Vec<Wanted> {
        let mut wanted = vec![
            ("tfm", "float32", Some(TRANSFORM)),
            ("big_tfm", "float32", Some(TRANSFORM)),
            ("frame", "uint8", Some(camera.frame_size())),
            ("big_frame", "uint8", Some(camera.frame_size())),
        ];
        if self.pipeline == ImageHistoryPipeline::Warp {
            wanted.extend(self.image_queues());
        }
        wanted
    }

    fn image_shape(&self) -> Option<&[u64]> {
        let mut images = self.images.input_shapes.iter().filter(|(name, _)| name.contains("img"));
        images.next().map(|(_, shape)| shape.as_slice()).filter(|shape| shape.len() == 4)
    }

    fn image_elements(&self) -> Option<u64> {
        product(self.image_shape()?)
    }

    /// `(k*(n-1)+1, 6, 128, 256)` for n frames in an image input.
    fn image_queues(&self) -> [Wanted; 2] {
        let frames = self.image_shape().map(|shape| shape[1] / FRAME[0]).filter(|frames| *frames > 0);
        let length = frames.and_then(|frames| self.frame_skip.checked_mul(frames - 1)?.checked_add(1));
        let elements = length.and_then(|length| length.checked_mul(product(&FRAME)?));
        [("img_q", "uint8", elements), ("big_img_q", "uint8", elements)]
    }

    /// Batch, steps and the width of a step.
    fn features(&self) -> Option<(u64, u64, u64)> {
        match self.policy.input_shapes.get("features_buffer")?.as_slice() {
            [batch, steps, rest @ ..] if *steps > 0 => Some((*batch, *steps, product(rest)?)),
            _ => None,
        }
    }

    /// How wide the features of one step are.
    pub(super) fn feature_width(&self) -> Option<u64> {
        self.features().map(|(.., width)| width)
    }

    /// Split: `(k*(F-1)+1, B, D)`; a supercombo keeps `(k*F, B, D)`.
    fn feature_queue(&self) -> Option<u64> {
        let (batch, steps, width) = self.features()?;
        let length = match self.model_type {
            ModelType::Supercombo => self.frame_skip.checked_mul(steps)?,
            _ => self.frame_skip.checked_mul(steps - 1)?.checked_add(1)?,
        };
        product(&[length, batch, width])
    }

    /// `(k*T, B, 8)`
    fn desire_queue(&self) -> Option<u64> {
        let (_, shape) = self.policy.input_shapes.iter().find(|(name, _)| name.starts_with("desire"))?;
        product(shape)?.checked_mul(self.frame_skip)
    }

    /// Desire (8), every other plain input, and the previous features of a supercombo.
    fn packed(&self) -> Option<u64> {
        let plain =
            |name: &str| !name.contains("img") && !name.starts_with("desire") && name != "features_buffer";
        let mut total = 8u64;
        for (_, shape) in self.policy.input_shapes.iter().filter(|(name, _)| plain(name)) {
            total = total.checked_add(product(shape)?)?;
        }
        if self.model_type == ModelType::Supercombo {
            let (batch, _, width) = self.features()?;
            total = total.checked_add(batch.checked_mul(width)?)?;
        }
        Some(total)
    }
}

fn product(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1u64, |a, b| a.checked_mul(*b))
}
