//! Several ways to do one thing, run in turn, with medians, ratios and peak memory.

use std::{env, process::Command};

use anyhow::{Context, Result, bail};
use console_report::table;
use e2e::{Measured, Measurer};

/// Called before each run of a side, outside the measurement: deletes outputs, drops caches.
type Prepare<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// One way to do the thing.
struct Side<'a> {
    name: String,
    prepare: Prepare<'a>,
    command: Command,
    samples: Vec<Measured>,
}

/// A comparison under construction: add sides, then [`Comparison::measure`].
#[must_use = "nothing is measured before `measure`"]
pub struct Comparison<'a> {
    title: String,
    runs: usize,
    sides: Vec<Side<'a>>,
}

impl<'a> Comparison<'a> {
    /// A comparison of `runs` measured rounds (one more, unmeasured, warms the caches).
    pub fn new(title: impl Into<String>, runs: usize) -> Self {
        Self { title: title.into(), runs: runs.max(1), sides: Vec::new() }
    }

    /// Adds a side; `prepare` runs before each of its runs and is not measured.
    pub fn side(
        mut self,
        name: impl Into<String>,
        prepare: impl FnMut() -> Result<()> + 'a,
        command: Command,
    ) -> Self {
        self.sides.push(Side { name: name.into(), prepare: Box::new(prepare), command, samples: Vec::new() });
        self
    }

    /// Runs all sides in turn, round by round, so that a slow minute of the machine meets every side.
    pub fn measure(mut self) -> Result<Report> {
        let measurer = Measurer::new([env::current_exe()?.into_os_string(), "measure-child".into()]);
        for round in 0..=self.runs {
            for side in &mut self.sides {
                let measured = measure_once(&measurer, side)?;
                if round > 0 {
                    side.samples.push(measured);
                }
            }
        }
        let rows =
            self.sides.into_iter().map(|side| Row { name: side.name, samples: side.samples }).collect();
        Ok(Report { title: self.title, rows })
    }
}

fn measure_once(measurer: &Measurer, side: &mut Side<'_>) -> Result<Measured> {
    (side.prepare)().with_context(|| format!("prepare `{}`", side.name))?;
    let (outcome, measured) = measurer.run(&side.command)?;
    if outcome.code != Some(0) {
        bail!("`{}` failed: {}", side.name, outcome.transcript());
    }
    Ok(measured)
}

/// All samples of one side.
struct Row {
    name: String,
    samples: Vec<Measured>,
}

/// What a comparison measured.
pub struct Report {
    title: String,
    rows: Vec<Row>,
}

impl Report {
    /// Prints the table; ratios are against the side named `baseline`.
    pub fn print(&self, baseline: &str) -> Result<()> {
        let ratio_title = format!("#x {baseline}");
        let headers = [&self.title, "#wall s", "#min", "#max", "#cpu s", "#peak MiB", &ratio_title];
        let rows = self.rows.iter().map(|row| self.cells(row, baseline)).collect::<Result<Vec<_>>>()?;
        println!("{}", table(&headers, rows));
        Ok(())
    }

    fn cells(&self, row: &Row, baseline: &str) -> Result<Vec<String>> {
        let wall = row.values(|sample| sample.wall_seconds);
        let values = [
            median(&wall),
            wall.iter().copied().fold(f64::INFINITY, f64::min),
            wall.iter().copied().fold(0.0, f64::max),
            median(&row.values(|sample| sample.cpu_seconds)),
            row.peak_mib(),
            self.ratio(&row.name, baseline)?,
        ];
        Ok(std::iter::once(row.name.clone()).chain(values.map(|value| format!("{value:.3}"))).collect())
    }

    /// The median over the rounds of `of`'s time divided by `to`'s in the same round.
    pub fn ratio(&self, of: &str, to: &str) -> Result<f64> {
        let (of, to) = (self.row(of)?, self.row(to)?);
        let pairs = of.samples.iter().zip(&to.samples);
        Ok(median(&pairs.map(|(a, b)| a.wall_seconds / b.wall_seconds).collect::<Vec<_>>()))
    }

    /// Prints whether `of` takes at most `limit` times what `to` takes.
    pub fn goal(&self, of: &str, to: &str, limit: f64) -> Result<()> {
        let ratio = self.ratio(of, to)?;
        print_goal(&format!("{of} <= {limit:.2} x {to}"), &format!("{ratio:.2}"), ratio <= limit);
        Ok(())
    }

    /// Prints whether `of` stays within `limit` MiB.
    pub fn memory_goal(&self, of: &str, limit: f64) -> Result<()> {
        let peak = self.row(of)?.peak_mib();
        print_goal(&format!("{of} peak <= {limit:.0} MiB"), &format!("{peak:.1} MiB"), peak <= limit);
        Ok(())
    }

    /// Prints whether `of` takes at most `limit` seconds.
    pub fn time_goal(&self, of: &str, limit: f64) -> Result<()> {
        let wall = median(&self.row(of)?.values(|sample| sample.wall_seconds));
        print_goal(&format!("{of} <= {limit:.2} s"), &format!("{wall:.3} s"), wall <= limit);
        Ok(())
    }

    fn row(&self, name: &str) -> Result<&Row> {
        self.rows.iter().find(|row| row.name == name).with_context(|| format!("no side is named `{name}`"))
    }
}

impl Row {
    fn values(&self, of: impl Fn(&Measured) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }

    fn peak_mib(&self) -> f64 {
        self.values(Measured::peak_mib).into_iter().fold(0.0, f64::max)
    }
}

/// Prints a goal, what was found, and whether that meets it.
pub fn print_goal(goal: &str, found: &str, met: bool) {
    println!("goal: {goal}: {found}, {}", if met { "met" } else { "MISSED" });
}

/// The middle value; the mean of the two middle ones of an even number.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, wall: &[f64]) -> Row {
        let sample = |&wall_seconds| Measured { wall_seconds, cpu_seconds: 0.0, peak_bytes: 3 << 20 };
        Row { name: name.to_owned(), samples: wall.iter().map(sample).collect() }
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratio_pairs_the_rounds() {
        let rows = vec![row("ours", &[1.0, 3.0, 1.0]), row("peer", &[2.0, 2.0, 4.0])];
        let report = Report { title: String::new(), rows };
        assert_eq!(report.ratio("ours", "peer").unwrap(), 0.5);
        assert!(report.ratio("ours", "nobody").is_err());
    }
}
