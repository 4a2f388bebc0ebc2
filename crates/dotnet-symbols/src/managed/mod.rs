//! Normalizes the names of managed (.NET) methods, and formats them as C#.
//!
//! Perf maps and jitdumps have `int32 [app] Ns.Type::Method(int32)[QuickJitted]`. Its normalized form is
//! `app!Ns.Type.Method(int32)`, as PerfView and dotnet-trace print it:
//! * The return type is removed, the assembly comes first, `::` becomes `.`.
//! * The tier is removed, so that all tiers of a method have one name.
//! * Addresses of method tables in comments are removed: they differ from run to run.
//! * Nested types (`Outer+Inner`) and generic arguments stay as the runtime writes them.
//! * Argument types are spelled as in the runtime's events: `class System.String`, not `string`.
//!
//! Runtime stubs are numbered (`stub<7> GenerateLookupStub<GenerateLookupStub>`). The normalized form has no number and
//! no repeated owner (`stub GenerateLookupStub`), so that each kind of stub has one name. Names of other runtimes and
//! normalized names stay unchanged.

mod argument_list;
mod argument_order;
mod csharp;
mod style;

use std::{borrow::Cow, fmt};

use self::argument_list::append_without_bounds;
pub use self::{csharp::csharp_name, style::NameStyle};

/// The normalized name of a method, and the tier of its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedName<'a> {
    /// `assembly!Namespace.Type.Method(arguments)`, or a name of another shape.
    pub name: Cow<'a, str>,
    /// How the code was compiled. `None` when the source does not tell.
    pub tier: Option<Tier>,
}

/// How a method was compiled.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Tier {
    /// The runtime does not tell.
    Unknown,
    /// Ahead of time (ReadyToRun).
    Precompiled,
    /// Without optimization, on request.
    MinOptJitted,
    /// Fully optimized, without tiered compilation.
    Optimized,
    /// Tier 0.
    QuickJitted,
    /// Tier 1.
    OptimizedTier1,
    /// Tier 1, entered in the middle of a loop (on-stack replacement).
    OptimizedTier1Osr,
    /// Tier 0 with instrumentation.
    Instrumented,
    /// Optimized with instrumentation.
    InstrumentedOptimized,
}

impl Tier {
    /// Decodes the `MethodFlags` of a `MethodLoadVerbose` event (vm/eventtrace.h).
    pub fn from_event_flags(flags: u32) -> Self {
        const DYNAMIC: u32 = 0x1;
        const JITTED: u32 = 0x8;
        const TIER_SHIFT: u32 = 7;
        const TIER_MASK: u32 = 0x7;
        if flags & (DYNAMIC | JITTED) == 0 {
            return Self::Precompiled;
        }
        match flags >> TIER_SHIFT & TIER_MASK {
            1 => Self::MinOptJitted,
            2 => Self::Optimized,
            3 => Self::QuickJitted,
            4 => Self::OptimizedTier1,
            5 => Self::OptimizedTier1Osr,
            6 => Self::Instrumented,
            7 => Self::InstrumentedOptimized,
            _ => Self::Unknown,
        }
    }
}

/// Writes the tier as in perf maps, without the brackets.
impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = TIER_SUFFIXES.iter().find(|(_, tier)| tier == self).map_or("", |(suffix, _)| suffix);
        f.write_str(suffix.trim_matches(['[', ']']))
    }
}

/// The suffixes of names in perf maps, as `PrepareCodeConfig::GetJitOptimizationTierStr` (vm/prestub.cpp) and `PerfMap`
/// (vm/perfmap.cpp) of the .NET runtime write them.
const TIER_SUFFIXES: [(&str, Tier); 11] = [
    ("[Unknown]", Tier::Unknown),
    ("[PreJIT]", Tier::Precompiled),
    ("[PreJit-cold]", Tier::Precompiled),
    ("[ReadyToRun]", Tier::Precompiled),
    ("[MinOptJitted]", Tier::MinOptJitted),
    ("[Optimized]", Tier::Optimized),
    ("[QuickJitted]", Tier::QuickJitted),
    ("[OptimizedTier1]", Tier::OptimizedTier1),
    ("[OptimizedTier1OSR]", Tier::OptimizedTier1Osr),
    ("[InstrumentedTier]", Tier::Instrumented),
    ("[InstrumentedTierOptimized]", Tier::InstrumentedOptimized),
];

