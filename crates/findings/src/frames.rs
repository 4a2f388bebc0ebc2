//! Names of frames as rules and findings use them: without assembly and arguments, application code told from frameworks.

use profiler_profile::{Frame, FrameId, FrameKind, Profile, SourceLocation, Stack, Symbolization};

use crate::{
    code_rules::{
        CLONES, FRAMEWORKS, GO_LIBRARY, JAVA_FRAMEWORKS, LIBC_MODULES, PLUMBING, RUNTIME_FUNCTIONS,
        RUNTIME_MODULES, RUST_LIBRARY, STUBS, SYSTEM_CALL_WRAPPERS,
    },
    pattern::matches_any,
    rules::LOCK_WRAPPERS,
};

/// The name of a function without the assembly of managed methods.
pub(crate) fn function<'a>(profile: &'a Profile, frame: &Frame) -> &'a str {
    let name = profile.string(frame.name);
    if is_managed(frame) { assembly_and_method(name).1 } else { name }
}

/// The frames of the sampled thread, leaf first: without those of its waker, which are in front of labels.
pub(crate) fn own_frames<'a>(profile: &Profile, stack: &'a Stack) -> &'a [FrameId] {
    &stack.frames[own_begin(profile, stack)..]
}

/// The index of the leaf of the sampled thread.
pub(crate) fn own_begin(profile: &Profile, stack: &Stack) -> usize {
    let is_label = |id: &FrameId| profile.frame(*id).kind == FrameKind::Label;
    stack.frames.iter().rposition(is_label).map_or(0, |label| label + 1)
}

/// Whether a frame is managed or JIT code.
pub(crate) fn is_managed(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled)
}

/// The method or function of the application that is nearest to the leaf, as findings name it: `Shop.Cart.Get`.
///
/// In a stack with managed code, only methods count: native code below them belongs to the runtime.
pub(crate) fn application_method<'a>(profile: &'a Profile, stack: &Stack) -> Option<&'a str> {
    application_methods(profile, stack).next()
}

/// The methods or functions of the application, leaf first.
pub(crate) fn application_methods<'a>(profile: &'a Profile, stack: &Stack) -> impl Iterator<Item = &'a str> {
    let own = own_frames(profile, stack);
    application_frames(profile, stack).map(|index| method_name(profile, profile.frame(own[index])))
}

/// The source line in a method of the application, of its frame nearest to the leaf.
pub(crate) fn location_in(profile: &Profile, stack: &Stack, method: &str) -> Option<SourceLocation> {
    let own = own_frames(profile, stack);
    let frames = application_frames(profile, stack).map(|index| profile.frame(own[index]));
    frames.filter(|frame| method_name(profile, frame) == method).find_map(|frame| frame.location)
}

/// The function of the application that takes a lock, without those that take it for their callers.
pub(crate) fn lock_method<'a>(profile: &'a Profile, stack: &Stack) -> Option<&'a str> {
    application_methods(profile, stack).find(|method| !matches_any(LOCK_WRAPPERS, method))
}

/// The indices of the frames of the application among [`own_frames`], leaf first.
pub(crate) fn application_frames(profile: &Profile, stack: &Stack) -> impl Iterator<Item = usize> {
    let own = own_frames(profile, stack);
    let has_managed = own.iter().any(|id| is_managed(profile.frame(*id)));
    let is_own = move |id: &FrameId| {
        let frame = profile.frame(*id);
        is_managed(frame) == has_managed && application_name(profile, frame).is_some()
    };
    own.iter()
        .enumerate()
        .skip(libc_frames(profile, own))
        .filter(move |(_, id)| is_own(id))
        .map(|(index, _)| index)
}

/// The name of a function of the application, as findings print it.
pub(crate) fn application_name<'a>(profile: &'a Profile, frame: &Frame) -> Option<&'a str> {
    let is_named = is_application(profile, frame) && !matches_any(PLUMBING, function(profile, frame));
    is_named.then(|| method_name(profile, frame))
}

