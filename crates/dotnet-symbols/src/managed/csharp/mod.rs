//! Converts normalized names of managed methods to C# spelling.
//!
//! | normalized | C# spelling |
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
//! * The declaring type keeps its namespace. Types in lists lose theirs, as in a source file with `using` directives.
//! * Lambdas and local functions have the names that Visual Studio shows in call stacks.
//! * The state machine of an asynchronous method or an iterator has the name of that method, without an argument list:
//!   the signature of `MoveNext` is not that of the method.
//! * A parameter of a generic type is replaced by its type argument. No source has the type arguments of generic
//!   methods: their parameters are `T0`, `T1` and so on.
//!
//! A name of another shape stays unchanged, and so does an argument whose type is not understood.

mod function_pointer;
mod generated_name;
mod method_path;
mod nesting;
mod type_name;

use std::borrow::Cow;

pub(super) use self::method_path::name_length;
use self::{method_path::MethodPath, type_name::TypeReader};
use super::{arguments_start, ends_with_name};

/// Length of the longest name that is converted, and of the longest result. The longest name of the runtime's libraries
/// has several hundred bytes.
const MAX_NAME_BYTES: usize = 8 << 10;

/// The assembly of dynamic methods without an owner. It is omitted.
const DYNAMIC_ASSEMBLY: &str = "Anonymously Hosted DynamicMethods Assembly";

/// Converts a name that [`normalize_name`](super::normalize_name) returned to C# spelling.
pub fn csharp_name(name: &str) -> Cow<'_, str> {
    if name.len() > MAX_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    match convert_stub(name).or_else(|| convert_method(name)) {
        Some(converted) if converted.len() <= MAX_NAME_BYTES => Cow::Owned(converted),
        _ => Cow::Borrowed(name),
    }
}

fn convert_stub(name: &str) -> Option<String> {
    let kind = name.strip_prefix("stub ")?;
    (!kind.is_empty() && !kind.contains([' ', '['])).then(|| format!("[stub {kind}]"))
}

fn convert_method(name: &str) -> Option<String> {
    let (module, rest) = name.split_once('!').filter(|(module, _)| ends_with_name(module))?;
    if !rest.ends_with(')') {
        return None;
    }
    let (path, arguments) = rest.split_at(arguments_start(rest)?);
    match path.strip_prefix("dynamicClass.") {
        Some(method) => convert_dynamic_method(module, method, arguments),
        None => convert_compiled_method(module, path, arguments),
    }
}

fn convert_compiled_method(module: &str, path: &str, arguments: &str) -> Option<String> {
    let method = MethodPath::parse(path)?;
    let mut converted = format!("{module}!{}", method.name);
    if !method.is_resumption {
        converted.push_str(&convert_argument_list(arguments, &method.type_arguments)?);
    }
    Some(converted)
}

/// Converts the name of a method that a program emits at run time, or of an IL stub between managed and native code.
///
/// IL stubs are shared between modules, and events have addresses in place of their argument types. Both are omitted.
fn convert_dynamic_method(module: &str, method: &str, arguments: &str) -> Option<String> {
    if let Some(kind) = method.strip_prefix("IL_STUB_") {
        let kind = match kind {
            "PInvoke" => "P/Invoke",
            "ReversePInvoke" => "reverse P/Invoke",
            other => other,
        };
        return Some(format!("[IL stub {kind}]"));
    }
    let arguments = convert_argument_list(arguments, &[])?;
    Some(match module {
        DYNAMIC_ASSEMBLY => format!("[dynamic method] {method}{arguments}"),
        _ => format!("{module}![dynamic method] {method}{arguments}"),
    })
}

/// Converts an argument list with its parentheses. `type_arguments` are those of the declaring type.
fn convert_argument_list(arguments: &str, type_arguments: &[String]) -> Option<String> {
    let mut reader = TypeReader::new(arguments.strip_prefix('(')?, type_arguments);
    let types = reader.list(')')?;
    reader.is_at_end().then(|| format!("({})", types.join(",")))
}

#[cfg(test)]
mod tests;
