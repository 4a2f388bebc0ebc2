// The mode of the .NET workload whose methods are replaced while they run (on-stack replacement): Main > Replaced.Run >
// 9 x Replaced.Descend > Replaced.Loop > Replaced.Work.
//
// Each method is called too seldom for another tier, and loops for long enough to be replaced. The epilogue of each is far behind
// its last call.
using System;
using System.Runtime.CompilerServices;

namespace Workload
{
    public static class Replaced
    {
        const int Levels = 8;
        // A method is replaced after 50,000 rounds of a loop in it at the latest.
        const int Rounds = 60000;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn)
        {
            Descend(Levels, goesOn);
            Cpu.Sink++;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Descend(int level, Func<bool> goesOn)
        {
            long x = level, y = Cpu.Sink;
            for (int round = 0; round < Rounds; round++) { x += y ^ round; y += x * 3; }
            if (level > 0) Descend(level - 1, goesOn); else Loop(goesOn);
            for (int round = 0; round < Rounds; round++)
            {
                x += y ^ round; y += x * 3; x ^= y >> 7; y ^= x << 9; x += y * 5; y += x * 7; x ^= y >> 11; y ^= x << 3;
                if (x % 1000003 == 5) x += y / 3; else if (y % 1000003 == 7) y -= x / 5; else x -= y % 17;
            }
            Cpu.Sink += x + y;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Loop(Func<bool> goesOn)
        {
            long x = 1, y = 2;
            while (goesOn())
            {
                for (int round = 0; round < 1000; round++) x += Work(x + round);
                x += Work(y) ^ x; y += Work(x + 1) ^ y; x ^= y >> 7; y ^= x << 9; x += y * 5; y += x * 7; x ^= y >> 11;
                if (x % 1000003 == 5) x += y / 3; else if (y % 1000003 == 7) y -= x / 5; else x -= y % 17;
            }
            Cpu.Sink += x + y;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Work(long state)
        {
            for (int step = 0; step < 2000; step++) state = state * 6364136223846793005 + 1442695040888963407;
            return state;
        }
    }
}
