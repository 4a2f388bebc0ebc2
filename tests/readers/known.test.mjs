// Tests the formats of other tools with a known profile.

import assert from "node:assert/strict";
import { test } from "node:test";

import { brokenRules, firefox, firefoxSamples, pprof, profile, speedscope } from "./readers.mjs";

const MANY = 2 ** 32 + 1;

test("pprof's decoder finds samples, units, labels, inlined functions and build ids", () => {
  const read = pprof("known.pb.gz");
  assert.deepEqual(read.types, ["samples/count", "cpu/nanoseconds"]);
  assert.equal(read.defaultType, "cpu");
  assert.equal(read.period, 10_000_000);
  assert.equal(read.timeNanos, 1_700_000_000_000_000_000n);
  assert.ok(read.comments.includes(`samples reported: ${MANY + 5}`), read.comments.join("\n"));
  assert.equal(read.samples.reduce((sum, { values }) => sum + values[0], 0), MANY + 5);
  const [inlined] = read.samples.filter(({ locations }) => locations[0].names[0] === "inlined");
  assert.deepEqual(inlined.locations.map(({ names }) => names), [["inlined", "outer"], ["main"]]);
  assert.deepEqual(inlined.values, [2, 20_000_000]);
  assert.equal(inlined.locations[1].file, "/app/run");
  assert.equal(inlined.locations[1].buildId, "ab01");
  assert.deepEqual(inlined.labels, { thread: "app", tid: 7, process: "app", pid: 7 });
  const [read_] = read.samples.filter(({ values }) => values[0] === MANY);
  assert.deepEqual(read_.labels, { thread: "wor\\u{a}ker 1/2", tid: 8, process: "app", pid: 7 });
});

test("speedscope's schema holds, also of a profile without samples", () => {
  for (const name of ["known", "empty"]) {
    assert.deepEqual(brokenRules(JSON.parse(profile(`${name}.speedscope.json`))), []);
  }
  assert.notDeepEqual(brokenRules({ shared: {} }), []);
});

test("speedscope opens its own format, pprof and perf script", async () => {
  const own = await speedscope("known.speedscope.json");
  assert.match(own.title, /On-CPU: pid 7 \(app\)/);
  assert.match(own.functions.find(({ name }) => name === "ksys_read").total, /\(>99%\)$/);
  assert.match((await speedscope("known.pb.gz")).title, /known\.pb\.gz/);
  assert.match((await speedscope("known.perf.txt")).title, /known\.perf\.txt/);
});

test("the Firefox Profiler's tables contain the stack of each sample", () => {
  const { meta, libs, threads } = JSON.parse(profile("known.json"));
  assert.deepEqual(threads.map(({ name, tid, isMainThread }) => [name, tid, isMainThread]), [
    ["app", 7, true],
    ["wor\\u{a}ker 1/2", 8, false],
  ]);
  assert.deepEqual(firefoxSamples(threads[1]), [{ time: 10, path: ["main", "ksys_read"], weight: MANY }]);
  assert.deepEqual(firefoxSamples(threads[0])[0], { time: 0, path: ["main", "outer", "inlined"], weight: 1 });
  const { stackTable, frameTable } = threads[1];
  const leaf = frameTable.category[stackTable.frame[1]];
  assert.equal(meta.categories[leaf].name, "Kernel");
  assert.equal(libs.find(({ path }) => path === "/app/run").codeId, "ab01");
});

test("the Firefox Profiler opens it, with the threads' functions and their time on a CPU", async () => {
  const [{ threads }, { functions }, { functions: many }] = await firefox(
    "known.json",
    ["thread", "list"],
    ["thread", "functions", "--thread", "t-0"],
    ["thread", "functions", "--thread", "t-1"],
  );
  // The time of a thread before its first sample does not count.
  assert.deepEqual(threads.map(({ name, processName, pid, tid, cpuMs }) => [name, processName, pid, tid, cpuMs]), [
    ["app", "app", "7", 7, 40],
    ["wor\\u{a}ker 1/2", "app", "7", 8, 0],
  ]);
  assert.deepEqual(functions.map(({ name, library, selfSamples, totalSamples }) => [name, library, selfSamples, totalSamples]), [
    ["inlined", "run", 2, 2],
    ["Demo.Program.Hot(class System.String)", "App", 2, 2],
    ["a;b\\u{a}\\u{1b}[31m<script>\"'\\u{202e} 5/6 [0] 1.0: x:", undefined, 1, 1],
    ["main", "run", 0, 5],
    ["outer", "run", 0, 2],
    ["App!Demo.Program.Main()", "App.dll", 0, 2],
  ]);
  assert.deepEqual(many.map(({ name, totalSamples }) => [name, totalSamples]), [
    ["ksys_read", MANY],
    ["main", MANY],
  ]);
});

test("the Firefox Profiler has runtime events as markers of their threads, with fields and stacks", async () => {
  const listed = ["thread", "markers", "--list", "--thread"];
  const [app, worker, { stack }] = await firefox("known.json", [...listed, "t-0"], [...listed, "t-1"], ["marker", "stack", "m-1"]);
  const markers = [app, worker].flatMap(({ flatMarkers }) => flatMarkers);
  assert.deepEqual(markers.map(({ name, label, start, duration, category }) => [name, label, start, duration, category]), [
    ["exception", "exception", 20, undefined, "Runtime event"],
    ["garbage collection", "AllocSmall", 15, 2, "Runtime event"],
  ]);
  assert.deepEqual(markers.map(({ fields }) => fields.map(({ label, formattedValue }) => [label, formattedValue])), [
    [["type", "<b>\\u{202e}\"'&"], ["Address", "18446744073709551615"]],
    [["Depth", "2"], ["Reason", "AllocSmall"]],
  ]);
  assert.deepEqual(stack.frames.map(({ name }) => name), ["App!Demo.Program.Hot(class System.String)", "main"]);
});

test("the Firefox Profiler opens a profile without samples", async () => {
  const [{ threads }] = await firefox("empty.json", ["thread", "list"]);
  assert.deepEqual(threads.map(({ cpuMs }) => cpuMs), [0]);
});
