// Modes of the .NET workload that spend their time in one service of the runtime each:
//
//   spin        Thread.SpinWait
//   sleep       Thread.Sleep(0) and Thread.Yield
//   lock        two threads that wait for each other in a monitor
//   collect     explicit garbage collections
//   alloc       objects and arrays that are kept for a while
//   exceptions  exceptions that are caught three methods further out
//   reflection  methods called and attributes read by reflection
//   interop     calls of functions of libc, with strings that are converted
//   casts       objects cast to classes, interfaces and arrays
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;

namespace Workload
{
    public static class Services
    {
        // Runs a mode. False is a mode that this class lacks.
        public static bool Run(string mode, Func<bool> goesOn)
        {
            switch (mode)
            {
                case "spin": Spin(goesOn); return true;
                case "sleep": Sleep(goesOn); return true;
                case "lock": Lock(goesOn); return true;
                case "collect": Collect(goesOn); return true;
                case "alloc": Allocate(goesOn); return true;
                case "exceptions": Exceptions(goesOn); return true;
                case "reflection": Reflect(goesOn); return true;
                case "interop": Interoperate(goesOn); return true;
                case "casts": Cast(goesOn); return true;
                default: return false;
            }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Spin(Func<bool> goesOn) { while (goesOn()) Thread.SpinWait(100000); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Sleep(Func<bool> goesOn)
        {
            while (goesOn())
            {
                for (int i = 0; i < 100; i++) Thread.Sleep(0);
                for (int i = 0; i < 100; i++) Thread.Yield();
            }
        }

        static readonly object gate = new object();
        static bool isTurnOfSecond;

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void TakeTurns(bool isSecond, Func<bool> goesOn)
        {
            while (goesOn())
            {
                lock (gate)
                {
                    if (isTurnOfSecond != isSecond) Monitor.Wait(gate, 10);
                    isTurnOfSecond = !isSecond;
                    Monitor.PulseAll(gate);
                }
            }
        }

        static void Lock(Func<bool> goesOn)
        {
            var second = new Thread(() => TakeTurns(true, goesOn));
            second.Start();
            TakeTurns(false, goesOn);
            second.Join();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Collect(Func<bool> goesOn) { while (goesOn()) GC.Collect(); }

        sealed class Node
        {
            public Node Next;
            public object Value;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static Node Chain(int length)
        {
            Node node = null;
            for (int i = 0; i < length; i++) node = new Node { Next = node, Value = new int[i % 64] };
            return node;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Allocate(Func<bool> goesOn)
        {
            var kept = new Node[64];
            for (int i = 0; goesOn(); i++)
            {
                kept[i % kept.Length] = Chain(1000);
                Cpu.Sink += new byte[100000 + i % 1000].Length;
            }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Throw(int depth)
        {
            if (depth == 0) throw new InvalidOperationException();
            Throw(depth - 1);
            Cpu.Sink++;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Exceptions(Func<bool> goesOn)
        {
            while (goesOn())
            {
                try { Throw(2); }
                catch (InvalidOperationException) { Cpu.Sink++; }
            }
        }

        [Obsolete("an attribute to read")]
        public static int Called(int number, string text) { return number + text.Length; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Reflect(Func<bool> goesOn)
        {
            while (goesOn())
            {
                MethodInfo method = typeof(Services).GetMethod("Called");
                for (int i = 0; i < 10; i++) method.Invoke(null, new object[] { i, "text" });
                Cpu.Sink += method.GetCustomAttributes(false).Length;
                Cpu.Sink += ((List<int>)Activator.CreateInstance(typeof(List<>).MakeGenericType(typeof(int)))).Count;
            }
        }

        [DllImport("libc")]
        static extern int getppid();

        [DllImport("libc")]
        static extern int access(string path, int mode);

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Interoperate(Func<bool> goesOn)
        {
            var path = new StringBuilder("/proc/self/").Append("status").ToString();
            while (goesOn())
            {
                for (int i = 0; i < 10; i++) Cpu.Sink += getppid() + access(path, 4);
                IntPtr memory = Marshal.AllocHGlobal(100);
                Marshal.FreeHGlobal(memory);
            }
        }

        interface IFirst { }
        interface ISecond { }
        class Base : IFirst { }
        sealed class Derived : Base, ISecond { }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static int Casts(object thing)
        {
            int count = 0;
            if (thing is ISecond) count++;
            if (thing is Base) count++;
            if (thing is IFirst[]) count++;
            if (thing is IEnumerable<IFirst> many) count += ((object)many == null) ? 1 : 0;
            return count;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Cast(Func<bool> goesOn)
        {
            object[] things = { new Derived(), new Base(), new Derived[3], "text", new List<Derived>() };
            while (goesOn())
            {
                for (int i = 0; i < 1000; i++) Cpu.Sink += Casts(things[i % things.Length]);
            }
        }
    }
}
