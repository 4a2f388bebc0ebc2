// The ASP.NET Core workload. Its first argument is the mode, the second the time in seconds; it prints "ready PID", and
// ends after that time or when the pipe on its standard input is closed.
//
//   serve    answers on a port of the loopback device, which it prints as "port N"
//              /plaintext  a few bytes
//              /json       some objects, serialized
//              /orders     the same, loaded asynchronously, priced and sorted first
//              /busy       about 100 ms of CPU
//              /sleep      100 ms of waiting, without a thread
//              /wait       100 ms in which a thread waits
//              /forward/X  the answer of /X, requested by HttpClient
//   many     10,000 methods compiled at run time, called in turns, and every assembly of both frameworks loaded
//
// Compiled by Roslyn against .NET 9.0's assemblies.
using System;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Features;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace Workload;

public record Item(int Id, string Name, double Price);

public static class Work
{
    // This number of steps takes about 100 ms. A clock would also count the time in which other processes have the
    // CPU.
    const int StepsOfBusy = 750;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Spin()
    {
        long state = 1;
        for (int step = 0; step < StepsOfBusy; step++) state = Step(state);
        return state;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Step(long state)
    {
        for (int step = 0; step < 100_000; step++) state = state * 6364136223846793005 + 1442695040888963407;
        return state;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static Item[] Items() =>
        Enumerable.Range(0, 20).Select(id => new Item(id, $"item {id}", Math.Sqrt(id))).ToArray();
}

public static class OrderService
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static double Discount(Item item)
    {
        double discount = 0;
        for (int day = 1; day < 1000; day++) discount += item.Price / (day * day);
        return item.Price - discount / 10;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Item[] PriceAll(Item[] items) =>
        items.Select(item => item with { Price = Discount(item) }).OrderByDescending(item => item.Price).ToArray();

    static async Task<Item[]> LoadAsync()
    {
        await Task.Yield();
        return Work.Items();
    }

    public static async Task<Item[]> PlaceAsync() => PriceAll(await LoadAsync());
}

public static class Routes
{
    public static IResult Plaintext() => Results.Text("Hello, World!");

    public static IResult Json() => Results.Json(Work.Items());

    public static async Task<IResult> Orders() => Results.Json(await OrderService.PlaceAsync());

    public static IResult Busy() => Results.Text(Work.Spin().ToString());

    public static async Task<IResult> Sleep()
    {
        await Task.Delay(100);
        return Results.Text("awake");
    }

    public static IResult Wait()
    {
        Task.Delay(100).Wait();
        return Results.Text("awake");
    }

    static readonly HttpClient client = new(new SocketsHttpHandler { UseProxy = false });

    public static async Task<IResult> Forward(string path, HttpRequest request) =>
        Results.Text(await client.GetStringAsync($"http://{request.Host}/{path}?key=secret"));
}

public static class Server
{
    public static async Task Run(CancellationToken end)
    {
        WebApplicationBuilder builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.UseUrls("http://127.0.0.1:0");
        WebApplication app = builder.Build();
        app.MapGet("/plaintext", Routes.Plaintext);
        app.MapGet("/json", Routes.Json);
        app.MapGet("/orders", Routes.Orders);
        app.MapGet("/busy", Routes.Busy);
        app.MapGet("/sleep", Routes.Sleep);
        app.MapGet("/wait", Routes.Wait);
        app.MapGet("/forward/{path}", Routes.Forward);
        await app.StartAsync();
        var addresses = app.Services.GetRequiredService<IServer>().Features.Get<IServerAddressesFeature>();
        Program.SayReady();
        Console.WriteLine($"port {new Uri(addresses.Addresses.First()).Port}");
        await app.WaitForShutdownAsync(end);
    }
}

public static class Many
{
    const int Modules = 100, MethodsOfEach = 100;

    static Func<long, long>[] MakeModule(int number)
    {
        var name = new AssemblyName($"made{number}");
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(name, AssemblyBuilderAccess.Run);
        TypeBuilder type = assembly.DefineDynamicModule(name.Name).DefineType($"Made.Type{number}", TypeAttributes.Public);
        for (int method = 0; method < MethodsOfEach; method++) DefineMethod(type, number * MethodsOfEach + method);
        Type made = type.CreateType();
        return made.GetMethods(BindingFlags.Static | BindingFlags.Public)
            .Select(method => method.CreateDelegate<Func<long, long>>()).ToArray();
    }

    // A loop, so that each call is long enough to be sampled.
    static void DefineMethod(TypeBuilder type, int number)
    {
        MethodBuilder method = type.DefineMethod(
            $"Method{number}", MethodAttributes.Public | MethodAttributes.Static, typeof(long), [typeof(long)]);
        method.SetImplementationFlags(MethodImplAttributes.AggressiveOptimization);
        ILGenerator code = method.GetILGenerator();
        LocalBuilder turn = code.DeclareLocal(typeof(int));
        Label again = code.DefineLabel();
        code.Emit(OpCodes.Ldc_I4, 2000);
        code.Emit(OpCodes.Stloc, turn);
        code.MarkLabel(again);
        code.Emit(OpCodes.Ldarg_0);
        code.Emit(OpCodes.Ldc_I8, 6364136223846793005 + number);
        code.Emit(OpCodes.Mul);
        code.Emit(OpCodes.Starg_S, (byte)0);
        code.Emit(OpCodes.Ldloc, turn);
        code.Emit(OpCodes.Ldc_I4_1);
        code.Emit(OpCodes.Sub);
        code.Emit(OpCodes.Dup);
        code.Emit(OpCodes.Stloc, turn);
        code.Emit(OpCodes.Brtrue, again);
        code.Emit(OpCodes.Ldarg_0);
        code.Emit(OpCodes.Ret);
    }

    static void LoadFrameworks()
    {
        var paths = (string)AppContext.GetData("TRUSTED_PLATFORM_ASSEMBLIES");
        foreach (string path in paths.Split(':', StringSplitOptions.RemoveEmptyEntries))
        {
            Assembly.Load(AssemblyName.GetAssemblyName(path));
        }
    }

    public static void Run(CancellationToken end)
    {
        LoadFrameworks();
        Func<long, long>[] methods = Enumerable.Range(0, Modules).SelectMany(MakeModule).ToArray();
        long state = methods.Aggregate(1L, (state, method) => method(state));
        Program.SayReady();
        while (!end.IsCancellationRequested) state = CallAll(methods, state);
        GC.KeepAlive(state);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long CallAll(Func<long, long>[] methods, long state)
    {
        foreach (Func<long, long> method in methods) state = method(state);
        return state;
    }
}

public static class Program
{
    public static void SayReady() => Console.WriteLine($"ready {Environment.ProcessId}");

    static void EndWithInput(CancellationTokenSource source)
    {
        string input = File.ResolveLinkTarget("/proc/self/fd/0", false)?.ToString() ?? "";
        if (!input.Contains("pipe:")) return;
        new Thread(() => { while (Console.Read() >= 0) { } source.Cancel(); }) { IsBackground = true }.Start();
    }

    public static async Task<int> Main(string[] arguments)
    {
        string mode = arguments.ElementAtOrDefault(0) ?? "serve";
        int seconds = int.Parse(arguments.ElementAtOrDefault(1) ?? "60");
        var source = new CancellationTokenSource(TimeSpan.FromSeconds(seconds));
        EndWithInput(source);
        switch (mode)
        {
            case "serve": await Server.Run(source.Token); break;
            case "many": Many.Run(source.Token); break;
            default: Console.Error.WriteLine($"unknown mode {mode}"); return 2;
        }
        foreach (string file in new[] { "perf-{0}.map", "jit-{0}.dump" })
        {
            File.Delete("/tmp/" + string.Format(file, Environment.ProcessId));
        }
        return 0;
    }
}
