//! What a camera warp has to make of a frame, computed here: independent of tinygrad and of the artifact.

use model_catalog::{Camera, DM_WARP_TARGET, MODEL_FRAME};

use crate::WarpImage;

/// Channels of one packed image.
const CHANNELS: usize = 6;
/// Luminance is scaled by nothing; U and V lie at half size, so their matrix is this one times the given, by element.
const CHROMA: [f32; 9] = [1.0, 1.0, 0.5, 1.0, 1.0, 0.5, 2.0, 2.0, 1.0];

/// The byte of a known frame at `position`: the top byte of a multiplicative hash.
fn frame_byte(salt: u32, position: u64) -> u8 {
    ((position as u32).wrapping_add(salt).wrapping_mul(2_654_435_761) >> 24) as u8
}

/// The pixel of the frame that an output pixel samples, in a plane of `width` by `height`: the nearest one, clipped.
fn sampled(matrix: &[f32; 9], x: usize, y: usize, (width, height): (u32, u32)) -> (u64, u64) {
    let (x, y) = (x as f32, y as f32);
    let row = |at: usize| matrix[at] * x + matrix[at + 1] * y + matrix[at + 2];
    let w = row(6);
    let clip = |value: f32, size: u32| (value.round_ties_even().max(0.0) as u64).min(u64::from(size) - 1);
    (clip(row(0) / w, width), clip(row(3) / w, height))
}

/// The packed image of the known frame with this salt.
fn packed(camera: Camera, matrix: &[f32; 9], salt: u32) -> Vec<u8> {
    let (width, height) = (MODEL_FRAME.0 as usize / 2, MODEL_FRAME.1 as usize / 2);
    let stride = camera.stride();
    let luminance = |x: usize, y: usize| {
        let (x, y) = sampled(matrix, x, y, (camera.width, camera.height));
        frame_byte(salt, y * stride + x)
    };
    let chroma: [f32; 9] = std::array::from_fn(|at| matrix[at] * CHROMA[at]);
    let chrominance = |x: usize, y: usize, second: u64| {
        let (x, y) = sampled(&chroma, x, y, (camera.width / 2, camera.height / 2));
        frame_byte(salt, camera.uv_offset() + y * stride + 2 * x + second)
    };
    let mut image = Vec::with_capacity(CHANNELS * width * height);
    for channel in 0..CHANNELS {
        for y in 0..height {
            for x in 0..width {
                image.push(match channel {
                    0 => luminance(2 * x, 2 * y),
                    1 => luminance(2 * x, 2 * y + 1),
                    2 => luminance(2 * x + 1, 2 * y),
                    3 => luminance(2 * x + 1, 2 * y + 1),
                    4 => chrominance(x, y, 0),
                    _ => chrominance(x, y, 1),
                });
            }
        }
    }
    image
}

/// The border's value where driver monitoring's warp reaches beyond the frame.
const BORDER: u8 = 16;

/// Driver monitoring's image of the known frame with this salt: luminance, with a border.
fn driver_image(camera: Camera, matrix: &[f32; 9], salt: u32) -> Vec<u8> {
    let (width, height) = DM_WARP_TARGET;
    let stride = camera.stride();
    let mut image = Vec::with_capacity((width * height) as usize);
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (x as f32, y as f32);
            let row = |at: usize| matrix[at] * x + matrix[at + 1] * y + matrix[at + 2];
            let w = row(6);
            let (column, line) = ((row(0) / w).round_ties_even(), (row(3) / w).round_ties_even());
            let inside =
                column >= 0.0 && line >= 0.0 && column < camera.width as f32 && line < camera.height as f32;
            image.push(if inside { frame_byte(salt, line as u64 * stride + column as u64) } else { BORDER });
        }
    }
    image
}

/// How many pixels of a warp's image are not what they have to be, and how many there are.
pub(crate) fn differing(image: &WarpImage) -> (usize, usize) {
    let expected: Vec<u8> = match image.salts[..] {
        [salt] => driver_image(image.camera, &image.matrix, salt),
        _ => image.salts.iter().flat_map(|&salt| packed(image.camera, &image.matrix, salt)).collect(),
    };
    if expected.len() != image.pixels.len() {
        return (expected.len(), expected.len());
    }
    (expected.iter().zip(&image.pixels).filter(|(a, b)| a != b).count(), expected.len())
}

/// What a warp without fault makes of the known frames.
#[cfg(test)]
pub(crate) fn faultless(camera: Camera, matrix: [f32; 9]) -> WarpImage {
    let pixels = [1, 2].into_iter().flat_map(|salt| packed(camera, &matrix, salt)).collect();
    WarpImage { camera, matrix, salts: vec![1, 2], pixels }
}

/// What driver monitoring's warp without fault makes of the known frame.
#[cfg(test)]
pub(crate) fn faultless_driver(camera: Camera, matrix: [f32; 9]) -> WarpImage {
    WarpImage { camera, matrix, salts: vec![1], pixels: driver_image(camera, &matrix, 1) }
}

#[cfg(test)]
mod tests {
    use super::{faultless as image, *};
    use model_catalog::CAMERAS;

    const IDENTITY: [f32; 9] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];

    #[test]
    fn the_identity_samples_the_top_left_corner() {
        let camera = CAMERAS[0];
        let packed = packed(camera, &IDENTITY, 1);
        assert_eq!(packed.len(), 6 * 128 * 256);
        assert_eq!(packed[0], frame_byte(1, 0));
        assert_eq!(packed[128 * 256], frame_byte(1, camera.stride()));
        assert_eq!(packed[2 * 128 * 256 + 5], frame_byte(1, 11));
        assert_eq!(packed[5 * 128 * 256], frame_byte(1, camera.uv_offset() + 1));
    }

    #[test]
    fn another_cameras_warp_is_not_this_ones() {
        for matrix in [IDENTITY, [2.0, 0.0, 16.0, 0.0, 2.0, 8.0, 0.0, 0.0, 1.0]] {
            assert_eq!(differing(&image(CAMERAS[0], matrix)).0, 0);
            let foreign = WarpImage { camera: CAMERAS[0], ..image(CAMERAS[1], matrix) };
            let (wrong, all) = differing(&foreign);
            assert!(wrong > all / 2, "{wrong} of {all}");
        }
    }

    #[test]
    fn driver_monitoring_sees_a_border_beyond_the_frame() {
        let camera = CAMERAS[1];
        let beyond = [2.0, 0.0, -64.0, 0.0, 2.0, -64.0, 0.0, 0.0, 1.0];
        let image = faultless_driver(camera, beyond);
        assert_eq!((image.pixels.len(), image.pixels[0]), (1440 * 960, 16));
        assert_eq!(image.pixels[32 * 1440 + 32], frame_byte(1, 0));
        assert_eq!(differing(&image).0, 0);
        let foreign = WarpImage { camera: CAMERAS[0], ..image };
        assert!(differing(&foreign).0 > 100_000);
    }

    #[test]
    fn a_warp_clips_into_the_frame() {
        let far = [1.0, 0.0, 1e6, 0.0, 1.0, -1e6, 0.0, 0.0, 1.0];
        let (x, y) = sampled(&far, 3, 3, (1928, 1208));
        assert_eq!((x, y), (1927, 0));
    }
}
