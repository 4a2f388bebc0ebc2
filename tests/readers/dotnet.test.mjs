// A real .NET process, whose method Alpha has three fifths of the work, in the formats of other tools.

import assert from "node:assert/strict";
import { test } from "node:test";

import { brokenRules, firefoxSamples, pprof, profile, titleInSpeedscope } from "./readers.mjs";

const isAlpha = (name) => name.includes("Workload.Cpu.Alpha");
const assertShare = (hits, total) => assert.ok(hits / total > 0.4 && hits / total < 0.75, `${hits} of ${total}`);

test("every format has the share of the method", () => {
  const { samples } = pprof("a.pb.gz");
  const weigh = (list, weight, holds) => list.filter(holds).reduce((sum, entry) => sum + weight(entry), 0);
  const total = weigh(samples, ({ values }) => values[0], () => true);
  assertShare(weigh(samples, ({ values }) => values[0], ({ locations }) => locations.some(({ names }) => names.some(isAlpha))), total);

  const scope = JSON.parse(profile("a.speedscope.json"));
  assert.deepEqual(brokenRules(scope), []);
  const [{ samples: stacks, weights, endValue }] = scope.profiles;
  const alphas = new Set(scope.shared.frames.flatMap(({ name }, index) => (isAlpha(name) ? [index] : [])));
  assertShare(weights.reduce((sum, weight, index) => sum + (stacks[index].some((frame) => alphas.has(frame)) ? weight : 0), 0), endValue);

  const found = JSON.parse(profile("a.json")).threads.flatMap(firefoxSamples);
  assert.equal(found.reduce((sum, { weight }) => sum + weight, 0), total);
  assertShare(weigh(found, ({ weight }) => weight, ({ path }) => path.some(isAlpha)), total);

  const events = profile("a.perf.txt").toString().trimEnd().split("\n\n");
  assert.equal(events.length, total);
  assertShare(events.filter(isAlpha).length, total);
});

test("speedscope opens them", async () => {
  for (const name of ["a.speedscope.json", "a.pb.gz", "a.perf.txt"]) assert.notEqual(await titleInSpeedscope(name), "");
});
