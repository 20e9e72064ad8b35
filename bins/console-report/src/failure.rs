//! Errors as people read them: one line of what, one of why, one of what to do.

use std::error::Error;

use serde::Serialize;

use crate::Exit;

/// Why a command ends without having done what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    #[serde(skip)]
    exit: Exit,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chain: Vec<String>,
}

impl Failure {
    /// A failure that is described by `what` was not done.
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: None, todo: None, chain: Vec::new() }
    }

    /// Says why.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Takes the reason from an error; its sources are kept for `-v`. The project's errors end with what to do next behind
    /// the last semicolon; that part becomes the advice unless another is given.
    #[must_use]
    pub fn because(mut self, error: &(dyn Error + 'static)) -> Self {
        let message = error.to_string();
        match message.rsplit_once("; ").filter(|(_, advice)| !advice.contains('\n')) {
            Some((why, advice)) => {
                self.why = Some(why.to_owned());
                self.todo.get_or_insert_with(|| advice.to_owned());
            }
            None => self.why = Some(message),
        }
        let mut cause = error.source();
        while let Some(error) = cause {
            self.chain.push(error.to_string());
            cause = error.source();
        }
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn advice(mut self, todo: impl Into<String>) -> Self {
        self.todo = Some(todo.into());
        self
    }

    /// Says what to do next, where something can be said.
    #[must_use]
    pub fn maybe_advice(mut self, todo: Option<String>) -> Self {
        self.todo = todo.or(self.todo);
        self
    }

    /// The reason that decides the exit code.
    pub const fn exit(&self) -> Exit {
        self.exit
    }

    /// What was not done.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The lines for a person; the chain of causes with `verbose`.
    pub fn lines(&self, verbose: bool) -> String {
        let mut lines = format!("error: {}", self.what);
        for (label, text) in [("why", &self.why), ("do", &self.todo)] {
            if let Some(text) = text {
                lines.push_str(&format!("\n  {label:>3}: {}", text.replace('\n', "\n       ")));
            }
        }
        if verbose {
            for cause in &self.chain {
                lines.push_str(&format!("\n   by: {cause}"));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_lines_and_the_chain_on_request() {
        let cause = std::io::Error::other(std::fmt::Error);
        let failure =
            Failure::new(Exit::Failed, "model rdf2 was not compiled").because(&cause).advice("run again");
        assert_eq!(
            failure.lines(false),
            "error: model rdf2 was not compiled\n  why: an error occurred when formatting an argument\n   do: run again"
        );
        assert_eq!(serde_json::to_value(&failure).unwrap()["do"], "run again");
        let cause = std::io::Error::other("a is locked; wait for it");
        let failure = Failure::new(Exit::Environment, "x").because(&cause);
        assert_eq!(failure.lines(false), "error: x\n  why: a is locked\n   do: wait for it");
        assert!(failure.advice("other").lines(false).ends_with("do: other"));
        let text = Failure::new(Exit::Usage, "x").why("a\nb").lines(true);
        assert_eq!(text, "error: x\n  why: a\n       b");
    }
}