/// Normalizes a name from a perf map or a jitdump.
pub fn normalize_name(raw: &str) -> ManagedName<'_> {
    if let Some(name) = normalize_stub(raw) {
        return ManagedName { name, tier: None };
    }
    let (untiered, tier) = split_tier(raw);
    match normalize_method(untiered) {
        Some(name) => ManagedName { name: Cow::Owned(name), tier },
        None => ManagedName { name: Cow::Borrowed(raw), tier: None },
    }
}

/// Returns the normalized name of a method, without its module, from the fields of a `MethodLoadVerbose` event: type,
/// method, and signature with return type.
///
/// The signatures of IL stubs have addresses in place of types. Each address becomes `?`, because addresses differ from
/// run to run.
pub fn name_from_event(class: &str, method: &str, signature: &str) -> String {
    const TYPE_ADDRESS: &str = "pMT: ";
    let arguments = arguments_start(signature).map_or("", |start| &signature[start..]);
    let mut name = if class.is_empty() { method.to_owned() } else { format!("{class}.{method}") };
    let mut parts = arguments.split(TYPE_ADDRESS);
    append_without_bounds(&mut name, parts.next().unwrap_or_default());
    for part in parts {
        name.push('?');
        append_without_bounds(&mut name, after_address(part));
    }
    name
}

/// The text after the address that a C library wrote for `%p`: digits with or without `0x`, or `(nil)`.
fn after_address(text: &str) -> &str {
    if let Some(after) = text.strip_prefix("(nil)") {
        return after;
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    digits.trim_start_matches(|digit: char| digit.is_ascii_hexdigit())
}

/// Removes the number from `stub<7> Kind<Owner>` or `stub7 Kind<Owner>`.
fn normalize_stub(raw: &str) -> Option<Cow<'_, str>> {
    let (number, label) = raw.strip_prefix("stub")?.split_once(' ')?;
    let digits = number.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(number);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || label.contains([' ', '[']) {
        return None;
    }
    let label = match label.strip_suffix('>').and_then(|label| label.split_once('<')) {
        Some((kind, owner)) if kind == owner => kind,
        _ => label,
    };
    Some(Cow::Owned(format!("stub {label}")))
}

fn split_tier(mut name: &str) -> (&str, Option<Tier>) {
    let mut tier = None;
    while let Some((rest, found)) =
        TIER_SUFFIXES.iter().find_map(|&(suffix, found)| name.strip_suffix(suffix).map(|rest| (rest, found)))
    {
        name = rest;
        tier = tier.or(Some(found));
    }
    (name, tier)
}

/// Returns `assembly!Type.Method(arguments)` if the name has the shape of a managed method.
fn normalize_method(name: &str) -> Option<String> {
    let (assembly, rest) = split_assembly(name)?;
    let (class, signature) = rest.split_once("::")?;
    if class.is_empty() || !signature.ends_with(')') {
        return None;
    }
    let mut signature = signature.to_owned();
    remove_method_tables(&mut signature);
    let (name, arguments) = signature.split_at(arguments_start(&signature)?);
    let mut method = format!("{assembly}!{class}.{name}");
    argument_list::append_normalized(&mut method, arguments);
    Some(method)
}

/// The position of the parenthesis that the last character closes.
fn arguments_start(signature: &str) -> Option<usize> {
    let mut open = 0_usize;
    signature.rmatch_indices(['(', ')']).find_map(|(at, parenthesis)| {
        open = if parenthesis == ")" { open + 1 } else { open.checked_sub(1)? };
        (open == 0).then_some(at)
    })
}

