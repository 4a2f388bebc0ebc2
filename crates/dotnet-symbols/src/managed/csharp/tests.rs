//! Tests with names from perf maps, events and images of .NET Core 3.1 and .NET 9, and with random names.

use super::*;

#[test]
fn names_of_real_programs_are_spelled_as_in_their_source() {
    for (name, expected) in [
        (
            "System.Private.CoreLib!System.Collections.Generic.Dictionary`2[System.__Canon,System.__Canon].FindValue(!0)",
            "System.Private.CoreLib!System.Collections.Generic.Dictionary<__Canon,__Canon>.FindValue(__Canon)",
        ),
        (
            "System.Private.CoreLib!System.String.Concat(class System.String,class System.String)",
            "System.Private.CoreLib!System.String.Concat(string,string)",
        ),
        (
            "System.Private.CoreLib!System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1\
             [System.__Canon,System.Net.Sockets.TcpListener+<<AcceptTcpClientAsync>g__WaitAndWrap|32_0>d]\
             .MoveNext(class System.Threading.Thread)",
            "System.Private.CoreLib!System.Runtime.CompilerServices.AsyncTaskMethodBuilder<__Canon>\
             .AsyncStateMachineBox<TcpListener.AcceptTcpClientAsync.WaitAndWrap>.MoveNext(Thread)",
        ),
        (
            "System.Private.CoreLib!System.Runtime.CompilerServices.AsyncMethodBuilderCore.Start(!!0&)",
            "System.Private.CoreLib!System.Runtime.CompilerServices.AsyncMethodBuilderCore.Start(ref T0)",
        ),
        (
            "System.Private.CoreLib!System.Threading.Tasks.Task+DelayPromise+<>c.<.ctor>b__1_0(class System.Object)",
            "System.Private.CoreLib!System.Threading.Tasks.Task.DelayPromise..ctor.AnonymousMethod__1_0(object)",
        ),
        (
            "Kestrel.Core!Kestrel.Http.HttpProtocol+<ProcessRequests>d__238`1[System.__Canon].MoveNext()",
            "Kestrel.Core!Kestrel.Http.HttpProtocol.ProcessRequests<__Canon>",
        ),
        (
            "System.Net.Sockets!System.Net.Sockets.Socket+Awaitable.Sources.IValueTaskSource<System.Int32>.GetResult(int16)",
            "System.Net.Sockets!System.Net.Sockets.Socket.Awaitable.Sources.IValueTaskSource<int>.GetResult(short)",
        ),
        ("app!Shop.OrderService+<PlaceAsync>d__7.MoveNext()", "app!Shop.OrderService.PlaceAsync"),
        (
            "app!Shop.OrderService`1+<>c__DisplayClass1_0+<<PlaceAsync>b__1>d[System.__Canon].MoveNext()",
            "app!Shop.OrderService<__Canon>.PlaceAsync.AnonymousMethod__1",
        ),
        (
            "System.Private.CoreLib!System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1\
             [System.Int32,Shop.OrderService`1+<RunAsync>d__2`1[System.__Canon,System.Double]].get_MoveNextAction()",
            "System.Private.CoreLib!System.Runtime.CompilerServices.AsyncTaskMethodBuilder<int>\
             .AsyncStateMachineBox<OrderService<__Canon>.RunAsync<double>>.get_MoveNextAction()",
        ),
        ("app!Shop.Names.<Outer>g__Generic|4_1(!!0)", "app!Shop.Names.Outer.Generic(T0)"),
        (
            "app!Shop.Names.Fill(int32[,],int32&,value class Shop.Order&,value class System.Span`1<unsigned int8>,\
             class System.String[][])",
            "app!Shop.Names.Fill(int[,],ref int,ref Order,Span<byte>,string[][])",
        ),
        (
            "System.Collections!System.Collections.Generic.List`1[System.Nullable`1[Shop.Order]].Add(!0)",
            "System.Collections!System.Collections.Generic.List<Order?>.Add(Order?)",
        ),
        ("app!Shop.OrderService.PlaceAsync(class Shop.Order)", "app!Shop.OrderService.PlaceAsync(Order)"),
        ("web!Program+<>c.<<Main>$>b__0_3()", "web!Program.Main.AnonymousMethod__0_3()"),
        ("web!Program.<Main>$(class System.String[])", "web!Program.Main(string[])"),
        ("web!Program.<<Main>$>g__Parse|0_0(int32)", "web!Program.Main.Parse(int)"),
        (
            "System.Linq!System.Linq.OrderedEnumerable`1+<GetEnumerator>d__16[System.__Canon].MoveNext()",
            "System.Linq!System.Linq.OrderedEnumerable<__Canon>.GetEnumerator",
        ),
        (
            "System.Private.CoreLib!System.SpanHelpers.SequenceEqual(unsigned int8&,unsigned int8&,unsigned int)",
            "System.Private.CoreLib!System.SpanHelpers.SequenceEqual(ref byte,ref byte,nuint)",
        ),
    ] {
        assert_eq!(csharp_name(name), expected);
    }
}

