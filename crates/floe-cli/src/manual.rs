//! Completion scripts and manual pages, generated from a command line.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::output;

/// Prints the completion script of `command` for `shell`.
///
/// # Errors
/// Standard output is not writable.
pub fn completions(command: &mut Command, shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, command, name, &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Prints the main page of `command`, or writes the pages of all subcommands into `folder`.
///
/// # Errors
/// The directory or standard output is not writable.
pub fn pages(mut command: Command, folder: Option<&Path>) -> Result<(), Failure> {
    command.build();
    let Some(folder) = folder else {
        return output::print(&page(&command)?);
    };
    fs::create_dir_all(folder).map_err(|error| {
        Failure::environment(format!("cannot create the directory {}", folder.display()))
            .because(error)
    })?;
    write_pages(&command, command.get_name(), folder)
}

fn write_pages(command: &Command, name: &str, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, page(&command.clone().name(name.to_owned()))?).map_err(|error| {
        Failure::environment(format!("cannot write {}", path.display())).because(error)
    })?;
    output::print(&format!("{}\n", path.display()))?;
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_pages(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(())
}

fn page(command: &Command) -> Result<String, Failure> {
    let mut text = Vec::new();
    Man::new(command.clone())
        .render(&mut text)
        .map_err(|error| Failure::bug("the manual page cannot be rendered").because(error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
