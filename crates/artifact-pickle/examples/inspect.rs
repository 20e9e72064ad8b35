//! Prints what is in artifacts: `cargo run --release --example inspect -- FILE...`

use artifact_pickle::{InspectOptions, inspect};
use camino::Utf8Path;

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let start = std::time::Instant::now();
        let inspection = inspect(Utf8Path::new(&path), &InspectOptions::default())?;
        print!("{inspection}");
        println!("  in {:?}", start.elapsed());
    }
    Ok(())
}
