// Tests the formats of other tools and the page with the profile of a .NET process: each has TOTAL samples, HITS of
// them in one method. FRAMES counts a sample once for each frame of the method: on-stack replacement shows it twice.

import assert from "node:assert/strict";
import { test } from "node:test";
import { join } from "node:path";

import { Browser } from "../page/browser.mjs";
import { brokenRules, firefox, firefoxSamples, pprof, profile, speedscope } from "./readers.mjs";

const { TOTAL, HITS, FRAMES, FREQUENCY_HZ } = Object.fromEntries(
  ["TOTAL", "HITS", "FRAMES", "FREQUENCY_HZ"].map((name) => [name, Number(process.env[name])]),
);
const PERCENT = (100 * HITS) / TOTAL;

const isMethod = (name) => name.includes("Workload.Cpu.Spin");
const sum = (list, weight) => list.reduce((sum, entry) => sum + weight(entry), 0);

test("the page finds the method by a search, with its share", async () => {
  const browser = await Browser.start();
  try {
    await browser.open(join(process.env.PROFILES, "a.html"));
    assert.match(await browser.text("facts"), new RegExp(` ${TOTAL.toLocaleString("en")} samples · 0 lost$`));
    await browser.press("/");
    await browser.type("Workload.Cpu.Spin");
    assert.equal(await browser.text("matched"), `${PERCENT.toFixed(1)} % of samples, 1 function`);
    assert.deepEqual(browser.complaints(), []);
  } finally {
    await browser.stop();
  }
});

test("the picture shows it", async () => {
  const browser = await Browser.start();
  try {
    await browser.call("Page.navigate", { url: `file://${join(process.env.PROFILES, "a.svg")}` });
    await browser.until("document.documentElement.tagName === 'svg' && document.querySelector('title')");
    const titles = await browser.evaluate("[...document.querySelectorAll('title')].map(({ textContent }) => textContent)");
    const counts = titles.filter(isMethod).map((title) => Number(title.match(/ \(([\d,]+) samples?, /)[1].replaceAll(",", "")));
    assert.equal(sum(counts, (count) => count), FRAMES);
  } finally {
    await browser.stop();
  }
});

test("pprof's decoder finds it", () => {
  const { samples } = pprof("a.pb.gz");
  const weight = ({ values }) => values[0];
  assert.equal(sum(samples, weight), TOTAL);
  assert.equal(sum(samples.filter(({ locations }) => locations.some(({ names }) => names.some(isMethod))), weight), HITS);
});

test("speedscope's document is as its schema says, and holds it", () => {
  const { shared, profiles, ...rest } = JSON.parse(profile("a.speedscope.json"));
  assert.deepEqual(brokenRules({ shared, profiles, ...rest }), []);
  const [{ samples: stacks, weights, endValue }] = profiles;
  const methods = new Set(shared.frames.flatMap(({ name }, index) => (isMethod(name) ? [index] : [])));
  const hits = weights.filter((_, index) => stacks[index].some((frame) => methods.has(frame)));
  assert.ok(Math.abs(sum(hits, (weight) => weight) / endValue - HITS / TOTAL) < 1e-9);
});

test("speedscope shows it", async () => {
  for (const name of ["a.speedscope.json", "a.pb.gz"]) {
    const { total } = (await speedscope(name)).functions.find(({ name }) => isMethod(name));
    const [, bound, percent] = total.match(/\((>?)(\d+)%\)$/);
    // It shows a share between 99 and 100 % as ">99%".
    assert.ok(bound ? PERCENT > percent : Math.abs(percent - PERCENT) <= 0.5, `${name}: ${total}`);
  }
  assert.notEqual((await speedscope("a.perf.txt")).title, "");
});

test("the Firefox Profiler finds it", async () => {
  const found = JSON.parse(profile("a.json")).threads.flatMap(firefoxSamples);
  assert.equal(sum(found, ({ weight }) => weight), TOTAL);
  assert.equal(sum(found.filter(({ path }) => path.some(isMethod)), ({ weight }) => weight), HITS);
  const [{ threads }, { functions }] = await firefox("a.json", ["thread", "list"], ["thread", "functions", "--search", "Workload.Cpu.Spin"]);
  assert.deepEqual(functions.map(({ totalSamples }) => totalSamples), [HITS]);
  // The time of a thread before its first sample does not count.
  const periodMs = 1000 / FREQUENCY_HZ;
  assert.ok(Math.abs(sum(threads, ({ cpuMs }) => cpuMs) - (TOTAL - threads.length) * periodMs) < periodMs / 2);
});

test("perf's text has a paragraph for each sample", () => {
  const events = profile("a.perf.txt").toString().trimEnd().split("\n\n");
  assert.equal(events.length, TOTAL);
  assert.equal(events.filter(isMethod).length, HITS);
});
