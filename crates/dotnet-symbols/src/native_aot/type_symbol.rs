//! Parses the symbols of types in symbols of NativeAOT.

/// Levels of types within types.
const MAX_DEPTH: u32 = 16;

/// The canonical type and that of shared code, which the compiler defines itself: with their underscores, they look like two
/// names.
const CANONICAL: [(&str, &str); 2] =
    [("System___UniversalCanon", "System.__UniversalCanon"), ("System___Canon", "System.__Canon")];

/// Types of the core library that have a symbol without their assembly and namespace, and their names.
const PRIMITIVES: [(&str, &str); 16] = [
    ("Bool", "Boolean"),
    ("UInt8", "Byte"),
    ("Int8", "SByte"),
    ("UInt16", "UInt16"),
    ("Int16", "Int16"),
    ("UInt32", "UInt32"),
    ("Int32", "Int32"),
    ("UInt64", "UInt64"),
    ("Int64", "Int64"),
    ("Char", "Char"),
    ("Double", "Double"),
    ("Single", "Single"),
    ("IntPtr", "IntPtr"),
    ("UIntPtr", "UIntPtr"),
    ("Object", "Object"),
    ("String", "String"),
];

const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// The type that declares a method.
pub(super) struct OwnerType {
    /// `None` if the symbol does not tell it from the namespace.
    pub(super) assembly: Option<String>,
    /// As the runtime writes it: ``System.Func`1[System.Int32]``.
    pub(super) name: String,
}

impl OwnerType {
    pub(super) fn parse(symbol: &str, program: &str) -> Option<Self> {
        let (path, list) = symbol.split_at(symbol.find('<').unwrap_or(symbol.len()));
        let arguments = if list.is_empty() {
            Vec::new()
        } else {
            let mut cursor = Cursor::new(list);
            let arguments = cursor.arguments()?;
            cursor.is_at_end().then_some(arguments)?
        };
        if let Some(name) = primitive(path) {
            return Some(Self { assembly: Some(CORE_LIBRARY.to_owned()), name });
        }
        let (assembly, path) = split_assembly(path, program);
        Some(Self { assembly, name: full_name(path, &arguments)? })
    }
}

/// Reads types from the front of a text.
pub(super) struct Cursor<'a> {
    rest: &'a str,
    depth_left: u32,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, depth_left: MAX_DEPTH }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a list of type arguments with its brackets.
    pub(super) fn arguments(&mut self) -> Option<Vec<String>> {
        self.depth_left = self.depth_left.checked_sub(1)?;
        self.take("<").then_some(())?;
        let mut types = vec![self.one()?];
        while separator(self.rest) == Some(0) && self.take("__") {
            types.push(self.one()?);
        }
        self.take(">").then_some(())?;
        self.depth_left += 1;
        Some(types)
    }

    fn one(&mut self) -> Option<String> {
        let mut name = self.element()?;
        while let Some((_, suffix)) =
            [("<Pointer>", '*'), ("<ByRef>", '&')].into_iter().find(|(written, _)| self.take(written))
        {
            name.push(suffix);
        }
        Some(name)
    }

    fn element(&mut self) -> Option<String> {
        if let Some((_, name)) = CANONICAL.into_iter().find(|(written, _)| self.take(written)) {
            return Some(name.to_owned());
        }
        if self.rest.starts_with("__Array<") {
            self.rest = &self.rest["__Array".len()..];
            return Some(format!("{}[]", self.arguments()?.pop()?));
        }
        if self.take("__MDArray<") {
            return self.array();
        }
        let end = self.name_length();
        let (path, after) = self.rest.split_at(end);
        self.rest = after;
        let is_list =
            after.starts_with('<') && !after.starts_with("<Pointer>") && !after.starts_with("<ByRef>");
        let arguments = if is_list { self.arguments()? } else { Vec::new() };
        // Types in lists are shown without their namespace, and so without their assembly.
        primitive(path).or_else(|| full_name(split_assembly(path, "").1, &arguments))
    }

    /// Reads the element and the rank of an array of several dimensions.
    fn array(&mut self) -> Option<String> {
        const MAX_RANK: usize = 32;
        self.depth_left = self.depth_left.checked_sub(1)?;
        let element = self.one()?;
        let (rank, after) = self.rest.strip_prefix(',')?.split_once('>')?;
        self.rest = after;
        self.depth_left += 1;
        let rank = rank.parse::<usize>().ok().filter(|rank| (1..=MAX_RANK).contains(rank))?;
        Some(format!("{element}[{}]", ",".repeat(rank - 1)))
    }

    /// The length of the name at the front: up to `__`, a bracket or a comma.
    fn name_length(&self) -> usize {
        let bracket = self.rest.find(['<', '>', ',']).unwrap_or(self.rest.len());
        separator(&self.rest[..bracket]).unwrap_or(bracket)
    }

    fn take(&mut self, text: &str) -> bool {
        let after = self.rest.strip_prefix(text);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }
}

fn primitive(path: &str) -> Option<String> {
    let (_, name) = PRIMITIVES.iter().find(|(written, _)| *written == path)?;
    Some(format!("System.{name}"))
}

