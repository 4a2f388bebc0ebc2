//! Names of managed methods as C# writes them, from the runtime's spelling of them.
//!
//! | the runtime's | here |
//! |---|---|
//! | ``Dictionary`2[System.__Canon,System.Int32].FindValue(!0)`` | `Dictionary<__Canon,int>.FindValue(__Canon)` |
//! | `A.Concat(class System.String,unsigned int8[]&)` | `A.Concat(string,ref byte[])` |
//! | `Outer+Inner.Run(value class My.Point)` | `Outer.Inner.Run(Point)` |
//! | `Orders+<PlaceAsync>d__7.MoveNext()` | `Orders.PlaceAsync` |
//! | `Program+<>c.<Main>b__0_1(int32)` | `Program.Main.AnonymousMethod__0_1(int)` |
//! | `Program.<Main>g__Parse\|0_2(int32)` | `Program.Main.Parse(int)` |
//! | `dynamicClass.IL_STUB_PInvoke(int32)` | `[IL stub P/Invoke]` |
//! | `stub GenerateLookupStub` | `[stub GenerateLookupStub]` |
//!
//! * The type that a method is of keeps its namespace. Types in lists have none, as in a source file with its `using`.
//! * Lambdas and local functions are called as Visual Studio's call stacks call them.
//! * What the compiler made of an asynchronous method or an iterator is that method. The list of arguments is missing
//!   there: the runtime does not know the method's own.
//! * A parameter of the generic type is what it stands for. What one of a generic method stands for no source tells:
//!   they are `T0`, `T1` and so on.
//!
//! A name of another shape stays as it is.

mod generated;
mod nesting;
mod path;
mod type_name;

use std::borrow::Cow;

use self::{path::Method, type_name::TypeReader};
use super::{arguments_start, ends_a_name};

/// The longest name that is spelled anew, and the longest that is made. The longest of the runtime's libraries has some
/// hundred bytes.
const MAX_NAME_BYTES: usize = 8 << 10;

/// The assembly of methods that belong to no other. To say so says nothing.
const NOBODY: &str = "Anonymously Hosted DynamicMethods Assembly";

/// The name as C# writes it.
pub fn readable(name: &str) -> Cow<'_, str> {
    if name.len() > MAX_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    match stub(name).or_else(|| method(name)) {
        Some(readable) if readable.len() <= MAX_NAME_BYTES => Cow::Owned(readable),
        _ => Cow::Borrowed(name),
    }
}

fn stub(name: &str) -> Option<String> {
    let kind = name.strip_prefix("stub ")?;
    (!kind.is_empty() && !kind.contains([' ', '['])).then(|| format!("[stub {kind}]"))
}

fn method(name: &str) -> Option<String> {
    let (module, rest) = name.split_once('!').filter(|(module, _)| ends_a_name(module))?;
    if !rest.ends_with(')') {
        return None;
    }
    let (path, arguments) = rest.split_at(arguments_start(rest)?);
    match path.strip_prefix("dynamicClass.") {
        Some(method) => made_at_run_time(module, method, arguments),
        None => compiled(module, path, arguments),
    }
}

fn compiled(module: &str, path: &str, arguments: &str) -> Option<String> {
    let method = Method::read(path)?;
    let mut readable = format!("{module}!{}", method.name);
    if !method.is_resumption {
        readable.push_str(&list(arguments, &method.type_arguments)?);
    }
    Some(readable)
}

/// What a program makes of instructions, and the runtime's own glue between managed and native code. The glue is shared:
/// which module it is said to be of is chance, and of its arguments the runtime's events have addresses only.
fn made_at_run_time(module: &str, method: &str, arguments: &str) -> Option<String> {
    if let Some(kind) = method.strip_prefix("IL_STUB_") {
        let kind = match kind {
            "PInvoke" => "P/Invoke",
            "ReversePInvoke" => "reverse P/Invoke",
            other => other,
        };
        return Some(format!("[IL stub {kind}]"));
    }
    let arguments = list(arguments, &[])?;
    Some(match module {
        NOBODY => format!("[dynamic method] {method}{arguments}"),
        _ => format!("{module}![dynamic method] {method}{arguments}"),
    })
}

/// A list of arguments with its parentheses. `type_arguments` are what the parameters of the generic type stand for.
fn list(arguments: &str, type_arguments: &[String]) -> Option<String> {
    let mut reader = TypeReader::new(arguments.strip_prefix('(')?, type_arguments);
    let types = reader.list(')')?;
    reader.is_at_end().then(|| format!("({})", types.join(",")))
}

#[cfg(test)]
mod tests;
