//! Names of methods that NativeAOT compiled, from their symbols.
//!
//! The compiler makes a symbol of the assembly, the type and the method (`NativeAotNameMangler` of ILCompiler, .NET 8 to 10):
//! `S_P_CoreLib_System_Collections_Generic_Dictionary_2<Int32__System___Canon>__FindValue`.
//!
//! * Each character that is neither a letter nor a digit is `_`: `System.IO.Stream`, `Main|0_1`, `<Main>b__0`.
//! * `System.Private.` in front of an assembly is `S_P_`. Primitive types have no assembly: `Int32`.
//! * `__` is between type and method, and between type arguments, which are in angle brackets. `Array<T>`, `<Pointer>`
//!   and `<ByRef>` are constructed types.
//! * Overloads have numbers. No symbol has the types of parameters.
//!
//! [`method_name`] restores what the symbol determines: where an underscore could be a dot, it takes the dot. A symbol that it
//! does not understand has no name, and stays as it is.

mod type_symbol;

use crate::managed::csharp_name;

use self::type_symbol::{Cursor, OwnerType};

/// The longest symbol that is read.
const MAX_SYMBOL_BYTES: usize = 4 << 10;

/// What a symbol without a known assembly has in place of it while it is converted.
const NO_ASSEMBLY: &str = "_!";

/// The name of the method with a symbol, as C#: `System.Private.CoreLib!System.IO.Stream.Close`. `program` is the name of the
/// file without a suffix, which is that of the program's assembly. `None` for a symbol of another shape.
///
/// ```
/// use profiler_dotnet_symbols::native_aot::method_name;
/// let name = method_name("S_P_CoreLib_System_IO_Stream__Close", "app");
/// assert_eq!(name.as_deref(), Some("System.Private.CoreLib!System.IO.Stream.Close"));
/// assert_eq!(method_name("main", "app"), None);
/// ```
#[must_use]
pub fn method_name(symbol: &str, program: &str) -> Option<String> {
    let is_of_symbol = |byte: u8| byte.is_ascii_alphanumeric() || b"_<>,".contains(&byte);
    if symbol.len() > MAX_SYMBOL_BYTES || !symbol.bytes().all(is_of_symbol) {
        return None;
    }
    let (kind, symbol) = split_kind(symbol);
    let (owner, method) = split_method(symbol)?;
    // The stub of a boxed value has the symbol of the method behind its own type.
    let (kind, method) = match method.strip_prefix("<unbox>") {
        Some(symbol) => ("unbox", split_method(symbol)?.1),
        None => (kind, method),
    };
    let OwnerType { assembly, name } = OwnerType::parse(owner, program)?;
    let method = restored_method(method)?;
    let assembly = assembly.map_or_else(|| NO_ASSEMBLY.to_owned(), |assembly| format!("{assembly}!"));
    // The converter requires an argument list. A name without one would be of another shape.
    let normalized = format!("{assembly}{name}.{method}()");
    let converted = csharp_name(&normalized);
    let converted = converted.strip_suffix("()").unwrap_or(&converted);
    let converted = converted.strip_prefix(NO_ASSEMBLY).unwrap_or(converted);
    Some(if kind.is_empty() { converted.to_owned() } else { format!("[{kind}] {converted}") })
}

/// Splits the kind of a stub from the symbol of its method: `<unbox>Type__Method`.
fn split_kind(symbol: &str) -> (&str, &str) {
    let prefixed = symbol.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    prefixed.filter(|(kind, _)| !kind.contains('<')).unwrap_or(("", symbol))
}

/// Splits a symbol into type and method.
fn split_method(symbol: &str) -> Option<(&str, &str)> {
    let open = symbol.find('<').unwrap_or(symbol.len());
    // A list that `__` follows is that of the type.
    if let Some(close) = matching_bracket(symbol, open)
        && let Some(method) = symbol[close + 1..].strip_prefix("__")
    {
        return Some((&symbol[..=close], method));
    }
    let head = symbol.get(..open).filter(|head| !head.contains(['>', ',']))?;
    let at = type_symbol::closure_end(head)
        .or_else(|| state_machine_end(head))
        .or_else(|| type_symbol::separator(head).filter(|at| *at > 0))?;
    Some((&symbol[..at], symbol[at..].strip_prefix("__")?))
}

/// The position of the bracket that closes the one at `open`.
fn matching_bracket(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut brackets = text.get(open..)?.match_indices(['<', '>']);
    brackets.find_map(|(at, bracket)| {
        depth = if bracket == "<" { depth + 1 } else { depth.checked_sub(1)? };
        (depth == 0).then_some(open + at)
    })
}

/// The end of a state machine whose method follows: `Type__PlaceAsync_d__7__MoveNext`.
fn state_machine_end(head: &str) -> Option<usize> {
    let end = head.rfind("__")?;
    type_symbol::state_machine(&head[..end]).map(|_| end)
}