/// Splits a path into the assembly and the rest. Assemblies of the framework are recognized because the namespaces of their
/// types begin with `System`, `Microsoft` or `Internal`.
fn split_assembly<'a>(path: &'a str, program: &str) -> (Option<String>, &'a str) {
    let sanitized: String =
        program.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let of_program = path.strip_prefix(&sanitized).and_then(|rest| rest.strip_prefix('_'));
    if let Some(rest) = of_program.filter(|rest| !sanitized.is_empty() && !rest.is_empty()) {
        return (Some(program.to_owned()), rest);
    }
    if let Some(rest) = path.strip_prefix("S_P_CoreLib_") {
        return (Some(CORE_LIBRARY.to_owned()), rest);
    }
    let is_of_framework = ["S_P_", "System_", "Microsoft_"].iter().any(|start| path.starts_with(start));
    let namespaces = ["_System_", "_Microsoft_", "_Internal_", "_Interop_"];
    let starts = namespaces.iter().filter_map(|start| path.find(start));
    match starts.min().filter(|_| is_of_framework) {
        Some(end) => {
            let assembly = match path[..end].strip_prefix("S_P_") {
                Some(rest) => format!("System.Private.{}", rest.replace('_', ".")),
                None => path[..end].replace('_', "."),
            };
            (Some(assembly), &path[end + 1..])
        }
        None => (None, path),
    }
}

/// The full name of the type with a path, as the runtime writes it.
fn full_name(path: &str, arguments: &[String]) -> Option<String> {
    if let Some((owner, method, number, arity)) = state_machine(path) {
        let owner = dotted(owner, arguments.len() - usize::from(arity).min(arguments.len()))?;
        let arity = if arity > 0 { format!("`{arity}") } else { String::new() };
        return with_arguments(format!("{owner}+<{method}>d__{number}{arity}"), arguments);
    }
    if let Some(at) = path.find("___c") {
        let (owner, closure) = (&path[..at], &path[at + "___".len()..]);
        let closure = closure.strip_prefix('c').filter(|rest| is_closure(rest))?;
        return with_arguments(format!("{}+<>c{closure}", dotted(owner, arguments.len())?), arguments);
    }
    with_arguments(dotted(path, arguments.len())?, arguments)
}

fn with_arguments(name: String, arguments: &[String]) -> Option<String> {
    if arguments.is_empty() {
        return Some(name);
    }
    Some(format!("{name}[{}]", arguments.join(",")))
}

/// Replaces underscores by dots, and those in front of numbers of type parameters by backticks. The numbers must be those of
/// `arguments` in total; otherwise they are parts of names.
fn dotted(path: &str, arguments: usize) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut underscores = 0;
    for part in path.split('_') {
        if part.is_empty() {
            underscores += 1;
            continue;
        }
        parts.push(format!("{}{part}", "_".repeat(underscores)));
        underscores = 0;
    }
    if parts.is_empty() || underscores > 0 {
        return None;
    }
    let counts = parts.iter().skip(1).filter(|part| is_number(part));
    let total: usize = counts.filter_map(|count| count.parse::<usize>().ok()).fold(0, usize::saturating_add);
    let has_counts = arguments > 0 && total == arguments;
    let mut name = String::new();
    let mut separator = "";
    for part in parts {
        if !name.is_empty() && is_number(&part) {
            name.push(if has_counts { '`' } else { '_' });
            name.push_str(&part);
            // Types within a generic type follow.
            separator = if has_counts { "+" } else { "." };
            continue;
        }
        name.push_str(separator);
        name.push_str(&part);
        separator = if separator == "+" { "+" } else { "." };
    }
    Some(name)
}

/// The owner, the method, the number and the number of type parameters of a state machine: `Owner__Method_d__7_1`.
pub(super) fn state_machine(path: &str) -> Option<(&str, &str, &str, u16)> {
    let (before, number) = path.rsplit_once("_d__")?;
    let (number, arity) = match number.split_once('_') {
        Some((number, arity)) => (number, arity.parse().ok()?),
        None => (number, 0),
    };
    let (owner, method) = before.rsplit_once("__")?;
    let is_named = !owner.is_empty() && !method.is_empty() && is_number(number);
    is_named.then_some((owner, method, number, arity))
}

/// The end of a closure whose method follows: `Type___c__Method`, `Type___c__DisplayClass5_0__Method`.
pub(super) fn closure_end(head: &str) -> Option<usize> {
    const CLOSURE: &str = "___c";
    let start = head.find(CLOSURE)? + CLOSURE.len();
    let rest = &head[start..];
    let name_bytes = match rest.strip_prefix("__DisplayClass") {
        Some(number) => rest.len() - number.len() + number.find("__")?,
        None => 0,
    };
    (is_closure(&rest[..name_bytes]) && rest[name_bytes..].starts_with("__")).then_some(start + name_bytes)
}

/// Whether a text is what follows `<>c` in the name of a closure.
fn is_closure(text: &str) -> bool {
    let Some(number) = text.strip_prefix("__DisplayClass") else { return text.is_empty() };
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// The first `__` that separates two names. No name begins with a digit, so that `__1` is a part of one.
pub(super) fn separator(text: &str) -> Option<usize> {
    let is_before_digit = |at: usize| text[at + 2..].starts_with(|c: char| c.is_ascii_digit());
    text.match_indices("__").map(|(at, _)| at).find(|at| !is_before_digit(*at))
}

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}
