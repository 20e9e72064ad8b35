//! Counting what the test runners print.

/// Counts over all runners.
#[derive(Debug, Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Tests that their runner counted as passed although they reported themselves as skipped.
    passed_but_skipped: u64,
    notes: Vec<String>,
}

impl Tally {
    /// Counts a check that has no tests of its own.
    pub fn check(&mut self, name: &str, result: anyhow::Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => self.fail(format!("FAILED: {name}: {error:#}")),
        }
    }

    /// Counts a failure that no test runner counted.
    pub fn fail(&mut self, note: String) {
        self.failed += 1;
        self.notes.push(note);
    }

    /// Counts a check that cannot run here.
    pub fn skip(&mut self, name: &str, reason: &str) {
        self.skipped += 1;
        self.notes.push(format!("skipped: {name}: {reason}"));
    }

    /// Takes in one line of `cargo test`'s stdout.
    pub fn cargo_line(&mut self, line: &str) {
        if line.starts_with("skipped: ") {
            self.passed_but_skipped += 1;
            self.notes.push(line.to_owned());
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.skipped += count(counts, "ignored");
        } else if line.starts_with("test ") && line.ends_with(" ... FAILED") {
            self.notes.push(line.to_owned());
        }
    }

    /// Takes in the summary of Python's unittest (`Ran 12 tests in 1.2s`, then `OK (skipped=1)` or `FAILED (...)`).
    pub fn unittest(&mut self, output: &str) {
        let ran = output.lines().rev().find_map(|line| line.strip_prefix("Ran ")).map_or(0, leading_number);
        let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let failed = after(last, "failures=") + after(last, "errors=") + after(last, "unexpected successes=");
        let skipped = after(last, "skipped=");
        self.passed += ran.saturating_sub(failed + skipped);
        self.failed += failed;
        self.skipped += skipped;
        if failed > 0 {
            self.notes.push(format!("FAILED: {failed} of the driver's own tests"));
        }
    }

    /// How many failed so far.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Whether nothing failed and anything ran.
    pub fn is_success(&self) -> bool {
        self.failed == 0 && self.passed > self.passed_but_skipped
    }

    /// Names what failed or was skipped.
    pub fn print_notes(&self) {
        for note in &self.notes {
            println!("{note}");
        }
    }

    /// The last line of a run.
    pub fn closing_line(&self) -> String {
        let moved = self.passed_but_skipped;
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed.saturating_sub(moved),
            self.failed,
            self.skipped + moved
        )
    }
}

/// The number before `what` in `ok. 5 passed; 0 failed; ...`.
fn count(text: &str, what: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == what).map_or(0, |pair| leading_number(pair[0]))
}

/// The number after `what` in `FAILED (failures=1, errors=2)`.
fn after(text: &str, what: &str) -> u64 {
    text.split(what).nth(1).map_or(0, leading_number)
}

fn leading_number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_cargo_tests_and_moves_skipped_ones() {
        let mut tally = Tally::default();
        for line in [
            "test a ... ok",
            "skipped: b: no Python environment",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "test c ... FAILED",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
        ] {
            tally.cargo_line(line);
        }
        assert_eq!(tally.closing_line(), "14 passed, 1 failed, 2 skipped");
        assert!(!tally.is_success());
    }

    #[test]
    fn counts_unittest_summaries() {
        let mut tally = Tally::default();
        tally.unittest("....\n-----\nRan 12 tests in 3.1s\n\nOK (skipped=2)\n");
        tally.unittest("Ran 3 tests in 3.1s\n\nFAILED (failures=1, errors=1)\n");
        assert_eq!(tally.closing_line(), "11 passed, 2 failed, 2 skipped");
    }

    #[test]
    fn a_run_without_tests_is_no_success() {
        assert!(!Tally::default().is_success());
    }
}