#[test]
fn stubs_and_dynamic_methods_are_labelled_by_their_kind() {
    for (name, expected) in [
        ("stub GenerateLookupStub", "[stub GenerateLookupStub]"),
        ("stub DelayLoadThunk", "[stub DelayLoadThunk]"),
        (
            "stub AllocateTemporaryEntryPoints<PRECODE_FIXUP>",
            "[stub AllocateTemporaryEntryPoints<PRECODE_FIXUP>]",
        ),
        (
            "System.Console!dynamicClass.IL_STUB_PInvoke(System.Net.Sockets.ProtocolType*&,int*)",
            "[IL stub P/Invoke]",
        ),
        ("app!dynamicClass.IL_STUB_ReversePInvoke(int)", "[IL stub reverse P/Invoke]"),
        (
            "System.Linq!dynamicClass.IL_STUB_InstantiatingStub(System.Func`2<int32,System.String>)",
            "[IL stub InstantiatingStub]",
        ),
        (
            "Anonymously Hosted DynamicMethods Assembly!dynamicClass.made;method, (number) 5(int32)",
            "[dynamic method] made;method, (number) 5(int)",
        ),
        (
            "System.Private.CoreLib!dynamicClass.InvokeStub_Program.Main(class System.Object)",
            "System.Private.CoreLib![dynamic method] InvokeStub_Program.Main(object)",
        ),
    ] {
        assert_eq!(csharp_name(name), expected);
    }
}

#[test]
fn names_of_other_shapes_stay_unchanged() {
    for name in [
        "",
        "!",
        "main",
        "stub",
        "stub two words",
        "LazyCompile:~foo! file.js:1:2",
        "void java.lang.Foo.bar(int[])",
        "[app] no!method",
        "app!A.B",
        "app!A.B(",
        "app!A.B(int32",
        "app!A.B)int32(",
        "app!A.B(int32,)",
        "app!A`1.B(!0)",
        "app!A.B(class C<D)",
        "app!Main(int32)",
        "\u{1b}[31m!\u{e9}",
    ] {
        assert_eq!(csharp_name(name), name);
    }
}

#[test]
fn a_name_that_is_too_long_stays_unchanged() {
    let long = format!("app!A.B({}int32)", "int32,".repeat(MAX_NAME_BYTES));
    assert_eq!(csharp_name(&long), long);
    // Each of many parameters is replaced by a long type argument.
    let multiplied = format!("app!A`1[{}].B({}!0)", "x".repeat(MAX_NAME_BYTES / 2), "!0,".repeat(100));
    assert_eq!(csharp_name(&multiplied), multiplied);
}

#[test]
fn the_conversion_of_nested_lists_ends() {
    let deep = |count| format!("app!{}B{}.C(int32)", "A<<".repeat(count), ">d>".repeat(count));
    for count in 0..10 {
        assert!(csharp_name(&deep(count)).ends_with("C(int)"), "{count}");
    }
    assert!(csharp_name(&deep(1_300)).len() <= MAX_NAME_BYTES);
    let lists = |count| format!("app!A.B<{}C{}>.D(int32)", "E.F<".repeat(count), ">".repeat(count));
    assert!(csharp_name(&lists(20)).contains("B<F<F<"));
    assert!(csharp_name(&lists(1_600)).len() <= MAX_NAME_BYTES);
}

#[test]
fn the_result_for_any_name_has_a_bounded_length() {
    const PARTS: [&str; 40] = [
        "app!",
        "System.",
        "A",
        "B`1",
        "C`2",
        "+",
        ".",
        "[",
        "]",
        "[]",
        "[,]",
        "<",
        ">",
        "<>c",
        "<A>d__1",
        "<A>b__0_1",
        "<A>g__B|1",
        "<>m__0",
        "<A>c__async0",
        "MoveNext",
        "(",
        ")",
        ",",
        "&",
        "*",
        "!0",
        "!!1",
        "!",
        "class ",
        "value class ",
        "unsigned ",
        "int32",
        "System.Int32",
        " modreq(A)",
        "method ",
        " *(",
        "dynamicClass.",
        "stub ",
        "\u{e9}",
        "`65535",
    ];
    let mut random = fastrand::Rng::with_seed(11);
    let mut changed = 0;
    for _ in 0..200_000 {
        let mut parts = |count| -> String {
            (0..random.u64(0..count)).map(|_| PARTS[random.u64(0..PARTS.len() as u64) as usize]).collect()
        };
        let name = if parts(2).is_empty() {
            format!("app!A{}.B{}({})", parts(6), parts(4), parts(8))
        } else {
            parts(30)
        };
        let converted = csharp_name(&name);
        assert!(converted.len() <= MAX_NAME_BYTES);
        changed += u32::from(converted != name);
    }
    assert!(changed > 5_000, "too few random names are methods: {changed}");
}
