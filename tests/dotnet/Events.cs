// The mode of the .NET workload that makes a known number of events once a line is written to its input:
//
//   events  3 requests for collections of generation 0, 2 of generation 1 and 4 of generation 2, whose generation the
//           runtime can raise; 5 exceptions; 7 events `Placed` of the provider `Workload-Orders`, with keyword 2; 3 waits
//           of the main thread for a lock that the thread `owner` has for 100 ms more once it waits. Then it prints "done", the ids of both threads, the owner and the one that waited, and the number of
//           collections of each generation.
using System;
using System.Diagnostics.Tracing;
using System.IO;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Workload
{
    public sealed class Orders : EventSource
    {
        public static readonly Orders Log = new Orders();

        Orders() : base("Workload-Orders") { }

        [Event(1, Level = EventLevel.Informational, Keywords = (EventKeywords)2)]
        public void Placed(int order, string customer) { WriteEvent(1, order, customer); }
    }

    public static class Events
    {
        static readonly int[] collections = { 3, 2, 4 };
        const int Exceptions = 5;
        const int PlacedOrders = 7;
        const int Contentions = 3;
        const int HeldMilliseconds = 100;

        static readonly object gate = new object();
        static readonly AutoResetEvent round = new AutoResetEvent(false), held = new AutoResetEvent(false);
        static int owner, waiter;
        static volatile bool contends;

        [DllImport("libc")]
        static extern int gettid();

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Throw(int number) { throw new InvalidOperationException("number " + number); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Hold()
        {
            owner = gettid();
            for (int i = 0; i < Contentions; i++)
            {
                round.WaitOne();
                lock (gate)
                {
                    held.Set();
                    while (!contends || !Sleeps(waiter)) Thread.Sleep(1);
                    Thread.Sleep(HeldMilliseconds);
                    contends = false;
                }
            }
        }

        // Whether a thread of this process waits: the first letter behind its name.
        static bool Sleeps(int thread)
        {
            string stat = File.ReadAllText("/proc/self/task/" + thread + "/stat");
            return stat[stat.LastIndexOf(')') + 2] == 'S';
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Contend()
        {
            waiter = gettid();
            var holder = new Thread(Hold) { Name = "owner" };
            holder.Start();
            for (int i = 0; i < Contentions; i++)
            {
                round.Set();
                held.WaitOne();
                contends = true;
                lock (gate) { Cpu.Sink++; }
            }
            holder.Join();
        }

        // The collections of each generation alone: `GC.CollectionCount` also counts those of older generations.
        static int[] CollectionCounts()
        {
            var counts = new int[collections.Length];
            for (int generation = 0; generation < counts.Length; generation++)
            {
                int older = generation + 1 < counts.Length ? GC.CollectionCount(generation + 1) : 0;
                counts[generation] = GC.CollectionCount(generation) - older;
            }
            return counts;
        }

        public static void Run(Func<bool> goesOn, Func<bool> hasLine)
        {
            while (goesOn() && !hasLine()) Thread.Sleep(10);
            int[] before = CollectionCounts();
            for (int generation = 0; generation < collections.Length; generation++)
            {
                for (int i = 0; i < collections[generation]; i++) GC.Collect(generation);
            }
            for (int i = 0; i < Exceptions; i++)
            {
                try { Throw(i); }
                catch (InvalidOperationException) { Cpu.Sink++; }
            }
            for (int i = 0; i < PlacedOrders; i++) Orders.Log.Placed(i, "customer " + i);
            Contend();
            int[] counts = CollectionCounts();
            for (int generation = 0; generation < counts.Length; generation++) counts[generation] -= before[generation];
            Console.WriteLine("done " + owner + " " + gettid() + " " + string.Join(" ", counts));
            while (goesOn()) Thread.Sleep(10);
        }
    }
}
