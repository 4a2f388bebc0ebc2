// The modes of the .NET workload that make many events once a line is written to its input:
//
//   storm-exceptions     20,000 exceptions, all but 3 of them of one type
//   storm-collections    10,000 requests for collections of generation 0 beside large objects, for which the runtime collects
//                        more
//   storm-exceptions-N   exceptions for N seconds, storm-collections-N collections
//
// Then it prints "storm", the number of exceptions, that of collections, and the time in milliseconds.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Workload
{
    public static class Storms
    {
        const string Prefix = "storm-";
        const int Exceptions = 20000;
        const int RareExceptions = 3;
        const int Collections = 10000;
        const int LargeObjectBytes = 100000;

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Throw(int number)
        {
            if (number < Exceptions && number % (Exceptions / RareExceptions) == Exceptions / RareExceptions / 2)
                throw new FormatException("rare");
            throw new InvalidOperationException("storm");
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void ThrowAndCatch(int number)
        {
            try { Throw(number); }
            catch (SystemException) { Cpu.Sink++; }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Collect(int number)
        {
            Cpu.Sink += new byte[LargeObjectBytes].Length;
            GC.Collect(0);
        }

        // Runs a mode. False is a mode that this class lacks. A storm without an end keeps .NET 9 from its diagnostics socket.
        public static bool Run(string mode, Func<bool> goesOn, Func<bool> takeLine)
        {
            if (!mode.StartsWith(Prefix, StringComparison.Ordinal)) return false;
            string[] words = mode.Split('-');
            bool throws = words[1] == "exceptions";
            Action<int> step = ThrowAndCatch;
            if (!throws) step = Collect;
            int steps = throws ? Exceptions : Collections;
            double seconds = double.PositiveInfinity;
            if (words.Length > 2)
            {
                steps = int.MaxValue;
                seconds = double.Parse(words[2]);
            }
            while (goesOn())
            {
                if (!takeLine())
                {
                    Thread.Sleep(10);
                    continue;
                }
                int before = GC.CollectionCount(0), made = 0;
                Stopwatch time = Stopwatch.StartNew();
                while (made < steps && time.Elapsed.TotalSeconds < seconds && goesOn()) step(made++);
                int collections = GC.CollectionCount(0) - before;
                Console.WriteLine("storm " + (throws ? made : 0) + " " + collections + " " + time.ElapsedMilliseconds);
            }
            return true;
        }
    }
}