/// Splits a name after the assembly in brackets that follows the return type. Returns the assembly and the rest.
///
/// A space precedes and follows these brackets. The brackets of arrays follow their type without a space, and the
/// assemblies of other types precede their type without a space.
fn split_assembly(name: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        let open = from + name.get(from..)?.find('[')?;
        let (before, inside) = (&name[..open], &name[open + 1..]);
        let close = inside.find(['[', ']'])?;
        let has_space_before = before.is_empty() || before.ends_with(' ');
        if has_space_before && let Some(rest) = inside[close..].strip_prefix("] ") {
            let assembly = &inside[..close];
            return (is_assembly(assembly) && !has_assembly_prefix(before)).then_some((assembly, rest));
        }
        from = open + 1;
    }
}

fn is_assembly(name: &str) -> bool {
    !name.contains('!') && ends_with_name(name)
}

fn ends_with_name(text: &str) -> bool {
    text.ends_with(|last: char| last.is_alphanumeric() || matches!(last, '_' | '.' | '-'))
}

/// Whether the text has an `assembly!`. The exclamation marks of generic parameters (`!0`, `!!1`) never follow a name.
fn has_assembly_prefix(text: &str) -> bool {
    text.match_indices('!').any(|(at, _)| ends_with_name(&text[..at]))
}

