//! The USB bridge of an external GPU: is it there, does it run the right firmware, is its link up?
//!
//! Only sysfs is read. Nothing here writes to a device, and nothing ever flashes one: the messages name the firmware project,
//! the rest is a person's decision.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};

/// The CPU that drives the bridge: the big core of a comma. Other machines are not pinned.
pub const PINNED_CPU: Option<usize> =
    if cfg!(all(target_os = "linux", target_arch = "aarch64")) { Some(7) } else { None };

/// USB vendor and product of the ASM2464PD bridge.
const BRIDGE: (&str, &str) = ("add1", "0001");
/// The product string of the firmware that bridges are sold with.
const LEGACY_PRODUCT: &str = "USB 3.2 PCIe TinyEnclosure";
/// SuperSpeed, in Mbit/s: below it, writes were seen to be cut short.
const SUPER_SPEED: u32 = 5000;
const POLL: Duration = Duration::from_millis(200);

/// Why the bridge cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// No bridge is connected.
    #[error(
        "no external GPU is connected: no USB device ADD1:0001 (ASM2464PD) in {usb}; connect it and give it power"
    )]
    Absent {
        /// Where was looked.
        usb: Utf8PathBuf,
    },
    /// The bridge runs the firmware that it was sold with.
    #[error(
        "the external GPU's bridge runs its legacy firmware ({LEGACY_PRODUCT:?}), with which tinygrad cannot reach the GPU; it needs the custom firmware of https://github.com/tinygrad/asm2464pd-firmware, which this program never installs"
    )]
    LegacyFirmware,
    /// The bridge runs something unknown.
    #[error(
        "the external GPU's bridge reports the product {product:?}, not a name that starts with \"custom\"; the firmware of https://github.com/tinygrad/asm2464pd-firmware is needed"
    )]
    UnknownFirmware {
        /// The product string.
        product: String,
    },
    /// The link did not come up in time.
    #[error(
        "the external GPU's bridge is connected at {} after {waited} s, SuperSpeed (5000 Mbit/s) is needed; use another cable or port, or cut its power and connect it again",
        speed.map_or_else(|| "no known speed".to_owned(), |speed| format!("{speed} Mbit/s"))
    )]
    LinkDown {
        /// Its speed in Mbit/s, where it reports one.
        speed: Option<u32>,
        /// Seconds that were waited.
        waited: u64,
    },
    /// More than one bridge.
    #[error("{count} external GPUs are connected; leave one")]
    Several {
        /// How many.
        count: usize,
    },
}

/// A bridge that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its product string.
    pub product: String,
    /// Its link speed in Mbit/s.
    pub speed: u32,
}

/// The USB devices as sysfs shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsbTree {
    /// The directory with one entry for each device.
    pub devices: Utf8PathBuf,
    /// How long a link may take to come up.
    pub patience: Duration,
}

impl Default for UsbTree {
    fn default() -> Self {
        Self { devices: "/sys/bus/usb/devices".into(), patience: Duration::from_secs(10) }
    }
}

fn attribute(device: &Utf8Path, name: &str) -> Option<String> {
    std::fs::read_to_string(device.join(name)).ok().map(|text| text.trim().to_owned())
}

impl UsbTree {
    fn bridges(&self) -> Vec<Utf8PathBuf> {
        let Ok(entries) = self.devices.read_dir_utf8() else { return Vec::new() };
        let is_bridge = |device: &Utf8PathBuf| {
            let is = |name, wanted: &str| {
                attribute(device, name).is_some_and(|found| found.eq_ignore_ascii_case(wanted))
            };
            is("idVendor", BRIDGE.0) && is("idProduct", BRIDGE.1)
        };
        let mut devices: Vec<_> =
            entries.flatten().map(|entry| entry.into_path()).filter(is_bridge).collect();
        devices.sort();
        devices
    }

