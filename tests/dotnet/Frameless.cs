// The mode of the .NET workload whose hot methods have no frame pointer: Main > Frameless.Run > Top > Outer > Middle > Inner >
// Work, and the same from an exception handler: Main > Frameless.Run > Handled > Throw > the runtime > Handled > Outer > ...
//
// Run it without tiers (DOTNET_TieredCompilation=0). The JIT gives an optimized method no frame pointer if it has no loop and fewer than two calls. Each method here has some
// hundred bytes of straight code before and behind its call, so that its epilogue is far from most of its instructions. Top has a
// frame pointer, which the methods below leave as it is: followed from there, it leads to the caller of Top.
using System;
using System.Runtime.CompilerServices;

namespace Workload
{
    public static class Frameless
    {
        [MethodImpl(MethodImplOptions.AggressiveInlining)]
        static long Mix(long x)
        {
            x ^= x >> 33; x *= -49064778989728563; x ^= x >> 33; x *= -4265267296055464877; x ^= x >> 31;
            x *= -7046029254386353131; x ^= x >> 27; x *= -8663945395140668459; x ^= x >> 30;
            return x;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Work(long seed)
        {
            long a = Mix(seed), b = Mix(a + 1), c = Mix(b ^ 2), d = Mix(c + 3);
            return Mix(a ^ b) + Mix(b ^ c) + Mix(c ^ d) + Mix(d ^ a);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Inner(long seed)
        {
            long a = Mix(seed), b = Mix(a + 5);
            long result = Work(a ^ b);
            return Mix(result + a) ^ Mix(result + b);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Middle(long seed)
        {
            long a = Mix(seed), b = Mix(a + 7), c = Mix(b + 9);
            long result = Inner(a ^ b ^ c);
            return Mix(result + a) ^ Mix(result + b) ^ c;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Outer(long seed)
        {
            long a = Mix(seed);
            long result = Middle(a);
            return Mix(result + a) ^ Mix(result - seed);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Top(long seed)
        {
            for (int round = 0; round < 1000; round++) seed += Outer(seed);
            return seed;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Throw() { throw new InvalidOperationException(); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Handled(long seed)
        {
            try { Throw(); }
            catch (InvalidOperationException)
            {
                for (int round = 0; round < 1000; round++) seed += Outer(seed);
            }
            return seed;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Run(Func<bool> goesOn)
        {
            while (goesOn()) { Cpu.Sink += Top(Cpu.Sink); Cpu.Sink += Handled(Cpu.Sink); }
        }
    }
}