/// Removes ` /* MT: 0x00007F7E6BEB1E08 */`.
fn remove_method_tables(name: &mut String) {
    const OPEN: &str = " /* MT: 0x";
    const CLOSE: &str = " */";
    if !name.contains(OPEN) {
        return;
    }
    let mut kept = String::with_capacity(name.len());
    let mut rest = name.as_str();
    while let Some((before, comment)) = rest.split_once(OPEN) {
        kept.push_str(before);
        let digits = comment.bytes().take_while(u8::is_ascii_hexdigit).count();
        rest = match comment[digits..].strip_prefix(CLOSE) {
            Some(after) => after,
            None => {
                kept.push_str(OPEN);
                comment
            }
        };
    }
    kept.push_str(rest);
    *name = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(raw: &str) -> String {
        normalize_name(raw).name.into_owned()
    }

    #[test]
    fn methods_read_as_module_type_method_and_arguments() {
        for (raw, expected) in [
            (
                "int32 [app] ProfTest.Workloads.Cpu::Fib(int32)[QuickJitted]",
                "app!ProfTest.Workloads.Cpu.Fib(int32)",
            ),
            ("int32 [app] ProfTest.Workloads.Cpu::Fib(int32)", "app!ProfTest.Workloads.Cpu.Fib(int32)"),
            ("[app] A.B::C()[PreJIT]", "app!A.B.C()"),
            ("instance void [app] A.Outer+Inner::.ctor()[OptimizedTier1OSR]", "app!A.Outer+Inner..ctor()"),
            (
                "class [System.Private.CoreLib]System.Threading.Thread [app] A.Program::Start(string,\
                 class [System.Private.CoreLib]System.Threading.ThreadStart)[QuickJitted]",
                "app!A.Program.Start(class System.String,class System.Threading.ThreadStart)",
            ),
            (
                "instance string[] [System.Private.CoreLib] System.String::Split(int32[])[OptimizedTier1]",
                "System.Private.CoreLib!System.String.Split(int32[])",
            ),
            (
                "!!0 [System.Private.CoreLib] System.Threading.Interlocked::Exchange(!!0&,!!0)[OptimizedTier1]",
                "System.Private.CoreLib!System.Threading.Interlocked.Exchange(!!0&,!!0)",
            ),
            (
                "instance class System.Func`1<!0> [System.Linq] A`2[System.__Canon,System.Int32]::Get()[Optimized]",
                "System.Linq!A`2[System.__Canon,System.Int32].Get()",
            ),
            (
                "instance void [System.Private.CoreLib] System.Timer::System.IWorkItem.Execute()[Optimized]",
                "System.Private.CoreLib!System.Timer.System.IWorkItem.Execute()",
            ),
            (
                "int32 [Anonymously Hosted DynamicMethods Assembly] dynamicClass::dyn;method, number 5(int32)[Optimized]",
                "Anonymously Hosted DynamicMethods Assembly!dynamicClass.dyn;method, number 5(int32)",
            ),
        ] {
            assert_eq!(name(raw), expected);
        }
    }

    #[test]
    fn addresses_in_comments_are_removed() {
        let raw = "Interop/Error /* MT: 0x00007F7E6C51A8A0 */ [System.Console] dynamicClass::IL_STUB_PInvoke(\
                   System.Net.Sockets.ProtocolType /* MT: 0x7fb1b1285438 */*&,native int*)[Optimized]";
        let expected = "System.Console!dynamicClass.IL_STUB_PInvoke(System.Net.Sockets.ProtocolType*&,int*)";
        assert_eq!(name(raw), expected);
        assert_eq!(name("void [a] B::C( /* MT: 0xzz */ int32)"), "a!B.C( /* MT: 0xzz */ int32)");
    }

    /// What .NET 9 prints for one method in its perf map and in its events.
    #[test]
    fn a_method_has_one_name_in_perf_maps_and_in_events() {
        const IN: &str = "System.Runtime.InteropServices.InAttribute";
        const CORE: &str = "[System.Private.CoreLib]";
        for (perf_map, event) in [
            (
                "(valuetype Pt& modreq(@IN),int32& modreq(@IN))",
                "(required_modifier IN value class Pt&,required_modifier IN int32&)",
            ),
            (
                "(int32&,valuetype @System.Span`1<int32>& modreq(@IN))",
                "(int32&,required_modifier IN value class System.Span`1<int32>&)",
            ),
            ("(int32*,void**,method void *(!0,!1),int32)", "(int32*,void**,fnptr void(!0,!1),int32)"),
            (
                "(method unmanaged cdecl void *(int32),string)",
                "(fnptr unmanaged cdecl void(int32),class System.String)",
            ),
            (
                "(method unmanaged void *(int32,uint8*)*,method string *(method int32 *()))",
                "(fnptr void(int32,unsigned int8*)*,fnptr class System.String(fnptr int32()))",
            ),
            (
                "(method int32& modreq(@IN) *(int32&,string& modreq(@A.OutAttribute)),int64)",
                "(fnptr required_modifier IN int32&(int32&,required_modifier A.OutAttribute class System.String&),int64)",
            ),
            (
                "(int32,typedref,int32[0...,0...],int32[0...,0...][],native int,native uint,object,char)",
                "(int32,refany,int32[,],int32[,][],int,unsigned int,class System.Object,wchar)",
            ),
        ] {
            let perf_map = perf_map.replace("IN", IN).replace('@', CORE);
            let event = event.replace("IN", IN);
            let from_event =
                format!("app!{}", name_from_event("A.B", "C", &format!("instance void  {event}")));
            assert_eq!(name(&format!("instance void [app] A.B::C{perf_map}[QuickJitted]")), from_event);
        }
    }

    #[test]
    fn addresses_of_the_process_and_bounds_are_not_in_names_of_events() {
        for (signature, expected) in [
            ("class System.Object  (pMT: 0x7faf0da082f8,int32)", "MyTree(?,int32)"),
            ("pMT: 00007faf0da082f8  (pMT: 00007faf0da082f8)", "MyTree(?)"),
            (
                "void  (pMT: 0X7FAF0DA082F8&,pMT: 0x7f72f8ea1ec0[],fnptr void(pMT: 0x1f*))",
                "MyTree(?&,?[],fnptr void(?*))",
            ),
            ("void  (class A`1<pMT: 0x7faf0da082f8>,pMT: (nil))", "MyTree(class A`1<?>,?)"),
            (
                "void  (int32[1...5,],int32[][0...3],class A`1<int32[]>)",
                "MyTree(int32[,],int32[][],class A`1<int32[]>)",
            ),
        ] {
            assert_eq!(name_from_event("", "MyTree", signature), expected);
        }
    }

    #[test]
    fn all_tiers_of_a_method_have_one_name() {
        for (suffix, tier) in TIER_SUFFIXES {
            let raw = format!("void [app] A::B(){suffix}");
            assert_eq!(
                normalize_name(&raw),
                ManagedName { name: Cow::Borrowed("app!A.B()"), tier: Some(tier) }
            );
        }
        assert_eq!(normalize_name("void [app] A::B()").tier, None);
    }

    #[test]
    fn tiers_of_events_are_spelled_as_in_perf_maps() {
        const DYNAMIC: u32 = 1;
        const JITTED: u32 = 8;
        let text_of_tier =
            |number: u32| Tier::from_event_flags(number << 7 | JITTED | 0x1000_0007).to_string();
        assert_eq!(
            (0..8).map(text_of_tier).collect::<Vec<_>>(),
            [
                "Unknown",
                "MinOptJitted",
                "Optimized",
                "QuickJitted",
                "OptimizedTier1",
                "OptimizedTier1OSR",
                "InstrumentedTier",
                "InstrumentedTierOptimized"
            ]
        );
        assert_eq!(Tier::from_event_flags(!(JITTED | DYNAMIC)).to_string(), "PreJIT");
    }

    #[test]
    fn all_stubs_of_a_kind_have_one_name() {
        for (raw, expected) in [
            ("stub<7> GenerateLookupStub<GenerateLookupStub>", "stub GenerateLookupStub"),
            ("stub<1735> GenerateLookupStub<GenerateLookupStub>", "stub GenerateLookupStub"),
            ("stub12 GenerateLookupStub<GenerateLookupStub>", "stub GenerateLookupStub"),
            ("stub GenerateLookupStub<GenerateLookupStub>", "stub GenerateLookupStub"),
            (
                "stub<3> AllocateTemporaryEntryPoints<PRECODE_FIXUP>",
                "stub AllocateTemporaryEntryPoints<PRECODE_FIXUP>",
            ),
            ("stub<x> A<A>", "stub<x> A<A>"),
            ("stubborn function", "stubborn function"),
            ("stub<1> two words", "stub<1> two words"),
        ] {
            assert_eq!(name(raw), expected);
        }
    }

    #[test]
    fn names_of_other_shapes_stay_unchanged() {
        for raw in [
            "",
            "LazyCompile:~foo file.js:1:2",
            "JS:*fib /app/index.js:1:13 [Optimized]",
            "JS:~f[0] a::b() c.js:1:1",
            "Ljava/lang/String;::hashCode",
            "void java.lang.Foo.bar(int[])",
            "dynamicClass::IL_STUB_PInvoke(int32)",
            "Interpreter",
            "[app] no method",
            "void [app] ::M()",
            "void [app] A::field",
            "void [app] A::M)",
            "void [] A::M()",
            "void [app",
            "[[[[ ]]]] ::()",
            "app!A.B(class [x] C::D())",
            "\u{1b}[31m [\u{e9}",
        ] {
            assert_eq!(name(raw), raw);
        }
    }

    #[test]
    fn a_normalized_name_stays_unchanged() {
        const PARTS: [&str; 21] = [
            "[",
            "]",
            " ",
            "::",
            "(",
            ")",
            "!",
            "!!0",
            "app",
            "A.B",
            "stub",
            "<7>",
            "<",
            ">",
            "[app] ",
            "[Optimized]",
            " /* MT: 0x",
            " */",
            "/* MT: 0x1f */",
            "\u{e9}",
            ";",
        ];
        let mut random = fastrand::Rng::with_seed(3);
        let mut changed = 0;
        for _ in 0..50_000 {
            let mut parts =
                || -> String { (0..random.u64(0..6)).map(|_| PARTS[random.u64(0..21) as usize]).collect() };
            let raw = format!("{} [app] {}::M{}({}){}", parts(), parts(), parts(), parts(), parts());
            let once = name(&raw);
            assert_eq!(name(&once), once, "{raw:?}");
            changed += u32::from(once != raw);
        }
        assert!(changed > 1_000, "too few random names are methods: {changed}");
    }
}
