// Modes of the .NET workload whose threads wait:
//
//   starve      work items that wait for asynchronous work: Cart.Get, in more of them than the pool has threads
//   convoy      eight threads that take turns in Ledger.Add, which holds a lock for milliseconds
//   owner       Price.Compute holds a lock and computes, and three threads wait for the lock in Price.Read; it prints
//               "owner TID" of the thread that computes
//   deadlock    two threads: each holds a lock that the other one takes in Account.Transfer
//   storm       eight threads that allocate: each waits for the collections that the others cause
//   downstream  work items that read from a socket whose peer answers late: Prices.Fetch
using System;
using System.Net;
using System.Net.Sockets;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

namespace Workload
{
    public static class Cart
    {
        static async Task<int> Load() { await Task.Delay(500); return 1; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int Get() { return Load().Result; }
    }

    public static class Ledger
    {
        static readonly object gate = new object();

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Add() { lock (gate) Thread.Sleep(5); }
    }

    public static class Price
    {
        static readonly object gate = new object();

        // SYS_gettid of x86-64.
        [DllImport("libc", EntryPoint = "syscall")]
        static extern long GetThreadId(long number = 186);

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Compute(Func<bool> goesOn, ManualResetEvent taken)
        {
            lock (gate)
            lock (gate)
            {
                Console.WriteLine("owner " + GetThreadId());
                taken.Set();
                // Not in a method of its own: on-stack replacement can hide the caller of a loop.
                while (goesOn()) Cpu.Outer();
            }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Read() { lock (gate) { } }
    }

    public static class Account
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Transfer(object from, object to, Barrier both)
        {
            lock (from)
            {
                both.SignalAndWait();
                lock (to) { }
            }
        }
    }

    public static class Prices
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Fetch(Socket peer, byte[] buffer) { peer.Receive(buffer); }
    }

    public static class Waits
    {
        // Runs a mode. False is a mode that this class lacks.
        public static bool Run(string mode, Func<bool> goesOn)
        {
            switch (mode)
            {
                case "starve": Starve(goesOn); return true;
                case "convoy": Convoy(goesOn); return true;
                case "owner": Own(goesOn); return true;
                case "deadlock": Deadlock(goesOn); return true;
                case "storm": Storm(goesOn); return true;
                case "downstream": CallDownstream(goesOn); return true;
                default: return false;
            }
        }

        static void Starve(Func<bool> goesOn)
        {
            while (goesOn())
            {
                Task.Run(Cart.Get);
                Thread.Sleep(10);
            }
        }

        static void Convoy(Func<bool> goesOn)
        {
            for (int i = 0; i < 8; i++)
            {
                new Thread(() => { while (goesOn()) Ledger.Add(); }) { IsBackground = true }.Start();
            }
            while (goesOn()) Thread.Sleep(100);
        }

        static void Own(Func<bool> goesOn)
        {
            var taken = new ManualResetEvent(false);
            new Thread(() => Price.Compute(goesOn, taken)) { IsBackground = true, Name = "price computation" }.Start();
            taken.WaitOne();
            for (int i = 0; i < 3; i++)
            {
                new Thread(Price.Read) { IsBackground = true, Name = "price reader" }.Start();
            }
            // An exception is one of its thread until its handler ends.
            try { int.Parse("none"); }
            catch (FormatException) { while (goesOn()) Thread.Sleep(100); }
        }

        static void Deadlock(Func<bool> goesOn)
        {
            object one = new object(), other = new object();
            var both = new Barrier(2);
            new Thread(() => Account.Transfer(one, other, both)) { IsBackground = true }.Start();
            new Thread(() => Account.Transfer(other, one, both)) { IsBackground = true }.Start();
            while (goesOn()) Thread.Sleep(100);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static byte[][] Allocate()
        {
            var kept = new byte[1000][];
            for (int i = 0; i < kept.Length; i++) kept[i] = new byte[1000];
            return kept;
        }

        static void Storm(Func<bool> goesOn)
        {
            for (int i = 0; i < 8; i++)
            {
                new Thread(() => { while (goesOn()) GC.KeepAlive(Allocate()); }) { IsBackground = true }.Start();
            }
            while (goesOn()) Thread.Sleep(100);
        }

        static void CallDownstream(Func<bool> goesOn)
        {
            const int Calls = 4;
            ThreadPool.SetMinThreads(Calls, Calls);
            var listener = new TcpListener(IPAddress.Loopback, 0);
            listener.Start();
            for (int i = 0; i < Calls; i++)
            {
                var client = new TcpClient("127.0.0.1", ((IPEndPoint)listener.LocalEndpoint).Port);
                Socket service = listener.AcceptSocket();
                new Thread(() => { while (goesOn()) { Thread.Sleep(200); service.Send(new byte[1]); } })
                    { IsBackground = true }.Start();
                ThreadPool.QueueUserWorkItem(_ =>
                {
                    var buffer = new byte[1];
                    while (goesOn()) Prices.Fetch(client.Client, buffer);
                });
            }
            while (goesOn()) Thread.Sleep(100);
        }
    }
}
