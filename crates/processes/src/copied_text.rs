//! Recognizes text of a file that a program has copied to anonymous memory at the same addresses.
//!
//! Programs do so to have their code in huge pages: node's `--use-largepages`, iodlr, ClickHouse, PHP's
//! `opcache.huge_code_pages`. The kernel shows anonymous executable memory, as for JIT code. But it is a hole between two mappings
//! of one file whose offsets continue across it, and no JIT compiler gets its memory there.

use profiler_addresses::FileOffset;

use crate::maps::{Backing, Mapping};

/// Gives each executable mapping that is such a hole the file around it. `all`: all mappings of the process in the order of their
/// addresses, also those that are not executable.
pub(crate) fn restore_files(executable: &mut [Mapping], all: &[Mapping]) {
    for mapping in executable.iter_mut().filter(|mapping| mapping.backing == Backing::Jit) {
        let Ok(index) = all.binary_search_by_key(&mapping.start, |other| other.start) else { continue };
        let before = nearest_file(all.iter().take(index + 1).rev());
        let after = nearest_file(all.iter().skip(index));
        if let Some((before, after)) = before.zip(after)
            && let Some(restored) = restored(mapping, before, after)
        {
            *mapping = restored;
        }
    }
}

/// The first mapping of a file, unless there is a gap before it.
fn nearest_file<'a>(mut mappings: impl Iterator<Item = &'a Mapping>) -> Option<&'a Mapping> {
    let mut last = mappings.next()?;
    for mapping in mappings {
        if mapping.end != last.start && mapping.start != last.end {
            return None;
        }
        match mapping.backing {
            Backing::File { .. } => return Some(mapping),
            Backing::Jit => last = mapping,
            _ => return None,
        }
    }
    None
}

/// The mapping of the file that `before` and `after` belong to, at the place of an anonymous one between them; `None` where they
/// are of different files, or where their offsets do not continue.
pub(crate) fn restored(anonymous: &Mapping, before: &Mapping, after: &Mapping) -> Option<Mapping> {
    let (Backing::File { id, .. }, Backing::File { id: other, .. }) = (&before.backing, &after.backing)
    else {
        return None;
    };
    let continues =
        after.offset.0.checked_sub(before.offset.0)? == after.start.0.checked_sub(before.start.0)?;
    let offset = before.offset.0.checked_add(anonymous.start.0.checked_sub(before.start.0)?)?;
    (id == other && continues).then(|| Mapping {
        offset: FileOffset(offset),
        backing: before.backing.clone(),
        ..anonymous.clone()
    })
}

#[cfg(test)]
mod tests {
    use crate::maps::parse_executable;

    /// The offset of each executable mapping, and whether it is one of a file.
    fn parsed(text: &str) -> Vec<(u64, bool)> {
        let is_file = |backing| matches!(backing, super::Backing::File { .. });
        parse_executable(text.as_bytes())
            .into_iter()
            .map(|mapping| (mapping.offset.0, is_file(mapping.backing)))
            .collect()
    }

    #[test]
    fn text_in_huge_pages_belongs_to_the_file_around_it() {
        let whole = "1000-2000 r--p 00000000 fd:01 7 /app\n\
                     2000-8000 r-xp 00000000 00:00 0 \n\
                     8000-9000 r--p 00007000 fd:01 7 /app\n";
        assert_eq!(parsed(whole), [(0x1000, true)]);
        let middle = "2000-3000 r-xp 00001000 fd:01 7 /app\n\
                      3000-5000 r-xp 00000000 00:00 0 \n\
                      5000-6000 rwxp 00000000 00:00 0 [anon:huge]\n\
                      6000-8000 r-xp 00005000 fd:01 7 /app\n";
        assert_eq!(parsed(middle), [(0x1000, true), (0x2000, true), (0x4000, true), (0x5000, true)]);
    }

    #[test]
    fn other_anonymous_memory_is_jit_code() {
        for text in [
            // The offsets do not continue.
            "1000-2000 r--p 00000000 fd:01 7 /app\n2000-8000 r-xp 00000000 00:00 0 \n8000-9000 r--p 00006000 fd:01 7 /app\n",
            // Another file.
            "1000-2000 r--p 00000000 fd:01 7 /app\n2000-8000 r-xp 00000000 00:00 0 \n8000-9000 r--p 00007000 fd:01 8 /app\n",
            // A gap.
            "1000-1800 r--p 00000000 fd:01 7 /app\n2000-8000 r-xp 00000000 00:00 0 \n8000-9000 r--p 00007000 fd:01 7 /app\n",
            // Nothing before or after.
            "2000-8000 r-xp 00000000 00:00 0 \n8000-9000 r--p 00007000 fd:01 7 /app\n",
            "1000-2000 r--p 00000000 fd:01 7 /app\n2000-8000 r-xp 00000000 00:00 0 \n",
        ] {
            assert_eq!(parsed(text), [(0, false)], "{text}");
        }
    }
}