/// The method as metadata has it: `.ctor`, `<Main>b__0_1`, `<Main>g__Parse|0_2`, `Add`. Its type arguments are omitted, as in
/// names from all other sources.
fn restored_method(symbol: &str) -> Option<String> {
    let (name, arguments) = symbol.split_at(symbol.find('<').unwrap_or(symbol.len()));
    if !arguments.is_empty() {
        let mut cursor = Cursor::new(arguments);
        cursor.arguments()?;
        cursor.is_at_end().then_some(())?;
    }
    if name.is_empty() || name.contains(['>', ',']) {
        return None;
    }
    let (name, overload) = match name.rsplit_once('_') {
        Some((constructor @ ("_ctor" | "_cctor"), number)) if type_symbol::is_number(number) => {
            (constructor, format!("_{number}"))
        }
        _ => (name, String::new()),
    };
    Some(match name {
        "_ctor" => format!(".ctor{overload}"),
        "_cctor" => format!(".cctor{overload}"),
        _ => entry_point(name)
            .or_else(|| nested_function(name))
            .or_else(|| implementation(name))
            .unwrap_or_else(|| name.to_owned()),
    })
}

/// `System.IDisposable.Dispose` for `System_IDisposable_Dispose`: an explicit implementation of an interface of .NET.
fn implementation(name: &str) -> Option<String> {
    let (path, mut member) =
        name.strip_prefix("System_").filter(|_| !name.contains("__"))?.rsplit_once('_')?;
    let accessor = path.rsplit_once('_').filter(|(_, word)| ["get", "set", "add", "remove"].contains(word));
    let path = accessor.map_or(path, |(path, word)| {
        member = &name[name.len() - member.len() - word.len() - 1..];
        path
    });
    Some(format!("System.{}.{member}", path.replace('_', ".")))
}

/// `<Main>$` for `_Main__`: the method of statements outside of types.
fn entry_point(name: &str) -> Option<String> {
    let owner = name.strip_prefix('_')?.strip_suffix("__")?;
    (!owner.is_empty() && !owner.contains('_')).then(|| format!("<{owner}>$"))
}

