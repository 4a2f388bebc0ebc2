//! Converts nested types and nested functions to their names in the source, each with its own type arguments.

use std::borrow::Cow;

use super::{
    generated_name::{self, GeneratedName},
    method_path::outside_of_brackets,
    type_name::TypeReader,
};

/// One type of a chain of nested types, with its own type arguments.
pub(super) struct NestedType<'a> {
    name: &'a str,
    arguments: String,
}

/// Splits a chain of nested types, outermost first.
///
/// All type arguments are in one list, and the name of each type has the number of its own. A name that is not
/// qualified omits the enclosing types, whose arguments come first.
pub(super) fn split_nested_types<'a>(
    chain: &'a str,
    arguments: &[String],
    is_qualified: bool,
) -> Option<Vec<NestedType<'a>>> {
    let mut counted: Vec<_> = split_at_plus(chain).into_iter().map(split_count).collect();
    let counts: usize = counted.iter().map(|(_, count)| count).sum();
    let omitted = match arguments.len().checked_sub(counts)? {
        // The name has no counts.
        all if is_qualified && counts == 0 => {
            counted.last_mut()?.1 = all;
            0
        }
        omitted if is_qualified && omitted > 0 => return None,
        omitted => omitted,
    };
    let mut left = arguments.get(omitted..)?;
    let mut types = Vec::with_capacity(counted.len());
    for (name, count) in counted {
        let (own, others) = left.split_at_checked(count)?;
        let arguments = if own.is_empty() { String::new() } else { format!("<{}>", own.join(",")) };
        types.push(NestedType { name, arguments });
        left = others;
    }
    Some(types)
}

fn split_at_plus(chain: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut begin = 0;
    for (plus, _) in outside_of_brackets(chain).filter(|(_, c)| *c == '+') {
        names.push(&chain[begin..plus]);
        begin = plus + 1;
    }
    names.push(&chain[begin..]);
    names
}

/// Splits ``Dictionary`2`` into the name and the number of its own type arguments.
fn split_count(name: &str) -> (&str, usize) {
    let counted = name.rsplit_once('`').and_then(|(name, count)| Some((name, count.parse::<u16>().ok()?)));
    counted.map_or((name, 0), |(name, count)| (name, count.into()))
}

/// Builds the source name of a method or type from the outside inwards.
pub(super) struct SourceNameBuilder<'a> {
    parts: Vec<String>,
    /// The last type, if it is a closure, with the name of its method.
    closure: Option<(NestedType<'a>, Option<String>)>,
    is_state_machine: bool,
    /// Whether the name is in a list of types. Lists within the name are not converted then: this bounds the recursion.
    is_in_list: bool,
}

impl<'a> SourceNameBuilder<'a> {
    pub(super) fn for_method(namespace: &str) -> Self {
        let parts = if namespace.is_empty() { Vec::new() } else { vec![namespace.to_owned()] };
        Self { parts, closure: None, is_state_machine: false, is_in_list: false }
    }

    pub(super) fn for_list() -> Self {
        Self { parts: Vec::new(), closure: None, is_state_machine: false, is_in_list: true }
    }

    pub(super) fn add_type(&mut self, nested: NestedType<'a>) {
        self.is_state_machine = false;
        match generated_name::decode(nested.name) {
            Some(GeneratedName::Closure(method)) => {
                self.push_closure();
                self.closure = Some((nested, method));
            }
            Some(GeneratedName::StateMachine(method)) => {
                let outer = self.closure.take().map_or_else(String::new, |(closure, _)| closure.arguments);
                self.parts.push(format!("{}{outer}{}", self.convert_interface(&method), nested.arguments));
                self.is_state_machine = true;
            }
            Some(GeneratedName::Decorated(name)) => self.push(&name, &nested.arguments),
            Some(GeneratedName::NestedFunction { .. }) | None => self.push(nested.name, &nested.arguments),
        }
    }

    /// Returns true when the method resumes a state machine.
    pub(super) fn add_method(&mut self, method: &str) -> bool {
        match generated_name::decode(method) {
            Some(GeneratedName::NestedFunction { outer, name }) => {
                let (arguments, closure_method) = self
                    .closure
                    .take()
                    .map_or((String::new(), None), |(closure, method)| (closure.arguments, method));
                if let Some(outer) = outer.or(closure_method) {
                    self.parts.push(format!("{outer}{arguments}"));
                }
                self.parts.push(name);
            }
            Some(GeneratedName::Decorated(name)) => self.push(&name, ""),
            _ if self.is_state_machine && method == "MoveNext" => return true,
            _ => self.push(method, ""),
        }
        false
    }

    fn push(&mut self, name: &str, arguments: &str) {
        self.push_closure();
        self.parts.push(format!("{}{arguments}", self.convert_interface(name)));
    }

    /// Appends a closure that no nested function follows.
    fn push_closure(&mut self) {
        if let Some((closure, _)) = self.closure.take() {
            self.parts.push(format!("{}{}", closure.name, closure.arguments));
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.push_closure();
        self.parts.join(".")
    }

    /// Converts the type arguments in the name of an explicit interface implementation:
    /// `System.IEquatable<System.Int32>.Equals`.
    fn convert_interface<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let convert = || {
            let (before, after) = name.split_once('<').filter(|(before, _)| !before.is_empty())?;
            let mut reader = TypeReader::new(after, &[]);
            let types = reader.list('>')?;
            Some(format!("{before}<{}>{}", types.join(","), reader.rest()))
        };
        let converted = if self.is_in_list { None } else { convert() };
        converted.map_or(Cow::Borrowed(name), Cow::Owned)
    }
}
