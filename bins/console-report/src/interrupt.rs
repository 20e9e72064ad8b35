//! Ctrl-C and SIGTERM as a flag that long work looks at.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that Ctrl-C, SIGTERM and a closed terminal set. Work that sees it stops at the next consistent state, and the
/// command ends with [`crate::exit::INTERRUPTED`].
///
/// # Errors
/// The system refuses to install a handler.
pub fn interrupt_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
