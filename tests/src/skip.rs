//! Tests that cannot run here say so in one form that `cargo xtask test` counts.

/// Prints the line that counts the calling test as skipped.
#[expect(clippy::print_stdout, reason = "the line is the message to the test runner")]
pub fn report_skip(reason: &str) {
    let thread = std::thread::current();
    println!("skipped: {}: {reason}", thread.name().unwrap_or("unnamed test"));
}

/// Whether the long, seeded campaigns were asked for (`cargo xtask test --thorough`).
#[must_use]
pub fn thorough() -> bool {
    std::env::var_os("THOROUGH").is_some_and(|value| value != "0")
}

/// Whether this process runs as root, which no permission stops.
#[must_use]
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