/// `<Main>b__0_1` for `_Main_b__0_1`, and `<Main>g__Parse|0_2` for `_Main_g__Parse_0_2`.
fn nested_function(name: &str) -> Option<String> {
    let inner = name.strip_prefix('_')?;
    if let Some((outer, number)) = inner.rsplit_once("_b__") {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        return (is_number && !outer.is_empty()).then(|| format!("<{}>b__{number}", outer.trim_matches('_')));
    }
    let (outer, local) = inner.split_once("_g__")?;
    let (rest, last) = local.rsplit_once('_')?;
    let (local, first) = rest.rsplit_once('_')?;
    let is_numbered = type_symbol::is_number(first) && type_symbol::is_number(last);
    (is_numbered && !outer.is_empty())
        .then(|| format!("<{}>g__{local}|{first}_{last}", outer.trim_matches('_')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(symbol: &str) -> Option<String> {
        method_name(symbol, "my-shop")
    }

    #[test]
    fn symbols_are_spelled_as_other_dotnet_code() {
        for (symbol, expected) in [
            ("S_P_CoreLib_System_IO_Stream__Close", "System.Private.CoreLib!System.IO.Stream.Close"),
            (
                "S_P_CoreLib_System_Threading_Thread___ctor",
                "System.Private.CoreLib!System.Threading.Thread..ctor",
            ),
            (
                "S_P_CoreLib_System_Threading_Thread___ctor_1",
                "System.Private.CoreLib!System.Threading.Thread..ctor_1",
            ),
            ("S_P_CoreLib_System_Environment___cctor", "System.Private.CoreLib!System.Environment..cctor"),
            ("String__Concat_2", "System.Private.CoreLib!System.String.Concat_2"),
            ("Int32__ToString", "System.Private.CoreLib!System.Int32.ToString"),
            (
                "S_P_CoreLib_System_Collections_Generic_Dictionary_2<Int32__System___Canon>__FindValue",
                "System.Private.CoreLib!System.Collections.Generic.Dictionary<int,__Canon>.FindValue",
            ),
            (
                "S_P_CoreLib_System_Collections_Generic_Dictionary_2_Enumerator<System___Canon__UInt8>__MoveNext",
                "System.Private.CoreLib!System.Collections.Generic.Dictionary<__Canon,byte>.Enumerator.MoveNext",
            ),
            (
                "System_Linq_System_Linq_Enumerable__ToArray<System___Canon>",
                "System.Linq!System.Linq.Enumerable.ToArray",
            ),
            (
                "System_Collections_System_Collections_Generic_HashSet_1<S_P_CoreLib_System_DateTime>__Add",
                "System.Collections!System.Collections.Generic.HashSet<DateTime>.Add",
            ),
            (
                "S_P_CoreLib_System_Span_1<__Array<Char>>__Slice_0",
                "System.Private.CoreLib!System.Span<char[]>.Slice_0",
            ),
            (
                "S_P_CoreLib_System_Func_2<__MDArray<Int32,2>__UInt8<Pointer>>__Invoke",
                "System.Private.CoreLib!System.Func<int[,],byte*>.Invoke",
            ),
            (
                "S_P_CoreLib_System_Nullable_1<S_P_CoreLib_System_Collections_Generic_KeyValuePair_2<Int32__Bool>>__get_Value",
                "System.Private.CoreLib!System.Nullable<KeyValuePair<int,bool>>.get_Value",
            ),
            ("my_shop_Shop_OrderService__Place", "my-shop!Shop.OrderService.Place"),
            ("my_shop_Program___Main__", "my-shop!Program.Main"),
            ("my_shop_Program___c___Main_b__0_1", "my-shop!Program.Main.AnonymousMethod__0_1"),
            ("my_shop_Program___c__DisplayClass5_0___Run_b__1", "my-shop!Program.Run.AnonymousMethod__1"),
            ("my_shop_Program___Main_g__Parse_0_2", "my-shop!Program.Main.Parse"),
            ("my_shop_Shop_OrderService__PlaceAsync_d__7__MoveNext", "my-shop!Shop.OrderService.PlaceAsync"),
            (
                "my_shop_Shop_OrderService__RunAsync_d__2_1<System___Canon>__MoveNext",
                "my-shop!Shop.OrderService.RunAsync<__Canon>",
            ),
            (
                "S_P_CoreLib_System_Collections_Generic_List_1_Enumerator<Int16>__System_Collections_IEnumerator_get_Current",
                "System.Private.CoreLib!System.Collections.Generic.List<short>.Enumerator.\
                 System.Collections.IEnumerator.get_Current",
            ),
            (
                "S_P_CoreLib_System_IO_Stream__System_IDisposable_Dispose",
                "System.Private.CoreLib!System.IO.Stream.System.IDisposable.Dispose",
            ),
            (
                "<Boxed>S_P_CoreLib_System_Collections_Generic_Queue_1_Enumerator<System___Canon>__\
                 <unbox>S_P_CoreLib_System_Collections_Generic_Queue_1_Enumerator__MoveNext",
                "[unbox] System.Private.CoreLib!System.Collections.Generic.Queue<__Canon>.Enumerator.MoveNext",
            ),
            ("my_shop_spr__4323__spr_", "my-shop!spr._4323.spr_"),
            (
                "S_P_CoreLib_System_Func_2<Int32__my_shop_spr__4323>__Invoke",
                "System.Private.CoreLib!System.Func<int,_4323>.Invoke",
            ),
            ("Other_Library_Type__Method", "Other.Library.Type.Method"),
            (
                "<unbox>S_P_CoreLib_System_DateTime__CompareTo",
                "[unbox] System.Private.CoreLib!System.DateTime.CompareTo",
            ),
        ] {
            assert_eq!(name(symbol).as_deref(), Some(expected), "{symbol}");
        }
    }

    #[test]
    fn symbols_of_another_shape_have_no_name() {
        for symbol in [
            "",
            "main",
            "RhpNewFast",
            "__managed__Main",
            "A<B>",
            "A__",
            "A<B__C",
            "A>__B",
            "A<B>>__C",
            "_ZN3fooEv",
            "a b__c",
            "A_1<>__B",
            "A_1<,>__B",
            "A__B<",
            "<>__A",
            "<unbox>",
        ] {
            assert_eq!(name(symbol), None, "{symbol}");
        }
        let nested = |count| format!("A_1{}Int32{}__M", "<B_1".repeat(count), ">".repeat(count));
        assert!(name(&nested(8)).is_some());
        assert_eq!(name(&nested(500)), None);
        assert_eq!(name(&"A".repeat(MAX_SYMBOL_BYTES + 1)), None);
    }

    #[test]
    fn different_symbols_have_different_names() {
        let names = ["String__Concat", "String__Concat_0", "String__Concat_1"].map(name);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn random_symbols_do_not_panic() {
        const PARTS: [&str; 20] = [
            "S_P_",
            "CoreLib",
            "System",
            "_",
            "__",
            "<",
            ">",
            "_1",
            "_2",
            "Int32",
            "___Canon",
            "__Array<",
            "Pointer",
            ",",
            "___c",
            "_d__1",
            "_b__0",
            "_g__A_0_1",
            "MoveNext",
            "A",
        ];
        let mut random = fastrand::Rng::with_seed(9);
        let mut named = 0;
        for _ in 0..100_000 {
            let symbol: String =
                (0..random.usize(..12)).map(|_| PARTS[random.usize(..PARTS.len())]).collect();
            named += usize::from(method_name(&symbol, "A").is_some());
        }
        assert!(named > 1_000, "{named}");
    }
}
