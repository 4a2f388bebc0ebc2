// Tests the boxes of waits: the cause in place of the functions in which threads wait, and these functions on request.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";
import { focusedBox, tableRows } from "./parts.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("waits.html")));

const valueOf = (id) => browser.evaluate(`document.getElementById('${id}').value`);

/** The names of the boxes from the root to the end, always into the widest one. */
async function widestBoxes() {
  await browser.press("0");
  await browser.evaluate("document.getElementById('flame').focus()");
  const boxes = [await focusedBox(browser)];
  for (;;) {
    await browser.press("ArrowDown");
    const next = await focusedBox(browser);
    if (next === boxes.at(-1)) return boxes.map((box) => box.split(",")[0]);
    boxes.push(next);
  }
}

test("the cause of a wait is a box below the method that waits, and the last one", async () => {
  assert.deepEqual(await widestBoxes(), ["all", "app", "main", "serve", "[lock]"]);
  assert.equal(await focusedBox(browser), "[lock], 60.0 %, self 60.0 %, cause of a wait, 100.0 % blocked");
  await browser.picture("waits");
  assert.deepEqual(browser.complaints(), []);
});

test("the table has what threads wait for", async () => {
  const rows = await tableRows(browser, 4);
  assert.deepEqual(rows, [
    ["60.0 %", "60.0 %", "[lock]"],
    ["20.0 %", "20.0 %", "[socket I/O]"],
    ["10.0 %", "20.0 %", "work"],
    ["10.0 %", "10.0 %", "[run queue]"],
  ]);
});

test("each group of causes has a colour, which the legend explains", async () => {
  const legend = await browser.evaluate("[...document.querySelectorAll('#legend li')].map(({ textContent }) => textContent)");
  assert.deepEqual(legend, ["on CPU", "runnable", "blocked", "waits for: lock", "input and output", "CPU"]);
});

test("the choice and the key x show the functions in which threads wait", async () => {
  await browser.press("x");
  assert.equal(await browser.text("spoken"), "waits: with frames");
  const expected = ["all", "app", "main", "serve", "[lock]", "pthread_mutex_lock", "futex_wait", "futex_do_wait"];
  assert.deepEqual(await widestBoxes(), expected);
  await browser.until("location.hash.includes('waits=frames')");
  await browser.press("x");
  assert.deepEqual(await widestBoxes(), ["all", "app", "main", "serve", "[lock]"]);
});

test("a chosen cause is opened: the functions of the wait are below it", async () => {
  await widestBoxes();
  await browser.press("Enter");
  assert.equal(await valueOf("waits"), "frames");
  assert.match(await browser.text("breadcrumbs"), /serve.*\[lock\]$/);
  await browser.press("ArrowDown");
  assert.match(await focusedBox(browser), /^pthread_mutex_lock, /);
});

test("the address has whether the functions of waits are shown", async () => {
  await browser.call("Page.navigate", { url: "about:blank" });
  await browser.open(`${page("waits.html")}#waits=frames`);
  assert.equal(await valueOf("waits"), "frames");
  assert.equal((await widestBoxes()).at(-1), "futex_do_wait");
});

test("a profile without waits has no choice of them", async () => {
  await browser.open(page("known.html"));
  assert.equal(await browser.evaluate("document.getElementById('waits').parentElement.hidden"), true);
});
