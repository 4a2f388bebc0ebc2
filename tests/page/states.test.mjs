// Tests the colours of states in the flame graph and in the heat map, with the pointer and with keys alone.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";
import { focusedBox, stateOfPixel } from "./parts.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("lanes.html")));

const ROW_PX = 18;

/** The rows of `main`, and of `wait` and `work` below it. */
const [MAIN_ROW, LEAF_ROW] = [2, 3];

const widthOf = (id) => browser.evaluate(`document.getElementById("${id}").clientWidth`);

/** The states in a row of the flame graph, at these parts of its width. */
async function statesInRow(row, parts) {
  const width = await widthOf("flame");
  const found = [];
  // Text is in the middle of the row.
  for (const part of parts) found.push(await stateOfPixel(browser, "flame", Math.round(part * width), row * ROW_PX + 1));
  return found;
}

/** The states in the heat map at these parts of its width, and at a distance from its top. */
async function statesInHeatMap(parts, y = 2) {
  const width = await widthOf("heat");
  const found = [];
  for (const part of parts) found.push(await stateOfPixel(browser, "heat", Math.round(part * width), y));
  return found;
}

const legend = (id) =>
  browser.evaluate(`[...document.querySelectorAll("#${id} li")].map(({ textContent }) => textContent)`);

const selectUpTo = (seconds) =>
  browser.evaluate(`(() => {
    document.getElementById("to").value = "${seconds}";
    document.getElementById("to").dispatchEvent(new Event("change"));
  })()`);

const ALL = ["on CPU", "runnable", "blocked", "disk"];

/** The legend of the causes of waits. */
const CAUSES = ["waits for: CPU", "sleep, other"];

test("a box is divided by the shares of the states of its samples", async () => {
  assert.deepEqual(await statesInRow(MAIN_ROW, [0.05, 0.25, 0.6, 0.9]), ["on-cpu", "runnable", "blocked", "disk"]);
  assert.deepEqual(await statesInRow(LEAF_ROW, [0.15, 0.5, 0.8, 0.95]), ["runnable", "blocked", "disk", "on-cpu"]);
  assert.deepEqual(await legend("legend"), [...ALL, ...CAUSES]);
  await browser.picture("states");
});

test("a box has the colours of the chosen states and of the selected range", async () => {
  await selectUpTo(0.1);
  assert.deepEqual(await statesInRow(MAIN_ROW, [0.45, 0.55]), ["on-cpu", "runnable"]);
  await browser.press("w");
  await browser.press("c");
  assert.deepEqual(await statesInRow(MAIN_ROW, [0.05, 0.95]), ["on-cpu", "on-cpu"]);
  await browser.press("c");
  assert.deepEqual(await statesInRow(MAIN_ROW, [0.05, 0.5, 0.95]), ["runnable", "blocked", "disk"]);
});

test("the key k switches between the colours of states and of kinds of code", async () => {
  await browser.press("k");
  assert.equal(await browser.text("spoken"), "colours: by code");
  assert.deepEqual(await legend("legend"), ["native", ...CAUSES]);
  assert.deepEqual(await statesInRow(MAIN_ROW, [0.05, 0.95]), [null, null]);
  await browser.press("k");
  assert.equal(await browser.text("spoken"), "colours: by state");
  assert.deepEqual(await legend("legend"), [...ALL, ...CAUSES]);
  assert.deepEqual(await statesInRow(MAIN_ROW, [0.05]), ["on-cpu"]);
});

test("the shares of the states are in the details and in the description of a box", async () => {
  await browser.evaluate("document.getElementById('flame').focus()");
  for (const _ of "123") await browser.press("ArrowDown");
  assert.equal(await focusedBox(browser), "wait, 90.0 %, self 0.0 %, native, 44.4 % blocked, 33.3 % runnable, 22.2 % disk");
  assert.match(await browser.text("details"), /self 0 \(0\.0 %\) · 44\.4 % blocked, 33\.3 % runnable, 22\.2 % disk/);
  assert.deepEqual(browser.complaints(), []);
});

test("callers and callees have the colours of states", async () => {
  await browser.evaluate(`[...document.querySelectorAll("#functions button")].find(({ title }) => title === "wait").click()`);
  const width = await widthOf("callees");
  const states = [];
  for (const part of [0.15, 0.5, 0.9]) states.push(await stateOfPixel(browser, "callees", Math.round(part * width), 1));
  assert.deepEqual(states, ["runnable", "blocked", "disk"]);
});

test("a span of the heat map is divided by the shares of its states", async () => {
  const first = await statesInHeatMap([0.025, 0.075]);
  const middle = await statesInHeatMap([0.525, 0.575]);
  const last = await statesInHeatMap([0.925, 0.975]);
  assert.deepEqual([first, middle, last], [["on-cpu", "runnable"], ["runnable", "blocked"], ["blocked", "disk"]]);
  assert.deepEqual(await legend("heat-legend"), ALL);
  await browser.press("m");
  await browser.press("ArrowRight");
  assert.match(await browser.text("selected"), /\(0\.10 s to 0\.12 s: 2 samples, 50\.0 % on CPU, 50\.0 % runnable\)/);
});

test("the heat map has the colours of the chosen states", async () => {
  for (const _ of "12345") await browser.press("c");
  assert.deepEqual(await legend("heat-legend"), ["disk"]);
  assert.deepEqual(await statesInHeatMap([0.925, 0.975]), ["disk", "disk"]);
  assert.deepEqual(await statesInHeatMap([0.025]), [null]);
});

test("an event whose samples have one state has the colours of kinds of code", async () => {
  await browser.open(page("events.html"));
  await browser.press("e");
  assert.equal(await browser.evaluate("document.getElementById('colouring').parentElement.hidden"), true);
  assert.deepEqual([await legend("legend"), await legend("heat-legend")], [["native", "waits for: sleep, other"], []]);
  await browser.press("k");
  assert.deepEqual(await legend("legend"), ["native", "waits for: sleep, other"]);
});

test("a narrow column of the heat map is divided from top to bottom, and faded outside of the selected range", async () => {
  await browser.open(page("many-lanes.html"));
  const seen = [];
  for (const y of [11, 35, 59]) seen.push(...(await statesInHeatMap([0.3, 0.7], y)));
  assert.deepEqual(seen, ["on-cpu", "on-cpu", "runnable", "runnable", "blocked", "blocked"]);
  await selectUpTo(300);
  assert.deepEqual(await statesInHeatMap([0.3, 0.7], 35), ["runnable", null]);
});
