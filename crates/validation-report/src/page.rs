//! The page.

use crate::Report;

const PAGE: &str = include_str!("../page/report.html");
const STYLE: &str = include_str!("../page/report.css");
const SCRIPT: &str = include_str!("../page/report.js");

/// The report as one HTML file.
///
/// # Errors
/// [`serde_json::Error`] where it cannot be written as JSON.
pub fn render(report: &Report) -> Result<String, serde_json::Error> {
    let data = harmless(&serde_json::to_string(report)?);
    // The data comes last: what it holds is never taken for a place of the page.
    Ok(PAGE.replacen("/*STYLE*/", STYLE, 1).replacen("/*SCRIPT*/", SCRIPT, 1).replacen(
        "{\"data\": null}",
        &data,
        1,
    ))
}

/// JSON in which no character means anything to HTML. In JSON these characters stand in strings only, where the escape means
/// the same.
fn harmless(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", character as u32))
            }
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_is_markup_and_nothing_is_lost() {
        let name = "</script><img src=x onerror=alert(1)>&amp; \u{2028} {\"data\": null} /*SCRIPT*/ 👀";
        let report = Report {
            workspace: name.to_owned(),
            made: String::new(),
            distances: Vec::new(),
            models: Vec::new(),
        };
        let html = render(&report).unwrap();
        assert_eq!(html.matches("</script>").count(), PAGE.matches("</script>").count());
        assert!(!html.contains("<img"));
        let data = harmless(&serde_json::to_string(&report).unwrap());
        let back: serde_json::Value = serde_json::from_str(&data).unwrap();
        assert_eq!(back["workspace"], name);
    }

    #[test]
    fn the_page_asks_nothing_of_any_network() {
        for text in [PAGE, STYLE, SCRIPT] {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in
                ["http:", "https:", "url(", "@import", "fetch(", "XMLHttpRequest", "innerHTML", "eval("]
            {
                assert!(!text.contains(forbidden), "{forbidden}");
            }
        }
        assert!(PAGE.contains("default-src 'none'"));
    }
}
