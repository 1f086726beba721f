//! `floe bench --write-workload`: the requests of a run as a file.

use std::path::Path;

use floe_cli::failure::Failure;
use floe_cli::output;
use floe_eval::run::{BenchOptions, RequestSource};
use floe_eval::workload::{Workload, write_ids};

use crate::outcome::explain;

/// Writes the ids of the requests of a run with these options.
pub(crate) fn write(path: &Path, options: &BenchOptions, json: bool) -> Result<(), Failure> {
    let RequestSource::Synthetic { workload, .. } = &options.source else {
        return Err(
            Failure::usage("`--write-workload` needs requests that are drawn")
                .cure("leave out --trace and --workload-file"),
        );
    };
    let mut ids = Workload::new(workload).map_err(|error| explain(error.into()))?;
    let requests = options.stop.requests.unwrap_or_default();
    let ids = (0..requests).map(|_| ids.next_id());
    let written = write_ids(path, ids).map_err(|error| explain(error.into()))?;
    if json {
        return output::print_json(&serde_json::json!({
            "workload": path, "requests": written, "items": workload.items,
        }));
    }
    output::print(&format!(
        "{}: {written} requests of {} objects\n",
        path.display(),
        workload.items
    ))
}
