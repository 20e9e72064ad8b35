//! Programs outside cargo and Python, found or installed.

use std::{env, process::Command};

use anyhow::{Result, bail};

use crate::process::{find_program, run};

/// A program that something of the project runs.
struct Tool {
    /// Names that count, first choice first.
    programs: &'static [&'static str],
    /// What stops working without it.
    needed_for: &'static str,
    /// Debian's package.
    apt: &'static str,
    /// What a macOS user types.
    mac: &'static str,
    /// Whether only tests need it (`setup --tests`).
    tests_only: bool,
}

/// A later need is one more line here.
const TOOLS: &[Tool] = &[
    Tool {
        programs: &["git"],
        needed_for: "making the demo's and the tests' repositories",
        apt: "git",
        mac: "xcode-select --install",
        tests_only: false,
    },
    Tool {
        programs: &["cc", "gcc", "clang"],
        needed_for: "linking Rust programs",
        apt: "gcc libc6-dev",
        mac: "xcode-select --install",
        tests_only: false,
    },
    Tool {
        programs: CLANG,
        needed_for: "tinygrad's CPU backend, which compiles its kernels with clang",
        apt: "clang",
        mac: "xcode-select --install",
        tests_only: false,
    },
    Tool {
        programs: &["git-lfs"],
        needed_for: "making LFS repositories the way people do",
        apt: "git-lfs",
        mac: "brew install git-lfs",
        tests_only: true,
    },
    Tool {
        programs: &["sshd"],
        needed_for: "the device that the tests reach over SSH",
        apt: "openssh-server",
        mac: "brew install openssh",
        tests_only: true,
    },
    Tool {
        programs: &["ssh-keygen"],
        needed_for: "the keys of the tests' devices, and scp and sftp of the benchmarks",
        apt: "openssh-client",
        mac: "brew install openssh",
        tests_only: true,
    },
    Tool {
        programs: &["rsync"],
        needed_for: "a yardstick of the benchmarks",
        apt: "rsync",
        mac: "brew install rsync",
        tests_only: true,
    },
    Tool {
        programs: &["nginx"],
        needed_for: "the tests' host that devices fetch from",
        apt: "nginx-light",
        mac: "brew install nginx",
        tests_only: true,
    },
    #[cfg(target_os = "linux")]
    Tool {
        programs: &["mkfs.exfat"],
        needed_for: "the external disk of the tests",
        apt: "exfatprogs",
        mac: "",
        tests_only: true,
    },
    #[cfg(target_os = "linux")]
    Tool {
        programs: &["mount.exfat-fuse"],
        needed_for: "mounting that disk where the kernel knows no exFAT",
        apt: "exfat-fuse",
        mac: "",
        tests_only: true,
    },
    Tool {
        programs: &["minisign"],
        needed_for: "the peer of signed part lists in the tests",
        apt: "minisign",
        mac: "brew install minisign",
        tests_only: true,
    },
    Tool {
        programs: &["openssl"],
        needed_for: "the yardstick of the benchmarks",
        apt: "openssl",
        mac: "brew install openssl",
        tests_only: true,
    },
    Tool {
        programs: &["chromium", "chromium-browser", "google-chrome"],
        needed_for: "looking at the report as a browser shows it",
        apt: "chromium",
        mac: "brew install --cask chromium",
        tests_only: true,
    },
];

const CLANG: &[&str] = &[
    "clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15",
    "clang-14",
];

/// Finds or installs every tool; `tests` takes in those that only tests need.
pub fn provide(tests: bool) -> Result<()> {
    let missing: Vec<&Tool> =
        TOOLS.iter().filter(|tool| (tests || !tool.tests_only) && !tool.is_found()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|tool| tool.apt.split(' ')).collect();
    if !can_install() {
        bail!("{}", advice(&missing, &packages));
    }
    apt_install(&packages)?;
    match missing.iter().find(|tool| !tool.is_found()) {
        None => Ok(()),
        Some(tool) => bail!("`{}` is still not in PATH after installing {}", tool.programs[0], tool.apt),
    }
}

/// Installs the Debian package of Python's `venv` module.
pub fn provide_python_venv() -> Result<()> {
    if !can_install() {
        bail!(
            "this Python has no working `venv` module\n  Debian, Ubuntu: sudo apt-get install python3-venv\n  \
             macOS: brew install python@3.12"
        );
    }
    apt_install(&["python3-venv"])
}

/// What tinygrad must be told as `CC`: nothing where its own choice (`CC`, else `clang`) is a clang that is here, otherwise
/// the first clang in PATH, whose name may be a versioned one.
pub fn clang_for_tinygrad() -> Option<String> {
    let own_choice = env::var("CC").unwrap_or_else(|_| "clang".to_owned());
    if is_clang(&own_choice) {
        return None;
    }
    CLANG.iter().find(|name| find_program(name).is_some()).map(|name| (*name).to_owned())
}

fn is_clang(program: &str) -> bool {
    program.contains("clang") && find_program(program).is_some()
}

impl Tool {
    fn is_found(&self) -> bool {
        let chosen_clang =
            self.apt == "clang" && env::var("CC").is_ok_and(|cc| cc.contains("clang") && is_program(&cc));
        chosen_clang || self.programs.iter().any(|name| is_program(name))
    }
}

/// sshd and the like live where a user's PATH does not reach.
fn is_program(name: &str) -> bool {
    find_program(name).is_some() || find_program(&format!("/usr/sbin/{name}")).is_some()
}

fn can_install() -> bool {
    find_program("apt-get").is_some() && e2e::is_root()
}

fn apt_install(packages: &[&str]) -> Result<()> {
    println!("setup: installing {}", packages.join(" "));
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get")
            .args(["--quiet=2", "--yes"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let install = [&["install", "--no-install-recommends"], packages].concat();
    // Package lists are absent on a new machine; asking for them costs time elsewhere.
    apt(&install).or_else(|_| apt(&["update"]).and_then(|()| apt(&install)))
}

fn advice(missing: &[&Tool], packages: &[&str]) -> String {
    let mut text = String::from("programs are missing:\n");
    for tool in missing {
        text.push_str(&format!("  {}: for {}\n", tool.programs[0], tool.needed_for));
    }
    if cfg!(target_os = "macos") {
        let mut commands: Vec<&str> = missing.iter().map(|tool| tool.mac).collect();
        commands.dedup();
        text.push_str(&format!("install them with: {}", commands.join("; ")));
    } else {
        text.push_str(&format!("install them with: sudo apt-get install {}", packages.join(" ")));
    }
    text
}
