//! Camera resolutions and the memory layout of their frames.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A camera resolution that artifacts carry a warp for.
///
/// Frames are flat NV12 buffers with a stride and plane heights that the device's video hardware dictates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct Camera {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// The camera resolutions of the supported devices: the tuple keys of an artifact, in its order.
pub const CAMERAS: [Camera; 2] = [Camera { width: 1928, height: 1208 }, Camera { width: 1344, height: 760 }];

/// Width and height in pixels of the YUV frame that the warp of a driving model samples.
pub const MODEL_FRAME: (u32, u32) = (512, 256);

/// Width and height in pixels of the luminance image that a driver-monitoring warp samples.
pub const DM_WARP_TARGET: (u32, u32) = (1440, 960);

const fn align(value: u64, to: u64) -> u64 {
    value.div_ceil(to) * to
}

impl Camera {
    /// Bytes from one line of luminance to the next: the width up to a multiple of 128.
    pub const fn stride(self) -> u64 {
        align(self.width as u64, 128)
    }

    /// Lines reserved for luminance: the height up to a multiple of 32.
    pub const fn y_height(self) -> u64 {
        align(self.height as u64, 32)
    }

    /// Lines reserved for interleaved chrominance: half the height up to a multiple of 16.
    pub const fn uv_height(self) -> u64 {
        align(self.height as u64 / 2, 16)
    }

    /// Offset in bytes of the interleaved U and V samples.
    pub const fn uv_offset(self) -> u64 {
        self.stride() * self.y_height()
    }

    /// Size in bytes of one frame buffer, padding of the video hardware included.
    pub const fn frame_size(self) -> u64 {
        let stride = self.stride();
        let guard = if 8 * stride > 16384 { 8 * stride } else { 16384 };
        let planes = align(stride * self.y_height() + stride * self.uv_height() + 4096 + guard, 4096);
        align(planes + align(self.width as u64, 512) * 512, 4096)
    }
}

impl fmt::Display for Camera {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}", self.width, self.height))
    }
}

/// Text that is not `WIDTHxHEIGHT`, or a resolution with a zero or odd side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a camera resolution such as 1928x1208 (even, non-zero sides)")]
pub struct ParseCameraError {
    /// The refused text.
    pub text: String,
}

impl TryFrom<(u32, u32)> for Camera {
    type Error = ParseCameraError;

    fn try_from((width, height): (u32, u32)) -> Result<Self, ParseCameraError> {
        let plausible = |side: u32| side > 0 && side.is_multiple_of(2) && side <= 16384;
        if plausible(width) && plausible(height) {
            Ok(Self { width, height })
        } else {
            Err(ParseCameraError { text: format!("{width}x{height}") })
        }
    }
}

impl From<Camera> for (u32, u32) {
    fn from(camera: Camera) -> Self {
        (camera.width, camera.height)
    }
}

impl FromStr for Camera {
    type Err = ParseCameraError;

    fn from_str(text: &str) -> Result<Self, ParseCameraError> {
        let refused = || ParseCameraError { text: text.to_owned() };
        let (width, height) = text.split_once('x').ok_or_else(refused)?;
        let side = |digits: &str| digits.parse::<u32>().map_err(|_| refused());
        Self::try_from((side(width)?, side(height)?)).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_layout_of_both_cameras() {
        let [tici, mici] = CAMERAS;
        assert_eq!((tici.stride(), tici.y_height(), tici.uv_height()), (2048, 1216, 608));
        assert_eq!((mici.stride(), mici.y_height(), mici.uv_height()), (1408, 768, 384));
        // By hand: 2048*1216 + 2048*608 + 4096 + 16384 = 3756032 (a multiple of 4096), and 2048*512 more.
        assert_eq!(tici.frame_size(), 3_756_032 + 1_048_576);
        // By hand: 1408*768 + 1408*384 + 4096 + 16384 = 1642496 (a multiple of 4096), and 1536*512 more.
        assert_eq!(mici.frame_size(), 1_642_496 + 786_432);
    }

    #[test]
    fn resolutions_parse_exactly() {
        assert_eq!("1344x760".parse::<Camera>().unwrap(), CAMERAS[1]);
        for text in ["", "x", "1344", "0x760", "1345x760", "1344X760", "-2x2"] {
            assert!(text.parse::<Camera>().is_err(), "{text}");
        }
    }
}
