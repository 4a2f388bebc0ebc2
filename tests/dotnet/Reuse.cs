// The mode `reuse` of the .NET workload: methods of short life, whose addresses the runtime uses again. By turns a dynamic
// method and one of a collectible assembly runs for some time and is collected. For each the
// program prints "ran NAME BEGIN END", in nanoseconds of CLOCK_MONOTONIC: between these times the main thread is in it, or
// in a call of `Reuse.GoesOn`.
using System;
using System.Diagnostics;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;

namespace Workload
{
    public static class Reuse
    {
        const int RunsPerSecond = 25;
        const long Steps = 200000;

        static long until;

        public static void Run(Func<bool> goesOn)
        {
            for (int number = 0; goesOn(); number++)
            {
                RunDynamic("dyn_" + number);
                Collect();
                RunCollectible("col_" + number);
                // An assembly is unloaded after its types.
                Collect();
                Collect();
            }
        }

        static void Collect()
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void RunDynamic(string name)
        {
            var method = new DynamicMethod(name, typeof(long), new[] { typeof(long) }, typeof(Reuse).Module, true);
            EmitLoop(method.GetILGenerator());
            Measure(name, (Func<long, long>)method.CreateDelegate(typeof(Func<long, long>)));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void RunCollectible(string name)
        {
            AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(
                new AssemblyName("assembly_of_" + name), AssemblyBuilderAccess.RunAndCollect);
            TypeBuilder type = assembly.DefineDynamicModule("m").DefineType(
                "T", TypeAttributes.Public | TypeAttributes.Class);
            MethodBuilder method = type.DefineMethod(
                name, MethodAttributes.Public | MethodAttributes.Static, typeof(long), new[] { typeof(long) });
            EmitLoop(method.GetILGenerator());
            MethodInfo made = type.CreateType().GetMethod(name);
            Measure(name, (Func<long, long>)Delegate.CreateDelegate(typeof(Func<long, long>), made));
        }

        // do argument--; while (argument != 0);
        static void EmitLoop(ILGenerator code)
        {
            Label loop = code.DefineLabel();
            code.MarkLabel(loop);
            code.Emit(OpCodes.Ldarg_0);
            code.Emit(OpCodes.Ldc_I8, 1L);
            code.Emit(OpCodes.Sub);
            code.Emit(OpCodes.Starg_S, (byte)0);
            code.Emit(OpCodes.Ldarg_0);
            code.Emit(OpCodes.Brtrue, loop);
            code.Emit(OpCodes.Ldarg_0);
            code.Emit(OpCodes.Ret);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Measure(string name, Func<long, long> method)
        {
            method(1);
            until = Stopwatch.GetTimestamp() + Stopwatch.Frequency / RunsPerSecond;
            long begin = Now();
            while (GoesOn()) method(Steps);
            Console.WriteLine("ran " + name + " " + begin + " " + Now());
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static bool GoesOn()
        {
            return Stopwatch.GetTimestamp() < until;
        }

        static long Now()
        {
            return Stopwatch.GetTimestamp() * (1000000000L / Stopwatch.Frequency);
        }
    }
}