/// The name of a method or function without its assembly, arguments and type of the result.
pub(crate) fn method_name<'a>(profile: &'a Profile, frame: &Frame) -> &'a str {
    without_type(method(function(profile, frame)), frame)
}

/// A method of Java without the type of its result, which perf maps have: `Cart.get` of `void Cart.get`.
fn without_type<'a>(method: &'a str, frame: &Frame) -> &'a str {
    match method.rsplit_once(' ') {
        Some((_, name)) if is_managed(frame) && !method.contains([':', '<', '/']) => name,
        _ => method,
    }
}

/// Whether native code is that of a runtime, of libc or of the standard library of Rust or Go.
pub(crate) fn is_runtime(profile: &Profile, frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Native | FrameKind::Inlined)
        && (is_libc(profile, frame)
            || matches_any(RUST_LIBRARY, profile.string(frame.name))
            || is_of_go_library(profile.string(frame.name))
            || is_of_standard_library(profile.string(frame.name))
            || matches_any(RUNTIME_MODULES, profile.module_name(frame.module)))
}

fn is_of_go_library(name: &str) -> bool {
    matches_any(GO_LIBRARY, name) && !matches_any(CLONES, name)
}

/// Whether a function is that of the standard library of C++ or Rust. Demanglers put the type of the result before the name of a template.
fn is_of_standard_library(name: &str) -> bool {
    // Most functions are of neither.
    if !name.contains("std::") {
        return false;
    }
    let name = without_arguments(name);
    name.rsplit(' ').next().is_some_and(|name| name.starts_with("std::"))
}

/// A name without the arguments of the function and those of templates: `Heap::fetch` of `Heap::fetch<int>(Row<int>)`.
pub(crate) fn without_arguments(name: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0_usize);
    for letter in name.chars() {
        match letter {
            // Rust begins with a type, C++ with an anonymous namespace.
            '<' if !text.is_empty() => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '(' if depth == 0 && !text.is_empty() => break,
            letter if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    text
}

/// The number of frames at the leaf that are of the kernel and of libc. `own` is leaf first.
///
/// In a static program, libc's wrappers of system calls have the module of the application. They are known by their
/// place: their callee is the kernel or libc, but no function of libc's own file.
pub(crate) fn libc_frames(profile: &Profile, own: &[FrameId]) -> usize {
    let mut is_static = true;
    let is_part = |(index, id): &(usize, &FrameId)| {
        let frame = profile.frame(**id);
        is_static &= !matches_any(LIBC_MODULES, profile.module_name(frame.module));
        frame.kind == FrameKind::Kernel
            || is_libc(profile, frame)
            || (is_static
                && *index > 0
                && frame.kind == FrameKind::Native
                && matches_any(SYSTEM_CALL_WRAPPERS, profile.string(frame.name)))
    };
    own.iter().enumerate().take_while(is_part).count()
}

/// Whether native code is that of libc.
pub(crate) fn is_libc(profile: &Profile, frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Native | FrameKind::Inlined)
        && (matches_any(LIBC_MODULES, profile.module_name(frame.module))
            || matches_any(RUNTIME_FUNCTIONS, profile.string(frame.name)))
}

pub(crate) fn is_application(profile: &Profile, frame: &Frame) -> bool {
    let name = profile.string(frame.name);
    if matches!(frame.symbolization, Symbolization::Address(_)) || name.starts_with('[') {
        return false;
    }
    match frame.kind {
        FrameKind::Jit | FrameKind::Precompiled => match assembly_and_method(name) {
            (Some(assembly), _) => !matches_any(FRAMEWORKS, assembly),
            // The result of a method of the application can be of a class of the library.
            (None, name) => {
                !matches_any(STUBS, name) && !matches_any(JAVA_FRAMEWORKS, without_type(method(name), frame))
            }
        },
        FrameKind::Native | FrameKind::Inlined => !is_runtime(profile, frame),
        _ => false,
    }
}

