// Tests the table of runtime events, their bands and their marks, with the pointer and with keys alone.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("runtime-events.html")));

const LANE_PX = 18;
const LANE_NAME_PX = 190;

/** The texts of the cells of the rows in the document. */
const rows = () =>
  browser.evaluate(`[...document.querySelectorAll("#event-rows tbody tr[aria-rowindex]")]
    .map((row) => [...row.cells].map(({ textContent }) => textContent))`);

const kinds = async () => (await rows()).map(([, , kind]) => kind);

const stack = () => browser.evaluate("[...document.querySelectorAll('#event-stack li')].map(({ textContent }) => textContent)");

const filterBy = (text) =>
  browser.evaluate(`(() => {
    document.getElementById("event-filter").value = ${JSON.stringify(text)};
    document.getElementById("event-filter").dispatchEvent(new Event("input"));
  })()`);

const clickRow = (kind) =>
  browser.evaluate(`[...document.querySelectorAll("#event-rows tbody tr")]
    .find(({ cells }) => cells[2]?.textContent === ${JSON.stringify(kind)}).click()`);

/** The colour of a canvas at a position, as the style sheet writes it. */
const colourAt = (canvas, x, y) =>
  browser.evaluate(`(async () => {
    await new Promise(requestAnimationFrame);
    const context = document.querySelector("#${canvas} canvas").getContext("2d");
    const pixel = context.getImageData(${x} * devicePixelRatio, ${y} * devicePixelRatio, 1, 1).data;
    return "rgb(" + [...pixel].slice(0, 3).join(", ") + ")";
  })()`);

const styleColour = (name) =>
  browser.evaluate(`(() => {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.color = "var(--${name})";
    const text = getComputedStyle(probe).color;
    probe.remove();
    return text;
  })()`);

/** The x-coordinate of a part of the time in the lanes. */
const laneX = async (part) => {
  const width = await browser.evaluate("document.getElementById('lanes').clientWidth");
  return LANE_NAME_PX + part * (width - LANE_NAME_PX);
};

test("the table lists events in time order, with markup as text", async () => {
  await browser.press("v");
  assert.equal(await browser.evaluate("document.getElementById('view-events').hidden"), false);
  assert.deepEqual(browser.complaints(), []);
  assert.equal(await browser.text("event-count"), "5 events");
  assert.deepEqual(await rows(), [
    ["0.300000 s", "100 ms", "garbage collection", "worker 8", "Event (Microsoft-Windows-DotNETRuntime)", "Depth 0, Reason AllocSmall"],
    ["0.300000 s", "50 ms", "suspension", "worker 8", "Event (Microsoft-Windows-DotNETRuntime)", "Reason SuspendForGC"],
    ["0.500000 s", "", "exception", "main 7", "Event (Microsoft-Windows-DotNETRuntime)", "ExceptionType System.FormatException, ExceptionMessage <b>\\u{202e}x</b>"],
    ["0.700000 s", "100 ms", "lock contention", "worker 8", "Event (Microsoft-Windows-DotNETRuntime)", "LockID 18446744073709551615"],
    ["0.900000 s", "", "counter", "app, process 7", "Event (Microsoft-Windows-DotNETRuntime)", "cpu-usage 12.5"],
  ]);
  await browser.picture("runtime-events");
});

test("words of a row filter the table, and a heading sorts it in both directions", async () => {
  await browser.click("#tab-events");
  await filterBy("FORMAT main");
  assert.deepEqual(await kinds(), ["exception"]);
  assert.equal(await browser.text("event-count"), "1 of 5 events");
  await filterBy("worker");
  await browser.click("#event-rows th.duration button");
  assert.deepEqual(await kinds(), ["garbage collection", "lock contention", "suspension"]);
  await browser.click("#event-rows th.duration button");
  assert.deepEqual(await kinds(), ["suspension", "garbage collection", "lock contention"]);
  assert.equal(await browser.evaluate("document.querySelector('#event-rows th.duration').getAttribute('aria-sort')"), "ascending");
});

test("a row shows the stack of its event", async () => {
  await browser.click("#tab-events");
  await clickRow("exception");
  assert.deepEqual(await stack(), ["throw", "main"]);
  assert.match(await browser.text("event-stack"), /^exception of main 7 at 0\.50 s \(.*<b>\\u\{202e\}x<\/b>\): its stack/);
  assert.match(await browser.text("spoken"), /its stack, in throw$/);
});