    fn look(&self, waited: Duration) -> Result<Bridge, BridgeError> {
        let bridges = self.bridges();
        let device = match bridges.as_slice() {
            [] => return Err(BridgeError::Absent { usb: self.devices.clone() }),
            [device] => device,
            several => return Err(BridgeError::Several { count: several.len() }),
        };
        let product = attribute(device, "product").unwrap_or_default();
        if product == LEGACY_PRODUCT {
            return Err(BridgeError::LegacyFirmware);
        }
        if !product.starts_with("custom") {
            return Err(BridgeError::UnknownFirmware { product });
        }
        // sysfs says 1.5 for the slowest devices; everything else is a whole number.
        let speed = attribute(device, "speed").and_then(|text| text.split('.').next()?.parse().ok());
        match speed.filter(|&speed| speed >= SUPER_SPEED) {
            Some(speed) => Ok(Bridge { product, speed }),
            None => Err(BridgeError::LinkDown { speed, waited: waited.as_secs() }),
        }
    }

    /// The bridge, once it is ready. A link that is not up yet is waited for within [`Self::patience`]; a missing bridge and
    /// the wrong firmware are refused at once.
    ///
    /// # Errors
    /// [`BridgeError`].
    pub fn ready_bridge(&self) -> Result<Bridge, BridgeError> {
        let began = Instant::now();
        loop {
            match self.look(began.elapsed()) {
                Err(BridgeError::LinkDown { .. }) if began.elapsed() < self.patience => {
                    sleep(POLL.min(self.patience))
                }
                answer => return answer,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use durable_fs::write_atomic;

    use super::*;

    fn tree(devices: &[(&str, &str, &str)]) -> (tempfile::TempDir, UsbTree) {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(guard.path()).unwrap();
        for (index, (ids, product, speed)) in devices.iter().enumerate() {
            let device = dir.join(format!("2-{index}"));
            std::fs::create_dir(&device).unwrap();
            let (vendor, id) = ids.split_once(':').unwrap();
            for (name, value) in
                [("idVendor", vendor), ("idProduct", id), ("product", product), ("speed", speed)]
            {
                write_atomic(device.join(name), format!("{value}\n").as_bytes()).unwrap();
            }
        }
        let usb = UsbTree { devices: dir.to_owned(), patience: Duration::from_millis(300) };
        (guard, usb)
    }

    #[test]
    fn each_state_of_the_bridge_has_its_own_message() {
        let (_guard, usb) = tree(&[("1d6b:0003", "xHCI Host Controller", "10000")]);
        assert!(matches!(usb.ready_bridge(), Err(BridgeError::Absent { .. })));
        let (_guard, usb) = tree(&[("ADD1:0001", LEGACY_PRODUCT, "10000")]);
        let refused = usb.ready_bridge().unwrap_err().to_string();
        assert!(refused.contains("https://github.com/tinygrad/asm2464pd-firmware"), "{refused}");
        let (_guard, usb) = tree(&[("add1:0001", "something else", "10000")]);
        assert!(
            matches!(usb.ready_bridge(), Err(BridgeError::UnknownFirmware { product }) if product == "something else")
        );
        let (_guard, usb) = tree(&[("add1:0001", "custom v3", "480")]);
        let refused = usb.ready_bridge().unwrap_err();
        assert!(matches!(refused, BridgeError::LinkDown { speed: Some(480), .. }), "{refused}");
        let (_guard, usb) = tree(&[("add1:0001", "custom v3", "10000"), ("add1:0001", "custom v3", "10000")]);
        assert_eq!(usb.ready_bridge(), Err(BridgeError::Several { count: 2 }));
        let (_guard, usb) = tree(&[("add1:0001", "custom v3", "10000")]);
        assert_eq!(usb.ready_bridge(), Ok(Bridge { product: "custom v3".to_owned(), speed: 10_000 }));
    }

    #[test]
    fn a_link_that_comes_up_late_is_waited_for() {
        let (_guard, mut usb) = tree(&[("add1:0001", "custom v3", "")]);
        usb.patience = Duration::from_secs(20);
        let speed = usb.devices.join("2-0/speed");
        let raise = std::thread::spawn(move || {
            sleep(Duration::from_millis(250));
            write_atomic(speed, b"20000\n").unwrap();
        });
        assert_eq!(usb.ready_bridge().unwrap().speed, 20_000);
        raise.join().unwrap();
    }

    #[test]
    fn a_missing_sysfs_has_no_bridge() {
        let usb = UsbTree { devices: "/no/such/sysfs".into(), ..UsbTree::default() };
        assert!(matches!(usb.ready_bridge(), Err(BridgeError::Absent { .. })));
    }
}
