//! Finds the child process for which a thread waits in wait4(2) or waitid(2).

use std::collections::BTreeSet;

use super::{MAX_SHORT_BYTES, PartnerRole, Search, WaitPartner};
use crate::{Pid, Tid};

/// The threads whose children are read, and the children of a process.
const MAX_THREADS: usize = 1024;
const MAX_CHILDREN: usize = 64;

/// The child processes for which a system call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Children {
    Any,
    /// The one with this id in the PID namespace of the thread.
    One(u32),
}

impl Children {
    /// Those of a system call with these arguments: wait4 (61), waitid (247). Process groups and pidfds are not examined.
    pub(super) fn of_call(number: u64, first: u64, second: u64) -> Option<Self> {
        const WAIT4: u64 = 61;
        const WAITID: u64 = 247;
        const P_ALL: u32 = 0;
        const P_PID: u32 = 1;
        // Both are of 32 bits.
        let (first, second) = (first as u32, second as u32);
        match number {
            WAIT4 if first.cast_signed() == -1 => Some(Self::Any),
            WAIT4 if first.cast_signed() > 0 => Some(Self::One(first)),
            WAITID if first == P_ALL => Some(Self::Any),
            WAITID if first == P_PID => Some(Self::One(second)),
            _ => None,
        }
    }
}

impl Search<'_> {
    /// The child for which a thread waits: the one that the call names, or all of them if they have one name.
    pub(super) fn child(&self, pid: Pid, tid: Tid, awaited: Children) -> Option<WaitPartner> {
        let children = self.children(pid)?;
        let role = PartnerRole::Child;
        if let Children::One(id) = awaited {
            let depth = self.ids_in_namespaces(pid)?.len();
            let is_awaited = |child: &Pid| {
                let ids = self.ids_in_namespaces(*child).unwrap_or_default();
                depth.checked_sub(1).and_then(|index| ids.get(index)) == Some(&id)
            };
            let child = children.into_iter().find(is_awaited)?;
            return Some(WaitPartner { tid, role, name: self.comm(child)?, pid: Some(child), serves: false });
        }
        let names = children.iter().map(|child| self.comm(*child)).collect::<Option<BTreeSet<_>>>()?;
        let [name] = Vec::from_iter(names).try_into().ok()?;
        let pid = Some(children[0]).filter(|_| children.len() == 1);
        Some(WaitPartner { tid, role, name, pid, serves: false })
    }

    /// The children of all threads of a process; `None` if not all can be read.
    pub(super) fn children(&self, pid: Pid) -> Option<Vec<Pid>> {
        let threads: Vec<_> =
            self.entries.numbers_in(format!("{pid}/task").as_ref()).ok()?.take(MAX_THREADS + 1).collect();
        let mut children = Vec::new();
        for tid in &threads {
            // A thread that has ended has no children.
            let text = self.text(&format!("{pid}/task/{tid}/children"), MAX_SHORT_BYTES).unwrap_or_default();
            children.extend(text.split_ascii_whitespace().filter_map(|id| id.parse().ok().map(Pid)));
            if self.is_late() || children.len() > MAX_CHILDREN {
                return None;
            }
        }
        (threads.len() <= MAX_THREADS).then_some(children)
    }

    /// The ids of a process in the PID namespaces from that of `/proc` inward (`NSpid`, proc_pid_status(5)).
    fn ids_in_namespaces(&self, pid: Pid) -> Option<Vec<u32>> {
        let status = self.text(&format!("{pid}/status"), MAX_SHORT_BYTES).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        ids.split_ascii_whitespace().map(|id| id.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_wait_for_children_have_their_ids() {
        assert_eq!(Children::of_call(61, 0xffff_ffff, 0), Some(Children::Any));
        assert_eq!(Children::of_call(61, u64::MAX, 0), Some(Children::Any));
        assert_eq!(Children::of_call(61, 7, 0), Some(Children::One(7)));
        assert_eq!(Children::of_call(247, 0, 0), Some(Children::Any));
        assert_eq!(Children::of_call(247, 1, 7), Some(Children::One(7)));
        for (number, first) in [(61, 0), (61, (-7_i64).cast_unsigned()), (247, 2), (247, 3), (0, 7)] {
            assert_eq!(Children::of_call(number, first, 7), None, "{number} {first}");
        }
    }
}
