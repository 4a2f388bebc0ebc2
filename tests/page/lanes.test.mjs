// Tests the states of samples, and the lanes of threads over time, with the pointer and with keys alone.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";
import { stateOfPixel, tableRows } from "./parts.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("lanes.html")));

const LANE_PX = 18;
const LANE_NAME_PX = 190;

/** A position in the lanes: the middle of a lane, at this part of the time. */
const placeOf = async (lane, part) => {
  const width = await browser.evaluate("document.getElementById('lanes').clientWidth");
  return [LANE_NAME_PX + part * (width - LANE_NAME_PX), (lane + 0.5) * LANE_PX];
};

/** The state whose colour a lane has at a part of the time. */
const stateAt = async (lane, part) => {
  const [x, y] = await placeOf(lane, part);
  return stateOfPixel(browser, "lanes", x, y);
};

const options = (id) => browser.evaluate(`[...document.getElementById("${id}").options].map(({ textContent }) => textContent)`);

test("lanes show what each thread did, in the colour of its state", async () => {
  await browser.press("r");
  assert.equal(await browser.evaluate("document.getElementById('view-lanes').hidden"), false);
  assert.deepEqual(browser.complaints(), []);
  const seen = [];
  for (const part of [0.05, 0.5, 0.95]) seen.push([await stateAt(0, part), await stateAt(1, part)]);
  assert.deepEqual(seen, [["on-cpu", "runnable"], ["blocked", "runnable"], ["blocked", "disk"]]);
  const legend = await browser.evaluate("[...document.querySelectorAll('#legend li')].map(({ textContent }) => textContent)");
  assert.deepEqual(legend, ["on CPU", "runnable", "blocked", "disk"]);
  await browser.picture("lanes");
});

test("a click shows the stack of that moment, and the way to it in the flame graph", async () => {
  await browser.click("#tab-lanes");
  const place = await placeOf(0, 0.5);
  await browser.point("#lanes", place);
  assert.match(await browser.text("lane"), /^main 7: blocked for 800 ms, 0\.20 s to 1\.00 s$/);
  await browser.point("#lanes", place, place);
  const frames = "[...document.querySelectorAll('#lane-stack li')].map(({ textContent }) => textContent)";
  assert.deepEqual(await browser.evaluate(frames), ["[wait]", "wait", "main"]);
  await browser.click("#lane-stack button");
  assert.match(await browser.text("breadcrumbs"), /all.*main.*wait.*\[wait\]/);
});

test("lanes are read with keys alone", async () => {
  await browser.press("r");
  await browser.press("ArrowRight");
  assert.match(await browser.text("lane"), /^main 7: on CPU for 200 ms/);
  await browser.press("ArrowRight");
  assert.match(await browser.text("lane"), /^main 7: blocked for 800 ms/);
  await browser.press("ArrowDown");
  assert.match(await browser.text("lane"), /^worker 8: runnable for 600 ms/);
  await browser.press("Enter");
  assert.match(await browser.text("spoken"), /worker 8: runnable for 600 ms, 0\.00 s to 0\.60 s, in wait/);
  await browser.press("ArrowUp");
  assert.match(await browser.text("lane"), /^main 7: on CPU/);
});

test("CPU, waiting or both: samples of the chosen states are shown everywhere", async () => {
  assert.deepEqual(await options("state"), ["CPU and waiting", "on CPU", "waiting", "runnable", "blocked", "disk"]);
  assert.match(await browser.text("selected"), /whole time: 100 samples/);
  await browser.press("c");
  assert.match(await browser.text("selected"), /whole time: 10 samples/);
  assert.deepEqual((await tableRows(browser))[0], ["100.0 %", "100.0 %", "work"]);
  await browser.press("c");
  assert.match(await browser.text("selected"), /whole time: 90 samples/);
  assert.deepEqual((await tableRows(browser))[0], ["66.7 %", "66.7 %", "[wait]"]);
  await browser.press("c");
  assert.match(await browser.text("selected"), /whole time: 30 samples/);
});

test("waits are cut at the ends of the selected range, in the heat map and in the graph", async () => {
  await browser.open(page("events.html"));
  await browser.evaluate(`(() => {
    for (const [id, value] of [["from", "1"], ["to", "1.2"]]) {
      document.getElementById(id).value = value;
      document.getElementById(id).dispatchEvent(new Event("change"));
    }
  })()`);
  assert.match(await browser.text("selected"), /1\.00 s to 1\.20 s: 200 ms/);
  await browser.point("#heat", [3, 60]);
  assert.match(await browser.text("selected"), /: 0 ns\)/);
});

test("samples of several ticks are spread over the heat map, and cut at the ends of the range", async () => {
  await browser.point("#heat", [3, 60]);
  assert.match(await browser.text("selected"), /\(0\.08 s to 0\.10 s: 2 samples, 50\.0 % on CPU, 50\.0 % runnable\)/);
  await browser.evaluate(`(() => {
    document.getElementById("to").value = "0.1";
    document.getElementById("to").dispatchEvent(new Event("change"));
  })()`);
  assert.match(await browser.text("selected"), /0\.00 s to 0\.10 s: 10 samples/);
});

test("a profile of CPU samples alone has neither lanes nor states", async () => {
  await browser.open(page("known.html"));
  assert.equal(await browser.evaluate("document.getElementById('tab-lanes').hidden"), true);
  assert.equal(await browser.evaluate("document.getElementById('state').parentElement.hidden"), true);
});
