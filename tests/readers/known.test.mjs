// The profile of the golden files, in the formats of other tools. Each count in it is so many times as large.

import assert from "node:assert/strict";
import { test } from "node:test";

import { brokenRules, firefoxSamples, pprof, profile, titleInSpeedscope } from "./readers.mjs";

const MANY = 2 ** 32 + 1;
const SAMPLES = 86 * MANY;
const HARM = "a;b  [31m<script>alert(\"&\")</script> ";

test("pprof's decoder finds samples, units, labels, inlined functions and build ids", () => {
  const read = pprof("known.pb.gz");
  assert.deepEqual(read.types, ["samples/count", "cpu/nanoseconds"]);
  assert.equal(read.defaultType, "cpu");
  assert.equal(read.period, 10_000_000);
  assert.equal(read.timeNanos, 1_700_000_000_000_000_000n);
  assert.ok(read.comments.includes(`samples reported: ${SAMPLES}`), read.comments.join("\n"));
  assert.equal(read.samples.reduce((sum, { values }) => sum + values[0], 0), SAMPLES);
  const [inlined] = read.samples.filter(({ locations }) => locations[0]?.names[0] === "inlined");
  assert.deepEqual(inlined.locations.map(({ names }) => names), [["inlined", "outer"], ["main"]]);
  assert.deepEqual(inlined.values, [2 * MANY, 2 * MANY * 10_000_000]);
  assert.equal(inlined.locations[1].file, "/app/run");
  assert.equal(inlined.locations[1].buildId, "ab01");
  assert.deepEqual(inlined.labels, { thread: "wor ker 1/2", tid: 9, process: "app", pid: 7 });
  const [other] = read.samples.filter(({ values }) => values[0] === 3 * MANY);
  assert.deepEqual(other.labels, { thread: HARM, tid: 8, process: HARM, pid: 8 });
});

test("speedscope's schema holds, also of a profile without samples", () => {
  for (const name of ["known", "empty"]) {
    assert.deepEqual(brokenRules(JSON.parse(profile(`${name}.speedscope.json`))), []);
  }
  assert.notDeepEqual(brokenRules({ shared: {} }), []);
});

test("speedscope opens its own format, pprof and perf script", async () => {
  assert.match(await titleInSpeedscope("known.speedscope.json"), /On-CPU: pid 7 \(app\)/);
  assert.match(await titleInSpeedscope("known.pb.gz"), /known\.pb\.gz/);
  assert.match(await titleInSpeedscope("known.perf.txt"), /known\.perf\.txt/);
});

test("the Firefox Profiler's tables lead from each sample to its stack", () => {
  const { meta, libs, threads } = JSON.parse(profile("known.json"));
  assert.deepEqual(threads.map(({ name, tid, isMainThread }) => [name, tid, isMainThread]), [
    ["app", 7, true],
    ["wor ker 1/2", 9, false],
    [HARM, 8, true],
  ]);
  const [read, inlined] = firefoxSamples(threads[1]);
  assert.deepEqual(read, { time: 20, path: ["main", "ksys_read"], weight: 20 * MANY });
  assert.deepEqual(inlined, { time: 30, path: ["main", "outer", "inlined"], weight: MANY });
  const { samples, stackTable, frameTable } = threads[1];
  const leaf = frameTable.category[stackTable.frame[samples.stack[0]]];
  assert.equal(meta.categories[leaf].name, "Kernel");
  assert.equal(libs.find(({ path }) => path === "/app/run").codeId, "ab01");
});
