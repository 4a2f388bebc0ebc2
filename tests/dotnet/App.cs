// The .NET workload. Its first argument is the mode, the second the time in seconds; it prints "ready PID" and ends
// after that time or when the pipe on its standard input is closed.
//
//   cpu      Main > Run > Outer > Middle > Alpha 60 %, Beta 30 %, Gamma 10 %
//   tiny     Main > Run > TinyOuter > TinyMiddle > Alpha, where the JIT makes no frames for the Tiny methods
//   frameless  Main > Run > Top > Outer > Middle > Inner > Work, see Frameless.cs
//   generic  Main > Run > Repository`2.Sum over reference and value types
//   dynamic  methods made at run time and thrown away again, so that their addresses are used anew; their names are
//            free text with ';' in it
//   many     20,000 methods made at run time and kept; then it prints "made"
//   threads  four named threads in mode cpu
//   async    Chain > Leaf > Outer, asynchronous methods on threads of the pool
//   gc       objects that are soon garbage
//   memory   memory of the kernel that is written once, and given back
//   web      requests to an HTTP server and its answers, asynchronous, in one process
//   others   services of the runtime, see Services.cs, waits, see Waits.cs, events, see Events.cs, gaps, see Gaps.cs, storms,
//            see Storms.cs, and methods that are replaced while they run, see Replaced.cs
//
// Compiled by Mono's mcs against .NET Core 3.1's assemblies: C# 7, and all newer runtimes take it.
using System;
using System.Diagnostics;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Workload
{
    public static class Cpu
    {
        public static long Sink;

        // The steps of a twentieth of a round, and the state of a random number generator.
        static int unit = 5000;
        static uint state = 2463534242;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Alpha() { Sink += Spin(6 * unit) + Spin(6 * unit); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Beta() { Sink += Spin(3 * unit) + Spin(3 * unit); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Gamma() { Sink += Spin(unit) + Spin(unit); }

        // Several calls each: the JIT omits the frame of an optimized method with no loop and fewer than two calls,
        // and an unwinder that follows frame pointers then misses its caller.
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Middle() { VaryUnit(); Alpha(); Beta(); Gamma(); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Outer() { Middle(); Middle(); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn) { while (goesOn()) Outer(); }

        // Rounds of constant length can be in step with the sampling timer, which then finds the same methods again and
        // again. By xorshift32 (Marsaglia, "Xorshift RNGs", 2003).
        [MethodImpl(MethodImplOptions.AggressiveInlining)]
        static void VaryUnit()
        {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            unit = 2500 + (int)(state % 5000);
        }

        // The speed of a loop depends on where the JIT places it. Never inlined, this one has the same speed in all
        // methods.
        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Spin(int steps)
        {
            long state = steps;
            for (int step = 0; step < steps; step++) state = state * 6364136223846793005 + 1442695040888963407;
            return state;
        }
    }

    public static class Tiny
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        static long TinyMiddle() { Cpu.Alpha(); return 1; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long TinyOuter() { return TinyMiddle() + 1; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn) { while (goesOn()) Cpu.Sink += TinyOuter(); }
    }

    public sealed class Repository<TKey, TValue>
    {
        readonly TKey[] keys;
        readonly TValue value;

        public Repository(TKey[] keys, TValue value) { this.keys = keys; this.value = value; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public long Sum(Func<TKey, TValue, long> weigh)
        {
            long sum = 0;
            foreach (TKey key in keys) sum += weigh(key, value);
            return sum;
        }
    }

    public static class Generic
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn)
        {
            string[] names = new string[1000];
            for (int i = 0; i < names.Length; i++) names[i] = "name" + i;
            var references = new Repository<string, string>(names, "x");
            var values = new Repository<int, double>(new int[1000], 0.5);
            while (goesOn())
            {
                Cpu.Sink += references.Sum((name, suffix) => name.Length + suffix.Length);
                Cpu.Sink += values.Sum((number, factor) => (long)(number * factor));
            }
        }
    }

    public static class Dynamic
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        internal static Func<int, int> Make(int number)
        {
            var method = new DynamicMethod("made;method, number " + number, typeof(int), new[] { typeof(int) });
            ILGenerator code = method.GetILGenerator();
            for (int i = 0; i < 10 + number % 7 * 20; i++)
            {
                code.Emit(OpCodes.Ldarg_0);
                code.Emit(OpCodes.Ldc_I4, i + number);
                code.Emit(OpCodes.Add);
                code.Emit(OpCodes.Starg_S, (byte)0);
            }
            code.Emit(OpCodes.Ldarg_0);
            code.Emit(OpCodes.Ret);
            return (Func<int, int>)method.CreateDelegate(typeof(Func<int, int>));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void MakeAndUse(int number)
        {
            Func<int, int> made = Make(number);
            int state = 0;
            for (int i = 0; i < 20000; i++) state = made(state);
            Cpu.Sink += state;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn)
        {
            for (int number = 0; goesOn(); number++)
            {
                MakeAndUse(number);
                if (number % 50 == 0) { GC.Collect(); GC.WaitForPendingFinalizers(); GC.Collect(); }
            }
        }
    }

    public static class Asynchronous
    {
        static async Task<long> Leaf() { await Task.Yield(); Cpu.Outer(); return 1; }

        static async Task<long> Chain()
        {
            long sum = 0;
            for (int i = 0; i < 3; i++) sum += await Leaf();
            return sum;
        }

        public static async Task Run(Func<bool> goesOn) { while (goesOn()) Cpu.Sink += await Chain(); }
    }

    public static class Memory
    {
        // More than libc keeps for the next allocation (DEFAULT_MMAP_THRESHOLD_MAX of glibc): each one maps memory.
        const int Bytes = 64 << 20;

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Touch(IntPtr memory) { for (int i = 0; i < Bytes; i += 4096) Marshal.WriteByte(memory, i, 1); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn)
        {
            while (goesOn())
            {
                IntPtr memory = Marshal.AllocHGlobal(Bytes);
                Touch(memory);
                Marshal.FreeHGlobal(memory);
            }
        }
    }

    public static class Garbage
    {
        static readonly object[] kept = new object[1000];

        [MethodImpl(MethodImplOptions.NoInlining)]
        static object Make(int number) { return new byte[100 + number % 1000]; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn)
        {
            while (goesOn())
            {
                for (int i = 0; i < kept.Length; i++) kept[i] = Make(i);
            }
        }
    }

    public static class Many
    {
        const int Count = 20000;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn)
        {
            var made = new Func<int, int>[Count];
            for (int i = 0; i < Count && goesOn(); i++) { made[i] = Dynamic.Make(7 * i); made[i](i); }
            Console.WriteLine("made");
            while (goesOn()) foreach (Func<int, int> method in made) Cpu.Sink += method(1);
        }
    }

    // A server of its own instead of HttpListener, which needs a libssl that Debian no longer has.
    public static class Web
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        static string Render(string path) { Cpu.Outer(); return "{\"path\":\"" + path + "\"}"; }

        static async Task<string> ReadHead(NetworkStream stream, byte[] buffer)
        {
            int length = 0;
            while (true)
            {
                int read = await stream.ReadAsync(buffer, length, buffer.Length - length);
                if (read == 0) return null;
                length += read;
                string head = Encoding.ASCII.GetString(buffer, 0, length);
                if (head.Contains("\r\n\r\n")) return head;
            }
        }

        static async Task Serve(TcpListener listener)
        {
            using (TcpClient client = await listener.AcceptTcpClientAsync())
            {
                NetworkStream stream = client.GetStream();
                byte[] buffer = new byte[8192];
                string head;
                while ((head = await ReadHead(stream, buffer)) != null)
                {
                    string answer = "HTTP/1.1 200 OK\r\nX-Body: " + Render(head.Split(' ')[1]) + "\r\n\r\n";
                    byte[] bytes = Encoding.ASCII.GetBytes(answer);
                    await stream.WriteAsync(bytes, 0, bytes.Length);
                }
            }
        }

        static async Task Ask(int port, Func<bool> goesOn)
        {
            byte[] request = Encoding.ASCII.GetBytes("GET /item/42 HTTP/1.1\r\n\r\n"), buffer = new byte[8192];
            using (var client = new TcpClient("127.0.0.1", port))
            {
                client.NoDelay = true;
                NetworkStream stream = client.GetStream();
                while (goesOn())
                {
                    await stream.WriteAsync(request, 0, request.Length);
                    if (await ReadHead(stream, buffer) == null) throw new IOException("the server hung up");
                }
            }
        }

        public static void Run(Func<bool> goesOn)
        {
            var listener = new TcpListener(IPAddress.Loopback, 0);
            listener.Start();
            Task server = Serve(listener);
            Ask(((IPEndPoint)listener.LocalEndpoint).Port, goesOn).Wait();
            server.Wait();
            listener.Stop();
        }
    }

    public static class Program
    {
        static volatile bool inputClosed, inputHasLine;

        static void WatchInput()
        {
            var watcher = new Thread(() =>
            {
                for (int sign; (sign = Console.Read()) >= 0;) inputHasLine |= sign == '\n';
                inputClosed = true;
            });
            watcher.IsBackground = true;
            watcher.Start();
        }

        // Whether a line has arrived since the last call. Another one arrives only after an answer to this one.
        static bool TakeLine()
        {
            bool hasLine = inputHasLine;
            if (hasLine) inputHasLine = false;
            return hasLine;
        }

        [DllImport("libc")]
        static extern long readlink(string path, byte[] target, long size);

        static bool InputIsPipe()
        {
            byte[] target = new byte[64];
            long length = readlink("/proc/self/fd/0", target, target.Length);
            return length > 0 && Encoding.ASCII.GetString(target, 0, (int)length).StartsWith("pipe:");
        }

        static void RunThreads(Func<bool> goesOn)
        {
            var threads = new Thread[4];
            for (int i = 0; i < threads.Length; i++)
            {
                threads[i] = new Thread(() => Cpu.Run(goesOn)) { Name = "worker-" + i };
                threads[i].Start();
            }
            foreach (Thread thread in threads) thread.Join();
        }

        public static int Main(string[] arguments)
        {
            string mode = arguments.Length > 0 ? arguments[0] : "cpu";
            int seconds = arguments.Length > 1 ? int.Parse(arguments[1]) : 60;
            int pid = Process.GetCurrentProcess().Id;
            if (InputIsPipe()) WatchInput();
            Stopwatch watch = Stopwatch.StartNew();
            Func<bool> goesOn = () => !inputClosed && watch.Elapsed.TotalSeconds < seconds;
            Console.WriteLine("ready " + pid);
            switch (mode)
            {
                case "cpu": Cpu.Run(goesOn); break;
                case "tiny": Tiny.Run(goesOn); break;
                case "frameless": Frameless.Run(goesOn); break;
                case "generic": Generic.Run(goesOn); break;
                case "dynamic": Dynamic.Run(goesOn); break;
                case "replaced": Replaced.Run(goesOn); break;
                case "reuse": Reuse.Run(goesOn); break;
                case "many": Many.Run(goesOn); break;
                case "threads": RunThreads(goesOn); break;
                case "async": Asynchronous.Run(goesOn).Wait(); break;
                case "gc": Garbage.Run(goesOn); break;
                case "memory": Memory.Run(goesOn); break;
                case "web": Web.Run(goesOn); break;
                case "events": Events.Run(goesOn, () => inputHasLine); break;
                default:
                    if (Services.Run(mode, goesOn) || Waits.Run(mode, goesOn)) break;
                    if (Gaps.Run(mode, goesOn, TakeLine) || Storms.Run(mode, goesOn, TakeLine)) break;
                    Console.Error.WriteLine("unknown mode " + mode);
                    return 2;
            }
            File.Delete("/tmp/perf-" + pid + ".map");
            File.Delete("/tmp/perfinfo-" + pid + ".map");
            return 0;
        }
    }
}
