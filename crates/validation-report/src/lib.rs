//! One self-contained HTML file: the catalog as a table, and how each model drove on the drawn road of its validation.
//!
//! The page is fixed; a report differs in one block of JSON only, in which every character that HTML could read as markup is
//! escaped. The page's script makes nodes and sets their text, it never parses markup, so whatever an ID, a name or an error
//! holds is shown and not run. A policy in the page forbids every request, so it works offline or not at all. What can go
//! wrong: a record that cannot be read (the model is shown with that), and plots of another artifact than the one that is
//! there (only records of the same artifact count).

mod changes;
mod gather;
mod model;
mod page;

pub use changes::{Change, PathChange};
pub use gather::gather_model;
pub use model::{CameraPlot, ModelReport, Report, ScenePlot, VerdictLine};
pub use page::render;
