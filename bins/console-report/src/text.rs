//! Sizes, durations and tables as text.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A size in bytes for people: `812 B`, `4.0 KiB`, `95.0 MiB`.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A duration for people: `0.42 s`, `12.3 s`, `3 min 05 s`.
pub fn seconds_text(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        let whole = seconds.round() as u64;
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

/// A table without borders for stdout. Columns whose header starts with `#` are numbers: the `#` is not shown and the
/// column is aligned to the right.
pub fn table<R>(headers: &[&str], rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator,
    R::Item: ToString,
{
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headers.iter().map(|header| header.trim_start_matches('#')));
    for row in rows {
        table.add_row(row.into_iter().map(|cell| cell.to_string()));
    }
    for (index, header) in headers.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if header.starts_with('#') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_seconds() {
        assert_eq!(size_text(812), "812 B");
        assert_eq!(size_text(104_857_600), "100.0 MiB");
        assert_eq!(seconds_text(0.416), "0.42 s");
        assert_eq!(seconds_text(185.0), "3 min 05 s");
    }

    #[test]
    fn tables_are_plain_and_aligned() {
        let text = table(&["id", "#size"], [["rdf2", "1 B"], ["x", "100 B"]]);
        assert_eq!(text, "id     size\nrdf2    1 B\nx     100 B");
    }
}