test("a row without a stack shows what its thread did at the time, and the way to it in the flame graph", async () => {
  await browser.click("#tab-events");
  await clickRow("lock contention");
  assert.deepEqual(await stack(), ["[wait]", "wait", "main"]);
  assert.match(await browser.text("event-stack"), /for 100 ms .*: the stack of the thread at that time/);
  await browser.click("#event-stack button");
  assert.match(await browser.text("breadcrumbs"), /all.*main.*wait.*\[wait\]/);
  await browser.click("#tab-events");
  await clickRow("counter");
  assert.deepEqual(await stack(), []);
  assert.match(await browser.text("event-stack"), /: no stack$/);
});

test("without lanes, the nearest sample of the thread is found", async () => {
  await browser.open(page("cpu-runtime-events.html"));
  await browser.press("v");
  await clickRow("exception");
  assert.deepEqual(await stack(), ["late"]);
  assert.match(await browser.text("event-stack"), /the nearest stack of the thread, 200 ms away/);
});

test("the table is read with keys alone", async () => {
  await browser.press("v");
  for (const _ of [1, 2, 3]) await browser.press("ArrowDown");
  assert.match(await browser.text("spoken"), /^exception of main 7/);
  await browser.press("ArrowUp");
  assert.match(await browser.text("spoken"), /^suspension of worker 8/);
  assert.equal(await browser.evaluate("document.querySelector('#event-rows [aria-selected=true]').rowIndex > 0"), true);
});

test("the selected range is that of the table, too", async () => {
  await browser.press("v");
  await browser.evaluate(`(() => {
    document.getElementById("from").value = "0.6";
    document.getElementById("from").dispatchEvent(new Event("change"));
  })()`);
  assert.deepEqual(await kinds(), ["lock contention", "counter"]);
  await browser.press("w");
  assert.equal((await kinds()).length, 5);
});

test("pauses are bands through all lanes and over the heat map", async () => {
  await browser.press("r");
  const blocked = await styleColour("blocked");
  for (const lane of [0, 1]) {
    const [before, within] = [await laneX(0.25), await laneX(0.32)];
    const y = (lane + 0.5) * LANE_PX;
    assert.notEqual(await colourAt("lanes", within, y), await colourAt("lanes", before, y), `lane ${lane}`);
  }
  assert.equal(await colourAt("lanes", await laneX(0.45), LANE_PX / 2), blocked);
  const width = await browser.evaluate("document.getElementById('heat').clientWidth");
  const heat = (part) => colourAt("heat", part * width + 1, 3);
  assert.notEqual(await heat(0.32), await heat(0.42));
  const legend = await browser.evaluate("[...document.querySelectorAll('#legend li')].map(({ textContent }) => textContent)");
  assert.deepEqual(legend, ["on CPU", "runnable", "blocked", "disk", "garbage collection", "suspension", "exception", "lock contention"]);
  await browser.picture("runtime-event-lanes");
});

test("exceptions and waits for locks are marks in the lane of their thread", async () => {
  await browser.press("r");
  assert.equal(await colourAt("lanes", await laneX(0.5), 1), await styleColour("exception"));
  assert.notEqual(await colourAt("lanes", await laneX(0.5), LANE_PX + 1), await styleColour("exception"));
  assert.equal(await colourAt("lanes", await laneX(0.75), 2 * LANE_PX - 4), await styleColour("contention"));
  await browser.point("#lanes", [await laneX(0.5), LANE_PX / 2]);
  assert.match(await browser.text("lane"), /^exception of main 7 at 0\.50 s .*; main 7: blocked for 800 ms/);
  await browser.point("#lanes", [await laneX(0.75), 1.5 * LANE_PX]);
  assert.match(await browser.text("lane"), /^lock contention of worker 8 at 0\.70 s for 100 ms/);
});

test("a profile without runtime events has no table of them", async () => {
  await browser.open(page("lanes.html"));
  assert.equal(await browser.evaluate("document.getElementById('tab-events').hidden"), true);
  await browser.press("v");
  assert.equal(await browser.evaluate("document.getElementById('view-events').hidden"), true);
});

test("of twenty thousand events only the rows in view are shown", async () => {
  await browser.open(page("many-runtime-events.html"));
  await browser.press("v");
  await browser.evaluate(`(async () => {
    document.getElementById("event-rows").scrollTop = 400000;
    document.getElementById("event-rows").dispatchEvent(new Event("scroll"));
    await new Promise(requestAnimationFrame);
  })()`);
  const shown = await rows();
  assert.ok(shown.length > 0 && shown.length < 200, `${shown.length} rows`);
});
