// The modes of the .NET workload that measure for how long a managed thread does not run:
//
//   gaps-N  makes N methods at run time and prints "made". Then the main thread reads the clock all the time. For each line
//           on its input it prints "gap US": the longest time between two readings since the last line, microseconds.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;

namespace Workload
{
    public static class Gaps
    {
        const string Prefix = "gaps-";

        // Runs a mode. False is a mode that this class lacks.
        public static bool Run(string mode, Func<bool> goesOn, Func<bool> takeLine)
        {
            if (!mode.StartsWith(Prefix, StringComparison.Ordinal)) return false;
            Func<int, int>[] made = Make(int.Parse(mode.Substring(Prefix.Length)), goesOn);
            Console.WriteLine("made");
            while (goesOn()) Watch(goesOn, takeLine);
            GC.KeepAlive(made);
            return true;
        }

        static Func<int, int>[] Make(int count, Func<bool> goesOn)
        {
            var made = new Func<int, int>[count];
            for (int i = 0; i < count && goesOn(); i++)
            {
                // Every seventh is the shortest.
                made[i] = Dynamic.Make(7 * i);
                Cpu.Sink += made[i](i);
            }
            return made;
        }

        // Until a line arrives, which is looked for every so often.
        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Watch(Func<bool> goesOn, Func<bool> takeLine)
        {
            const int ReadingsPerCheck = 1000;
            long last = Stopwatch.GetTimestamp(), longest = 0;
            bool hasLine = false;
            while (!hasLine && goesOn())
            {
                for (int i = 0; i < ReadingsPerCheck; i++)
                {
                    long now = Stopwatch.GetTimestamp();
                    longest = Math.Max(longest, now - last);
                    last = now;
                }
                hasLine = takeLine();
            }
            if (hasLine) Console.WriteLine("gap " + longest * 1000000 / Stopwatch.Frequency);
        }
    }
}
