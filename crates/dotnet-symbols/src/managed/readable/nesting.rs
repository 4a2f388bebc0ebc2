//! Types in types, and functions in functions: what of them is in the source, and which arguments are whose.

use std::borrow::Cow;

use super::{
    generated::{Generated, generated},
    path::outside_of_brackets,
    type_name::TypeReader,
};

/// A type of a nesting, with its own arguments.
pub(super) struct Step<'a> {
    name: &'a str,
    arguments: String,
}

/// The types of a nesting, outermost first. Their arguments stand in one list, and the name of each says how many are
/// its own. A name that is not whole lacks the types around it, whose arguments come first.
pub(super) fn steps<'a>(nesting: &'a str, arguments: &[String], is_whole: bool) -> Option<Vec<Step<'a>>> {
    let mut counted: Vec<_> = split_nesting(nesting).into_iter().map(split_count).collect();
    let counts: usize = counted.iter().map(|(_, count)| count).sum();
    let lacking = match arguments.len().checked_sub(counts)? {
        // As a program spells it.
        all if is_whole && counts == 0 => {
            counted.last_mut()?.1 = all;
            0
        }
        lacking if is_whole && lacking > 0 => return None,
        lacking => lacking,
    };
    let mut left = arguments.get(lacking..)?;
    let mut steps = Vec::with_capacity(counted.len());
    for (name, count) in counted {
        let (own, others) = left.split_at_checked(count)?;
        let arguments = if own.is_empty() { String::new() } else { format!("<{}>", own.join(",")) };
        steps.push(Step { name, arguments });
        left = others;
    }
    Some(steps)
}

fn split_nesting(nesting: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut begin = 0;
    for (plus, _) in outside_of_brackets(nesting).filter(|(_, c)| *c == '+') {
        names.push(&nesting[begin..plus]);
        begin = plus + 1;
    }
    names.push(&nesting[begin..]);
    names
}

/// ``Dictionary`2``: the name, and how many arguments are its own.
fn split_count(name: &str) -> (&str, usize) {
    let counted = name.rsplit_once('`').and_then(|(name, count)| Some((name, count.parse::<u16>().ok()?)));
    counted.map_or((name, 0), |(name, count)| (name, count.into()))
}

/// Puts together what is nested, from the outside inwards.
pub(super) struct Nesting<'a> {
    parts: Vec<String>,
    /// The type before, when it only holds what the functions in a method share.
    closure: Option<(Step<'a>, Option<String>)>,
    is_state_machine: bool,
    /// Whether it is in a list of types. A list in a name is not read there: it would be a list in a list in a name
    /// without end.
    is_in_list: bool,
}

impl<'a> Nesting<'a> {
    pub(super) fn of_method(namespace: &str) -> Self {
        let parts = if namespace.is_empty() { Vec::new() } else { vec![namespace.to_owned()] };
        Self { parts, closure: None, is_state_machine: false, is_in_list: false }
    }

    pub(super) fn in_list() -> Self {
        Self { parts: Vec::new(), closure: None, is_state_machine: false, is_in_list: true }
    }

    pub(super) fn add_type(&mut self, step: Step<'a>) {
        self.is_state_machine = false;
        match generated(step.name) {
            Some(Generated::Closure(of)) => {
                self.keep_closure();
                self.closure = Some((step, of));
            }
            Some(Generated::StateMachine(method)) => {
                let outer = self.closure.take().map_or_else(String::new, |(closure, _)| closure.arguments);
                self.parts.push(format!("{}{outer}{}", self.chosen(&method), step.arguments));
                self.is_state_machine = true;
            }
            Some(Generated::Decorated(name)) => self.add(&name, &step.arguments),
            Some(Generated::Inner { .. }) | None => self.add(step.name, &step.arguments),
        }
    }

    /// True when the method is what a state machine goes on with.
    pub(super) fn add_method(&mut self, method: &str) -> bool {
        match generated(method) {
            Some(Generated::Inner { of, name }) => {
                let (outer, closure_of) =
                    self.closure.take().map_or((String::new(), None), |(step, of)| (step.arguments, of));
                if let Some(of) = of.or(closure_of) {
                    self.parts.push(format!("{of}{outer}"));
                }
                self.parts.push(name);
            }
            Some(Generated::Decorated(name)) => self.add(&name, ""),
            _ if self.is_state_machine && method == "MoveNext" => return true,
            _ => self.add(method, ""),
        }
        false
    }

    fn add(&mut self, name: &str, arguments: &str) {
        self.keep_closure();
        self.parts.push(format!("{}{arguments}", self.chosen(name)));
    }

    /// The closure is what is meant: nothing in it says more.
    fn keep_closure(&mut self) {
        if let Some((closure, _)) = self.closure.take() {
            self.parts.push(format!("{}{}", closure.name, closure.arguments));
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.keep_closure();
        self.parts.join(".")
    }

    /// A name that a programmer chose. In that of a method which implements an interface explicitly is the interface's,
    /// with types in a list: `System.IEquatable<System.Int32>.Equals`.
    fn chosen<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let listed = || {
            let (before, behind) = name.split_once('<').filter(|(before, _)| !before.is_empty())?;
            let mut reader = TypeReader::new(behind, &[]);
            let types = reader.list('>')?;
            Some(format!("{before}<{}>{}", types.join(","), reader.rest()))
        };
        let listed = if self.is_in_list { None } else { listed() };
        listed.map_or(Cow::Borrowed(name), Cow::Owned)
    }
}
