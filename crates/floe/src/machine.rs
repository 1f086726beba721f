//! The threads and the memory of the machine.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use floe_core::ByteSize;

/// Threads that run at once, as the scheduler and control groups allow.
pub(crate) fn cores() -> u32 {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(threads).unwrap_or(u32::MAX)
}

/// Memory that the process may take: the machine's, or less if its control groups limit it.
/// `None` if the kernel does not report it.
pub(crate) fn memory() -> Option<ByteSize> {
    let of_machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups, Path::new("/sys/fs/cgroup"))
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.chain(of_machine).min().map(ByteSize)
}

/// Bytes of memory in the text of `/proc/meminfo`.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The files that may limit the memory of a process with these groups, as `/proc/self/cgroup`
/// lists them: those of its group and of all groups around it. A file without a limit has a
/// word instead of a number, or a number beyond every machine.
fn limit_files(groups: &str, root: &Path) -> impl Iterator<Item = PathBuf> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (controllers, path) = (fields.nth(1)?, fields.next()?);
        let (folder, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let path = path.trim_start_matches('/').to_owned();
        let around: Vec<PathBuf> = Path::new(&path)
            .ancestors()
            .map(|group| folder.join(group).join(file))
            .collect();
        Some(around)
    };
    let files: Vec<PathBuf> = groups.lines().filter_map(of_line).flatten().collect();
    files.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_memory() {
        let all = memory().expect("a report");
        assert!(all > ByteSize::mib(64), "{all}");
        assert!(cores() > 0);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       24664072 kB\nMemFree:        1 kB\n";
        assert_eq!(total_of(text), Some(24_664_072 << 10));
        for damaged in ["", "MemTotal: 1 MB", "MemTotal: kB", "MemTotal: -1 kB"] {
            assert_eq!(total_of(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn limits_of_all_groups_around_count() {
        let root = Path::new("/cg");
        let files = |groups| -> Vec<_> {
            limit_files(groups, root)
                .map(|file| file.display().to_string())
                .collect()
        };
        let unified = ["/cg/a/b/memory.max", "/cg/a/memory.max", "/cg/memory.max"];
        assert_eq!(files("0::/a/b\n"), unified);
        let split = [
            "/cg/memory/a/memory.limit_in_bytes",
            "/cg/memory/memory.limit_in_bytes",
        ];
        assert_eq!(files("3:cpu:/x\n2:memory,pids:/a\n"), split);
        assert_eq!(files("").len() + files("damaged").len(), 0);
    }
}