/// Splits `assembly!Type.Method(arguments)`.
fn assembly_and_method(name: &str) -> (Option<&str>, &str) {
    match name.split_once('!') {
        Some((assembly, method)) if !assembly.contains(['(', '<', ' ']) => (Some(assembly), method),
        _ => (None, name),
    }
}

/// A method without its arguments.
fn method(name: &str) -> &str {
    match name.find('(') {
        Some(arguments) if arguments > 0 => &name[..arguments],
        _ => name,
    }
}

/// The type of a method: `Shop.Cart` of `Shop.Cart.Get`, `shop::Cart` of `shop::Cart::get`.
pub(crate) fn declaring_type(method: &str) -> Option<&str> {
    let end = method.rfind("::").or_else(|| dots_from_end(method).next())?;
    (end > 0).then(|| &method[..end])
}

/// A method with its type alone: `Cart.Get` of `Shop.Cart.Get`.
pub(crate) fn short(method: &str) -> &str {
    dots_from_end(method).nth(1).map_or(method, |at| &method[at + 1..])
}

/// The places of the dots between names, outside of type arguments, the last one first.
fn dots_from_end(method: &str) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    method.rmatch_indices(['.', '<', '>']).filter_map(move |(at, separator)| {
        match separator {
            ">" => depth += 1,
            "<" => depth = depth.saturating_sub(1),
            _ if depth == 0 => return Some(at),
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_arguments_also_those_of_templates() {
        for (name, expected) in [
            ("Heap::fetch<int>(Row<int>)", "Heap::fetch"),
            ("void wait<run(char)::{lambda()#1}>(int)", "void wait"),
            ("(anonymous namespace)::run(int)", "(anonymous namespace)::run"),
            ("<shop::Queue<T> as Push>::push", "<shop::Queue as Push>::push"),
            ("Heap::operator()() const", "Heap::operator"),
            ("", ""),
        ] {
            assert_eq!(without_arguments(name), expected);
        }
        for (name, expected) in [
            ("std::thread::_Invoker<std::tuple<main::{lambda()#1}> >::operator()()", true),
            ("void std::__invoke_impl<void, void (Pool::*)(char), Pool*>(int, void (Pool::*&&)(char))", true),
            ("std::__invoke_result<int (*)(char)>::type std::__invoke<int (*)(char)>(int)", true),
            ("std::string shop::render<int>(int)", false),
            ("shop::run(std::mutex&)", false),
        ] {
            assert_eq!(is_of_standard_library(name), expected, "{name}");
        }
    }

    #[test]
    fn names_lose_assembly_arguments_and_namespaces() {
        assert_eq!(assembly_and_method("app!Shop.Cart.Get(int)"), (Some("app"), "Shop.Cart.Get(int)"));
        assert_eq!(assembly_and_method("f(a!b)"), (None, "f(a!b)"));
        assert_eq!(method("Shop.Cart.Get(int)"), "Shop.Cart.Get");
        assert_eq!(method("(anonymous namespace)::f"), "(anonymous namespace)::f");
        for (name, expected) in [
            ("Shop.Cart.Get", "Cart.Get"),
            ("Cart.Get", "Cart.Get"),
            ("main", "main"),
            ("Shop.Cart<a.B>.Get<c.D>", "Cart<a.B>.Get<c.D>"),
        ] {
            assert_eq!(short(name), expected);
        }
        for (name, expected) in [
            ("Shop.Cart.Get", Some("Shop.Cart")),
            ("Cart.Get", Some("Cart")),
            ("shop::Cart::get", Some("shop::Cart")),
            ("Shop.Cart<a.B>.Get<c.D>", Some("Shop.Cart<a.B>")),
            ("main", None),
            ("", None),
            (".a", None),
        ] {
            assert_eq!(declaring_type(name), expected, "{name}");
        }
    }
}
