//! Patterns for names of functions, threads and modules.

/// Whether a name matches a pattern, in which each `*` matches any text.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(end)
}

/// Whether a name matches one of the patterns.
pub(crate) fn matches_any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, name, expected) in [
            ("poll", "poll", true),
            ("poll", "epoll", false),
            ("poll*", "poll_wait", true),
            ("*poll", "epoll", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*.take(*", "java.util.Queue.take(int)", true),
            ("*gc_heap::*join*", "WKS::gc_heap::join()", true),
            ("*gc_heap::*join*", "join gc_heap::x", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(matches_any(&["a", "b*"], "bc") && !matches_any(&[], ""));
    }
}
