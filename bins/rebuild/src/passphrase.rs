//! Asking a person for the passphrase of a key file.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Write},
};

use camino::Utf8Path;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Asks on the terminal, without showing what is typed; `None` where there is no terminal or nothing was typed.
pub fn ask(key_file: &Utf8Path) -> Option<String> {
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    write!(terminal, "Passphrase for {key_file}: ").ok()?;
    terminal.flush().ok()?;
    let before = tcgetattr(&terminal).ok()?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&terminal, OptionalActions::Flush, &hidden).ok()?;
    let mut line = String::new();
    let read = BufReader::new(&terminal).read_line(&mut line);
    let _ = tcsetattr(&terminal, OptionalActions::Flush, &before);
    let _ = writeln!(terminal);
    read.ok()?;
    let typed = line.trim_end_matches(['\n', '\r']);
    (!typed.is_empty()).then(|| typed.to_owned())
}
