//! A job's stages as progress: one piece of work for each, whatever the job does in the meantime.

use console_report::Console;
use durable_fs::Progress;
use model_catalog::ModelId;
use serde_json::{Value, json};

/// The stages of one model's job that have begun and not ended.
#[derive(Debug, Default)]
pub struct Stages {
    open: usize,
    /// Whose job that is.
    of: Option<ModelId>,
}

impl Stages {
    /// Shows an event of the job.
    pub fn show(&mut self, console: &Console, id: &ModelId, event: &Value) {
        console.event(&json!({"event": "job", "id": id, "job": event}));
        if self.of.as_ref() != Some(id) {
            self.end(console);
            self.of = Some(id.clone());
        }
        let text = |key: &str| event.get(key).and_then(Value::as_str);
        match (text("event"), text("state"), text("stage")) {
            (Some("left_on_device"), ..) => console.warn(text("why").unwrap_or_default()),
            (Some("stage"), Some("start"), Some(stage)) => {
                console.begin(&format!("{id}: {} {stage}", text("op").unwrap_or_default()), None);
                self.open += 1;
            }
            (Some("stage"), Some("end"), _) if self.open > 0 => {
                console.end();
                self.open -= 1;
            }
            _ => {}
        }
    }

    /// Ends what the job of this model left open, where it is the one that is shown: another may have begun in the meantime.
    pub fn end_of(&mut self, console: &Console, id: &ModelId) {
        if self.of.as_ref() == Some(id) {
            self.end(console);
        }
    }

    /// Ends what a job that died left open.
    pub fn end(&mut self, console: &Console) {
        for _ in 0..std::mem::take(&mut self.open) {
            console.end();
        }
    }
}
