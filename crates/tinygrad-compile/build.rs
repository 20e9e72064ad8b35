//! Lists the Python files of the driver, so that the binary carries exactly what the driver directory holds.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let driver = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("driver");
    println!("cargo::rerun-if-changed=driver");
    let mut names = Vec::new();
    for entry in fs::read_dir(driver)? {
        let name = entry?.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8"))?;
        if name.ends_with(".py") && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    let mut code = String::from("&[\n");
    for name in &names {
        writeln!(
            code,
            "    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/driver/{name}\"))),"
        )?;
    }
    code.push_str("]\n");
    #[expect(clippy::disallowed_methods, reason = "a build script writes into its own directory")]
    fs::write(Path::new(&env::var("OUT_DIR")?).join("driver_files.rs"), code)?;
    Ok(())
}
