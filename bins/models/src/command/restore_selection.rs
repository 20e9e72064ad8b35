//! `models restore-selection`: what a killed verification of the runtime left changed.

use console_report::{Console, Exit, Failure};
use model_store::{
    ParamStore,
    runtime::{guard, restore_left_behind},
};
use serde_json::json;

use crate::arguments::RestoreSelectionArgs;

/// Puts the selection back, where there is one to put back.
pub fn run(args: &RestoreSelectionArgs, console: &Console) -> Result<(), Failure> {
    let params = ParamStore::new(&args.params_dir, &args.volatile_dir);
    let failed = |error: model_store::runtime::KeepError| {
        Failure::new(Exit::Environment, "the model selection was not put back").because(&error)
    };
    if args.when_input_ends {
        return guard(&params, std::io::stdin()).map_err(failed);
    }
    let restored = restore_left_behind(&params).map_err(failed)?;
    let id = restored.as_ref().map(|snapshot| snapshot.id().unwrap_or_else(|| "no model".to_owned()));
    console.result(&json!({"restored": id}), || match &id {
        Some(id) => format!("{id} is selected again"),
        None => "no verification left a selection changed".to_owned(),
    });
    Ok(())
}

/// The same, at the start of everything that serves a host: a device that lost power in a verification is put right here.
pub fn at_start(console: &Console) {
    let params = ParamStore::new(ParamStore::DIR, ParamStore::VOLATILE_DIR);
    match restore_left_behind(&params) {
        Ok(None) => {}
        Ok(Some(snapshot)) => {
            let id = snapshot.id().unwrap_or_else(|| "no model".to_owned());
            console.note(&format!(
                "{id} is selected again: a verification was killed before it could put it back"
            ));
        }
        Err(error) => {
            console.warn(&format!("the selection that a verification changed was not put back: {error}"))
        }
    }
}
